use std::collections::BTreeMap;

use crate::protocol::{ServerId, TypeId};

/// The number of resources of each type that a server has sent since they were read last.
#[derive(Debug, Default)]
pub(crate) struct UpdateCounts {
    /// Valid and invalid ones.
    updates: BTreeMap<(ServerId, TypeId), (u64, u64)>,
    is_read: bool,
}

impl UpdateCounts {
    /// Adds the resources of a response.
    pub(crate) fn add(&mut self, (server, ty): (ServerId, TypeId), (valid, invalid): (u64, u64)) {
        if valid + invalid > 0 {
            let counted = self.updates.entry((server, ty)).or_default();
            counted.0 += valid;
            counted.1 += invalid;
        }
    }

    /// The next numbers, of valid and of invalid resources.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "metrics alone read it"))]
    pub(crate) fn poll(&mut self) -> Option<((ServerId, TypeId), (u64, u64))> {
        self.is_read = true;
        self.updates.pop_first()
    }

    /// Whether the numbers are read, and there are some of a server.
    pub(crate) fn has_unread_of(&self, id: ServerId) -> bool {
        self.is_read && self.updates.range((id, TypeId(0))..).next().is_some_and(|(key, _)| key.0 == id)
    }

    /// A server was removed.
    pub(crate) fn forget(&mut self, id: ServerId) {
        let of_server = self.updates.range((id, TypeId(0))..).map(|(key, _)| *key);
        for key in of_server.take_while(|key| key.0 == id).collect::<Vec<_>>() {
            self.updates.remove(&key);
        }
    }
}
