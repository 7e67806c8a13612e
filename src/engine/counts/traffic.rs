//! The numbers of messages and bytes, and of ends of streams; and how long accepted and rejected responses took.
//!
//! The counters are sums since the last read, not totals, as those of received resources are.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use crate::protocol::{Messages, RequestKind, ServerId, StreamEnd, Traffic, TypeAtServer, TypeId};

/// The traffic of all servers, and the applied responses.
#[derive(Debug, Default)]
pub(crate) struct TrafficCounts {
    /// The numbers since the last read.
    servers: BTreeMap<ServerId, Traffic>,
    /// The responses that were applied since the last read; none without a reader.
    applied: VecDeque<AppliedResponse>,
    /// Set with the first read: without a reader, unread changes keep nothing from being removed, and no response is noted.
    is_read: bool,
}

/// A response that was applied and answered. What it has changed is published by the outputs of the same call of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AppliedResponse {
    /// Its server and type.
    pub(crate) from: TypeAtServer,
    /// When it was received.
    pub(crate) arrived_at: Instant,
    /// Whether it was accepted. Of a rejected one the valid resources are applied, too.
    pub(crate) is_accepted: bool,
}

/// A number that has changed since the last read.
#[derive(Debug)]
pub(crate) enum TrafficChange {
    Requests(TypeId, RequestKind, Messages),
    /// Without a type: of no requested type, or unreadable.
    Responses(Option<TypeId>, Messages),
    Ended(StreamEnd, u64),
}

impl TrafficCounts {
    /// Adds the numbers of a server.
    pub(crate) fn add(&mut self, server: ServerId, traffic: Traffic) {
        self.servers.entry(server).or_default().add(traffic);
    }

    /// A response was applied and answered.
    pub(crate) fn on_applied(&mut self, response: AppliedResponse) {
        if self.is_read {
            self.applied.push_back(response);
        }
    }

    /// The next change, and the server.
    #[cfg_attr(not(feature = "client"), allow(dead_code, reason = "metrics alone read it"))]
    pub(crate) fn poll(&mut self) -> Option<(ServerId, TrafficChange)> {
        self.is_read = true;
        loop {
            let (server, traffic) = self.servers.iter_mut().next()?;
            let server = *server;
            let change = if let Some(((ty, kind), messages)) = traffic.requests.pop_first() {
                Some(TrafficChange::Requests(ty, kind, messages))
            } else if let Some((ty, messages)) = traffic.responses.pop_first() {
                Some(TrafficChange::Responses(ty, messages))
            } else {
                traffic.ends.pop_first().map(|(end, count)| TrafficChange::Ended(end, count))
            };
            match change {
                Some(change) => return Some((server, change)),
                None => drop(self.servers.remove(&server)),
            }
        }
    }

    /// The next response that was applied.
    #[cfg_attr(not(feature = "client"), allow(dead_code, reason = "metrics alone read it"))]
    pub(crate) fn poll_applied(&mut self) -> Option<AppliedResponse> {
        self.is_read = true;
        self.applied.pop_front()
    }

    /// Whether the numbers are read, and there are some of a server.
    pub(crate) fn has_unread_of(&self, id: ServerId) -> bool {
        let has_response = || self.applied.iter().any(|response| response.from.server == id);
        self.is_read && (self.servers.contains_key(&id) || has_response())
    }

    /// A server was removed.
    pub(crate) fn forget(&mut self, id: ServerId) {
        self.servers.remove(&id);
        self.applied.retain(|response| response.from.server != id);
    }
}
