//! The globs that the resources of a response are members of.

use std::sync::Arc;

use super::{super::authorities::GlobPattern, Step};
use crate::{
    name::glob_of,
    protocol::{EntryId, SubId, Subscription},
};

/// The glob that matched last: the names of a response mostly have the same one.
#[derive(Debug)]
pub(super) struct MatchedGlob {
    pattern: GlobPattern,
    sub: SubId,
    entry: EntryId,
    /// Its members in the response are recorded already.
    answered: bool,
    /// It is to be requested again.
    asked_again: bool,
}

impl Step<'_> {
    /// The glob at a server that encloses a received resource. The result is kept in the job.
    pub(super) fn enclosing(&mut self, name: &str) -> Option<EntryId> {
        if !self.store.members.has_globs() || !name.starts_with("xdstp:") {
            return None;
        }
        if !self.response.glob.as_ref().is_some_and(|glob| glob.pattern.matches(name)) {
            let glob = glob_of(name)?;
            let subscriptions = self.authorities.subscriptions(self.response.server(), self.response.ty())?;
            let sub = subscriptions.find(&glob)?;
            let entry = subscriptions.get(sub)?.entry();
            if !self.store.get(entry).is_some_and(|entry| entry.is_glob) {
                return None;
            }
            self.response.glob = GlobPattern::of(&glob).map(|pattern| MatchedGlob {
                pattern,
                sub,
                entry,
                answered: false,
                asked_again: false,
            });
        }
        self.response.glob.as_ref().map(|glob| glob.entry)
    }

    /// Records that a response contains members of a glob. True when the resource is a new member.
    pub(super) fn on_member(&mut self, id: SubId) -> bool {
        if !self.store.members.has_globs() {
            return false;
        }
        let server = self.response.server();
        let subscriptions = self.authorities.subscriptions(server, self.response.ty());
        let Some(name) =
            subscriptions.and_then(|subscriptions| subscriptions.get(id)).map(|sub| sub.name().clone())
        else {
            return false;
        };
        if self.enclosing(&name).is_none() {
            return false;
        }
        self.on_glob_answered();
        let subscriptions = self.authorities.subscriptions(server, self.response.ty());
        let sub = subscriptions.and_then(|subscriptions| subscriptions.get_mut(id));
        sub.is_some_and(Subscription::join_glob)
    }

    /// The server confirms a member of a glob that has expired: the glob is requested again, since its members are not.
    pub(super) fn ask_glob_again(&mut self, name: &str) {
        if !self
            .enclosing(name)
            .is_some_and(|glob| self.authorities.placement().counts(self.store, glob, self.response.server()))
        {
            return;
        }
        self.response.outdated = true;
        if let Some(glob) = self.response.glob.as_mut().filter(|glob| !glob.asked_again) {
            glob.asked_again = true;
            let (ty, sub) = (self.response.ty, glob.sub);
            self.authorities.server_mut(self.response.server()).machine.request_again(ty, sub, self.now);
        }
    }

    /// The server has sent something of a glob, so there is such a collection.
    pub(super) fn on_glob_answered(&mut self) {
        // It is recorded already.
        let Some(glob) = self.response.glob.as_mut().filter(|glob| !glob.answered) else { return };
        glob.answered = true;
        let (sub, entry) = (glob.sub, glob.entry);
        let subscriptions = self.authorities.subscriptions(self.response.server(), self.response.ty());
        // It may have been released between two steps.
        let Some(sub) = subscriptions.and_then(|subscriptions| subscriptions.get_mut(sub)) else { return };
        sub.on_answered_in(self.response.number);
        if !self.authorities.placement().counts(self.store, entry, self.response.server()) {
            return;
        }
        let nothing = Arc::new(());
        self.authorities.placement().update(self.store, entry, |entry| match entry.is_held() {
            true => entry.on_unchanged(&self.response.version, self.response.since()),
            false => entry.on_accepted(nothing, [][..].into(), self.response.update()),
        });
    }
}
