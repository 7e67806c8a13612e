//! The quick way for what has not changed: most of a response of the state of the world is as it was in the last one, in the
//! same order.
//!
//! An element that is, byte for byte, what is held of the resource that should come next is that resource: its name is in those
//! bytes. So one comparison finds out both whose it is and that nothing is new, and nothing else of it is looked at. In another
//! order its name is searched for, and the comparison is what is left to do.

use tracing::trace;

use super::{
    Engine,
    pending_response::{LocatedResource, PendingResponse, ResourceOp},
};
use crate::escape::Escaped;

impl Engine {
    /// Notes elements from a place on, before another one, as long as they are unchanged. Gives the place of the first that may
    /// not be.
    pub(super) fn locate_unchanged(&mut self, job: &mut PendingResponse, from: usize, to: usize) -> usize {
        let Self { servers, table, .. } = self;
        let peer = &mut servers[job.stream.server];
        let Some(kind) = peer.types.get(job.ty.index()).filter(|_| !job.envelope.is_delta()) else {
            return from;
        };
        let Some(interest) = peer.machine.interest(job.ty) else { return from };
        let to = to.min(job.envelope.len());
        for index in from..to {
            let Some(sub_id) = job.guess.next(&kind.order) else { return index };
            let Some(sub) = interest.get_mut(sub_id) else { return index };
            let held = table.get(sub.entry).and_then(|entry| entry.bare_bytes());
            let is_same = held.is_some_and(|held| job.envelope.is_bare(index, held));
            if !is_same || sub.seen == job.number {
                return index;
            }
            job.guess.on_right();
            (sub.seen, sub.stood) = (job.number, job.located.len() as u32);
            job.of_all |= !sub.before_all;
            job.located
                .push(LocatedResource { sub: Some(sub_id), ..LocatedResource::new(index, ResourceOp::Same) });
        }
        to
    }

    /// Takes over what is unchanged from a place in the list of what was located on, as long as nothing else follows from it.
    /// Gives the place of the first that more is to be done for, and that is before some other one.
    pub(super) fn apply_unchanged(&mut self, job: &mut PendingResponse, from: usize, to: usize) -> usize {
        let server = job.server();
        if self.collections.has_globs() || !self.ttls.is_empty() {
            return from;
        }
        let Self { servers, table, groups, work, .. } = self;
        let Some(interest) = servers[server].machine.interest(job.ty) else { return from };
        let wildcard = interest.takes_all();
        for (place, located) in job.located[from..to].iter().enumerate() {
            let next = from + place;
            let Some(sub) = located.sub else { return next };
            // It may have gone between two steps.
            let Some(sub) = interest.get_mut(sub).filter(|sub| sub.seen == job.number) else { return next };
            let Some(entry) = table.get_mut(sub.entry).filter(|_| sub.member || !wildcard) else {
                return next;
            };
            let is_same = match located.said {
                ResourceOp::Same => true,
                ResourceOp::Resource if !located.is_wrapped => {
                    entry.bare_bytes() == Some(job.envelope.bytes(located.value))
                }
                ResourceOp::Resource | ResourceOp::Redirect | ResourceOp::Removed | ResourceOp::Heartbeat => {
                    false
                }
            };
            if !is_same {
                return next;
            }
            let is_alone = groups.get(entry.group).active() == server && !entry.places.are_several();
            if !is_alone || !entry.confirm(&job.version, job.since()) {
                return next;
            }
            sub.on_answered();
            trace!(name = %Escaped(&entry.name), version = %Escaped(&job.version), "resource unchanged");
            work.unchanged += 1;
            job.valid += 1;
        }
        to
    }
}
