//! Resources that expire: those with a time to live that their server has not confirmed (B1.17, B2.26).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::{
    Engine,
    pending_response::{LocatedResource, PendingResponse, canonical},
};
use crate::{
    cache::{Entry, Update},
    error::{Blame, Code, WatchError},
    protocol::{EntryId, SubId},
    resource::Version,
};

/// When resources expire: one deadline for any number of them. Setting one takes O(log n).
#[derive(Debug, Default)]
pub(super) struct Ttls {
    by_entry: BTreeMap<EntryId, Instant>,
    queue: BTreeSet<(Instant, EntryId)>,
}

impl Ttls {
    /// A resource expires then, or never.
    pub(super) fn set(&mut self, id: EntryId, at: Option<Instant>) {
        let before = match at {
            Some(at) => self.by_entry.insert(id, at),
            None => self.by_entry.remove(&id),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.queue.remove(&(before, id));
        }
        self.queue.extend(at.map(|at| (at, id)));
    }

    /// When a resource expires, if it does.
    pub(super) fn get(&self, id: EntryId) -> Option<Instant> {
        self.by_entry.get(&id).copied()
    }

    /// Whether nothing expires.
    pub(super) fn is_empty(&self) -> bool {
        self.by_entry.is_empty()
    }

    /// When the first of them expires.
    fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(at, _)| *at)
    }

    fn pop(&mut self, now: Instant) -> Option<EntryId> {
        let (_, id) = *self.queue.first().filter(|(at, _)| *at <= now)?;
        self.set(id, None);
        Some(id)
    }
}

impl Engine {
    /// When the first resource expires. A response that is being worked off may confirm it.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.ttls.next().filter(|_| self.jobs.is_empty())
    }

    /// Lets go what has expired.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.jobs.is_empty()
            && let Some(id) = self.ttls.pop(now)
        {
            self.on_expired(id, now);
        }
        self.flush();
    }

    /// A resource that is held came, with its time to live or none.
    pub(super) fn set_ttl(&mut self, id: EntryId, since: Instant, ttl: Option<Duration>) {
        // What lives longer than clocks can tell does not expire.
        self.ttls.set(id, ttl.and_then(|ttl| since.checked_add(ttl)));
    }

    /// What is held is good still, for as long as it says; nobody is told (B1.18, B2.16). Of what is not held it says nothing:
    /// it is about a state that was not accepted, or has expired. The server does not know that, and has to be asked again.
    pub(super) fn apply_heartbeat(
        &mut self,
        job: &mut PendingResponse,
        place: SubId,
        (located, now): (LocatedResource, Instant),
    ) -> usize {
        let (server, ty) = (job.server(), job.ty());
        let is_delta = job.envelope.is_delta();
        let is_rejected = !is_delta && self.peer(server).machine.is_rejected(ty, &job.version);
        let Some(interest) = self.peer(server).machine.interest(ty) else { return 1 };
        let Some(sub) = interest.get_mut(place) else { return 1 };
        let is_same = match is_delta {
            true => sub.version.as_str() == job.version_of(&located),
            false => !is_rejected,
        };
        let (id, is_held) = (sub.entry, sub.held);
        if !(is_held && is_same) {
            let is_expired = !is_held && self.table.get(id).is_some_and(Entry::is_expired);
            job.outdated |= is_expired || is_rejected;
            if is_expired && job.ttl_of(&located).is_some() {
                self.peer(server).machine.ask_again(ty, place, now);
            }
            return 1;
        }
        sub.on_answered();
        if self.counts(id, server) {
            self.set_ttl(id, job.since(), job.ttl_of(&located));
        }
        1
    }

    /// A heartbeat for a name that nobody asked for: under a wildcard or a glob, that of a member that has expired.
    pub(super) fn apply_unknown_heartbeat(
        &mut self,
        job: &mut PendingResponse,
        next: usize,
        now: Instant,
    ) -> usize {
        let (server, ty) = (job.server(), job.ty());
        if job.ttl_of(&job.located[next]).is_none() {
            return 1;
        }
        let is_wanted =
            self.wildcard_key(ty).is_some_and(|(group, ..)| self.groups.get(group).active() == server);
        let Some(interest) = self.peer(server).machine.interest(ty) else { return 1 };
        if is_wanted && interest.wildcard && interest.sends_all {
            job.outdated = true;
            self.peer(server).machine.ask_again_on_another_stream(ty, now);
            return 1;
        }
        let envelope = job.envelope.clone();
        let wrapper_name = envelope.item(job.located[next].index as usize).wrapper_name;
        if let Ok(name) = canonical(envelope.text(wrapper_name)) {
            self.ask_glob_again(job, &name, now);
        }
        1
    }

    /// A resource is dropped, whatever the policy: that is what its server has asked for. It is still subscribed to, and comes
    /// back when it is sent again; a member that nobody asks for by name is forgotten.
    fn on_expired(&mut self, id: EntryId, now: Instant) {
        let Some(entry) = self.table.get(id).filter(|entry| entry.is_held()) else { return };
        let (ty, group, server) = (entry.ty, entry.group, self.active_for(entry));
        let uri = self.servers[server].machine.source();
        let message = format!("TTL expired: xDS server {uri} has not confirmed it in time");
        let error = WatchError::new(Code::NotFound, Blame::Peer, self.subject(entry), message);
        let places: Vec<_> = entry.places.iter().collect();
        let update = Update { version: Version::default(), at: now };
        self.tell(id, |entry| entry.on_expired(error, update));
        for (server, sub) in &places {
            self.peer(*server).machine.forget_version(ty, *sub);
        }
        self.dismiss(id);
        for (server, _) in places {
            self.settle(server, now);
        }
        // Nothing is known of it any more, which another server may change.
        self.fall_back(group, now);
        self.judge(group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_deadline_for_any_number_of_resources() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut ttls = Ttls::default();
        assert_eq!(ttls.next(), None);
        (0..1000).for_each(|id| ttls.set(EntryId(id), Some(at(100 + u64::from(id)))));
        assert_eq!(ttls.next(), Some(at(100)));
        ttls.set(EntryId(0), Some(at(5000)));
        ttls.set(EntryId(1), None);
        ttls.set(EntryId(2), Some(at(102)));
        assert_eq!(ttls.next(), Some(at(102)));
        assert_eq!(ttls.pop(at(101)), None);
        assert_eq!((ttls.pop(at(103)), ttls.pop(at(103))), (Some(EntryId(2)), Some(EntryId(3))));
        assert_eq!(ttls.pop(at(103)), None);
        assert_eq!((ttls.queue.len(), ttls.by_entry.len()), (997, 997));
    }
}
