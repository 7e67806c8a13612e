use std::time::Duration;

use crate::escape::debug_as_message;

/// The acceptance of a response by a client (ACK).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ack {
    /// The stream of the request.
    pub stream: u64,
    /// The version of the response; in the incremental variant its `system_version_info`.
    pub version: String,
    /// The names that the client subscribes to; see [`RecordedRequest::names`](super::RecordedRequest::names).
    pub names: Vec<String>,
}

/// The rejection of a response by a client (NACK).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Nack {
    /// The stream of the request.
    pub stream: u64,
    /// The version of the response; in the incremental variant its `system_version_info`.
    pub version: String,
    /// The last version that the client accepted, empty if there is none. Requests of the incremental variant do not
    /// contain it.
    pub accepted_version: String,
    /// The names that the client subscribes to; see [`RecordedRequest::names`](super::RecordedRequest::names).
    pub names: Vec<String>,
    /// The number of a gRPC status code.
    pub code: i32,
    /// The reason from the client.
    pub message: String,
}

/// The error of an expectation that was not met in time.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {expected} within {waited:?}: {seen}")]
pub struct ExpectTimeout {
    /// What was expected, as a noun.
    pub(super) expected: String,
    /// The timeout.
    pub(super) waited: Duration,
    /// A description of what has happened instead.
    pub(super) seen: String,
}

debug_as_message!(ExpectTimeout);
