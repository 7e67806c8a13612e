//! The control plane as applications see it.

use std::{io, sync::Arc};

use bytes::Bytes;
use tokio::net::{TcpListener, ToSocketAddrs};
use tonic::{Status, service::Routes};

mod builder;
mod handle;

pub use self::{builder::ControlPlaneBuilder, handle::ServerHandle};

#[cfg(feature = "tls")]
use super::server_tls::ServerTls;
#[cfg(feature = "test-util")]
use super::store::loads::Loads;
use super::{
    headers::Headers,
    hub::{Command, Hub},
    load_hub::{LoadCommand, LoadFault},
    load_reports::LoadReports,
    message::Response,
    server_limits::ServerLimits,
    service::DiscoveryServices,
    session::{Held, LoadReporting},
    store::{AnyResource, Store, Transaction, loads::LoadTotals},
    subscriptions::{SubscriptionChanges, Subscriptions},
};
use crate::pb::envoy::service::load_stats::v3::LoadStatsResponse;

/// A management server: serves resources to any number of clients, over ADS or the services of single types, in both
/// variants of the protocol and both versions of the transport (v3 and v2).
///
/// It is a handle: clones are the same control plane. It does nothing until it [serves](Self::serve).
///
/// ```
/// use xdskit::{
///     control_plane::{ControlPlane, type_url},
///     pb::envoy::config::cluster::v3::Cluster,
/// };
///
/// #[tokio::main]
/// async fn main() -> std::io::Result<()> {
///     let control_plane = ControlPlane::builder().version_prefix("2026-11-").build();
///     control_plane.update(|tx| {
///         tx.set(Cluster { name: "shop".into(), ..Cluster::default() });
///     });
///     let server = control_plane.serve("127.0.0.1:0").await?;
///     println!("clients may connect to {}", server.addr());
///     control_plane.update(|tx| {
///         tx.remove(type_url::CLUSTER, "shop"); // Connected clients are updated at once.
///     });
///     server.shutdown().await;
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone)]
pub struct ControlPlane {
    /// The state that clones and streams share.
    hub: Arc<Hub>,
}

impl ControlPlane {
    /// A control plane without resources, with default settings.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A builder with settings.
    pub fn builder() -> ControlPlaneBuilder {
        ControlPlaneBuilder::new()
    }

    /// Serves on an address without TLS; port 0 selects a free port. Must be called on a tokio runtime.
    ///
    /// A control plane may serve on several addresses. With the feature `tls`, `serve_tls` serves with TLS.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn serve(&self, addr: impl ToSocketAddrs) -> io::Result<ServerHandle> {
        ServerHandle::start(self.clone(), TcpListener::bind(addr).await?, None)
    }

    /// Serves on an address with TLS, as [`serve`](Self::serve) does without it.
    ///
    /// # Errors
    /// The address cannot be bound.
    #[cfg(feature = "tls")]
    pub async fn serve_tls(&self, addr: impl ToSocketAddrs, tls: ServerTls) -> io::Result<ServerHandle> {
        ServerHandle::start(self.clone(), TcpListener::bind(addr).await?, Some(tls))
    }

    /// The services for a custom gRPC server, routed by the path of a request; see [`routes`](Self::routes) for a
    /// tonic server. Limits of connections are those of that server.
    pub fn service(&self) -> DiscoveryServices {
        DiscoveryServices::new(self.hub.clone())
    }

    /// The services as routes for a [`tonic::transport::Server`]: they handle requests that no other service of it
    /// handles.
    ///
    /// ```
    /// use tonic::transport::Server;
    /// use xdskit::control_plane::ControlPlane;
    ///
    /// let control_plane = ControlPlane::new();
    /// let router = Server::builder().add_routes(control_plane.routes());
    /// ```
    pub fn routes(&self) -> Routes {
        let mut routes = Routes::default();
        let router = std::mem::take(routes.axum_router_mut()).fallback_service(self.service());
        *routes.axum_router_mut() = router;
        routes
    }

    /// Returns the limits of requests and connections.
    pub(super) fn server_limits(&self) -> &ServerLimits {
        &self.hub.server_limits
    }

    /// Changes resources; all changes of one call are sent together. Returns whether anything changed.
    pub fn update(&self, change: impl FnOnce(&mut Transaction<'_>)) -> bool {
        self.hub.change(|state| state.store.update(change))
    }

    /// Adds or replaces one resource. Returns whether anything changed.
    pub fn set(&self, resource: impl Into<AnyResource>) -> bool {
        self.update(|tx| {
            tx.set(resource);
        })
    }

    /// Removes one resource. Returns whether it existed.
    pub fn remove(&self, type_url: &str, name: &str) -> bool {
        self.update(|tx| {
            tx.remove(type_url, name);
        })
    }

    /// The current resources.
    pub fn store(&self) -> Store {
        self.hub.state().store
    }

    /// The current subscriptions of all clients together.
    pub fn subscriptions(&self) -> Subscriptions {
        self.hub.subscriptions()
    }

    /// The changes of all clients' subscriptions, for a server that fetches resources on demand; see
    /// [`ControlPlaneBuilder::on_demand`].
    ///
    /// ```no_run
    /// use xdskit::control_plane::{AnyResource, ControlPlane};
    ///
    /// #[tokio::main]
    /// async fn main() -> std::io::Result<()> {
    ///     let control_plane = ControlPlane::builder().on_demand(true).build();
    ///     let server = control_plane.serve("127.0.0.1:18000").await?;
    ///     println!("clients may connect to {}", server.addr());
    ///     let mut changes = control_plane.subscription_changes();
    ///     while let Some(change) = changes.next().await {
    ///         let (type_url, name) = (&*change.type_url, &*change.name);
    ///         let found = if change.subscribed { look_up(name).await } else { None };
    ///         control_plane.update(|tx| {
    ///             match found {
    ///                 Some(bytes) => tx.set(AnyResource::new(type_url, name, bytes)),
    ///                 None if change.subscribed => tx.set_absent(type_url, name),
    ///                 None if control_plane.subscriptions().streams(type_url, name) == 0 => tx.remove(type_url, name),
    ///                 None => tx, // A new subscription, whose change follows.
    ///             };
    ///         });
    ///     }
    ///     Ok(())
    /// }
    ///
    /// /// Returns the message of the resource from its storage.
    /// async fn look_up(name: &str) -> Option<Vec<u8>> {
    ///     std::fs::read(format!("/var/lib/mesh/{name}")).ok()
    /// }
    /// ```
    pub fn subscription_changes(&self) -> SubscriptionChanges {
        self.hub.subscription_changes()
    }

    /// Stops sending the held types, on all streams. Requests are still read.
    pub fn set_held(&self, held: Held) {
        self.hub.change(|state| {
            state.held = held;
            true
        });
    }

    /// The held types.
    pub fn held(&self) -> Held {
        self.hub.state().held
    }

    /// Sets the time at which streams get the response headers, for new streams and those without headers. Intended
    /// for tests of clients.
    pub fn set_headers(&self, headers: Headers) {
        self.hub.change(|state| {
            state.headers = headers;
            true
        });
        self.hub.load_reporting.change(|state| state.headers = headers);
    }

    /// Sets whether requests are read. Unread requests block a client once its flow-control window is full. Intended
    /// for tests of clients.
    pub fn set_reading(&self, reading: bool) {
        self.hub.change(|state| {
            state.reading_paused = !reading;
            true
        });
    }

    /// Sets a status for all REST responses, in place of resources; `None` ends this. Intended for tests of clients.
    #[cfg(feature = "json")]
    pub fn set_rest_status(&self, status: Option<http::StatusCode>) {
        self.hub.change(|state| {
            state.rest_status = status;
            true
        });
    }

    /// Sets whether REST requests without matching resources get the status 404, as with sovereign, in place of an
    /// empty response. Intended for tests of clients.
    #[cfg(feature = "json")]
    pub fn set_rest_not_found(&self, not_found: bool) {
        self.hub.change(|state| {
            state.rest_not_found = not_found;
            true
        });
    }

    /// Sends a response unchanged, valid or not, on all open streams of its variant that are aggregated or of its
    /// type; returns their number. It is a `DiscoveryResponse` or a `DeltaDiscoveryResponse`. Intended for tests of
    /// clients.
    ///
    /// The client's ACK or NACK is recognized if the response has a unique nonce and a type that the client has
    /// requested.
    pub fn inject(&self, response: impl Into<Response>) -> usize {
        self.hub.command(&Command::Send(response.into()))
    }

    /// Sends bytes in place of a response on all open streams; returns their number. Intended for tests of clients.
    pub fn inject_raw(&self, bytes: impl Into<Bytes>) -> usize {
        self.hub.command(&Command::SendRaw(bytes.into()))
    }

    /// The number of open streams.
    pub fn streams(&self) -> usize {
        self.hub.open_streams()
    }

    /// Ends all open streams with a status; returns their number. Connections stay, and clients may open streams
    /// again. Streams of load reports go on.
    pub fn disconnect(&self, status: Status) -> usize {
        self.hub.command(&Command::End(status))
    }
}

/// # Load reports
///
/// The service of load reports (LRS), of v3 and v2, is among the services of a control plane. As with most management servers, it is
/// not implemented until [`ask_reports`](Self::ask_reports).
///
/// ```
/// use std::time::Duration;
///
/// use xdskit::control_plane::{ControlPlane, LoadReporting};
///
/// async fn print_loads(control_plane: ControlPlane) {
///     control_plane.ask_reports(LoadReporting::all(Duration::from_secs(10)));
///     let mut reports = control_plane.loads();
///     loop {
///         let report = reports.next().await;
///         for load in report.clusters() {
///             println!("{} sent {:?}", report.node(), load);
///         }
///     }
/// }
/// ```
impl ControlPlane {
    /// Asks all clients for load reports, except those with a node of its own
    /// [configuration](Self::ask_reports_of). Clients that are asked already get a new response.
    pub fn ask_reports(&self, reporting: LoadReporting) {
        self.hub.load_reporting.change(|state| state.config.get_or_insert_default().set(reporting));
    }

    /// Asks the clients with this node id for load reports.
    pub fn ask_reports_of(&self, node: &str, reporting: LoadReporting) {
        self.hub.load_reporting.change(|state| state.config.get_or_insert_default().set_for(node, reporting));
    }

    /// Ends load reporting: streams end with `UNIMPLEMENTED`, and so do new ones.
    pub fn refuse_reports(&self) {
        self.hub.load_reporting.refuse();
    }

    /// The load reports of all clients: first those that were received already, as far as they are kept (64 MiB), then each new one.
    pub fn loads(&self) -> LoadReports {
        LoadReports::new(self.hub.clone())
    }

    /// The sums of all load reports of a cluster.
    pub fn load_totals(&self, cluster: &str) -> LoadTotals {
        self.hub.load_reporting.look(|loads| loads.totals(cluster))
    }

    /// Forgets all load reports and sums.
    pub fn clear_loads(&self) {
        self.hub.load_reporting.clear();
    }

    /// The number of open streams of load reports.
    pub fn load_streams(&self) -> usize {
        self.hub.load_reporting.open_streams()
    }

    /// Ends all streams of load reports with a status; returns their number.
    pub fn disconnect_load_streams(&self, status: Status) -> usize {
        self.hub.load_reporting.command(&LoadCommand::End(status))
    }

    /// Resets all streams of load reports; returns their number. Intended for tests of clients.
    ///
    /// A report of more than 1 MiB is half written then, if reports [are not read](Self::set_load_reading).
    pub fn reset_load_streams(&self) -> usize {
        self.hub.load_reporting.command(&LoadCommand::Reset)
    }

    /// Sets a fault of load reporting, or ends it. Intended for tests of clients.
    pub fn set_load_fault(&self, fault: Option<LoadFault>) {
        self.hub.load_reporting.change(|state| state.fault = fault);
    }

    /// Sets whether load reports are read. Intended for tests of clients.
    pub fn set_load_reading(&self, reading: bool) {
        self.hub.load_reporting.change(|state| state.reading_paused = !reading);
    }

    /// Sends a response unchanged on all streams of load reports; returns their number. Intended for tests of clients.
    pub fn inject_load_response(&self, response: LoadStatsResponse) -> usize {
        self.hub.load_reporting.command(&response.into())
    }

    /// Sends bytes in place of a response on all streams of load reports; returns their number. Intended for tests of
    /// clients.
    pub fn inject_load_raw(&self, bytes: impl Into<Bytes>) -> usize {
        self.hub.load_reporting.command(&LoadCommand::Send(bytes.into()))
    }

    /// Looks at the load reports.
    #[cfg(feature = "test-util")]
    pub(crate) fn look_at_loads<T>(&self, look: impl FnOnce(&Loads) -> T) -> T {
        self.hub.load_reporting.look(look)
    }

    /// Waits until `look` finds a value in the load reports. It is called again after each report, and when streams begin and end.
    #[cfg(feature = "test-util")]
    pub(crate) async fn find_in_loads<T>(&self, look: impl FnMut(&Loads) -> Option<T>) -> T {
        self.hub.load_reporting.find(look).await
    }
}

impl Default for ControlPlane {
    fn default() -> Self {
        Self::new()
    }
}
