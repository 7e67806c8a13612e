//! The builder of servers.

use std::{
    collections::BTreeMap,
    fmt,
    net::{SocketAddr, TcpListener as StdListener},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::{net::TcpListener, runtime::Handle, sync::mpsc};
use tower_service::Service;

use super::{
    ServerError, ServerHandle,
    body::{BodyError, RequestBody},
    connection::{ServeConnection, serve_with},
    credentials::{Credentials, Fallback, OwnCredentials},
    listener_task::{Connections, Event, ListenerTask, PortSocket, StateReport, Watches},
    settings::HttpSettings,
    socket,
    states::{OnDrained, OnState, States},
};
use crate::{
    background::supervise,
    client::Client,
    config::Bootstrap,
    resource::Listener,
    serve::{Identity, ListenerMachine, ServingState, Settings, TlsSupport},
};

/// The settings for starting a server. Created by [`Server::builder`](super::Server::builder).
#[must_use = "a builder does nothing until `serve` is called"]
pub struct ServerBuilder {
    bootstrap: Arc<Bootstrap>,
    client: Option<Client>,
    credentials: Option<Credentials>,
    listeners: Vec<ListenerSpec>,
    on_state: Option<OnState>,
    on_drained: Option<OnDrained>,
    settings: Settings,
    http: HttpSettings,
}

/// A listener that is to be started.
struct ListenerSpec {
    source: SocketSource,
    /// The name of the resource, if it is not that of the template.
    name: Option<Arc<str>>,
}

enum SocketSource {
    Address(SocketAddr),
    HandedOver(StdListener),
}

/// A bound listener.
struct BoundListener {
    socket: PortSocket,
    identity: Identity,
}

impl ServerBuilder {
    pub(super) fn new(bootstrap: Arc<Bootstrap>) -> Self {
        Self {
            bootstrap,
            client: None,
            credentials: None,
            listeners: Vec::new(),
            on_state: None,
            on_drained: None,
            settings: Settings::default(),
            http: HttpSettings::default(),
        }
    }

    /// Sets the client of the server, which may have settings of its own. By default, all servers of a process with equal bootstraps share
    /// one with the scope `#server`.
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Uses the security of the filter chains, and `fallback` for chains without TLS.
    ///
    /// Chains with TLS are not supported yet: a Listener with one is not served.
    pub fn xds_credentials(mut self, fallback: Fallback) -> Self {
        self.credentials = Some(Credentials::Xds(fallback));
        self
    }

    /// Uses this security for all connections, whatever the filter chains have.
    pub fn own_credentials(mut self, credentials: OwnCredentials) -> Self {
        self.credentials = Some(Credentials::Own(credentials));
        self
    }

    /// Adds a listener on an address, which is bound when the server starts. With port 0 the system chooses the port, which is a part of
    /// the name of the Listener. Connections are accepted from the first complete configuration on.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listeners.push(ListenerSpec { source: SocketSource::Address(address), name: None });
        self
    }

    /// Adds a listener on a socket of the application, which listens already. Connections are closed at once until the first complete
    /// configuration.
    pub fn listener(mut self, socket: StdListener) -> Self {
        self.listeners.push(ListenerSpec { source: SocketSource::HandedOver(socket), name: None });
        self
    }

    /// Sets the name of the Listener resource of the last added listener, which is otherwise that of the template in the bootstrap.
    pub fn listener_name(mut self, name: impl Into<Arc<str>>) -> Self {
        // SV2.8
        if let Some(last) = self.listeners.last_mut() {
            last.name = Some(name.into());
        }
        self
    }

    /// Calls back with the bound address and the state of a listener when the state changes. The calls are sequential, in a task of their
    /// own. A slow callback skips states, and delays nothing; after a panic there are no further calls. Without a callback, states are
    /// logged.
    pub fn on_state(mut self, callback: impl FnMut(SocketAddr, &ServingState) + Send + 'static) -> Self {
        self.on_state = Some(Box::new(callback));
        self
    }

    /// Calls back with the bound address of a listener, and a number of connections, when the connections of a replaced configuration have
    /// ended. The calls are made as those of [`on_state`](Self::on_state); a slow callback gets the sum of several numbers.
    pub fn on_drained(mut self, callback: impl FnMut(SocketAddr, u64) + Send + 'static) -> Self {
        self.on_drained = Some(Box::new(callback));
        self
    }

    /// Sets the time from the start of draining a connection until it is closed with the requests on it, by default 10 min.
    /// `Duration::MAX` is without end.
    pub fn drain_grace(mut self, time: Duration) -> Self {
        self.settings.drain_grace = time;
        self
    }

    /// Sets the time over which the connections of a replaced configuration begin to drain, by default 0.
    pub fn drain_spread(mut self, time: Duration) -> Self {
        self.settings.drain_spread = time;
        self
    }

    /// Sets whether only the connections of filter chains that have changed drain when the configuration is replaced, as in Envoy. By
    /// default all do (A36).
    pub fn drain_changed_chains_only(mut self, changed_only: bool) -> Self {
        self.settings.drain_changed_chains_only = changed_only;
        self
    }

    /// Sets whether the port is closed while the server does not serve. By default connections are accepted and closed then.
    pub fn release_port(mut self, release: bool) -> Self {
        self.settings.release_port = release;
        self
    }

    /// Sets the time for the handshake of a connection, by default 120 s.
    pub fn handshake_timeout(mut self, time: Duration) -> Self {
        self.settings.handshake_timeout = time;
        self
    }

    /// Sets the number of connections of a listener whose handshake has not finished, by default 1,000. Further ones are closed at
    /// once.
    pub fn max_handshakes(mut self, number: usize) -> Self {
        self.settings.max_handshakes = number;
        self
    }

    /// Sets the number of connections of a listener, by default 65,536. Further ones are closed at once.
    pub fn max_connections(mut self, number: usize) -> Self {
        self.settings.max_connections = number;
        self
    }

    /// Sets the age at which a connection is drained, varied by up to 10 %. By default there is none.
    pub fn max_connection_age(mut self, age: Duration) -> Self {
        self.settings.max_connection_age = age;
        self
    }

    /// Sets the number of requests of a connection at a time over HTTP/2, by default 100. Clients know it and wait with further ones.
    pub fn max_concurrent_streams(mut self, number: u32) -> Self {
        self.http.max_concurrent_streams = number;
        self
    }

    /// Sets the size of the headers of a request in bytes, by default 16 KiB. A larger one is refused.
    pub fn max_header_list_size(mut self, bytes: u32) -> Self {
        self.http.max_header_list_size = bytes;
        self
    }

    /// Sets the bytes that a client may send on a connection, and on a stream of it, before the service reads them, by default 1 MiB
    /// each.
    pub fn initial_windows(mut self, connection: u32, stream: u32) -> Self {
        (self.http.connection_window, self.http.stream_window) = (connection, stream);
        self
    }

    /// Sets the number of streams that a client may open and reset before the server has accepted them, by default 20. A client
    /// with more gets GOAWAY with ENHANCE_YOUR_CALM.
    pub fn max_pending_resets(mut self, number: usize) -> Self {
        self.http.max_pending_resets = number;
        self
    }

    /// Sets the time without a frame after which a client is pinged over HTTP/2, and the time for its answer, by default 2 h and 20 s.
    pub fn keep_alive(mut self, interval: Duration, timeout: Duration) -> Self {
        (self.http.keep_alive_interval, self.http.keep_alive_timeout) = (interval, timeout);
        self
    }

    /// Sets whether HTTP/1.1 is served beside HTTP/2, as it is by default.
    pub fn http1(mut self, serve: bool) -> Self {
        self.http.http1 = serve;
        self
    }

    /// Sets the time for the head of a request over HTTP/1.1, and between two requests, by default 30 s.
    pub fn header_read_timeout(mut self, time: Duration) -> Self {
        self.http.header_read_timeout = time;
        self
    }

    /// Starts the server: binds the addresses, watches the Listeners, and serves requests with a service, such as tonic's `Routes` or
    /// axum's `Router`. It does not wait for a configuration ([`ServerHandle::serving`] does).
    ///
    /// The service is cloned for each request.
    ///
    /// # Errors
    /// The security or the listeners are missing, an address cannot be bound, or the bootstrap has no name for it.
    pub fn serve<S, B>(self, service: S) -> Result<ServerHandle, ServerError>
    where
        S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send,
        S::Error: Into<BodyError>,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        let serve = serve_with(service, self.http.clone());
        self.start(&serve)
    }

    /// Starts a server with what serves its connections.
    fn start(mut self, serve: &ServeConnection) -> Result<ServerHandle, ServerError> {
        Handle::try_current().map_err(|_| ServerError::NoRuntime)?;
        self.settings.tls = match self.credentials.ok_or(ServerError::NoCredentials)? {
            Credentials::Xds(Fallback::Plaintext) => TlsSupport::Unsupported,
            Credentials::Own(OwnCredentials::Plaintext) => TlsSupport::Ignored,
        };
        if self.listeners.is_empty() {
            return Err(ServerError::NoListener);
        }
        let client = match self.client.take() {
            Some(client) => client,
            // SV12.1
            None => Client::builder(self.bootstrap.clone()).scope("#server").shared()?,
        };
        // All are bound before the first one is served.
        let specs = std::mem::take(&mut self.listeners);
        let bound =
            specs.into_iter().map(|spec| spec.bind(client.bootstrap())).collect::<Result<Vec<_>, _>>()?;
        let states = States::new(bound.iter().map(|listener| listener.identity.address));
        let tasks = bound.into_iter().enumerate();
        let has_callback = self.on_state.is_some();
        let listeners = tasks.map(|(index, bound)| {
            let (states, address) = (states.clone(), bound.identity.address);
            let report = StateReport { states, index, address, has_callback, has_served: false };
            self.spawn(&client, serve, bound, report)
        });
        let listeners = listeners.collect();
        if let Some(on_state) = self.on_state {
            let calls = states.clone().call_back(on_state);
            tokio::spawn(supervise("callback of serving states", calls, |_| {}));
        }
        if let Some(on_drained) = self.on_drained {
            let calls = states.clone().call_back_drained(on_drained);
            tokio::spawn(supervise("callback of drained connections", calls, |_| {}));
        }
        Ok(ServerHandle::new(states, listeners))
    }

    /// Runs the task of a bound listener.
    fn spawn(
        &self,
        client: &Client,
        serve: &ServeConnection,
        bound: BoundListener,
        report: StateReport,
    ) -> mpsc::UnboundedSender<Event> {
        let BoundListener { socket, identity } = bound;
        let (to, events) = mpsc::unbounded_channel();
        let (states, index) = (report.states.clone(), report.index);
        let listener = Some(client.watch::<Listener>(&*identity.name));
        let (settings, now) = (self.settings.clone(), tokio::time::Instant::now().into_std());
        let task = ListenerTask {
            machine: ListenerMachine::new(identity, settings, fastrand::u64(..), now),
            port: socket,
            watches: Watches {
                client: client.clone(),
                listener,
                routes: BTreeMap::new(),
                events: to.clone(),
            },
            connections: Connections {
                serve: serve.clone(),
                tls: self.settings.tls,
                chains: BTreeMap::new(),
                orders: BTreeMap::new(),
                events: to.clone(),
            },
            report,
            events,
        };
        // Whoever waits for the server learns of each end of the task.
        let on_end = move |_| states.set(index, ServingState::Stopped);
        tokio::spawn(supervise("listener of a server", task.run(), on_end));
        to
    }
}

impl ListenerSpec {
    /// Binds the socket, and finds the name of the resource.
    fn bind(self, bootstrap: &Bootstrap) -> Result<BoundListener, ServerError> {
        let handed = |error: std::io::Error| ServerError::Socket { error: Arc::new(error) };
        let (socket, address, is_listening) = match self.source {
            SocketSource::Address(address) => {
                let failed = |error: std::io::Error| ServerError::Bind { address, error: Arc::new(error) };
                let socket = socket::bind(address).map_err(failed)?;
                let bound = socket.local_addr().map_err(failed)?.as_socket().unwrap_or(address);
                (PortSocket::Bound(bound, socket), bound, false)
            }
            SocketSource::HandedOver(socket) => {
                socket.set_nonblocking(true).map_err(handed)?;
                let address = socket.local_addr().map_err(handed)?;
                let listener = TcpListener::from_std(socket).map_err(handed)?;
                (PortSocket::Listening(address, listener), address, true)
            }
        };
        let name = match self.name {
            Some(name) => name,
            None => match bootstrap.server_listener_name(address) {
                Ok(name) => name.as_str().into(),
                Err(error) => return Err(ServerError::Name { address, error }),
            },
        };
        let node = bootstrap.node().id.as_str().into();
        Ok(BoundListener { socket, identity: Identity { name, address, node, is_listening } })
    }
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder")
            .field("credentials", &self.credentials)
            .field("settings", &self.settings)
            .field("http", &self.http)
            .finish_non_exhaustive()
    }
}
