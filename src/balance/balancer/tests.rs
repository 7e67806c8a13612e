use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::SocketAddr,
    time::Duration,
};

use super::*;
use crate::{
    balance::{
        clusters::ClusterConfig,
        command::Command,
        identity::{Destination, Identity, Security},
        locality_config::{EndpointConfig, LocalityConfig},
        pick_args::{CallAttributes, PickArgs},
        picker::Pick,
        policies::{Policy, least_request::LeastRequest, pick_first::PickFirst, round_robin::RoundRobin},
        policy::{ClusterPolicy, HostsConfig},
    },
    resolve::RouteQuery,
    resource::Locality,
};

mod connects;
mod endpoints;
mod identity;
mod observations;
mod on_demand;
mod outliers;
mod released_connections;
mod rotation;
mod sessions;
mod weights;

const ROUND_ROBIN: ClusterPolicy =
    ClusterPolicy { policy: Policy::RoundRobin(RoundRobin), by_locality: true };
const LEAST_REQUEST: ClusterPolicy =
    ClusterPolicy { policy: Policy::LeastRequest(LeastRequest { choice_count: 10 }), by_locality: false };
const PICK_FIRST: ClusterPolicy =
    ClusterPolicy { policy: Policy::PickFirst(PickFirst { shuffle: false }), by_locality: false };

/// A balancer with a connector that the test plays. The handle of a connection is its address.
struct Fixture {
    balancer: Balancer<SocketAddr>,
    pickers: BTreeMap<Arc<str>, Arc<ClusterPicker<SocketAddr>>>,
    now: Instant,
    random: fastrand::Rng,
    attempts: BTreeMap<SocketAddr, ConnectionId>,
    connections: BTreeMap<SocketAddr, ConnectionId>,
    /// Those before them to the same addresses.
    before: Vec<(SocketAddr, ConnectionId)>,
    drained: Vec<SocketAddr>,
    /// The periods of the reports of load beside the calls.
    watches: BTreeMap<ConnectionId, Duration>,
    lookups: usize,
}

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn locality(name: &str, weight: u32, ports: &[u16]) -> LocalityConfig {
    let endpoint = |port: &u16| EndpointConfig {
        addresses: vec![address(*port)],
        identity: Identity::default(),
        weight: 1,
        hostname: None,
        hash_key: None,
    };
    let endpoints = ports.iter().map(endpoint).collect();
    LocalityConfig::new(Locality::new(name, "", ""), weight, endpoints)
}

fn leaf(policy: ClusterPolicy, priorities: Vec<Vec<LocalityConfig>>) -> Arc<LeafConfig> {
    Arc::new(LeafConfig {
        policy,
        priorities,
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
    })
}

/// One cluster, with one locality for each priority.
fn shop(policy: ClusterPolicy, priorities: &[&[u16]]) -> ClusterConfigs {
    let priorities = priorities.iter().map(|ports| vec![locality("a", 1, ports)]).collect();
    configs(&[("shop", leaf(policy, priorities))], &[("shop", &["shop"])])
}

fn configs(leaves: &[(&str, Arc<LeafConfig>)], targets: &[(&str, &[&str])]) -> ClusterConfigs {
    let leaves = leaves.iter().map(|(name, leaf)| ((*name).into(), leaf.clone())).collect();
    let target = |(name, leaves): &(&str, &[&str])| {
        let leaves = leaves.iter().map(|leaf| (*leaf).into()).collect();
        ((*name).into(), ClusterConfig::Leaves(leaves))
    };
    ClusterConfigs { leaves, targets: targets.iter().map(target).collect() }
}

impl Fixture {
    fn new(configs: ClusterConfigs) -> Self {
        Self::with(configs, |_| {})
    }

    fn with(configs: ClusterConfigs, change: impl FnOnce(&mut BalancerSettings)) -> Self {
        let mut settings = BalancerSettings { max_concurrent_connects: 3, ..BalancerSettings::with_seed(1) };
        change(&mut settings);
        let mut fixture = Self {
            balancer: Balancer::new(settings, Arc::default()),
            pickers: BTreeMap::new(),
            now: Instant::now(),
            random: fastrand::Rng::with_seed(1),
            attempts: BTreeMap::new(),
            connections: BTreeMap::new(),
            before: Vec::new(),
            drained: Vec::new(),
            watches: BTreeMap::new(),
            lookups: 0,
        };
        fixture.update(configs);
        fixture
    }

    fn update(&mut self, configs: ClusterConfigs) {
        self.balancer.replace(configs, self.now);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some((name, picker)) = self.balancer.poll_picker(self.now) {
            self.pickers.insert(name, picker);
        }
        while let Some(command) = self.balancer.poll_command(self.now) {
            match command {
                Command::Connect { connection, destination: Destination { address, .. }, .. } => {
                    assert!(self.attempts.insert(address, connection).is_none(), "two attempts to {address}");
                }
                Command::Cancel { connection } => self.attempts.retain(|_, id| *id != connection),
                Command::Drain { connection } => {
                    let drained = self.connections.extract_if(.., |_, id| *id == connection);
                    let drained = drained.chain(self.before.extract_if(.., |it| it.1 == connection));
                    self.drained.extend(drained.map(|(address, _)| address));
                }
                Command::WatchLoad { connection, period } => {
                    self.watches.insert(connection, period);
                }
                Command::UnwatchLoad { connection } => drop(self.watches.remove(&connection)),
                Command::RequestReresolution => self.lookups += 1,
            }
        }
    }

    fn connect(&mut self, port: u16) {
        let connection = self.attempts.remove(&address(port)).expect("an attempt");
        let before = self.connections.insert(address(port), connection);
        self.before.extend(before.map(|before| (address(port), before)));
        self.balancer.on_connected(connection, Streams::new(address(port), usize::MAX), self.now);
        self.drain();
    }

    fn connect_all(&mut self) {
        while let Some(address) = self.attempts.keys().next().copied() {
            self.connect(address.port());
        }
    }

    fn fail(&mut self, port: u16) {
        let connection = self.attempts.remove(&address(port)).expect("an attempt");
        self.balancer.on_failed(connection, format!("127.0.0.1:{port}: refused").into(), self.now);
        self.drain();
    }

    fn lose(&mut self, port: u16) {
        let connection = self.connections.remove(&address(port)).expect("a connection");
        self.balancer.on_lost(connection, self.now);
        self.drain();
    }

    fn wait(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while let Some(at) = self.balancer.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.balancer.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    fn pick(&mut self, target: &str) -> Pick<SocketAddr> {
        self.pick_for(target, "/")
    }

    fn pick_for(&mut self, target: &str, path: &str) -> Pick<SocketAddr> {
        self.drain();
        let picker = self.pickers.get(target).expect("the cluster is there");
        picker.pick(&mut PickArgs {
            attributes: &mut CallAttributes::default(),
            random: &mut self.random,
            request: &RouteQuery::new(path, 0),
        })
    }

    /// The endpoint of an attempt that ends at once.
    fn picked(&mut self, target: &str) -> SocketAddr {
        let Pick::Complete(attempt) = self.pick(target) else { panic!("{target} has no endpoint") };
        attempt.endpoint.address
    }

    /// The ports that 40 picks lead to.
    fn ports(&mut self) -> BTreeMap<u16, usize> {
        let mut ports = BTreeMap::new();
        for _ in 0..40 {
            let pick = self.pick("shop");
            let Pick::Complete(attempt) = pick else { panic!("{pick:?}") };
            *ports.entry(attempt.endpoint.handle().port()).or_default() += 1;
        }
        ports
    }

    fn reason(&mut self) -> String {
        let pick = self.pick("shop");
        let Pick::Fail(reason) = pick else { panic!("{pick:?}") };
        reason.to_string()
    }

    fn attempted(&self) -> Vec<u16> {
        self.attempts.keys().map(SocketAddr::port).collect()
    }
}

#[test]
fn ch3_27_requests_are_spread_over_the_ready_endpoints_only() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1, 2, 3]]));
    assert!(matches!(it.pick("shop"), Pick::Queue));
    it.connect(1);
    assert_eq!(it.ports(), BTreeMap::from([(1, 40)]));
    it.fail(2);
    it.connect(3);
    assert_eq!(it.ports(), BTreeMap::from([(1, 20), (3, 20)]));
}

#[test]
fn ch3_26_a_lost_connection_is_replaced_at_once() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1, 2]]));
    it.connect_all();
    it.lose(1);
    assert_eq!(it.ports(), BTreeMap::from([(2, 40)]));
    assert_eq!(it.attempted(), [1]);
}

#[test]
fn ch3_10_failed_endpoints_stay_failed_while_they_connect_again() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1]]));
    it.fail(1);
    assert_eq!(
        it.reason(),
        "cluster shop: no endpoint can be reached, the latest error is: 127.0.0.1:1: refused"
    );
    it.wait(2);
    assert_eq!(it.attempted(), [1], "the backoff is over");
    assert!(it.reason().ends_with("127.0.0.1:1: refused"));
    it.connect(1);
    assert_eq!(it.ports(), BTreeMap::from([(1, 40)]));
}

#[test]
fn ch3_55_the_next_priority_is_used_when_the_first_fails_and_left_when_it_is_back() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1, 2], &[3]]));
    assert_eq!(it.attempted(), [1, 2], "a lower priority is created when it is needed");
    it.fail(1);
    it.connect(2);
    assert_eq!(it.ports(), BTreeMap::from([(2, 40)]), "one of the first priority is enough");
    it.lose(2);
    it.fail(2);
    it.connect(3);
    assert_eq!(it.ports(), BTreeMap::from([(3, 40)]));
    it.wait(2);
    it.connect(1);
    assert_eq!(it.ports(), BTreeMap::from([(1, 40)]));
    assert!(it.drained.is_empty(), "the lower priority is kept for 15 min");
    it.wait(900);
    assert_eq!(it.drained, [address(3)]);
}

#[test]
fn ch3_54_a_silent_priority_is_left_after_10_s() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1], &[2]]));
    it.wait(9);
    assert_eq!(it.attempted(), [1]);
    assert!(matches!(it.pick("shop"), Pick::Queue));
    it.wait(1);
    it.connect(2);
    assert_eq!(it.ports(), BTreeMap::from([(2, 40)]));
}

#[test]
fn ch3_9_a_removed_endpoint_is_drained() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1, 2]]));
    it.connect_all();
    it.update(shop(ROUND_ROBIN, &[&[2, 3]]));
    assert_eq!(it.drained, [address(1)]);
    assert_eq!(it.ports(), BTreeMap::from([(2, 40)]));
    assert_eq!(it.attempted(), [3]);
}

#[test]
fn ch3_49_localities_without_ready_endpoints_are_left_out_of_the_draw() {
    let localities = vec![locality("a", 80, &[1]), locality("b", 20, &[2]), locality("c", 50, &[])];
    let mut it =
        Fixture::new(configs(&[("shop", leaf(ROUND_ROBIN, vec![localities]))], &[("shop", &["shop"])]));
    it.connect(2);
    assert_eq!(it.ports(), BTreeMap::from([(2, 40)]));
    it.connect(1);
    let ports = it.ports();
    assert!(ports[&1] > ports[&2], "{ports:?}");
}

#[test]
fn ch3_14_pick_first_uses_one_address_of_all_endpoints() {
    let mut it = Fixture::new(shop(PICK_FIRST, &[&[1, 2]]));
    assert_eq!(it.attempted(), [1]);
    it.wait(1);
    assert_eq!(it.attempted(), [1, 2]);
    it.connect(2);
    assert!(it.attempts.is_empty());
    assert_eq!(it.ports(), BTreeMap::from([(2, 40)]));
    // A lost connection is replaced when a pick requests it.
    it.lose(2);
    assert!(it.attempts.is_empty());
    assert!(matches!(it.pick("shop"), Pick::QueueAndConnect));
    it.balancer.connect("shop", it.now);
    it.drain();
    assert_eq!(it.attempted(), [1]);
}

#[test]
fn ch3_60_an_aggregate_uses_the_first_leaf_that_can_be_reached() {
    let one = leaf(ROUND_ROBIN, vec![vec![locality("a", 1, &[1])]]);
    let two = leaf(ROUND_ROBIN, vec![vec![locality("a", 1, &[2])]]);
    let mut it =
        Fixture::new(configs(&[("one", one.clone()), ("two", two.clone())], &[("shop", &["one", "two"])]));
    it.fail(1);
    it.connect(2);
    assert_eq!(it.ports(), BTreeMap::from([(2, 40)]));
    // The order is another, and the leaves keep their connections.
    it.update(configs(&[("one", one.clone()), ("two", two.clone())], &[("shop", &["two", "one"])]));
    assert_eq!(it.ports(), BTreeMap::from([(2, 40)]));
    // The leaf is a target by itself as well.
    it.update(configs(&[("one", one), ("two", two)], &[("shop", &["two"]), ("two", &["two"])]));
    assert_eq!(it.ports(), BTreeMap::from([(2, 40)]));
    assert!(it.drained.is_empty());
    it.update(ClusterConfigs::default());
    assert_eq!(it.drained, [address(2)]);
    assert_eq!(it.balancer.clusters.leaves().len(), 0);
}

#[test]
fn ch1_14_an_aggregate_skips_leaves_without_endpoints() {
    let empty = leaf(ROUND_ROBIN, vec![]);
    let two = leaf(ROUND_ROBIN, vec![vec![locality("a", 1, &[2])]]);
    let mut it = Fixture::new(configs(&[("one", empty), ("two", two)], &[("shop", &["one", "two"])]));
    it.connect(2);
    assert_eq!(it.ports(), BTreeMap::from([(2, 40)]));
}

#[test]
fn ch1_14_a_cluster_without_endpoints_fails_with_the_reason() {
    let mut config = Arc::try_unwrap(leaf(ROUND_ROBIN, vec![])).unwrap();
    config.note = Some("the server does not know them".into());
    let mut it = Fixture::new(configs(&[("shop", Arc::new(config))], &[("shop", &["shop"])]));
    assert_eq!(it.reason(), "cluster shop has no usable endpoints: the server does not know them");
    it.update(shop(ROUND_ROBIN, &[&[], &[]]));
    assert_eq!(it.reason(), "cluster shop has no usable endpoints");
    it.update(shop(ROUND_ROBIN, &[&[1]]));
    assert!(matches!(it.pick("shop"), Pick::Queue), "an empty list was not a failed connection");
}

#[test]
fn ch1_13_a_cluster_becomes_unusable_and_usable_again() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1]]));
    it.connect(1);
    let mut gone = ClusterConfigs::default();
    gone.targets.insert("shop".into(), ClusterConfig::Gone("it does not exist".into()));
    it.update(gone);
    assert!(matches!(it.pick("shop"), Pick::Drop(_, reason) if &*reason == "it does not exist"));
    assert_eq!(it.drained, [address(1)]);
    it.update(shop(ROUND_ROBIN, &[&[1]]));
    it.connect(1);
    assert_eq!(it.ports(), BTreeMap::from([(1, 40)]));
}

#[test]
fn ch11_8_attempts_above_the_limit_wait_for_others_to_end() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1, 2, 3, 4, 5]]));
    assert_eq!(it.attempts.len(), 3);
    let first = it.attempted()[0];
    it.connect(first);
    assert_eq!(it.attempts.len(), 3);
    let second = it.attempted()[0];
    it.fail(second);
    assert_eq!(it.attempts.len(), 3);
    it.connect_all();
    assert_eq!(it.connections.len(), 4);
}

#[test]
fn ch1_27_failures_of_dns_clusters_alone_request_a_lookup() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1]]));
    it.fail(1);
    assert_eq!(it.lookups, 0);
    let mut config = Arc::try_unwrap(leaf(PICK_FIRST, vec![vec![locality("", 1, &[1])]])).unwrap();
    config.is_dns = true;
    let mut it = Fixture::new(configs(&[("shop", Arc::new(config))], &[("shop", &["shop"])]));
    it.fail(1);
    assert_eq!(it.lookups, 1);
}

#[test]
fn ch3_25_connecting_begins_at_a_random_endpoint() {
    let ports: Vec<u16> = (1..=100).collect();
    let mut first = BTreeSet::new();
    for seed in 0..20 {
        let settings = BalancerSettings { max_concurrent_connects: 1, ..BalancerSettings::with_seed(seed) };
        let mut balancer = Balancer::<()>::new(settings, Arc::default());
        balancer.replace(shop(ROUND_ROBIN, &[&ports]), Instant::now());
        let Some(Command::Connect { destination: Destination { address, .. }, .. }) =
            balancer.poll_command(Instant::now())
        else {
            panic!()
        };
        first.insert(address);
    }
    assert!(first.len() > 10, "{first:?}");
}

#[test]
fn ch3_26_the_counter_of_round_robin_lives_on_over_pickers() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1, 2, 3]]));
    it.connect_all();
    let mut counts = BTreeMap::<u16, usize>::new();
    for weight in 1..=300 {
        // Each update makes a new picker, from which one pick is made.
        let priorities = vec![vec![locality("a", weight, &[1, 2, 3])]];
        it.update(configs(&[("shop", leaf(ROUND_ROBIN, priorities))], &[("shop", &["shop"])]));
        let Pick::Complete(attempt) = it.pick("shop") else { panic!() };
        *counts.entry(attempt.endpoint.handle().port()).or_default() += 1;
    }
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [100; 3]);
}

#[test]
fn ch3_26_channels_begin_with_any_endpoint() {
    let ports: Vec<u16> = (1..=100).collect();
    let mut first = BTreeSet::new();
    for seed in 0..20 {
        let settings = |it: &mut BalancerSettings| *it = BalancerSettings::with_seed(seed);
        let mut it = Fixture::with(shop(ROUND_ROBIN, &[&ports]), settings);
        it.connect_all();
        let Pick::Complete(attempt) = it.pick("shop") else { panic!() };
        first.insert(attempt.endpoint.handle().port());
    }
    assert!(first.len() > 10, "{first:?}");
}
