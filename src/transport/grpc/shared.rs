//! Further streams on a connection, such as that of load reports.

use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use hyper::client::conn::http2::SendRequest;
use tokio::sync::{Semaphore, mpsc, watch};
use tracing::debug;

use super::{
    Settings,
    call::Call,
    connect::{self, Connect, End, Tasks},
    outgoing::Outgoing,
};
use crate::{
    config::bounded,
    escape::Escaped,
    transport::{ConnectRequest, ConnectionEvents, Disconnect, DisconnectKind},
};

/// A connection, kept as long as a stream on it lives.
#[derive(Debug)]
pub(super) struct Link {
    /// `None` until there is a connection; closed if none will be.
    pub(super) linked: watch::Receiver<Option<SharedLink>>,
    /// The settings of its streams.
    pub(super) settings: Settings,
    /// The tasks of the connection, ended with the last stream.
    pub(super) tasks: Tasks,
}

/// The parts of a connection that a further stream needs.
#[derive(Debug, Clone)]
pub(super) struct SharedLink {
    /// Begins streams on the connection.
    requests: SendRequest<Outgoing>,
    /// The scheme and authority of requests.
    origin: Uri,
}

/// A further stream, which waits until there is a connection.
#[derive(Debug)]
pub(super) struct SideStream {
    /// The server, and the path of the method.
    pub(super) target: ConnectRequest,
    pub(super) settings: Settings,
    /// Reports the events of this stream alone.
    pub(super) events: ConnectionEvents,
    /// Requests to write; closed when the stream is half closed.
    pub(super) outbound: mpsc::UnboundedReceiver<Bytes>,
    /// A permit for each message that may be read.
    pub(super) permits: Arc<Semaphore>,
    /// The connection, once there is one.
    pub(super) linked: watch::Receiver<Option<SharedLink>>,
}

/// Ends the connection with its last stream.
impl Drop for Link {
    fn drop(&mut self) {
        self.tasks.end();
    }
}

impl SharedLink {
    /// Returns the parts of a connection.
    pub(super) fn of(link: &connect::Link) -> Self {
        Self { requests: link.requests.clone(), origin: link.origin.clone() }
    }
}

impl SideStream {
    /// Runs the stream, and reports its end.
    pub(super) async fn run(self) {
        let events = self.events.clone();
        let (uri, path) = (self.target.server.uri.clone(), self.target.path.clone());
        let reason = self.hold().await.unwrap_or_else(|reason| reason);
        debug!(server = %Escaped(&uri), %path, kind = ?reason.kind, reason = reason.message, "stream ended");
        events.disconnected(reason);
    }

    /// Waits for the connection, and runs the stream until its end.
    async fn hold(mut self) -> Result<Disconnect, Disconnect> {
        let link = self.linked.wait_for(Option::is_some).await.ok().and_then(|link| link.clone());
        let no_connection = || Disconnect::new(DisconnectKind::Unreachable, "no connection to the server");
        let SharedLink { requests, origin } = link.ok_or_else(no_connection)?;
        let server = &self.target.server;
        // Tokens may have expired since the connection was made.
        let connect = Connect {
            server,
            credentials: &self.settings.credentials,
            keepalive: bounded(self.target.keepalive),
            keepalive_timeout: bounded(self.settings.keepalive_timeout),
            connect_timeout: bounded(self.settings.connect_timeout),
            events: &self.events,
            tasks: Tasks::default(),
        };
        let headers = connect.headers().await?;
        self.events.connected();
        let call = Call {
            events: self.events.clone(),
            permits: self.permits,
            max_message_size: self.settings.max_message_size,
            server: server.clone(),
            path: self.target.path.clone(),
        };
        let link = connect::Link { requests, end: End::Elsewhere, origin, headers };
        Ok(call.run(link, self.outbound).await)
    }
}
