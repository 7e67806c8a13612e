//! The resources that a response does not contain.

use super::Step;
use crate::{invariant, protocol::TypeAtServer};

impl Step<'_> {
    /// Deletes the resources that a response of a full-state type does not contain (B1.10), unless the response is a heartbeat
    /// (B1.19), or holds something without a name that may be the missing resource.
    pub(super) fn apply_absence(&mut self) {
        if !self.authorities.server(self.response.server()).machine.source_key().capabilities().remote {
            self.give_up_unwritten();
        }
        let full_state = self.store.ty(self.response.ty).full_state() && !self.response.envelope.is_delta();
        if !full_state || self.response.is_heartbeat() || self.response.nameless {
            return;
        }
        let server = self.response.server();
        let Some(subscriptions) = self.authorities.subscriptions(server, self.response.ty) else {
            invariant::broken("a type that is answered was requested");
            return;
        };
        let (sends_all, is_narrow) = (subscriptions.sends_all, self.response.is_narrow);
        let mut any = false;
        for (_, sub) in subscriptions.iter_mut() {
            any |= match is_narrow {
                true => sub.on_narrow_response(self.response.number),
                false => sub.on_complete_response(self.response.number, sends_all),
            };
        }
        if !any {
            return;
        }
        self.response.is_applied = true;
        let never_seen = subscriptions
            .iter()
            .filter(|(_, sub)| sub.is_missing() && sub.was_there() && !sub.was_ever_mentioned());
        let never_seen: Vec<_> = never_seen.map(|(id, sub)| (id, sub.entry())).collect();
        for (sub, entry) in never_seen {
            let is_glob = self.store.get(entry).is_some_and(|entry| entry.is_glob);
            if !is_glob && self.authorities.placement().counts(self.store, entry, server) {
                self.authorities.server_mut(server).machine.doubt(self.response.ty, sub, self.now);
            }
        }
        self.authorities.absence().on_missed(
            self.store,
            TypeAtServer { server, ty: self.response.ty },
            "has deleted it",
            &self.response.update(),
            self.now,
        );
    }

    /// A resource that was never received and is not in a file does not exist, without a timer: the file is complete.
    fn give_up_unwritten(&mut self) {
        if self.response.nameless {
            return;
        }
        let server = self.response.server();
        let Some(subscriptions) = self.authorities.subscriptions(server, self.response.ty) else {
            invariant::broken("a type that is answered was requested");
            return;
        };
        let mut unwritten = Vec::new();
        for (_, sub) in subscriptions.iter_mut() {
            if sub.on_absent_from_file(self.response.number) {
                unwritten.push(sub.entry());
            }
        }
        for entry in unwritten {
            self.authorities.absence().on_timed_out(self.store, server, entry, self.now);
        }
    }
}
