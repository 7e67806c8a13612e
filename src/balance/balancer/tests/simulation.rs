//! Random configurations, failures and picks under virtual time, beside a model of what must hold.

use super::*;
use crate::balance::picker::Attempt;

/// Backends that are up or down, and the connections to them.
struct World {
    balancer: Balancer<SocketAddr>,
    pickers: BTreeMap<Arc<str>, Arc<ClusterPicker<SocketAddr>>>,
    now: Instant,
    random: fastrand::Rng,
    up: BTreeSet<u16>,
    attempts: BTreeMap<ConnectionId, u16>,
    connections: BTreeMap<ConnectionId, u16>,
    drained: BTreeSet<u16>,
    configs: ClusterConfigs,
    /// The endpoints of each leaf's policies before, which are used until the current one has connected or failed (CH3.13).
    retiring: BTreeMap<Arc<str>, BTreeSet<u16>>,
    calls: Vec<Attempt<SocketAddr>>,
}

const PORTS: u16 = 8;

impl World {
    fn new(seed: u64) -> Self {
        let settings =
            BalancerSettings { pick_first: PickFirstSettings::default(), max_concurrent_connects: 4, seed };
        let mut random = fastrand::Rng::with_seed(seed);
        let up = (1..=PORTS).filter(|_| random.bool()).collect();
        Self {
            balancer: Balancer::new(settings, Arc::default()),
            pickers: BTreeMap::new(),
            now: Instant::now(),
            random,
            up,
            attempts: BTreeMap::new(),
            connections: BTreeMap::new(),
            drained: BTreeSet::new(),
            configs: ClusterConfigs::default(),
            retiring: BTreeMap::new(),
            calls: Vec::new(),
        }
    }

    fn step(&mut self) {
        match self.random.u8(..12) {
            0 => self.reconfigure(),
            1..=4 => self.end_attempt(),
            5 => self.lose(),
            6 => {
                let port = self.random.u16(1..=PORTS);
                if !self.up.remove(&port) {
                    self.up.insert(port);
                }
            }
            7..=8 => self.wait(),
            9 => {
                let place = self.random.usize(..=self.calls.len());
                self.calls.truncate(place);
            }
            _ => self.pick(),
        }
        self.drain();
        self.check();
    }

    fn random_leaf(&mut self) -> Arc<LeafConfig> {
        let policy = match self.random.u8(..4) {
            0 => PICK_FIRST,
            1 => ClusterPolicy { policy: Policy::LeastRequest { choice_count: 2 }, by_locality: false },
            2 => ClusterPolicy { policy: Policy::PickFirst { shuffle: true }, by_locality: true },
            _ => ROUND_ROBIN,
        };
        let mut ports: Vec<u16> = (1..=PORTS).filter(|_| self.random.bool()).collect();
        self.random.shuffle(&mut ports);
        let mut priorities = Vec::new();
        for _ in 0..self.random.usize(..4) {
            let mut localities = Vec::new();
            for name in ["a", "b"] {
                let some = ports.split_off(ports.len() - self.random.usize(..=ports.len()));
                localities.push(locality(name, self.random.u32(1..10), &some));
            }
            priorities.push(localities);
        }
        leaf(policy, priorities)
    }

    fn reconfigure(&mut self) {
        let mut configs = self.configs.clone();
        for name in ["one", "two"] {
            if self.random.bool() || !configs.leaves.contains_key(name) {
                configs.leaves.insert(name.into(), self.random_leaf());
            }
        }
        for name in ["shop", "cart"] {
            let leaves: &[&str] = match self.random.u8(..5) {
                0 => &["one"],
                1 => &["two"],
                2 => &["one", "two"],
                3 => &["two", "one"],
                _ => continue,
            };
            let leaves = leaves.iter().map(|leaf| (*leaf).into()).collect();
            configs.targets.insert(name.into(), ClusterConfig::Leaves(leaves));
        }
        let kept = self.must_stay(&configs);
        for (name, leaf) in &self.configs.leaves {
            let policies = (&leaf.policy.policy, &configs.leaves[name].policy.policy);
            if std::mem::discriminant(policies.0) != std::mem::discriminant(policies.1) {
                self.retiring.entry(name.clone()).or_default().extend(ports(leaf));
            }
        }
        self.configs = configs.clone();
        self.drained.clear();
        self.balancer.update(configs, self.now);
        self.drain();
        for port in kept {
            assert!(!self.drained.contains(&port), "the connection to {port} was not kept");
        }
    }

    /// The endpoints of the first priority of leaves that do not change their policy, and are the first of a target that does not
    /// change either.
    fn must_stay(&self, configs: &ClusterConfigs) -> Vec<u16> {
        let mut kept = Vec::new();
        for (target, config) in &configs.targets {
            if self.configs.targets.get(target) != Some(config) {
                continue;
            }
            let leaf = &config.leaves()[0];
            let (Some(before), after) = (self.configs.leaves.get(leaf), &configs.leaves[leaf]) else {
                continue;
            };
            let petiole = |leaf: &LeafConfig| !matches!(leaf.policy.policy, Policy::PickFirst { .. });
            if petiole(before) && petiole(after) {
                let ports = |leaf: &LeafConfig| -> BTreeSet<u16> {
                    let localities = leaf.priorities.first().into_iter().flatten();
                    let endpoints = localities.flat_map(|it| &it.endpoints);
                    endpoints.map(|it| it.addresses[0].port()).collect()
                };
                let both = &ports(before) & &ports(after);
                kept.extend(both.into_iter().filter(|port| self.is_connected_for(leaf, *port)));
            }
        }
        // Of several connections to one port, another leaf's may be drained.
        kept.retain(|port| self.connections.values().filter(|it| *it == port).count() == 1);
        kept
    }

    /// Whether a leaf has a connection to a port.
    fn is_connected_for(&self, leaf: &str, port: u16) -> bool {
        let mut connections = self.connections.iter().filter(|(_, it)| **it == port);
        connections.any(|(id, _)| {
            let owner = self.balancer.commands.owner_of(*id).expect("it is connected");
            &**self.balancer.leaves.all[owner.leaf].leaf.name() == leaf
        })
    }

    fn end_attempt(&mut self) {
        let Some((connection, port)) = self.random.choice(self.attempts.clone()) else { return };
        self.attempts.remove(&connection);
        if self.up.contains(&port) {
            self.connections.insert(connection, port);
            self.balancer.on_connected(connection, address(port), self.now);
        } else {
            self.balancer.on_failed(connection, format!("{port}: refused").into(), self.now);
        }
    }

    fn lose(&mut self) {
        let Some((connection, _)) = self.random.choice(self.connections.clone()) else { return };
        self.connections.remove(&connection);
        self.balancer.on_lost(connection, self.now);
    }

    fn wait(&mut self) {
        self.now += Duration::from_millis(self.random.u64(1..5_000));
        if self.balancer.poll_timeout().is_some_and(|at| at <= self.now) {
            self.balancer.handle_timeout(self.now);
        }
    }

    fn pick(&mut self) {
        for target in ["shop", "cart"] {
            match self.outcome_and_pick(target) {
                Some(Pick::Complete(attempt)) => {
                    let port = attempt.endpoint.handle.port();
                    assert!(self.connections.values().any(|it| *it == port), "{port} is not connected");
                    assert!(
                        self.lists(target, port) || self.retires(target, port),
                        "{target} does not list {port}"
                    );
                    self.calls.push(attempt);
                }
                Some(Pick::QueueAndConnect) => self.balancer.connect(target, self.now),
                Some(Pick::Queue | Pick::Fail(_)) | None => {}
                Some(pick @ (Pick::Drop(_) | Pick::FailAs(..) | Pick::Broken(_))) => panic!("{pick:?}"),
            }
        }
    }

    fn lists(&self, target: &str, port: u16) -> bool {
        let leaves = self.configs.targets[target].leaves();
        leaves.iter().any(|leaf| ports(&self.configs.leaves[leaf]).any(|it| it == port))
    }

    fn retires(&self, target: &str, port: u16) -> bool {
        let mut leaves =
            self.configs.targets[target].leaves().iter().filter_map(|leaf| self.retiring.get(leaf));
        leaves.any(|ports| ports.contains(&port))
    }

    fn outcome_and_pick(&mut self, target: &str) -> Option<Pick<SocketAddr>> {
        self.drain();
        let picker = self.pickers.get(target)?;
        let (draws, random) = (&mut Draws::default(), &mut self.random);
        Some(picker.pick(&mut PickArgs { draws, random, request: &RouteQuery::new("/", 0) }))
    }

    fn drain(&mut self) {
        while let Some((name, picker)) = self.balancer.poll_picker(self.now) {
            self.pickers.insert(name, picker);
        }
        while let Some(command) = self.balancer.poll_command() {
            match command {
                Command::Connect { connection, address, .. } => {
                    assert!(self.attempts.insert(connection, address.port()).is_none());
                }
                Command::Cancel { connection } => {
                    assert!(self.attempts.remove(&connection).is_some(), "it is attempted");
                }
                Command::Drain { connection } => {
                    let port = self.connections.remove(&connection).expect("it is connected");
                    self.drained.insert(port);
                }
                Command::RequestReresolution => {}
            }
        }
    }

    /// Something is tried, or waited for; and neither a failure elsewhere nor a configuration makes calls fail as long as there is a
    /// connection to an endpoint of a leaf of the cluster.
    fn check(&mut self) {
        assert!(self.attempts.len() <= 4, "{} attempts", self.attempts.len());
        let leaves = &self.balancer.leaves;
        self.retiring.retain(|name, _| {
            leaves.get(name).is_some_and(|it| it.leaf.current_connectivity() == Connectivity::Connecting)
        });
        for target in ["shop", "cart"] {
            let Some(connectivity) = self.pickers.get(target).map(|it| it.connectivity) else { continue };
            let is_waiting = match connectivity {
                Connectivity::Ready | Connectivity::Idle => true,
                Connectivity::Connecting => {
                    !self.attempts.is_empty() || self.balancer.poll_timeout().is_some()
                }
                Connectivity::TransientFailure => {
                    let has_any = (1..=PORTS).any(|port| self.lists(target, port));
                    !has_any || !self.attempts.is_empty() || self.balancer.poll_timeout().is_some()
                }
            };
            assert!(is_waiting, "{target}: nothing is tried");
            let is_failing = connectivity == Connectivity::TransientFailure;
            let leaves = self.configs.targets[target].leaves();
            let is_connected =
                leaves.iter().any(|leaf| (1..=PORTS).any(|port| self.is_connected_for(leaf, port)));
            assert!(!(is_failing && is_connected), "{target} fails with a connection");
        }
    }

    /// With all backends up and time enough, each target uses the first priority with endpoints.
    fn settle(&mut self) {
        self.up = (1..=PORTS).collect();
        for _ in 0..400 {
            while !self.attempts.is_empty() {
                self.end_attempt();
                self.drain();
            }
            self.now += Duration::from_secs(1);
            self.balancer.handle_timeout(self.now);
            self.pick();
            self.drain();
        }
        self.calls.clear();
        for target in ["shop", "cart"] {
            let Some(pick) = self.outcome_and_pick(target) else { continue };
            let leaves = self.configs.targets[target].leaves().iter();
            let mut priorities = leaves.flat_map(|leaf| &self.configs.leaves[leaf].priorities);
            let expected = priorities.find(|it| it.iter().any(|it| !it.endpoints.is_empty()));
            match (pick, expected) {
                (Pick::Complete(attempt), Some(localities)) => {
                    let port = attempt.endpoint.handle.port();
                    let mut endpoints = localities.iter().flat_map(|it| &it.endpoints);
                    assert!(
                        endpoints.any(|it| it.addresses[0].port() == port),
                        "{port}: not the first priority"
                    );
                }
                (Pick::Fail(_), None) => {}
                (pick, expected) => panic!("{target}: {pick:?} instead of {expected:?}"),
            }
        }
        let loads = self.balancer.leaves.all.iter().flat_map(|(_, it)| &it.picker);
        assert!(loads.into_iter().all(|picker| picker.breaker.running() == 0), "calls are counted for ever");
    }

    fn end(mut self) {
        self.balancer.close(self.now);
        self.drain();
        assert!(self.attempts.is_empty() && self.connections.is_empty(), "everything is closed");
        assert!(self.balancer.commands.owns_nothing(), "{:?}", self.balancer.commands);
        assert_eq!(self.balancer.poll_timeout(), None);
    }
}

/// The ports of a leaf's endpoints.
fn ports(leaf: &LeafConfig) -> impl Iterator<Item = u16> {
    let endpoints = leaf.priorities.iter().flatten().flat_map(|it| &it.endpoints);
    endpoints.map(|it| it.addresses[0].port())
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    world.reconfigure();
    for _ in 0..60 {
        world.step();
    }
    world.settle();
    world.end();
}

#[test]
fn simulation_of_balancing() {
    let seeds = std::env::var("XDSKIT_SIMULATION_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let count = std::env::var("XDSKIT_SIMULATION_SEEDS").ok().and_then(|it| it.parse().ok()).unwrap_or(5_000);
    for seed in seeds.map_or(0..count, |seed| seed..seed + 1) {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            eprintln!("seed {seed} fails: XDSKIT_SIMULATION_SEED={seed} repeats it");
            std::panic::resume_unwind(panic);
        }
    }
}
