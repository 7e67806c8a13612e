use std::time::Duration;

use crate::config::{ApiType, Polling, bounded};

/// The settings of the protocol, with the defaults of a client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// The variant of the protocol for servers whose bootstrap entry names none.
    pub(crate) api_type: ApiType,
    /// The polling of servers whose bootstrap entry does not configure it.
    pub(crate) polling: Polling,
    /// The maximum size of a request in bytes, as far as names allow.
    pub(crate) max_request_size: usize,
    /// The maximum number of bytes of responses that wait on a stream behind others of their types.
    pub(crate) max_waiting_bytes: usize,
    /// The does-not-exist time: a resource that was not sent within it counts as non-existent (A57-5).
    pub(crate) resource_timeout: Duration,
    /// The time for which a stream without subscriptions is kept.
    pub(crate) idle_stream_timeout: Duration,
    /// The interval of HTTP/2 keepalive pings, before a server reports that they are too many.
    pub(crate) keepalive: Duration,
}

impl Settings {
    /// Limits the durations, so that adding one to a time cannot overflow.
    pub(crate) fn bounded(self) -> Self {
        Self {
            polling: self.polling.bounded(),
            resource_timeout: bounded(self.resource_timeout),
            idle_stream_timeout: bounded(self.idle_stream_timeout),
            keepalive: bounded(self.keepalive),
            ..self
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            api_type: ApiType::AggregatedGrpc,
            polling: Polling::default(),
            max_request_size: 3 << 20,
            max_waiting_bytes: 64 << 20,
            resource_timeout: Duration::from_secs(15),
            idle_stream_timeout: Duration::from_secs(30),
            keepalive: Duration::from_secs(30),
        }
    }
}
