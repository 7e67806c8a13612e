//! The versions of resources at a server, in the incremental variant.

use std::{collections::BTreeSet, time::Instant};

use super::{super::store::Store, Authorities};
use crate::{
    protocol::{EntryId, GroupId, ServerId},
    resource::Version,
};

impl Authorities {
    /// Records the server's version of a resource that is held now. The versions of other servers do not matter any
    /// more.
    pub(in crate::engine) fn note_version(
        &mut self,
        store: &Store,
        (sender, is_delta): (ServerId, bool),
        id: EntryId,
        version: &Version,
    ) {
        // Most resources have one subscription, and in the state of the world that needs no version.
        let Some(entry) = store.get(id).filter(|entry| is_delta || entry.places.are_several()) else {
            return;
        };
        for (server, place) in entry.places.iter() {
            let subscriptions = self.servers[server].machine.subscriptions_mut(entry.ty);
            if let Some(sub) = subscriptions.and_then(|subscriptions| subscriptions.get_mut(place)) {
                sub.on_held((server == sender && is_delta).then_some(version));
            }
        }
    }

    /// Another server is fallen back to, so that those above it have to send everything on their return: that is how
    /// recovery is detected. One that was sent versions, but has not answered yet, may have nothing to send, and gets
    /// the request again on another stream.
    pub(super) fn forget_versions(&mut self, store: &mut Store, group: GroupId, now: Instant) {
        let types: Vec<_> = self.watched_wildcards(store, group);
        let mut types: BTreeSet<_> = types.into_iter().collect();
        let mut told = BTreeSet::new();
        for (_, entry) in store.iter().filter(|(_, entry)| entry.group == group) {
            types.insert(entry.ty);
            for (server, place) in entry.places.iter() {
                let machine = &mut self.servers[server].machine;
                if machine.take_back_version(entry.ty, place) {
                    told.insert(server);
                }
            }
        }
        for server in &self.groups.get(group).open {
            let machine = &mut self.servers[*server].machine;
            // All of them, whether or not one was sent.
            if types.iter().filter(|ty| machine.forget_type_version(**ty)).count() > 0 {
                told.insert(*server);
            }
        }
        for server in told {
            self.servers[server].machine.reopen("resubscribing to detect recovery of the primary", now);
            self.settle(store, server, now);
        }
    }
}
