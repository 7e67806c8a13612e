//! The subscriptions of entries at servers: where each is requested, or sent from, and the collections that it belongs to
//! there.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use super::{
    super::store::{CollectionKey, Store},
    By, Globs, Groups, Memberships, Servers,
    globs::GlobPattern,
};
use crate::{
    cache::{Changed, Entry, Update},
    invariant,
    name::ResourceName,
    protocol::{EntryId, GroupId, ServerId, SubId, Subscription, TypeId, TypeInGroup},
    resource::Version,
};

/// An entry that becomes a member of a collection.
#[derive(Debug, Clone, Copy)]
struct NewMember {
    entry: EntryId,
    /// The kind of the collection: an entry may be a member of one of each kind.
    by: By,
}

/// The subscriptions of entries at servers, in the machines of the servers and in the entries.
#[derive(Debug)]
pub(in crate::engine) struct Placement<'a> {
    servers: &'a mut Servers,
    groups: &'a Groups,
}

impl<'a> Placement<'a> {
    pub(super) fn new(servers: &'a mut Servers, groups: &'a Groups) -> Self {
        Self { servers, groups }
    }

    /// The entry of the name of a sent resource in a group, which is added if there is none.
    pub(in crate::engine) fn entry_for(
        &mut self,
        store: &mut Store,
        scope: TypeInGroup,
        name: &ResourceName,
    ) -> EntryId {
        self.find_entry(scope, name.as_str()).unwrap_or_else(|| insert(store, scope, name))
    }

    /// The entry of a watched name. A resource that was sent only under the wildcard of another group falls back with
    /// that group, so that a watch has an entry of its own group.
    pub(super) fn watched_entry(
        &mut self,
        store: &mut Store,
        scope: TypeInGroup,
        name: &ResourceName,
    ) -> EntryId {
        let found = self.find_entry(scope, name.as_str());
        let is_usable = |id: &EntryId| {
            store.get(*id).is_some_and(|entry| entry.group == scope.group || !entry.watches.is_empty())
        };
        let Some(id) = found.filter(is_usable) else { return insert(store, scope, name) };
        if let Some(entry) = store.get_mut(id).filter(|entry| entry.watches.is_empty()) {
            entry.spelling = name.other_spelling();
        }
        id
    }

    /// The entry of a name, if a server of the group has a subscription for it.
    pub(super) fn find_entry(
        &mut self,
        TypeInGroup { group, ty }: TypeInGroup,
        name: &str,
    ) -> Option<EntryId> {
        let Self { groups, servers, .. } = self;
        let mut open = groups.get(group).open.iter();
        open.find_map(|server| {
            let subscriptions = servers[*server].machine.subscriptions_mut(ty)?;
            subscriptions.get(subscriptions.find(name)?).map(|sub| sub.entry())
        })
    }

    /// Whether the resources that a server sends for an entry count.
    pub(in crate::engine) fn counts(&self, store: &Store, id: EntryId, server: ServerId) -> bool {
        store.get(id).is_some_and(|entry| self.groups.active(entry.group) == server)
    }

    /// Requests an entry from one server.
    pub(super) fn subscribe_at(&mut self, store: &mut Store, id: EntryId, server: ServerId, now: Instant) {
        // The name may be requested there for the watches of another group.
        let Some(sub) = self.place(store, id, server) else { return };
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
        let mut members: BTreeSet<_> = names.iter().filter_map(|name| self.find_entry(scope, name)).collect();
        members.extend(self.members_above(group, ty, server));
        for id in members {
            self.join(store, NewMember { entry: id, by: By::Wildcard }, server, now);
        }
        self.servers[server].machine.subscribe_all(store.named_type(ty), now);
    }

    /// The subscription of an entry at a server, which is added if there is none.
    pub(in crate::engine) fn place(
        &mut self,
        store: &mut Store,
        id: EntryId,
        server: ServerId,
    ) -> Option<SubId> {
        let named = store.get(id).map(|entry| store.named_type(entry.ty))?;
        let entry = store.get_mut(id)?;
        let machine = &mut self.servers[server].machine;
        if let Some(sub) = entry.subscriptions.at(server) {
            let subscriptions = machine.subscriptions_mut(entry.ty);
            if subscriptions
                .and_then(|subscriptions| subscriptions.get(sub))
                .is_some_and(|sub| sub.entry() == id)
            {
                return Some(sub);
            }
            // The machine has forgotten the name, and its event is not handled yet.
            entry.subscriptions.remove(server);
        }
        if let Some(taken) =
            machine.subscriptions_mut(entry.ty).and_then(|subscriptions| subscriptions.find(&entry.name))
        {
            return self.share_place(store, id, server, taken);
        }
        let sub = machine.insert(named, entry.name.clone(), id);
        if let Some(sub) =
            machine.subscriptions_mut(entry.ty).and_then(|subscriptions| subscriptions.get_mut(sub))
        {
            sub.set_held(entry.is_held());
            // What is held already came from another server.
            sub.on_held(None, entry.is_held());
            sub.spell(entry.spelling.clone());
        }
        entry.subscriptions.add(server, sub);
        Some(sub)
    }

    /// Shares a name that a server has sent under the wildcard of another group. Without a watch by name there, the
    /// entry of its own has no other use.
    fn share_place(
        &mut self,
        store: &mut Store,
        id: EntryId,
        server: ServerId,
        taken: SubId,
    ) -> Option<SubId> {
        let ty = store.get(id)?.ty;
        let sub = self.servers[server].machine.subscriptions_mut(ty)?.get_mut(taken)?;
        let other = store.get_mut(sub.entry()).filter(|other| other.watches.is_empty())?;
        let before = sub.replace_entry(id);
        other.subscriptions.remove(server);
        let is_last = other.subscriptions.is_empty();
        if let Some(entry) = store.get_mut(id) {
            entry.subscriptions.add(server, taken);
        }
        let is_waiting = store.get(id).is_some_and(Entry::is_waiting);
        let is_taken_over = is_waiting && self.counts(store, id, server);
        if is_taken_over && let Some(group) = store.get(id).map(|entry| entry.group) {
            // The server may be the one that was just fallen back to: the errors of those above it are not shown any more.
            store.set_server_error(group, self.servers.error_of(self.groups.get(group)));
        }
        let changed = is_taken_over && store.hand_over(before, id);
        if is_last {
            store.remove(before);
        }
        self.sync_held(store, id);
        store.note_change(id, changed, true);
        Some(taken)
    }

    /// Copies to the machines of all servers whether the cache holds a good resource.
    pub(in crate::engine) fn sync_held(&mut self, store: &Store, id: EntryId) {
        let Some(entry) = store.existing(id) else { return };
        let held = entry.is_held();
        for (server, sub) in entry.subscriptions.iter() {
            let subscriptions = self.servers[server].machine.subscriptions_mut(entry.ty);
            if let Some(sub) = subscriptions.and_then(|subscriptions| subscriptions.get_mut(sub)) {
                sub.set_held(held);
            }
        }
    }

    /// Records the sender's version of a resource that is held now; `None` in the state-of-the-world variant, whose requests
    /// have no versions of single resources. The versions of other servers do not matter any more.
    pub(in crate::engine) fn note_version(
        &mut self,
        store: &Store,
        id: EntryId,
        sender: ServerId,
        version: Option<&Version>,
    ) {
        let Some(entry) = store.get(id) else { return };
        for (server, sub) in entry.subscriptions.iter() {
            let subscriptions = self.servers[server].machine.subscriptions_mut(entry.ty);
            if let Some(sub) = subscriptions.and_then(|subscriptions| subscriptions.get_mut(sub)) {
                sub.on_held(version.filter(|_| server == sender), server != sender);
            }
        }
    }

    /// Changes the state of an entry, and records the necessary publications.
    pub(in crate::engine) fn update(
        &mut self,
        store: &mut Store,
        id: EntryId,
        change: impl FnOnce(&mut Entry) -> Changed,
    ) {
        if self.apply(store, id, change) {
            self.note_changed(store, id);
        }
    }

    /// Changes the state of an entry; true when it changes for its watches.
    pub(super) fn apply(
        &mut self,
        store: &mut Store,
        id: EntryId,
        change: impl FnOnce(&mut Entry) -> Changed,
    ) -> bool {
        let changed = store.apply(id, change);
        self.sync_held(store, id);
        changed
    }

    /// Records that an entry is to be published.
    pub(super) fn note_changed(&mut self, store: &mut Store, id: EntryId) {
        match store.get(id).is_some_and(|entry| entry.is_glob) {
            true => self.globs().on_changed(store, id),
            false => store.note_change(id, true, false),
        }
    }

    /// A server was notified that an entry is unsubscribed. With its last subscription it is forgotten.
    pub(super) fn on_released(&mut self, store: &mut Store, server: ServerId, id: EntryId) {
        // It may have been handed over to another entry, and removed.
        let Some(entry) = store.get_mut(id) else { return };
        let subscriptions = self.servers[server].machine.subscriptions_mut(entry.ty);
        let again = subscriptions
            .zip(entry.subscriptions.at(server))
            .and_then(|(subscriptions, sub)| subscriptions.get(sub));
        if again.is_some_and(|sub| sub.entry() == id) {
            // The name was requested again before the event was handled.
            return;
        }
        entry.subscriptions.remove(server);
        let is_last = entry.subscriptions.is_empty();
        if entry.is_glob {
            self.globs().release_members(store, id, server);
        }
        if is_last
            && let Some(entry) = store.remove(id)
            && self.find_entry(TypeInGroup { group: entry.group, ty: entry.ty }, &entry.name).is_none()
        {
            store.members.forget(&entry);
            if let Some(key) = self
                .memberships()
                .wildcard_key(store, entry.ty)
                .filter(|key| self.find_entry(key.scope(), &entry.name).is_none())
            {
                store.members.remove(&key, &entry.name);
            }
        }
    }

    /// A resource is a member of a collection at a server also if another server has sent it.
    fn join(&mut self, store: &mut Store, member: NewMember, server: ServerId, now: Instant) {
        let NewMember { entry: id, by } = member;
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
        if let Some(channel) = self.servers[server].machine.channel_mut(ty) {
            channel.on_joined(full_state, sub, now);
        }
    }

    /// A member at the active server is one at those above it, too.
    pub(in crate::engine) fn join_higher(&mut self, store: &mut Store, id: EntryId, by: By, now: Instant) {
        let Some(entry) = store.existing(id) else { return };
        let group = match by {
            By::Wildcard => {
                self.memberships().wildcard_key(store, entry.ty).map_or(entry.group, |key| key.group)
            }
            By::Glob => entry.group,
        };
        let ty = entry.ty;
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
            .filter(|subscriptions| !subscriptions.takes_all())
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
    fn join_members(&mut self, store: &mut Store, id: EntryId, server: ServerId, now: Instant) {
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
        self.update(store, id, |entry| entry.on_accepted(Arc::new(()), [][..].into(), update));
        true
    }

    /// The wildcard of a type at a server is unsubscribed, and the server was notified.
    pub(super) fn on_released_all(&mut self, store: &mut Store, server: ServerId, ty: TypeId) {
        for group in self.groups.with(server) {
            self.end_unwatched_wildcard(store, TypeInGroup { group, ty });
        }
    }

    /// Ends a wildcard without a watch, unless a server of the group was not notified of that yet: if it is watched
    /// again before, nothing has happened for that server, and its members are those of before.
    fn end_unwatched_wildcard(&mut self, store: &mut Store, scope: TypeInGroup) {
        let TypeInGroup { group, ty } = scope;
        let key = CollectionKey::of_all(scope);
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

    fn memberships(&self) -> Memberships<'_> {
        Memberships::new(self.servers, self.groups)
    }

    fn globs(&mut self) -> Globs<'_> {
        Globs::new(self.servers)
    }
}

fn insert(store: &mut Store, TypeInGroup { group, ty }: TypeInGroup, name: &ResourceName) -> EntryId {
    store.insert(Entry::new(name.canonical(), (group, ty)).with_spelling(name.other_spelling()))
}
