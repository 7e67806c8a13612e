//! Events of servers: failures, responses, the end of subscriptions, and deadlines.

use std::time::Instant;

use super::{
    super::{
        failure::{Failure, no_such, not_found_hint},
        store::Store,
    },
    Authorities,
};
use crate::{
    cache::{Entry, Update},
    error::{Blame, Code, WatchError},
    invariant,
    protocol::{Disconnect, EntryId, ServerId, Subscription},
    resource::Version,
};

impl Authorities {
    /// No stream was established, or one ended before its first response. Each authority that the server serves falls
    /// back to the next server, or else the error is published to all watches of its resources.
    pub(crate) fn on_failed(
        &mut self,
        store: &mut Store,
        server: ServerId,
        reason: &Disconnect,
        now: Instant,
    ) {
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
                self.warn_unanswered(store, group, now);
            }
        }
    }

    /// The first response of a stream. Streams of other types that could not reach the same server retry at once:
    /// updates of clusters and of the routes that lead to them must not be seconds apart after an outage.
    pub(crate) fn on_answered(&mut self, store: &mut Store, server: ServerId, now: Instant) {
        self.on_recovered(store, server);
        let source = self.servers[server].machine.source();
        let others: Vec<_> = self.servers.of_source(&source).filter(|other| *other != server).collect();
        for other in others {
            self.servers[other].machine.hasten(now);
        }
    }

    /// The first response of a stream clears the errors of the failures before it.
    pub(crate) fn on_recovered(&mut self, store: &mut Store, server: ServerId) {
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
    pub(crate) fn on_rested(&mut self, store: &mut Store, server: ServerId) {
        self.on_recovered(store, server);
        for group in self.groups.with(server) {
            self.forget_fallback(store, group);
        }
        self.unused.note_server(server);
    }

    /// A does-not-exist timer of a server ended (A57-5, A88-5). It does not matter as long as a lower server is active.
    pub(crate) fn on_timed_out(&mut self, store: &mut Store, server: ServerId, id: EntryId, now: Instant) {
        // It may have been removed since the timer ended.
        let Some(entry) = store.get(id) else { return };
        let active = self.active_for(entry);
        if server != active && self.servers[active].failure.is_none() {
            return;
        }
        if self.is_glob_known(store, id, now) {
            return;
        }
        let Some(entry) = store.get(id) else {
            invariant::broken("a resource that is acted on has an entry");
            return;
        };
        let state = &self.servers[server];
        let uri = state.machine.source();
        let sub = entry.places.at(server).and_then(|sub| state.machine.sub(entry.ty, sub));
        let is_transient = state.machine.source().features().resource_timer_is_transient_error;
        let (code, message) = if !state.machine.source_key().capabilities().remote {
            (Code::NotFound, format!("does not exist: {uri} does not hold it"))
        } else if state.machine.is_delta() && sub.is_some_and(Subscription::is_known_missing) {
            // The server reported its absence while its answers did not count.
            (Code::NotFound, no_such(&uri))
        } else {
            let (code, prefix) = match is_transient {
                true => (Code::Unavailable, ""),
                false => (Code::NotFound, "does not exist: "),
            };
            let hint = self.timeout_hint(store, server, entry);
            let at = not_found_hint(&state.machine);
            (code, format!("{prefix}xDS server {uri} did not send it in time{hint}{at}"))
        };
        let error = WatchError::new(code, Blame::Peer, store.subject(entry), message);
        let policy = state.policy;
        // The held resource was missing from a response, but may have been in flight still.
        let changed = self.apply(store, id, |entry| match entry.is_held() {
            true => entry.on_deleted(error, policy, Update { version: Version::default(), at: now }),
            false => entry.on_timeout(error, now),
        });
        if changed {
            self.note_changed(store, id);
            self.leave_collections(store, id);
        }
    }

    /// The hint for an operator when a server has not sent a resource in time.
    fn timeout_hint(&self, store: &Store, server: ServerId, entry: &Entry) -> &'static str {
        let machine = &self.servers[server].machine;
        if !machine.stream().has_answered() {
            return "; the server accepted the stream but has sent no response (is this node known to it?)";
        }
        let capabilities = machine.source_key().capabilities();
        let is_sotw = capabilities.streaming && !capabilities.incremental;
        let is_full_state = store.ty(entry.ty).full_state();
        let is_unanswered =
            || entry.places.at(server).is_some_and(|sub| machine.is_unanswered(entry.ty, sub));
        if is_sotw && !is_full_state && is_unanswered() {
            return ALL_NAMES_HINT;
        }
        "; is the name correct and visible to this node?"
    }

    /// A server was notified that an entry is unsubscribed. With its last subscription it is forgotten.
    pub(super) fn on_released(&mut self, store: &mut Store, server: ServerId, id: EntryId) {
        // It may have been handed over to another entry, and removed.
        let Some(entry) = store.get_mut(id) else { return };
        let subscriptions = self.servers[server].machine.subscriptions_mut(entry.ty);
        let again = subscriptions
            .zip(entry.places.at(server))
            .and_then(|(subscriptions, sub)| subscriptions.get(sub));
        if again.is_some_and(|sub| sub.entry() == id) {
            // The name was requested again before the event was handled.
            return;
        }
        entry.places.remove(server);
        let is_last = entry.places.is_empty();
        if entry.is_glob {
            self.release_members(store, id, server);
        }
        if is_last
            && let Some(entry) = store.remove(id)
            && self.find_entry((entry.group, entry.ty), &entry.name).is_none()
        {
            store.members.forget(&entry);
            if let Some(key) = self
                .wildcard_key(store, entry.ty)
                .filter(|key| self.find_entry((key.0, key.1), &entry.name).is_none())
            {
                store.members.remove(&key, &entry.name);
            }
        }
    }

    /// A resource is dropped, whatever the policy: its server has set the TTL. It is still subscribed, and returns when
    /// it is sent again; a member without a watch of its name is forgotten.
    pub(in crate::engine) fn on_expired(&mut self, store: &mut Store, id: EntryId, now: Instant) {
        let Some(entry) = store.get(id).filter(|entry| entry.is_held()) else {
            invariant::broken("only what is held has a time to live");
            return;
        };
        let (ty, group, server) = (entry.ty, entry.group, self.active_for(entry));
        let uri = self.servers[server].machine.source();
        let message = format!("TTL expired: xDS server {uri} has not confirmed it in time");
        let error = WatchError::new(Code::NotFound, Blame::Peer, store.subject(entry), message);
        let places: Vec<_> = entry.places.iter().collect();
        let update = Update { version: Version::default(), at: now };
        self.update(store, id, |entry| entry.on_expired(error, update));
        for (server, sub) in &places {
            self.servers[*server].machine.forget_version(ty, *sub);
        }
        self.leave_collections(store, id);
        for (server, _) in places {
            self.settle(store, server, now);
        }
        // Its state is unknown now, which can trigger the fallback to another server.
        self.fall_back(store, group, now);
        self.refresh_server_error(store, group);
    }
}

/// go-control-plane in ADS mode leaves a request unanswered until it names all resources of the type in its snapshot, except
/// in the incremental variant.
const ALL_NAMES_HINT: &str = ", nor any other resource of the type; is the name correct and visible to this node? Some servers \
    respond only to requests that name all resources of a type, as go-control-plane does in ADS mode (watch all of them, or use \
    the incremental variant, api_type AGGREGATED_DELTA_GRPC)";
