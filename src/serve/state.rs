//! The serving state of a listening socket.

use std::{fmt, sync::Arc};

use crate::error::{Code, WatchError};

/// Whether a listening socket serves, and why not.
///
/// ```text
///  Starting ──▶ Serving ◀──▶ NotServing
///     │            │             │
///     └────────────┴─────────────┴──▶ Stopping ──▶ Stopped
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ServingState {
    /// No configuration is known yet.
    #[default]
    Starting,
    /// Connections are accepted and served.
    Serving,
    /// Connections are refused or closed. Those that were accepted before drain.
    NotServing(NotServing),
    /// The server was shut down, and its connections drain.
    Stopping,
    /// The server was shut down, and has no connections.
    Stopped,
}

/// The reason why a listening socket does not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotServing {
    code: Code,
    reason: Arc<str>,
}

impl ServingState {
    /// Whether connections are served.
    pub fn is_serving(&self) -> bool {
        matches!(self, Self::Serving)
    }
}

impl NotServing {
    pub(super) fn new(code: Code, reason: impl Into<Arc<str>>) -> Self {
        Self { code, reason: reason.into() }
    }

    /// The code: `NOT_FOUND` for a listener that does not exist, `INVALID_ARGUMENT` for a rejected one, `FAILED_PRECONDITION` for one
    /// that does not belong to the socket, `UNAVAILABLE` if the management server or the port is unavailable.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The reason, with the name of the resource and the node id.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl From<&WatchError> for NotServing {
    fn from(error: &WatchError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl fmt::Display for ServingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("STARTING"),
            Self::Serving => f.write_str("SERVING"),
            Self::NotServing(reason) => write!(f, "NOT_SERVING: {reason}"),
            Self::Stopping => f.write_str("STOPPING"),
            Self::Stopped => f.write_str("STOPPED"),
        }
    }
}

impl fmt::Display for NotServing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)
    }
}
