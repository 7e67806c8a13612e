//! Alternatives: names that are used while the source of another one is unreachable (X21).

use std::time::Instant;

use tracing::debug;

use super::{
    Engine, Selection, Wanted,
    indirections::{Follower, Looked},
};
use crate::{
    error::{Blame, Code, Subject},
    escape::Escaped,
    name::ResourceName,
    observed::ErasedObserved,
    protocol::{TypeId, ViewId},
};

/// A name that has another one for when its source is unreachable.
#[derive(Debug)]
pub(super) struct Alternative {
    ty: TypeId,
    name: ResourceName,
    primary: ViewId,
    other: Other,
    /// What was published.
    told: Option<ErasedObserved>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Other {
    Unused,
    Watched(ViewId),
    /// It would lead back.
    Ring,
    /// Too many others are in use on behalf of who watches.
    TooMany,
}

impl Engine {
    pub(super) fn begin_alternative(&mut self, view: ViewId, ty: TypeId, name: &ResourceName, now: Instant) {
        let primary = self.walks.next_view();
        let begun = Alternative { ty, name: name.clone(), primary, other: Other::Unused, told: None };
        self.follows.alternatives.insert(view, begun);
        self.follows.edges.insert(primary, Follower::Alternative(view));
        self.begin(
            primary,
            self.types[ty.index()],
            Selection::One(Wanted::Name(Box::new(name.without_alt()))),
            now,
        );
    }

    pub(super) fn end_alternative(&mut self, view: ViewId, now: Instant) {
        let Some(alternative) = self.follows.alternatives.remove(&view) else { return };
        for way in alternative.views() {
            self.unfollow(way, now);
        }
    }

    /// Uses the alternative while the source of the name is unreachable and nothing of it is cached; until then, and once
    /// that delivers anything, the name itself.
    pub(super) fn settle_alternative(&mut self, view: ViewId, now: Instant) {
        let Some(&Alternative { ty, primary, other, .. }) = self.follows.alternatives.get(&view) else {
            return;
        };
        let seen = self.look(primary);
        let other = match (other, seen.as_ref().map(is_unreachable)) {
            (Other::Unused, Some(true)) => self.use_alternative(view, ty, now),
            (Other::Watched(way), Some(false)) => {
                debug!(%view, "reverted from the alternative name");
                self.unfollow(way, now);
                Other::Unused
            }
            (Other::Ring | Other::TooMany, Some(false)) => Other::Unused,
            (other, Some(_) | None) => other,
        };
        if let Some(alternative) = self.follows.alternatives.get_mut(&view) {
            alternative.other = other;
        }
        self.publish_alternative(view);
    }

    fn use_alternative(&mut self, view: ViewId, ty: TypeId, now: Instant) -> Other {
        let Some(alternative) = self.follows.alternatives.get(&view) else { return Other::Unused };
        let Some(name) = alternative.name.directives().and_then(|directives| directives.alt()).cloned()
        else {
            return Other::Unused;
        };
        if self.alternatives_around(view) >= MAX_ALTERNATIVES {
            debug!(%view, name = %Escaped(&name), limit = MAX_ALTERNATIVES, "alternative name not used: too many in use");
            return Other::TooMany;
        }
        debug!(%view, name = %Escaped(&name), "using the alternative name");
        let way = self.walks.next_view();
        if let Some(alternative) = self.follows.alternatives.get_mut(&view) {
            alternative.other = Other::Watched(way);
        }
        self.follows.edges.insert(way, Follower::Alternative(view));
        self.begin(way, self.types[ty.index()], Selection::One(Wanted::Name(Box::new(name))), now);
        if self.is_ring(view) {
            self.unfollow(way, now);
            return Other::Ring;
        }
        Other::Watched(way)
    }

    /// How many alternatives are in use on behalf of who watches by way of one of them; who is nearest counts.
    fn alternatives_around(&self, view: ViewId) -> usize {
        let Some((_, watch)) = self.nearest_watch(vec![view]) else { return MAX_ALTERNATIVES };
        let below = self.below(watch);
        [watch].iter().chain(&below).filter(|view| self.is_in_use(**view)).count()
    }

    fn is_in_use(&self, view: ViewId) -> bool {
        let alternative = self.follows.alternatives.get(&view);
        alternative.is_some_and(|alternative| matches!(alternative.other, Other::Watched(_)))
    }

    /// How many alternatives are in use.
    #[cfg(test)]
    pub(super) fn alternatives_in_use(&self) -> usize {
        self.follows.alternatives.keys().filter(|view| self.is_in_use(**view)).count()
    }

    pub(super) fn look_at_alternative(
        &self,
        alternative: &Alternative,
        depth: usize,
        looked: &mut Looked,
    ) -> Option<ErasedObserved> {
        let primary = self.look_along(alternative.primary, depth, looked);
        let way = match alternative.other {
            Other::Watched(way) => way,
            Other::Unused | Other::Ring => return primary,
            Other::TooMany => return Some(self.not_used(alternative, primary?)),
        };
        match (primary, self.look_along(way, depth, looked)) {
            (Some(seen), _) if !is_unreachable(&seen) => Some(seen),
            (_, Some(seen @ ErasedObserved::Present { .. })) => Some(seen),
            // Until something is known of the alternative, that the source is unreachable is no news.
            (_, None) => None,
            (None, Some(seen)) => Some(seen),
            (Some(seen), Some(other)) => Some(self.neither(alternative, (seen, other))),
        }
    }

    /// What is seen when a name cannot be had, and its alternative is one too many.
    fn not_used(&self, alternative: &Alternative, primary: ErasedObserved) -> ErasedObserved {
        match primary {
            ErasedObserved::Absent { reason } => {
                ErasedObserved::Absent { reason: reason.via(self.subject_of(alternative), TOO_MANY) }
            }
            present @ ErasedObserved::Present { .. } => present,
        }
    }

    fn subject_of(&self, alternative: &Alternative) -> Subject {
        let type_url = self.types[alternative.ty.index()].type_url();
        Subject { type_url, name: alternative.name.canonical(), node: self.node_id.clone() }
    }

    /// What is seen when neither a name nor its alternative can be had.
    fn neither(
        &self,
        alternative: &Alternative,
        (primary, other): (ErasedObserved, ErasedObserved),
    ) -> ErasedObserved {
        match (primary, other) {
            (ErasedObserved::Absent { reason }, ErasedObserved::Absent { reason: other }) => {
                let way = format!("{}; and of the alternative", reason.reason());
                ErasedObserved::Absent { reason: other.via(self.subject_of(alternative), &way) }
            }
            (primary, _) => primary,
        }
    }

    fn publish_alternative(&mut self, view: ViewId) {
        let Some(seen) = self.look(view) else { return };
        let Some(alternative) = self.follows.alternatives.get(&view) else { return };
        if alternative.told.as_ref().is_some_and(|told| told.is_same(&seen)) {
            return;
        }
        let ty = alternative.ty;
        if let Some(alternative) = self.follows.alternatives.get_mut(&view) {
            alternative.told = Some(seen.clone());
        }
        self.publish_seen(view, ty, seen);
    }
}

impl Alternative {
    pub(super) fn views(&self) -> impl Iterator<Item = ViewId> + use<> {
        let other = match self.other {
            Other::Watched(way) => Some(way),
            Other::Unused | Other::Ring | Other::TooMany => None,
        };
        [self.primary].into_iter().chain(other)
    }
}

/// Whether nothing can be had of a source, whatever it may have: no server of it can be reached, or none is known.
fn is_unreachable(seen: &ErasedObserved) -> bool {
    match seen {
        ErasedObserved::Absent { reason } => {
            reason.is_of_server()
                || (reason.code() == Code::FailedPrecondition && reason.blame() == Blame::Local)
        }
        ErasedObserved::Present { .. } => false,
    }
}

/// How many alternatives are used at a time on behalf of one watch.
///
/// Redirects and alternatives multiply: what a server leads to may lead to several others. The limit is far beyond what anybody
/// writes, and bounds what a server can make a client request.
pub(super) const MAX_ALTERNATIVES: usize = 64;

const TOO_MANY: &str = "its alternative is not used since 64 alternatives are in use already";
