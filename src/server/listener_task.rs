//! The task of a listening socket: it executes what the machine of the socket orders, and reports what happens.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use socket2::Socket;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot, watch},
    time::sleep_until,
};
use tracing::{debug, info, warn};

use super::{
    acceptor::{Acceptor, Plaintext},
    chain::ServedChain,
    connection::{Accepted, Order, ServeConnection},
    socket,
    states::States,
};
use crate::{
    background::supervise,
    client::{ChangeGuard, Client, Watch},
    observed::Observed,
    resource::{Listener, RouteConfiguration, filter_chain::Connection},
    serve::{
        Accept, ChainId, ConnectionId, ListenerMachine, ListenerStatus, Output, ServingState, TlsSupport,
    },
};

/// What the task of a listening socket is told.
pub(super) enum Event {
    /// A route configuration has another state.
    Routes(Arc<str>, Arc<Observed<RouteConfiguration>>),
    Established(ConnectionId),
    Closed(ConnectionId),
    /// The server is shut down. The connections that are left after the time are closed.
    ShutDown(Option<Duration>),
    ShutDownNow,
    Status(oneshot::Sender<ListenerStatus>),
}

/// A listening socket with its connections.
pub(super) struct ListenerTask {
    pub(super) machine: ListenerMachine,
    pub(super) port: PortSocket,
    pub(super) watches: Watches,
    pub(super) connections: Connections,
    pub(super) report: StateReport,
    pub(super) events: mpsc::UnboundedReceiver<Event>,
}

/// The socket of a listening port.
pub(super) enum PortSocket {
    /// The socket is bound when it is needed.
    Closed(SocketAddr),
    Bound(SocketAddr, Socket),
    Listening(SocketAddr, TcpListener),
}

/// The socket of a connection, with its addresses.
struct AcceptedSocket {
    stream: TcpStream,
    local: SocketAddr,
    peer: SocketAddr,
}

/// The watches of resources.
pub(super) struct Watches {
    pub(super) client: Client,
    /// `None` once the server or the client is shut down.
    pub(super) listener: Option<Watch<Listener>>,
    pub(super) routes: BTreeMap<Arc<str>, ChangeGuard>,
    pub(super) events: mpsc::UnboundedSender<Event>,
}

/// The connections, and the chains by which they are served.
pub(super) struct Connections {
    pub(super) serve: ServeConnection,
    pub(super) tls: TlsSupport,
    pub(super) chains: BTreeMap<ChainId, Arc<ServedChain>>,
    pub(super) orders: BTreeMap<ConnectionId, watch::Sender<Order>>,
    pub(super) events: mpsc::UnboundedSender<Event>,
}

/// Where the serving state goes.
pub(super) struct StateReport {
    pub(super) states: States,
    pub(super) index: usize,
    pub(super) address: SocketAddr,
    /// Whether the application has a callback, and no need of a log.
    pub(super) has_callback: bool,
    pub(super) has_served: bool,
}

impl ListenerTask {
    /// Runs until the server is shut down and its last connection has ended.
    pub(super) async fn run(mut self) {
        loop {
            self.execute();
            if *self.machine.state() == ServingState::Stopped {
                return;
            }
            let timer = self.machine.poll_timeout().map(|(at, _)| at);
            tokio::select! {
                accepted = self.port.accept(), if self.machine.is_accepting() => self.handle_accepted(accepted),
                Some(event) = self.events.recv() => self.handle_event(event),
                seen = next(&mut self.watches.listener) => match seen {
                    Some(seen) => self.machine.handle_listener(&seen, now()),
                    None => {
                        debug!("the client is shut down, so that the configuration stays as it is");
                        self.watches.listener = None;
                    }
                },
                () = sleep_until(timer.unwrap_or_else(now).into()), if timer.is_some() => {
                    self.machine.handle_timeout(now());
                }
            }
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Routes(name, observed) => self.machine.handle_routes(&name, observed, now()),
            Event::Established(connection) => self.machine.handle_established(connection, now()),
            Event::Closed(connection) => {
                self.connections.orders.remove(&connection);
                self.machine.handle_closed(connection, now());
            }
            Event::ShutDown(within) => self.machine.shut_down(within, now()),
            Event::ShutDownNow => self.machine.shut_down_now(now()),
            // The one who has asked may be gone.
            Event::Status(to) => drop(to.send(self.machine.status())),
        }
    }

    fn handle_accepted(&mut self, accepted: io::Result<(TcpStream, SocketAddr)>) {
        let connection = accepted.and_then(|(stream, peer)| Ok((stream.local_addr()?, stream, peer)));
        let (local, stream, peer) = match connection {
            Ok(connection) => connection,
            Err(error) => {
                warn!(address = %self.report.address, %error, "cannot accept a connection");
                return self.machine.handle_accept_error(&socket::accept_error(&error), now());
            }
        };
        match self.machine.accept(&Connection::new(local, peer), now()) {
            Accept::Serve { connection, chain } => {
                let socket = AcceptedSocket { stream, local, peer };
                self.connections.serve(connection, chain, socket);
            }
            // SV4.8: no warning, since a scan of ports must not fill the log.
            Accept::Reject(reason) => debug!(%local, %peer, reason = reason.as_str(), "connection closed"),
        }
    }

    /// Executes the outputs of the machine.
    fn execute(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::WatchRoutes(name) => self.watches.begin(name),
                Output::EndRoutes(name) => drop(self.watches.routes.remove(&name)),
                Output::Open => match self.port.open() {
                    Ok(()) => self.machine.handle_opened(now()),
                    Err(error) => self.machine.handle_open_failed(&error.to_string(), now()),
                },
                Output::Close => self.port.close(),
                Output::AddChain { chain, config, routing } => {
                    let acceptor = self.connections.acceptor(config.chain().tls.is_some());
                    let served = ServedChain::new(config, acceptor, routing);
                    self.connections.chains.insert(chain, Arc::new(served));
                }
                Output::SetRouting { chain, routing } => {
                    if let Some(chain) = self.connections.chains.get(&chain) {
                        chain.set_routing(routing);
                    }
                }
                Output::RemoveChain(chain) => drop(self.connections.chains.remove(&chain)),
                Output::Drain(connection) => self.connections.order(connection, Order::Drain),
                Output::CloseConnection(connection, reason) => {
                    debug!(address = %self.report.address, reason = reason.as_str(), "connection closed");
                    self.connections.order(connection, Order::Close);
                }
                Output::Drained { connections } => {
                    info!(address = %self.report.address, connections, "connections drained");
                    self.report.states.add_drained(self.report.index, connections);
                }
                Output::State(state) => {
                    if matches!(state, ServingState::Stopping | ServingState::Stopped) {
                        self.watches.listener = None;
                    }
                    self.report.set(state);
                }
                Output::RouteErrors(errors) => self.report.route_errors(&errors),
            }
        }
    }
}

impl PortSocket {
    /// Has the socket listen, which is bound first if it was closed.
    fn open(&mut self) -> io::Result<()> {
        let address = self.address();
        let socket = match std::mem::replace(self, Self::Closed(address)) {
            Self::Closed(_) => socket::bind(address)?,
            Self::Bound(_, socket) => socket,
            Self::Listening(_, listener) => {
                *self = Self::Listening(address, listener);
                return Ok(());
            }
        };
        *self = Self::Listening(address, socket::listen(socket)?);
        Ok(())
    }

    fn close(&mut self) {
        *self = Self::Closed(self.address());
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Closed(address) | Self::Bound(address, _) | Self::Listening(address, _) => *address,
        }
    }

    /// Accepts a connection; never completes while the socket does not listen.
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Listening(_, listener) => listener.accept().await,
            Self::Closed(_) | Self::Bound(..) => std::future::pending().await,
        }
    }
}

impl Watches {
    /// Begins to watch a route configuration.
    fn begin(&mut self, name: Arc<str>) {
        let (events, of) = (self.events.clone(), name.clone());
        let guard = self.client.on_change::<RouteConfiguration, _>(&*name, move |observed| {
            // The server may be gone.
            drop(events.send(Event::Routes(of.clone(), observed.clone())));
        });
        self.routes.insert(name, guard);
    }
}

impl Connections {
    /// Serves an accepted connection in a task of its own.
    fn serve(&mut self, id: ConnectionId, chain: ChainId, socket: AcceptedSocket) {
        let AcceptedSocket { stream, local, peer } = socket;
        let (order, orders) = watch::channel(Order::Serve);
        let (established, ended) = (self.events.clone(), self.events.clone());
        let on_end = move |_| drop(ended.send(Event::Closed(id)));
        let Some(chain) = self.chains.get(&chain).cloned() else { return on_end(()) };
        // Small responses must not wait for others.
        drop(stream.set_nodelay(true));
        let established = Box::new(move || drop(established.send(Event::Established(id))));
        let accepted = Accepted { stream, local, peer, chain, orders, established };
        self.orders.insert(id, order);
        tokio::spawn(supervise("connection of a server", (self.serve)(accepted), move |_| on_end(())));
    }

    /// What secures the connections of a chain.
    fn acceptor(&self, has_tls: bool) -> Arc<dyn Acceptor> {
        match self.tls {
            TlsSupport::Ignored if has_tls => {
                // SV1.5
                warn!("the TLS of a filter chain is not used: the server has credentials of its own");
                Arc::new(Plaintext)
            }
            // The machine accepts no chain with TLS.
            TlsSupport::Ignored | TlsSupport::Unsupported => Arc::new(Plaintext),
        }
    }

    fn order(&self, connection: ConnectionId, order: Order) {
        if let Some(orders) = self.orders.get(&connection) {
            orders.send_replace(order);
        }
    }
}

impl StateReport {
    fn set(&mut self, state: ServingState) {
        if self.has_callback {
            debug!(address = %self.address, %state, "serving state");
        } else {
            self.log(&state);
        }
        self.has_served |= state.is_serving();
        self.states.set(self.index, state);
    }

    /// Logs a state, visibly by default if it concerns operators (SV3.10).
    fn log(&self, state: &ServingState) {
        let address = self.address;
        match state {
            ServingState::NotServing(reason) => warn!(%address, %reason, "not serving"),
            ServingState::Serving if self.has_served => warn!(%address, "serving again"),
            ServingState::Serving => info!(%address, "serving"),
            ServingState::Starting | ServingState::Stopping | ServingState::Stopped => {
                debug!(%address, %state, "serving state");
            }
        }
    }

    /// Logs the mistakes in the routes in use (SV7.11).
    fn route_errors(&self, errors: &[String]) {
        let address = self.address;
        match errors {
            [] => info!(%address, "all routes are usable again"),
            _ => warn!(%address, ?errors, "requests on some routes are refused"),
        }
    }
}

/// Waits for the next state of the Listener; never completes without a watch.
async fn next(listener: &mut Option<Watch<Listener>>) -> Option<Arc<Observed<Listener>>> {
    match listener {
        Some(listener) => listener.next().await,
        None => std::future::pending().await,
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
