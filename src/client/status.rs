//! The status of a client, for debugging.

#[cfg(feature = "csds")]
use std::sync::Weak;
use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::{Client, clock::now, command::Command, identity::Identity, registry::Registry};
use crate::{
    cache::{AmbientError, ResourceState},
    engine::{ResourceReport, ServerReport, Status},
    error::WatchError,
    lrs::{LoadStreamReport, LoadStreamState},
    protocol::ConnectionState,
    redact,
    resource::{Remarks, Version},
};

pub(crate) mod table;

/// The state of all servers and resources of a client at one time: the contents of the client status service (CSDS, gRFC A40)
/// as values.
///
/// Created by [`Client::status`]. It agrees with the watches: a resource with a warning has the bytes that are in use
/// and an [error](ResourceStatus::error). The error of a server as a whole is reported for the
/// [server](ServerStatus::error) alone; the error of a file as a whole is reported for each of its resources, too.
///
/// Its [`Display`](std::fmt::Display) form is a table for operators, followed by the errors.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientStatus {
    /// The id of the node in the bootstrap.
    pub node_id: Arc<str>,
    /// The name that distinguishes the clients of a process; see
    /// [`ClientBuilder::scope`](super::ClientBuilder::scope).
    pub scope: Arc<str>,
    /// The time of this status.
    pub taken_at: SystemTime,
    /// The management servers that were contacted so far. Empty after the client was shut down.
    pub servers: Vec<ServerStatus>,
    /// The streams of load reports, of the servers that load was ever reported to.
    pub load_reports: Vec<LoadReportStatus>,
    /// The watched resources, with any kind of watch: types in the order of their first use, resources in the order
    /// of names. Empty after the client was shut down.
    pub resources: Vec<ResourceStatus>,
    /// The encoded node.
    #[cfg(feature = "csds")]
    pub(crate) node: Bytes,
}

/// The state of the stream to a management server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// The URI, as in the bootstrap, or the path of a file.
    pub uri: String,
    /// The type URL of the only type on this stream; `None` for an aggregated stream.
    pub type_url: Option<&'static str>,
    /// The state of the connection.
    pub connection: ConnectionState,
    /// The reason why the server is unavailable: it is unreachable, or its last stream ended without a response.
    pub error: Option<String>,
    /// When the current stream was opened; `None` without one.
    pub connected_since: Option<SystemTime>,
    /// How the server names itself (`control_plane.identifier` of its responses), such as with its version and instance, at most 200
    /// bytes. `None` if it never did.
    pub identifier: Option<Arc<str>>,
    /// The last `system_version_info` of the incremental variant, at most 200 bytes.
    pub system_version: Option<Arc<str>>,
}

/// The state of the load reports to a management server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReportStatus {
    /// The URI, as in the bootstrap.
    pub uri: String,
    /// The state of the stream.
    pub state: LoadStreamState,
    /// The time since which it is in this state.
    pub since: SystemTime,
    /// The interval of the reports; `None` as long as the server has not asked for any.
    pub interval: Option<Duration>,
    /// The number of clusters that the server has named; `None` if it asks for all, or has not asked.
    pub wanted_clusters: Option<usize>,
    /// The last report.
    pub last_report: Option<LastLoadReport>,
    /// The number of requests with reports.
    pub reports_sent: u64,
    /// Their size in bytes.
    pub report_bytes: u64,
    /// The number of streams that failed.
    pub failures: u64,
    /// The number of clusters whose last counts were dropped, since too many waited for a report.
    pub dropped_residues: u64,
    /// The number of values of backend metrics that were dropped, since they had too many names.
    pub dropped_metrics: u64,
}

/// A load report that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastLoadReport {
    /// The time at which it was written.
    pub at: SystemTime,
    /// The number of clusters in it.
    pub clusters: usize,
    /// Its size in bytes.
    pub bytes: usize,
}

/// The state of a resource.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ResourceStatus {
    /// The type URL, such as `type.googleapis.com/envoy.config.cluster.v3.Cluster`.
    pub type_url: &'static str,
    /// The name; an `xdstp://` name in canonical form.
    pub name: Arc<str>,
    /// The state after the last request or response.
    pub state: ResourceState,
    /// The version of the resource in use; empty if there is none.
    pub version: Version,
    /// The time at which the server last sent the resource in use, changed or not.
    pub last_updated: Option<SystemTime>,
    /// The bytes of the resource in use, as received, with `[redacted]` in place of each credential: inline private keys,
    /// passwords, session ticket keys and tokens, in extensions as well. `None` if there is none, and for types whose
    /// bytes are [sensitive](crate::Resource::SENSITIVE), such as [`Secret`](crate::resource::Secret).
    pub bytes: Option<Bytes>,
    /// The failure of the last update, until an update succeeds.
    pub error: Option<UpdateError>,
    /// What is not used of the resource in use.
    pub remarks: Remarks,
    /// Whether the resource in use is one of [`ClientBuilder::initial_resources`](super::ClientBuilder::initial_resources): no server
    /// has answered the name.
    pub is_initial: bool,
}

/// The failure of an update.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct UpdateError {
    /// The version of the rejected response; empty if none was received in time.
    pub version: Version,
    /// The time of the last failure.
    pub at: SystemTime,
    /// The reason.
    pub details: WatchError,
}

/// A reference that does not keep the client alive.
///
/// The status service of a process may outlive its clients, and must not keep their streams open.
#[cfg(feature = "csds")]
#[derive(Debug, Clone)]
pub(crate) struct WeakClient(Weak<Registry>);

#[cfg(feature = "csds")]
impl WeakClient {
    pub(crate) fn has_ended(&self) -> bool {
        self.0.upgrade().is_none_or(|registry| registry.has_ended())
    }

    /// The status of the client, unless it has ended.
    pub(crate) async fn status(&self) -> Option<ClientStatus> {
        let registry = self.0.upgrade().filter(|registry| !registry.has_ended())?;
        Some(registry.status().await)
    }
}

/// Equality is that of the clients.
#[cfg(feature = "csds")]
impl PartialEq for WeakClient {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Client {
    /// The current state of all servers and resources of the client, for its operators.
    ///
    /// It iterates over the whole cache, so it is too expensive for a tight loop; watches are not delayed by it.
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
    /// The status of this part of a client. The driver only copies its state: sorting, clocks and redaction are done by the
    /// caller.
    pub(super) async fn status(&self) -> ClientStatus {
        let (reply, replied) = oneshot::channel();
        // Without a driver, the status is empty.
        let status = match self.order(Command::Status { reply }) {
            // The driver may end between the command and the reply.
            Ok(()) => replied.await.unwrap_or_default(),
            Err(_) => Default::default(),
        };
        let clock = Clock { now: now(), wall: SystemTime::now() };
        let (status, load_reports) = status;
        let status = ClientStatus::new(self.identity(), status, &clock);
        let load_reports = load_reports.into_iter().map(|report| LoadReportStatus::new(report, &clock));
        ClientStatus { load_reports: load_reports.collect(), ..status }
    }
}

impl ClientStatus {
    fn new(identity: &Identity, status: Status, clock: &Clock) -> Self {
        let Status { servers, mut resources } = status;
        // The order of a type is that of its first use: the listener comes before the routes and clusters that it leads to.
        resources.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
        Self {
            node_id: identity.node_id.clone(),
            scope: identity.scope.clone(),
            taken_at: clock.wall,
            servers: servers.into_iter().map(|report| ServerStatus::new(report, clock)).collect(),
            load_reports: Vec::new(),
            resources: resources.into_iter().map(|report| ResourceStatus::new(report, clock)).collect(),
            #[cfg(feature = "csds")]
            node: identity.node.clone(),
        }
    }
}

impl ServerStatus {
    fn new(report: ServerReport, clock: &Clock) -> Self {
        let ServerReport { uri, type_url, connection, failure, connected_at, identifier, system_version } =
            report;
        Self {
            uri,
            type_url,
            connection,
            error: failure,
            connected_since: connected_at.map(|at| clock.at(at)),
            identifier: identifier.filter(|identifier| !identifier.is_empty()),
            system_version,
        }
    }
}

impl LoadReportStatus {
    fn new(report: LoadStreamReport, clock: &Clock) -> Self {
        Self {
            uri: report.server.uri.to_string(),
            state: report.state,
            since: clock.at(report.since),
            interval: report.interval,
            wanted_clusters: report.wanted,
            last_report: report.last_report.map(|last| LastLoadReport {
                at: clock.at(last.at),
                clusters: last.clusters,
                bytes: last.bytes,
            }),
            reports_sent: report.reports_sent,
            report_bytes: report.report_bytes,
            failures: report.failures,
            dropped_residues: report.dropped_residues,
            dropped_metrics: report.dropped_metrics,
        }
    }
}

impl ResourceStatus {
    fn new(report: ResourceReport, clock: &Clock) -> Self {
        let ResourceReport {
            order: _,
            type_url,
            name,
            state,
            held,
            bytes,
            ambient_error,
            remarks,
            is_initial,
        } = report;
        let (version, updated) = held.unzip();
        Self {
            type_url,
            name,
            state,
            version: version.unwrap_or_default(),
            last_updated: updated.map(|at| clock.at(at)),
            // Here and not in the cache, which compares responses with the bytes as they were sent.
            bytes: bytes.map(|bytes| redact::redacted(type_url, &bytes).map_or(bytes, Bytes::from)),
            error: ambient_error.map(|ambient_error| UpdateError::new(ambient_error, clock)),
            remarks,
            is_initial,
        }
    }
}

impl UpdateError {
    fn new(ambient_error: AmbientError, clock: &Clock) -> Self {
        let AmbientError { state: _, error, update } = ambient_error;
        Self { version: update.version, at: clock.at(update.at), details: error }
    }
}

/// One point in time on both clocks.
///
/// The engine has no wall clock, which may be set back; times of events are converted by their age.
struct Clock {
    /// The time on the clock of timers.
    now: Instant,
    /// The time of day.
    wall: SystemTime,
}

impl Clock {
    /// The time of day of a time of timers.
    fn at(&self, instant: Instant) -> SystemTime {
        let ago = self.now.saturating_duration_since(instant);
        self.wall.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH)
    }
}
