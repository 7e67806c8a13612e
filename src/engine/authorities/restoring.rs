//! Resources that are in the store of a consumer, and not in the cache: they are held by their names and versions.
//!
//! ```text
//!   versions of the store ──▶ restore ──▶ initial versions of the first request ──▶ the differences
//!   lacking, and not kept ──▶ fetch_again ──▶ requested again, without a version ──▶ the resource
//! ```

use std::{sync::Arc, time::Instant};

use super::{super::store::Store, Authorities, TypedName};
use crate::{
    cache::{Raw, Update},
    name::ResourceName,
    protocol::{EntryId, TypeId, TypeInGroup},
    resource::{Erased, Version},
};

/// A resource in the store of a consumer that begins.
#[derive(Debug)]
pub(in crate::engine) struct StoredResource<'a> {
    pub(in crate::engine) ty: TypeId,
    pub(in crate::engine) name: &'a Arc<str>,
    pub(in crate::engine) version: Version,
    /// The server has sent it without a request for it.
    pub(in crate::engine) is_pushed: bool,
}

/// A resource that a consumer lacks, and whose content is not kept.
#[derive(Debug)]
pub(in crate::engine) enum TakenResource {
    /// The resource is subscribed by its name.
    Watched(EntryId),
    /// The server has sent it for the wildcard, or without a request.
    Member(TypeInGroup, Arc<str>),
}

impl Authorities {
    /// Holds a resource by its version, which the first request of the type has. Returns what stands for the resource.
    ///
    /// `None` where the server gets no versions, or none any more on the stream: it is going to send everything. The same holds for a
    /// name that is known already, or is none.
    pub(in crate::engine) fn restore(
        &mut self,
        store: &mut Store,
        stored: StoredResource<'_>,
        now: Instant,
    ) -> Option<Erased> {
        let StoredResource { ty, name, version, is_pushed } = stored;
        let resource = store.ty(ty).taken_resource()?;
        let name = ResourceName::parse_shared(name).ok().filter(|name| !name.is_collection())?;
        let name = store.additions().add_to(&name);
        let group = self.sources().group_for(store, TypedName { ty, name: &name }).ok()?;
        let server = self.groups.get(group).active();
        // All resources of the type may be a collection of another name.
        if self.sources().has_collection(store.type_url(ty)) {
            return None;
        }
        let machine = &self.servers[server].machine;
        if !machine.is_delta() || machine.is_requested(ty) || (version.is_empty() && !is_pushed) {
            return None;
        }
        let scope = TypeInGroup { group, ty };
        if self.placement().find_entry(scope, name.as_str()).is_some() {
            return None;
        }
        let id = self.placement().entry_for(store, scope, &name);
        let sub = self.placement().place(store, id, server)?;
        let update = Update { version: version.clone(), at: now };
        self.placement()
            .update(store, id, |entry| entry.on_accepted(resource.clone(), Raw::unknown(), update));
        self.placement().note_version(store, id, server, Some(&version));
        if is_pushed && let Some(sub) = self.subscriptions(server, ty).and_then(|all| all.get_mut(sub)) {
            sub.join_wildcard();
        }
        Some(resource)
    }

    /// Has resources sent again whose contents are not kept.
    pub(in crate::engine) fn fetch_again(
        &mut self,
        store: &mut Store,
        resources: Vec<TakenResource>,
        now: Instant,
    ) {
        for resource in resources {
            let entry = match resource {
                TakenResource::Watched(entry) => Some(entry),
                TakenResource::Member(scope, name) => self.placement().find_entry(scope, &name),
            };
            if let Some(entry) = entry {
                self.fetch_one_again(store, entry, now);
            }
        }
    }

    fn fetch_one_again(&mut self, store: &mut Store, id: EntryId, now: Instant) {
        let Some(entry) = store.get_mut(id).filter(|entry| !entry.is_glob) else { return };
        entry.forget_bytes();
        let (ty, server) = (entry.ty, self.groups.active(entry.group));
        let Some(sub) = entry.subscriptions.at(server) else { return };
        let machine = &mut self.servers[server].machine;
        if let Some(channel) = machine.channel_mut(ty) {
            channel.forget_version(sub);
        }
        // Otherwise the first request of the type on the next stream does not have the version.
        if machine.is_requested(ty) {
            machine.request_again(ty, sub, now);
        }
        self.drain_events(store, server, now);
    }
}
