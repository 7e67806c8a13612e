//! Alternatives of globs and lists, which are used while the source of another collection is unreachable (X21).
//!
//! The members of a collection are not derived from entries, so that the last state of both watches is kept.

use std::sync::Arc;

use tracing::debug;

use super::{
    super::{delivery::Delivery, selection::TypedName, store::Store},
    Follower, Indirections,
    alternatives::is_of_source,
};
use crate::{
    base::WatchId, error::WatchError, escape::Escaped, invariant, name::ResourceName,
    observed::ErasedMembers, protocol::TypeId, resource::Erased,
};

/// A collection with an alternative for an unreachable source.
#[derive(Debug)]
pub(super) struct CollectionAlternative {
    ty: TypeId,
    name: ResourceName,
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

impl Indirections {
    /// Begins a watch of a collection that has an alternative.
    pub(in crate::engine) fn begin_collection_alternative(
        &mut self,
        store: &Store,
        delivery: &mut Delivery,
        watch_id: WatchId,
        TypedName { ty, name }: TypedName<'_>,
    ) {
        let primary = Watched { watch_id: delivery.next_watch_id(), seen: None };
        self.edges.insert(primary.watch_id, Follower::CollectionAlternative(watch_id));
        self.subscribe_collection(primary.watch_id, store.ty(ty), name.without_alt());
        let begun = CollectionAlternative { ty, name: name.clone(), primary, other: None, published: None };
        self.collections.insert(watch_id, begun);
    }

    pub(super) fn end_collection_alternative(&mut self, watch_id: WatchId) {
        let Some(ended) = self.collections.remove(&watch_id) else { return };
        for watched in [Some(ended.primary), ended.other].into_iter().flatten() {
            self.unfollow(watched.watch_id);
        }
    }

    /// The state of the collection or of its alternative has changed: uses the alternative while the source is unreachable and
    /// nothing is cached of the collection, until its server has responded.
    pub(super) fn update_collection_alternative(
        &mut self,
        store: &Store,
        delivery: &mut Delivery,
        watch_id: WatchId,
        changed: WatchId,
        observed: &Erased,
    ) {
        let Ok(seen) = observed.clone().downcast() else {
            invariant::broken("the state of a collection is that of its members");
            return;
        };
        // It may have ended meanwhile.
        let Some(alternative) = self.collections.get_mut(&watch_id) else { return };
        alternative.set_seen(changed, seen);
        if alternative.is_needed() {
            let watch = delivery.next_watch_id();
            alternative.other = Some(Watched { watch_id: watch, seen: None });
            let Some(name) = alternative.name.directives().and_then(|directives| directives.alt()).cloned()
            else {
                invariant::broken("what has an alternative names it");
                return;
            };
            debug!(%watch_id, name = %Escaped(&name), "using the alternative collection");
            let ty = store.ty(alternative.ty);
            self.edges.insert(watch, Follower::CollectionAlternative(watch_id));
            self.subscribe_collection(watch, ty, name);
        } else if let Some(other) = alternative.take_unneeded() {
            debug!(%watch_id, "reverted from the alternative collection");
            self.unfollow(other.watch_id);
        }
        self.publish_collection_alternative(store, delivery, watch_id);
    }

    fn publish_collection_alternative(&mut self, store: &Store, delivery: &mut Delivery, watch_id: WatchId) {
        let Some(alternative) = self.collections.get_mut(&watch_id) else { return };
        // Nothing is known yet.
        let Some(members) = alternative.members(store) else { return };
        if !alternative.published.as_ref().is_some_and(|published| published.is_same(&members)) {
            alternative.published = Some(members.clone());
            delivery.deliver(watch_id, members);
        }
    }
}

impl CollectionAlternative {
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
