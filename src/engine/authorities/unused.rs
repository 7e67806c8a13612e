//! Unused sources that came with resources: their groups, and their machines.
//!
//! Sources of the bootstrap are never removed. For those that came with resources, each event that may make one unused notes
//! it here, and the sweep at the end of the step examines these alone.

use std::{collections::BTreeSet, mem};

use crate::protocol::{GroupId, ServerId};

/// The candidates for removal: few at a time.
#[derive(Debug, Default)]
pub(super) struct Unused {
    /// Groups to examine at the end of the step.
    groups: BTreeSet<GroupId>,
    /// Servers to examine behind them.
    servers: BTreeSet<ServerId>,
}

impl Unused {
    /// A watch or a resource of a group has ended, or the group has just been added.
    pub(super) fn note_group(&mut self, id: GroupId) {
        self.groups.insert(id);
    }

    /// The stream of a server has ended, or a group that used the server.
    pub(super) fn note_server(&mut self, id: ServerId) {
        self.servers.insert(id);
    }

    /// Resources of these groups have ended.
    pub(super) fn note_groups(&mut self, ids: impl IntoIterator<Item = GroupId>) {
        self.groups.extend(ids);
    }

    /// The groups to examine; those that are to be looked at again are noted anew.
    pub(super) fn take_groups(&mut self) -> BTreeSet<GroupId> {
        mem::take(&mut self.groups)
    }

    /// The servers to examine, likewise.
    pub(super) fn take_servers(&mut self) -> BTreeSet<ServerId> {
        mem::take(&mut self.servers)
    }
}
