//! The wildcards and globs that resources are members of.
//!
//! It is a copy of two references, so that its methods take it by value and a caller keeps its own borrows short. Nothing
//! here changes anything; [`CollectionMembers`](super::CollectionMembers) does.

use std::sync::Arc;

use super::{
    super::store::{CollectionKey, Store},
    Groups, Servers,
};
use crate::{
    cache::Entry,
    name::glob_of,
    protocol::{EntryId, GroupId, ServerId, TypeId, TypeInGroup},
};

/// The reason for the membership of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum By {
    /// The server has sent it for a wildcard.
    Wildcard,
    /// Its name matches a subscribed glob.
    Glob,
}

/// A view of the servers that answers which collections a resource is a member of.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Memberships<'a> {
    servers: &'a Servers,
    groups: &'a Groups,
}

impl<'a> Memberships<'a> {
    pub(super) fn new(servers: &'a Servers, groups: &'a Groups) -> Self {
        Self { servers, groups }
    }

    /// The group that has the wildcard of a type at a server.
    /// Names of the older form have one wildcard for each type; its group is the one that has the server open.
    pub(in crate::engine) fn wildcard_group(
        self,
        store: &Store,
        server: ServerId,
        ty: TypeId,
    ) -> Option<GroupId> {
        let mut groups = self.groups.with(server).into_iter();
        groups.find(|group| {
            store.members.get(&CollectionKey::of_all(TypeInGroup { group: *group, ty })).is_some()
        })
    }

    /// The wildcard of a type, if it is watched, or was and its server has not been notified of its end yet.
    pub(in crate::engine) fn wildcard_key(self, store: &Store, ty: TypeId) -> Option<CollectionKey> {
        let group = self.groups.find(None, ty)?;
        let key = CollectionKey::of_all(TypeInGroup { group, ty });
        store.members.get(&key).is_some().then_some(key)
    }

    /// The wildcard that a resource is a member of at the active server of the wildcard, whatever the active server of
    /// the resource itself.
    pub(in crate::engine) fn wildcard_of(self, store: &Store, entry: &Entry) -> Option<CollectionKey> {
        let key = self.wildcard_key(store, entry.ty)?;
        let active = self.groups.get(key.group).active();
        let sub = self.servers[active].machine.sub(entry.ty, entry.subscriptions.at(active)?)?;
        sub.is_wildcard_member().then_some(key)
    }

    /// The wildcard of a type whose active server is this one.
    pub(in crate::engine) fn wildcard_at(
        self,
        store: &Store,
        server: ServerId,
        ty: TypeId,
    ) -> Option<CollectionKey> {
        let mut groups = self.groups.with(server).into_iter();
        groups.find_map(|group| {
            let key = CollectionKey::of_all(TypeInGroup { group, ty });
            let is_active = self.groups.get(group).active() == server;
            (is_active && store.members.get(&key).is_some()).then_some(key)
        })
    }

    /// The collection of the glob that encloses a resource's name, if there is one.
    pub(in crate::engine) fn glob_key(self, store: &Store, id: EntryId) -> Option<CollectionKey> {
        let entry = store.get(id).filter(|_| store.members.has_globs())?;
        let (active, glob) = (self.groups.active(entry.group), glob_of(&entry.name)?);
        let subscriptions = self.servers[active].machine.subscriptions(entry.ty)?;
        let glob = subscriptions.get(subscriptions.find(&glob)?)?.entry();
        let glob = store.get(glob).filter(|entry| entry.is_glob)?;
        Some(CollectionKey::of_glob(glob))
    }

    /// The collections that an entry is a member of at the active server, and its names there: a glob, and the wildcard.
    /// A name has at most one enclosing glob, so that there are two collections at most.
    pub(in crate::engine) fn collections_of(
        self,
        store: &Store,
        id: EntryId,
    ) -> [Option<(CollectionKey, Arc<str>)>; 2] {
        let Some(entry) = store.existing(id) else { return [None, None] };
        let active = self.groups.active(entry.group);
        let sub =
            entry.subscriptions.at(active).and_then(|sub| self.servers[active].machine.sub(entry.ty, sub));
        let glob = sub.filter(|sub| sub.is_glob_member()).and_then(|_| self.glob_key(store, id));
        [
            glob.map(|key| (key, store.additions().take_from(&entry.name))),
            self.wildcard_of(store, entry).map(|key| (key, entry.name.clone())),
        ]
    }
}
