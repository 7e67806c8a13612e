//! Settings of a listening socket.

use std::time::Duration;

use super::address::TlsSupport;

/// Limits and times of a listening socket and its connections.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// The time from the start of draining a connection until it is closed with what is left on it; `MAX` is without end.
    pub(crate) drain_grace: Duration,
    /// The time over which the connections of a replaced configuration begin to drain.
    pub(crate) drain_spread: Duration,
    /// Whether connections keep on being served when a new configuration has their chain unchanged.
    pub(crate) drain_changed_chains_only: bool,
    /// Whether the port is closed while the server is not serving.
    pub(crate) release_port: bool,
    /// The time for the handshake of a connection, TLS and the preface of HTTP/2.
    pub(crate) handshake_timeout: Duration,
    /// The number of connections whose handshake has not finished.
    pub(crate) max_handshakes: usize,
    /// The number of connections, with those that drain.
    pub(crate) max_connections: usize,
    /// The age at which a connection is drained, varied by up to 10 %; `MAX` is without end.
    pub(crate) max_connection_age: Duration,
    /// What becomes of the TLS of chains.
    pub(crate) tls: TlsSupport,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            drain_grace: Duration::from_secs(600),
            drain_spread: Duration::ZERO,
            drain_changed_chains_only: false,
            release_port: false,
            handshake_timeout: Duration::from_secs(120),
            max_handshakes: 1_000,
            max_connections: 65_536,
            max_connection_age: Duration::MAX,
            tls: TlsSupport::Unsupported,
        }
    }
}
