//! The members of wildcards and globs at each server.

use std::time::Instant;

use super::{
    super::store::{Store, Which},
    Authorities,
};
use crate::{
    invariant,
    protocol::{EntryId, GroupId, ServerId, TypeId},
};

/// The reason for the membership of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum By {
    Wildcard,
    Glob,
}

impl Authorities {
    /// In the incremental variant a server need not resend for a wildcard a resource that it has sent by name: it
    /// counts as a member until the server removes it (B2.20).
    pub(super) fn join_held(&mut self, store: &mut Store, ty: TypeId, server: ServerId, now: Instant) {
        let Some(subscriptions) = self.servers[server]
            .machine
            .subscriptions_mut(ty)
            .filter(|subscriptions| !subscriptions.takes_all())
        else {
            return;
        };
        let held = subscriptions.iter().filter(|(_, sub)| sub.has_version());
        let held: Vec<_> = held.map(|(_, sub)| sub.entry()).collect();
        for id in held {
            self.join(store, (id, By::Wildcard), server, now);
        }
    }

    /// A member at the active server is one at those above it, too.
    pub(in crate::engine) fn join_higher(&mut self, store: &mut Store, id: EntryId, by: By, now: Instant) {
        let Some(entry) = store.get(id) else {
            invariant::broken("a resource that is acted on has an entry");
            return;
        };
        let group = match by {
            By::Wildcard => self.wildcard_key(store, entry.ty).map_or(entry.group, |(group, ..)| group),
            By::Glob => entry.group,
        };
        let ty = entry.ty;
        for rank in 0..self.groups.get(group).open.len() - 1 {
            let server = self.groups.get(group).open[rank];
            let subscriptions = self.servers[server].machine.subscriptions_mut(ty);
            // A server that was notified of the end of a wildcard before the active one has no members.
            if by == By::Glob || subscriptions.is_some_and(|subscriptions| subscriptions.takes_all()) {
                self.join(store, (id, by), server, now);
            }
        }
    }

    /// A resource is a member of a collection at a server also if another server has sent it.
    pub(super) fn join(
        &mut self,
        store: &mut Store,
        (id, by): (EntryId, By),
        server: ServerId,
        now: Instant,
    ) {
        // The name may be requested there for the watches of another group.
        let (Some(sub), Some(entry)) = (self.place(store, id, server), store.get(id)) else { return };
        let ty = entry.ty;
        let subscriptions = self.servers[server].machine.subscriptions_mut(ty);
        if let Some(sub) = subscriptions.and_then(|subscriptions| subscriptions.get_mut(sub)) {
            match by {
                By::Wildcard => drop(sub.join_wildcard()),
                By::Glob => drop(sub.join_glob()),
            }
        }
        let full_state = store.ty(ty).full_state();
        self.servers[server].machine.on_joined((ty, full_state), sub, now);
    }

    /// The wildcard of a type at a server is unsubscribed, and the server was notified.
    pub(super) fn on_released_all(&mut self, store: &mut Store, server: ServerId, ty: TypeId) {
        for group in self.groups.with(server) {
            self.end_unwatched_wildcard(store, (group, ty));
        }
    }

    /// Ends a wildcard without a watch, unless a server of the group was not notified of that yet: if it is watched
    /// again before, nothing has happened for that server, and its members are those of before.
    pub(super) fn end_unwatched_wildcard(&mut self, store: &mut Store, (group, ty): (GroupId, TypeId)) {
        let key = (group, ty, Which::All);
        if !store.members.get(&key).is_some_and(|all| all.watches.is_empty()) {
            return;
        }
        let Self { groups, servers, .. } = self;
        let mut open = groups.get(group).open.iter();
        let takes_all = |server: &ServerId| {
            servers[*server]
                .machine
                .subscriptions_mut(ty)
                .is_some_and(|subscriptions| subscriptions.takes_all())
        };
        if !open.any(takes_all) {
            store.members.end(&key);
        }
    }

    /// A resource was deleted: it is no member any more, and forgotten when it has no watch by name.
    pub(in crate::engine) fn leave_collections(&mut self, store: &mut Store, id: EntryId) {
        // A held resource stays, with a warning.
        let Some(entry) = store.get(id).filter(|entry| !entry.is_held()) else { return };
        let (ty, name) = (entry.ty, entry.name.clone());
        let of_all = self
            .wildcard_key(store, ty)
            .filter(|key| key.0 == entry.group || self.wildcard_of(store, entry).is_some());
        let places: Vec<_> = entry.places.iter().collect();
        if let Some(key) = of_all {
            store.members.remove(&key, &name);
        }
        if let Some(key) = self.glob_key(store, id) {
            let name = store.additions().take_from(&name);
            store.members.remove(&key, &name);
        }
        for (server, sub) in places {
            let machine = &mut self.servers[server].machine;
            if let Some(sub) =
                machine.subscriptions_mut(ty).and_then(|subscriptions| subscriptions.get_mut(sub))
            {
                sub.leave_collections();
            }
            machine.release(ty, &[sub]);
        }
    }
}
