//! The error of the latest response about a resource, whether the resource is still held or not.

use std::time::Instant;

use crate::{error::WatchError, resource::Version};

/// The state of a resource at a client, in the terms of the client status service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ResourceState {
    /// The resource is requested, and the server has sent neither the resource nor an error yet.
    Requested,
    /// The server has deleted it, or did not send it in time.
    DoesNotExist,
    /// The last update was accepted.
    Acked,
    /// The last update was rejected.
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
#[derive(Debug, Clone)]
pub(crate) struct Update {
    /// The version of the response; empty if it was none.
    pub(crate) version: Version,
    /// The time of the response or event.
    pub(crate) at: Instant,
}

/// The error of a resource, and the update that caused it: it lasts until a good update (A40-2).
#[derive(Debug, Clone)]
pub(crate) struct AmbientError {
    /// The state that the resource has because of it.
    pub(crate) state: ResourceState,
    /// The error, for watches.
    pub(crate) error: WatchError,
    /// The response that brought it.
    pub(crate) update: Update,
}
