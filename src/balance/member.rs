//! An endpoint of a cluster in use: its addresses, its connection, and what is counted for it.

use std::{mem, net::SocketAddr, sync::Arc, time::Instant};

use super::{
    breaker::Breaker,
    command::ConnectionId,
    connectivity::Connectivity,
    handover::Handover,
    leaf::Scope,
    load::{Load, Loads},
    pick_first::{PickFirst, PickFirstSettings},
    picker::ReadyEndpoint,
    policy::EndpointConfig,
    ring_slots::EndpointState,
};

/// What makes an endpoint the same in two configurations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// The set of its addresses (CH3.24), sorted.
    Endpoint(Vec<SocketAddr>),
    /// All endpoints of a priority, or of one of its localities, under pick_first.
    All { priority: usize, locality: Option<String> },
}

/// Where an endpoint is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) priority: usize,
    pub(super) group: usize,
    /// Its place in the group.
    pub(super) index: usize,
}

/// How an endpoint is configured.
#[derive(Debug)]
pub(super) struct MemberConfig {
    pub(super) key: Key,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) hostname: Option<Arc<str>>,
    /// A lost connection is replaced at once (CH3.26); otherwise the next pick requests it (CH3.22).
    pub(super) reconnects: bool,
}

impl MemberConfig {
    /// An endpoint with a connection of its own.
    pub(super) fn of(endpoint: &EndpointConfig) -> Self {
        Self {
            key: Key::of(&endpoint.addresses),
            addresses: endpoint.addresses.clone(),
            hostname: endpoint.hostname.clone(),
            reconnects: true,
        }
    }
}

impl Key {
    fn of(addresses: &[SocketAddr]) -> Self {
        let mut addresses = addresses.to_vec();
        addresses.sort_unstable();
        Self::Endpoint(addresses)
    }
}

/// An endpoint of a cluster.
#[derive(Debug)]
pub(super) struct Member<H> {
    pick_first: PickFirst<H>,
    addresses: Vec<SocketAddr>,
    hostname: Option<Arc<str>>,
    reconnects: bool,
    /// A connection was requested once.
    is_started: bool,
    pub(super) places: Vec<Place>,
    /// Made with the first connection.
    load: Option<Load>,
    /// What pickers have of it, while it is ready.
    ready: Option<Arc<ReadyEndpoint<H>>>,
    /// The state that the levels above know.
    pub(super) connectivity: Connectivity,
    pub(super) timeout: Option<Instant>,
}

/// What changed in an endpoint: before, and after.
pub(super) struct Change {
    pub(super) connectivity: (Connectivity, Connectivity),
    pub(super) timeout: (Option<Instant>, Option<Instant>),
    /// Pickers have another endpoint, or none.
    pub(super) is_ready_changed: bool,
}

impl<H: Clone> Member<H> {
    pub(super) fn new(settings: PickFirstSettings) -> Self {
        Self {
            pick_first: PickFirst::new(settings),
            addresses: Vec::new(),
            hostname: None,
            reconnects: true,
            is_started: false,
            places: Vec::new(),
            load: None,
            ready: None,
            connectivity: Connectivity::Idle,
            timeout: None,
        }
    }

    /// What pickers have of it, while it is ready.
    pub(super) fn ready(&self) -> Option<&Arc<ReadyEndpoint<H>>> {
        self.ready.as_ref()
    }

    /// Its state, with what a pick on a ring needs of it.
    pub(super) fn state(&self) -> EndpointState<H> {
        EndpointState::of(self.connectivity, self.ready(), self.pick_first.error())
    }

    /// Whether it is configured as this already, with a connection of its own.
    pub(super) fn is_as(&self, endpoint: &EndpointConfig) -> bool {
        self.addresses == endpoint.addresses && self.hostname == endpoint.hostname
    }

    /// It is listed there, too; mostly there alone.
    pub(super) fn add_place(&mut self, place: Place) {
        self.places.reserve_exact(1);
        self.places.push(place);
    }

    /// Whether it is listed once, and has one address.
    pub(super) fn is_simple(&self) -> bool {
        self.places.len() == 1 && self.addresses.len() == 1
    }

    /// Its key, under a policy with a connection for each endpoint.
    pub(super) fn key(&self) -> Key {
        Key::of(&self.addresses)
    }

    /// Gives away the connections to addresses that it has no more; [`update`](Self::update) follows.
    pub(super) fn surrender_unlisted(&mut self, next: &[SocketAddr], handover: &mut Handover<H>) {
        if self.addresses != next {
            self.pick_first.surrender_unlisted(next, handover);
        }
    }

    /// Gives away all connections.
    pub(super) fn surrender(self, handover: &mut Handover<H>) {
        self.pick_first.surrender(handover);
    }

    /// The order of the addresses is passed on without reconnecting (CH3.24).
    pub(super) fn update(&mut self, config: MemberConfig, handover: &mut Handover<H>, scope: &mut Scope<'_>) {
        self.reconnects = config.reconnects;
        if self.hostname != config.hostname {
            (self.hostname, self.ready) = (config.hostname, None);
        }
        let can_adopt = || config.addresses.iter().any(|it| handover.has_ready(*it));
        if self.addresses != config.addresses || (self.pick_first.ready().is_none() && can_adopt()) {
            self.addresses.clone_from(&config.addresses);
            self.pick_first.update(config.addresses, handover, (scope.now, scope.random), scope.commands);
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

    pub(super) fn connect(&mut self, scope: &mut Scope<'_>) {
        self.is_started = true;
        self.pick_first.connect((scope.now, scope.random), scope.commands);
    }

    pub(super) fn on_connected(&mut self, connection: ConnectionId, handle: H, scope: &mut Scope<'_>) {
        self.pick_first.on_connected((connection, handle), scope.commands);
    }

    pub(super) fn on_failed(&mut self, connection: ConnectionId, error: Arc<str>, scope: &mut Scope<'_>) {
        self.pick_first.on_failed(connection, error, (scope.now, scope.random), scope.commands);
    }

    pub(super) fn on_lost(&mut self, connection: ConnectionId, scope: &mut Scope<'_>) {
        self.pick_first.on_lost(connection, scope.commands);
    }

    pub(super) fn handle_timeout(&mut self, scope: &mut Scope<'_>) {
        self.pick_first.handle_timeout((scope.now, scope.random), scope.commands);
    }

    pub(super) fn reset_backoff(&mut self, scope: &mut Scope<'_>) {
        self.pick_first.reset_backoff((scope.now, scope.random), scope.commands);
    }

    pub(super) fn close(&mut self, scope: &mut Scope<'_>) {
        self.pick_first.close(scope.commands);
    }

    /// Connects again if that is the policy's way, and says what changed since the last time. Needs the circuit breaker and the
    /// counters of the cluster.
    pub(super) fn settle(&mut self, of: (&Arc<Breaker>, &mut Loads), scope: &mut Scope<'_>) -> Change {
        if self.is_started && self.reconnects && self.pick_first.connectivity() == Connectivity::Idle {
            self.pick_first.connect((scope.now, scope.random), scope.commands);
        }
        let connectivity = self.pick_first.connectivity();
        let timeout = self.pick_first.poll_timeout();
        Change {
            is_ready_changed: self.refresh_ready(of),
            connectivity: (mem::replace(&mut self.connectivity, connectivity), connectivity),
            timeout: (mem::replace(&mut self.timeout, timeout), timeout),
        }
    }

    /// Whether pickers have another endpoint from now on, or none.
    fn refresh_ready(&mut self, (breaker, loads): (&Arc<Breaker>, &mut Loads)) -> bool {
        let Some((connection, address, handle)) = self.pick_first.ready() else {
            return self.ready.take().is_some();
        };
        let is_same = |known: &Arc<ReadyEndpoint<H>>| {
            known.connection == connection && Arc::ptr_eq(&known.breaker, breaker)
        };
        if self.ready.as_ref().is_some_and(is_same) {
            return false;
        }
        let (handle, hostname) = (handle.clone(), self.hostname.clone());
        let load = self.load.get_or_insert_with(|| loads.add()).clone();
        let breaker = breaker.clone();
        let ready = ReadyEndpoint { connection, handle, address, hostname, load, breaker };
        self.ready = Some(Arc::new(ready));
        true
    }
}
