//! Settings of connections.

use std::time::Duration;

/// Limits and times of HTTP. Each default of the HTTP implementation that a peer could use to its advantage is decided here.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HttpSettings {
    /// Whether HTTP/1.1 is served beside HTTP/2.
    pub(super) http1: bool,
    pub(super) max_concurrent_streams: u32,
    /// The size of the headers of a request in bytes.
    pub(super) max_header_list_size: u32,
    /// The bytes that a client may send on a connection before they are read.
    pub(super) connection_window: u32,
    /// The bytes that a client may send on a stream before they are read.
    pub(super) stream_window: u32,
    /// Streams that a client may reset before they are accepted.
    pub(super) max_pending_resets: usize,
    /// The time without a frame after which a client is pinged.
    pub(super) keep_alive_interval: Duration,
    /// The time for the answer to a ping.
    pub(super) keep_alive_timeout: Duration,
    /// The time for the head of a request over HTTP/1.1, and between two requests.
    pub(super) header_read_timeout: Duration,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            http1: true,
            max_concurrent_streams: 100,
            max_header_list_size: 16 << 10,
            connection_window: 1 << 20,
            stream_window: 1 << 20,
            max_pending_resets: 20,
            keep_alive_interval: Duration::from_secs(7_200),
            keep_alive_timeout: Duration::from_secs(20),
            header_read_timeout: Duration::from_secs(30),
        }
    }
}

/// The bytes of a response that wait to be sent on a stream.
pub(super) const MAX_SEND_BUFFER: usize = 400 << 10;

/// Streams that the server resets because of errors of a client before the connection is closed.
pub(super) const MAX_ERROR_RESETS: usize = 1_024;

/// The number of headers of a request over HTTP/1.1.
pub(super) const MAX_HEADERS: usize = 100;

/// The smallest buffer that the HTTP/1.1 implementation permits.
pub(super) const MIN_HTTP1_BUFFER: usize = 8 << 10;

/// The time for a client to acknowledge that a connection drains, as long as it has no request.
pub(super) const DRAIN_ACK_TIMEOUT: Duration = Duration::from_secs(20);
