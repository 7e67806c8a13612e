//! What a response does not speak of.

use std::time::Instant;

use super::{Engine, failure::not_found_hint, pending_response::PendingResponse};
use crate::{
    cache::Update,
    error::{Blame, Code, WatchError},
    protocol::{Phase, ServerId, TypeId},
};

impl Engine {
    /// What a response of a full-state type does not speak of is deleted (B1.10), unless the response is a heartbeat
    /// (B1.19), or holds something without a name that may be just what is missed.
    pub(super) fn apply_absence(&mut self, job: &mut PendingResponse, now: Instant) {
        if self.peer(job.server()).machine.contact().is_file() {
            self.give_up_unwritten(job, now);
        }
        let full_state = self.types[job.ty.index()].full_state() && !job.envelope.is_delta();
        if !full_state || job.is_heartbeat() || job.nameless {
            return;
        }
        let server = job.server();
        let Some(interest) = self.peer(server).machine.interest(job.ty) else { return };
        let sends_all = interest.sends_all;
        let mut any = false;
        for (_, sub) in interest.iter_mut() {
            // The absence of what was never asked for says nothing.
            let expected = match (sub.named, sub.member) {
                (true, _) => sub.phase != Phase::New || sub.seen != 0,
                (false, true) => sends_all || sub.of_glob,
                (false, false) => true,
            };
            sub.missed = expected && sub.seen != job.number;
            any |= sub.missed;
        }
        if !any {
            return;
        }
        let never_seen = interest.iter().filter(|(_, sub)| sub.missed && sub.was_there() && sub.seen == 0);
        let never_seen: Vec<_> = never_seen.map(|(id, sub)| (id, sub.entry)).collect();
        for (sub, entry) in never_seen {
            let is_glob = self.table.get(entry).is_some_and(|entry| entry.is_glob);
            if !is_glob && self.counts(entry, server) {
                self.peer(server).machine.doubt(job.ty, sub, now);
            }
        }
        self.on_missed((server, job.ty), "has deleted it", (&job.update(), now));
    }

    /// What was never there and does not stand in a file does not exist, without waiting for it: all there is stands in it.
    fn give_up_unwritten(&mut self, job: &PendingResponse, now: Instant) {
        if job.nameless {
            return;
        }
        let server = job.server();
        let Some(interest) = self.peer(server).machine.interest(job.ty) else { return };
        let mut unwritten = Vec::new();
        for (_, sub) in interest.iter_mut() {
            let is_unheard = matches!(sub.phase, Phase::New | Phase::Requested);
            if is_unheard && sub.named && sub.asked && !sub.held && sub.seen != job.number {
                (sub.phase, sub.doubt_until) = (Phase::TimedOut, None);
                unwritten.push(sub.entry);
            }
        }
        for entry in unwritten {
            self.on_timed_out(server, entry, now);
        }
    }

    /// What a server should have sent and did not is gone, if that counts. `why` says what the server has done.
    pub(super) fn on_missed(
        &mut self,
        (server, ty): (ServerId, TypeId),
        why: &str,
        (update, now): (&Update, Instant),
    ) {
        let peer = self.peer(server);
        let policy = peer.policy;
        let Some(interest) = peer.machine.interest(ty) else { return };
        let missed = interest.iter().filter(|(_, sub)| sub.missed && sub.was_there());
        let missed: Vec<_> = missed.map(|(id, sub)| (id, sub.entry)).collect();
        for (sub, id) in missed {
            // That nothing of a glob is there is said by the absence of its members.
            let is_glob = self.table.get(id).is_some_and(|entry| entry.is_glob);
            if is_glob || !self.counts(id, server) || !self.peer(server).machine.is_gone(ty, sub, now) {
                continue;
            }
            let Some(entry) = self.table.get(id) else { continue };
            let machine = &self.servers[server].machine;
            let source = machine.source();
            let message = match machine.contact().is_file() {
                true => format!("{source} does not hold it any more"),
                false => format!("xDS server {source} {why}{}", not_found_hint(machine)),
            };
            let error = WatchError::new(Code::NotFound, Blame::Peer, self.subject(entry), message);
            self.tell(id, |entry| entry.on_deleted(error, policy, update.clone()));
            self.dismiss(id);
        }
    }
}
