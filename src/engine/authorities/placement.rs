//! The subscriptions of entries at servers: where each is requested, or sent from.

use std::{sync::Arc, time::Instant};

use super::{
    super::store::{CollectionKey, Store, Which},
    Authorities,
};
use crate::{
    cache::{Changed, Entry},
    invariant,
    protocol::{EntryId, GroupId, ServerId, SubId, TypeId},
};

impl Authorities {
    /// The entry of a name in a group, which is added if there is none.
    pub(in crate::engine) fn entry_for(
        &mut self,
        store: &mut Store,
        (group, ty): (GroupId, TypeId),
        name: Arc<str>,
    ) -> EntryId {
        self.find_entry((group, ty), &name).unwrap_or_else(|| store.insert(Entry::new(name, (group, ty))))
    }

    /// The entry of a watched name. A resource that was sent only under the wildcard of another group falls back with
    /// that group, so that a watch has an entry of its own group.
    pub(super) fn watched_entry(
        &mut self,
        store: &mut Store,
        (group, ty): (GroupId, TypeId),
        name: Arc<str>,
    ) -> EntryId {
        let found = self.find_entry((group, ty), &name);
        let is_usable = |id: &EntryId| {
            store.get(*id).is_some_and(|entry| entry.group == group || !entry.watches.is_empty())
        };
        found.filter(is_usable).unwrap_or_else(|| store.insert(Entry::new(name, (group, ty))))
    }

    /// The entry of a name, if a server of the group has a subscription for it.
    pub(super) fn find_entry(&mut self, (group, ty): (GroupId, TypeId), name: &str) -> Option<EntryId> {
        let Self { groups, servers, .. } = self;
        let mut open = groups.get(group).open.iter();
        open.find_map(|server| {
            let subscriptions = servers[*server].machine.subscriptions_mut(ty)?;
            subscriptions.get(subscriptions.find(name)?).map(|sub| sub.entry())
        })
    }

    /// Whether the resources that a server sends for an entry count.
    pub(in crate::engine) fn counts(&self, store: &Store, id: EntryId, server: ServerId) -> bool {
        store.get(id).is_some_and(|entry| self.active_for(entry) == server)
    }

    /// Requests an entry from all open servers of its group.
    pub(super) fn subscribe_everywhere(&mut self, store: &mut Store, id: EntryId, now: Instant) {
        let Some(entry) = store.get(id) else {
            invariant::broken("a resource that is acted on has an entry");
            return;
        };
        for server in self.groups.get(entry.group).open.clone() {
            self.subscribe_at(store, id, server, now);
            self.settle(store, server, now);
        }
    }

    /// Requests an entry from one server.
    pub(super) fn subscribe_at(&mut self, store: &mut Store, id: EntryId, server: ServerId, now: Instant) {
        // The name may be requested there for the watches of another group.
        let Some(sub) = self.place(store, id, server) else { return };
        let Some(entry) = store.get(id) else {
            invariant::broken("a resource that is acted on has an entry");
            return;
        };
        let named = (entry.ty, store.type_url(entry.ty));
        let is_glob = entry.is_glob;
        self.servers[server].machine.subscribe(named, sub, now);
        if is_glob {
            self.join_members(store, id, server, now);
        }
    }

    /// The subscription of an entry at a server, which is added if there is none.
    pub(in crate::engine) fn place(
        &mut self,
        store: &mut Store,
        id: EntryId,
        server: ServerId,
    ) -> Option<SubId> {
        let named = store.get(id).map(|entry| (entry.ty, store.type_url(entry.ty)))?;
        let entry = store.get_mut(id)?;
        let machine = &mut self.servers[server].machine;
        if let Some(sub) = entry.places.at(server) {
            let subscriptions = machine.subscriptions_mut(entry.ty);
            if subscriptions
                .and_then(|subscriptions| subscriptions.get(sub))
                .is_some_and(|sub| sub.entry() == id)
            {
                return Some(sub);
            }
            // The machine has forgotten the name, and its event is not handled yet.
            entry.places.remove(server);
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
        }
        entry.places.add(server, sub);
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
        other.places.remove(server);
        let is_last = other.places.is_empty();
        if let Some(entry) = store.get_mut(id) {
            entry.places.add(server, taken);
        }
        let is_waiting = store.get(id).is_some_and(Entry::is_waiting);
        let is_taken_over = is_waiting && self.counts(store, id, server);
        if is_taken_over && let Some(group) = store.get(id).map(|entry| entry.group) {
            // The server may be the one that was just fallen back to: the errors of those above it are not shown any more.
            self.refresh_server_error(store, group);
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
        let Some(entry) = store.get(id) else {
            invariant::broken("a resource that is acted on has an entry");
            return;
        };
        let held = entry.is_held();
        for (server, sub) in entry.places.iter() {
            let subscriptions = self.servers[server].machine.subscriptions_mut(entry.ty);
            if let Some(sub) = subscriptions.and_then(|subscriptions| subscriptions.get_mut(sub)) {
                sub.set_held(held);
            }
        }
    }

    /// The group that has the wildcard of a type at a server.
    pub(in crate::engine) fn wildcard_group(
        &self,
        store: &Store,
        server: ServerId,
        ty: TypeId,
    ) -> Option<GroupId> {
        let mut groups = self.groups.with(server).into_iter();
        groups.find(|group| store.members.get(&(*group, ty, Which::All)).is_some())
    }

    /// The wildcard of a type, if it is watched, or was and its server has not been notified of its end yet.
    pub(in crate::engine) fn wildcard_key(&self, store: &Store, ty: TypeId) -> Option<CollectionKey> {
        let key = (self.groups.find(None, ty)?, ty, Which::All);
        store.members.get(&key).is_some().then_some(key)
    }

    /// The wildcard that a resource is a member of at the active server of the wildcard, whatever the active server of
    /// the resource itself.
    pub(in crate::engine) fn wildcard_of(&self, store: &Store, entry: &Entry) -> Option<CollectionKey> {
        let key = self.wildcard_key(store, entry.ty)?;
        let active = self.groups.get(key.0).active();
        let sub = self.servers[active].machine.sub(entry.ty, entry.places.at(active)?)?;
        sub.is_wildcard_member().then_some(key)
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
            true => self.on_glob_changed(store, id),
            false => store.note_change(id, true, false),
        }
    }
}
