//! The members of wildcards and globs at servers: how subscriptions become members, and what ends with them.
//!
//! ```text
//!   sent for a wildcard ──▶ of_wildcard ──┐                     ┌── a removal, or absence from a complete response
//!   name matches a glob ──▶ of_glob ──────┴─▶ a member here ────┼── the end of the wildcard or glob, once it is written
//!                                                               └── the expiry of the resource
//! ```
//!
//! The two marks are in the subscription, since they are the server's view; the collections with their values are in the
//! store. A wildcard without a watch is kept until the server was notified of its end: with a new watch before that, nothing
//! has happened for the server, and it would not send the members again.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use super::{
    super::store::{Collection, CollectionKey, Store},
    By, Globs, Groups, Memberships, Placement, Servers,
    globs::GlobPattern,
};
use crate::{
    base::WatchId,
    cache::Update,
    invariant,
    protocol::{EntryId, GroupId, ServerId, Subscription, TypeId, TypeInGroup},
    resource::Version,
};

/// A watch of a wildcard, or of what is sent without a request for it.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct AllWatch {
    pub(in crate::engine) watch_id: WatchId,
    /// Nothing is requested for the watch.
    pub(in crate::engine) is_pushed: bool,
}

/// An entry that becomes a member of a collection.
#[derive(Debug, Clone, Copy)]
struct NewMember {
    /// The entry, whose name may have a subscription at the server or not.
    entry: EntryId,
    /// The kind of the collection: an entry may be a member of one of each kind.
    by: By,
}

/// A view that changes the memberships of subscriptions; [`Memberships`] reads them.
///
/// Each open server of a group has all members of its collections, whichever server has sent them: only so the absence of one
/// from a response is noticed.
#[derive(Debug)]
pub(in crate::engine) struct CollectionMembers<'a> {
    servers: &'a mut Servers,
    groups: &'a Groups,
}

impl<'a> CollectionMembers<'a> {
    pub(super) fn new(servers: &'a mut Servers, groups: &'a Groups) -> Self {
        Self { servers, groups }
    }

    /// Requests an entry from one server.
    /// The spelling of the name is that of its first watch, unless the server knows it by another already (X2).
    pub(super) fn subscribe_at(&mut self, store: &mut Store, id: EntryId, server: ServerId, now: Instant) {
        // The name may be requested there for the watches of another group.
        let Some(sub) = self.placement().place(store, id, server) else { return };
        let Some(entry) = store.existing(id) else { return };
        let named = store.named_type(entry.ty);
        let (is_glob, spelling) = (entry.is_glob, entry.spelling.clone());
        let machine = &mut self.servers[server].machine;
        if let Some(sub) = machine.subscriptions_mut(named.id).and_then(|known| known.get_mut(sub)) {
            sub.spell(spelling);
        }
        machine.subscribe(named, sub, now);
        if is_glob {
            self.join_members(store, id, server, now);
        }
    }

    /// Requests the wildcard of a type from one server. Members from others get a subscription there, too, to detect absence.
    pub(super) fn subscribe_wildcard_at(
        &mut self,
        store: &mut Store,
        scope: TypeInGroup,
        server: ServerId,
        now: Instant,
    ) {
        let TypeInGroup { group, ty } = scope;
        let all = store.members.get(&CollectionKey::of_all(scope));
        let names: Vec<_> = all.map(|all| all.members.keys().cloned().collect()).unwrap_or_default();
        let mut members: BTreeSet<_> =
            names.iter().filter_map(|name| self.placement().find_entry(scope, name)).collect();
        members.extend(self.members_above(group, ty, server));
        for id in members {
            self.join(store, NewMember { entry: id, by: By::Wildcard }, server, now);
        }
        let (machine, named) = (&mut self.servers[server].machine, store.named_type(ty));
        let all = store.members.get(&CollectionKey::of_all(scope));
        if all.is_some_and(|all| !all.pushed.is_empty()) {
            machine.accept_pushed(named, true, now);
        }
        if all.is_some_and(|all| !all.watches.is_empty()) {
            machine.subscribe_all(named, now);
        }
    }

    /// The last watch of a name ends, and its server is notified: the server has no reason any more to send its changes, also if it had
    /// pushed the resource before.
    pub(super) fn leave_pushed(&mut self, store: &mut Store, id: EntryId) {
        let Some(entry) = store.get(id) else { return };
        let Some(key) = self.memberships().wildcard_key(store, entry.ty) else { return };
        let name = entry.name.clone();
        let mut has_left = false;
        for (server, sub) in entry.subscriptions.iter() {
            let subscriptions = self.servers[server].machine.subscriptions_mut(entry.ty);
            let alone = subscriptions.filter(|subscriptions| subscriptions.takes_pushed_alone());
            if let Some(sub) = alone.and_then(|all| all.get_mut(sub)).filter(|sub| sub.is_requested()) {
                has_left |= sub.leave_wildcard();
            }
        }
        if has_left {
            store.members.remove(&key, &name);
        }
    }

    /// A resource is a member of a collection at a server also if another server has sent it.
    /// The entry gets a subscription there if it has none. Unless this server has sent it as well, it is unconfirmed: in the
    /// incremental variant it is missing once the server was quiet for a while without sending it.
    fn join(&mut self, store: &mut Store, member: NewMember, server: ServerId, now: Instant) {
        let NewMember { entry: id, by } = member;
        // The name may be requested there for the watches of another group.
        let (Some(sub), Some(entry)) = (self.placement().place(store, id, server), store.get(id)) else {
            return;
        };
        let ty = entry.ty;
        let subscriptions = self.servers[server].machine.subscriptions_mut(ty);
        if let Some(sub) = subscriptions.and_then(|subscriptions| subscriptions.get_mut(sub)) {
            match by {
                By::Wildcard => drop(sub.join_wildcard()),
                By::Glob => drop(sub.join_glob()),
            }
        }
        let full_state = store.ty(ty).full_state();
        if let Some(channel) = self.servers[server].machine.channel_mut(ty) {
            channel.on_joined(full_state, sub, now);
        }
    }

    /// A member at the active server is one at those above it, too.
    /// So, when one of them is reverted to, resources that it does not have are noticed.
    pub(in crate::engine) fn join_higher(&mut self, store: &mut Store, id: EntryId, by: By, now: Instant) {
        let Some(entry) = store.existing(id) else { return };
        let group = match by {
            By::Wildcard => {
                self.memberships().wildcard_key(store, entry.ty).map_or(entry.group, |key| key.group)
            }
            By::Glob => entry.group,
        };
        let ty = entry.ty;
        // A group has a server open, so that this is 0 at least.
        for rank in 0..self.groups.get(group).open.len() - 1 {
            let server = self.groups.get(group).open[rank];
            let subscriptions = self.servers[server].machine.subscriptions_mut(ty);
            // A server that was notified of the end of a wildcard before the active one has no members.
            if by == By::Glob || subscriptions.is_some_and(|subscriptions| subscriptions.takes_all()) {
                self.join(store, NewMember { entry: id, by }, server, now);
            }
        }
    }

    /// In the incremental variant a server need not resend for a wildcard a resource that it has sent by name: it
    /// counts as a member until the server removes it (B2.20).
    pub(super) fn join_held(&mut self, store: &mut Store, ty: TypeId, server: ServerId, now: Instant) {
        let Some(subscriptions) = self.servers[server]
            .machine
            .subscriptions_mut(ty)
            .filter(|subscriptions| !subscriptions.requests_all())
        else {
            return;
        };
        let held = subscriptions.iter().filter(|(_, sub)| sub.has_version());
        let held: Vec<_> = held.map(|(_, sub)| sub.entry()).collect();
        for id in held {
            self.join(store, NewMember { entry: id, by: By::Wildcard }, server, now);
        }
    }

    /// The resources that the active server has sent under a wildcard without a watch are its members.
    pub(super) fn join_known(
        &mut self,
        store: &mut Store,
        TypeInGroup { group, ty }: TypeInGroup,
        now: Instant,
    ) {
        let active = self.groups.get(group).active();
        // A type that was never requested has no members.
        let Some(subscriptions) = self.servers[active].machine.subscriptions_mut(ty) else { return };
        let is_member = |(_, sub): &(_, &Subscription)| sub.is_wildcard_member();
        let members: Vec<_> = subscriptions.iter().filter(is_member).map(|(_, sub)| sub.entry()).collect();
        for id in members {
            for server in self.groups.get(group).open.clone() {
                self.join(store, NewMember { entry: id, by: By::Wildcard }, server, now);
            }
            store.note_change(id, false, true);
        }
    }

    /// The members of a wildcard at the server above the one that was just opened. They may not be published yet.
    fn members_above(&self, group: GroupId, ty: TypeId, opened: ServerId) -> Vec<EntryId> {
        let mut open = self.groups.get(group).open.iter().rev();
        let above = if open.next() == Some(&opened) { open.next() } else { None };
        let subscriptions = above.and_then(|above| self.servers[*above].machine.subscriptions(ty));
        let members = subscriptions
            .into_iter()
            .flat_map(|known| known.iter())
            .filter(|(_, sub)| sub.is_wildcard_member());
        members.map(|(_, sub)| sub.entry()).collect()
    }

    /// A glob is requested from one more server: its members from other servers get a subscription there, too, so that
    /// their absence is detected.
    pub(super) fn join_members(&mut self, store: &mut Store, id: EntryId, server: ServerId, now: Instant) {
        let Some(entry) = store.existing(id) else { return };
        let (group, ty, glob) = (entry.group, entry.ty, GlobPattern::of(&entry.name));
        let Some(glob) = glob else {
            invariant::broken("the entry of a glob has the name of one");
            return;
        };
        let active = self.groups.get(group).active();
        // The lowest server may have been opened just now, and then the one above it knows the members.
        let above = self.groups.get(group).open.iter().rev().nth(1).copied();
        if let Some(other) = if server == active { above } else { Some(active) } {
            for member in self.globs().members_at(other, ty, &glob, |sub| sub.is_glob_member()) {
                self.join(store, NewMember { entry: member, by: By::Glob }, server, now);
            }
        }
        // A server need not resend for a glob a resource that it has sent by name (B2.20): it counts as a member until
        // the server removes it.
        if server == active && self.servers[server].machine.is_delta() {
            for member in
                self.globs().members_at(active, ty, &glob, |sub| sub.has_version() && !sub.is_glob_member())
            {
                self.join(store, NewMember { entry: member, by: By::Glob }, server, now);
                self.join_higher(store, member, By::Glob, now);
                store.note_change(member, false, true);
            }
        }
    }

    /// The does-not-exist time of a glob has passed. If members are known already, the server had nothing to send. True
    /// when nothing else follows.
    pub(super) fn is_glob_known(&mut self, store: &mut Store, id: EntryId, now: Instant) -> bool {
        // Others have no members, or are known.
        let Some(entry) = store.get(id).filter(|entry| entry.is_glob && entry.is_waiting()) else {
            return false;
        };
        let key = CollectionKey::of_glob(entry);
        if store.members.get(&key).is_none_or(|collection| collection.members.is_empty()) {
            return false;
        }
        let update = Update { version: Version::default(), at: now };
        self.placement().update(store, id, |entry| entry.on_accepted(Arc::new(()), [][..].into(), update));
        true
    }

    /// The wildcard of a type at a server is unsubscribed, and the server was notified.
    pub(super) fn on_released_all(&mut self, store: &mut Store, server: ServerId, ty: TypeId) {
        for group in self.groups.with(server) {
            let scope = TypeInGroup { group, ty };
            let key = CollectionKey::of_all(scope);
            let is_pushed_alone = |all: &Collection| all.watches.is_empty() && !all.pushed.is_empty();
            if self.groups.get(group).active() == server
                && store.members.get(&key).is_some_and(is_pushed_alone)
            {
                store.members.restart_pushed(&key);
            }
            self.end_unwatched_wildcard(store, scope);
        }
    }

    /// Ends a wildcard without a watch, unless a server of the group was not notified of that yet: if it is watched
    /// again before, nothing has happened for that server, and its members are those of before.
    fn end_unwatched_wildcard(&mut self, store: &mut Store, scope: TypeInGroup) {
        let TypeInGroup { group, ty } = scope;
        let key = CollectionKey::of_all(scope);
        if store.members.get(&key).is_none_or(|all| all.is_watched()) {
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
    ///
    /// All its subscriptions leave, not only that at the active server: on a reversion they would otherwise bring it back.
    pub(in crate::engine) fn leave_collections(&mut self, store: &mut Store, id: EntryId) {
        // A held resource stays, with a warning.
        let Some(entry) = store.get(id).filter(|entry| !entry.is_held()) else { return };
        let (ty, name) = (entry.ty, entry.name.clone());
        // The wildcard belongs to the servers of names of the older form, and its members may be entries of other groups.
        let of_all = self
            .memberships()
            .wildcard_key(store, ty)
            .filter(|key| key.group == entry.group || self.memberships().wildcard_of(store, entry).is_some());
        let subscriptions: Vec<_> = entry.subscriptions.iter().collect();
        if let Some(key) = of_all {
            store.members.remove(&key, &name);
        }
        if let Some(key) = self.memberships().glob_key(store, id) {
            let name = store.additions().take_from(&name);
            store.members.remove(&key, &name);
        }
        for (server, sub) in subscriptions {
            let machine = &mut self.servers[server].machine;
            if let Some(sub) =
                machine.subscriptions_mut(ty).and_then(|subscriptions| subscriptions.get_mut(sub))
            {
                sub.leave_collections();
            }
            machine.release(ty, &[sub]);
        }
    }

    /// Ends the wildcards of a group that were kept for a server without subscriptions.
    pub(super) fn end_unwatched_wildcards(&mut self, store: &mut Store, id: GroupId) {
        for ty in store.type_ids() {
            self.end_unwatched_wildcard(store, TypeInGroup { group: id, ty });
        }
    }

    fn placement(&mut self) -> Placement<'_> {
        Placement::new(self.servers, self.groups)
    }

    fn memberships(&self) -> Memberships<'_> {
        Memberships::new(self.servers, self.groups)
    }

    fn globs(&mut self) -> Globs<'_> {
        Globs::new(self.servers)
    }
}
