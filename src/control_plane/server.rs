use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    net::{TcpListener, ToSocketAddrs},
    sync::oneshot,
    task::JoinHandle,
};
use tonic::{Status, service::Routes, transport::server::TcpIncoming};

use super::{
    event::Event,
    hub::{Command, Headers, Hub, Observer},
    message::Response,
    service::DiscoveryServices,
    session::{Behavior, Held, Settings},
    store::{AnyResource, Store, Transaction, Versions},
    wanted::{Wanted, WantedChanges},
};
use crate::escape::Escaped;

/// A management server: it gives the resources that it is told to any number of clients, over ADS or the services of single
/// types, in the variant of the protocol and the version of the transport (v3 or v2) that each asks for.
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
///         tx.remove(type_url::CLUSTER, "shop"); // Clients that are connected are told at once.
///     });
///     server.shutdown().await;
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone)]
pub struct ControlPlane {
    hub: Arc<Hub>,
}

impl ControlPlane {
    /// A control plane without resources, with default settings.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings first.
    pub fn builder() -> ControlPlaneBuilder {
        ControlPlaneBuilder { store: Store::new(), settings: Settings::default(), observers: Vec::new() }
    }

    /// Serves on an address without TLS; port 0 picks a free port. Must be called on a tokio runtime.
    ///
    /// A control plane may serve on several addresses. For TLS, add its [`routes`](Self::routes) to a
    /// [`tonic::transport::Server`] of your own.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn serve(&self, addr: impl ToSocketAddrs) -> io::Result<ServerHandle> {
        ServerHandle::start(self.clone(), TcpListener::bind(addr).await?)
    }

    /// The services for a gRPC server of one's own, told apart by the path of a request; see [`routes`](Self::routes) for a
    /// tonic server. They have no limit on the size of messages.
    pub fn service(&self) -> DiscoveryServices {
        DiscoveryServices::new(self.hub.clone())
    }

    /// The same as routes for a [`tonic::transport::Server`]: what no other service of it answers comes here.
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

    /// Changes resources; clients are told of all changes of one call at once. Returns whether anything is different now.
    pub fn update(&self, change: impl FnOnce(&mut Transaction<'_>)) -> bool {
        self.hub.change(|state| state.store.update(change))
    }

    /// Adds or replaces one resource. Returns whether anything is different now.
    pub fn set(&self, resource: impl Into<AnyResource>) -> bool {
        self.update(|tx| {
            tx.set(resource);
        })
    }

    /// Removes one resource. Returns whether it was there.
    pub fn remove(&self, type_url: &str, name: &str) -> bool {
        self.update(|tx| {
            tx.remove(type_url, name);
        })
    }

    /// What there is at this moment.
    pub fn store(&self) -> Store {
        self.hub.state().store
    }

    /// What all clients together want at this moment.
    pub fn wanted(&self) -> Wanted {
        self.hub.wanted()
    }

    /// Follows what all clients together want, for a server that gets resources as they are asked for; see
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
    ///     let mut changes = control_plane.wanted_changes();
    ///     while let Some(change) = changes.next().await {
    ///         let (type_url, name) = (&*change.type_url, &*change.name);
    ///         let found = if change.wanted { look_up(name).await } else { None };
    ///         control_plane.update(|tx| {
    ///             match found {
    ///                 Some(bytes) => tx.set(AnyResource::new(type_url, name, bytes)),
    ///                 None if change.wanted => tx.set_absent(type_url, name),
    ///                 None if control_plane.wanted().streams(type_url, name) == 0 => tx.remove(type_url, name),
    ///                 None => tx, // Somebody wants it again, which is told next.
    ///             };
    ///         });
    ///     }
    ///     Ok(())
    /// }
    ///
    /// /// The resource's message, from wherever it is kept.
    /// async fn look_up(name: &str) -> Option<Vec<u8>> {
    ///     std::fs::read(format!("/var/lib/mesh/{name}")).ok()
    /// }
    /// ```
    pub fn wanted_changes(&self) -> WantedChanges {
        WantedChanges::new(self.hub.follow_wanted())
    }

    /// Sends nothing of the held types from now on, on all streams. Requests are read as ever.
    pub fn set_held(&self, held: Held) {
        self.hub.change(|state| {
            state.held = held;
            true
        });
    }

    /// The types that are held.
    pub fn held(&self) -> Held {
        self.hub.state().held
    }

    /// Says when streams get the headers of the response, those that open later and those that have none yet. Meant for
    /// tests of clients.
    pub fn set_headers(&self, headers: Headers) {
        self.hub.change(|state| {
            state.headers = headers;
            true
        });
    }

    /// Says whether requests are read. A client whose requests are not read notices when its window is full. Meant for tests
    /// of clients.
    pub fn set_reading(&self, reading: bool) {
        self.hub.change(|state| {
            state.deaf = !reading;
            true
        });
    }

    /// Answers all requests of REST by a status and without a response, until it is told otherwise. Meant for tests of clients.
    #[cfg(feature = "json")]
    pub fn set_rest_status(&self, status: Option<http::StatusCode>) {
        self.hub.change(|state| {
            state.rest_status = status;
            true
        });
    }

    /// Answers requests of REST for which there are no resources by the status 404, as sovereign does, and not by a response
    /// without resources. Meant for tests of clients.
    #[cfg(feature = "json")]
    pub fn set_rest_not_found(&self, not_found: bool) {
        self.hub.change(|state| {
            state.rest_not_found = not_found;
            true
        });
    }

    /// Sends a response as it is, right or wrong, on all open streams of its variant that are aggregated or of its type;
    /// returns how many these are. Meant for tests of clients. It is a `DiscoveryResponse` or a `DeltaDiscoveryResponse`.
    ///
    /// The client's answer is understood if the response has a nonce of its own and a type that the client has asked for.
    pub fn inject(&self, response: impl Into<Response>) -> usize {
        self.hub.command(&Command::Send(response.into()))
    }

    /// Sends bytes in place of a response on all streams that are open; returns how many these are. Meant for tests of clients.
    pub fn inject_raw(&self, bytes: impl Into<Bytes>) -> usize {
        self.hub.command(&Command::SendRaw(bytes.into()))
    }

    /// How many streams are open.
    pub fn streams(&self) -> usize {
        self.hub.open_streams()
    }

    /// Ends all streams that are open, with a status; returns how many these are. Connections stay, and clients may open
    /// streams again.
    pub fn disconnect(&self, status: Status) -> usize {
        self.hub.command(&Command::End(status))
    }
}

impl Default for ControlPlane {
    fn default() -> Self {
        Self::new()
    }
}

/// Settings of a [`ControlPlane`].
#[must_use]
pub struct ControlPlaneBuilder {
    store: Store,
    settings: Settings,
    observers: Vec<Observer>,
}

impl ControlPlaneBuilder {
    /// Says how versions are written; see [`Store::with_versions`].
    pub fn versions(mut self, versions: Versions) -> Self {
        self.store = self.store.with_versions(versions);
        self
    }

    /// Puts a text before every version; see [`Store::with_version_prefix`].
    pub fn version_prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.store = self.store.with_version_prefix(prefix);
        self
    }

    /// Puts each resource into the wrapper that gives it a name and a version of its own. The default is no.
    pub fn wrap_resources(mut self, wrap: bool) -> Self {
        self.settings.wrap_resources = wrap;
        self
    }

    /// Says in each response what the server is (`control_plane.identifier`).
    pub fn identifier(mut self, identifier: impl Into<String>) -> Self {
        self.settings.identifier = Some(identifier.into());
        self
    }

    /// Splits what is larger over several responses, in the incremental variant: how many resources and removed names together
    /// one holds at most.
    pub fn max_per_response(mut self, resources: usize) -> Self {
        self.settings.max_per_response = Some(resources);
        self
    }

    /// Sends everything that a client of the incremental variant asks for when it comes back, also what it says that it
    /// holds. The default is no.
    pub fn ignore_initial_versions(mut self, ignore: bool) -> Self {
        self.settings.ignore_initial_versions = ignore;
        self
    }

    /// Takes freedoms of the protocol that make it harder for clients, for tests of these.
    ///
    /// ```
    /// use xdskit::control_plane::{ControlPlane, session::Behavior};
    ///
    /// let mut behavior = Behavior::default();
    /// behavior.ignore_names_in_nack = true; // As istiod does.
    /// let control_plane = ControlPlane::builder().behavior(behavior).build();
    /// ```
    pub fn behavior(mut self, behavior: Behavior) -> Self {
        self.settings.behavior = behavior;
        self
    }

    /// What the control plane does not hold is not known, rather than absent, as for a server that gets resources when they are
    /// asked for; see [`Store::with_on_demand`]. The default is no.
    pub fn on_demand(mut self, on_demand: bool) -> Self {
        self.store = self.store.with_on_demand(on_demand);
        self
    }

    /// Calls a function for each event on a stream, in order, on the stream's task. It must not block.
    pub fn observe(mut self, observer: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.observers.push(Box::new(observer));
        self
    }

    /// The control plane.
    pub fn build(self) -> ControlPlane {
        let Self { store, settings, observers } = self;
        ControlPlane { hub: Arc::new(Hub::new(store, settings, observers)) }
    }
}

impl std::fmt::Debug for ControlPlaneBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlPlaneBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A [`ControlPlane`] that serves on an address. When it is dropped it shuts down, without waiting for the end.
#[derive(Debug)]
pub struct ServerHandle {
    control_plane: ControlPlane,
    addr: SocketAddr,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    task: Option<JoinHandle<Result<(), tonic::transport::Error>>>,
}

impl ServerHandle {
    fn start(control_plane: ControlPlane, listener: TcpListener) -> io::Result<Self> {
        let addr = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let server = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_concurrent_streams(u32::MAX)
            // REST is spoken by HTTP/1.1 as well.
            .accept_http1(cfg!(feature = "json"));
        let service = control_plane.service();
        let task = tokio::spawn(server.serve_with_incoming_shutdown(service, incoming, async move {
            // Dropping the sender is the signal as well.
            let _ = stopped.await;
        }));
        Ok(Self { control_plane, addr, stop: Mutex::new(Some(stop)), task: Some(task) })
    }

    /// The address that it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address as clients write it in a bootstrap.
    pub fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What it serves.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// Ends all streams of the control plane with `UNAVAILABLE`, closes all connections and gives the address back.
    ///
    /// Waits until all is closed, but for a client that does not read no longer than some seconds.
    pub async fn shutdown(mut self) {
        self.begin_shutdown();
        let Some(mut task) = self.task.take() else { return };
        match tokio::time::timeout(SHUTDOWN_GRACE, &mut task).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => {
                tracing::warn!(addr = %self.addr, error = %Escaped(&error), "serving ended with an error");
            }
            Ok(Err(error)) => {
                tracing::warn!(addr = %self.addr, error = %Escaped(&error), "serving ended");
            }
            Err(_) => task.abort(),
        }
    }

    fn begin_shutdown(&self) {
        if let Some(stop) = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = stop.send(());
        }
        self.control_plane.disconnect(Status::unavailable("the management server shuts down"));
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.begin_shutdown();
    }
}

/// How often a client is asked whether it is there, and how long it has to answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of requests that may be on the way.
const WINDOW: u32 = 1 << 20;
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);
