//! A server with its peers, its management server and its port.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    model::{Model, Port},
    peers::{Peer, Resources},
};
use crate::{
    error::Code,
    resolve::RouteQuery,
    resource::filter_chain::Connection,
    serve::{
        Accept, AcceptError, ChainId, ChainRef, CloseReason, ConnectionId, Identity, ListenerMachine, Output,
        RejectReason, Routing, ServingState, Settings, fixture,
    },
};

pub(super) struct World {
    machine: ListenerMachine,
    settings: Settings,
    model: Model,
    now: Instant,
    random: fastrand::Rng,
    resources: Resources,
    peers: BTreeMap<ConnectionId, Peer>,
    chains: BTreeMap<ChainId, (ChainRef, Arc<Routing>)>,
    watched: BTreeSet<Arc<str>>,
    port: Port,
    state: ServingState,
    /// The number of swaps.
    generation: u64,
    neighbor: Option<ConnectionId>,
    outcomes: BTreeMap<&'static str, u64>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let is_listening = random.bool();
        let settings = Settings {
            drain_grace: Duration::from_secs(random.u64(0..60)),
            drain_spread: Duration::from_secs(if random.bool() { 0 } else { random.u64(1..30) }),
            drain_changed_chains_only: random.u8(..4) == 0,
            release_port: random.bool(),
            handshake_timeout: Duration::from_secs(random.u64(5..60)),
            max_handshakes: random.usize(1..6),
            max_connections: random.usize(4..12),
            max_connection_age: if random.bool() { Duration::MAX } else { Duration::from_secs(100) },
            ..Settings::default()
        };
        let now = Instant::now();
        let identity = Identity {
            name: "server".into(),
            address: fixture::address(),
            node: "node".into(),
            is_listening,
        };
        Self {
            machine: ListenerMachine::new(identity, settings.clone(), seed, now),
            settings,
            model: Model::default(),
            now,
            random,
            resources: Resources::new(),
            peers: BTreeMap::new(),
            chains: BTreeMap::new(),
            watched: BTreeSet::new(),
            port: if is_listening { Port::Listening } else { Port::Closed },
            state: ServingState::Starting,
            generation: 0,
            neighbor: None,
            outcomes: BTreeMap::new(),
        }
    }

    /// Plays the world to its end; returns how often what has happened.
    pub(super) fn play(mut self) -> BTreeMap<&'static str, u64> {
        for _ in 0..120 {
            self.step();
            self.drain_outputs();
            self.call_as_neighbor();
            self.check();
        }
        self.end()
    }

    fn step(&mut self) {
        match self.random.u32(0..100) {
            0..8 => self.update_listener(),
            8..12 => self.lose_listener(),
            12..26 => self.update_routes(),
            26..48 => self.accept(),
            48..58 => self.request(),
            58..64 => self.vanish(),
            64..66 => {
                if self.machine.is_accepting() {
                    self.machine.handle_accept_error(&AcceptError::Transient, self.now);
                    assert!(!self.machine.is_accepting());
                    self.note("accept failed");
                }
            }
            66 => self.break_port(),
            _ => {
                let time = Duration::from_millis(self.random.u64(0..15_000));
                self.pass(time);
            }
        }
    }

    fn update_listener(&mut self) {
        let index = self.random.usize(..self.resources.listeners.len());
        let listener = self.resources.listeners[index].clone();
        self.machine.handle_listener(&fixture::present(&listener), self.now);
        let has_swapped = self.model.listener(Some(&listener));
        self.on_model_changed(has_swapped);
        if self.model.is_pending() {
            self.note("pending");
        }
    }

    fn lose_listener(&mut self) {
        let code = if self.random.bool() { Code::NotFound } else { Code::Unavailable };
        self.machine.handle_listener(&fixture::absent(code, "server"), self.now);
        self.model.listener(None);
        self.on_model_changed(false);
    }

    fn update_routes(&mut self) {
        let index = self.random.usize(..self.resources.routes.len());
        let routes = self.resources.routes[index].clone();
        let observed = match self.random.u8(..5) {
            0 => fixture::absent(Code::NotFound, &routes.name),
            _ => fixture::present(&routes),
        };
        self.machine.handle_routes(&routes.name, Arc::new(observed.clone()), self.now);
        let has_swapped = self.model.routes(&routes.name, observed);
        self.on_model_changed(has_swapped);
    }

    /// Every older connection has to drain, whoever is at its other end.
    fn on_model_changed(&mut self, has_swapped: bool) {
        if has_swapped || self.model.active.is_none() {
            self.generation += 1;
        }
        if has_swapped && !self.peers.is_empty() {
            self.note("swapped with older connections");
        }
    }

    fn accept(&mut self) {
        // Some are of a chain of their own, and some of none.
        let source = if self.random.bool() { [10, 0, 0, 2] } else { [192, 0, 2, 1] };
        let handshake = (self.random.u8(..6) > 0).then(|| self.random.u64(0..20));
        let Some(connection) = self.connect(source, handshake) else { return };
        let ends_at = (self.random.u8(..4) == 0).then(|| self.now + Duration::from_secs(30));
        let drain_time = (self.random.u8(..3) > 0).then(|| self.random.u64(0..40));
        let peer = self.peers.get_mut(&connection).unwrap();
        (peer.ends_at, peer.drain_time) = (ends_at, drain_time);
    }

    /// Connects from an address, if the server accepts that; its decision is the model's.
    fn connect(&mut self, source: [u8; 4], handshake: Option<u64>) -> Option<ConnectionId> {
        if !self.machine.is_accepting() {
            return None;
        }
        let addresses = Connection::new(fixture::address(), (source, 5000).into());
        let handshaking = self.peers.values().filter(|peer| !peer.is_established && !peer.is_closed);
        let expected = if self.model.active.is_none() {
            Some(RejectReason::NotServing)
        } else if self.peers.len() >= self.settings.max_connections {
            Some(RejectReason::TooManyConnections)
        } else if handshaking.count() >= self.settings.max_handshakes {
            Some(RejectReason::TooManyHandshakes)
        } else if self.model.chain(addresses.source).is_none() {
            Some(RejectReason::NoChain)
        } else {
            None
        };
        let (connection, chain) = match (self.machine.accept(&addresses, self.now), expected) {
            (Accept::Serve { connection, chain }, None) => (connection, chain),
            (Accept::Reject(reason), Some(expected)) => {
                assert_eq!(reason, expected);
                self.note(match reason {
                    RejectReason::NotServing => "rejected: not serving",
                    RejectReason::NoChain => "rejected: no filter chain matches",
                    RejectReason::TooManyConnections => "rejected: too many connections",
                    RejectReason::TooManyHandshakes => "rejected: too many unfinished handshakes",
                });
                return None;
            }
            (accept, expected) => panic!("{accept:?}, expected {expected:?}"),
        };
        self.note("served");
        assert_eq!(Some(self.chains[&chain].0.chain()), self.model.chain(addresses.source));
        let established_at = handshake.map(|seconds| self.now + Duration::from_secs(seconds));
        let peer = Peer {
            chain,
            generation: self.generation,
            established_at,
            is_established: false,
            drained_at: None,
            ends_at: None,
            drain_time: Some(0),
            requests: Vec::new(),
            is_closed: false,
            is_neighbor: false,
        };
        self.peers.insert(connection, peer);
        Some(connection)
    }

    /// Makes a request on any connection, or ends one.
    fn request(&mut self) {
        let open: Vec<_> =
            self.peers.iter().filter(|(_, peer)| peer.is_established).map(|(id, _)| *id).collect();
        let Some(id) = self.random.choice(open) else { return };
        let peer = self.peers.get_mut(&id).unwrap();
        if self.random.bool()
            && let Some((routed, name)) = peer.requests.pop()
        {
            // It sees one configuration, whatever has happened since.
            assert_eq!(routed.route().name, name);
            return;
        }
        let routing = &self.chains[&peer.chain].1;
        let outcome = match routing.route(Some("host"), &RouteQuery::new("/b", 1)) {
            Ok(routed) => {
                let name = routed.route().name.clone();
                peer.requests.push((routed, name));
                "routed"
            }
            Err(refusal) => {
                assert_eq!(refusal.code, Code::Unavailable);
                "refused"
            }
        };
        self.note(outcome);
    }

    fn vanish(&mut self) {
        let ids: Vec<_> =
            self.peers.iter().filter(|(_, peer)| !peer.is_neighbor).map(|(id, _)| *id).collect();
        if let Some(id) = self.random.choice(ids) {
            self.close(id);
        }
    }

    fn break_port(&mut self) {
        if self.port == Port::Listening {
            self.machine.handle_accept_error(&AcceptError::Fatal("broken".into()), self.now);
            // The connections drain with the state.
            self.generation += 1;
            if self.model.active.is_some() {
                self.port = Port::Failed;
            }
            self.note("port failed");
        }
    }

    /// The neighbour has a connection whenever it can, and its requests have the latest routes.
    fn call_as_neighbor(&mut self) {
        let is_served = self.model.active.is_some() && self.port == Port::Listening;
        if self.neighbor.is_none() && is_served && self.machine.is_accepting() {
            let Some(id) = self.connect([192, 0, 2, 9], Some(0)) else { return };
            self.neighbor = Some(id);
            let peer = self.peers.get_mut(&id).unwrap();
            (peer.is_neighbor, peer.is_established) = (true, true);
            self.machine.handle_established(id, self.now);
            self.drain_outputs();
        }
        let Some(peer) = self.neighbor.and_then(|id| self.peers.get(&id)) else { return };
        let (config, routing) = &self.chains[&peer.chain];
        if peer.generation == self.generation
            && let Some(routes) = self.model.routes_of(config.chain())
        {
            let routed = routing.route(Some("host"), &RouteQuery::new("/a", 1)).unwrap();
            assert!(std::ptr::eq(routed.virtual_host(), &raw const routes.virtual_hosts[0]));
        }
    }

    /// Lets time pass, with all that is due.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let timer = self.machine.poll_timeout().map(|(at, _)| at);
            let established = self.peers.values().filter(|peer| !peer.is_established && !peer.is_closed);
            let handshakes = established.filter_map(|peer| peer.established_at);
            let ends = self.peers.values().filter_map(|peer| peer.ends_at);
            let next = timer.into_iter().chain(handshakes).chain(ends).min().filter(|at| *at <= end);
            let Some(at) = next else { break };
            self.now = self.now.max(at);
            self.machine.handle_timeout(self.now);
            self.drain_outputs();
            self.move_peers();
            self.drain_outputs();
            self.check();
        }
        self.now = end;
    }

    fn move_peers(&mut self) {
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            let peer = self.peers.get_mut(&id).unwrap();
            let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= self.now);
            if is_due(peer.ends_at) {
                self.close(id);
            } else if !peer.is_established && !peer.is_closed && is_due(peer.established_at) {
                peer.is_established = true;
                self.machine.handle_established(id, self.now);
            }
        }
    }

    fn close(&mut self, id: ConnectionId) {
        self.peers.remove(&id);
        if self.neighbor == Some(id) {
            self.neighbor = None;
        }
        self.machine.handle_closed(id, self.now);
    }

    fn drain_outputs(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::WatchRoutes(name) => assert!(self.watched.insert(name)),
                Output::EndRoutes(name) => assert!(self.watched.remove(&name)),
                Output::Open => self.open(),
                Output::Close => {
                    self.port = if self.port == Port::Failed { Port::Failed } else { Port::Closed }
                }
                Output::AddChain { chain, config, routing } => {
                    assert!(self.chains.insert(chain, (config, routing)).is_none());
                }
                Output::SetRouting { chain, routing } => self.chains.get_mut(&chain).unwrap().1 = routing,
                Output::RemoveChain(chain) => assert!(self.chains.remove(&chain).is_some()),
                Output::Drain(connection) => self.on_drain(connection),
                Output::CloseConnection(connection, reason) => self.on_close(connection, reason),
                Output::Drained { connections } => {
                    assert!(connections > 0);
                    self.note("batch drained");
                }
                Output::State(state) => {
                    assert_ne!(self.state, state);
                    self.state = state;
                }
                Output::RouteErrors(_) => {}
            }
        }
    }

    fn open(&mut self) {
        match self.random.u8(..4) {
            0 => {
                self.port = Port::Failed;
                self.machine.handle_open_failed("address in use", self.now);
                self.note("port failed");
            }
            _ => {
                self.port = Port::Listening;
                self.machine.handle_opened(self.now);
            }
        }
    }

    fn on_drain(&mut self, id: ConnectionId) {
        let peer = self.peers.get_mut(&id).unwrap();
        assert!(peer.drained_at.replace(self.now).is_none(), "it drains twice");
        assert!(peer.is_established);
        let ends_at = peer.drain_time.map(|seconds| self.now + Duration::from_secs(seconds));
        peer.ends_at = peer.ends_at.into_iter().chain(ends_at).min();
        self.note("drained");
        if self.neighbor == Some(id) {
            self.close(id);
        }
    }

    fn on_close(&mut self, id: ConnectionId, reason: CloseReason) {
        let (grace, now) = (self.settings.drain_grace, self.now);
        // It may have ended after the order.
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let is_unfair = peer.is_neighbor && reason != CloseReason::ShutDown;
        assert!(!is_unfair, "the neighbour's connection is closed: {reason:?}");
        assert!(!std::mem::replace(&mut peer.is_closed, true), "it is closed twice");
        match reason {
            CloseReason::Handshake => assert!(!peer.is_established),
            CloseReason::Grace => {
                let drained_at = peer.drained_at.expect("it drains");
                assert!(self.model.is_shut_down || drained_at + grace == now);
            }
            CloseReason::ShutDown => assert!(self.model.is_shut_down),
        }
        // The shell takes a moment.
        peer.ends_at = Some(now + Duration::from_millis(1));
        self.note(match reason {
            CloseReason::Handshake => "closed: the handshake took too long",
            CloseReason::Grace => "closed: not drained within the grace period",
            CloseReason::ShutDown => "closed: the server is shut down",
        });
    }

    fn check(&self) {
        assert_eq!(self.watched, self.model.watched());
        let (state, connections) = (self.machine.state(), self.peers.len());
        assert_eq!(*state, self.state);
        assert!(self.model.permits(state, self.port, connections), "{state:?}, {:?}", self.port);
        let status = self.machine.status();
        let counts = status.connections;
        assert_eq!(counts.handshaking + counts.serving + counts.draining + counts.closing, connections);
        // Every connection of an older configuration drains, is about to, or is in its handshake.
        let older = self.peers.values().filter(|peer| peer.generation < self.generation);
        let kept = older.clone().filter(|peer| {
            self.settings.drain_changed_chains_only
                && self.model.active.is_some()
                && self.is_active(peer.chain)
        });
        let current = connections - older.count() + kept.count();
        assert!(counts.serving <= current, "{counts:?}, {current} may be served");
        for peer in self.peers.values().filter(|peer| !peer.is_closed) {
            let limit = peer.drained_at.map(|at| at + self.settings.drain_grace);
            assert!(limit.is_none_or(|limit| self.now <= limit), "it is not closed in time");
        }
    }

    fn is_active(&self, chain: ChainId) -> bool {
        let socket = super::model::socket(self.model.active.as_ref().unwrap());
        socket.filter_chains.iter().any(|active| active == self.chains[&chain].0.chain())
    }

    /// Shuts the server down in one of the ways, and checks that nothing is left.
    fn end(mut self) -> BTreeMap<&'static str, u64> {
        self.model.shut_down();
        self.generation += 1;
        let limit = Duration::from_secs(self.random.u64(0..20));
        match self.random.u8(..4) {
            0 => self.machine.shut_down_now(self.now),
            1 => self.machine.shut_down(Some(limit), self.now),
            2 => {
                self.machine.shut_down(None, self.now);
                self.drain_outputs();
                self.pass(Duration::from_secs(3));
                self.machine.shut_down(Some(limit), self.now);
            }
            _ => self.machine.shut_down(None, self.now),
        }
        self.drain_outputs();
        // Updates come too late, and connections end by themselves, by the limit, or by the grace.
        self.update_listener();
        self.update_routes();
        self.drain_outputs();
        self.check();
        self.pass(Duration::from_secs(200));
        assert_eq!(self.state, ServingState::Stopped);
        assert!(self.peers.is_empty() && self.chains.is_empty() && self.watched.is_empty());
        assert_eq!((self.port != Port::Listening, self.machine.poll_timeout()), (true, None));
        self.outcomes
    }

    fn note(&mut self, outcome: &'static str) {
        *self.outcomes.entry(outcome).or_default() += 1;
    }
}
