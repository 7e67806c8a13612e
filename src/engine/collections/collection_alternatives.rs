//! Alternatives of globs and lists, which are used while the source of another collection is unreachable (X21).
//!
//! The members of a collection are not derived from entries, so that the last state of both watches is kept.
//!
//! An incomplete collection does not replace an alternative that is complete: a watch would lose members for a moment.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    super::{selection::TypedName, store::Store},
    alternatives::is_of_source,
};
use crate::{
    base::WatchId, error::WatchError, invariant, name::ResourceName, observed::ErasedMembers,
    protocol::TypeId,
};

/// The collections with alternatives, by the watch of the whole name.
#[derive(Debug, Default)]
pub(super) struct CollectionAlternatives {
    by_watch: BTreeMap<WatchId, CollectionAlternative>,
}

/// A collection with an alternative for an unreachable source.
#[derive(Debug)]
pub(super) struct CollectionAlternative {
    ty: TypeId,
    /// The whole name, with its alternatives.
    name: ResourceName,
    /// The collection without its alternative.
    primary: Watched,
    /// The watch of the alternative while that is used.
    other: Option<Watched>,
    /// The last published state.
    published: Option<Arc<ErasedMembers>>,
}

/// A watch of a collection, and its state, if that is known.
#[derive(Debug)]
struct Watched {
    watch_id: WatchId,
    seen: Option<Arc<ErasedMembers>>,
}

/// A change in the use of an alternative.
#[derive(Debug)]
pub(super) enum CollectionUse {
    /// The alternative stays as it is.
    Same,
    /// The alternative of this name is to be watched.
    Begin { ty: TypeId, name: ResourceName },
    /// The watch of the alternative is to end.
    End(WatchId),
}

impl CollectionAlternatives {
    /// Begins a watch of a collection that has an alternative.
    pub(super) fn begin(&mut self, watch_id: WatchId, typed: TypedName<'_>, primary: WatchId) {
        let primary = Watched { watch_id: primary, seen: None };
        let name = typed.name.clone();
        let begun = CollectionAlternative { ty: typed.ty, name, primary, other: None, published: None };
        self.by_watch.insert(watch_id, begun);
    }

    /// Ends a watch of a collection; returns the watches that end with it.
    pub(super) fn end(&mut self, watch_id: WatchId) -> impl Iterator<Item = WatchId> + use<> {
        let ended = self.by_watch.remove(&watch_id).into_iter();
        let watched = ended.flat_map(|ended| [Some(ended.primary), ended.other].into_iter().flatten());
        watched.map(|watched| watched.watch_id)
    }

    /// The state of the collection or of its alternative has changed: uses the alternative while the source is unreachable and
    /// nothing is cached of the collection, until its server has responded.
    pub(super) fn update(
        &mut self,
        watch_id: WatchId,
        changed: WatchId,
        seen: Arc<ErasedMembers>,
    ) -> CollectionUse {
        // It may have ended meanwhile.
        let Some(alternative) = self.by_watch.get_mut(&watch_id) else { return CollectionUse::Same };
        alternative.set_seen(changed, seen);
        if alternative.is_needed() {
            let directives = alternative.name.directives();
            let Some(name) = directives.and_then(|directives| directives.alt()).cloned() else {
                invariant::broken("what has an alternative names it");
                return CollectionUse::Same;
            };
            return CollectionUse::Begin { ty: alternative.ty, name };
        }
        alternative.take_unneeded().map_or(CollectionUse::Same, |other| CollectionUse::End(other.watch_id))
    }

    /// The watch of an alternative has been ordered.
    pub(super) fn set_other(&mut self, watch_id: WatchId, other: WatchId) {
        if let Some(alternative) = self.by_watch.get_mut(&watch_id) {
            alternative.other = Some(Watched { watch_id: other, seen: None });
        }
    }

    /// The state to publish to a watch, if it is another one than before.
    pub(super) fn publish(&mut self, store: &Store, watch_id: WatchId) -> Option<Arc<ErasedMembers>> {
        let alternative = self.by_watch.get_mut(&watch_id)?;
        // Nothing is known yet.
        let members = alternative.members(store)?;
        if alternative.published.as_ref().is_some_and(|published| published.is_same(&members)) {
            return None;
        }
        alternative.published = Some(members.clone());
        Some(members)
    }
}

impl CollectionAlternative {
    /// Records the state of one of the two watches.
    fn set_seen(&mut self, watch_id: WatchId, seen: Arc<ErasedMembers>) {
        let mut watches = [Some(&mut self.primary), self.other.as_mut()].into_iter().flatten();
        if let Some(watched) = watches.find(|watched| watched.watch_id == watch_id) {
            watched.seen = Some(seen);
        }
    }

    /// Whether the alternative is to be used, and is not.
    fn is_needed(&self) -> bool {
        self.other.is_none() && self.primary.seen.as_ref().is_some_and(|seen| unreachable(seen).is_some())
    }

    /// The watch of the alternative, if the collection has replaced it. A list whose members are not all known has not: it would
    /// replace a complete set.
    fn take_unneeded(&mut self) -> Option<Watched> {
        let is_known = |seen: &Arc<ErasedMembers>| {
            seen.complete || seen.warning.as_ref().is_some_and(|warning| !is_of_source(warning))
        };
        let primary = &self.primary;
        self.other.take_if(|_| primary.seen.as_ref().is_some_and(is_known))
    }

    /// The state that the watch sees; `None` when nothing is known.
    fn members(&self, store: &Store) -> Option<Arc<ErasedMembers>> {
        let Some(other) = &self.other else { return self.primary.seen.clone() };
        // Until the state of the alternative is known, an unreachable source is not reported.
        let seen = other.seen.as_ref()?;
        let primary = self.primary.seen.as_ref().and_then(|seen| unreachable(seen));
        Some(match (primary, unreachable(seen)) {
            (Some(primary), Some(other)) => {
                let path = format!("{}; and of the alternative", primary.reason());
                let about = store.subject_of(self.ty, self.name.canonical());
                Arc::new(ErasedMembers::refused(other.via(about, &path)))
            }
            (None, _) | (_, None) => seen.clone(),
        })
    }
}

/// The reason why nothing can be requested from the source of a collection of which nothing is cached.
fn unreachable(members: &ErasedMembers) -> Option<&WatchError> {
    let is_empty = !members.complete && members.map.is_empty();
    members.warning.as_ref().filter(|warning| is_empty && is_of_source(warning))
}
