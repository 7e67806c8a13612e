//! Connections to management servers: they transfer whole messages and report events.
//!
//! Clients use [`GrpcTransport`] by default: gRPC over HTTP/2.
//! [`ClientBuilder::transport`](crate::client::ClientBuilder::transport) sets a custom implementation of [`Transport`].

pub mod credentials;
#[cfg(feature = "files")]
mod files;
mod grpc;
#[cfg(feature = "rest")]
mod rest;
mod socket;

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedSender;

pub use self::grpc::GrpcTransport;
pub use crate::protocol::{Disconnect, DisconnectKind};

use crate::{
    config::{ApiType, Polling, Server},
    protocol::{ConnectTarget, Input, StreamId},
};

/// Makes connections to management servers.
///
/// ```
/// use bytes::Bytes;
/// use xdskit::transport::{Connection, Disconnect, DisconnectKind, ConnectionEvents, ConnectRequest, Transport};
///
/// /// A network in which nobody can be reached.
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
    /// Begins to connect to a server and to open a stream for discovery there, and returns at once.
    ///
    /// It is called within a tokio runtime. What comes of it is reported as `events`: [`connected`](ConnectionEvents::connected)
    /// when requests can be written, without waiting for any answer of the server, [`alive`](ConnectionEvents::alive) when something was
    /// read, and at the end [`disconnected`](ConnectionEvents::disconnected).
    ///
    /// A server with [`ConnectRequest::polling`] has no stream. Each message is a question, which ends in one of
    /// [`received`](ConnectionEvents::received), [`unchanged`](ConnectionEvents::unchanged), [`not_found`](ConnectionEvents::not_found) and [`failed`](ConnectionEvents::failed); when to ask is decided
    /// by the client.
    fn connect(&self, target: ConnectRequest, events: ConnectionEvents) -> Box<dyn Connection>;
}

/// A connection, from the first attempt to make it until it is dropped, which aborts it.
pub trait Connection: fmt::Debug + Send {
    /// Writes a message. No other follows until [`ConnectionEvents::request_sent`] was reported for it, which is when the network
    /// took it, not when it was queued.
    fn send(&mut self, message: Bytes);

    /// Reads one more message, to be reported as [`ConnectionEvents::received`]. As many are read as this is called; what a
    /// server sends beyond that has to wait in the network.
    fn read(&mut self);
}

/// The server and the stream that a connection is made for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectRequest {
    /// The server with its credentials.
    pub server: Arc<Server>,
    /// The variant of the protocol that is spoken there.
    pub api_type: ApiType,
    /// The path of the method to call, such as `/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters`, or of
    /// REST, such as `/v3/discovery:clusters`.
    pub path: Cow<'static, str>,
    /// How a server is polled; `None` where there is a stream.
    pub polling: Option<Polling>,
    /// The interval at which to find out whether the server is still there.
    pub keepalive: Duration,
}

/// What a client connects with: transports for servers with streams and for those that are polled, and another for files.
#[derive(Debug)]
pub(crate) struct Transports {
    servers: Arc<dyn Transport>,
    /// None if the build lacks it.
    polled: Option<Arc<dyn Transport>>,
    #[cfg(feature = "files")]
    files: files::Files,
}

impl Transports {
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
            ConnectTarget::File { file, type_url } => self.files.open((file, type_url), events),
            #[cfg(not(feature = "files"))]
            ConnectTarget::File { file, type_url } => {
                unsupported(&format!("{type_url} in {file} needs the feature `files`"), &events)
            }
        }
    }
}

/// What a build without the feature that is needed can say.
fn unsupported(why: &str, events: &ConnectionEvents) -> Box<dyn Connection> {
    events.disconnected(Disconnect::new(DisconnectKind::Unreachable, why));
    Box::new(Unsupported)
}

#[derive(Debug)]
struct Unsupported;

impl Connection for Unsupported {
    fn send(&mut self, _: Bytes) {}
    fn read(&mut self) {}
}

/// Reports what happens to one connection. Clones report of the same one.
///
/// When the last clone is dropped without a report of the end, the connection counts as ended by the server.
#[derive(Debug, Clone)]
pub struct ConnectionEvents {
    reporter: Arc<Reporter>,
}

#[derive(Debug)]
struct Reporter {
    stream: StreamId,
    reports: UnboundedSender<Input>,
}

impl ConnectionEvents {
    pub(crate) fn new(stream: StreamId, reports: UnboundedSender<Input>) -> Self {
        Self { reporter: Arc::new(Reporter { stream, reports }) }
    }

    /// The connection is up, and requests can be written.
    pub fn connected(&self) {
        self.reporter.report(Input::Connected { stream: self.reporter.stream });
    }

    /// The first bytes of the server were read from the connection, be they a response or not: with HTTP/2, its settings. To be
    /// reported once, also before [`connected`](Self::connected).
    ///
    /// The kernel of a frozen server accepts connections, so that only this tells it from one that has nothing to send. Without it
    /// a stream counts as good when its first response has come; where none comes within the does-not-exist time, the connection is
    /// given up as one to a frozen server. It is not needed where servers are polled.
    pub fn alive(&self) {
        self.reporter.report(Input::Alive { stream: self.reporter.stream });
    }

    /// The message that was to be sent was taken by the network.
    pub fn request_sent(&self) {
        self.reporter.report(Input::RequestSent { stream: self.reporter.stream });
    }

    /// A message came.
    pub fn received(&self, message: Bytes) {
        self.reporter.report(Input::Received { stream: self.reporter.stream, message });
    }

    /// The server was asked, and has nothing else to say than before (a poll's status 304).
    pub fn unchanged(&self) {
        self.reporter.report(Input::Unchanged { stream: self.reporter.stream });
    }

    /// The server was asked, and has none of what it was asked for (a poll's status 404): the same as a response without
    /// resources.
    pub fn not_found(&self) {
        self.reporter.report(Input::NotFound { stream: self.reporter.stream });
    }

    /// The server was asked, and did not answer with what can be used. The connection goes on.
    pub fn failed(&self, reason: Disconnect) {
        self.reporter.report(Input::Failed { stream: self.reporter.stream, reason });
    }

    /// The connection could not be made, or has ended. Reports that follow are ignored.
    pub fn disconnected(&self, reason: Disconnect) {
        self.reporter.report(Input::Disconnected { stream: self.reporter.stream, reason });
    }
}

impl Reporter {
    fn report(&self, event: Input) {
        // An error means that the client has ended.
        let _ = self.reports.send(event);
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        let reason = Disconnect::new(DisconnectKind::Closed, "the transport dropped the connection");
        self.report(Input::Disconnected { stream: self.stream, reason });
    }
}

/// What the client says that it is in HTTP.
const AGENT: &str = concat!("xdskit/", env!("CARGO_PKG_VERSION"));
