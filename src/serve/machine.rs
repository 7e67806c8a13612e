//! One listening socket: its configurations, its connections and its state.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Accept, AcceptError, ChainId, ConnectionId, Identity, ListenerStatus, NotServing, Output, RejectReason,
    ServingState, Settings, Timer, address, chain_table::ChainTable, configs::Configs,
    connections::Connections, port::Port, route_watches::RouteWatches,
};
use crate::{
    base::Version,
    error::{Code, WatchError},
    observed::Observed,
    resource::{Listener, RouteConfiguration, filter_chain::Connection},
};

/// The server of one listening socket, without I/O.
///
/// Events go in by `handle_*`, [`accept`](Self::accept) and the shutdowns. After each of them, [`poll_output`](Self::poll_output) is
/// called until it returns `None`, and [`handle_timeout`](Self::handle_timeout) is called at the time of
/// [`poll_timeout`](Self::poll_timeout).
///
/// Connections are accepted while [`is_accepting`](Self::is_accepting); each [served](Accept::Serve) one is reported as
/// [established](Self::handle_established) after its handshake, and as [closed](Self::handle_closed) at its end, whatever the reason.
#[derive(Debug)]
pub(crate) struct ListenerMachine {
    identity: Identity,
    settings: Settings,
    serving: Serving,
    configs: Configs,
    routes: RouteWatches,
    chains: ChainTable,
    connections: Connections,
    port: Port,
    /// The mistakes in the routes in use.
    route_errors: BTreeSet<String>,
    outputs: VecDeque<Output>,
}

/// The serving state, and what it follows from beside the configurations and the port.
#[derive(Debug)]
struct Serving {
    state: ServingState,
    since: Instant,
    /// The reason why there is no configuration.
    reason: Option<NotServing>,
    /// The reason why the Listener may be stale.
    warning: Option<WatchError>,
}

impl ListenerMachine {
    /// A server that has just started.
    pub(crate) fn new(identity: Identity, settings: Settings, seed: u64, now: Instant) -> Self {
        Self {
            serving: Serving { state: ServingState::Starting, since: now, reason: None, warning: None },
            configs: Configs::default(),
            routes: RouteWatches::default(),
            chains: ChainTable::new(identity.node.clone()),
            connections: Connections::new(settings.clone(), seed),
            port: Port::new(identity.is_listening),
            route_errors: BTreeSet::new(),
            outputs: VecDeque::new(),
            identity,
            settings,
        }
    }

    /// Handles a state of the Listener.
    pub(crate) fn handle_listener(&mut self, observed: &Observed<Listener>, now: Instant) {
        if self.is_stopping() {
            return;
        }
        match observed {
            Observed::Pending => {}
            Observed::Absent { reason } => self.stop_serving(reason.into(), now),
            Observed::Present { resource, version, warning, .. } => {
                self.serving.warning.clone_from(warning);
                match address::check(resource, &self.identity, self.settings.tls) {
                    Ok(_) => self.propose(resource, version, now),
                    Err(reason) => self.stop_serving(reason, now),
                }
            }
        }
    }

    /// Handles a state of a watched route configuration.
    pub(crate) fn handle_routes(
        &mut self,
        name: &str,
        observed: Arc<Observed<RouteConfiguration>>,
        now: Instant,
    ) {
        if !self.routes.set(name, observed) {
            return;
        }
        let mut outputs = Vec::new();
        self.chains.handle_routes(name, &self.routes, &mut outputs);
        self.outputs.extend(outputs);
        self.activate_settled(now);
        self.report_route_errors();
    }

    /// Handles that the socket listens, as [ordered](Output::Open).
    pub(crate) fn handle_opened(&mut self, now: Instant) {
        let is_needed = self.configs.active().is_some() || !self.settings.release_port;
        if self.port.handle_opened() && !is_needed {
            self.close_port();
        }
        self.update_state(now);
    }

    /// Handles that the socket cannot listen, as [ordered](Output::Open).
    pub(crate) fn handle_open_failed(&mut self, error: &str, now: Instant) {
        self.port.handle_failed(error, now);
        if self.configs.active().is_none() {
            self.port.stop_retrying();
        }
        self.update_state(now);
    }

    /// Handles an error of `accept`.
    pub(crate) fn handle_accept_error(&mut self, error: &AcceptError, now: Instant) {
        match error {
            AcceptError::Transient => self.port.handle_transient_error(now),
            AcceptError::Fatal(error) if self.port.is_listening() => {
                self.outputs.push_back(Output::Close);
                self.drain_all(now);
                self.handle_open_failed(error, now);
            }
            AcceptError::Fatal(_) => {}
        }
    }

    /// Decides on an accepted connection.
    pub(crate) fn accept(&mut self, addresses: &Connection, now: Instant) -> Accept {
        self.port.handle_accepted();
        let Some(active) = self.configs.active().filter(|_| self.serving.state.is_serving()) else {
            return Accept::Reject(RejectReason::NotServing);
        };
        if self.connections.len() >= self.settings.max_connections {
            return Accept::Reject(RejectReason::TooManyConnections);
        }
        if self.connections.counts().handshaking >= self.settings.max_handshakes {
            return Accept::Reject(RejectReason::TooManyHandshakes);
        }
        let Some(chain) = active.chain(addresses) else { return Accept::Reject(RejectReason::NoChain) };
        let connection = self.connections.add(chain, active.generation, now);
        self.chains.handle_accepted(chain);
        Accept::Serve { connection, chain }
    }

    /// Handles the end of the handshake of a connection.
    pub(crate) fn handle_established(&mut self, connection: ConnectionId, now: Instant) {
        let mut outputs = Vec::new();
        self.connections.handle_established(connection, now, &mut outputs);
        self.outputs.extend(outputs);
    }

    /// Handles the end of a connection.
    pub(crate) fn handle_closed(&mut self, connection: ConnectionId, now: Instant) {
        let mut outputs = Vec::new();
        if let Some(chain) = self.connections.remove(connection, &mut outputs) {
            self.chains.handle_closed(chain, &mut outputs);
        }
        self.outputs.extend(outputs);
        if self.is_stopping() {
            self.update_state(now);
        }
    }

    /// Shuts the server down: the port is closed and each connection drains. What is left after a time is closed; without one, after
    /// the [grace](Settings::drain_grace).
    pub(crate) fn shut_down(&mut self, within: Option<Duration>, now: Instant) {
        let mut outputs = self.stop(now);
        let limit = within.and_then(|time| now.checked_add(time));
        self.connections.shut_down(limit, now, &mut outputs);
        self.handle_stopped(outputs, now);
    }

    /// Shuts the server down, and closes all connections at once.
    pub(crate) fn shut_down_now(&mut self, now: Instant) {
        let mut outputs = self.stop(now);
        self.connections.close_all(&mut outputs);
        self.handle_stopped(outputs, now);
    }

    /// Handles the time.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.port.handle_timeout(now) {
            self.outputs.push_back(Output::Open);
        }
        let mut outputs = Vec::new();
        self.connections.handle_timeout(now, &mut outputs);
        self.outputs.extend(outputs);
    }

    /// The next deadline, and what it is of.
    pub(crate) fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        let connection = self.connections.poll_timeout().map(|at| (at, Timer::Connection));
        self.port.poll_timeout().into_iter().chain(connection).min()
    }

    /// The next output.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Whether the owner accepts connections.
    pub(crate) fn is_accepting(&self) -> bool {
        self.port.is_accepting()
    }

    /// The serving state.
    pub(crate) fn state(&self) -> &ServingState {
        &self.serving.state
    }

    /// The status.
    pub(crate) fn status(&self) -> ListenerStatus {
        let (active, pending) = (self.configs.active(), self.configs.pending());
        ListenerStatus {
            name: self.identity.name.clone(),
            address: self.identity.address,
            state: self.serving.state.clone(),
            since: self.serving.since,
            warning: self.serving.warning.clone(),
            version: active.map(|active| active.version.clone()).unwrap_or_default(),
            pending_version: pending.map(|pending| pending.version.clone()).unwrap_or_default(),
            waiting_for: pending
                .map(|pending| self.routes.unsettled(&pending.routes).cloned().collect())
                .unwrap_or_default(),
            filter_chains: self.chains.len(),
            connections: self.connections.counts(),
            drained_by: self.connections.drained_by(),
        }
    }

    /// Ends configurations, watches and the port.
    fn stop(&mut self, now: Instant) -> Vec<Output> {
        let mut outputs = Vec::new();
        if !self.is_stopping() {
            self.configs.clear();
            self.routes.watch(&BTreeSet::new(), &mut outputs);
            self.close_port();
            self.set_state(ServingState::Stopping, now);
        }
        outputs
    }

    /// Ends what no connection needs after a shutdown.
    fn handle_stopped(&mut self, mut outputs: Vec<Output>, now: Instant) {
        self.chains.release_all(&mut outputs);
        self.outputs.extend(outputs);
        self.update_state(now);
    }

    /// Makes a Listener the next configuration, or the current one if its routes are known.
    fn propose(&mut self, listener: &Arc<Listener>, version: &Version, now: Instant) {
        self.configs.propose(listener, version);
        self.watch_routes();
        self.activate_settled(now);
        self.report_route_errors();
    }

    /// Activates the next configuration if the states of its routes are known.
    fn activate_settled(&mut self, now: Instant) {
        let is_settled =
            self.configs.pending().is_some_and(|next| self.routes.unsettled(&next.routes).next().is_none());
        if !is_settled {
            return;
        }
        let Some(next) = self.configs.take_pending() else { return };
        let mut outputs = Vec::new();
        let active = self.configs.active();
        let (chains, default) = self.chains.install(&next.listener, active, &self.routes, &mut outputs);
        let generation = self.configs.activate(next, chains, default);
        self.serving.reason = None;
        // SV6.3
        let is_kept =
            |chain: ChainId| self.settings.drain_changed_chains_only && self.chains.is_active(chain);
        self.connections.drain_older(generation, is_kept, now, &mut outputs);
        self.chains.sweep(&mut outputs);
        self.outputs.extend(outputs);
        self.watch_routes();
        if self.port.open() {
            self.outputs.push_back(Output::Open);
        }
        self.update_state(now);
    }

    /// Discards the configurations, and drains all connections.
    fn stop_serving(&mut self, reason: NotServing, now: Instant) {
        self.serving.reason = Some(reason);
        self.serving.warning = None;
        self.configs.clear();
        self.watch_routes();
        self.drain_all(now);
        let mut outputs = Vec::new();
        self.chains.release_all(&mut outputs);
        self.outputs.extend(outputs);
        self.port.stop_retrying();
        if self.settings.release_port {
            self.close_port();
        }
        self.report_route_errors();
        self.update_state(now);
    }

    /// Drains all connections, since the server does not serve (SV3.6).
    fn drain_all(&mut self, now: Instant) {
        let mut outputs = Vec::new();
        self.connections.drain_older(u64::MAX, |_| false, now, &mut outputs);
        self.outputs.extend(outputs);
    }

    fn close_port(&mut self) {
        if self.port.close() {
            self.outputs.push_back(Output::Close);
        }
    }

    /// Watches the route configurations of both configurations.
    fn watch_routes(&mut self) {
        let mut outputs = Vec::new();
        self.routes.watch(&self.configs.route_names(), &mut outputs);
        self.outputs.extend(outputs);
    }

    fn is_stopping(&self) -> bool {
        matches!(self.serving.state, ServingState::Stopping | ServingState::Stopped)
    }

    /// Sets the state that follows from the configurations, the port and the connections.
    fn update_state(&mut self, now: Instant) {
        let state = if self.is_stopping() {
            if self.connections.is_empty() { ServingState::Stopped } else { ServingState::Stopping }
        } else if let Some(reason) = &self.serving.reason {
            ServingState::NotServing(reason.clone())
        } else if self.configs.active().is_none() {
            // What is pending changes nothing.
            return;
        } else if let Some(error) = self.port.error() {
            let Identity { name, address, node, .. } = &self.identity;
            let reason = format!("Listener {name:?}: cannot listen on {address}: {error} [node id: {node}]");
            ServingState::NotServing(NotServing::new(Code::Unavailable, reason))
        } else if self.port.is_listening() {
            ServingState::Serving
        } else {
            return;
        };
        self.set_state(state, now);
    }

    fn set_state(&mut self, state: ServingState, now: Instant) {
        if self.serving.state != state {
            self.serving.state = state.clone();
            self.serving.since = now;
            self.outputs.push_back(Output::State(state));
        }
    }

    /// Reports the mistakes in the routes in use when they have changed (SV7.11).
    fn report_route_errors(&mut self) {
        let errors = self.chains.route_errors();
        if errors != self.route_errors {
            self.outputs.push_back(Output::RouteErrors(errors.iter().cloned().collect()));
            self.route_errors = errors;
        }
    }
}
