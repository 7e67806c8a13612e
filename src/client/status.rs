#[cfg(feature = "csds")]
use std::sync::Weak;
use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::{
    Client,
    registry::{Command, Registry},
};
use crate::{
    cache::{AmbientError, ResourceState},
    config::Node,
    engine::{ResourceReport, ServerReport, Status},
    error::WatchError,
    protocol::ConnectionState,
    resource::Version,
};

pub(crate) mod table;

/// What a client knows and does at a moment: what the client status service shows (CSDS, gRFC A40), as values.
///
/// Made by [`Client::status`]. It shows what watches see: a resource that a watch shows with a warning is here with the
/// bytes that are in use, and the [error](ResourceStatus::error) beside them. Trouble with a server as a whole is not the
/// resources', and only told of the [server](ServerStatus::error); that with a file as a whole is of each of its resources, too.
///
/// Its [`Display`](std::fmt::Display) form is a table for operators, with what is wrong below it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientStatus {
    /// Who the client is for its servers.
    pub node_id: Arc<str>,
    /// Tells the clients of a process apart; see [`ClientBuilder::scope`](super::ClientBuilder::scope).
    pub scope: Arc<str>,
    /// When this was the status.
    pub taken_at: SystemTime,
    /// The management servers that were asked for something so far. None when the client was shut down.
    pub servers: Vec<ServerStatus>,
    /// The resources that are watched, by whatever kind of watch: the types in the order of their first use, each in the
    /// order of names. None when the client was shut down.
    pub resources: Vec<ResourceStatus>,
    /// The node as it goes on the wire.
    #[cfg(feature = "csds")]
    pub(crate) node: Bytes,
}

/// How the stream to a management server fares.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Its URI, as in the bootstrap; the path if it is a file.
    pub uri: String,
    /// The one type that is asked for on this stream, by its URL. `None` on an aggregated stream.
    pub type_url: Option<&'static str>,
    /// How the stream to it fares.
    pub connection: ConnectionState,
    /// Why nothing can be had of it: it cannot be reached, or its last stream ended without a response.
    pub error: Option<String>,
}

/// What is known of a resource.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ResourceStatus {
    /// The type URL, such as `type.googleapis.com/envoy.config.cluster.v3.Cluster`.
    pub type_url: &'static str,
    /// Its name; an `xdstp://` name in canonical form.
    pub name: Arc<str>,
    /// What became of the last that was asked or heard of it.
    pub state: ResourceState,
    /// The version of what is in use; empty when nothing is.
    pub version: Version,
    /// When the server last sent what is in use, changed or not.
    pub last_updated: Option<SystemTime>,
    /// The message that is in use, exactly as it was received. `None` when nothing is in use, and for types whose bytes
    /// are [sensitive](crate::Resource::SENSITIVE), such as [`Secret`](crate::resource::Secret).
    pub bytes: Option<Bytes>,
    /// What was wrong with the last update, until a good one (A40-2).
    pub error: Option<UpdateError>,
}

/// The failure of an update.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct UpdateError {
    /// The version of the response that failed; empty when none came in time.
    pub version: Version,
    /// When it failed the last time.
    pub at: SystemTime,
    /// What is wrong.
    pub details: WatchError,
}

/// Who a client is.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) node_id: Arc<str>,
    pub(super) scope: Arc<str>,
    /// The node as it goes on the wire.
    #[cfg(feature = "csds")]
    node: Bytes,
}

/// A client that is not kept alive by this.
#[cfg(feature = "csds")]
#[derive(Debug, Clone)]
pub(crate) struct WeakClient(Weak<Registry>);

#[cfg(feature = "csds")]
impl WeakClient {
    pub(crate) fn has_ended(&self) -> bool {
        self.0.upgrade().is_none_or(|registry| registry.has_ended())
    }

    /// What it knows, unless it has ended.
    pub(crate) async fn status(&self) -> Option<ClientStatus> {
        let registry = self.0.upgrade().filter(|registry| !registry.has_ended())?;
        Some(registry.status().await)
    }
}

/// Whether they are of the same client.
#[cfg(feature = "csds")]
impl PartialEq for WeakClient {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Client {
    /// What the client knows and does at the moment, for its operators.
    ///
    /// It takes a walk of the cache, and holds up nothing else for long; but it is not for use in a loop.
    ///
    /// ```no_run
    /// use xdskit::Client;
    ///
    /// async fn print_status(client: &Client) {
    ///     println!("{}", client.status().await);
    /// }
    /// ```
    pub async fn status(&self) -> ClientStatus {
        self.registry.status().await
    }

    #[cfg(feature = "csds")]
    pub(crate) fn downgrade(&self) -> WeakClient {
        WeakClient(Arc::downgrade(&self.registry))
    }
}

impl Registry {
    pub(super) async fn status(&self) -> ClientStatus {
        let (reply, replied) = oneshot::channel();
        // Where there is no driver any more, there is nothing to tell.
        let status = match self.order(Command::Status { reply }) {
            Ok(()) => replied.await.unwrap_or_default(),
            Err(_) => Status::default(),
        };
        let clock = Clock { now: super::driver::now(), wall: SystemTime::now() };
        ClientStatus::new(self.identity(), status, &clock)
    }
}

impl Identity {
    pub(super) fn new(node: &Node, scope: &str) -> Self {
        Self {
            node_id: node.id.as_str().into(),
            scope: scope.into(),
            #[cfg(feature = "csds")]
            node: crate::protocol::encode_node(node),
        }
    }
}

impl ClientStatus {
    fn new(identity: &Identity, status: Status, clock: &Clock) -> Self {
        let Status { servers, mut resources } = status;
        resources.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
        Self {
            node_id: identity.node_id.clone(),
            scope: identity.scope.clone(),
            taken_at: clock.wall,
            servers: servers.into_iter().map(ServerStatus::from).collect(),
            resources: resources.into_iter().map(|report| ResourceStatus::new(report, clock)).collect(),
            #[cfg(feature = "csds")]
            node: identity.node.clone(),
        }
    }
}

impl From<ServerReport> for ServerStatus {
    fn from(report: ServerReport) -> Self {
        let ServerReport { uri, type_url, connection, failure } = report;
        Self { uri, type_url, connection, error: failure }
    }
}

impl ResourceStatus {
    fn new(report: ResourceReport, clock: &Clock) -> Self {
        let ResourceReport { order: _, type_url, name, state, held, bytes, ambient_error } = report;
        let (version, updated) = held.unzip();
        Self {
            type_url,
            name,
            state,
            version: version.unwrap_or_default(),
            last_updated: updated.map(|at| clock.at(at)),
            bytes,
            error: ambient_error.map(|ambient_error| UpdateError::new(ambient_error, clock)),
        }
    }
}

impl UpdateError {
    fn new(ambient_error: AmbientError, clock: &Clock) -> Self {
        let AmbientError { state: _, error, update } = ambient_error;
        Self { version: update.version, at: clock.at(update.at), details: error }
    }
}

/// One moment on both clocks.
struct Clock {
    now: Instant,
    wall: SystemTime,
}

impl Clock {
    fn at(&self, instant: Instant) -> SystemTime {
        let ago = self.now.saturating_duration_since(instant);
        self.wall.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH)
    }
}
