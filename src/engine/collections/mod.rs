//! Indirections: redirects (X20), alternatives (X21), and list collections (X12 to X14).
//!
//! Each indirection has a watch of its own on its target, as a resolution has. The state behind it is not stored: a
//! [`Look`] goes along the watches, and when one of them changes, the watches above it are published anew.
//!
//! ```text
//!   watch ─▶ entry A ─▶ redirect ─▶ watch ─▶ entry B
//!   watch ─▶ alternative ─┬─▶ watch ─▶ entry A        as long as A's servers can be reached, or it is cached
//!                         └─▶ watch ─▶ entry B        else
//! ```
//!
//! There is no ring in it: an indirection that would close one is not followed, and is an error.
//!
//! The watches are begun and ended by the engine, which takes the orders for that ([`WatchOrder`]) and reports each that it has
//! begun ([`on_subscribed`](Indirections::on_subscribed)).

mod alternatives;
mod collection_alternatives;
mod list_globs;
mod lists;
mod look;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use tracing::debug;

#[cfg(test)]
pub(super) use self::alternatives::MAX_ALTERNATIVES;
pub(super) use self::lists::list_type;
use self::{
    alternatives::Alternative,
    collection_alternatives::CollectionAlternative,
    lists::{ListedName, Lists},
    look::Look,
};
use super::{
    delivery::{Delivery, WatchTarget},
    selection::{SelectedName, Selection},
    store::{CollectionKey, Store},
};
use crate::{
    base::WatchId,
    cache::Entry,
    escape::Escaped,
    name::ResourceName,
    observed::ErasedObserved,
    protocol::{EntryId, TypeId},
    resource::{Erased, ResourceType},
};

/// All watched redirects, alternatives and lists. See the [module's](self) documentation.
#[derive(Debug, Default)]
pub(super) struct Indirections {
    /// The indirection that each watch belongs to.
    edges: BTreeMap<WatchId, Follower>,
    redirects: BTreeMap<EntryId, Followed>,
    alternatives: BTreeMap<WatchId, Alternative>,
    collections: BTreeMap<WatchId, CollectionAlternative>,
    lists: Lists,
    orders: Vec<WatchOrder>,
    /// The number of derivations of each entry, for tests of the work.
    #[cfg(test)]
    looks: std::cell::Cell<u64>,
}

/// A watch to begin or to end.
#[derive(Debug)]
pub(super) enum WatchOrder {
    Subscribe { watch_id: WatchId, ty: ResourceType, names: Selection },
    Unsubscribe(WatchId),
}

/// The publication that a change of a watch causes.
#[derive(Debug, Clone)]
enum Follower {
    /// A resource that redirects.
    Redirect(EntryId),
    /// A name with an alternative.
    Alternative(WatchId),
    /// A collection with an alternative.
    CollectionAlternative(WatchId),
    /// An inline entry of a list.
    Inline(WatchId),
    /// The members of a list.
    List(CollectionKey),
    /// One member of a list, by its name there.
    Member(ListedName),
    /// The members of a glob in a list, by its name there.
    Glob(ListedName),
}

/// The target of a resource.
#[derive(Debug)]
struct Followed {
    target: ResourceName,
    watch_id: WatchId,
    /// The reason for not following it.
    broken: Option<&'static str>,
    /// Its last target, and the reason for not following it.
    before: Option<(ResourceName, Option<&'static str>)>,
}

impl Indirections {
    /// The watches to begin and to end, in their order.
    pub(super) fn take_orders(&mut self) -> Vec<WatchOrder> {
        mem::take(&mut self.orders)
    }

    /// Whether a watch belongs to an indirection.
    pub(super) fn is_followed(&self, watch_id: WatchId) -> bool {
        self.edges.contains_key(&watch_id)
    }

    /// Ends a watch of a name with directives.
    pub(super) fn end(&mut self, watch_id: WatchId) {
        self.end_alternative(watch_id);
        self.end_collection_alternative(watch_id);
        self.end_inline(watch_id);
    }

    /// The watch of the whole name, whose directives a watch follows; the watch itself if it follows none. The source that came
    /// with the name is that of its parts, too (X11).
    pub(super) fn origin_of(&self, mut watch_id: WatchId) -> WatchId {
        while let Some(
            Follower::Alternative(above) | Follower::CollectionAlternative(above) | Follower::Inline(above),
        ) = self.edges.get(&watch_id)
        {
            watch_id = *above;
        }
        watch_id
    }

    /// An ordered watch has begun: a ring is detected now.
    pub(super) fn on_subscribed(&mut self, store: &mut Store, delivery: &mut Delivery, watch_id: WatchId) {
        match self.edges.get(&watch_id) {
            Some(Follower::Redirect(id)) => {
                let id = *id;
                if self.is_ring(delivery, watch_id) {
                    self.unfollow(watch_id);
                    if let Some(followed) = self.redirects.get_mut(&id) {
                        followed.broken = Some("leads back to itself");
                    }
                }
                self.on_redirect_changed(store, id);
            }
            Some(Follower::Alternative(above)) => {
                let above = *above;
                self.on_alternative_subscribed(store, delivery, above, watch_id);
            }
            // Lists do not lead back: they are of another type than their members. Nor do the alternatives of collections, which
            // are those in one name. A watch that ended meanwhile leads nowhere.
            Some(
                Follower::Inline(_)
                | Follower::List(_)
                | Follower::Member(_)
                | Follower::Glob(_)
                | Follower::CollectionAlternative(_),
            )
            | None => {}
        }
    }

    /// Handles a change of a watch. False when it belongs to no indirection.
    pub(super) fn on_observed(
        &mut self,
        store: &mut Store,
        delivery: &mut Delivery,
        watch_id: WatchId,
        observed: &Erased,
    ) -> bool {
        let Some(follower) = self.edges.get(&watch_id).cloned() else { return false };
        match follower {
            Follower::Redirect(id) => {
                // Its target may have changed or ended.
                let followed = self.redirects.get(&id).filter(|followed| followed.watch_id == watch_id);
                let target = store.get(id).and_then(Entry::redirect).map(|redirect| &redirect.target);
                if followed.is_some_and(|followed| Some(&followed.target) == target) {
                    store.note_change(id, true, false);
                }
            }
            Follower::Alternative(above) => self.update_alternative(store, delivery, above),
            Follower::CollectionAlternative(above) => {
                self.update_collection_alternative(store, delivery, above, watch_id, observed);
            }
            Follower::Inline(above) => self.publish_inline(store, delivery, above),
            Follower::List(key) => self.update_list(store, delivery, &key),
            Follower::Member(listed) => self.update_member(store, delivery, &listed, watch_id),
            Follower::Glob(listed) => self.update_glob(store, &listed, watch_id, observed),
        }
        true
    }

    /// Follows one resource that redirects to another name than before; false when there is none.
    pub(super) fn follow_redirect(&mut self, store: &mut Store, delivery: &mut Delivery) -> bool {
        // None has changed.
        let Some(id) = store.pop_redirect() else { return false };
        let target = store.get(id).and_then(Entry::redirect).map(|redirect| redirect.target.clone());
        let known = self.redirects.get(&id);
        if known.map(|known| &known.target) == target.as_ref()
            && known.is_none_or(|known| known.broken.is_none())
        {
            return true;
        }
        let old = self.redirects.remove(&id);
        let before = old.as_ref().map(|old| (old.target.clone(), old.broken));
        match target {
            Some(target) => self.redirect(store, delivery, id, target, before),
            // It has no target any more, so that rings through it are open.
            None => self.retry_broken(store, id),
        }
        if let Some(old) = old {
            self.unfollow(old.watch_id);
        }
        true
    }

    fn redirect(
        &mut self,
        store: &mut Store,
        delivery: &mut Delivery,
        id: EntryId,
        target: ResourceName,
        before: Option<(ResourceName, Option<&'static str>)>,
    ) {
        // A resource without an entry redirects to nothing.
        let Some((ty, name)) = store.existing(id).map(|entry| (entry.ty, entry.name.clone())) else { return };
        debug!(name = %Escaped(&name), target = %Escaped(&target), "resource redirected");
        let is_deep = self.depth_of(store, id) >= MAX_REDIRECTS;
        let watch_id = delivery.next_watch_id();
        let broken = is_deep.then_some(TOO_DEEP);
        self.redirects.insert(id, Followed { target: target.clone(), watch_id, broken, before });
        if is_deep {
            return self.on_redirect_changed(store, id);
        }
        self.edges.insert(watch_id, Follower::Redirect(id));
        self.subscribe(watch_id, store.ty(ty), target);
    }

    /// The decision on following a redirect is made.
    fn on_redirect_changed(&mut self, store: &mut Store, id: EntryId) {
        // It may have been replaced while its watch began.
        let Some(followed) = self.redirects.get_mut(&id) else { return };
        let now = (&followed.target, followed.broken);
        if followed.before.take().as_ref().map(|(target, broken)| (target, *broken)) == Some(now) {
            return;
        }
        let is_broken = followed.broken.is_some();
        self.retry_broken(store, id);
        if is_broken {
            store.note_change(id, true, false);
        }
    }

    /// A redirect has changed: a ring through it may be open now.
    fn retry_broken(&self, store: &mut Store, id: EntryId) {
        let broken = self.redirects.iter().filter(|(_, known)| known.broken.is_some());
        store.note_redirects(broken.map(|(id, _)| *id).filter(|other| *other != id));
    }

    /// Orders a watch of a name.
    fn subscribe(&mut self, watch_id: WatchId, ty: ResourceType, name: ResourceName) {
        let names = Selection::One(SelectedName::Name(Box::new(name)));
        self.orders.push(WatchOrder::Subscribe { watch_id, ty, names });
    }

    /// Orders a watch of the members of a collection.
    fn subscribe_collection(&mut self, watch_id: WatchId, ty: ResourceType, name: ResourceName) {
        let names = Selection::Collection(SelectedName::Name(Box::new(name)));
        self.orders.push(WatchOrder::Subscribe { watch_id, ty, names });
    }

    /// Orders the end of a watch.
    fn unfollow(&mut self, watch_id: WatchId) {
        if self.edges.remove(&watch_id).is_some() {
            self.orders.push(WatchOrder::Unsubscribe(watch_id));
        }
    }

    /// The state that a watch of one resource sees at the moment.
    pub(super) fn look(
        &self,
        store: &Store,
        delivery: &Delivery,
        watch_id: WatchId,
    ) -> Option<ErasedObserved> {
        Look::new(self, store, delivery).at_watch(watch_id, 0)
    }

    /// The state that watches of an entry see at the moment, as a value of its type.
    pub(super) fn observe(&self, store: &Store, delivery: &Delivery, id: EntryId) -> Option<Erased> {
        let entry = store.get(id)?;
        let observed = Look::new(self, store, delivery).at_entry(id, 0)?;
        Some(store.ty(entry.ty).observe(observed))
    }

    fn count_look(&self) {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
    }

    /// The number of derivations of an entry.
    #[cfg(test)]
    pub(super) fn looks(&self) -> u64 {
        self.looks.get()
    }

    /// The watches that the watch of one resource depends on directly.
    fn next_watches(&self, delivery: &Delivery, watch_id: WatchId) -> Vec<WatchId> {
        match delivery.target(watch_id) {
            Some(WatchTarget::Entry(id)) => {
                let followed = self.redirects.get(id).filter(|followed| followed.broken.is_none());
                followed.map(|followed| followed.watch_id).into_iter().collect()
            }
            Some(WatchTarget::Alternative) => {
                let alternative = self.alternatives.get(&watch_id);
                alternative.into_iter().flat_map(Alternative::watches).collect()
            }
            Some(WatchTarget::Inline) => {
                self.lists.inline_entry(watch_id).map(|entry| entry.list).into_iter().collect()
            }
            // These depend on no other watch, or are none of one resource.
            Some(
                WatchTarget::Wildcard(..)
                | WatchTarget::List(_)
                | WatchTarget::CollectionAlternative
                | WatchTarget::Resolution
                | WatchTarget::Refused(_),
            )
            | None => Vec::new(),
        }
    }

    /// Whether a watch leads back to itself.
    fn is_ring(&self, delivery: &Delivery, watch_id: WatchId) -> bool {
        self.below(delivery, watch_id).contains(&watch_id)
    }

    /// All the watches that the watch of one resource depends on, directly or through others.
    fn below(&self, delivery: &Delivery, watch_id: WatchId) -> BTreeSet<WatchId> {
        let (mut open, mut seen) = (self.next_watches(delivery, watch_id), BTreeSet::new());
        while let Some(next) = open.pop() {
            if seen.insert(next) {
                open.extend(self.next_watches(delivery, next));
            }
        }
        seen
    }

    /// The number of redirects in a row to an entry, on the shortest path from an application's watch; counted up to
    /// the limit.
    fn depth_of(&self, store: &Store, id: EntryId) -> usize {
        let watches = store.get(id).map(|entry| entry.watches.to_vec()).unwrap_or_default();
        if watches.is_empty() {
            return 0;
        }
        self.nearest_watch(store, watches).map_or(MAX_REDIRECTS, |(depth, _)| depth)
    }

    /// The nearest watch of an application above some watches, and the number of redirects between them, if it is below
    /// the limit. Each entry on the path is visited once.
    fn nearest_watch(&self, store: &Store, mut watches: Vec<WatchId>) -> Option<(usize, WatchId)> {
        let mut seen = BTreeSet::new();
        for depth in 0..MAX_REDIRECTS {
            let mut above = Vec::new();
            for watch_id in watches {
                let id = match self.redirect_above(watch_id) {
                    Above::Redirect(id) => id,
                    Above::Watch(watch) => return Some((depth, watch)),
                };
                // It was visited on another path.
                let Some(entry) = store.get(id).filter(|_| seen.insert(id)) else { continue };
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

    fn redirect_above(&self, mut watch_id: WatchId) -> Above {
        loop {
            match self.edges.get(&watch_id) {
                Some(Follower::Redirect(id)) => return Above::Redirect(*id),
                Some(Follower::Alternative(above) | Follower::Inline(above)) => watch_id = *above,
                Some(
                    Follower::List(_)
                    | Follower::Member(_)
                    | Follower::Glob(_)
                    | Follower::CollectionAlternative(_),
                )
                | None => return Above::Watch(watch_id),
            }
        }
    }
}

/// The indirections above a watch, including alternatives and lists.
enum Above {
    /// A resource with a redirect to it.
    Redirect(EntryId),
    /// An application, a resolution or a list.
    Watch(WatchId),
}

/// Publishes the state of a watch without an entry of its own.
fn publish_seen(store: &Store, delivery: &mut Delivery, watch_id: WatchId, ty: TypeId, seen: ErasedObserved) {
    delivery.deliver(watch_id, store.ty(ty).observe(seen));
}

/// The maximum number of redirects in a row.
const MAX_REDIRECTS: usize = 16;

const TOO_DEEP: &str = "is the last of more than 16, one after the other";
