//! The authorities: the servers of each, the active one, and the entries that are requested from them.
//!
//! It owns the protocol machines. The events of a machine are handled after each call of it
//! ([`drain_events`](Authorities::drain_events)); changes for watches are recorded in the [`Store`].
//!
//! `Authorities` begins and ends the subscriptions of watches, and passes events and timeouts to the machines. The state is in
//! `Servers` and `Groups`; the types with a lifetime are views of both, with the methods of one subject each.
//!
//! | file | type | contents |
//! |---|---|---|
//! | `groups` | `Groups` | the sources of an authority in their order, and the lowest open one |
//! | `servers` | `Servers` | the machines, and their deadlines |
//! | `sources` | `Sources<'_>` | the group of a name, which is made at the first use |
//! | `placement` | `Placement<'_>` | the subscriptions of entries at servers |
//! | `members` | `CollectionMembers<'_>` | the members of wildcards and globs at servers |
//! | `membership` | `Memberships<'_>` | the wildcards and globs that a resource is a member of |
//! | `globs` | `Globs<'_>` | the members of globs at each server |
//! | `absence` | `Absence<'_>` | missing responses, and does-not-exist timers |
//! | `silence` | `Unanswered<'_>` | types that a server does not answer |
//! | `unused` | `Unused` | servers and groups without subscriptions |
//! | `fallback` | `Failover<'_>` | events of machines; fallback from one server to the next, and reversion (A71) |
//!
//! ```text
//!   authority ──▶ group ──┬─ open ──▶ server 0 ──▶ machine ──▶ stream        failed, watched for its recovery
//!   (and type)            ├─ open ──▶ server 1 ──▶ machine ──▶ stream        active: its answers count
//!                         └─ source 2                                        not needed so far
//! ```
//!
//! A server may be open in several groups, and each group has an active server of its own. An entry belongs to one group,
//! and has a subscription at each open server of it. Names are requested from all open servers; what a server above the
//! active one sends is recorded in its subscriptions, and changes no entry before the group has returned to it.
//!
//! Two rules hold everywhere here: after a machine was called, [`drain_events`](Authorities::drain_events) handles its events before
//! anything else is called; and after an entry's state has changed, [`Placement::sync_held`] copies the result to its machines.

mod absence;
mod fallback;
mod globs;
mod groups;
mod members;
mod membership;
mod placement;
mod servers;
mod silence;
mod sources;
mod unused;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub(super) use self::{
    absence::{Absence, Missed, ResponseId},
    globs::{GlobPattern, Globs},
    groups::{AuthorityState, Groups},
    members::CollectionMembers,
    membership::{By, Memberships},
    placement::Placement,
    servers::{ServerState, Servers},
    silence::Unanswered,
    sources::Sources,
};
use self::{fallback::Failover, sources::Registry, unused::Unused};
use super::{
    counts::{ConnectionCounts, TrafficCounts},
    selection::{Refusal, TypedName},
    store::{Collection, CollectionKey, Store},
};
use crate::{
    base::WatchId,
    cache::{Entry, Update},
    config::Bootstrap,
    engine::Settings,
    error::{Blame, Code, WatchError},
    invariant,
    protocol::{
        EntryId, Envelope, GroupId, ServerId, StreamEvent, StreamId, Subscriptions, Timer, TypeAtServer,
        TypeId, TypeInGroup,
    },
    resource::{Version, config_source::ResourceConfigSource},
};

/// The servers of all authorities. See the [module's](self) documentation.
#[derive(Debug)]
pub(super) struct Authorities {
    /// The configuration of servers that are not there yet.
    registry: Registry,
    servers: Servers,
    groups: Groups,
    /// Candidates for removal, which [`sweep`](Self::sweep) examines at the end of each step.
    unused: Unused,
    /// Counters for metrics.
    connections: ConnectionCounts,
    traffic: TrafficCounts,
}

/// A name to request.
#[derive(Debug)]
pub(super) struct RequestedName<'a> {
    /// The name and its type.
    pub(super) typed: TypedName<'a>,
    /// The source that a resource names for it; `None` for that of the bootstrap.
    pub(super) source: Option<&'a ResourceConfigSource>,
}

impl Authorities {
    /// No server and no group; both are made at the first subscription of a name.
    pub(super) fn new(bootstrap: Arc<Bootstrap>, settings: Arc<Settings>, seed: u64) -> Self {
        Self {
            servers: Servers::default(),
            groups: Groups::new(&bootstrap, &settings),
            unused: Unused::default(),
            connections: ConnectionCounts::default(),
            traffic: TrafficCounts::default(),
            registry: Registry::new(bootstrap, settings, seed),
        }
    }

    /// Handles an event of a stream; returns its response, if it is to be applied.
    pub(super) fn handle_event(
        &mut self,
        store: &mut Store,
        event: StreamEvent,
        now: Instant,
    ) -> Option<(TypeId, Envelope)> {
        let id = event.stream().server;
        // The server may have been removed as unused.
        let response = self.servers.get_mut(id)?.machine.handle_event(event, now);
        self.drain_events(store, id, now);
        response
    }

    /// The next response of a type that has arrived at a server while another one was applied, once that is concluded.
    pub(super) fn next_waiting(
        &mut self,
        TypeAtServer { server, ty }: TypeAtServer,
        now: Instant,
    ) -> Option<(StreamId, Envelope)> {
        self.servers.get_mut(server)?.machine.next_waiting(ty, now)
    }

    /// The type of which more responses wait at a server than may.
    pub(super) fn take_overfull(&mut self, server: ServerId) -> Option<TypeId> {
        self.servers.get_mut(server)?.machine.take_overfull()
    }

    /// Handles the due timers of servers, but for those that are busy.
    /// A server is busy while a response of it is in progress: what its timers would take for missing may be in there.
    pub(super) fn handle_timeout(
        &mut self,
        store: &mut Store,
        is_busy: impl Fn(ServerId) -> bool,
        now: Instant,
    ) {
        self.servers.refresh_deadlines();
        for server in self.servers.due(now) {
            if !is_busy(server) {
                self.servers[server].machine.handle_timeout(now);
                self.drain_events(store, server, now);
            }
        }
    }

    /// The earliest deadline of a server that is not busy, and its timer.
    pub(super) fn next_timeout(&self, is_busy: impl Fn(ServerId) -> bool) -> Option<(Instant, Timer)> {
        let mut idle = self.servers.deadlines().filter(|(server, _)| !is_busy(*server));
        idle.next().map(|(_, deadline)| deadline)
    }

    /// Drops the resources whose TTL has expired, but for those of a type of which a response waits: that may confirm them.
    pub(super) fn expire(&mut self, store: &mut Store, waits: impl Fn(TypeId) -> bool, now: Instant) {
        while let Some(id) = store.pop_expired(now) {
            match store.get(id).is_some_and(|entry| waits(entry.ty)) {
                true => store.set_ttl(id, now, Some(RECHECK)),
                false => self.on_expired(store, id, now),
            }
        }
    }

    /// Subscribes to a name: a resource, or a glob.
    /// The entry is requested from all open servers of its group, not only from the active one: those above show their recovery
    /// by answering.
    pub(super) fn subscribe_name(
        &mut self,
        store: &mut Store,
        watch_id: WatchId,
        requested: &RequestedName<'_>,
        now: Instant,
    ) -> Result<EntryId, Refusal> {
        let &RequestedName { typed: typed @ TypedName { ty, name }, source } = requested;
        let group = match source {
            Some(source) if source.is_for(name.authority()) => {
                self.sources().source_group(store, typed, source)?
            }
            Some(_) | None => self.sources().group_for(store, typed)?,
        };
        self.sources().check_variant(store, group, ty)?;
        let entry = self.placement().watched_entry(store, TypeInGroup { group, ty }, name);
        if name.is_glob() {
            Globs::begin(store, entry);
        }
        // The name may be watched under another group with the same server.
        let group = store.get(entry).map_or(group, |entry| entry.group);
        self.groups.get_mut(group).watches += 1;
        self.subscribe_everywhere(store, entry, now);
        if let Some(entry) = store.get_mut(entry) {
            entry.watches.push(watch_id);
            if !entry.is_glob {
                entry.unnotified.push(watch_id);
            }
        }
        if store.get(entry).is_some_and(Entry::is_waiting) {
            self.failover().fall_back(store, group, now);
        }
        self.failover().refresh_server_error(store, group);
        store.note_unnotified(entry);
        Ok(entry)
    }

    /// Ends a watch of a name. With the last one the name is unsubscribed at all open servers; its entry is kept until each of
    /// them was notified, since a new watch before that continues with what is known.
    pub(super) fn unsubscribe_name(
        &mut self,
        store: &mut Store,
        watch_id: WatchId,
        id: EntryId,
        now: Instant,
    ) {
        // An entry that is watched exists.
        let Some(entry) = store.get_mut(id) else {
            invariant::broken("an entry that is watched exists");
            return;
        };
        entry.watches.retain(|other| *other != watch_id);
        entry.unnotified.retain(|other| *other != watch_id);
        let (group, ty, last) = (entry.group, entry.ty, entry.watches.is_empty());
        let subscriptions: Vec<_> = entry.subscriptions.iter().filter(|_| last).collect();
        for (server, sub) in subscriptions {
            self.servers[server].machine.unsubscribe(ty, sub, now);
            self.drain_events(store, server, now);
        }
        self.groups.get_mut(group).watches -= 1;
        self.unused.note_group(group);
    }

    /// Subscribes to the wildcard of a type, at the servers for names of the older form. What those have sent under other
    /// subscriptions already belongs to the collection at once.
    pub(super) fn subscribe_all(
        &mut self,
        store: &mut Store,
        watch_id: WatchId,
        ty: TypeId,
        now: Instant,
    ) -> Result<GroupId, Refusal> {
        let group = self.sources().default_group(store, ty)?;
        self.sources().check_variant(store, group, ty)?;
        let scope = TypeInGroup { group, ty };
        let key = CollectionKey::of_all(scope);
        if store.members.get(&key).is_none() {
            for server in self.groups.get(group).open.clone() {
                self.members().join_held(store, ty, server, now);
            }
            store.members.begin(key.clone(), Collection::default);
            self.members().join_known(store, scope, now);
        }
        self.groups.get_mut(group).watches += 1;
        store.members.begin(key.clone(), Collection::default).watches.push(watch_id);
        for server in self.groups.get(group).open.clone() {
            self.members().subscribe_wildcard_at(store, scope, server, now);
            self.drain_events(store, server, now);
        }
        self.failover().fall_back(store, group, now);
        self.failover().refresh_server_error(store, group);
        let failed = store.server_error(group).is_some();
        let known = |all: &Collection| !all.members.is_empty() || all.complete || all.warning.is_some();
        if failed || store.members.get(&key).is_some_and(known) {
            store.members.touch(&key);
        }
        let server = self.groups.active(group);
        self.unanswered().on_unanswered(store, TypeAtServer { server, ty }, now);
        Ok(group)
    }

    /// Ends a watch of a wildcard. Its members are forgotten when the server was notified of the end, unless they are watched by
    /// name.
    pub(super) fn unsubscribe_all(
        &mut self,
        store: &mut Store,
        watch_id: WatchId,
        scope: TypeInGroup,
        now: Instant,
    ) {
        let TypeInGroup { group, ty } = scope;
        let key = CollectionKey::of_all(scope);
        let Some(all) = store.members.get_mut(&key) else {
            invariant::broken("a wildcard that is watched is a collection");
            return;
        };
        all.watches.retain(|other| *other != watch_id);
        let last = all.watches.is_empty();
        for server in self.groups.get(group).open.clone().into_iter().filter(|_| last) {
            self.servers[server].machine.unsubscribe_all(ty, now);
            self.drain_events(store, server, now);
        }
        self.groups.get_mut(group).watches -= 1;
    }

    /// Requests an entry from all open servers of its group.
    fn subscribe_everywhere(&mut self, store: &mut Store, id: EntryId, now: Instant) {
        let Some(entry) = store.existing(id) else { return };
        for server in self.groups.get(entry.group).open.clone() {
            self.members().subscribe_at(store, id, server, now);
            self.drain_events(store, server, now);
        }
    }

    /// Removes the unused sources, at the end of each step. A server that `is_busy` is kept until it is not.
    /// Groups go before servers, since a group keeps its servers. What has unread counters stays, so that metrics see its last
    /// values.
    ///
    /// Returns the removed servers.
    pub(super) fn sweep(&mut self, store: &mut Store, is_busy: impl Fn(ServerId) -> bool) -> Vec<ServerId> {
        self.unused.note_groups(store.take_emptied());
        for id in self.unused.take_groups() {
            let is_used = store.has_entries_of(id) || store.members.has_any_of(id);
            if is_used || !self.groups.is_unwatched(id) {
                continue;
            }
            if store.counts().has_unread_of(id) {
                self.unused.note_group(id);
                continue;
            }
            store.forget_group(id);
            self.groups.remove(id).into_iter().for_each(|server| self.unused.note_server(server));
        }
        let mut removed = Vec::new();
        for id in self.unused.take_servers() {
            if !self.groups.with(id).is_empty() || !self.servers.is_unused(id) {
                continue;
            }
            if is_busy(id) || self.connections.has_unread_of(id) || self.traffic.has_unread_of(id) {
                self.unused.note_server(id);
                continue;
            }
            self.connections.forget(id);
            self.traffic.forget(id);
            self.servers.remove(id);
            removed.push(id);
        }
        removed
    }

    /// The events of machines, and the moves of groups from one server to another.
    fn failover(&mut self) -> Failover<'_> {
        let Self { registry, servers, groups, unused, connections, traffic } = self;
        Failover::new(Sources::new(registry, servers, groups, unused), connections, traffic)
    }

    /// The groups and servers of names.
    pub(super) fn sources(&mut self) -> Sources<'_> {
        Sources::new(&mut self.registry, &mut self.servers, &mut self.groups, &mut self.unused)
    }

    /// The subscriptions of entries at servers.
    pub(super) fn placement(&mut self) -> Placement<'_> {
        Placement::new(&mut self.servers, &self.groups)
    }

    /// The members of collections at servers.
    pub(super) fn members(&mut self) -> CollectionMembers<'_> {
        CollectionMembers::new(&mut self.servers, &self.groups)
    }

    /// The collections of resources.
    pub(super) fn memberships(&self) -> Memberships<'_> {
        Memberships::new(&self.servers, &self.groups)
    }

    /// The members of globs at servers.
    pub(super) fn globs(&mut self) -> Globs<'_> {
        Globs::new(&mut self.servers)
    }

    /// The absence of resources.
    pub(super) fn absence(&mut self) -> Absence<'_> {
        Absence::new(&mut self.servers, &self.groups)
    }

    /// The types that servers do not answer.
    pub(super) fn unanswered(&mut self) -> Unanswered<'_> {
        Unanswered::new(&mut self.servers, &self.groups)
    }

    /// A server; its id is valid as long as a group has it open, or a response of it is in progress.
    pub(super) fn server(&self, id: ServerId) -> &ServerState {
        &self.servers[id]
    }

    /// A server, to change it. Its deadline is read again at the end of the step.
    pub(super) fn server_mut(&mut self, id: ServerId) -> &mut ServerState {
        &mut self.servers[id]
    }

    /// The names of a type that are requested from a server, or sent by it.
    pub(super) fn subscriptions(&mut self, server: ServerId, ty: TypeId) -> Option<&mut Subscriptions> {
        self.servers[server].machine.subscriptions_mut(ty)
    }

    /// The groups, read-only: they change by fallback and reversion.
    pub(super) fn groups(&self) -> &Groups {
        &self.groups
    }

    /// All servers, read-only.
    pub(super) fn servers(&self) -> &Servers {
        &self.servers
    }

    /// The servers and the groups at once, to change a server by what its groups are.
    pub(super) fn servers_and_groups(&mut self) -> (&mut Servers, &Groups) {
        (&mut self.servers, &self.groups)
    }

    /// The counters of messages, to poll their changes, and to note applied responses.
    pub(super) fn traffic(&mut self) -> &mut TrafficCounts {
        &mut self.traffic
    }

    /// The counters of connections and failures, to poll their changes.
    pub(super) fn connections(&mut self) -> &mut ConnectionCounts {
        &mut self.connections
    }

    /// Brings the deadlines of the servers up to date.
    pub(super) fn refresh_deadlines(&mut self) {
        self.servers.refresh_deadlines();
    }

    /// Handles the events of a server's machine.
    pub(super) fn drain_events(&mut self, store: &mut Store, server: ServerId, now: Instant) {
        self.failover().drain_events(store, server, now);
    }

    /// Makes a server above the active one of a group the active one (A71-5).
    pub(super) fn revert_to_primary(
        &mut self,
        store: &mut Store,
        group: GroupId,
        response: ResponseId,
        now: Instant,
    ) {
        self.failover().revert_to_primary(store, group, response, now);
    }

    /// A resource is dropped, whatever the policy: its server has set the TTL. It is still subscribed, and returns when
    /// it is sent again; a member without a watch of its name is forgotten.
    fn on_expired(&mut self, store: &mut Store, id: EntryId, now: Instant) {
        let Some(entry) = store.get(id).filter(|entry| entry.is_held()) else {
            invariant::broken("only what is held has a time to live");
            return;
        };
        let (ty, group, server) = (entry.ty, entry.group, self.groups.active(entry.group));
        let uri = self.servers[server].machine.source();
        let message = format!("TTL expired: xDS server {uri} has not confirmed it in time");
        let error = WatchError::new(Code::NotFound, Blame::Peer, store.subject(entry), message);
        let subscriptions: Vec<_> = entry.subscriptions.iter().collect();
        let update = Update { version: Version::default(), at: now };
        self.placement().update(store, id, |entry| entry.on_expired(error, update));
        for (server, sub) in &subscriptions {
            if let Some(channel) = self.servers[*server].machine.channel_mut(ty) {
                channel.forget_version(*sub);
            }
        }
        self.members().leave_collections(store, id);
        for (server, _) in subscriptions {
            self.drain_events(store, server, now);
        }
        // Its state is unknown now, which can trigger the fallback to another server.
        self.failover().fall_back(store, group, now);
        self.failover().refresh_server_error(store, group);
    }
}

/// When a resource is looked at again whose time to live has passed while a response of its type waits.
const RECHECK: Duration = Duration::from_secs(1);
