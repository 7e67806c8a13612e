//! The status of a listening socket.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use super::ServingState;
use crate::{base::Version, error::WatchError};

/// The status of a listening socket at one time.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ListenerStatus {
    /// The name of the Listener resource.
    pub name: Arc<str>,
    /// The address that the socket is bound to.
    pub address: SocketAddr,
    /// The serving state.
    pub state: ServingState,
    /// When the state was entered.
    pub since: Instant,
    /// The reason why the Listener in use may be stale.
    pub warning: Option<WatchError>,
    /// The version of the Listener in use; empty without one.
    pub version: Version,
    /// The version of a newer Listener whose route configurations are not all known; empty without one.
    pub pending_version: Version,
    /// The names of the route configurations that it waits for.
    pub waiting_for: Vec<Arc<str>>,
    /// The number of filter chains, with those of older connections.
    pub filter_chains: usize,
    /// The connections by their state.
    pub connections: ConnectionCounts,
    /// When the last draining connection is closed; `None` if none drains, or without a limit.
    pub drained_by: Option<Instant>,
}

/// The numbers of connections by their state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ConnectionCounts {
    /// Connections whose handshake has not finished.
    pub handshaking: usize,
    /// Connections that take requests.
    pub serving: usize,
    /// Connections that take no more requests, or are about to.
    pub draining: usize,
    /// Connections that are being closed.
    pub closing: usize,
}
