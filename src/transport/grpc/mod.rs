//! gRPC over HTTP/2.
//!
//! ```text
//!   Connection ── messages ──▶ Outbound ──▶ ┌──────────┐
//!        │                        │ sent    │ HTTP/2   │ ──▶ server
//!        └── permits to read ─▶ reader ◀─── └──────────┘ ◀──
//!                                 │ received, disconnected
//!                                 ▼
//!                               ConnectionEvents
//! ```
//!
//! Each attempt has a connection and a task of its own; a broken one is never used again, and files of certificates are
//! read anew. HTTP/2 is spoken with hyper and not with tonic's channel, because a channel keeps to itself why a
//! connection ended, and the difference between a crash and "too many pings" is needed.

mod call;
mod dial;
mod failure;
mod first_read;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{Semaphore, mpsc},
    task::AbortHandle,
};
use tracing::info;

use self::{
    call::Call,
    dial::{Dial, Tasks},
};
use super::{
    ConnectRequest, Connection, ConnectionEvents, Disconnect, Transport, credentials::CredentialsRegistry,
};
use crate::{config::bounded, escape::Escaped};

/// gRPC over HTTP/2, with or without TLS, over TCP or Unix sockets.
#[derive(Debug, Clone, PartialEq)]
pub struct GrpcTransport {
    settings: Settings,
}

#[derive(Debug, Clone, PartialEq)]
struct Settings {
    max_message_size: usize,
    keepalive_timeout: Duration,
    connect_timeout: Duration,
    credentials: CredentialsRegistry,
}

impl GrpcTransport {
    /// Sets the largest message that is accepted, in bytes: 256 MiB by default.
    #[must_use]
    pub fn with_max_message_size(mut self, bytes: usize) -> Self {
        self.settings.max_message_size = bytes;
        self
    }

    /// Sets how long the answer to a keepalive ping may take: 10 s by default.
    #[must_use]
    pub fn with_keepalive_timeout(mut self, timeout: Duration) -> Self {
        self.settings.keepalive_timeout = timeout;
        self
    }

    /// Sets how long it may take to connect, TLS included: 20 s by default.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// Sets the implementations of credentials that the bootstrap names besides the built-in ones.
    #[must_use]
    pub fn with_credentials(mut self, credentials: CredentialsRegistry) -> Self {
        self.settings.credentials = credentials;
        self
    }
}

#[cfg(any(feature = "rest", feature = "files"))]
impl GrpcTransport {
    pub(super) fn max_message_size(&self) -> usize {
        self.settings.max_message_size
    }

    #[cfg(feature = "rest")]
    pub(super) fn credentials(&self) -> &CredentialsRegistry {
        &self.settings.credentials
    }
}

impl Default for GrpcTransport {
    fn default() -> Self {
        let settings = Settings {
            max_message_size: 256 << 20,
            keepalive_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(20),
            credentials: CredentialsRegistry::default(),
        };
        Self { settings }
    }
}

impl Transport for GrpcTransport {
    fn connect(&self, target: ConnectRequest, events: ConnectionEvents) -> Box<dyn Connection> {
        let (messages, outbound) = mpsc::unbounded_channel();
        let permits = Arc::new(Semaphore::new(0));
        let tasks = Tasks::default();
        let attempt = Attempt {
            target,
            settings: self.settings.clone(),
            events,
            outbound,
            permits: permits.clone(),
            tasks: tasks.clone(),
        };
        let reader = tokio::spawn(attempt.run()).abort_handle();
        Box::new(GrpcConnection { messages, permits, reader, tasks })
    }
}

/// The driver's end of a connection.
#[derive(Debug)]
struct GrpcConnection {
    messages: mpsc::UnboundedSender<Bytes>,
    permits: Arc<Semaphore>,
    reader: AbortHandle,
    tasks: Tasks,
}

impl Connection for GrpcConnection {
    fn send(&mut self, message: Bytes) {
        // An error means that the connection has ended, which is reported by the reader.
        let _ = self.messages.send(message);
    }

    fn read(&mut self) {
        self.permits.add_permits(1);
    }
}

impl Drop for GrpcConnection {
    fn drop(&mut self) {
        self.reader.abort();
        self.tasks.end();
    }
}

/// One attempt to hold a stream.
#[derive(Debug)]
struct Attempt {
    target: ConnectRequest,
    settings: Settings,
    events: ConnectionEvents,
    outbound: mpsc::UnboundedReceiver<Bytes>,
    permits: Arc<Semaphore>,
    tasks: Tasks,
}

impl Attempt {
    async fn run(self) {
        let events = self.events.clone();
        let uri = self.target.server.uri.clone();
        let reason = self.hold().await.unwrap_or_else(|reason| reason);
        info!(server = %Escaped(&uri), kind = ?reason.kind, reason = reason.message, "disconnected");
        events.disconnected(reason);
    }

    /// Connects, and holds the stream as long as it can.
    async fn hold(self) -> Result<Disconnect, Disconnect> {
        let server = &self.target.server;
        let dial = Dial {
            server,
            credentials: &self.settings.credentials,
            keepalive: bounded(self.target.keepalive),
            keepalive_timeout: bounded(
                server.keepalive.map_or(self.settings.keepalive_timeout, |own| own.timeout),
            ),
            connect_timeout: bounded(self.settings.connect_timeout),
            events: &self.events,
            tasks: self.tasks,
        };
        let link = dial.connect().await?;
        info!(server = %Escaped(&server.uri), "connected");
        self.events.connected();
        let call = Call {
            events: self.events,
            permits: self.permits,
            max_message_size: self.settings.max_message_size,
            server: server.clone(),
            path: self.target.path,
        };
        Ok(call.run(link, self.outbound).await)
    }
}

#[cfg(all(test, feature = "test-util"))]
mod tests;
