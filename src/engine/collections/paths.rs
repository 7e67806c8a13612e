//! The ways between watches by indirections: what a watch depends on, and what depends on it.

use std::collections::BTreeSet;

use super::{
    super::{
        delivery::{Delivery, WatchTarget},
        store::Store,
    },
    Indirections, MAX_REDIRECTS,
    alternatives::MAX_ALTERNATIVES,
    links::Above,
};
use crate::{base::WatchId, protocol::EntryId};

/// A view of all indirections as a graph of watches. Nothing of it is kept: rings and limits are looked for when an indirection
/// begins, which is rare.
pub(super) struct Paths<'a> {
    pub(super) indirections: &'a Indirections,
    pub(super) store: &'a Store,
    pub(super) delivery: &'a Delivery,
}

impl Paths<'_> {
    /// The watches that the watch of one resource depends on directly.
    fn next_watches(&self, watch_id: WatchId) -> Vec<WatchId> {
        match self.delivery.target(watch_id) {
            Some(WatchTarget::Entry(id)) => self
                .indirections
                .redirects
                .followed(*id)
                .map(|followed| followed.watch_id)
                .into_iter()
                .collect(),
            Some(WatchTarget::Alternative) => self.indirections.alternatives.watches(watch_id).collect(),
            Some(WatchTarget::Inline) => {
                self.indirections.lists.inline_entry(watch_id).map(|entry| entry.list).into_iter().collect()
            }
            // These depend on no other watch, or are none of one resource.
            Some(
                WatchTarget::Wildcard(..)
                | WatchTarget::Pushed(..)
                | WatchTarget::List(_)
                | WatchTarget::CollectionAlternative
                | WatchTarget::Resolution
                | WatchTarget::Batches
                | WatchTarget::Refused(_),
            )
            | None => Vec::new(),
        }
    }

    /// Whether a watch leads back to itself.
    pub(super) fn is_ring(&self, watch_id: WatchId) -> bool {
        self.below(watch_id).contains(&watch_id)
    }

    /// All the watches that the watch of one resource depends on, directly or through others.
    ///
    /// The watches of lists and wildcards are not among them: what they depend on is no single resource.
    fn below(&self, watch_id: WatchId) -> BTreeSet<WatchId> {
        let (mut open, mut seen) = (self.next_watches(watch_id), BTreeSet::new());
        while let Some(next) = open.pop() {
            if seen.insert(next) {
                open.extend(self.next_watches(next));
            }
        }
        seen
    }

    /// The number of redirects in a row to an entry, on the shortest path from an application's watch; counted up to
    /// the limit.
    ///
    /// Without a watch, the entry is a member of a collection, and the redirect is the first one.
    pub(super) fn depth_of(&self, id: EntryId) -> usize {
        let watches = self.store.get(id).map(|entry| entry.watches.to_vec()).unwrap_or_default();
        if watches.is_empty() {
            return 0;
        }
        self.nearest_watch(watches).map_or(MAX_REDIRECTS, |(depth, _)| depth)
    }

    /// The nearest watch of an application above some watches, and the number of redirects between them, if it is below
    /// the limit. Each entry on the path is visited once.
    fn nearest_watch(&self, mut watches: Vec<WatchId>) -> Option<(usize, WatchId)> {
        let mut seen = BTreeSet::new();
        for depth in 0..MAX_REDIRECTS {
            let mut above = Vec::new();
            for watch_id in watches {
                let id = match self.indirections.links.redirect_above(watch_id) {
                    Above::Redirect(id) => id,
                    Above::Watch(watch) => return Some((depth, watch)),
                };
                // It was visited on another path.
                let Some(entry) = self.store.get(id).filter(|_| seen.insert(id)) else { continue };
                if entry.watches.is_empty() {
                    // It is a member of a watched collection.
                    return Some((depth + 1, watch_id));
                }
                above.extend(entry.watches.iter().copied());
            }
            watches = above;
        }
        None
    }

    /// The number of alternatives in use for the nearest watch of an application above one of them.
    ///
    /// The limit is for each watch of an application, so that one cannot use up the alternatives of others.
    pub(super) fn alternatives_around(&self, watch_id: WatchId) -> usize {
        let Some((_, watch)) = self.nearest_watch(vec![watch_id]) else { return MAX_ALTERNATIVES };
        let below = self.below(watch);
        [watch]
            .iter()
            .chain(&below)
            .filter(|watch_id| self.indirections.alternatives.is_in_use(**watch_id))
            .count()
    }
}
