//! The authorities: the servers of each, the active one, and the entries that are requested from them.
//!
//! It owns the protocol machines. Events of a machine are handled as soon as it is settled
//! ([`settle`](Authorities::settle)); changes for watches are recorded in the [`Store`].
//!
//! `Authorities` drives the machines: it handles their events, falls back from one server to the next and reverts, and begins
//! and ends the subscriptions of watches. The state is in `Servers` and `Groups`; the types with a lifetime are views of both,
//! with the methods of one subject each.
//!
//! | file | type | contents |
//! |---|---|---|
//! | `groups` | `Groups` | the sources of an authority in their order, and the lowest open one |
//! | `servers` | `Servers` | the machines, and their deadlines |
//! | `sources` | `Sources<'_>` | the group of a name, which is made at the first use |
//! | `placement` | `Placement<'_>` | the subscriptions of entries at servers, and their members |
//! | `membership` | `Memberships<'_>` | the wildcards and globs that a resource is a member of |
//! | `globs` | `Globs<'_>` | the members of globs at each server |
//! | `absence` | `Absence<'_>` | missing responses, and does-not-exist timers |
//! | `silence` | `Unanswered<'_>` | types that a server does not answer |
//! | `unused` | `Unused` | servers and groups without subscriptions |
//! | `watches` | `Authorities` | the subscriptions that a watch of a name or a wildcard needs |
//! | `fallback` | `Authorities` | fallback from one server to the next, and reversion (A71) |

mod absence;
mod fallback;
mod globs;
mod groups;
mod membership;
mod placement;
mod servers;
mod silence;
mod sources;
mod unused;
mod watches;

use std::{sync::Arc, time::Instant};

pub(super) use self::{
    absence::{Absence, Missed, ResponseId},
    globs::{GlobPattern, Globs},
    groups::{AuthorityState, Groups},
    membership::{By, Memberships},
    placement::Placement,
    servers::{ServerState, Servers},
    silence::Unanswered,
    sources::Sources,
    watches::RequestedName,
};
use self::{sources::Registry, unused::Unused};
use super::{counts::ConnectionCounts, failure::Failure, store::Store};
use crate::{
    cache::Update,
    config::Bootstrap,
    engine::Settings,
    error::{Blame, Code, WatchError},
    invariant,
    protocol::{
        Disconnect, EntryId, Envelope, Event, ServerId, StreamEvent, Subscriptions, Timer, TypeAtServer,
        TypeId,
    },
    resource::Version,
};

/// The servers of all authorities. See the [module's](self) documentation.
#[derive(Debug)]
pub(super) struct Authorities {
    registry: Registry,
    /// By [`ServerId`].
    servers: Servers,
    groups: Groups,
    unused: Unused,
    connections: ConnectionCounts,
}

impl Authorities {
    pub(super) fn new(bootstrap: Arc<Bootstrap>, settings: Arc<Settings>, seed: u64) -> Self {
        Self {
            servers: Servers::default(),
            groups: Groups::new(&bootstrap, &settings),
            unused: Unused::default(),
            connections: ConnectionCounts::default(),
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
        self.settle(store, id, now);
        response
    }

    /// Handles the due timers of servers, but for those that are busy.
    pub(super) fn handle_timeout(
        &mut self,
        store: &mut Store,
        is_busy: impl Fn(ServerId) -> bool,
        now: Instant,
    ) {
        self.servers.settle_deadlines();
        for server in self.servers.due(now) {
            if !is_busy(server) {
                self.servers[server].machine.handle_timeout(now);
                self.settle(store, server, now);
            }
        }
    }

    /// The earliest deadline of a server that is not busy, and its timer.
    pub(super) fn next_timeout(&self, is_busy: impl Fn(ServerId) -> bool) -> Option<(Instant, Timer)> {
        let mut idle = self.servers.deadlines().filter(|(server, _)| !is_busy(*server));
        idle.next().map(|(_, deadline)| deadline)
    }

    /// Drops the resources whose TTL has expired.
    pub(super) fn expire(&mut self, store: &mut Store, now: Instant) {
        while let Some(id) = store.pop_expired(now) {
            self.on_expired(store, id, now);
        }
    }

    /// Removes the unused sources, at the end of each step. A server that `is_busy` is kept until it is not.
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
            if is_busy(id) || self.connections.has_unread_of(id) {
                self.unused.note_server(id);
                continue;
            }
            self.connections.forget(id);
            self.servers.remove(id);
            removed.push(id);
        }
        removed
    }

    /// The groups and servers of names.
    pub(super) fn sources(&mut self) -> Sources<'_> {
        Sources::new(&mut self.registry, &mut self.servers, &mut self.groups, &mut self.unused)
    }

    /// The subscriptions of entries at servers.
    pub(super) fn placement(&mut self) -> Placement<'_> {
        Placement::new(&mut self.servers, &self.groups)
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

    pub(super) fn server(&self, id: ServerId) -> &ServerState {
        &self.servers[id]
    }

    pub(super) fn server_mut(&mut self, id: ServerId) -> &mut ServerState {
        &mut self.servers[id]
    }

    /// The names of a type that are requested from a server, or sent by it.
    pub(super) fn subscriptions(&mut self, server: ServerId, ty: TypeId) -> Option<&mut Subscriptions> {
        self.servers[server].machine.subscriptions_mut(ty)
    }

    pub(super) fn groups(&self) -> &Groups {
        &self.groups
    }

    pub(super) fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Both at once.
    pub(super) fn servers_and_groups(&mut self) -> (&mut Servers, &Groups) {
        (&mut self.servers, &self.groups)
    }

    pub(super) fn connections(&mut self) -> &mut ConnectionCounts {
        &mut self.connections
    }

    /// Brings the deadlines of the servers up to date.
    pub(super) fn settle_deadlines(&mut self) {
        self.servers.settle_deadlines();
    }

    /// Handles the events of a server's machine.
    pub(super) fn settle(&mut self, store: &mut Store, server: ServerId, now: Instant) {
        while let Some(event) = self.servers[server].machine.poll_event() {
            match event {
                Event::Failed(reason) => self.on_failed(store, server, &reason, now),
                Event::Recovered => self.on_answered(store, server, now),
                Event::Rested => self.on_rested(store, server),
                Event::TimedOut(entry) => self.absence().on_timed_out(store, server, entry, now),
                Event::AllTimedOut(ty) => {
                    self.unanswered().on_all_timed_out(store, TypeAtServer { server, ty })
                }
                Event::Unanswered(ty) => {
                    self.unanswered().on_unanswered(store, TypeAtServer { server, ty }, now)
                }
                Event::HeldBack(entry) => self.unanswered().on_held_back(store, server, entry, now),
                Event::Released(entry) => self.placement().on_released(store, server, entry),
                Event::ReleasedAll(ty) => self.placement().on_released_all(store, server, ty),
                Event::Quiet(ty) => self.absence().on_quiet(store, server, ty, now),
            }
        }
        while let Some(command) = self.servers[server].machine.poll_command() {
            store.push_command(command);
        }
        let state = &self.servers[server];
        self.connections.note(server, state.machine.stream().connection(), state.failure.is_some());
    }

    /// No stream was established, or one ended before its first response. Each authority that the server serves falls
    /// back to the next server, or else the error is published to all watches of its resources.
    fn on_failed(&mut self, store: &mut Store, server: ServerId, reason: &Disconnect, now: Instant) {
        let state = &mut self.servers[server];
        let failure = Failure::new(state.machine.source_key(), reason);
        if state.failure.as_ref() == Some(&failure) {
            return;
        }
        (state.failure, state.failed_at) = (Some(failure), Some(now));
        for group in self.groups.with(server) {
            if self.groups.get(group).active() == server {
                self.fall_back(store, group, now);
                self.refresh_server_error(store, group);
                self.unanswered().warn_unanswered(store, group, now);
            }
        }
    }

    /// The first response of a stream. Streams of other types that could not reach the same server retry at once:
    /// updates of clusters and of the routes that lead to them must not be seconds apart after an outage.
    fn on_answered(&mut self, store: &mut Store, server: ServerId, now: Instant) {
        self.on_recovered(store, server);
        let source = self.servers[server].machine.source();
        let others: Vec<_> = self.servers.of_source(&source).filter(|other| *other != server).collect();
        for other in others {
            self.servers[other].machine.hasten(now);
        }
    }

    /// The first response of a stream clears the errors of the failures before it.
    fn on_recovered(&mut self, store: &mut Store, server: ServerId) {
        if self.servers[server].failure.take().is_none() {
            return;
        }
        for group in self.groups.with(server) {
            if self.groups.get(group).active() == server {
                self.refresh_server_error(store, group);
            }
        }
    }

    /// Nothing is requested from a server any more, so its past failures are cleared without a notification.
    fn on_rested(&mut self, store: &mut Store, server: ServerId) {
        self.on_recovered(store, server);
        for group in self.groups.with(server) {
            self.forget_fallback(store, group);
        }
        self.unused.note_server(server);
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
            self.servers[*server].machine.forget_version(ty, *sub);
        }
        self.placement().leave_collections(store, id);
        for (server, _) in subscriptions {
            self.settle(store, server, now);
        }
        // Its state is unknown now, which can trigger the fallback to another server.
        self.fall_back(store, group, now);
        self.refresh_server_error(store, group);
    }
}
