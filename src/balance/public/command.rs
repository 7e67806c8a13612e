//! What a balancer has its application do.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use crate::{
    balance::{
        command::ConnectionId,
        identity::{Destination, Security},
    },
    resource::UpstreamTls,
};

/// What a [`Balancer`](super::Balancer) requests of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Connect, and report the result by [`handle_connected`](super::Balancer::handle_connected) or
    /// [`handle_connect_failed`](super::Balancer::handle_connect_failed).
    #[non_exhaustive]
    Connect {
        /// The id of the attempt, and of the connection that it leads to.
        connection: ConnectionId,
        /// What to connect to.
        target: ConnectTarget,
        /// The time after which the application ends the attempt as failed.
        timeout: Duration,
    },
    /// End an attempt, and report nothing. A success that is reported nevertheless is answered by [`Close`](Self::Close).
    #[non_exhaustive]
    Cancel {
        /// The id of the attempt.
        connection: ConnectionId,
    },
    /// Close a connection once the requests on it have ended; new ones are not sent on it. Nothing is to be reported.
    #[non_exhaustive]
    Close {
        /// The id of the connection.
        connection: ConnectionId,
    },
    /// Have the endpoint of a connection report its load beside the requests, instead of what was requested before, and pass the
    /// reports to [`handle_load_report`](super::Balancer::handle_load_report). An application whose protocol has no such reports
    /// ignores the command; the endpoints of the cluster then have equal weights.
    #[non_exhaustive]
    WatchLoad {
        /// The id of the connection.
        connection: ConnectionId,
        /// The time between two reports, at most.
        period: Duration,
    },
    /// End the reports of a connection. Those of a connection that is closed end by themselves.
    #[non_exhaustive]
    UnwatchLoad {
        /// The id of the connection.
        connection: ConnectionId,
    },
    /// Resolve the names of logical DNS clusters again
    /// ([`Resolution::request_reresolution`](../client/struct.Resolution.html#method.request_reresolution)).
    RequestReresolution,
}

/// The endpoint that a connection leads to, and how the connection is secured.
///
/// Equal targets of one cluster share a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectTarget {
    cluster: Arc<str>,
    destination: Destination,
}

impl ConnectTarget {
    pub(super) fn new(cluster: Arc<str>, destination: Destination) -> Self {
        Self { cluster, destination }
    }

    /// The name of the cluster with the endpoint. It is that of a leaf if requests are sent to an aggregate.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.destination.address
    }

    /// The HTTP proxy that the connection leads through by the method CONNECT, if the endpoint has one (A86).
    pub fn proxy(&self) -> Option<SocketAddr> {
        self.destination.identity.proxy()
    }

    /// The TLS of the connection. `None` for a cluster without TLS, and always without
    /// [`Settings::with_xds_credentials`](super::Settings::with_xds_credentials).
    pub fn tls(&self) -> Option<&UpstreamTls> {
        match self.destination.identity.security() {
            Security::Cluster { tls, .. } => Some(tls.config()),
            Security::Plaintext | Security::Fallback => None,
        }
    }

    /// The server name to send in the handshake, if the connection has [`tls`](Self::tls) and sends one.
    pub fn server_name(&self) -> Option<&str> {
        match self.destination.identity.security() {
            Security::Cluster { tls, hostname } => hostname.as_deref().or(tls.config().server_name(None)),
            Security::Plaintext | Security::Fallback => None,
        }
    }
}
