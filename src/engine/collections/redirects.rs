//! Redirects: resources whose value is the name of another one (X20).
//!
//! A redirect is decided on when the watch of its target has begun: only then the watches behind it are known, and a ring
//! would show. A ring is broken at the redirect that would close it, whose resource then has an error. When any other
//! redirect changes, the broken ones are tried again.

use std::collections::BTreeMap;

use super::TOO_DEEP;
use crate::{base::WatchId, name::ResourceName, protocol::EntryId};

/// The resources that redirect, and what each leads to.
#[derive(Debug, Default)]
pub(super) struct Redirects {
    /// The redirect of each resource, which is its value.
    by_entry: BTreeMap<EntryId, Followed>,
}

/// The target of a resource.
#[derive(Debug)]
pub(super) struct Followed {
    /// The name that is watched in place of the resource.
    pub(super) target: ResourceName,
    /// The watch of the target, unless the redirect is broken.
    pub(super) watch_id: WatchId,
    /// The reason for not following it.
    pub(super) broken: Option<&'static str>,
    /// The state before the last change, until it is decided whether the redirect is followed.
    before: Option<Before>,
}

/// A target that a resource had before.
#[derive(Debug)]
struct Before {
    target: ResourceName,
    broken: Option<&'static str>,
}

/// The consequence of a decision on a redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decided {
    /// The redirect leads where it did before.
    Same,
    /// The redirect is followed, and leads elsewhere than before.
    Followed,
    /// The redirect is not followed.
    Broken,
}

impl Redirects {
    /// The redirect of a resource, followed or not.
    pub(super) fn get(&self, id: EntryId) -> Option<&Followed> {
        self.by_entry.get(&id)
    }

    /// The redirect of a resource, if it is followed.
    pub(super) fn followed(&self, id: EntryId) -> Option<&Followed> {
        self.get(id).filter(|followed| followed.broken.is_none())
    }

    /// Whether a resource redirects to the same target as before, or to none as before. One that was broken is tried again.
    pub(super) fn is_settled(&self, id: EntryId, target: Option<&ResourceName>) -> bool {
        let known = self.get(id);
        known.map(|known| &known.target) == target && known.is_none_or(|known| known.broken.is_none())
    }

    /// Takes the redirect of a resource; its watch is ended by the caller, behind the next one's beginning.
    pub(super) fn remove(&mut self, id: EntryId) -> Option<Followed> {
        self.by_entry.remove(&id)
    }

    pub(super) fn insert(&mut self, id: EntryId, followed: Followed) {
        self.by_entry.insert(id, followed);
    }

    /// The redirect of a resource is not followed.
    pub(super) fn set_broken(&mut self, id: EntryId, why: &'static str) {
        if let Some(followed) = self.by_entry.get_mut(&id) {
            followed.broken = Some(why);
        }
    }

    /// The decision on following a redirect is made.
    pub(super) fn on_decided(&mut self, id: EntryId) -> Decided {
        // It may have been replaced while its watch began.
        let Some(followed) = self.by_entry.get_mut(&id) else { return Decided::Same };
        let before = followed.before.take();
        let is_same = |before: Before| before.target == followed.target && before.broken == followed.broken;
        if before.is_some_and(is_same) {
            return Decided::Same;
        }
        match followed.broken {
            Some(_) => Decided::Broken,
            None => Decided::Followed,
        }
    }

    /// The broken redirects but for one: a change of that may have opened the ring that they are in.
    pub(super) fn broken_but(&self, id: EntryId) -> impl Iterator<Item = EntryId> {
        let broken = self.by_entry.iter().filter(|(_, known)| known.broken.is_some());
        broken.map(|(id, _)| *id).filter(move |other| *other != id)
    }
}

impl Followed {
    /// A redirect that is followed by a watch.
    pub(super) fn new(target: ResourceName, watch_id: WatchId) -> Self {
        Self { target, watch_id, broken: None, before: None }
    }

    /// A redirect behind too many others, which is not followed.
    pub(super) fn too_deep(target: ResourceName, watch_id: WatchId) -> Self {
        Self { broken: Some(TOO_DEEP), ..Self::new(target, watch_id) }
    }

    /// Puts the redirect in the place of another one, with which it is compared once it is decided.
    pub(super) fn instead_of(self, old: Option<&Self>) -> Self {
        let before = old.map(|old| Before { target: old.target.clone(), broken: old.broken });
        Self { before, ..self }
    }
}
