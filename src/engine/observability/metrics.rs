//! Changes of the counters, for metrics (A78, A88).
//!
//! Changes are polled one at a time, like outputs. They are read from the counters of the rooms, so that no room knows of
//! metrics, and a client without them does not pay for more than the counting.

use std::{sync::Arc, time::Instant};

use super::super::{
    authorities::Authorities,
    counts::{AppliedResponse, CacheState, ConnectionChange, ReceivedCounts, TrafficChange, UpdateCounts},
    store::Store,
};
use crate::{
    config::ConfigSource,
    protocol::{GroupId, Messages, RequestKind, ServerId, StreamEnd},
};

/// A change of a counter.
#[derive(Debug)]
pub(crate) enum Metric {
    /// The number of resources of an authority and a type in a state of the cache now. Those of one authority may be in
    /// several groups.
    Resources {
        group: GroupId,
        authority: Option<Arc<str>>,
        type_url: &'static str,
        state: CacheState,
        count: u64,
    },
    /// The number of resources of a type that a server has sent since the last read, valid and invalid ones.
    Updates { source: ConfigSource, type_url: &'static str, valid: u64, invalid: u64 },
    /// Whether there is a working stream to a server, by its number, since a server has several where types have
    /// streams of their own; `None` when nothing is requested.
    Connected { stream: ServerId, source: ConfigSource, connected: Option<bool> },
    /// The number of failures of a server since the last read.
    Failures { source: ConfigSource, count: u64 },
    /// The requests of a type that were sent since the last read.
    Requests { source: ConfigSource, type_url: &'static str, kind: RequestKind, messages: Messages },
    /// The responses that were received since the last read; those without a type are of none that was requested, or unreadable.
    Responses { source: ConfigSource, type_url: Option<&'static str>, messages: Messages },
    /// The streams that have ended since the last read.
    StreamEnds { source: ConfigSource, end: StreamEnd, count: u64 },
    /// A response was applied and answered. What it has changed is in the outputs that are there at this read.
    Applied { source: ConfigSource, type_url: &'static str, arrived_at: Instant, is_accepted: bool },
}

impl Metric {
    /// The next change; `None` when there was none since the last read.
    pub(in crate::engine) fn poll(
        authorities: &mut Authorities,
        store: &mut Store,
        updates: &mut UpdateCounts,
    ) -> Option<Self> {
        if let Some(change) = authorities.connections().poll() {
            return Some(match change {
                ConnectionChange::Connected(id, connected) => {
                    Self::Connected { stream: id, source: source(authorities, id), connected }
                }
                ConnectionChange::Failures(id, count) => {
                    Self::Failures { source: source(authorities, id), count }
                }
            });
        }
        if let Some((from, ReceivedCounts { valid, invalid })) = updates.poll() {
            let type_url = store.type_url(from.ty);
            return Some(Self::Updates {
                source: source(authorities, from.server),
                type_url,
                valid,
                invalid,
            });
        }
        if let Some(metric) = Self::poll_traffic(authorities, store) {
            return Some(metric);
        }
        let ((group, ty, state), count) = store.counts_mut().poll()?;
        let authority = authorities.groups().get(group).authority().cloned();
        Some(Self::Resources { group, authority, type_url: store.type_url(ty), state, count })
    }

    /// The next change of the numbers of messages, or the next response that was applied.
    fn poll_traffic(authorities: &mut Authorities, store: &Store) -> Option<Self> {
        if let Some((server, change)) = authorities.traffic().poll() {
            let source = source(authorities, server);
            return Some(match change {
                TrafficChange::Requests(ty, kind, messages) => {
                    Self::Requests { source, type_url: store.type_url(ty), kind, messages }
                }
                TrafficChange::Responses(ty, messages) => {
                    Self::Responses { source, type_url: ty.map(|ty| store.type_url(ty)), messages }
                }
                TrafficChange::Ended(end, count) => Self::StreamEnds { source, end, count },
            });
        }
        let AppliedResponse { from, arrived_at, is_accepted } = authorities.traffic().poll_applied()?;
        let source = source(authorities, from.server);
        Some(Self::Applied { source, type_url: store.type_url(from.ty), arrived_at, is_accepted })
    }
}

fn source(authorities: &Authorities, id: ServerId) -> ConfigSource {
    authorities.server(id).machine.source()
}
