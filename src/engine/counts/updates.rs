//! The numbers of received resources.
//!
//! The counters are sums since the last read, not totals: the reader adds them to a counter of its metrics library.

use std::collections::BTreeMap;

use crate::protocol::{ServerId, TypeAtServer, TypeId};

/// The number of resources of each type that a server has sent since they were read last.
#[derive(Debug, Default)]
pub(crate) struct UpdateCounts {
    /// The numbers since the last read; none is zero.
    updates: BTreeMap<TypeAtServer, ReceivedCounts>,
    /// Set with the first read: without a reader, unread changes keep nothing from being removed.
    is_read: bool,
}

/// A number of received resources, by the result of their validation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReceivedCounts {
    /// Resources that were accepted, or that were unchanged.
    pub(crate) valid: u64,
    /// Resources that were rejected, also because of their name alone.
    pub(crate) invalid: u64,
}

impl UpdateCounts {
    /// Adds the resources of a response.
    pub(crate) fn add(&mut self, from: TypeAtServer, received: ReceivedCounts) {
        // Each entry is reported as a change, so that a response without resources makes none.
        if received != ReceivedCounts::default() {
            let counted = self.updates.entry(from).or_default();
            counted.valid += received.valid;
            counted.invalid += received.invalid;
        }
    }

    /// The next numbers, and where the resources came from.
    #[cfg_attr(not(feature = "client"), allow(dead_code, reason = "metrics alone read it"))]
    pub(crate) fn poll(&mut self) -> Option<(TypeAtServer, ReceivedCounts)> {
        self.is_read = true;
        self.updates.pop_first()
    }

    /// Whether the numbers are read, and there are some of a server.
    pub(crate) fn has_unread_of(&self, id: ServerId) -> bool {
        self.is_read && self.updates.range(first_of(id)..).next().is_some_and(|(from, _)| from.server == id)
    }

    /// A server was removed.
    pub(crate) fn forget(&mut self, id: ServerId) {
        let of_server = self.updates.range(first_of(id)..).map(|(from, _)| *from);
        for key in of_server.take_while(|from| from.server == id).collect::<Vec<_>>() {
            self.updates.remove(&key);
        }
    }
}

/// The least key of a server.
fn first_of(server: ServerId) -> TypeAtServer {
    TypeAtServer { server, ty: TypeId(0) }
}
