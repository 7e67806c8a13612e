//! Alternatives: names that are used while the source of another one is unreachable (X21).
//!
//! An alternative costs a second subscription, so that it begins only when the name is known to be unreachable, and ends as
//! soon as the name has delivered anything, be it an error of the resource.

use std::collections::BTreeMap;

use super::super::{selection::TypedName, store::Store};
use crate::{
    base::WatchId,
    error::{Blame, Code, Subject, WatchError},
    name::ResourceName,
    observed::ErasedObserved,
    protocol::TypeId,
};

/// The names with alternatives, by the watch of the whole name.
#[derive(Debug, Default)]
pub(super) struct Alternatives {
    by_watch: BTreeMap<WatchId, Alternative>,
}

/// A name with an alternative for an unreachable source.
///
/// ```text
///            the source is unreachable, nothing cached
///   Unused ───────────────────────────────────────────▶ Watched ──▶ Ring      the alternative leads back to the name
///     ▲ ▲                          └──────────────────▶ TooMany │
///     │ └──────── the name has delivered something ─────────┘   │
///     └─────────────────────────────────────────────────────────┘
/// ```
#[derive(Debug)]
pub(super) struct Alternative {
    ty: TypeId,
    /// The whole name, with its alternatives; the alternative may have one itself.
    name: ResourceName,
    /// The watch of the name without its alternative.
    pub(super) primary: WatchId,
    /// Whether the alternative is used, or why not.
    pub(super) other: Other,
    /// The last published state.
    published: Option<ErasedObserved>,
}

/// The use of an alternative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Other {
    /// The name itself is used, or nothing is known of it yet.
    Unused,
    /// The alternative is used, by this watch.
    Watched(WatchId),
    /// The alternative would close a ring.
    Ring,
    /// Too many other alternatives are in use for the same watch.
    TooMany,
}

/// A change in the use of an alternative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextUse {
    /// The alternative stays as it is.
    Same,
    /// The source of the name is unreachable, and nothing of it is cached.
    Begin,
    /// The name has delivered something: its alternative, of this watch, is not needed any more.
    End(WatchId),
    /// The name has delivered something: when it becomes unreachable again, its alternative may be usable.
    Retry,
}

impl Alternatives {
    /// A watched name with an alternative; `None` if its watch has ended.
    pub(super) fn get(&self, watch_id: WatchId) -> Option<&Alternative> {
        self.by_watch.get(&watch_id)
    }

    /// Begins a watch of a name that has an alternative.
    pub(super) fn begin(&mut self, watch_id: WatchId, typed: TypedName<'_>, primary: WatchId) {
        let TypedName { ty, name } = typed;
        let begun = Alternative { ty, name: name.clone(), primary, other: Other::Unused, published: None };
        self.by_watch.insert(watch_id, begun);
    }

    /// Ends a watch of a name; returns the watches that end with it.
    pub(super) fn end(&mut self, watch_id: WatchId) -> impl Iterator<Item = WatchId> + use<> {
        self.by_watch.remove(&watch_id).into_iter().flat_map(|ended| ended.watches())
    }

    /// Records how the alternative is used from now on.
    pub(super) fn set_other(&mut self, watch_id: WatchId, other: Other) {
        if let Some(alternative) = self.by_watch.get_mut(&watch_id) {
            alternative.other = other;
        }
    }

    /// The watches of the name and of its alternative, if that is used.
    pub(super) fn watches(&self, watch_id: WatchId) -> impl Iterator<Item = WatchId> + use<> {
        self.get(watch_id).map(Alternative::watches).into_iter().flatten()
    }

    /// Whether the alternative of a watch is used, which counts for [`MAX_ALTERNATIVES`].
    pub(super) fn is_in_use(&self, watch_id: WatchId) -> bool {
        let alternative = self.by_watch.get(&watch_id);
        alternative.is_some_and(|alternative| matches!(alternative.other, Other::Watched(_)))
    }

    /// The number of alternatives in use.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.by_watch.keys().filter(|watch_id| self.is_in_use(**watch_id)).count()
    }

    /// Records the state that a watch sees; returns its type when there is something to publish.
    pub(super) fn publish(&mut self, watch_id: WatchId, seen: &ErasedObserved) -> Option<TypeId> {
        let alternative = self.by_watch.get_mut(&watch_id)?;
        if alternative.published.as_ref().is_some_and(|published| published.is_same(seen)) {
            return None;
        }
        alternative.published = Some(seen.clone());
        Some(alternative.ty)
    }
}

impl Alternative {
    /// The type, and the name of the alternative.
    pub(super) fn alternative(&self) -> Option<TypedName<'_>> {
        let name = self.name.directives().and_then(|directives| directives.alt())?;
        Some(TypedName { ty: self.ty, name })
    }

    /// Whether the alternative is to be used, or no more, now that the name itself sees this.
    pub(super) fn next_use(&self, seen: Option<&ErasedObserved>) -> NextUse {
        match (self.other, seen.map(is_unreachable)) {
            (Other::Unused, Some(true)) => NextUse::Begin,
            (Other::Watched(watch), Some(false)) => NextUse::End(watch),
            (Other::Ring | Other::TooMany, Some(false)) => NextUse::Retry,
            // Until something is known of the name again, the alternative that is used stays.
            (_, Some(_) | None) => NextUse::Same,
        }
    }

    /// The watches of the name and of its alternative, if that is used.
    fn watches(&self) -> impl Iterator<Item = WatchId> + use<> {
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

/// What the error of the name adds when its alternative is not used for that reason.
pub(super) const TOO_MANY: &str = "its alternative is not used since 64 alternatives are in use already";
