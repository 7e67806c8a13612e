//! What a [`ListenerMachine`](super::ListenerMachine) reports.

use std::sync::Arc;

use super::{ChainId, ChainRef, ConnectionId, Routing, ServingState};

/// What the machine has its owner do, in this order.
#[derive(Debug, Clone)]
pub(crate) enum Output {
    /// A route configuration is to be watched.
    WatchRoutes(Arc<str>),
    /// The watch of a route configuration is to end.
    EndRoutes(Arc<str>),
    /// The socket is to listen. It is bound first if it was closed. The result is
    /// [`handle_opened`](super::ListenerMachine::handle_opened).
    Open,
    /// The listening socket is to be closed.
    Close,
    /// A chain from which connections may be accepted from now on.
    AddChain { chain: ChainId, config: ChainRef, routing: Arc<Routing> },
    /// Later requests on connections of the chain have this routing.
    SetRouting { chain: ChainId, routing: Arc<Routing> },
    /// No connection has the chain any more.
    RemoveChain(ChainId),
    /// The connection is to take no more requests, and to end after those that it has.
    Drain(ConnectionId),
    /// The connection is to be closed with all that is on it.
    CloseConnection(ConnectionId, CloseReason),
    /// The last of so many connections of a replaced configuration has ended.
    Drained { connections: u64 },
    /// The serving state has changed.
    State(ServingState),
    /// The mistakes in the routes in use have changed; none is the end of the last one.
    RouteErrors(Vec<String>),
}

/// The next deadline of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Connections are accepted again.
    Accept,
    /// The socket is opened again.
    Open,
    /// A handshake, a drain, or the age of a connection ends.
    Connection,
}

/// What becomes of an accepted connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Accept {
    /// The connection is served with this chain.
    Serve { connection: ConnectionId, chain: ChainId },
    /// The connection is closed before anything is sent or read.
    Reject(RejectReason),
}

/// Why an accepted connection is closed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RejectReason {
    /// There is no configuration.
    NotServing,
    /// No chain is for it, and there is no default chain.
    NoChain,
    /// There are [`max_connections`](super::Settings::max_connections).
    TooManyConnections,
    /// There are [`max_handshakes`](super::Settings::max_handshakes).
    TooManyHandshakes,
}

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CloseReason {
    /// Its handshake took too long.
    Handshake,
    /// The connection has not ended within the time for draining.
    Grace,
    /// The server is shut down at once.
    ShutDown,
}

/// The kind of an error of `accept`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AcceptError {
    /// The next call may succeed: the process is short of descriptors or memory, or the connection is gone.
    Transient,
    /// The socket is broken.
    Fatal(String),
}

impl RejectReason {
    /// The reason in logs and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NotServing => "not serving",
            Self::NoChain => "no filter chain matches",
            Self::TooManyConnections => "too many connections",
            Self::TooManyHandshakes => "too many unfinished handshakes",
        }
    }
}

impl CloseReason {
    /// The reason in logs and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Handshake => "the handshake took too long",
            Self::Grace => "not drained within the grace period",
            Self::ShutDown => "the server is shut down",
        }
    }
}
