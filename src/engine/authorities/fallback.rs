//! Fallback from one server of an authority to the next, and reversion (A71).

use std::time::Instant;

use tracing::info;

use super::{
    super::store::{Store, Which},
    Authorities,
};
use crate::{
    cache::{Entry, ResourceState},
    invariant,
    protocol::{ConnectionState, EntryId, GroupId, ServerId, SourceKey, Subscription, TypeId},
};

impl Authorities {
    /// Opens the next servers of a group, one after the other, while the active one cannot be reached and a watched
    /// resource is not cached (A71-3).
    pub(super) fn fall_back(&mut self, store: &mut Store, id: GroupId, now: Instant) {
        while let Some(next) = self.next_contact(store, id) {
            let active = self.groups.get(id).active();
            info!(from = %self.servers[active].machine.source(), to = %next.source(), "falling back to the next server");
            let server = self.server_id(&next, now);
            self.forget_versions(store, id, now);
            self.open_next(id, server);
            // Earlier responses of the server, on the current stream or one before it, may not have counted.
            for ty in store.type_ids() {
                self.servers[server].machine.on_dropped(ty);
            }
            let is_behind = self.servers[server].machine.has_unwritten_ends();
            // In this order, so that the wildcard has its older form on a stream that is there already.
            for ty in self.watched_wildcards(store, id) {
                self.subscribe_wildcard_at(store, (id, ty), server, now);
            }
            for entry in store.entries_of(id) {
                if store.get(entry).is_some_and(|entry| !entry.watches.is_empty()) {
                    self.subscribe_at(store, entry, server, now);
                }
            }
            if is_behind {
                // The server has sent these resources on the stream already, and would not send them again.
                self.servers[server].machine.reopen("the end of the last fallback was not sent on it", now);
            }
            self.settle(store, server, now);
        }
    }

    /// A server above the active one sends a subscribed resource: it is active again, and those below it are
    /// unsubscribed (A71-5). Held resources stay until it sends an update.
    pub(in crate::engine) fn revert_to_primary(
        &mut self,
        store: &mut Store,
        id: GroupId,
        (server, number): (ServerId, u64),
        now: Instant,
    ) {
        let Some(rank) = self.groups.get(id).rank(server) else {
            invariant::broken("a server that is reverted to is open");
            return;
        };
        let lower = self.groups.close_from(id, rank + 1);
        if lower.is_empty() {
            return;
        }
        info!(server = %self.servers[server].machine.source(), "reverted to a server of higher priority");
        self.refresh_server_error(store, id);
        self.stop_requesting(store, id, &lower, now);
        self.end_unwatched_wildcards(store, id);
        for ty in store.type_ids() {
            if self.servers[server]
                .machine
                .subscriptions_mut(ty)
                .is_some_and(|subscriptions| subscriptions.received_all)
            {
                store.members.complete(&(id, ty, Which::All));
            }
            // While another server was active, types that this server ends streams for, or does not answer, had no error.
            self.on_unanswered(store, (server, ty), now);
            self.warn_timed_out(store, server, ty);
        }
        for entry in store.entries_of(id) {
            if self.has_timed_out(store, entry, server, number)
                || self.is_missed(store, entry, (server, number), now)
            {
                self.on_timed_out(store, server, entry, now);
            }
        }
    }

    /// Nothing was requested from a server for a while. When the lowest servers of a group are idle, the group starts
    /// above them at the next subscription.
    pub(super) fn forget_fallback(&mut self, store: &mut Store, id: GroupId) {
        while self.groups.get(id).watches == 0 && self.groups.get(id).open.len() > 1 {
            let active = self.groups.get(id).active();
            if self.servers[active].machine.stream().connection() != ConnectionState::Idle {
                return;
            }
            let rank = self.groups.get(id).open.len() - 1;
            for closed in self.groups.close_from(id, rank) {
                self.unused.note_server(closed);
            }
            self.end_unwatched_wildcards(store, id);
            self.refresh_server_error(store, id);
        }
    }

    /// Sets the error that the resources of a group show to that of the active server, with those of the servers above it. The
    /// retries of the servers above the active one are silent (A71-4).
    pub(super) fn refresh_server_error(&mut self, store: &mut Store, id: GroupId) {
        let group = self.groups.get(id);
        let failures = group.open.iter().filter_map(|server| self.servers[*server].failure.as_ref());
        let active = &self.servers[group.active()];
        let error = active.failure.as_ref().map(|last| last.after(failures));
        store.set_server_error(id, error);
    }

    /// Unsubscribes everything of a group from servers. A stream without other subscriptions is closed at once.
    fn stop_requesting(&mut self, store: &mut Store, id: GroupId, lower: &[ServerId], now: Instant) {
        for server in lower {
            for entry in store.entries_of(id) {
                let place = store.get(entry).and_then(|entry| Some((entry.ty, entry.places.at(*server)?)));
                if let Some((ty, sub)) = place {
                    self.servers[*server].machine.withdraw(ty, sub, now);
                }
            }
            for ty in self.watched_wildcards(store, id) {
                self.servers[*server].machine.withdraw_all(ty, now);
            }
            self.servers[*server].machine.rest(now);
            self.settle(store, *server, now);
            self.unused.note_server(*server);
        }
    }

    /// Ends the wildcards that were kept for a server without subscriptions.
    fn end_unwatched_wildcards(&mut self, store: &mut Store, id: GroupId) {
        for ty in store.type_ids() {
            self.end_unwatched_wildcard(store, (id, ty));
        }
    }

    /// The next server to open, if there is one and a reason to.
    fn next_contact(&self, store: &Store, id: GroupId) -> Option<SourceKey> {
        let group = self.groups.get(id);
        let next = group.source_keys.get(group.open.len())?;
        if group.watches == 0 || self.servers[group.active()].failure.is_none() {
            return None;
        }
        // The check that iterates over the cache comes last: only when the active server has failed.
        (group.on_reachability_only || self.lacks_resources(store, id)).then(|| next.clone())
    }

    /// Whether a watched resource of a group is not cached.
    fn lacks_resources(&self, store: &Store, id: GroupId) -> bool {
        store.members.watched_wildcards(id).any(|(_, all)| !all.complete)
            || store
                .iter()
                .any(|(_, entry)| entry.group == id && !entry.watches.is_empty() && entry.is_unknown())
    }

    /// Whether the does-not-exist time of a server has passed while its answers did not count, without the resource.
    fn has_timed_out(&mut self, store: &mut Store, id: EntryId, server: ServerId, number: u64) -> bool {
        // What is held stays until the server sends an update, and what does not exist below does not here.
        let is_open = |entry: &&Entry| !entry.is_held() && entry.state() != ResourceState::DoesNotExist;
        let Some(entry) = store.get(id).filter(is_open) else { return false };
        let (ty, sub, is_waiting) = (entry.ty, entry.places.at(server), entry.is_waiting());
        let subscriptions = self.servers[server].machine.subscriptions_mut(ty);
        subscriptions.zip(sub).and_then(|(subscriptions, sub)| subscriptions.get(sub)).is_some_and(|sub| {
            // An answer with an error stays as well. The error of a server below does not.
            let is_due = if is_waiting { sub.is_decided() } else { sub.has_timed_out() };
            is_due && !sub.is_mentioned_in(number)
        })
    }

    /// Whether a known resource is missing from the responses of a server while its answers did not count, although
    /// they would have included it. If it can be requested by name, its does-not-exist timer begins now.
    fn is_missed(
        &mut self,
        store: &mut Store,
        id: EntryId,
        (server, number): (ServerId, u64),
        now: Instant,
    ) -> bool {
        // Members of a glob may be missing, not the glob itself.
        let known = store.get(id).filter(|entry| !entry.is_waiting() && !entry.is_glob);
        // The state of others is unknown, so that nothing is missing.
        let Some(entry) = known else { return false };
        // It was never requested from the server.
        let (ty, Some(sub)) = (entry.ty, entry.places.at(server)) else { return false };
        let machine = &mut self.servers[server].machine;
        let subscriptions = machine.subscriptions_mut(ty);
        let is_missed = |sub: &Subscription| sub.is_missing() && !sub.is_mentioned_in(number);
        if !subscriptions.and_then(|subscriptions| subscriptions.get(sub)).is_some_and(is_missed) {
            return false;
        }
        machine.doubt(ty, sub, now);
        machine.is_gone(ty, sub, now)
    }

    /// The types with a watched wildcard in a group.
    pub(super) fn watched_wildcards(&self, store: &Store, id: GroupId) -> Vec<TypeId> {
        store.members.watched_wildcards(id).map(|(ty, _)| ty).collect()
    }
}
