//! The events of machines; fallback from one server of an authority to the next, and reversion (A71).
//!
//! ```text
//!                  the active server fails, and a watched resource is unknown (A71-3)
//!    S0 active ────────────────────────────────────────────────────────────────▶ S1 active, S0 open
//!        ▲                                                                          │
//!        └──────── S0 sends a subscribed resource (A71-5), or nothing is watched ───┘
//! ```
//!
//! A fallback adds a server, it does not replace one: requests to the servers above stay, since an answer to them is how
//! their recovery is noticed. For the same reason their versions are forgotten ([`forget_versions`]): a server that gets
//! the held versions need not answer.
//!
//! [`forget_versions`]: Failover::forget_versions

use std::{collections::BTreeSet, time::Instant};

use tracing::info;

use super::{
    super::{
        counts::{ConnectionCounts, TrafficCounts},
        failure::Failure,
        store::{CollectionKey, Store},
    },
    Absence, CollectionMembers, Placement, ResponseId, Sources, Unanswered,
};
use crate::{
    invariant,
    protocol::{
        Channel, ConnectionState, Disconnect, Event, GroupId, ServerId, SourceKey, TypeAtServer, TypeInGroup,
    },
};

/// A view of all servers and groups that follows what machines report: it moves groups between their servers.
///
/// Falling back subscribes at another server, whose machine may report in turn that it is not reachable either. So handling
/// events and falling back call each other; a group has finitely many servers, and only the next one is opened.
#[derive(Debug)]
pub(super) struct Failover<'a> {
    /// The servers and groups, and how new ones are made.
    sources: Sources<'a>,
    /// Counters for metrics.
    connections: &'a mut ConnectionCounts,
    traffic: &'a mut TrafficCounts,
}

impl<'a> Failover<'a> {
    pub(super) fn new(
        sources: Sources<'a>,
        connections: &'a mut ConnectionCounts,
        traffic: &'a mut TrafficCounts,
    ) -> Self {
        Self { sources, connections, traffic }
    }

    /// Handles the events of a server's machine.
    /// It is called after each call of the machine that may have events: they refer to the state right after that call.
    pub(super) fn drain_events(&mut self, store: &mut Store, server: ServerId, now: Instant) {
        while let Some(event) = self.sources.servers[server].machine.poll_event() {
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
                Event::ReleasedAll(ty) => self.members().on_released_all(store, server, ty),
                Event::Quiet(ty) => self.absence().on_quiet(store, server, ty, now),
            }
        }
        while let Some(command) = self.sources.servers[server].machine.poll_command() {
            store.push_command(command);
        }
        if let Some(traffic) = self.sources.servers[server].machine.take_traffic() {
            self.traffic.add(server, traffic);
        }
        let state = &self.sources.servers[server];
        self.connections.note(server, state.machine.stream().connection(), state.failure.is_some());
    }

    /// No stream was established, or one ended before its first response. Each authority that the server serves falls
    /// back to the next server, or else the error is published to all watches of its resources.
    fn on_failed(&mut self, store: &mut Store, server: ServerId, reason: &Disconnect, now: Instant) {
        let state = &mut self.sources.servers[server];
        let failure = Failure::new(state.machine.source_key(), reason);
        // During an outage each attempt fails in the same way: the watches have the error, and the next server is open already.
        if state.failure.as_ref() == Some(&failure) {
            return;
        }
        (state.failure, state.failed_at) = (Some(failure), Some(now));
        for group in self.sources.groups.with(server) {
            if self.sources.groups.get(group).active() == server {
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
        let source = self.sources.servers[server].machine.source();
        let others: Vec<_> =
            self.sources.servers.of_source(&source).filter(|other| *other != server).collect();
        for other in others {
            self.sources.servers[other].machine.hasten(now);
        }
    }

    /// The first response of a stream clears the errors of the failures before it.
    fn on_recovered(&mut self, store: &mut Store, server: ServerId) {
        if self.sources.servers[server].failure.take().is_none() {
            return;
        }
        for group in self.sources.groups.with(server) {
            if self.sources.groups.get(group).active() == server {
                self.refresh_server_error(store, group);
            }
        }
    }

    /// The last subscription at a server has ended, so its past failures are cleared without a notification.
    fn on_rested(&mut self, store: &mut Store, server: ServerId) {
        self.on_recovered(store, server);
        for group in self.sources.groups.with(server) {
            self.forget_fallback(store, group);
        }
        self.sources.unused.note_server(server);
    }

    /// Opens the next servers of a group, one after the other, while the active one cannot be reached and a watched
    /// resource is not cached (A71-3).
    /// Held resources stay: they are replaced when the next server sends them. The servers above keep their subscriptions,
    /// since that is how their recovery is noticed.
    pub(super) fn fall_back(&mut self, store: &mut Store, id: GroupId, now: Instant) {
        while let Some(next) = self.next_contact(store, id) {
            let active = self.sources.groups.get(id).active();
            info!(from = %self.sources.servers[active].machine.source(), to = %next.source(), "falling back to the next server");
            let server = self.sources.server_id(&next);
            self.forget_versions(store, id, now);
            self.sources.open_next(id, server);
            // Earlier responses of the server, on the current stream or one before it, may not have counted.
            for ty in store.type_ids() {
                if let Some(channel) = self.sources.servers[server].machine.channel_mut(ty) {
                    channel.on_dropped();
                }
            }
            // Read before anything is subscribed again, which takes back ends that are not written.
            let is_behind = self.sources.servers[server].machine.has_unwritten_ends();
            // In this order, so that the wildcard has its older form on a stream that is there already.
            for ty in store.members.watched_types(id) {
                self.members().subscribe_wildcard_at(store, TypeInGroup { group: id, ty }, server, now);
            }
            for entry in store.entries_of(id) {
                if store.get(entry).is_some_and(|entry| !entry.watches.is_empty()) {
                    self.members().subscribe_at(store, entry, server, now);
                }
            }
            if is_behind {
                // The server has sent these resources on the stream already, and would not send them again.
                self.sources.servers[server]
                    .machine
                    .reopen("the end of the last fallback was not sent on it", now);
            }
            self.drain_events(store, server, now);
        }
    }

    /// A server above the active one sends a subscribed resource: it is active again, and those below it are
    /// unsubscribed (A71-5). Held resources stay until it sends an update.
    pub(super) fn revert_to_primary(
        &mut self,
        store: &mut Store,
        id: GroupId,
        response: ResponseId,
        now: Instant,
    ) {
        let server = response.server;
        let Some(rank) = self.sources.groups.get(id).rank(server) else {
            invariant::broken("a server that is reverted to is open");
            return;
        };
        let lower = self.sources.groups.close_from(id, rank + 1);
        if lower.is_empty() {
            return;
        }
        info!(server = %self.sources.servers[server].machine.source(), "reverted to a server of higher priority");
        self.refresh_server_error(store, id);
        self.stop_requesting(store, id, &lower, now);
        self.members().end_unwatched_wildcards(store, id);
        for ty in store.type_ids() {
            if self.sources.servers[server]
                .machine
                .subscriptions_mut(ty)
                .is_some_and(|subscriptions| subscriptions.received_all)
            {
                store.members.complete(&CollectionKey::of_all(TypeInGroup { group: id, ty }));
            }
            // While another server was active, types that this server ends streams for, or does not answer, had no error.
            self.unanswered().on_unanswered(store, TypeAtServer { server, ty }, now);
            self.unanswered().warn_timed_out(store, TypeAtServer { server, ty });
        }
        for entry in store.entries_of(id) {
            if self.absence().has_timed_out(store, entry, response)
                || self.absence().is_missed(store, entry, response, now)
            {
                self.absence().on_timed_out(store, server, entry, now);
            }
        }
    }

    /// Closes the lowest servers of a group that are idle, since nothing was requested from them for a while. The group starts
    /// above them at the next subscription.
    pub(super) fn forget_fallback(&mut self, store: &mut Store, id: GroupId) {
        while self.sources.groups.get(id).watches == 0 && self.sources.groups.get(id).open.len() > 1 {
            let active = self.sources.groups.get(id).active();
            if self.sources.servers[active].machine.stream().connection() != ConnectionState::Idle {
                return;
            }
            // From the lowest up, as long as it is idle: a server that is still connected may be used by the next watch.
            let rank = self.sources.groups.get(id).open.len() - 1;
            for closed in self.sources.groups.close_from(id, rank) {
                self.sources.unused.note_server(closed);
            }
            self.members().end_unwatched_wildcards(store, id);
            self.refresh_server_error(store, id);
        }
    }

    /// Sets the error that the resources of a group show.
    pub(super) fn refresh_server_error(&mut self, store: &mut Store, id: GroupId) {
        store.set_server_error(id, self.sources.servers.error_of(self.sources.groups.get(id)));
    }

    /// Unsubscribes everything of a group from servers. A stream without other subscriptions is closed at once.
    /// The names are withdrawn in one batch, so that the stream is closed instead of unsubscribing from each.
    fn stop_requesting(&mut self, store: &mut Store, id: GroupId, lower: &[ServerId], now: Instant) {
        for server in lower {
            for entry in store.entries_of(id) {
                let found =
                    store.get(entry).and_then(|entry| Some((entry.ty, entry.subscriptions.at(*server)?)));
                if let Some((ty, sub)) = found {
                    self.sources.servers[*server].machine.withdraw(ty, sub, now);
                }
            }
            for ty in store.members.watched_types(id) {
                self.sources.servers[*server].machine.withdraw_all(ty, now);
            }
            self.sources.servers[*server].machine.rest(now);
            self.drain_events(store, *server, now);
            self.sources.unused.note_server(*server);
        }
    }

    /// Makes the servers above the one that is fallen back to send everything on their return: that is how recovery is
    /// detected. One that was sent versions, but has not answered yet, may have nothing to send, and gets
    /// the request again on another stream.
    fn forget_versions(&mut self, store: &mut Store, group: GroupId, now: Instant) {
        let types: Vec<_> = store.members.watched_types(group);
        let mut types: BTreeSet<_> = types.into_iter().collect();
        let mut notified = BTreeSet::new();
        for (_, entry) in store.iter().filter(|(_, entry)| entry.group == group) {
            types.insert(entry.ty);
            for (server, sub) in entry.subscriptions.iter() {
                let machine = &mut self.sources.servers[server].machine;
                if machine.channel_mut(entry.ty).is_some_and(|channel| channel.take_back_version(sub)) {
                    notified.insert(server);
                }
            }
        }
        for server in &self.sources.groups.get(group).open {
            let machine = &mut self.sources.servers[*server].machine;
            // All of them, whether or not one was sent.
            let forgotten =
                types.iter().filter(|ty| machine.channel_mut(**ty).is_some_and(Channel::forget_type_version));
            if forgotten.count() > 0 {
                notified.insert(*server);
            }
        }
        for server in notified {
            self.sources.servers[server]
                .machine
                .reopen("resubscribing to detect recovery of the primary", now);
            self.drain_events(store, server, now);
        }
    }

    /// The next server to open, if there is one and a reason to.
    fn next_contact(&self, store: &Store, id: GroupId) -> Option<SourceKey> {
        let group = self.sources.groups.get(id);
        let next = group.source_keys.get(group.open.len())?;
        if group.watches == 0 || self.sources.servers[group.active()].failure.is_none() {
            return None;
        }
        // The check that iterates over the cache comes last: only when the active server has failed.
        (group.on_reachability_only || store.lacks_resources(id)).then(|| next.clone())
    }

    fn placement(&mut self) -> Placement<'_> {
        Placement::new(self.sources.servers, self.sources.groups)
    }

    fn members(&mut self) -> CollectionMembers<'_> {
        CollectionMembers::new(self.sources.servers, self.sources.groups)
    }

    fn absence(&mut self) -> Absence<'_> {
        Absence::new(self.sources.servers, self.sources.groups)
    }

    fn unanswered(&mut self) -> Unanswered<'_> {
        Unanswered::new(self.sources.servers, self.sources.groups)
    }
}
