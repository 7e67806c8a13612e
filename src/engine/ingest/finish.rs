//! The last phase: the collections are completed, and the server is answered.

use super::{super::counts::ReceivedCounts, Step, pending_response::LocatedResource};
use crate::{
    invariant,
    protocol::{Digests, ResponseOutcome, SubId, Subscription, TypeAtServer},
};

impl Step<'_> {
    /// Whether the server may take the wildcard for a name: it has sent nothing but what is subscribed by name. Where a response
    /// need not have everything, that is so only until the wildcard was answered.
    pub(super) fn find_narrow(&mut self) {
        let (server, ty) = (self.response.server(), self.response.ty);
        let full_state = self.store.ty(ty).full_state();
        let is_spelled = self.authorities.server(server).machine.is_wildcard_spelled(ty);
        if self.response.envelope.is_delta() || !is_spelled || self.response.is_heartbeat() {
            return;
        }
        let Some(subscriptions) = self.authorities.subscriptions(server, ty) else {
            invariant::broken("a type that is answered was requested");
            return;
        };
        let is_named = |located: &LocatedResource| {
            let sub = located.sub.and_then(|sub| subscriptions.get(sub));
            sub.is_some_and(Subscription::is_named) || !located.op.is_there()
        };
        let is_narrow = !self.response.nameless && self.response.located.iter().all(is_named);
        self.response.is_narrow = is_narrow && (full_state || !subscriptions.received_all);
        let machine = &mut self.authorities.server_mut(server).machine;
        match self.response.is_narrow {
            true => machine.doubt_wildcard(ty, self.response.since()),
            false => machine.trust_wildcard(ty),
        }
    }

    /// The server has sent all its resources of a type with a wildcard.
    pub(super) fn complete(&mut self) {
        let server = self.response.server();
        let Some(subscriptions) = self.authorities.subscriptions(server, self.response.ty) else {
            invariant::broken("a type that is answered was requested");
            return;
        };
        if self.response.lacks_wildcard {
            let at = TypeAtServer { server, ty: self.response.ty };
            return self.authorities.unanswered().on_wildcard_answered(self.store, at);
        }
        if self.response.is_narrow {
            // What it stands for is seen when something else follows, or nothing.
            return;
        }
        let received_before = subscriptions.received_all && self.response.envelope.is_delta();
        // Also while the end of the wildcard is not written: it may be subscribed again before.
        subscriptions.received_all = subscriptions.takes_all()
            && subscriptions.sends_all
            && (received_before || self.response.is_complete_set());
        let undecided = subscriptions.wildcard && subscriptions.sends_all;
        let received_all = undecided && subscriptions.received_all;
        let at = TypeAtServer { server, ty: self.response.ty };
        self.authorities.unanswered().on_wildcard_answered(self.store, at);
        if received_all {
            self.authorities.absence().complete_all(self.store, server, self.response.ty);
        } else if undecided {
            // It may be complete or not: known when nothing follows.
            self.authorities.server_mut(server).machine.await_quiet(self.response.ty, self.response.since());
        }
    }

    /// Whether a response of heartbeats is of a version that was not accepted. It confirms those resources alone that are held in
    /// versions of their own, and does not stand for the others of the type.
    fn is_outdated(&mut self) -> bool {
        let (server, ty) = (self.response.server(), self.response.ty);
        let is_delta = self.response.envelope.is_delta();
        let machine = &self.authorities.server_mut(server).machine;
        self.response.outdated || !(is_delta || machine.is_accepted(ty, &self.response.version))
    }

    pub(super) fn conclude(&mut self) {
        let server = self.response.stream.server;
        self.store.keep_buffer(self.response.buffer.take());
        let from = TypeAtServer { server, ty: self.response.ty };
        let received = ReceivedCounts { valid: self.response.valid, invalid: self.response.invalid };
        self.updates.add(from, received);
        let is_outdated = self.response.is_heartbeat() && self.is_outdated();
        let digests = match self.response.problems.text.is_empty() {
            true => Digests::default(),
            false => Digests::of(&self.response.envelope),
        };
        let outcome = ResponseOutcome {
            ty: self.response.ty,
            stream: self.response.stream,
            nonce: self.response.envelope.nonce().to_owned(),
            version: self.response.version.clone(),
            error: std::mem::take(&mut self.response.problems).cut(),
            digests,
            is_outdated,
            is_unattributed: self.response.duplicate || self.response.nameless,
            is_applied: self.response.is_applied,
        };
        let state = self.authorities.server_mut(server);
        if !self.response.duplicate {
            state.of_type(self.response.ty).order =
                self.response.located.iter().map(|located| located.sub.unwrap_or(NOWHERE)).collect();
        }
        state.machine.conclude(outcome, self.now);
        if self.response.lacks_wildcard {
            state.machine.ask_for_all_on_another_stream(self.response.ty, self.now);
        }
        self.authorities.settle(self.store, server, self.now);
    }
}

/// A slot that no subscription has.
const NOWHERE: SubId = SubId(u32::MAX);
