//! The state of connections as A78 defines it.
//!
//! | connection | counts as |
//! |---|---|
//! | idle | not there: nothing is requested |
//! | connecting, open, pausing, without a failure since the last answer | connected |
//! | any of these behind a failure | not connected, until the next response |

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::{ConnectionState, ServerId};

/// The servers with a working stream, and the number of failures of each.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounts {
    /// Whether each server that is needed counts as connected (A78-2).
    connected: BTreeMap<ServerId, bool>,
    /// The servers with a change of that since the last read.
    changed: BTreeSet<ServerId>,
    /// The number of failures since the last read.
    failures: BTreeMap<ServerId, u64>,
    /// Set with the first read: without a reader, unread changes keep nothing from being removed.
    is_read: bool,
}

/// A change of a server's connection since the last read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionChange {
    /// Whether there is a working stream; `None` when nothing is requested.
    Connected(ServerId, Option<bool>),
    /// The number of failures of the server.
    Failures(ServerId, u64),
}

impl ConnectionCounts {
    /// Records the state of a stream (A78-2): it counts as connected from the first attempt on, until one fails that
    /// gave no response; and then again with the first response.
    pub(crate) fn note(&mut self, id: ServerId, state: ConnectionState, has_failed: bool) {
        let connected = match state {
            ConnectionState::Idle => None,
            ConnectionState::Connecting | ConnectionState::Connected | ConnectionState::BackingOff => {
                Some(!has_failed)
            }
        };
        let before = match connected {
            Some(connected) => self.connected.insert(id, connected),
            None => self.connected.remove(&id),
        };
        if before != connected {
            self.changed.insert(id);
        }
        // A78-2 counts servers that fail, and not the attempts of an outage.
        if before == Some(true) && connected == Some(false) {
            *self.failures.entry(id).or_default() += 1;
        }
    }

    /// The next change.
    #[cfg_attr(not(feature = "client"), allow(dead_code, reason = "metrics alone read it"))]
    pub(crate) fn poll(&mut self) -> Option<ConnectionChange> {
        self.is_read = true;
        if let Some(id) = self.changed.pop_first() {
            return Some(ConnectionChange::Connected(id, self.connected.get(&id).copied()));
        }
        self.failures.pop_first().map(|(id, count)| ConnectionChange::Failures(id, count))
    }

    /// Whether changes are read, and there is one of a server.
    pub(crate) fn has_unread_of(&self, id: ServerId) -> bool {
        self.is_read && (self.changed.contains(&id) || self.failures.contains_key(&id))
    }

    /// A server was removed.
    pub(crate) fn forget(&mut self, id: ServerId) {
        self.connected.remove(&id);
        self.changed.remove(&id);
        self.failures.remove(&id);
    }
}
