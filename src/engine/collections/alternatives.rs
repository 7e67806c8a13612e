//! Alternatives: names that are used while the source of another one is unreachable (X21).

use tracing::debug;

use super::{
    super::{delivery::Delivery, selection::TypedName, store::Store},
    Follower, Indirections, publish_seen,
};
use crate::{
    base::WatchId,
    error::{Blame, Code, Subject, WatchError},
    escape::Escaped,
    invariant,
    name::ResourceName,
    observed::ErasedObserved,
    protocol::TypeId,
};

/// A name with an alternative for an unreachable source.
#[derive(Debug)]
pub(super) struct Alternative {
    ty: TypeId,
    name: ResourceName,
    pub(super) primary: WatchId,
    pub(super) other: Other,
    /// The last published state.
    published: Option<ErasedObserved>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Other {
    Unused,
    Watched(WatchId),
    /// It would close a ring.
    Ring,
    /// Too many others are in use for the same watch.
    TooMany,
}

impl Indirections {
    /// Begins a watch of a name that has an alternative.
    pub(in crate::engine) fn begin_alternative(
        &mut self,
        store: &Store,
        delivery: &mut Delivery,
        watch_id: WatchId,
        TypedName { ty, name }: TypedName<'_>,
    ) {
        let primary = delivery.next_watch_id();
        let begun = Alternative { ty, name: name.clone(), primary, other: Other::Unused, published: None };
        self.alternatives.insert(watch_id, begun);
        self.edges.insert(primary, Follower::Alternative(watch_id));
        self.subscribe(primary, store.ty(ty), name.without_alt());
    }

    pub(super) fn end_alternative(&mut self, watch_id: WatchId) {
        let ended = self.alternatives.remove(&watch_id);
        for watch in ended.iter().flat_map(Alternative::watches) {
            self.unfollow(watch);
        }
    }

    /// Uses the alternative while the source of the name is unreachable and nothing of it is cached; until then, and
    /// once it delivers anything, the name itself.
    pub(super) fn update_alternative(&mut self, store: &Store, delivery: &mut Delivery, watch_id: WatchId) {
        // It may have ended meanwhile.
        let Some(&Alternative { primary, other, .. }) = self.alternatives.get(&watch_id) else { return };
        let seen = self.look(store, delivery, primary);
        let other = match (other, seen.as_ref().map(is_unreachable)) {
            (Other::Unused, Some(true)) => self.use_alternative(store, delivery, watch_id),
            (Other::Watched(watch), Some(false)) => {
                debug!(%watch_id, "reverted from the alternative name");
                self.unfollow(watch);
                Other::Unused
            }
            (Other::Ring | Other::TooMany, Some(false)) => Other::Unused,
            (other, Some(_) | None) => other,
        };
        if let Some(alternative) = self.alternatives.get_mut(&watch_id) {
            alternative.other = other;
        }
        self.publish_alternative(store, delivery, watch_id);
    }

    /// The watch of an alternative has begun.
    pub(super) fn on_alternative_subscribed(
        &mut self,
        store: &Store,
        delivery: &mut Delivery,
        watch_id: WatchId,
        watch: WatchId,
    ) {
        let is_other = self
            .alternatives
            .get(&watch_id)
            .is_some_and(|alternative| alternative.other == Other::Watched(watch));
        if !is_other {
            return;
        }
        if self.is_ring(delivery, watch_id) {
            self.unfollow(watch);
            if let Some(alternative) = self.alternatives.get_mut(&watch_id) {
                alternative.other = Other::Ring;
            }
        }
        self.publish_alternative(store, delivery, watch_id);
    }

    fn use_alternative(&mut self, store: &Store, delivery: &mut Delivery, watch_id: WatchId) -> Other {
        let alternative = self.alternatives.get(&watch_id);
        let directives = alternative.and_then(|alternative| alternative.name.directives());
        let Some((alternative, name)) = alternative.zip(directives.and_then(|directives| directives.alt()))
        else {
            invariant::broken("what has an alternative names it");
            return Other::Unused;
        };
        let (ty, name) = (alternative.ty, name.clone());
        if self.alternatives_around(store, delivery, watch_id) >= MAX_ALTERNATIVES {
            debug!(%watch_id, name = %Escaped(&name), limit = MAX_ALTERNATIVES, "alternative name not used: too many in use");
            return Other::TooMany;
        }
        debug!(%watch_id, name = %Escaped(&name), "using the alternative name");
        let watch = delivery.next_watch_id();
        self.edges.insert(watch, Follower::Alternative(watch_id));
        self.subscribe(watch, store.ty(ty), name);
        Other::Watched(watch)
    }

    /// The number of alternatives in use for the nearest watch of an application above one of them.
    fn alternatives_around(&self, store: &Store, delivery: &Delivery, watch_id: WatchId) -> usize {
        let Some((_, watch)) = self.nearest_watch(store, vec![watch_id]) else { return MAX_ALTERNATIVES };
        let below = self.below(delivery, watch);
        [watch].iter().chain(&below).filter(|watch_id| self.is_in_use(**watch_id)).count()
    }

    fn is_in_use(&self, watch_id: WatchId) -> bool {
        let alternative = self.alternatives.get(&watch_id);
        alternative.is_some_and(|alternative| matches!(alternative.other, Other::Watched(_)))
    }

    /// The number of alternatives in use.
    #[cfg(test)]
    pub(in crate::engine) fn alternatives_in_use(&self) -> usize {
        self.alternatives.keys().filter(|watch_id| self.is_in_use(**watch_id)).count()
    }

    fn publish_alternative(&mut self, store: &Store, delivery: &mut Delivery, watch_id: WatchId) {
        // Nothing is known yet, or the watch has ended.
        let Some(seen) = self.look(store, delivery, watch_id) else { return };
        let Some(alternative) = self.alternatives.get_mut(&watch_id) else { return };
        if alternative.published.as_ref().is_some_and(|published| published.is_same(&seen)) {
            return;
        }
        alternative.published = Some(seen.clone());
        publish_seen(store, delivery, watch_id, alternative.ty, seen);
    }
}

impl Alternative {
    /// The watches of the name and of its alternative, if that is used.
    pub(super) fn watches(&self) -> impl Iterator<Item = WatchId> + use<> {
        let other = match self.other {
            Other::Watched(watch) => Some(watch),
            Other::Unused | Other::Ring | Other::TooMany => None,
        };
        [self.primary].into_iter().chain(other)
    }

    /// The name in an error about it.
    pub(super) fn subject(&self, store: &Store) -> Subject {
        store.subject_of(self.ty, self.name.canonical())
    }
}

/// Whether nothing can be requested from a source: none of its servers can be reached, or none is known.
pub(super) fn is_unreachable(seen: &ErasedObserved) -> bool {
    match seen {
        ErasedObserved::Absent { reason } => is_of_source(reason),
        ErasedObserved::Present { .. } => false,
    }
}

/// Whether the reason is that none of the servers of a source can be reached, or none is known.
pub(super) fn is_of_source(reason: &WatchError) -> bool {
    reason.is_of_server() || (reason.code() == Code::FailedPrecondition && reason.blame() == Blame::Local)
}

/// The maximum number of alternatives in use for one watch.
///
/// Redirects and alternatives multiply: each target of a redirect may have several alternatives. The limit is far
/// beyond any sensible configuration, and bounds the requests that a server can cause.
pub(in crate::engine) const MAX_ALTERNATIVES: usize = 64;

pub(super) const TOO_MANY: &str = "its alternative is not used since 64 alternatives are in use already";
