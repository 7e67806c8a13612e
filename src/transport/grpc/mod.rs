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
//! Each attempt has a connection and a task of its own; a broken connection is never reused, and certificate files
//! are read for each one (`crate::tls`). HTTP/2 uses hyper directly and not tonic's channel, because a channel does not expose the
//! reason for the end of a connection, which distinguishes a crash from "too many pings".
//!
//! Load reports are one more stream on the connection of an attempt (`shared`), which lives as long as one of both.

mod call;
mod connect;
mod failure;
mod outgoing;
mod shared;
mod watched_io;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::AbortHandle,
};
#[cfg(feature = "tls")]
use tokio_rustls::rustls::crypto::CryptoProvider;
use tracing::info;

use self::{
    call::Call,
    connect::{Connect, Tasks},
    shared::{Link, SharedLink, SideStream},
};
#[cfg(feature = "tls")]
use super::credentials::RevocationLists;
use super::{
    ConnectRequest, Connection, ConnectionEvents, Disconnect, MetadataSource, Transport,
    credentials::CredentialsRegistry, socket::CredentialSources,
};
#[cfg(feature = "tls")]
use crate::tls::Crypto;
use crate::{config::bounded, escape::Escaped};

/// gRPC over HTTP/2, with or without TLS, over TCP or Unix sockets.
#[derive(Debug, Clone, PartialEq)]
pub struct GrpcTransport {
    settings: Settings,
}

/// The settings of all connections.
#[derive(Debug, Clone, PartialEq)]
struct Settings {
    max_message_size: usize,
    keepalive_timeout: Duration,
    connect_timeout: Duration,
    credentials: CredentialSources,
}

impl GrpcTransport {
    /// Sets the maximum size of a received message in bytes: 64 MiB by default.
    #[must_use]
    pub fn with_max_message_size(mut self, bytes: usize) -> Self {
        self.settings.max_message_size = bytes;
        self
    }

    /// Sets the timeout of the acknowledgement of a keepalive ping: 10 s by default.
    #[must_use]
    pub fn with_keep_alive_timeout(mut self, timeout: Duration) -> Self {
        self.settings.keepalive_timeout = timeout;
        self
    }

    /// Sets the timeout of connecting, including TLS: 20 s by default.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// Sets the implementations of further types of credentials in the bootstrap.
    #[must_use]
    pub fn with_credentials(mut self, credentials: CredentialsRegistry) -> Self {
        self.settings.credentials.registry = credentials;
        self
    }

    /// Refuses servers whose certificate, or one of its authorities, is revoked by a list: none by default.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_certificate_revocation(mut self, lists: RevocationLists) -> Self {
        self.settings.credentials.revoke_by(lists);
        self
    }

    /// Sets the cryptography of TLS. By default it is that of the process or of the features, as described at
    /// [`ClientBuilder::crypto_provider`](crate::client::ClientBuilder::crypto_provider), by the first connection to a server.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_crypto_provider(mut self, provider: impl Into<Arc<CryptoProvider>>) -> Self {
        self.settings.credentials.set_crypto(provider.into());
        self
    }

    /// Adds a source of the metadata of calls, beside that of the bootstrap
    /// ([`Server::initial_metadata`](crate::config::Server::initial_metadata)) and of sources that were added before.
    #[must_use]
    pub fn with_initial_metadata(mut self, source: impl MetadataSource) -> Self {
        self.settings.credentials.metadata.push(source);
        self
    }
}

#[cfg(feature = "tls")]
impl GrpcTransport {
    /// Chooses the cryptography of TLS to a server without earlier connections.
    pub(crate) fn crypto(&self) -> Crypto {
        self.settings.credentials.crypto()
    }
}

#[cfg(any(feature = "rest", feature = "files"))]
impl GrpcTransport {
    pub(super) fn max_message_size(&self) -> usize {
        self.settings.max_message_size
    }

    #[cfg(feature = "rest")]
    pub(super) fn credentials(&self) -> &CredentialSources {
        &self.settings.credentials
    }
}

impl Default for GrpcTransport {
    fn default() -> Self {
        let settings = Settings {
            max_message_size: 64 << 20,
            keepalive_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(20),
            credentials: CredentialSources::default(),
        };
        Self { settings }
    }
}

impl Transport for GrpcTransport {
    fn connect(&self, target: ConnectRequest, events: ConnectionEvents) -> Box<dyn Connection> {
        let (messages, outbound) = mpsc::unbounded_channel();
        let permits = Arc::new(Semaphore::new(0));
        let tasks = Tasks::default();
        let (link, linked) = watch::channel(None);
        let attempt = Attempt {
            target,
            settings: self.settings.clone(),
            events,
            outbound,
            permits: permits.clone(),
            tasks: tasks.clone(),
            link,
        };
        let reader = tokio::spawn(attempt.run()).abort_handle();
        let link = Arc::new(Link { linked, settings: self.settings.clone(), tasks });
        Box::new(GrpcConnection { messages: Some(messages), permits, reader, link })
    }
}

/// The driver's end of a connection.
#[derive(Debug)]
struct GrpcConnection {
    /// `None` once it is half closed.
    messages: Option<mpsc::UnboundedSender<Bytes>>,
    /// A permit for each message that may be read.
    permits: Arc<Semaphore>,
    /// The task of the stream.
    reader: AbortHandle,
    /// The connection, for further streams.
    link: Arc<Link>,
}

impl Connection for GrpcConnection {
    fn send(&mut self, message: Bytes) {
        if let Some(messages) = &self.messages {
            // An error means that the connection has ended, which the reader reports.
            let _ = messages.send(message);
        }
    }

    fn read(&mut self) {
        self.permits.add_permits(1);
    }

    fn open_stream(
        &mut self,
        request: &ConnectRequest,
        events: &ConnectionEvents,
    ) -> Option<Box<dyn Connection>> {
        let (messages, outbound) = mpsc::unbounded_channel();
        let permits = Arc::new(Semaphore::new(0));
        let stream = SideStream {
            target: request.clone(),
            events: events.clone(),
            outbound,
            permits: permits.clone(),
            settings: self.link.settings.clone(),
            linked: self.link.linked.clone(),
        };
        let reader = tokio::spawn(stream.run()).abort_handle();
        Some(Box::new(Self { messages: Some(messages), permits, reader, link: self.link.clone() }))
    }

    fn finish(&mut self) {
        self.messages = None;
    }
}

impl Drop for GrpcConnection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// One attempt to open a stream, and the stream.
#[derive(Debug)]
struct Attempt {
    target: ConnectRequest,
    settings: Settings,
    events: ConnectionEvents,
    /// Requests to write.
    outbound: mpsc::UnboundedReceiver<Bytes>,
    permits: Arc<Semaphore>,
    /// The tasks of the connection.
    tasks: Tasks,
    /// Publishes the connection for further streams.
    link: watch::Sender<Option<SharedLink>>,
}

impl Attempt {
    /// Runs the attempt, and reports its end.
    async fn run(self) {
        let events = self.events.clone();
        let uri = self.target.server.uri.clone();
        let reason = self.hold().await.unwrap_or_else(|reason| reason);
        info!(server = %Escaped(&uri), kind = ?reason.kind, reason = reason.message, "disconnected");
        events.disconnected(reason);
    }

    /// Connects, and runs the stream until its end.
    async fn hold(self) -> Result<Disconnect, Disconnect> {
        let server = &self.target.server;
        let connect = Connect {
            server,
            credentials: &self.settings.credentials,
            keepalive: bounded(self.target.keepalive),
            keepalive_timeout: bounded(
                server.keep_alive.map_or(self.settings.keepalive_timeout, |own| own.timeout),
            ),
            connect_timeout: bounded(self.settings.connect_timeout),
            events: &self.events,
            tasks: self.tasks,
        };
        let link = connect.connect().await?;
        info!(server = %Escaped(&server.uri), "connected");
        self.link.send_replace(Some(SharedLink::of(&link)));
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
