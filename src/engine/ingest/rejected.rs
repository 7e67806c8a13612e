//! Rejections that no single resource of a response is the cause of: the names that they concern (B1.21).
//!
//! ```text
//!   a name occurs twice              nothing is applied: the error is that of each subscribed name in the response
//!   something has no name            it may be what a name waits for: the error is that of each such name; and of what is
//!                                    held of a full-state type and should have been in the response
//! ```
//!
//! What is held stays, whatever the policy: it is not known to have been replaced by anything bad. The does-not-exist time of
//! a name that waits goes on, and decides if a response is accepted before its end.

use super::Step;
use crate::{
    cache::Policy,
    error::{WatchError, short_type},
    invariant,
    protocol::{EntryId, Span, Subscription, TypeAtServer},
    resource::Invalid,
};

impl Step<'_> {
    /// Distributes the error of a response that was not only rejected because of resources whose names are known.
    pub(super) fn reject_unattributed(&mut self) {
        if !self.response.duplicate && !self.response.nameless {
            return;
        }
        let (server, ty) = (self.response.server(), self.response.ty());
        let text = self.response.problems.text.clone();
        let reason = match self.response.duplicate {
            true => Invalid::new(format!("the response was rejected as a whole: {text}")),
            false => Invalid::new(format!("the response has something without a name: {text}")),
        };
        if self.response.duplicate {
            self.reject_mentioned(&reason);
        }
        if self.response.nameless {
            self.reject_waiting(&reason);
        }
        self.authorities.unanswered().on_wildcard_rejected(self.store, TypeAtServer { server, ty }, &reason);
    }

    /// An error in place of a resource says that there is none: the error is that of its name.
    pub(super) fn reject_error_of(&mut self, name: Span) {
        let name = self.response.envelope.text(name);
        let reason = Invalid::field("error_detail", NO_ERROR);
        let subscriptions = self.authorities.subscriptions(self.response.server(), self.response.ty);
        let sub = subscriptions.and_then(|subscriptions| {
            let sub = subscriptions.find(name)?;
            subscriptions.get_mut(sub)
        });
        // The name has no subscription.
        let Some(sub) = sub else { return };
        sub.on_answered_in(self.response.number);
        let entry = sub.entry();
        self.reject_entry(entry, &reason);
    }

    /// A glob has members, and no resource of its own: one by its name is rejected (X15). Returns the cost.
    pub(super) fn reject_glob(&mut self, id: EntryId) -> usize {
        let reason =
            Invalid::new("the name is that of a collection (a glob), which has no resource of its own");
        if let Some(about) = self.store.get(id).map(|entry| self.store.subject(entry)) {
            self.response.invalid += 1;
            let place = format_args!("{} {:?}", short_type(about.type_url), about.name);
            self.response.problems.add(&place, &reason);
        }
        // Members that were sent are still there.
        if self.store.get(id).is_some_and(|entry| !entry.is_held()) {
            self.reject_entry(id, &reason);
        }
        64
    }

    fn reject_mentioned(&mut self, reason: &Invalid) {
        let (server, number) = (self.response.server(), self.response.number);
        let Some(subscriptions) = self.authorities.subscriptions(server, self.response.ty) else {
            invariant::broken("a type that is answered was requested");
            return;
        };
        let mut entries = Vec::new();
        for located in &self.response.located {
            let sub = located.sub.and_then(|sub| subscriptions.get_mut(sub));
            if let Some(sub) = sub.filter(|sub| sub.is_mentioned_in(number)) {
                sub.on_answered();
                entries.push(sub.entry());
            }
        }
        entries.into_iter().for_each(|entry| self.reject_entry(entry, reason));
    }

    fn reject_waiting(&mut self, reason: &Invalid) {
        let (server, number) = (self.response.server(), self.response.number);
        let is_whole = self.store.ty(self.response.ty).full_state() && !self.response.envelope.is_delta();
        let Some(subscriptions) = self.authorities.subscriptions(server, self.response.ty) else {
            invariant::broken("a type that is answered was requested");
            return;
        };
        let is_concerned = |sub: &Subscription| match sub.is_held() {
            true => is_whole,
            false => sub.is_awaited_from_server(),
        };
        let concerned = subscriptions
            .iter()
            .filter(|(_, sub)| !sub.is_mentioned_in(number) && is_concerned(sub))
            .map(|(_, sub)| sub.entry());
        let concerned: Vec<_> = concerned.collect();
        for entry in concerned {
            // Members of a glob that is held may be missing, not the glob itself.
            let is_glob = self.store.get(entry).is_some_and(|entry| entry.is_glob && entry.is_held());
            if !is_glob {
                self.reject_entry(entry, reason);
            }
        }
    }

    fn reject_entry(&mut self, id: EntryId, reason: &Invalid) {
        let server = self.response.server();
        if !self.authorities.placement().counts(self.store, id, server) {
            return;
        }
        let Some(about) = self.store.get(id).map(|entry| self.store.subject(entry)) else { return };
        let error = WatchError::rejected(about, reason.clone());
        let update = self.response.update();
        self.authorities.placement().update(self.store, id, |entry| entry.on_rejected(error, KEEP, update));
    }
}

/// The last known good resource wins over an error that may be another's.
const KEEP: Policy = Policy { keep_deleted: true, fail_on_data_errors: false };

/// The rejection of an error without a code.
pub(super) const NO_ERROR: &str = "must be non-OK";
