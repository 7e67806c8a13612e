//! Fallback from one server of an authority to the next, and reversion (A71).

use std::{collections::BTreeSet, time::Instant};

use tracing::info;

use super::{
    super::store::{CollectionKey, Store},
    Authorities, ResponseId,
};
use crate::{
    invariant,
    protocol::{ConnectionState, GroupId, ServerId, SourceKey, TypeAtServer, TypeInGroup},
};

impl Authorities {
    /// Opens the next servers of a group, one after the other, while the active one cannot be reached and a watched
    /// resource is not cached (A71-3).
    pub(super) fn fall_back(&mut self, store: &mut Store, id: GroupId, now: Instant) {
        while let Some(next) = self.next_contact(store, id) {
            let active = self.groups.get(id).active();
            info!(from = %self.servers[active].machine.source(), to = %next.source(), "falling back to the next server");
            let server = self.sources().server_id(&next, now);
            self.forget_versions(store, id, now);
            self.sources().open_next(id, server);
            // Earlier responses of the server, on the current stream or one before it, may not have counted.
            for ty in store.type_ids() {
                self.servers[server].machine.on_dropped(ty);
            }
            let is_behind = self.servers[server].machine.has_unwritten_ends();
            // In this order, so that the wildcard has its older form on a stream that is there already.
            for ty in store.members.watched_types(id) {
                self.placement().subscribe_wildcard_at(store, TypeInGroup { group: id, ty }, server, now);
            }
            for entry in store.entries_of(id) {
                if store.get(entry).is_some_and(|entry| !entry.watches.is_empty()) {
                    self.placement().subscribe_at(store, entry, server, now);
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
        response: ResponseId,
        now: Instant,
    ) {
        let server = response.server;
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
        self.placement().end_unwatched_wildcards(store, id);
        for ty in store.type_ids() {
            if self.servers[server]
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
            self.placement().end_unwatched_wildcards(store, id);
            self.refresh_server_error(store, id);
        }
    }

    /// Sets the error that the resources of a group show.
    pub(super) fn refresh_server_error(&mut self, store: &mut Store, id: GroupId) {
        store.set_server_error(id, self.servers.error_of(self.groups.get(id)));
    }

    /// Unsubscribes everything of a group from servers. A stream without other subscriptions is closed at once.
    fn stop_requesting(&mut self, store: &mut Store, id: GroupId, lower: &[ServerId], now: Instant) {
        for server in lower {
            for entry in store.entries_of(id) {
                let found =
                    store.get(entry).and_then(|entry| Some((entry.ty, entry.subscriptions.at(*server)?)));
                if let Some((ty, sub)) = found {
                    self.servers[*server].machine.withdraw(ty, sub, now);
                }
            }
            for ty in store.members.watched_types(id) {
                self.servers[*server].machine.withdraw_all(ty, now);
            }
            self.servers[*server].machine.rest(now);
            self.settle(store, *server, now);
            self.unused.note_server(*server);
        }
    }

    /// Another server is fallen back to, so that those above it have to send everything on their return: that is how
    /// recovery is detected. One that was sent versions, but has not answered yet, may have nothing to send, and gets
    /// the request again on another stream.
    fn forget_versions(&mut self, store: &mut Store, group: GroupId, now: Instant) {
        let types: Vec<_> = store.members.watched_types(group);
        let mut types: BTreeSet<_> = types.into_iter().collect();
        let mut notified = BTreeSet::new();
        for (_, entry) in store.iter().filter(|(_, entry)| entry.group == group) {
            types.insert(entry.ty);
            for (server, sub) in entry.subscriptions.iter() {
                let machine = &mut self.servers[server].machine;
                if machine.take_back_version(entry.ty, sub) {
                    notified.insert(server);
                }
            }
        }
        for server in &self.groups.get(group).open {
            let machine = &mut self.servers[*server].machine;
            // All of them, whether or not one was sent.
            if types.iter().filter(|ty| machine.forget_type_version(**ty)).count() > 0 {
                notified.insert(*server);
            }
        }
        for server in notified {
            self.servers[server].machine.reopen("resubscribing to detect recovery of the primary", now);
            self.settle(store, server, now);
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
        (group.on_reachability_only || store.lacks_resources(id)).then(|| next.clone())
    }
}
