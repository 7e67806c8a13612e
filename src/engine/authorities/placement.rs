//! The subscriptions of entries at servers: where each is requested, or sent from, and the collections that it belongs to
//! there.
//!
//! One name may have subscriptions of several groups at one server, as when a server is listed for two authorities, or when
//! a wildcard has brought a name that another group watches. A machine has one subscription for it, which belongs to one
//! entry: that of the group with a watch ([`share_place`](Placement::share_place)).

use super::{super::store::Store, Globs, Groups, Memberships, Servers};
use crate::{
    cache::{Changed, Entry},
    name::ResourceName,
    protocol::{EntryId, ServerId, SubId, TypeInGroup},
    resource::Version,
};

/// The subscriptions of entries at servers, in the machines of the servers and in the entries.
#[derive(Debug)]
pub(in crate::engine) struct Placement<'a> {
    servers: &'a mut Servers,
    groups: &'a Groups,
}

impl<'a> Placement<'a> {
    /// A view for the time of one call.
    pub(super) fn new(servers: &'a mut Servers, groups: &'a Groups) -> Self {
        Self { servers, groups }
    }

    /// The entry of the name of a sent resource in a group, which is added if there is none.
    ///
    /// It has no watch by its name then, and is kept by its membership alone.
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
            // X2: a name that only a server has written so far is requested as its first watch has written it.
            entry.spelling = name.other_spelling();
        }
        id
    }

    /// The entry of a name, if a server of the group has a subscription for it.
    /// The machines are searched in the order of the servers, so that entries need no index by name of their own.
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

    /// The subscription of an entry at a server, which is added if there is none.
    /// `None` if the server has the name for another group, where it is watched: the watches of this group then see nothing of
    /// the server.
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
    ///
    /// The state of the entry without a watch moves to the one that is watched, so that a resource which the server has sent is
    /// not requested again.
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
        // An entry with a state of its own keeps it.
        let is_waiting = store.get(id).is_some_and(Entry::is_waiting);
        let is_taken_over = is_waiting && self.counts(store, id, server);
        if is_taken_over && let Some(group) = store.get(id).map(|entry| entry.group) {
            // The server may be the one that was just fallen back to: the errors of those above it are not shown any more.
            store.set_server_error(group, self.servers.error_of(self.groups.get(group)));
        }
        // Only from a server whose answers count: the state of another one would be shown as if it were the active one's.
        let changed = is_taken_over && store.hand_over(before, id);
        if is_last {
            store.remove(before);
        }
        self.sync_held(store, id);
        store.note_change(id, changed, true);
        Some(taken)
    }

    /// Copies to the machines of all servers whether the cache holds a good resource.
    /// It is called after each change of an entry's state. Machines need the bit, and not the state: does-not-exist timers run for
    /// what is not held, and initial versions are sent for what is.
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
    ///
    /// A glob is published as a collection, whose members its state decides on.
    pub(super) fn note_changed(&mut self, store: &mut Store, id: EntryId) {
        match store.get(id).is_some_and(|entry| entry.is_glob) {
            true => self.globs().on_changed(store, id),
            false => store.note_change(id, true, false),
        }
    }

    /// A server was notified that an entry is unsubscribed. With its last subscription it is forgotten.
    /// Other subscriptions keep the entry. With the entry, its memberships end.
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
            // Another server of the group may have the name for another entry, which is the member then.
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

    fn memberships(&self) -> Memberships<'_> {
        Memberships::new(self.servers, self.groups)
    }

    fn globs(&mut self) -> Globs<'_> {
        Globs::new(self.servers)
    }
}

/// Adds an entry without a state.
fn insert(store: &mut Store, TypeInGroup { group, ty }: TypeInGroup, name: &ResourceName) -> EntryId {
    store.insert(Entry::new(name.canonical(), (group, ty)).with_spelling(name.other_spelling()))
}
