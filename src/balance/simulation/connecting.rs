//! Clusters with many endpoints, most of which are silent, and limits of attempts down to one: how long a first call waits at most.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::network::{Behavior, Network, Number, cluster};
use crate::balance::{
    policies::{Policy, least_request::LeastRequest, round_robin::RoundRobin},
    policy::{ClusterPolicy, LeafConfig},
    settings::BalancerSettings,
};

/// The clusters, and when the first call of each has to find an endpoint.
pub(super) struct Connecting {
    network: Network,
    clusters: BTreeMap<&'static str, Vec<Vec<Number>>>,
    policies: BTreeMap<&'static str, ClusterPolicy>,
    due: BTreeMap<&'static str, Instant>,
    limit: usize,
    random: fastrand::Rng,
    /// The endpoints that have been listed are below.
    next: Number,
    /// The number of endpoints that were added to clusters.
    added: usize,
    outcomes: BTreeMap<&'static str, u64>,
}

impl Connecting {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let limit = [1, 1, 2, 3, 8, 64][random.usize(..6)];
        let settings =
            BalancerSettings { max_concurrent_connects: limit, ..BalancerSettings::with_seed(seed) };
        let network = Network::new(settings);
        Self {
            network,
            clusters: BTreeMap::new(),
            policies: BTreeMap::new(),
            due: BTreeMap::new(),
            limit,
            random,
            next: 0,
            added: 0,
            outcomes: BTreeMap::new(),
        }
    }

    /// Clusters come, and get more endpoints, at any time; no first call waits too long.
    ///
    /// # Panics
    /// One does.
    pub(super) fn play(mut self) -> BTreeMap<&'static str, u64> {
        let mut names = CLUSTERS.iter().copied();
        for _ in 0..10 {
            match self.random.u8(..3) {
                0 => drop(names.next().map(|name| self.add_cluster(name))),
                1 => self.add_endpoint(),
                _ => {}
            }
            let time = [100, 1_000, 25_000][self.random.usize(..3)];
            let time = Duration::from_millis(self.random.u64(..time));
            self.pass(time);
        }
        while let Some(last) = self.due.values().max().copied() {
            self.pass(last - self.network.now);
        }
        self.outcomes
    }

    /// A cluster with up to three priorities.
    fn add_cluster(&mut self, name: &'static str) {
        let policy = match self.random.u8(..2) {
            0 => ClusterPolicy { policy: Policy::RoundRobin(RoundRobin), by_locality: true },
            _ => ClusterPolicy {
                policy: Policy::LeastRequest(LeastRequest { choice_count: 2 }),
                by_locality: false,
            },
        };
        let count = 1 + self.random.usize(..MOST_PRIORITIES);
        let serving = self.random.usize(..count);
        let mut priorities = Vec::new();
        for priority in 0..count {
            let size = [1, 2, self.limit + 1, 4 * self.limit][self.random.usize(..4)];
            priorities.push(self.endpoints(size, priority == serving));
        }
        let before = priorities[..serving].iter().map(Vec::len).sum::<usize>();
        if before > self.limit {
            self.count("failover from more than the limit");
        }
        self.clusters.insert(name, priorities);
        self.policies.insert(name, policy);
        self.update();
        let failover = FAILOVER * serving as u32;
        let bound = failover + self.wait_bound(self.clusters[name][serving].len());
        self.due.insert(name, self.network.now + bound);
    }

    /// An endpoint that answers is added to a cluster.
    fn add_endpoint(&mut self) {
        let name = CLUSTERS[self.random.usize(..CLUSTERS.len())];
        let Some(priorities) = self.clusters.get_mut(name).filter(|_| self.added < MOST_ADDED) else {
            return;
        };
        self.added += 1;
        self.network.set([self.next], Behavior::Answers(LATENCY));
        let place = self.random.usize(..=priorities[0].len());
        priorities[0].insert(place, self.next);
        self.next += 1;
        self.update();
        if self.network.pick(name).is_none() {
            self.count("added");
            let is_refusing = |endpoint: &&Number| self.network.behaviors[*endpoint] == Behavior::Refuses;
            let refusing = self.clusters[name][0].iter().filter(is_refusing).count();
            let soon = self.network.now + self.wait_bound(MOST_ADDED + refusing);
            let due = self.due.entry(name).or_insert(soon);
            *due = soon.min(*due);
        }
    }

    /// Endpoints of which one answers at least, or none.
    fn endpoints(&mut self, count: usize, is_serving: bool) -> Vec<Number> {
        let endpoints: Vec<_> = (self.next..).take(count).collect();
        self.next += count as Number;
        for endpoint in &endpoints {
            let behavior = if self.random.u8(..8) == 0 { Behavior::Refuses } else { Behavior::Silent };
            self.network.set([*endpoint], behavior);
        }
        if is_serving {
            let answers = endpoints[self.random.usize(..count)];
            self.network.set([answers], Behavior::Answers(LATENCY));
        }
        endpoints
    }

    /// The longest time until so many endpoints of a priority have been attempted, in turns with those of all other priorities, whatever
    /// the number of these is. Of two turns of a priority, one is that of its newest endpoint.
    fn wait_bound(&self, endpoints: usize) -> Duration {
        let turns = 2 * endpoints * MOST_PRIORITIES * CLUSTERS.len();
        let at_a_time = self.limit - self.limit / 4;
        LONGEST_SLOT * (1 + turns.div_ceil(at_a_time)) as u32 + LATENCY
    }

    fn update(&mut self) {
        let config = |name: &&'static str, priorities: &Vec<Vec<Number>>| -> LeafConfig {
            cluster(self.policies[name].clone(), priorities)
        };
        let clusters = self.clusters.iter().map(|(name, priorities)| (*name, config(name, priorities)));
        self.network.update(&clusters.collect());
    }

    /// Lets time pass, in which each cluster whose time has come is called.
    fn pass(&mut self, time: Duration) {
        let end = self.network.now + time;
        while let Some((due, name)) = self.due.iter().map(|(name, due)| (*due, *name)).min() {
            if due > end {
                break;
            }
            let left = due.saturating_duration_since(self.network.now);
            let served = self.network.until_served(name, left);
            assert!(served.is_some(), "the first call to {name} waits, with a limit of {}", self.limit);
            self.due.remove(name);
            self.count("served");
        }
        self.network.pass(end.saturating_duration_since(self.network.now));
    }

    fn count(&mut self, outcome: &'static str) {
        *self.outcomes.entry(outcome).or_default() += 1;
    }
}

const CLUSTERS: [&str; 3] = ["cart", "shop", "stock"];
const MOST_PRIORITIES: usize = 3;
const MOST_ADDED: usize = 3;
/// How long an attempt that is not over keeps others from beginning.
const LONGEST_SLOT: Duration = Duration::from_millis(500);
const LATENCY: Duration = Duration::from_millis(100);
/// How long calls wait for a priority that is connecting (A56).
const FAILOVER: Duration = Duration::from_secs(10);
