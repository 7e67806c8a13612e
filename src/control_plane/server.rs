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
    subscriptions::{SubscriptionChanges, Subscriptions},
};
use crate::escape::Escaped;

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
    hub: Arc<Hub>,
}

impl ControlPlane {
    /// A control plane without resources, with default settings.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A builder with settings.
    pub fn builder() -> ControlPlaneBuilder {
        ControlPlaneBuilder { store: Store::new(), settings: Settings::default(), observers: Vec::new() }
    }

    /// Serves on an address without TLS; port 0 selects a free port. Must be called on a tokio runtime.
    ///
    /// A control plane may serve on several addresses. For TLS, add its [`routes`](Self::routes) to a
    /// [`tonic::transport::Server`].
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn serve(&self, addr: impl ToSocketAddrs) -> io::Result<ServerHandle> {
        ServerHandle::start(self.clone(), TcpListener::bind(addr).await?)
    }

    /// The services for a custom gRPC server, routed by the path of a request; see [`routes`](Self::routes) for a
    /// tonic server. They have no limit on the size of messages.
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
        SubscriptionChanges::new(self.hub.follow_subscriptions())
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
    /// again.
    pub fn disconnect(&self, status: Status) -> usize {
        self.hub.command(&Command::End(status))
    }
}

impl Default for ControlPlane {
    fn default() -> Self {
        Self::new()
    }
}

/// The settings of a [`ControlPlane`].
#[must_use]
pub struct ControlPlaneBuilder {
    store: Store,
    settings: Settings,
    observers: Vec<Observer>,
}

impl ControlPlaneBuilder {
    /// Sets the form of versions; see [`Store::with_versions`].
    pub fn versions(mut self, versions: Versions) -> Self {
        self.store = self.store.with_versions(versions);
        self
    }

    /// Sets a prefix of all versions; see [`Store::with_version_prefix`].
    pub fn version_prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.store = self.store.with_version_prefix(prefix);
        self
    }

    /// Sets whether each resource is wrapped in a `Resource` message with its name and version. By default it is not.
    pub fn wrap_resources(mut self, wrap: bool) -> Self {
        self.settings.wrap_resources = wrap;
        self
    }

    /// Sets the identifier of the server in each response (`control_plane.identifier`).
    pub fn identifier(mut self, identifier: impl Into<String>) -> Self {
        self.settings.identifier = Some(identifier.into());
        self
    }

    /// Sets the maximum number of resources and removed names together in a response of the incremental variant.
    /// Larger responses are split.
    pub fn max_per_response(mut self, resources: usize) -> Self {
        self.settings.max_per_response = Some(resources);
        self
    }

    /// Sets whether a reconnecting client of the incremental variant gets all resources, including those in its
    /// initial versions. By default it does not.
    pub fn ignore_initial_versions(mut self, ignore: bool) -> Self {
        self.settings.ignore_initial_versions = ignore;
        self
    }

    /// Sets permitted but unusual behavior of the server, for tests of clients.
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

    /// Sets whether missing resources are unknown rather than absent, for a server that fetches resources on demand;
    /// see [`Store::with_on_demand`]. By default they are absent.
    pub fn on_demand(mut self, on_demand: bool) -> Self {
        self.store = self.store.with_on_demand(on_demand);
        self
    }

    /// Adds a function that is called for each event on a stream, in order, on the stream's task. It must not block.
    pub fn observe(mut self, observer: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.observers.push(Box::new(observer));
        self
    }

    /// Builds the control plane.
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

/// A [`ControlPlane`] that serves on an address. Dropping it shuts down the control plane, without waiting for the
/// end.
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
            // REST uses HTTP/1.1 as well.
            .accept_http1(cfg!(feature = "json"));
        let service = control_plane.service();
        let task = tokio::spawn(server.serve_with_incoming_shutdown(service, incoming, async move {
            // Dropping the sender is a signal, too.
            let _ = stopped.await;
        }));
        Ok(Self { control_plane, addr, stop: Mutex::new(Some(stop)), task: Some(task) })
    }

    /// The listening address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address as a URI for bootstraps.
    pub fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The control plane.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// Ends all streams of the control plane with `UNAVAILABLE`, closes all connections and releases the address.
    ///
    /// Waits until all is closed, but only for some seconds if a client does not read.
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

/// The interval of keepalive pings.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The flow-control window for requests, in bytes.
const WINDOW: u32 = 1 << 20;
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);
