//! The reference model: what has to hold of a balancer, computed from configurations and connections alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use super::{
    configs::{self, LEAVES, addresses, endpoints, is_petiole, is_ring, leaves, max_ejection_percent},
    world::World,
};
use crate::balance::{
    clusters::{ClusterConfig, ClusterConfigs},
    command::ConnectionId,
    connectivity::Connectivity,
    connects::SLOT_TIME,
    identity::Destination,
    leaf::Ejections,
    lists::config::EndpointList,
    locality_config::EndpointConfig,
    picker::{Attempt, Pick},
    policies::Policy,
    policy::LeafConfig,
};

impl World<'_> {
    /// Something is tried or waited for; every call is counted; and no cluster fails with a connection to an endpoint.
    pub(super) fn check(&mut self) {
        assert!(self.held_slots() <= self.max_connects, "{} attempts have begun", self.held_slots());
        self.end_retiring();
        self.check_ejections(None);
        let running: u32 = LEAVES.iter().map(|name| self.running(name)).sum();
        assert_eq!(running as usize, self.calls.len(), "calls that are counted");
        self.check_loads();
        self.check_streams();
        for name in self.configs.leaves.keys() {
            let connected =
                self.connected(name).into_values().filter(|it| !self.retires(name, it.address)).count();
            let most = most_connections(&self.configs.leaves[name]) * self.peers.most_scaled(name);
            let hosts = self.connected_hosts(name);
            assert!(hosts.is_empty() || self.has_sessions, "{name}: {hosts:?} are kept for no session");
            for to in hosts.values() {
                let address = &to.address;
                let host = configs::host(&self.configs.leaves[name], *address);
                let is_allowed = host.is_some_and(|it| it.1 && it.0.identity == to.identity);
                assert!(is_allowed, "{name}: {to:?} is connected, where no cookie may lead");
                let others = hosts.values().filter(|it| *it == to).count();
                assert!(others <= self.peers.most_scaled(name), "{name}: {address} is connected too often");
                let mut of_policy =
                    self.connected(name).into_values().filter(|it| !self.retires(name, it.address));
                let is_ejected =
                    self.ejected.get(&**name).is_some_and(|it| it.iter().flatten().any(|it| it == address));
                assert!(
                    is_ejected || !of_policy.any(|it| it == *to),
                    "{name}: the policy has {address}, too"
                );
            }
            assert!(connected <= most, "{name}: {connected} connections instead of {most}");
        }
        let is_busy = self.is_busy();
        for target in self.configs.targets.keys() {
            let has_any = self.leaves_of(target).any(|(_, leaf)| !addresses(leaf).is_empty());
            match self.pickers[target].connectivity {
                Connectivity::Ready | Connectivity::Idle => {}
                Connectivity::Connecting => assert!(is_busy, "{target}: nothing is tried"),
                Connectivity::TransientFailure => {
                    assert!(!has_any || is_busy, "{target}: nothing is tried");
                    assert_eq!(self.is_wrong_failure(target), None, "{target}");
                }
            }
        }
    }

    /// The attempts that have begun lately and are not over (CH11.8).
    pub(super) fn held_slots(&self) -> usize {
        let is_held = |connection: &&ConnectionId| self.begun[*connection] + SLOT_TIME > self.now;
        self.attempts.keys().filter(is_held).count()
    }

    /// Whether something is tried, or waited for.
    pub(super) fn is_busy(&self) -> bool {
        !self.attempts.is_empty() || self.balancer.poll_timeout().is_some()
    }

    /// Ejections are counted exactly, end with their algorithm, begin by timeouts alone and up to the maximum, and leave connections
    /// as they are. These are the connections of each leaf before a timeout.
    pub(super) fn check_ejections(&mut self, before: Option<[BTreeMap<ConnectionId, Destination>; 2]>) {
        for (place, name) in LEAVES.into_iter().enumerate() {
            let Some(now) = self.balancer.ejections(name) else {
                self.ejected.remove(name);
                self.ejected_before.remove(name);
                continue;
            };
            let Ejections { ejected, counted, total, members, is_sweeping } = now;
            assert_eq!(ejected.len(), counted, "{name}: ejected endpoints that are counted");
            let leaf = &self.configs.leaves[name];
            let percent = max_ejection_percent(leaf);
            let all: BTreeSet<Vec<_>> =
                listed(leaf).iter().map(|it| it.iter().map(|it| it.address).collect()).collect();
            assert_eq!(total, percent.map_or(0, |_| all.len()), "{name}: endpoints");
            for (addresses, is_ejected, connectivity) in &members {
                assert_eq!(*is_ejected, ejected.contains(addresses), "{name}: {addresses:?}");
                assert!(!is_ejected || *connectivity == Connectivity::TransientFailure, "{name}");
            }
            if !is_sweeping {
                self.ejected_before.insert(name, ejected.clone());
            }
            let last = self.ejected.insert(name, ejected.clone()).unwrap_or_default();
            let new: Vec<_> = ejected.difference(&last).collect();
            let ended = last.difference(&ejected).count();
            *self.outcomes.entry("unejected").or_default() += ended as u64;
            *self.outcomes.entry("ejected").or_default() += new.len() as u64;
            if ended + new.len() > 0 {
                self.quiet_since = self.now;
            }
            if new.is_empty() {
                continue;
            }
            let before = &before.as_ref().expect("only a timeout ejects")[place];
            let at_last = last.len() + new.len() - 1;
            assert!(
                at_last * 100 < percent.unwrap_or(0) * total,
                "{name}: {at_last} of {total} were ejected"
            );
            let members = members.iter().filter(|it| new.contains(&&it.0));
            for address in members.flat_map(|it| &it.0) {
                let mut connections = before.iter().filter(|it| it.1.address == *address);
                assert!(connections.all(|it| self.connections.contains_key(it.0)), "{name}: {address}");
            }
        }
    }

    /// Each endpoint counts the calls that were sent to it by least_request, and no others.
    pub(super) fn check_loads(&self) {
        for load in &self.loads {
            let calls =
                self.calls.iter().map(|it| &it.attempt).filter(|it| it.has_load && it.endpoint.load == *load);
            assert_eq!(load.running() as usize, calls.count(), "calls that an endpoint counts");
        }
    }

    /// What is wrong with an endpoint that was picked.
    pub(super) fn is_wrong_endpoint(&self, target: &str, attempt: &Attempt<ConnectionId>) -> Option<String> {
        let address = attempt.endpoint.address;
        // The endpoints of a policy before keep the list of connections that they had.
        let mut connections = attempt.endpoint.connections.all().map(|it| *it.handle());
        let destination = attempt.endpoint.destination();
        let Some(connection) = connections.find(|it| self.connections.get(it) == Some(&destination)) else {
            return Some("it is not connected".to_owned());
        };
        let name = self.balancer.leaf_of(connection)?;
        if self.is_other(&name, &destination) {
            return Some(format!("{destination:?} is of another identity"));
        }
        let Some(place) = leaves(&self.configs, target).iter().position(|leaf| *leaf == name) else {
            return Some(format!("{name} is no leaf of the cluster"));
        };
        let mut preferred = leaves(&self.configs, target)[..place].iter();
        if preferred.any(|leaf| self.is_surely_ready(leaf, 0)) {
            return Some("a preferred leaf is ready".to_owned());
        }
        let leaf = &self.configs.leaves[&name];
        if self.running(&name) > leaf.max_requests {
            return Some("the circuit breaker permits no more".to_owned());
        }
        let lists = |localities: &Vec<_>| endpoints(localities).any(|it| it.contains(&destination));
        match leaf.priorities.iter().position(lists) {
            // An endpoint of the policy before is used as such, whatever its priority is under the next one.
            _ if self.retires(&name, address) => None,
            _ if listed(leaf)
                .iter()
                .filter(|it| it.contains(&destination))
                .all(|it| self.is_ejected(&name, it)) =>
            {
                Some("it is ejected".to_owned())
            }
            Some(priority) => {
                let better = (0..priority).find(|it| self.is_surely_ready(&name, *it));
                better.map(|better| format!("priority {better} is ready, it is of {priority}"))
            }
            None => Some("it is not configured".to_owned()),
        }
    }

    /// A cluster with a connection fails no call.
    pub(super) fn is_wrong_failure(&self, target: &str) -> Option<String> {
        // A leaf with such a ring is in use, and fails some calls, as long as any of its endpoints is ready.
        if self.leaves_of(target).any(|(_, leaf)| has_small_ring(leaf)) {
            return None;
        }
        let mut ready = self.leaves_of(target).flat_map(|(name, leaf)| {
            (0..leaf.priorities.len()).filter(|it| self.is_surely_ready(name, *it)).map(move |it| (name, it))
        });
        ready.next().map(|(name, priority)| format!("priority {priority} of {name} is ready"))
    }

    /// Calls wait for connections, and for priorities and leaves that may take 10 s each to connect.
    pub(super) fn is_wrong_queue(&self, target: &str) -> Option<String> {
        let longest = self.leaves_of(target).map(|(_, leaf)| 1 + leaf.priorities.len() as u32).sum::<u32>();
        let is_quiet = self.now > self.quiet_since + longest * Duration::from_secs(10);
        // Calls wait for an idle endpoint of pick_first or of a ring, although others may be ready.
        let can_be_idle = self.leaves_of(target).any(|(_, leaf)| !is_petiole(leaf) || is_ring(leaf));
        if is_quiet && !can_be_idle { self.is_wrong_failure(target) } else { None }
    }

    pub(super) fn is_wrong_drop(&self, target: &str) -> Option<String> {
        let mut leaves = self.leaves_of(target);
        let is_gone = matches!(self.configs.targets[target], ClusterConfig::Gone(_));
        let can_drop =
            leaves.any(|(name, leaf)| !leaf.drops.is_empty() || self.running(name) >= leaf.max_requests);
        (!is_gone && !can_drop).then(|| "neither gone, nor a share of drops, nor at its limit".to_owned())
    }

    /// What a pick with a cookie has come to, and what is wrong with that.
    pub(super) fn judge_session(
        &self,
        (target, cookie): (&str, &[SocketAddr]),
        (pick, list): (&Pick<ConnectionId>, Option<&str>),
    ) -> (&'static str, Option<String>) {
        match pick {
            Pick::Complete(attempt) => {
                let address = attempt.endpoint.address;
                let is_led = self.has_sessions && cookie.contains(&address) && self.leads(target, attempt);
                let is_wrong = if is_led { None } else { self.is_wrong_endpoint(target, attempt) };
                let outcome = if is_led { "led" } else { "not led" };
                (outcome, is_wrong.or_else(|| self.is_wrong_list(attempt, list)))
            }
            Pick::Queue => {
                let is_attempted =
                    cookie.iter().any(|it| self.attempts.values().any(|other| other.address == *it))
                        || self.held_slots() == self.max_connects;
                let is_busy = self.is_busy().then_some(()).ok_or("a call waits for nothing".to_owned());
                let is_wrong = if is_attempted { None } else { self.is_wrong_queue(target) };
                ("queue in session", is_busy.err().or(is_wrong))
            }
            Pick::QueueAndConnect => ("connect in session", self.is_wrong_queue(target)),
            Pick::Fail(_) => ("fail in session", self.is_wrong_failure(target)),
            Pick::Drop(..) => ("drop in session", self.is_wrong_drop(target)),
            Pick::FailAs(..) | Pick::Broken(_) => ("custom", Some("there is no such policy".to_owned())),
            Pick::Unknown(_) => ("unknown", Some("the cluster is configured".to_owned())),
        }
    }

    /// Whether a cookie may lead to an endpoint.
    fn leads(&self, target: &str, attempt: &Attempt<ConnectionId>) -> bool {
        let (connection, destination) = (attempt.endpoint.handle(), attempt.endpoint.destination());
        let address = destination.address;
        let Some(name) = self.balancer.leaf_of(connection) else { return false };
        let host = configs::host(&self.configs.leaves[&name], address);
        let destinations = |it: &EndpointConfig| it.destinations().collect();
        self.connections.get(&connection) == Some(&destination)
            && !self.is_other(&name, &destination)
            && leaves(&self.configs, target).contains(&name)
            && host.is_some_and(|(it, is_allowed)| is_allowed && !self.is_ejected(&name, &destinations(it)))
    }

    /// The addresses that a pick hands back are those of its endpoint.
    fn is_wrong_list(&self, attempt: &Attempt<ConnectionId>, list: Option<&str>) -> Option<String> {
        let address = attempt.endpoint.address;
        let name = self.balancer.leaf_of(attempt.endpoint.handle())?;
        let host = configs::host(&self.configs.leaves[&name], address).filter(|_| self.has_sessions);
        let texts = host.map(|(it, _)| it.addresses.iter().map(ToString::to_string).collect::<Vec<_>>());
        let expected = texts.map(|it| it.join(","));
        (expected.as_deref() != list).then(|| format!("its addresses are {expected:?}"))
    }

    /// Whether an endpoint is surely connected that a cookie leads to: the cluster has one leaf, in which no other endpoint can be
    /// the owner of the connection.
    pub(super) fn connected_host(&self, target: &str, cookie: &[SocketAddr]) -> bool {
        let [name] = leaves(&self.configs, target) else { return false };
        let leaf = &self.configs.leaves[name];
        let connected = self.all_connected(name);
        let is_led = |address: &SocketAddr| {
            let Some((endpoint, is_allowed)) = configs::host(leaf, *address) else { return false };
            let to = Destination::new(*address, endpoint.identity.clone());
            let endpoint: BTreeSet<_> = endpoint.destinations().collect();
            let lists = listed(leaf).into_iter().chain(endpoints_of(&leaf.hosts.draining));
            let is_sole = lists.collect::<BTreeSet<_>>().iter().filter(|it| it.contains(&to)).count() == 1;
            let is_connected = connected.values().any(|it| *it == to) && !self.retires(name, *address);
            is_allowed && is_sole && is_connected && !self.may_be_ejected(name, &endpoint)
        };
        self.has_sessions && cookie.iter().any(is_led)
    }

    /// When no call has had a session for long, the connections that are there for sessions are those of endpoints that drain.
    pub(super) fn check_idle_hosts(&self, name: &Arc<str>) {
        for to in self.connected_hosts(name).values() {
            let mut draining =
                self.configs.leaves[name].hosts.draining.iter().flat_map(|it| it.destinations());
            assert!(draining.any(|it| it == *to), "{name}: {to:?} is kept");
        }
    }

    /// The connections that the next configuration must keep, since it still lists their addresses: those of clusters that are in use
    /// before and after.
    pub(super) fn must_stay(&self, next: &ClusterConfigs) -> Vec<ConnectionId> {
        let mut kept = BTreeSet::new();
        for (target, config) in &next.targets {
            let Some(name) = leaves(next, target).first() else { continue };
            if self.configs.targets.get(target) == Some(config) && !self.retiring.contains_key(name) {
                kept.extend(self.must_stay_in(name, &next.leaves[name]));
            }
        }
        kept.into_iter().collect()
    }

    fn must_stay_in(&self, name: &Arc<str>, next: &LeafConfig) -> Vec<ConnectionId> {
        let (connected, mut all_connected) = (self.connected(name), self.connected_hosts(name));
        all_connected.extend(connected.clone());
        let all = listed(next);
        let is_kept = |(connection, destination): &(&ConnectionId, &Destination)| {
            let mut lists = all.iter().filter(|it| it.contains(*destination));
            let (Some(endpoint), None) = (lists.next(), lists.next()) else { return false };
            // An endpoint keeps one of its connections, and pick_first one of all.
            let others = all_connected.iter().filter(|(other, _)| other != connection);
            others.map(|it| it.1).all(|other| is_petiole(next) && !endpoint.contains(other))
        };
        connected.iter().filter(|it| is_kept(&(it.0, it.1))).map(|it| *it.0).collect()
    }

    /// The endpoints that a target may be using now.
    pub(super) fn expected(&self, target: &str) -> Option<BTreeSet<Destination>> {
        let mut priorities = self.leaves_of(target).flat_map(|(_, leaf)| &leaf.priorities);
        let first = priorities.find(|localities| endpoints(localities).next().is_some());
        first.map(|localities| endpoints(localities).flatten().collect())
    }

    /// An endpoint of the priority in use without a connection, when there has been time enough to connect.
    pub(super) fn unconnected(&self, target: &str) -> Option<BTreeSet<Destination>> {
        let priorities = self
            .leaves_of(target)
            .flat_map(|(name, leaf)| leaf.priorities.iter().map(move |it| (name, leaf, it)));
        let (name, leaf, localities) =
            priorities.into_iter().find(|(_, _, localities)| endpoints(localities).next().is_some())?;
        let connected = self.connected(name);
        let is_connected = |endpoint: &BTreeSet<_>| connected.values().any(|it| endpoint.contains(it));
        endpoints(localities).find(|it| is_petiole(leaf) && !is_ring(leaf) && !is_connected(it))
    }

    /// The calls that the circuit breaker of a leaf counts.
    pub(super) fn running(&self, name: &str) -> u32 {
        self.breakers.of(&name.into(), &"eds".into()).running()
    }

    /// Whether a priority has an endpoint with a connection, of which no other endpoint can be the owner.
    fn is_surely_ready(&self, name: &Arc<str>, priority: usize) -> bool {
        let leaf = &self.configs.leaves[name];
        let Some(localities) = leaf.priorities.get(priority).filter(|_| is_petiole(leaf)) else {
            return false;
        };
        let (connected, all) = (self.connected(name), listed(leaf));
        let is_sole = |destination| all.iter().filter(|it| it.contains(destination)).count() == 1;
        let is_ready = |endpoint: BTreeSet<_>| {
            !self.may_be_ejected(name, &endpoint)
                && connected
                    .values()
                    .any(|it| endpoint.contains(it) && is_sole(it) && !self.retires(name, it.address))
        };
        endpoints(localities).any(is_ready)
    }

    /// Whether an endpoint is ejected, and was so before a sweep that is running.
    fn is_ejected(&self, name: &str, endpoint: &BTreeSet<Destination>) -> bool {
        [&self.ejected, &self.ejected_before].into_iter().all(|it| is_among(it.get(name), endpoint))
    }

    /// Whether an endpoint is ejected, or was so before a sweep that is running.
    fn may_be_ejected(&self, name: &str, endpoint: &BTreeSet<Destination>) -> bool {
        [&self.ejected, &self.ejected_before].into_iter().any(|it| is_among(it.get(name), endpoint))
    }

    /// Whether connections of a leaf are to have another identity: that of the endpoints with the address, or of the cluster if no
    /// endpoint has it any more (CH7.20).
    fn is_other(&self, name: &Arc<str>, destination: &Destination) -> bool {
        let leaf = &self.configs.leaves[name];
        let usable = leaf.priorities.iter().flatten().flat_map(|locality| &locality.endpoints);
        let all = usable.chain(&leaf.hosts.draining).flat_map(EndpointConfig::destinations);
        let listed: Vec<_> = all.filter(|it| it.address == destination.address).collect();
        match listed.is_empty() {
            true => *destination.identity.security() != leaf.security,
            false => !listed.contains(destination),
        }
    }

    pub(super) fn retires(&self, name: &Arc<str>, address: SocketAddr) -> bool {
        self.retiring.get(name).is_some_and(|addresses| addresses.contains(&address))
    }

    /// The connections of a leaf's endpoints.
    pub(super) fn connected(&self, name: &Arc<str>) -> BTreeMap<ConnectionId, Destination> {
        let mut all = self.all_connected(name);
        all.retain(|it, _| !self.balancer.is_of_host(*it));
        all
    }

    /// The connections of a leaf that are there for sessions alone.
    fn connected_hosts(&self, name: &Arc<str>) -> BTreeMap<ConnectionId, Destination> {
        let mut all = self.all_connected(name);
        all.retain(|it, _| self.balancer.is_of_host(*it));
        all
    }

    fn all_connected(&self, name: &Arc<str>) -> BTreeMap<ConnectionId, Destination> {
        let of = |connection: &ConnectionId| self.balancer.leaf_of(*connection).as_ref() == Some(name);
        self.connections.iter().filter(|(it, _)| of(it)).map(|(it, to)| (*it, to.clone())).collect()
    }

    fn leaves_of<'a>(&'a self, target: &str) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<LeafConfig>)> {
        leaves(&self.configs, target).iter().map(|name| (name, &self.configs.leaves[name]))
    }
}

/// Whether some endpoints may have no entry of a ring, so that calls fail although these are ready: of small rings, or for small
/// weights.
fn has_small_ring(leaf: &LeafConfig) -> bool {
    let Policy::RingHash(ring) = &leaf.policy.policy else { return false };
    let lists = leaf.priorities.iter().flat_map(|list| EndpointList::all(0, list, leaf.policy.by_locality));
    let mut weights = lists.map(|list| list.weighted().into_iter().map(|(_, weight)| weight).collect());
    (ring.sizes.max as usize) < 4 * listed(leaf).len()
        || weights.any(|weights: Vec<u64>| {
            let least = weights.iter().min().copied().unwrap_or(u64::MAX);
            least.saturating_mul(ring.sizes.max.into()) < weights.iter().sum()
        })
}

/// An endpoint has one connection, unless it is scaled, and so have all endpoints of a priority or locality under pick_first.
fn most_connections(leaf: &LeafConfig) -> usize {
    match (is_petiole(leaf), leaf.policy.by_locality) {
        (true, _) => listed(leaf).len(),
        (false, true) => leaf.priorities.iter().map(Vec::len).sum(),
        (false, false) => leaf.priorities.len(),
    }
}

fn is_among(ejected: Option<&BTreeSet<Vec<SocketAddr>>>, endpoint: &BTreeSet<Destination>) -> bool {
    let mut ejected = ejected.into_iter().flatten();
    ejected.any(|addresses| addresses.iter().eq(endpoint.iter().map(|it| &it.address)))
}

fn endpoints_of(endpoints: &[EndpointConfig]) -> impl Iterator<Item = BTreeSet<Destination>> {
    endpoints.iter().map(|endpoint| endpoint.destinations().collect())
}

/// The distinct endpoints of a leaf.
pub(super) fn listed(leaf: &LeafConfig) -> BTreeSet<BTreeSet<Destination>> {
    leaf.priorities.iter().flat_map(|localities| endpoints(localities)).collect()
}
