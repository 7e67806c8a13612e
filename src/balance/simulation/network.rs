//! A network of many endpoints, which answer, refuse, are silent or close what they accept, beside a balancer, under virtual time.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    balance::{
        balancer::Balancer,
        clusters::{ClusterConfig, ClusterConfigs},
        command::{Command, ConnectionId},
        connect_error::{ConnectError, ConnectFailure},
        connects::SLOT_TIME,
        identity::{Identity, Security},
        locality_config::{EndpointConfig, LocalityConfig},
        pick_args::{CallAttributes, PickArgs},
        picker::{ClusterPicker, Pick},
        policy::{ClusterPolicy, HostsConfig, LeafConfig},
        settings::BalancerSettings,
        stream_queue::streams::Streams,
    },
    resolve::RouteQuery,
    resource::Locality,
};

/// What an endpoint does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::balance) enum Behavior {
    Answers(Duration),
    Refuses,
    Silent,
    /// It closes each connection when that is established.
    Closes,
}

/// The number of an endpoint.
pub(in crate::balance) type Number = u16;

/// The endpoints, and what the balancer has with them.
pub(in crate::balance) struct Network {
    pub(in crate::balance) balancer: Balancer<Number>,
    pub(in crate::balance) now: Instant,
    pub(in crate::balance) start: Instant,
    pub(in crate::balance) behaviors: BTreeMap<Number, Behavior>,
    /// The file descriptors that there are.
    pub(in crate::balance) descriptors: usize,
    /// When attempts began, since the start.
    pub(in crate::balance) begun: Vec<(Duration, Number)>,
    pub(in crate::balance) connections: BTreeMap<ConnectionId, (Number, Arc<Streams<Number>>)>,
    limit: usize,
    random: fastrand::Rng,
    pickers: BTreeMap<Arc<str>, Arc<ClusterPicker<Number>>>,
    attempts: BTreeMap<ConnectionId, Attempt>,
}

/// An attempt to connect.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    to: Number,
    begun_at: Instant,
    ends_at: Instant,
    /// There was no descriptor.
    lacks_descriptor: bool,
}

impl Network {
    /// Endpoints that answer after 1 ms unless another behavior is set.
    #[allow(clippy::disallowed_methods, reason = "its clock begins some time")]
    pub(in crate::balance) fn new(settings: BalancerSettings) -> Self {
        let (now, limit, seed) = (Instant::now(), settings.max_concurrent_connects, settings.seed);
        Self {
            balancer: Balancer::new(settings, Arc::default()),
            now,
            start: now,
            behaviors: BTreeMap::new(),
            descriptors: usize::MAX,
            begun: Vec::new(),
            connections: BTreeMap::new(),
            limit,
            random: fastrand::Rng::with_seed(seed),
            pickers: BTreeMap::new(),
            attempts: BTreeMap::new(),
        }
    }

    /// Sets what some endpoints do.
    pub(in crate::balance) fn set(
        &mut self,
        endpoints: impl IntoIterator<Item = Number>,
        behavior: Behavior,
    ) {
        self.behaviors.extend(endpoints.into_iter().map(|endpoint| (endpoint, behavior)));
    }

    /// The clusters that there are from now on.
    pub(in crate::balance) fn update(&mut self, clusters: &BTreeMap<&str, LeafConfig>) {
        let leaves = clusters.iter().map(|(name, leaf)| ((*name).into(), Arc::new(leaf.clone())));
        let target = |name: &str| (name.into(), ClusterConfig::Leaves(vec![name.into()]));
        let configs = ClusterConfigs {
            leaves: leaves.collect(),
            targets: clusters.keys().map(|name| target(name)).collect(),
        };
        self.balancer.replace(configs, self.now);
        self.drain();
    }

    /// Lets time pass.
    pub(in crate::balance) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = end;
    }

    /// Lets time pass until calls to a cluster find an endpoint; returns the time that has passed.
    pub(in crate::balance) fn until_served(&mut self, cluster: &str, longest: Duration) -> Option<Duration> {
        let (begin, end) = (self.now, self.now + longest);
        loop {
            if self.pick(cluster).is_some() {
                return Some(self.now - begin);
            }
            if !self.step(end) {
                self.now = end;
                return None;
            }
        }
    }

    /// The endpoint of a call, which is complete at once.
    pub(in crate::balance) fn call(&mut self, cluster: &str) -> Option<Number> {
        let endpoint = self.pick(cluster)?;
        let known = self.connections.values().find(|(number, _)| *number == endpoint);
        known.inspect(|(_, streams)| streams.on_complete());
        Some(endpoint)
    }

    /// The endpoint that a call finds.
    pub(in crate::balance) fn pick(&mut self, cluster: &str) -> Option<Number> {
        self.drain();
        let picker = self.pickers.get(cluster)?.clone();
        let (mut attributes, request) = (CallAttributes::default(), RouteQuery::new("/", 0));
        let args = &mut PickArgs { attributes: &mut attributes, random: &mut self.random, request: &request };
        let picked = match picker.pick(args) {
            Pick::Complete(attempt) => Some(attempt.endpoint.handle()),
            Pick::QueueAndConnect => {
                self.balancer.connect(cluster, self.now);
                None
            }
            Pick::Queue
            | Pick::Fail(_)
            | Pick::FailAs(..)
            | Pick::Broken(_)
            | Pick::Drop(..)
            | Pick::Unknown(_) => None,
        };
        if let Some(request) = attributes.take_connect_request() {
            self.balancer.connect_endpoint(&request, self.now);
        }
        self.drain();
        picked
    }

    /// The endpoints that a cluster is connected to.
    pub(in crate::balance) fn connected(&self) -> BTreeSet<Number> {
        self.connections.values().map(|(number, _)| *number).collect()
    }

    /// An endpoint ends its connections.
    pub(in crate::balance) fn lose(&mut self, endpoint: Number) {
        let of = |(_, (number, _)): &(&ConnectionId, &(Number, _))| *number == endpoint;
        let lost: Vec<_> = self.connections.iter().filter(of).map(|(connection, _)| *connection).collect();
        for connection in lost {
            self.connections.remove(&connection);
            self.balancer.on_lost(connection, self.now);
            self.drain();
        }
    }

    /// The times at which attempts to connect to an endpoint began, since the start.
    pub(in crate::balance) fn attempts_at(&self, endpoint: Number) -> Vec<Duration> {
        self.begun.iter().filter(|(_, to)| *to == endpoint).map(|(at, _)| *at).collect()
    }

    /// Executes commands, and takes pickers.
    pub(in crate::balance) fn drain(&mut self) {
        while let Some((name, picker)) = self.balancer.poll_picker(self.now) {
            self.pickers.insert(name, picker);
        }
        while let Some(command) = self.balancer.poll_command(self.now) {
            match command {
                Command::Connect { connection, destination, timeout, .. } => {
                    self.begin(connection, number(destination.address), timeout);
                }
                Command::Cancel { connection } => {
                    assert!(self.attempts.remove(&connection).is_some(), "it is attempted");
                }
                Command::Drain { connection } => {
                    assert!(self.connections.remove(&connection).is_some(), "it is connected");
                }
                Command::WatchLoad { .. } | Command::UnwatchLoad { .. } | Command::RequestReresolution => {}
            }
        }
    }

    /// Lets the next thing happen, if that is before the end.
    fn step(&mut self, end: Instant) -> bool {
        self.drain();
        let attempt = self.attempts.iter().map(|(id, attempt)| (attempt.ends_at, Some(*id))).min();
        let timer = self.balancer.poll_timeout().map(|at| (at.max(self.now), None));
        let next = attempt.into_iter().chain(timer).min().filter(|(at, _)| *at <= end);
        let Some((at, what)) = next else { return false };
        self.now = at;
        match what {
            None => self.balancer.handle_timeout(self.now),
            Some(connection) => self.decide(connection),
        }
        self.drain();
        true
    }

    fn begin(&mut self, connection: ConnectionId, to: Number, timeout: Duration) {
        let begun = |attempt: &&Attempt| attempt.begun_at + SLOT_TIME > self.now;
        let held = self.attempts.values().filter(begun).count();
        assert!(held < self.limit, "{held} attempts have begun lately");
        let lacks_descriptor = self.attempts.len() + self.connections.len() >= self.descriptors;
        let takes = match self.behavior(to) {
            _ if lacks_descriptor => Duration::ZERO,
            Behavior::Answers(latency) => latency,
            Behavior::Refuses | Behavior::Closes => Duration::from_millis(1),
            Behavior::Silent => timeout,
        };
        self.begun.push((self.now - self.start, to));
        let attempt = Attempt { to, begun_at: self.now, ends_at: self.now + takes, lacks_descriptor };
        self.attempts.insert(connection, attempt);
    }

    fn decide(&mut self, connection: ConnectionId) {
        let Some(Attempt { to, lacks_descriptor, .. }) = self.attempts.remove(&connection) else { return };
        let fail =
            |cause, text: &str| ConnectError { text: format!("{}: {text}", address(to)).into(), cause };
        let error = match self.behavior(to) {
            _ if lacks_descriptor => fail(ConnectFailure::NoDescriptor, "too many open files"),
            Behavior::Answers(_) => return self.connect(connection, to),
            Behavior::Closes => {
                self.connect(connection, to);
                if self.connections.remove(&connection).is_some() {
                    self.balancer.on_lost(connection, self.now);
                }
                return;
            }
            Behavior::Refuses => fail(ConnectFailure::Refused, "refused"),
            Behavior::Silent => fail(ConnectFailure::Refused, "no answer"),
        };
        self.balancer.on_failed(connection, error, self.now);
    }

    fn connect(&mut self, connection: ConnectionId, to: Number) {
        let streams = Streams::new(to, usize::MAX);
        self.connections.insert(connection, (to, streams.clone()));
        self.balancer.on_connected(connection, streams, self.now);
        self.drain();
    }

    fn behavior(&self, endpoint: Number) -> Behavior {
        let usual = Behavior::Answers(Duration::from_millis(1));
        self.behaviors.get(&endpoint).copied().unwrap_or(usual)
    }
}

/// The address of an endpoint.
pub(in crate::balance) fn address(endpoint: Number) -> SocketAddr {
    let [high, low] = endpoint.to_be_bytes();
    (Ipv4Addr::new(10, 0, high, low), 80).into()
}

fn number(address: SocketAddr) -> Number {
    match address.ip() {
        std::net::IpAddr::V4(ip) => u16::from_be_bytes([ip.octets()[2], ip.octets()[3]]),
        std::net::IpAddr::V6(_) => unreachable!("the network has no such addresses"),
    }
}

/// A cluster with these endpoints in its priorities.
pub(in crate::balance) fn cluster(policy: ClusterPolicy, priorities: &[Vec<Number>]) -> LeafConfig {
    let endpoint = |endpoint: &Number| EndpointConfig {
        addresses: vec![address(*endpoint)],
        identity: Identity::default(),
        weight: 1,
        hostname: None,
        hash_key: None,
    };
    let priority = |endpoints: &Vec<Number>| {
        let endpoints = endpoints.iter().map(endpoint).collect();
        vec![LocalityConfig::new(Locality::new("a", "", ""), 1, endpoints)]
    };
    LeafConfig {
        policy,
        priorities: priorities.iter().map(priority).collect(),
        listed: None,
        drops: [].into(),
        max_requests: 1_024,
        max_connections: 1,
        outlier_detection: None,
        service_name: "eds".into(),
        note: None,
        unusable: None,
        is_dns: false,
        security: Security::default(),
        hosts: HostsConfig::default(),
        load: None,
        service: None,
    }
}
