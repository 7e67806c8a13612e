//! Unused sources that came with resources: their groups, and their machines.

use std::{collections::BTreeSet, mem};

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

    /// Resources of these have ended.
    pub(super) fn note_groups(&mut self, ids: impl IntoIterator<Item = GroupId>) {
        self.groups.extend(ids);
    }

    pub(super) fn take_groups(&mut self) -> BTreeSet<GroupId> {
        mem::take(&mut self.groups)
    }

    pub(super) fn take_servers(&mut self) -> BTreeSet<ServerId> {
        mem::take(&mut self.servers)
    }
}
