//! The error of the latest response about a resource, whether the resource is still held or not.

use std::time::Instant;

use crate::{error::WatchError, resource::Version};

/// The state of a resource at a client, in the terms of the client status service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ResourceState {
    /// The resource is requested, and the server has sent neither the resource nor an error yet. A resource whose server is
    /// unreachable stays in this state; the error is that of the server.
    Requested,
    /// The server has deleted it, or did not send it in time. An expired time to live counts as a deletion. Where deletions are
    /// ignored, the last known good resource is still in use.
    DoesNotExist,
    /// The last update was accepted.
    Acked,
    /// The last update was rejected. An older good resource may still be in use.
    Nacked,
    /// The server sent an error in place of the resource.
    ReceivedError,
    /// The server did not send it in time, which counts as a server error (`resource_timer_is_transient_error`).
    Timeout,
}

impl ResourceState {
    /// The name in the protocol, such as `DOES_NOT_EXIST`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "REQUESTED",
            Self::DoesNotExist => "DOES_NOT_EXIST",
            Self::Acked => "ACKED",
            Self::Nacked => "NACKED",
            Self::ReceivedError => "RECEIVED_ERROR",
            Self::Timeout => "TIMEOUT",
        }
    }
}

impl std::fmt::Display for ResourceState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// The response or event that updated a resource.
///
/// The update is kept beside the last error as well as beside the last good resource, so that `Client::status`
/// and the watches cannot disagree.
#[derive(Debug, Clone)]
pub(crate) struct Update {
    /// The version of the response; empty if it was none. It is empty for events without a response, such as the end of a timer
    /// or of a time to live.
    pub(crate) version: Version,
    /// The time of the response or event. A response counts from its arrival, however long it waited to be applied.
    pub(crate) at: Instant,
}

/// The error of a resource, and the update that caused it: it lasts until a good update (A40-2).
///
/// A repetition of the same error replaces the update and is not published again: an operator wants the time of the last
/// failure, and a watch the first notice of it.
#[derive(Debug, Clone)]
pub(crate) struct AmbientError {
    /// The state that the resource has because of it. Stored, since the code of the error does not tell a deletion from a
    /// timeout, or a rejection from an error of the server.
    pub(crate) state: ResourceState,
    /// The error, for watches.
    pub(crate) error: WatchError,
    /// The response that brought it.
    pub(crate) update: Update,
}
