//! The fast path for unchanged resources: most of a response of the state of the world is as it was in the last one, in
//! the same order.
//!
//! An element that is, byte for byte, the held bytes of the predicted resource is that resource: its name is in those
//! bytes. So one comparison determines both its name and that it is unchanged, and nothing else of it is read. In
//! another order its name is searched for, and only the comparison remains.

use tracing::trace;

use super::{
    super::authorities::ServerState,
    Step,
    pending_response::{LocatedResource, ResourceOp},
};
use crate::{escape::Escaped, invariant};

impl Step<'_> {
    /// Records elements from a place on, before another one, as long as they are unchanged. Returns the place of the
    /// first that may not be.
    pub(super) fn locate_unchanged(&mut self, from: usize, to: usize) -> usize {
        let ServerState { machine, types, .. } = self.authorities.server_mut(self.response.stream.server);
        let Some(known) = types.get(self.response.ty.index()).filter(|_| !self.response.envelope.is_delta())
        else {
            return from;
        };
        let Some(subscriptions) = machine.subscriptions_mut(self.response.ty) else {
            invariant::broken("a type that is answered was requested");
            return from;
        };
        let to = to.min(self.response.envelope.len());
        for index in from..to {
            // A resource that is not predicted is searched for by its name.
            let Some(sub_id) = self.response.predictor.next(&known.order) else { return index };
            let Some(sub) = subscriptions.get_mut(sub_id) else { return index };
            let held = self.store.get(sub.entry()).and_then(|entry| entry.bare_bytes());
            let is_same = held.is_some_and(|held| self.response.envelope.is_bare(index, held));
            if !is_same || sub.is_mentioned_in(self.response.number) {
                return index;
            }
            self.response.predictor.on_right();
            sub.on_mentioned(self.response.number, self.response.located.len());
            self.response.of_all |= !sub.precedes_wildcard();
            self.response
                .located
                .push(LocatedResource { sub: Some(sub_id), ..LocatedResource::new(index, ResourceOp::Same) });
        }
        to
    }

    /// Confirms the unchanged resources from a place in the list of located ones on, as long as nothing else follows
    /// from that. Returns the place of the first that needs more, and that is before some other one.
    pub(super) fn apply_unchanged(&mut self, from: usize, to: usize) -> usize {
        let server = self.response.server();
        if self.store.members.has_globs() || self.store.has_ttls() {
            return from;
        }
        let (servers, groups) = self.authorities.servers_and_groups();
        let Some(subscriptions) = servers[server].machine.subscriptions_mut(self.response.ty) else {
            invariant::broken("a type that is answered was requested");
            return from;
        };
        let wildcard = subscriptions.takes_all();
        for (place, located) in self.response.located[from..to].iter().enumerate() {
            let next = from + place;
            // It has no subscription.
            let Some(sub) = located.sub else { return next };
            // It may have been removed between two steps.
            let Some(sub) =
                subscriptions.get_mut(sub).filter(|sub| sub.is_mentioned_in(self.response.number))
            else {
                return next;
            };
            let Some(entry) =
                self.store.get_mut(sub.entry()).filter(|_| sub.is_wildcard_member() || !wildcard)
            else {
                return next;
            };
            let is_same = match located.op {
                ResourceOp::Same => true,
                ResourceOp::Resource if !located.is_wrapped => {
                    entry.bare_bytes() == Some(self.response.envelope.bytes(located.value))
                }
                ResourceOp::Resource
                | ResourceOp::Redirect
                | ResourceOp::Removed
                | ResourceOp::Heartbeat
                | ResourceOp::Unusable => false,
            };
            if !is_same {
                return next;
            }
            let is_alone = groups.get(entry.group).active() == server && !entry.subscriptions.are_several();
            if !is_alone || !entry.confirm(&self.response.version, self.response.since()) {
                return next;
            }
            sub.on_answered();
            trace!(name = %Escaped(&entry.name), version = %Escaped(&self.response.version), "resource unchanged");
            self.work.unchanged += 1;
            self.response.valid += 1;
        }
        to
    }
}
