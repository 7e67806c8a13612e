//! What nobody needs any more of sources that came with resources: their groups, and their machines.

use std::{collections::BTreeSet, mem};

use super::Engine;
use crate::protocol::{GroupId, ServerId};

/// What something was taken from that may have been the last. There is little of it at a time.
#[derive(Debug, Default)]
pub(super) struct Unused {
    groups: BTreeSet<GroupId>,
    servers: BTreeSet<ServerId>,
}

impl Unused {
    /// A watch or a resource of it has ended, or it has just been made.
    pub(super) fn note_group(&mut self, id: GroupId) {
        self.groups.insert(id);
    }

    /// Its stream has ended, or a group that used it.
    pub(super) fn note_server(&mut self, id: ServerId) {
        self.servers.insert(id);
    }
}

impl Engine {
    /// Removes what nobody needs any more, at the end of each step.
    pub(super) fn sweep(&mut self) {
        for id in mem::take(&mut self.unused.groups) {
            let is_unused = self.groups.is_unused(id) && !self.collections.has_any_of(id);
            if !is_unused {
                continue;
            }
            if self.counters.is_awaited_of_group(id) {
                self.unused.groups.insert(id);
                continue;
            }
            self.counters.forget_group(id);
            self.unused.servers.extend(self.groups.remove(id));
        }
        for id in mem::take(&mut self.unused.servers) {
            if !self.groups.with(id).is_empty() || !self.servers.is_unused(id) {
                continue;
            }
            if self.has_job(id) || self.counters.is_awaited_of_server(id) {
                self.unused.servers.insert(id);
                continue;
            }
            self.counters.forget_server(id);
            self.servers.remove(id);
        }
    }
}
