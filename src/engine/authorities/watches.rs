//! The subscriptions of a watch of a name or a wildcard at servers, and their end.

use std::time::Instant;

use super::{
    super::{
        selection::{Refusal, TypedName},
        store::{Collection, CollectionKey, Store},
    },
    Authorities, Globs,
};
use crate::{
    base::WatchId,
    cache::Entry,
    invariant,
    protocol::{EntryId, GroupId, TypeAtServer, TypeId, TypeInGroup},
    resource::config_source::ResourceConfigSource,
};

/// A name to request.
#[derive(Debug)]
pub(in crate::engine) struct RequestedName<'a> {
    pub(in crate::engine) typed: TypedName<'a>,
    /// The source that a resource names for it; `None` for that of the bootstrap.
    pub(in crate::engine) source: Option<&'a ResourceConfigSource>,
}

impl Authorities {
    /// Subscribes to a name: a resource, or a glob.
    pub(in crate::engine) fn subscribe_name(
        &mut self,
        store: &mut Store,
        watch_id: WatchId,
        requested: &RequestedName<'_>,
        now: Instant,
    ) -> Result<EntryId, Refusal> {
        let &RequestedName { typed: typed @ TypedName { ty, name }, source } = requested;
        let group = match source {
            Some(source) if source.is_for(name.authority()) => {
                self.sources().source_group(store, typed, source, now)?
            }
            Some(_) | None => self.sources().group_for(store, typed, now)?,
        };
        self.sources().check_variant(store, group, ty)?;
        let entry = self.placement().watched_entry(store, TypeInGroup { group, ty }, name);
        if name.is_glob() {
            Globs::begin(store, entry);
        }
        // The name may be watched under another group with the same server.
        let group = store.get(entry).map_or(group, |entry| entry.group);
        self.groups.get_mut(group).watches += 1;
        self.subscribe_everywhere(store, entry, now);
        if let Some(entry) = store.get_mut(entry) {
            entry.watches.push(watch_id);
            if !entry.is_glob {
                entry.unnotified.push(watch_id);
            }
        }
        if store.get(entry).is_some_and(Entry::is_waiting) {
            self.fall_back(store, group, now);
        }
        self.refresh_server_error(store, group);
        store.note_unnotified(entry);
        Ok(entry)
    }

    pub(in crate::engine) fn unsubscribe_name(
        &mut self,
        store: &mut Store,
        watch_id: WatchId,
        id: EntryId,
        now: Instant,
    ) {
        // An entry that is watched exists.
        let Some(entry) = store.get_mut(id) else {
            invariant::broken("an entry that is watched exists");
            return;
        };
        entry.watches.retain(|other| *other != watch_id);
        entry.unnotified.retain(|other| *other != watch_id);
        let (group, ty, last) = (entry.group, entry.ty, entry.watches.is_empty());
        let subscriptions: Vec<_> = entry.subscriptions.iter().filter(|_| last).collect();
        for (server, sub) in subscriptions {
            self.servers[server].machine.unsubscribe(ty, sub, now);
            self.settle(store, server, now);
        }
        self.groups.get_mut(group).watches -= 1;
        self.unused.note_group(group);
    }

    pub(in crate::engine) fn subscribe_all(
        &mut self,
        store: &mut Store,
        watch_id: WatchId,
        ty: TypeId,
        now: Instant,
    ) -> Result<GroupId, Refusal> {
        let group = self.sources().default_group(store, ty, now)?;
        self.sources().check_variant(store, group, ty)?;
        let scope = TypeInGroup { group, ty };
        let key = CollectionKey::of_all(scope);
        if store.members.get(&key).is_none() {
            for server in self.groups.get(group).open.clone() {
                self.placement().join_held(store, ty, server, now);
            }
            store.members.begin(key.clone(), Collection::default);
            self.placement().join_known(store, scope, now);
        }
        self.groups.get_mut(group).watches += 1;
        store.members.begin(key.clone(), Collection::default).watches.push(watch_id);
        for server in self.groups.get(group).open.clone() {
            self.placement().subscribe_wildcard_at(store, scope, server, now);
            self.settle(store, server, now);
        }
        self.fall_back(store, group, now);
        self.refresh_server_error(store, group);
        let failed = store.server_error(group).is_some();
        let known = |all: &Collection| !all.members.is_empty() || all.complete || all.warning.is_some();
        if failed || store.members.get(&key).is_some_and(known) {
            store.members.touch(&key);
        }
        let server = self.groups.active(group);
        self.unanswered().on_unanswered(store, TypeAtServer { server, ty }, now);
        Ok(group)
    }

    pub(in crate::engine) fn unsubscribe_all(
        &mut self,
        store: &mut Store,
        watch_id: WatchId,
        scope: TypeInGroup,
        now: Instant,
    ) {
        let TypeInGroup { group, ty } = scope;
        let key = CollectionKey::of_all(scope);
        let Some(all) = store.members.get_mut(&key) else {
            invariant::broken("a wildcard that is watched is a collection");
            return;
        };
        all.watches.retain(|other| *other != watch_id);
        let last = all.watches.is_empty();
        for server in self.groups.get(group).open.clone().into_iter().filter(|_| last) {
            self.servers[server].machine.unsubscribe_all(ty, now);
            self.settle(store, server, now);
        }
        self.groups.get_mut(group).watches -= 1;
    }

    /// Requests an entry from all open servers of its group.
    fn subscribe_everywhere(&mut self, store: &mut Store, id: EntryId, now: Instant) {
        let Some(entry) = store.existing(id) else { return };
        for server in self.groups.get(entry.group).open.clone() {
            self.placement().subscribe_at(store, id, server, now);
            self.settle(store, server, now);
        }
    }
}
