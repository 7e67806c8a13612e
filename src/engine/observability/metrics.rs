//! Changes of the counters, for metrics (A78, A88).
//!
//! Changes are polled one at a time, like outputs. They are read from the counters of the rooms, so that no room knows of
//! metrics, and a client without them does not pay for more than the counting.

use std::sync::Arc;

use super::super::{
    authorities::Authorities,
    counts::{CacheState, ConnectionChange, ReceivedCounts, UpdateCounts},
    store::Store,
};
use crate::{
    config::ConfigSource,
    protocol::{GroupId, ServerId},
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
        let ((group, ty, state), count) = store.counts_mut().poll()?;
        let authority = authorities.groups().get(group).authority().cloned();
        Some(Self::Resources { group, authority, type_url: store.type_url(ty), state, count })
    }
}

fn source(authorities: &Authorities, id: ServerId) -> ConfigSource {
    authorities.server(id).machine.source()
}
