use std::time::Duration;

use crate::escape::debug_as_message;

/// A client accepted a response (ACK).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ack {
    /// The stream that the answer came on.
    pub stream: u64,
    /// The version of the response; in the incremental variant its `system_version_info`.
    pub version: String,
    /// The names that the client wants; see [`RecordedRequest::names`](super::RecordedRequest::names).
    pub names: Vec<String>,
}

/// A client rejected a response (NACK).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Nack {
    /// The stream that the answer came on.
    pub stream: u64,
    /// The version of the response; in the incremental variant its `system_version_info`.
    pub version: String,
    /// The version that the client holds on to, empty if it has none. Requests of the incremental variant do not say it.
    pub accepted_version: String,
    /// The names that the client wants; see [`RecordedRequest::names`](super::RecordedRequest::names).
    pub names: Vec<String>,
    /// The number of a gRPC status code.
    pub code: i32,
    /// What the client says is wrong.
    pub message: String,
}

/// What was expected did not come in time.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {expected} within {waited:?}: {seen}")]
pub struct ExpectTimeout {
    pub(super) expected: String,
    pub(super) waited: Duration,
    pub(super) seen: String,
}

debug_as_message!(ExpectTimeout);
