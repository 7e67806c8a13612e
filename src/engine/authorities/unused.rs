//! Unused sources that came with resources: their groups, and their machines.

use std::{collections::BTreeSet, mem};

use super::{super::store::Store, Authorities};
use crate::protocol::{GroupId, ServerId};

/// The candidates for removal: few at a time.
#[derive(Debug, Default)]
pub(super) struct Unused {
    groups: BTreeSet<GroupId>,
    servers: BTreeSet<ServerId>,
}

impl Unused {
    /// A watch or a resource of it has ended, or it has just been added.
    pub(super) fn note_group(&mut self, id: GroupId) {
        self.groups.insert(id);
    }

    /// Its stream has ended, or a group that used it.
    pub(super) fn note_server(&mut self, id: ServerId) {
        self.servers.insert(id);
    }
}

impl Authorities {
    /// Removes the unused sources, at the end of each step. A server that `is_busy` is kept until it is not.
    pub(in crate::engine) fn sweep(
        &mut self,
        store: &mut Store,
        is_busy: impl Fn(ServerId) -> bool,
    ) -> Vec<ServerId> {
        self.unused.groups.extend(store.take_emptied());
        for id in mem::take(&mut self.unused.groups) {
            let is_used = store.has_entries_of(id) || store.members.has_any_of(id);
            if is_used || !self.groups.is_unwatched(id) {
                continue;
            }
            if store.counts().has_unread_of(id) {
                self.unused.groups.insert(id);
                continue;
            }
            store.forget_group(id);
            self.unused.servers.extend(self.groups.remove(id));
        }
        let mut removed = Vec::new();
        for id in mem::take(&mut self.unused.servers) {
            if !self.groups.with(id).is_empty() || !self.servers.is_unused(id) {
                continue;
            }
            if is_busy(id) || self.connections.has_unread_of(id) {
                self.unused.servers.insert(id);
                continue;
            }
            self.connections.forget(id);
            self.servers.remove(id);
            removed.push(id);
        }
        removed
    }
}
