//! At last the collections are complete, and the server is answered.

use super::Step;
use crate::protocol::{Digests, ResponseOutcome, SubId};

impl Step<'_> {
    /// The server has told all it has of a type that is wanted as a whole.
    pub(super) fn complete(&mut self) {
        let server = self.job.server();
        let Some(subscriptions) = self.authorities.subscriptions(server, self.job.ty) else { return };
        if self.job.lacks_wildcard {
            return self.authorities.on_wildcard_answered(self.store, server, self.job.ty);
        }
        let told_before = subscriptions.told_all && self.job.envelope.is_delta();
        // Also while the end of the wildcard is not written: it may be wanted again before.
        subscriptions.told_all =
            subscriptions.takes_all() && subscriptions.sends_all && (told_before || self.job.tells_all());
        let undecided = subscriptions.wildcard && subscriptions.sends_all;
        let told_all = undecided && subscriptions.told_all;
        self.authorities.on_wildcard_answered(self.store, server, self.job.ty);
        if told_all {
            self.authorities.complete_all(self.store, server, self.job.ty);
        } else if undecided {
            // It may be all, and may be not: known when nothing follows.
            self.authorities.server_mut(server).machine.await_quiet(self.job.ty, self.job.since());
        }
    }

    pub(super) fn conclude(&mut self) {
        let server = self.job.stream.server;
        self.store.keep_buffer(self.job.origin.take());
        self.updates.add((server, self.job.ty), (self.job.valid, self.job.invalid));
        let is_outdated = self.job.outdated && self.job.is_heartbeat();
        let digests = match self.job.problems.text.is_empty() {
            true => Digests::default(),
            false => Digests::of(&self.job.envelope),
        };
        let outcome = ResponseOutcome {
            ty: self.job.ty,
            stream: self.job.stream,
            nonce: self.job.envelope.nonce().to_owned(),
            version: self.job.version.clone(),
            error: std::mem::take(&mut self.job.problems).cut(),
            digests,
            is_outdated,
        };
        let peer = self.authorities.server_mut(server);
        if !self.job.duplicate {
            peer.of_type(self.job.ty).order =
                self.job.located.iter().map(|located| located.sub.unwrap_or(NOWHERE)).collect();
        }
        peer.machine.conclude(outcome, self.now);
        if self.job.lacks_wildcard {
            peer.machine.ask_for_all_on_another_stream(self.job.ty, self.now);
        }
        self.authorities.settle(self.store, server, self.now);
    }
}

/// A place that no subscription has.
const NOWHERE: SubId = SubId(u32::MAX);
