//! What is counted for metrics (A78, A88): each event costs the same whatever the cache holds, and the cache is never walked.
//!
//! Changes are coalesced until somebody asks for them with [`poll_metric`](Engine::poll_metric). Nobody has to: what waits
//! is bounded by the number of servers, types and states.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Engine, pending_response::PendingResponse};
use crate::{
    cache::{Entry, ResourceState},
    config::ConfigSource,
    protocol::{ConnectionState, EntryId, GroupId, ServerId, TypeId},
};

/// Something that was counted.
#[derive(Debug)]
pub(crate) enum Metric {
    /// How many resources of an authority and a type are in a state of the cache now. Those of one authority may be in several
    /// groups.
    Resources {
        group: GroupId,
        authority: Option<Arc<str>>,
        type_url: &'static str,
        state: CacheState,
        count: u64,
    },
    /// How many resources of a type a server has sent since the last time, good ones and bad ones.
    Updates { source: ConfigSource, type_url: &'static str, valid: u64, invalid: u64 },
    /// Whether there is a working stream to a server, by its number, since a server has several where types have streams of
    /// their own; `None` when none is wanted.
    Connected { stream: ServerId, source: ConfigSource, connected: Option<bool> },
    /// How often a server has failed since the last time.
    Failures { source: ConfigSource, count: u64 },
}

/// What is known of a resource, and whether a good one is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CacheState {
    state: ResourceState,
    held: bool,
}

/// What was counted, and not asked for yet.
#[derive(Debug, Default)]
pub(super) struct Counters {
    resources: BTreeMap<ResourceKey, u64>,
    changed: BTreeSet<ResourceKey>,
    /// Valid and invalid ones.
    updates: BTreeMap<(ServerId, TypeId), (u64, u64)>,
    connected: BTreeMap<ServerId, bool>,
    connections_changed: BTreeSet<ServerId>,
    failures: BTreeMap<ServerId, u64>,
    /// Somebody asks for what is counted.
    is_read: bool,
}

pub(super) type ResourceKey = (GroupId, TypeId, CacheState);

impl CacheState {
    /// The first in their order.
    const FIRST: Self = Self { state: ResourceState::Requested, held: false };

    fn of(entry: &Entry) -> Self {
        Self { state: entry.state(), held: entry.is_held() }
    }

    /// The label of A78 and A88.
    pub(crate) fn as_str(self) -> &'static str {
        match (self.state, self.held) {
            (ResourceState::Requested, _) => "requested",
            (ResourceState::Acked, _) => "acked",
            (ResourceState::Timeout, _) => "timeout",
            (ResourceState::DoesNotExist, false) => "does_not_exist",
            (ResourceState::DoesNotExist, true) => "does_not_exist_but_cached",
            (ResourceState::Nacked, false) => "nacked",
            (ResourceState::Nacked, true) => "nacked_but_cached",
            (ResourceState::ReceivedError, false) => "received_error",
            (ResourceState::ReceivedError, true) => "received_error_but_cached",
        }
    }
}

impl Counters {
    /// To be called before an entry changes; the answer is for [`end`](Self::end).
    pub(super) fn begin(&self, entry: &Entry) -> ResourceKey {
        key(entry)
    }

    /// To be called after it.
    pub(super) fn end(&mut self, before: ResourceKey, entry: &Entry) {
        let after = key(entry);
        if before != after {
            self.remove(before);
            self.add(after);
        }
    }

    /// Whether somebody asks for what is counted, and has not been given all of a group.
    pub(super) fn is_awaited_of_group(&self, id: GroupId) -> bool {
        self.is_read
            && self.changed.range((id, TypeId(0), CacheState::FIRST)..).next().is_some_and(|key| key.0 == id)
    }

    /// The same of a server.
    pub(super) fn is_awaited_of_server(&self, id: ServerId) -> bool {
        let updates = self.updates.range((id, TypeId(0))..).next();
        let has_news = self.connections_changed.contains(&id)
            || self.failures.contains_key(&id)
            || updates.is_some_and(|(key, _)| key.0 == id);
        self.is_read && has_news
    }

    /// A group is over, and nobody asks for what was counted of it.
    pub(super) fn forget_group(&mut self, id: GroupId) {
        let of_group = self.changed.range((id, TypeId(0), CacheState::FIRST)..).take_while(|key| key.0 == id);
        for key in of_group.copied().collect::<Vec<_>>() {
            self.changed.remove(&key);
        }
    }

    /// The same of a server.
    pub(super) fn forget_server(&mut self, id: ServerId) {
        self.connected.remove(&id);
        self.connections_changed.remove(&id);
        self.failures.remove(&id);
        let of_server =
            self.updates.range((id, TypeId(0))..).map(|(key, _)| *key).take_while(|key| key.0 == id);
        for key in of_server.collect::<Vec<_>>() {
            self.updates.remove(&key);
        }
    }

    fn add(&mut self, key: ResourceKey) {
        *self.resources.entry(key).or_default() += 1;
        self.changed.insert(key);
    }

    fn remove(&mut self, key: ResourceKey) {
        if let Some(count) = self.resources.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.resources.remove(&key);
            }
        }
        self.changed.insert(key);
    }
}

impl Engine {
    /// The next change of what is counted; `None` when there was none since the last time.
    pub(crate) fn poll_metric(&mut self) -> Option<Metric> {
        let counters = &mut self.counters;
        counters.is_read = true;
        if let Some(id) = counters.connections_changed.pop_first() {
            let connected = counters.connected.get(&id).copied();
            return Some(Metric::Connected { stream: id, source: self.source(id), connected });
        }
        if let Some((id, count)) = counters.failures.pop_first() {
            return Some(Metric::Failures { source: self.source(id), count });
        }
        if let Some(((id, ty), (valid, invalid))) = counters.updates.pop_first() {
            let type_url = self.types[ty.index()].type_url();
            return Some(Metric::Updates { source: self.source(id), type_url, valid, invalid });
        }
        let key = counters.changed.pop_first()?;
        let count = counters.resources.get(&key).copied().unwrap_or_default();
        let (group, ty, state) = key;
        let authority = self.groups.get(group).authority().cloned();
        let type_url = self.types[ty.index()].type_url();
        Some(Metric::Resources { group, authority, type_url, state, count })
    }

    /// Takes a new entry into the cache.
    pub(super) fn add_entry(&mut self, entry: Entry) -> EntryId {
        self.counters.add(key(&entry));
        self.groups.get_mut(entry.group).entries += 1;
        self.table.insert(entry)
    }

    /// Forgets an entry.
    pub(super) fn remove_entry(&mut self, id: EntryId) -> Option<Entry> {
        let entry = self.table.remove(id)?;
        self.counters.remove(key(&entry));
        self.groups.get_mut(entry.group).entries -= 1;
        self.unused.note_group(entry.group);
        self.ttls.set(id, None);
        self.note_turn(id);
        Some(entry)
    }

    /// Notes how a stream fares (A78-2): it counts as connected from the first attempt on, until one fails that gave no
    /// response; and then again with the first response.
    pub(super) fn note_connection(&mut self, id: ServerId) {
        let Self { servers, counters, .. } = self;
        let peer = &servers[id];
        let connected = match peer.machine.stream().connection() {
            ConnectionState::Idle => None,
            ConnectionState::Connecting | ConnectionState::Connected | ConnectionState::BackingOff => {
                Some(peer.failure.is_none())
            }
        };
        let before = match connected {
            Some(connected) => counters.connected.insert(id, connected),
            None => counters.connected.remove(&id),
        };
        if before != connected {
            counters.connections_changed.insert(id);
        }
        if before == Some(true) && connected == Some(false) {
            *counters.failures.entry(id).or_default() += 1;
        }
    }

    /// Notes how many resources of a response were good.
    pub(super) fn note_updates(&mut self, job: &PendingResponse) {
        if job.valid + job.invalid > 0 {
            let counted = self.counters.updates.entry((job.server(), job.ty)).or_default();
            counted.0 += job.valid;
            counted.1 += job.invalid;
        }
    }

    fn source(&self, id: ServerId) -> ConfigSource {
        self.servers[id].machine.source().clone()
    }

    /// Whether what was counted is what there is, found by a walk of the cache.
    #[cfg(test)]
    pub(super) fn check_tallies(&self) {
        let mut recount = BTreeMap::<ResourceKey, u64>::new();
        for (_, entry) in self.table.iter() {
            *recount.entry(key(entry)).or_default() += 1;
        }
        assert_eq!(self.counters.resources, recount, "the counters are not those of the cache");
    }
}

fn key(entry: &Entry) -> ResourceKey {
    (entry.group, entry.ty, CacheState::of(entry))
}
