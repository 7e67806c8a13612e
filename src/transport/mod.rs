//! How a client talks to a management server: connections that carry whole messages, and report what happens to them.
//!
//! [`GrpcTransport`] is the one that clients use: gRPC over HTTP/2. Another one can be given to
//! [`ClientBuilder::transport`](crate::client::ClientBuilder::transport) by implementing [`Transport`].

mod grpc;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedSender;

pub use self::grpc::GrpcTransport;
pub use crate::protocol::{Disconnect, DisconnectKind};

use crate::{
    config::{ApiType, Server},
    protocol::{Input, StreamId},
};

/// Makes connections to management servers.
///
/// ```
/// use bytes::Bytes;
/// use xdskit::transport::{Connection, Disconnect, DisconnectKind, Events, Target, Transport};
///
/// /// A network in which nobody can be reached.
/// #[derive(Debug)]
/// struct Island;
///
/// #[derive(Debug)]
/// struct Nothing;
///
/// impl Transport for Island {
///     fn connect(&self, target: Target, events: Events) -> Box<dyn Connection> {
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
    /// It is called within a tokio runtime. What comes of it is reported as `events`: [`connected`](Events::connected)
    /// when requests can be written, without waiting for any answer of the server, and at the end
    /// [`disconnected`](Events::disconnected).
    fn connect(&self, target: Target, events: Events) -> Box<dyn Connection>;
}

/// A connection, from the first attempt to make it until it is dropped, which aborts it.
pub trait Connection: fmt::Debug + Send {
    /// Writes a message. No other follows until [`Events::request_sent`] was reported for it, which is when the network
    /// took it, not when it was queued.
    fn send(&mut self, message: Bytes);

    /// Reads one more message, to be reported as [`Events::received`]. As many are read as this is called; what a
    /// server sends beyond that has to wait in the network.
    fn read(&mut self);
}

/// Where a connection goes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Target {
    /// The server with its credentials.
    pub server: Arc<Server>,
    /// The variant of the protocol that is spoken there, which is the method to call.
    pub api_type: ApiType,
    /// The interval at which to find out whether the server is still there.
    pub keepalive: Duration,
}

/// Reports what happens to one connection. Clones report of the same one.
///
/// When the last clone is dropped without a report of the end, the connection counts as ended by the server.
#[derive(Debug, Clone)]
pub struct Events {
    reporter: Arc<Reporter>,
}

#[derive(Debug)]
struct Reporter {
    stream: StreamId,
    reports: UnboundedSender<Input>,
}

impl Events {
    pub(crate) fn new(stream: StreamId, reports: UnboundedSender<Input>) -> Self {
        Self { reporter: Arc::new(Reporter { stream, reports }) }
    }

    /// The connection is up, and requests can be written.
    pub fn connected(&self) {
        self.reporter.report(Input::Connected { stream: self.reporter.stream });
    }

    /// The message that was to be sent was taken by the network.
    pub fn request_sent(&self) {
        self.reporter.report(Input::RequestSent { stream: self.reporter.stream });
    }

    /// A message came.
    pub fn received(&self, message: Bytes) {
        self.reporter.report(Input::Received { stream: self.reporter.stream, message });
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
        let reason = Disconnect::new(DisconnectKind::Closed, "the transport gave up the connection");
        self.report(Input::Disconnected { stream: self.stream, reason });
    }
}
