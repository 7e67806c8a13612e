//! The limits of requests and connections.

use std::time::Duration;

use tonic::{Code, Status};

/// The limits of what the clients of a [`ControlPlane`](super::ControlPlane) may use together, and on connections.
///
/// The limits of a single stream are [`session::Limits`](super::session::Limits).
///
/// ```
/// use xdskit::control_plane::{ControlPlane, ServerLimits};
///
/// let mut limits = ServerLimits::default();
/// limits.max_connections = 100;
/// let control_plane = ControlPlane::builder().server_limits(limits).build();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLimits {
    /// The maximum size of a request in bytes, by default 16 MiB. A larger one ends its stream with `RESOURCE_EXHAUSTED`;
    /// over REST it gets the status 413.
    pub max_request_size: usize,
    /// The maximum number of different names that all clients together subscribe to, by default 1,000,000. The stream whose
    /// request exceeds it ends with `RESOURCE_EXHAUSTED`.
    pub max_total_names: usize,
    /// The maximum number of streams on a connection, by default 100. Clients know it by HTTP/2 and wait with further ones.
    ///
    /// This limit and the following ones apply to [`serve`](super::ControlPlane::serve); an application that serves the
    /// [services](super::ControlPlane::service) has settings of its own server.
    pub max_streams_per_connection: u32,
    /// The maximum number of connections, by default 10,000. Further ones are closed at once.
    pub max_connections: usize,
    /// The time after which a connection without streams is closed, by default 5 min. A connection that sends nothing at all
    /// is one without streams.
    pub idle_timeout: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            max_request_size: 16 << 20,
            max_total_names: 1_000_000,
            max_streams_per_connection: 100,
            max_connections: 10_000,
            idle_timeout: Duration::from_secs(300),
        }
    }
}

impl ServerLimits {
    /// The status for a stream that cannot be read further; `None` if the client has ended it.
    pub(super) fn status_of(&self, unread: &Status) -> Option<Status> {
        let limit = self.max_request_size;
        let reason = format!("a request is above the server's limit of {limit} bytes (max_request_size)");
        (unread.code() == Code::OutOfRange).then(|| Status::resource_exhausted(reason))
    }

    /// Checks the number of names that all clients subscribe to.
    pub(super) fn check_total_names(&self, names: usize) -> Result<(), Status> {
        let limit = self.max_total_names;
        let reason = || {
            format!(
                "the clients subscribe to more names than the server's limit of {limit} (max_total_names)"
            )
        };
        if names > limit { Err(Status::resource_exhausted(reason())) } else { Ok(()) }
    }
}
