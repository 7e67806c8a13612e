//! The state that a watch sees by way of indirections: it is derived from the entries each time, and never stored.
//!
//! Derived states are not stored since they would have to be invalidated along all paths; a change is published by deriving
//! the watches above it anew. The cost is that of the path, which has at most 16 redirects and 64 alternatives.

use std::collections::BTreeMap;

use super::{
    super::{
        delivery::{Delivery, WatchTarget},
        store::Store,
    },
    Indirections, MAX_REDIRECTS, TOO_DEEP,
    alternatives::{Alternative, Other, TOO_MANY, is_unreachable},
};
use crate::{
    base::WatchId,
    cache::{Entry, Redirect},
    error::{Blame, Code, WatchError, shortened},
    observed::ErasedObserved,
    protocol::EntryId,
    resource::List,
};

/// One derivation. Several paths may lead to the same resource, and each is derived once for each number of redirects
/// above it, since their number would else double with each alternative on the way.
pub(super) struct Look<'a> {
    indirections: &'a Indirections,
    store: &'a Store,
    delivery: &'a Delivery,
    /// The states behind redirects so far, by entry and depth.
    redirects: BTreeMap<(EntryId, usize), Option<ErasedObserved>>,
    /// The states of names with alternatives so far, by watch and depth.
    alternatives: BTreeMap<(WatchId, usize), Option<ErasedObserved>>,
}

impl<'a> Look<'a> {
    pub(super) fn new(indirections: &'a Indirections, store: &'a Store, delivery: &'a Delivery) -> Self {
        Self { indirections, store, delivery, redirects: BTreeMap::new(), alternatives: BTreeMap::new() }
    }

    /// The state that a watch of one resource sees, behind `depth` redirects; `None` when nothing is known.
    ///
    /// The watch need not be one of the engine's own: what an application's watch sees is derived in the same way.
    pub(super) fn at_watch(&mut self, watch_id: WatchId, depth: usize) -> Option<ErasedObserved> {
        match self.delivery.target(watch_id)? {
            WatchTarget::Entry(id) => self.at_entry(*id, depth),
            WatchTarget::Alternative => {
                if let Some(seen) = self.alternatives.get(&(watch_id, depth)) {
                    return seen.clone();
                }
                let seen = self.at_alternative(self.indirections.alternatives.get(watch_id)?, depth);
                self.alternatives.insert((watch_id, depth), seen.clone());
                seen
            }
            WatchTarget::Inline => self.at_inline(watch_id, depth),
            WatchTarget::Refused(reason) => Some(ErasedObserved::Absent { reason: reason.clone() }),
            // These are no watches of one resource.
            WatchTarget::Wildcard(..)
            | WatchTarget::List(_)
            | WatchTarget::CollectionAlternative
            | WatchTarget::Resolution
            | WatchTarget::Batches => None,
        }
    }

    /// The state of an entry as a watch sees it.
    ///
    /// An entry that is no redirect is read directly, and not remembered: that costs less than looking it up.
    pub(super) fn at_entry(&mut self, id: EntryId, depth: usize) -> Option<ErasedObserved> {
        self.indirections.count_look();
        let entry = self.store.get(id)?;
        let seen = entry.observe(|| self.store.server_error_of(id))?;
        let ErasedObserved::Present { resource, .. } = &seen else { return Some(seen) };
        if !resource.is::<Redirect>() {
            return Some(seen);
        }
        if let Some(seen) = self.redirects.get(&(id, depth)) {
            return seen.clone();
        }
        let seen = self.behind_redirect(id, entry, seen, depth);
        self.redirects.insert((id, depth), seen.clone());
        seen
    }

    /// The state behind a redirect, `seen`, or the error of one that is not followed. The warning of the redirect itself is shown
    /// where its target has none.
    fn behind_redirect(
        &mut self,
        id: EntryId,
        entry: &Entry,
        seen: ErasedObserved,
        depth: usize,
    ) -> Option<ErasedObserved> {
        let ErasedObserved::Present { resource, warning, .. } = &seen else { return Some(seen) };
        let Some(Redirect { target }) = resource.downcast_ref() else { return Some(seen) };
        // Until a new target is followed, nothing is known: the old target's value would be shown under a wrong name.
        let followed = self.indirections.redirects.get(id).filter(|followed| followed.target == *target)?;
        let broken = followed.broken.or((depth >= MAX_REDIRECTS).then_some(TOO_DEEP));
        let target = shortened(&target.to_string(), LONGEST_NAME).into_owned();
        if let Some(why) = broken {
            let message = format!("the redirect to {target} {why}");
            let subject = self.store.subject(entry);
            let reason = WatchError::new(Code::InvalidArgument, Blame::Peer, subject, message);
            return Some(ErasedObserved::Absent { reason });
        }
        Some(match self.at_watch(followed.watch_id, depth + 1)? {
            ErasedObserved::Present { resource, version, warning: theirs, source } => {
                ErasedObserved::Present { resource, version, warning: theirs.or(warning.clone()), source }
            }
            ErasedObserved::Absent { reason } => {
                let path = format!("redirected to {target}");
                ErasedObserved::Absent { reason: reason.via(self.store.subject(entry), &path) }
            }
        })
    }

    /// The state of a name with an alternative: of the name as long as it is not unreachable, and of the alternative then.
    ///
    /// A resource of the alternative goes before any error of the name.
    fn at_alternative(&mut self, alternative: &Alternative, depth: usize) -> Option<ErasedObserved> {
        let primary = self.at_watch(alternative.primary, depth);
        let other = match alternative.other {
            Other::Watched(other) => other,
            Other::Unused | Other::Ring => return primary,
            Other::TooMany => return Some(self.without_alternative(alternative, primary?)),
        };
        match (primary, self.at_watch(other, depth)) {
            // The name has delivered something meanwhile: the alternative is about to end.
            (Some(seen), _) if !is_unreachable(&seen) => Some(seen),
            (_, Some(seen @ ErasedObserved::Present { .. })) => Some(seen),
            // Until the state of the alternative is known, an unreachable source is not reported.
            (_, None) => None,
            (None, Some(seen)) => Some(seen),
            (Some(seen), Some(other)) => Some(self.neither(alternative, seen, other)),
        }
    }

    /// The error of an unreachable name whose alternative exceeds the limit.
    fn without_alternative(&self, alternative: &Alternative, primary: ErasedObserved) -> ErasedObserved {
        match primary {
            ErasedObserved::Absent { reason } => {
                ErasedObserved::Absent { reason: reason.via(alternative.subject(self.store), TOO_MANY) }
            }
            present @ ErasedObserved::Present { .. } => present,
        }
    }

    /// The error of a name that is unreachable, as is its alternative.
    fn neither(
        &self,
        alternative: &Alternative,
        primary: ErasedObserved,
        other: ErasedObserved,
    ) -> ErasedObserved {
        match (primary, other) {
            (ErasedObserved::Absent { reason }, ErasedObserved::Absent { reason: other }) => {
                let path = format!("{}; and of the alternative", reason.reason());
                ErasedObserved::Absent { reason: other.via(alternative.subject(self.store), &path) }
            }
            (primary, _) => primary,
        }
    }

    /// The state of an inline entry, found in the list by its name.
    fn at_inline(&mut self, watch_id: WatchId, depth: usize) -> Option<ErasedObserved> {
        let entry = self.indirections.lists.inline_entry(watch_id)?;
        let (resource, version, warning, source) = match self.at_watch(entry.list, depth)? {
            ErasedObserved::Present { resource, version, warning, source } => {
                (resource, version, warning, source)
            }
            ErasedObserved::Absent { reason } => {
                let reason = reason.via(entry.about.clone(), "of the list");
                return Some(ErasedObserved::Absent { reason });
            }
        };
        let found = resource.downcast_ref::<List>().and_then(|list| list.inline(&entry.entry));
        Some(match found {
            Some(inline) => ErasedObserved::Present {
                resource: inline.resource.clone(),
                version: if inline.version.is_empty() { version } else { inline.version.clone() },
                warning,
                source,
            },
            None => ErasedObserved::Absent {
                reason: WatchError::new(
                    Code::NotFound,
                    Blame::Peer,
                    entry.about.clone(),
                    "the list has no such inline entry",
                ),
            },
        })
    }
}

/// The maximum length of a target's name in an error, in bytes.
const LONGEST_NAME: usize = 256;
