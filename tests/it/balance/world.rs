//! An application in virtual time: it executes commands by the behaviour of its peers.

use std::{
    collections::BTreeMap,
    io, iter,
    net::SocketAddr,
    time::{Duration, Instant},
};

use xdskit::{
    Snapshot,
    balance::{Attempt, Balancer, Command, ConnectTarget, ConnectionId, Pick, PickRequest, Picker, Settings},
    lrs::Outcome,
    resolve::SnapshotBuilder,
    testing::resources::{ClusterBuilder, EndpointsBuilder},
};

/// What an endpoint does with an attempt to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    Accepts,
    Refuses,
    /// It never answers.
    Silent,
    /// It accepts, and closes the connection at once.
    Closes,
}

/// A balancer, what its application has, and the clock.
pub(super) struct World {
    pub(super) balancer: Balancer<SocketAddr>,
    pub(super) picker: Picker<SocketAddr>,
    pub(super) now: Instant,
    /// Those that do not accept.
    pub(super) peers: BTreeMap<SocketAddr, Peer>,
    /// Attempts at silent endpoints, with their deadlines.
    pub(super) attempts: BTreeMap<ConnectionId, (ConnectTarget, Instant)>,
    pub(super) connections: BTreeMap<ConnectionId, ConnectTarget>,
    /// The number of connections that endpoints have closed at once.
    pub(super) closed: usize,
    /// Commands that are no business of connections.
    pub(super) others: Vec<Command>,
    /// The random numbers of requests.
    random: fastrand::Rng,
}

/// The address of an endpoint by its number.
pub(super) fn address(number: u16) -> SocketAddr {
    let [high, low] = number.to_be_bytes();
    SocketAddr::from(([10, 0, high, low], 80))
}

/// A mesh of one cluster.
pub(super) fn shop(cluster: ClusterBuilder, endpoints: EndpointsBuilder) -> SnapshotBuilder {
    Snapshot::builder("xds:///shop").resource(cluster).resource(endpoints)
}

impl World {
    pub(super) fn new(mesh: SnapshotBuilder) -> Self {
        Self::with_settings(Settings::new(1), mesh)
    }

    pub(super) fn with_settings(settings: Settings, mesh: SnapshotBuilder) -> Self {
        Self::with_peers(settings, [], mesh)
    }

    /// With endpoints that do not accept.
    pub(super) fn with_peers(
        settings: Settings,
        peers: impl IntoIterator<Item = (u16, Peer)>,
        mesh: SnapshotBuilder,
    ) -> Self {
        let mut world = Self::waiting(settings);
        peers.into_iter().for_each(|(number, peer)| world.set_peer(number, peer));
        world.update(mesh);
        world
    }

    /// Without a snapshot.
    pub(super) fn waiting(settings: Settings) -> Self {
        let now = Instant::now();
        let mut balancer = Balancer::new(settings);
        let picker = balancer.poll_picker(now).expect("the first picker");
        Self {
            balancer,
            picker,
            now,
            peers: BTreeMap::new(),
            attempts: BTreeMap::new(),
            connections: BTreeMap::new(),
            closed: 0,
            others: Vec::new(),
            random: fastrand::Rng::with_seed(7),
        }
    }

    pub(super) fn update(&mut self, mesh: SnapshotBuilder) {
        let snapshot = mesh.build(self.now).expect("a valid mesh");
        self.balancer.handle_resolution(Ok(snapshot), self.now);
        self.drain();
    }

    pub(super) fn set_peer(&mut self, number: u16, peer: Peer) {
        self.peers.insert(address(number), peer);
    }

    /// Executes all commands, and takes the picker after them.
    #[allow(clippy::wildcard_enum_match_arm, reason = "there may be further commands")]
    pub(super) fn drain(&mut self) {
        while let Some(command) = self.balancer.poll_command(self.now) {
            match command {
                Command::Connect { connection, target, timeout, .. } => {
                    self.connect(connection, target, timeout)
                }
                Command::Cancel { connection, .. } => drop(self.attempts.remove(&connection)),
                Command::Close { connection, .. } => drop(self.connections.remove(&connection)),
                other => self.others.push(other),
            }
        }
        if let Some(picker) = self.balancer.poll_picker(self.now) {
            self.picker = picker;
        }
    }

    fn connect(&mut self, connection: ConnectionId, target: ConnectTarget, timeout: Duration) {
        match self.peers.get(&target.address()).unwrap_or(&Peer::Accepts) {
            Peer::Accepts => {
                self.balancer.handle_connected(connection, target.address(), self.now);
                self.connections.insert(connection, target);
            }
            Peer::Refuses => {
                let error = io::Error::from(io::ErrorKind::ConnectionRefused);
                self.balancer.handle_connect_failed(connection, &error, self.now);
            }
            Peer::Closes => {
                self.closed += 1;
                self.balancer.handle_connected(connection, target.address(), self.now);
                self.balancer.handle_closed(connection, self.now);
            }
            Peer::Silent => drop(self.attempts.insert(connection, (target, self.now + timeout))),
        }
    }

    /// The peer closes the connections to an endpoint, and answers further attempts by this behaviour.
    pub(super) fn lose(&mut self, number: u16, then: Peer) {
        self.set_peer(number, then);
        let of = |target: &ConnectTarget| target.address() == address(number);
        let lost: Vec<_> =
            self.connections.iter().filter(|(_, target)| of(target)).map(|(id, _)| *id).collect();
        for connection in lost {
            self.connections.remove(&connection);
            self.balancer.handle_closed(connection, self.now);
        }
        self.drain();
    }

    /// Lets time pass, with all that is due in it.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let deadlines = self.attempts.values().map(|(_, at)| *at);
            let next = self.balancer.poll_timeout().into_iter().chain(deadlines).min();
            let Some(at) = next.filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            let late: Vec<_> =
                self.attempts.iter().filter(|(_, (_, at))| *at <= self.now).map(|(id, _)| *id).collect();
            for connection in late {
                self.attempts.remove(&connection);
                let error = io::Error::from(io::ErrorKind::TimedOut);
                self.balancer.handle_connect_failed(connection, &error, self.now);
            }
            if self.balancer.poll_timeout().is_some_and(|at| at <= self.now) {
                self.balancer.handle_timeout(self.now);
            }
            self.drain();
        }
        self.now = until;
        self.drain();
    }

    /// Picks for a new request to a cluster, and once more if the first one had to request a connection.
    pub(super) fn pick(&mut self, cluster: &str) -> Pick<SocketAddr> {
        let random = self.random.u64(..);
        self.pick_for(&PickRequest::to_cluster(cluster, random))
    }

    pub(super) fn pick_for(&mut self, request: &PickRequest<'_>) -> Pick<SocketAddr> {
        let before = self.picker.clone();
        match before.pick(request) {
            Pick::Wait => {
                self.drain();
                if self.picker.has_changed(&before, request) { self.picker.pick(request) } else { Pick::Wait }
            }
            picked @ (Pick::Endpoint(_) | Pick::Fail(_)) => picked,
        }
    }

    /// Picks for a new request to a cluster that has an endpoint.
    pub(super) fn attempt(&mut self, cluster: &str) -> Attempt<SocketAddr> {
        match self.pick(cluster) {
            Pick::Endpoint(attempt) => attempt,
            other @ (Pick::Wait | Pick::Fail(_)) => panic!("{other:?}"),
        }
    }

    /// Where so many successful requests to a cluster go, each after the one before.
    pub(super) fn shares(&mut self, cluster: &str, requests: usize) -> BTreeMap<SocketAddr, usize> {
        let mut shares = BTreeMap::new();
        for _ in 0..requests {
            let attempt = self.attempt(cluster);
            *shares.entry(attempt.address()).or_default() += 1;
            attempt.finish(Outcome::Success);
        }
        shares
    }

    /// The endpoints that requests to a cluster reach.
    pub(super) fn reached(&mut self, cluster: &str) -> Vec<SocketAddr> {
        self.shares(cluster, 50).into_keys().collect()
    }

    /// The addresses of the connections.
    pub(super) fn connected(&self) -> Vec<SocketAddr> {
        let mut addresses: Vec<_> = self.connections.values().map(ConnectTarget::address).collect();
        addresses.sort_unstable();
        addresses
    }

    /// Endpoints with these numbers, as text for builders.
    pub(super) fn addresses(numbers: impl IntoIterator<Item = u16>) -> Vec<String> {
        numbers.into_iter().map(|number| address(number).to_string()).collect()
    }

    /// Requests to a cluster, each with a random number of its own.
    pub(super) fn randoms(&mut self) -> impl Iterator<Item = u64> + '_ {
        iter::repeat_with(|| self.random.u64(..))
    }
}
