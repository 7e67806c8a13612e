//! Connections to management servers: they transfer whole messages and report events.
//!
//! Clients use [`GrpcTransport`] by default: gRPC over HTTP/2.
//! [`ClientBuilder::transport`](crate::client::ClientBuilder::transport) sets a custom implementation of [`Transport`].

pub mod credentials;
#[cfg(feature = "files")]
mod files;
mod grpc;
mod metadata;
#[cfg(feature = "rest")]
mod rest;
mod socket;

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedSender;

pub use self::{grpc::GrpcTransport, metadata::MetadataSource};
pub use crate::protocol::{Disconnect, DisconnectKind};

use crate::{
    config::{ApiType, Polling, Server},
    engine::Input,
    protocol::{ConnectTarget, StreamEvent, StreamId},
};

/// A factory of connections to management servers.
///
/// ```
/// use bytes::Bytes;
/// use xdskit::transport::{Connection, Disconnect, DisconnectKind, ConnectionEvents, ConnectRequest, Transport};
///
/// /// A network in which all servers are unreachable.
/// #[derive(Debug)]
/// struct Island;
///
/// #[derive(Debug)]
/// struct Nothing;
///
/// impl Transport for Island {
///     fn connect(&self, target: ConnectRequest, events: ConnectionEvents) -> Box<dyn Connection> {
///         let why = format!("{} is beyond the sea", target.server.uri);
///         events.disconnected(Disconnect::new(DisconnectKind::Unreachable, why));
///         Box::new(Nothing)
///     }
/// }
///
/// impl Connection for Nothing {
///     fn send(&mut self, _: Bytes) {}
///     fn read(&mut self) {}
/// }
/// ```
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Starts to connect to a server and to open a discovery stream, and returns at once.
    ///
    /// It is called within a tokio runtime. The outcome is reported to `events`:
    /// [`connected`](ConnectionEvents::connected) when requests can be written, without waiting for a response of the
    /// server, [`alive`](ConnectionEvents::alive) when the first bytes were read, and
    /// [`disconnected`](ConnectionEvents::disconnected) at the end.
    ///
    /// A server with [`ConnectRequest::polling`] has no stream. Each message is a poll, which ends in one of
    /// [`received`](ConnectionEvents::received), [`unchanged`](ConnectionEvents::unchanged),
    /// [`not_found`](ConnectionEvents::not_found) and [`failed`](ConnectionEvents::failed); the client decides when
    /// to poll.
    fn connect(&self, target: ConnectRequest, events: ConnectionEvents) -> Box<dyn Connection>;
}

/// A connection, from the first attempt to open it until it is dropped, which aborts it.
pub trait Connection: fmt::Debug + Send {
    /// Writes a message. No other message follows until [`ConnectionEvents::request_sent`] was reported for it, which
    /// must be when the network accepted it, not when it was queued.
    fn send(&mut self, message: Bytes);

    /// Reads one more message, to be reported as [`ConnectionEvents::received`]. One message is read per call;
    /// further messages wait in the network.
    fn read(&mut self);

    /// Opens one more stream to the same server, over the network connection of this one: that of load reports. By default there
    /// is none, and [`Transport::connect`] is called for it. If this connection is still being made, the stream waits for it; it
    /// outlives the stream of this connection.
    fn open_stream(
        &mut self,
        request: &ConnectRequest,
        events: &ConnectionEvents,
    ) -> Option<Box<dyn Connection>> {
        let _ = (request, events);
        None
    }

    /// No further message follows: the stream is half closed when all are written, and the server's end of it is reported as
    /// [`ConnectionEvents::disconnected`]. By default this does nothing, and the stream is aborted a second later.
    fn finish(&mut self) {}
}

/// The server and the stream of a connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectRequest {
    /// The server with its credentials.
    pub server: Arc<Server>,
    /// The variant of the protocol.
    pub api_type: ApiType,
    /// The path of the gRPC method, such as `/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters`, or of
    /// REST, such as `/v3/discovery:clusters`.
    pub path: Cow<'static, str>,
    /// The settings of polling; `None` for a stream.
    pub polling: Option<Polling>,
    /// The interval of keepalive pings.
    pub keepalive: Duration,
}

/// The transports of a client, chosen by the source.
#[derive(Debug)]
pub(crate) struct Transports {
    /// The transport of servers with streams.
    servers: Arc<dyn Transport>,
    /// The transport of polled servers; `None` without the feature.
    polled: Option<Arc<dyn Transport>>,
    /// The transport of files.
    #[cfg(feature = "files")]
    files: files::Files,
}

impl Transports {
    /// Creates the transports. One of the application (`own`) is for all servers, but not for files.
    pub(crate) fn new(grpc: GrpcTransport, own: Option<Arc<dyn Transport>>) -> Self {
        #[cfg(feature = "rest")]
        let polled: Option<Arc<dyn Transport>> = Some(Arc::new(rest::RestTransport::new(&grpc)));
        #[cfg(not(feature = "rest"))]
        let polled = None;
        #[cfg(feature = "files")]
        let files = files::Files::new(grpc.max_message_size());
        let (servers, polled) = match own {
            Some(own) => (own.clone(), Some(own)),
            None => (Arc::new(grpc) as Arc<dyn Transport>, polled),
        };
        Self {
            servers,
            polled,
            #[cfg(feature = "files")]
            files,
        }
    }

    /// Opens a stream that carries no resources, on a connection of its own.
    pub(crate) fn open_stream(
        &self,
        request: ConnectRequest,
        events: ConnectionEvents,
    ) -> Box<dyn Connection> {
        self.servers.connect(request, events)
    }

    /// Connects to a source by its transport.
    pub(crate) fn connect(
        &self,
        to: ConnectTarget,
        keepalive: Duration,
        events: ConnectionEvents,
    ) -> Box<dyn Connection> {
        match to {
            ConnectTarget::Server { server, api_type, path, polling } => {
                let target = ConnectRequest { server, api_type, path, polling, keepalive };
                let transport = if polling.is_some() { self.polled.as_ref() } else { Some(&self.servers) };
                match transport {
                    Some(transport) => transport.connect(target, events),
                    None => {
                        let server = &target.server.uri;
                        unsupported(&format!("{server} cannot be polled without the feature `rest`"), &events)
                    }
                }
            }
            #[cfg(feature = "files")]
            ConnectTarget::File { file, type_url } => self.files.open(file, type_url, events),
            #[cfg(not(feature = "files"))]
            ConnectTarget::File { file, type_url } => {
                unsupported(&format!("{type_url} in {file} needs the feature `files`"), &events)
            }
        }
    }
}

/// Returns the connection of a build without the required feature, which ends at once.
fn unsupported(why: &str, events: &ConnectionEvents) -> Box<dyn Connection> {
    events.disconnected(Disconnect::new(DisconnectKind::Unreachable, why));
    Box::new(Unsupported)
}

/// A connection that does nothing.
#[derive(Debug)]
struct Unsupported;

impl Connection for Unsupported {
    fn send(&mut self, _: Bytes) {}
    fn read(&mut self) {}
}

/// Reports the events of one connection. Clones report for the same connection.
///
/// If the last clone is dropped without a report of the end, the connection counts as ended by the server.
#[derive(Debug, Clone)]
pub struct ConnectionEvents {
    /// Shared by clones; its drop reports the end of the connection.
    reporter: Arc<Reporter>,
}

/// The sender of the events of one connection, whose drop is reported as its end.
#[derive(Debug)]
struct Reporter {
    /// The stream of which events are reported. The engine ignores those of earlier streams.
    stream: StreamId,
    /// The queue of the driver.
    reports: UnboundedSender<Input>,
}

impl ConnectionEvents {
    pub(crate) fn new(stream: StreamId, reports: UnboundedSender<Input>) -> Self {
        Self { reporter: Arc::new(Reporter { stream, reports }) }
    }

    /// Returns a weak handle.
    pub(crate) fn downgrade(&self) -> WeakConnectionEvents {
        WeakConnectionEvents { reporter: Arc::downgrade(&self.reporter) }
    }

    /// Reports that the connection is established, and requests can be written.
    pub fn connected(&self) {
        self.reporter.report(StreamEvent::Connected { stream: self.reporter.stream });
    }

    /// Reports the first bytes read from the connection, whether they belong to a response or not: with HTTP/2, the
    /// server's settings. To be called once, possibly before [`connected`](Self::connected).
    ///
    /// The kernel of a frozen server accepts connections, so only this report distinguishes it from a server without
    /// anything to send. Without it, a stream counts as working after its first response; if none is received within
    /// the does-not-exist timeout, the connection is treated as one to a frozen server and closed. It is not needed
    /// for polled servers.
    pub fn alive(&self) {
        self.reporter.report(StreamEvent::Alive { stream: self.reporter.stream });
    }

    /// Reports that the server has announced the end of the connection, as by GOAWAY of HTTP/2. A stream without any response is
    /// closed the does-not-exist timeout later; without this report it lasts until the server ends it.
    pub fn going_away(&self) {
        self.reporter.report(StreamEvent::GoingAway { stream: self.reporter.stream });
    }

    /// Reports that the network has accepted the message of [`Connection::send`].
    pub fn request_sent(&self) {
        self.reporter.report(StreamEvent::RequestSent { stream: self.reporter.stream });
    }

    /// Reports a received message.
    pub fn received(&self, message: Bytes) {
        let at = Some(tokio::time::Instant::now().into_std());
        self.reporter.report(StreamEvent::Received { stream: self.reporter.stream, message, at });
    }

    /// Reports the result of a poll: nothing has changed (status 304).
    pub fn unchanged(&self) {
        self.reporter.report(StreamEvent::Unchanged { stream: self.reporter.stream });
    }

    /// Reports the result of a poll: the server has none of the resources (status 404), which is equivalent to a
    /// response without resources.
    pub fn not_found(&self) {
        self.reporter.report(StreamEvent::NotFound { stream: self.reporter.stream });
    }

    /// Reports the failure of a poll: there was no usable response. The connection continues.
    pub fn failed(&self, reason: Disconnect) {
        self.reporter.report(StreamEvent::Failed { stream: self.reporter.stream, reason });
    }

    /// Reports that the connection could not be opened, or has ended. Later reports are ignored.
    pub fn disconnected(&self, reason: Disconnect) {
        self.reporter.report(StreamEvent::Disconnected { stream: self.reporter.stream, reason });
    }
}

/// A weak handle of [`ConnectionEvents`]: dropping the last strong one reports the end of the connection, dropping this one does
/// not.
#[derive(Debug)]
pub(crate) struct WeakConnectionEvents {
    reporter: Weak<Reporter>,
}

impl WeakConnectionEvents {
    /// As [`ConnectionEvents::going_away`].
    pub(crate) fn going_away(&self) {
        if let Some(reporter) = self.reporter.upgrade() {
            ConnectionEvents { reporter }.going_away();
        }
    }
}

impl Reporter {
    /// Sends an event to the driver.
    fn report(&self, event: StreamEvent) {
        // An error means that the client has ended.
        let _ = self.reports.send(Input::Transport(event));
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        let reason = Disconnect::new(DisconnectKind::Closed, "the transport dropped the connection");
        self.report(StreamEvent::Disconnected { stream: self.stream, reason });
    }
}

/// The user agent of HTTP requests.
const AGENT: &str = concat!("xdskit/", env!("CARGO_PKG_VERSION"));
