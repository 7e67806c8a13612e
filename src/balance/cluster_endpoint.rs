//! An endpoint of a cluster in use: its addresses, its connection, and what is counted for it.

use std::{mem, sync::Arc, time::Instant};

use super::{
    breaker::Breaker,
    command::ConnectionId,
    connection_event::ConnectionEvent,
    connectivity::Connectivity,
    endpoint_spec::{EndpointKey, EndpointSpec, Hostname, ListPosition},
    identity::{Destination, Rotation},
    load::{Load, Loads},
    locality_config::EndpointConfig,
    observer::LocalityLabel,
    outlier::Tracked,
    pick_first::{PickFirst, PickFirstSettings},
    policies::EndpointState,
    ready_endpoint::ReadyEndpoint,
    ready_set::Listed,
    released_connections::ReleasedConnections,
    rotation::Rotated,
    scope::Scope,
    session_endpoints::HostState,
    stream_queue::Connections,
    subchannel::{Established, Subchannel},
    weighing::Weighing,
    weights::{LoadReport, WeightSettings},
};

/// An endpoint of a cluster.
#[derive(Debug)]
pub(super) struct ClusterEndpoint<H> {
    pick_first: PickFirst<H>,
    /// The addresses as they are configured, before pick_first interleaves them.
    destinations: Vec<Destination>,
    hostname: Hostname,
    /// Whether a lost connection is replaced without a request.
    reconnects: bool,
    /// A connection was requested once.
    is_started: bool,
    /// The places in the lists of priorities, of which most endpoints have one.
    positions: Vec<ListPosition>,
    /// Made with the first connection.
    load: Option<Load>,
    locality: LocalityLabel,
    /// Set if the cluster of the endpoint has outlier detection.
    tracked: Option<Tracked>,
    /// Under a policy that has weights by load.
    weighing: Option<Weighing>,
    /// What pickers have of it, while it is connected.
    ready: Option<Arc<ReadyEndpoint<H>>>,
    /// Pickers leave it out, as it is ejected.
    is_left_out: bool,
    /// The state that the levels above know: that of the connection, or a failure while it is ejected (CH3.23).
    pub(super) connectivity: Connectivity,
    pub(super) timeout: Option<Instant>,
}

/// What changed in an endpoint: before, and after.
#[derive(Debug)]
pub(super) struct EndpointChange {
    pub(super) connectivity: (Connectivity, Connectivity),
    pub(super) timeout: (Option<Instant>, Option<Instant>),
    /// Pickers have another endpoint, or none.
    pub(super) is_ready_changed: bool,
}

/// What an endpoint needs of its cluster.
pub(super) struct ClusterContext<'a> {
    pub(super) breaker: &'a Arc<Breaker>,
    pub(super) loads: &'a mut Loads,
    /// Set if the policy has weights by load.
    pub(super) weights: Option<&'a WeightSettings>,
    /// The maximum number of connections to an endpoint (CH4.9).
    pub(super) max_connections: usize,
}

impl<H: Clone> ClusterEndpoint<H> {
    pub(super) fn new(settings: PickFirstSettings) -> Self {
        Self {
            pick_first: PickFirst::new(settings),
            destinations: Vec::new(),
            hostname: Hostname::Of(None),
            reconnects: true,
            is_started: false,
            positions: Vec::new(),
            load: None,
            locality: LocalityLabel::None,
            tracked: None,
            weighing: None,
            ready: None,
            is_left_out: false,
            connectivity: Connectivity::Idle,
            timeout: None,
        }
    }

    /// What pickers have of it, while it is ready.
    pub(super) fn ready(&self) -> Option<&Arc<ReadyEndpoint<H>>> {
        self.ready.as_ref().filter(|_| !self.is_left_out)
    }

    /// The endpoint as pickers have it, also while they leave it out.
    pub(super) fn listed(&self) -> Option<Listed<H>> {
        self.ready.as_ref().map(|ready| Listed::new(ready, self.is_left_out))
    }

    /// State of the endpoint, with what its policy needs of it.
    pub(super) fn state(&self) -> EndpointState<H> {
        EndpointState::of(self.connectivity, self.ready(), self.pick_first.error())
    }

    /// The subchannel of each address.
    pub(super) fn subchannels(&self) -> impl Iterator<Item = &Subchannel<H>> {
        self.pick_first.subchannels()
    }

    /// The newest error of a connection.
    pub(super) fn error(&self) -> Option<&Arc<str>> {
        self.pick_first.error()
    }

    /// The weight by load, if there is one that counts.
    pub(super) fn load_weight(&self, settings: &WeightSettings, now: Instant) -> Option<f64> {
        self.weighing.as_ref()?.weight().state(settings, now).usable()
    }

    /// What calls with cookies may do with each of its addresses.
    pub(super) fn host_states(&self) -> Vec<(Destination, HostState<H>)> {
        let is_sole = self.destinations.len() == 1;
        let state = |subchannel: &Subchannel<H>| match (subchannel.connectivity(), self.ready()) {
            (Connectivity::Ready, Some(ready)) => HostState::Ready(ready.clone()),
            // It is ejected.
            (Connectivity::Ready, None) => HostState::Failing(None),
            (Connectivity::Connecting, _) => HostState::Connecting,
            (Connectivity::Idle, _) if is_sole => HostState::Idle,
            // It is connected to another address, or none is attempted: which one that will be is not the call's to say.
            (Connectivity::Idle, _) => HostState::Absent,
            (Connectivity::TransientFailure, _) => {
                HostState::Failing(subchannel.poll_timeout().filter(|_| is_sole))
            }
        };
        self.pick_first
            .subchannels()
            .map(|subchannel| (subchannel.destination().clone(), state(subchannel)))
            .collect()
    }

    /// Whether it is configured as this already, with a connection of its own.
    pub(super) fn is_as(&self, endpoint: &EndpointConfig) -> bool {
        let is_alike = matches!(&self.hostname, Hostname::Of(hostname) if *hostname == endpoint.hostname);
        is_alike && self.destinations.iter().cloned().eq(endpoint.destinations())
    }

    /// Where the endpoint is listed; nowhere while an update takes it from one list to another.
    pub(super) fn positions(&self) -> &[ListPosition] {
        &self.positions
    }

    /// Adds a position of the endpoint; mostly it is the only one.
    pub(super) fn add_position(&mut self, position: ListPosition) {
        self.positions.reserve_exact(1);
        self.positions.push(position);
    }

    /// Removes the other positions of the endpoint.
    pub(super) fn retain_positions(&mut self, is_kept: impl Fn(&ListPosition) -> bool) {
        self.positions.retain(is_kept);
    }

    /// The endpoint has another index in a list, since others before it were added or removed.
    pub(super) fn set_index(&mut self, before: ListPosition, index: usize) {
        if let Some(position) = self.positions.iter_mut().find(|position| **position == before) {
            position.index = index;
        }
    }

    /// Its key, under a policy with a connection for each endpoint.
    pub(super) fn key(&self) -> EndpointKey {
        let identity =
            self.destinations.first().map(|destination| destination.identity.clone()).unwrap_or_default();
        // All addresses of an endpoint have the same identity.
        EndpointKey::of(self.destinations.iter().map(|destination| destination.address).collect(), identity)
    }

    /// Whether outlier detection has ejected it.
    pub(super) fn is_ejected(&self) -> bool {
        self.tracked.as_ref().is_some_and(|tracked| tracked.is_ejected)
    }

    /// What outlier detection knows of it; [`update_state`](Self::update_state) follows.
    pub(super) fn set_tracked(&mut self, tracked: Option<Tracked>) {
        self.tracked = tracked;
    }

    /// Outlier detection has ejected it, or has ended that; [`update_state`](Self::update_state) follows.
    pub(super) fn set_ejected(&mut self, is_ejected: bool) {
        if let Some(tracked) = &mut self.tracked {
            tracked.is_ejected = is_ejected;
        }
    }

    /// Sets its locality for metrics; [`update_state`](Self::update_state) follows.
    pub(super) fn set_locality(&mut self, locality: LocalityLabel) {
        if self.locality != locality {
            // `refresh_ready` compares neither labels nor hostnames, so it must find nothing to keep.
            (self.locality, self.ready) = (locality, None);
        }
    }

    /// The label of its first address's locality.
    pub(super) fn locality(&self) -> Option<Arc<str>> {
        self.locality.of(self.destinations.first()?.address)
    }

    /// Gives away the connections to addresses that it has no more; [`update`](Self::update) follows.
    pub(super) fn release_unlisted(&mut self, next: &[Destination], released: &mut ReleasedConnections<H>) {
        if self.destinations != next {
            self.pick_first.release_unlisted(next, released);
        }
    }

    /// Gives away all connections.
    pub(super) fn release_connections(self, released: &mut ReleasedConnections<H>) {
        self.pick_first.release_connections(released);
    }

    /// The order of the addresses is passed on without reconnecting (CH3.24).
    pub(super) fn update(
        &mut self,
        config: EndpointSpec,
        released: &mut ReleasedConnections<H>,
        scope: &mut Scope<'_>,
    ) {
        self.reconnects = config.reconnects;
        if self.hostname != config.hostname {
            (self.hostname, self.ready) = (config.hostname, None);
        }
        let can_adopt = || config.destinations.iter().any(|destination| released.has_ready(destination));
        if self.destinations != config.destinations || (self.pick_first.ready().is_none() && can_adopt()) {
            self.destinations.clone_from(&config.destinations);
            self.pick_first.update(config.destinations, released, scope);
            // A connection that was taken over is kept like one that was requested.
            self.is_started |= self.pick_first.ready().is_some();
        }
    }

    /// Requests the first connection.
    pub(super) fn start(&mut self, scope: &mut Scope<'_>) {
        if !self.is_started {
            self.connect(scope);
        }
    }

    /// Requests a connection, unless one is established or attempted; [`update_state`](Self::update_state) follows.
    pub(super) fn connect(&mut self, scope: &mut Scope<'_>) {
        self.is_started = true;
        self.pick_first.connect(scope);
    }

    /// Something became of a connection; [`update_state`](Self::update_state) follows.
    pub(super) fn on_event(
        &mut self,
        connection: ConnectionId,
        event: ConnectionEvent<H>,
        scope: &mut Scope<'_>,
    ) {
        match event {
            ConnectionEvent::Connected(streams) => self.pick_first.on_connected(connection, streams, scope),
            ConnectionEvent::Failed(error) => self.pick_first.on_failed(connection, error, scope),
            ConnectionEvent::Lost => self.pick_first.on_lost(connection, scope),
            // A further connection is attempted after each event.
            ConnectionEvent::Full => {}
        }
    }

    /// Handles the end of a delay; [`update_state`](Self::update_state) follows.
    pub(super) fn handle_timeout(&mut self, scope: &mut Scope<'_>) {
        self.pick_first.handle_timeout(scope);
    }

    /// Ends the delays after failures; [`update_state`](Self::update_state) follows.
    pub(super) fn reset_backoff(&mut self, scope: &mut Scope<'_>) {
        self.pick_first.reset_backoff(scope);
    }

    /// Whether any of its connections is made with certificates that were replaced.
    pub(super) fn is_of(&self, rotation: &Rotation) -> bool {
        self.destinations.iter().any(|destination| destination.identity.is_of(rotation))
    }

    /// Certificates were replaced; [`update_state`](Self::update_state) follows.
    pub(super) fn on_rotation(&mut self, rotation: &Rotated<'_>, scope: &mut Scope<'_>) {
        self.pick_first.on_rotation(rotation, scope);
    }

    /// The endpoint has reported its load beside the calls. Reports that nobody needs any more are ended.
    pub(super) fn on_load(
        &mut self,
        connection: ConnectionId,
        report: &LoadReport,
        settings: Option<&WeightSettings>,
        scope: &mut Scope<'_>,
    ) {
        match (&self.weighing, settings) {
            (Some(weighing), Some(settings)) => weighing.on_report(report, settings, scope),
            (Some(_) | None, _) => scope.commands.watch_load(connection, None),
        }
    }

    /// Connects again if that is the policy's way, and says what changed since the last time.
    pub(super) fn update_state(&mut self, of: ClusterContext<'_>, scope: &mut Scope<'_>) -> EndpointChange {
        // CH3.26, for started endpoints alone: those of a priority that is not in use stay idle.
        if self.is_started && self.reconnects && self.pick_first.connectivity() == Connectivity::Idle {
            self.pick_first.connect(scope);
        }
        self.pick_first.scale(of.max_connections, scope);
        let ready = self.pick_first.ready();
        let connection =
            ready.and_then(|established| established.connections.first()).map(|(connection, _)| *connection);
        // Before `refresh_ready`, which hands the weight to pickers.
        Weighing::update(&mut self.weighing, of.weights, connection, scope);
        // The connection goes on, and connects again if it is lost: an ejection is not its end (CH3.23).
        let connectivity = match self.is_ejected() {
            true => Connectivity::TransientFailure,
            false => self.pick_first.connectivity(),
        };
        let timeout = self.pick_first.poll_timeout();
        EndpointChange {
            is_ready_changed: self.refresh_ready(of),
            connectivity: (mem::replace(&mut self.connectivity, connectivity), connectivity),
            timeout: (mem::replace(&mut self.timeout, timeout), timeout),
        }
    }

    /// Whether pickers have another endpoint from now on, or none.
    fn refresh_ready(&mut self, ClusterContext { breaker, loads, .. }: ClusterContext<'_>) -> bool {
        let is_ejected = self.is_ejected();
        let was_left_out = mem::replace(&mut self.is_left_out, is_ejected);
        let Some(Established { destination, connections, queue }) = self.pick_first.ready() else {
            return self.ready.take().is_some();
        };
        let outcomes = self.tracked.as_ref().map(|tracked| &tracked.outcomes);
        let weight = self.weighing.as_ref().map(Weighing::weight);
        let is_same = |known: &Arc<ReadyEndpoint<H>>| {
            known.connection == connections[0].0
                && known.connections.are(connections)
                && Arc::ptr_eq(&known.breaker, breaker)
                && known.outcomes.as_ref().map(Arc::as_ptr) == outcomes.map(Arc::as_ptr)
                && known.weight.as_ref().map(Arc::as_ptr) == weight.map(Arc::as_ptr)
        };
        if self.ready.as_ref().is_some_and(is_same) {
            // Pickers leave an ejected endpoint out by a mask, so it need not be made anew.
            return was_left_out != self.is_left_out;
        }
        // There is one, since the endpoint is ready.
        let Some(of) = Connections::new(connections, queue) else { return false };
        let (connection, hostname) = (connections[0].0, self.hostname.of(destination));
        let Destination { address, identity } = destination.clone();
        // The count outlives connections: attempts on a lost one may still be running (CH13.7).
        let load = self.load.get_or_insert_with(|| loads.add()).clone();
        let (breaker, outcomes) = (breaker.clone(), outcomes.cloned());
        let weight = weight.cloned();
        let locality = self.locality.of(address);
        self.ready = Some(Arc::new(ReadyEndpoint {
            connection,
            connections: of,
            address,
            identity,
            hostname,
            locality,
            load,
            breaker,
            outcomes,
            weight,
        }));
        true
    }
}
