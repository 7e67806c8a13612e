//! The clusters of a channel: from configurations and events of connections to pickers.

mod commands;
mod labels;
mod load_reports;
mod on_demand;
mod rotation;
mod sessions;
mod settings;
#[cfg(any(test, feature = "channel"))]
mod status;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Instant,
};

use slab::Slab;

pub(crate) use self::settings::BalancerSettings;
use super::{
    breaker::Breakers,
    clusters::{ClusterChanges, ClusterConfig, ClusterConfigs},
    command::{Commands, ConnectionId, Holder, Owner},
    connect_error::ConnectError,
    connectivity::Connectivity,
    connects::Connects,
    deadlines::Deadlines,
    failover::{Alternatives, Failover},
    leaf::Leaf,
    picker::{Choice, ClusterPicker, LeafPicker},
    policy::LeafConfig,
    scope::Scope,
    streams::Streams,
};

/// The state of all clusters of a channel.
#[derive(Debug)]
pub(crate) struct Balancer<H> {
    settings: BalancerSettings,
    random: fastrand::Rng,
    breakers: Arc<Breakers>,
    configs: ClusterConfigs,
    targets: BTreeMap<Arc<str>, Target<H>>,
    leaves: Leaves<H>,
    deadlines: Deadlines<Due>,
    changes: Changes,
    commands: Commands,
    connects: Connects,
    /// Routes have filters that keep sessions.
    has_sessions: bool,
}

/// A cluster that requests are sent to.
#[derive(Debug)]
struct Target<H> {
    config: ClusterConfig,
    failover: Failover,
    picker: Arc<ClusterPicker<H>>,
}

/// The leaves that are in use.
#[derive(Debug)]
struct Leaves<H> {
    all: Slab<InUse<H>>,
    by_name: BTreeMap<Arc<str>, usize>,
}

#[derive(Debug)]
struct InUse<H> {
    leaf: Leaf<H>,
    /// The targets that have created it.
    targets: BTreeSet<Arc<str>>,
    picker: Option<Arc<LeafPicker<H>>>,
}

/// What [`handle_timeout`](Balancer::handle_timeout) is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Leaf(usize),
    Target(Arc<str>),
    /// An attempt to connect that waits for its turn.
    Connect,
}

/// What has to follow from events, so that an event costs what it changes (CH1.25).
#[derive(Debug, Default)]
struct Changes {
    /// Leaves whose targets may have to choose anew.
    leaves: BTreeSet<usize>,
    /// Targets that have to choose anew.
    targets: BTreeSet<Arc<str>>,
    /// Leaves whose picker may be older than their state.
    leaf_pickers: BTreeSet<usize>,
    /// Targets whose picker may be older than that of their leaf.
    target_pickers: BTreeSet<Arc<str>>,
    /// Targets with a picker that was not polled yet.
    outgoing: BTreeSet<Arc<str>>,
}

impl<H: Clone> Balancer<H> {
    /// Without clusters.
    pub(crate) fn new(settings: BalancerSettings, breakers: Arc<Breakers>) -> Self {
        Self {
            random: fastrand::Rng::with_seed(settings.seed),
            settings,
            breakers,
            configs: ClusterConfigs::default(),
            targets: BTreeMap::new(),
            leaves: Leaves { all: Slab::new(), by_name: BTreeMap::new() },
            deadlines: Deadlines::default(),
            changes: Changes::default(),
            commands: Commands::default(),
            connects: Connects::default(),
            has_sessions: false,
        }
    }

    /// Replaces the configurations of some clusters. What is equal stays as it is.
    pub(crate) fn update(&mut self, changes: ClusterChanges, now: Instant) {
        let mut removed = BTreeSet::new();
        for (name, config) in changes.leaves {
            match config {
                Some(config) => {
                    removed.remove(&name);
                    self.set_leaf(name, config, now);
                }
                None => {
                    removed.insert(name);
                }
            }
        }
        for (name, config) in changes.targets {
            match config {
                Some(config) => self.set_target(name, config, now),
                None => self.remove_target(&name, now),
            }
        }
        // Only now, when no target has them any more.
        removed.iter().for_each(|name| drop(self.configs.leaves.remove(name)));
        self.settle(now);
    }

    /// Replaces the configurations of all clusters.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn replace(&mut self, configs: ClusterConfigs, now: Instant) {
        let before = self.configs.clone();
        let is_new = |(name, leaf): &(Arc<str>, Arc<LeafConfig>)| {
            before.leaves.get(name).is_none_or(|known| !Arc::ptr_eq(known, leaf))
        };
        let leaves = configs.leaves.clone().into_iter().filter(is_new).map(|(name, leaf)| (name, Some(leaf)));
        let gone = before.leaves.keys().filter(|name| !configs.leaves.contains_key(*name));
        let leaves = leaves.chain(gone.map(|name| (name.clone(), None))).collect();
        let gone = before.targets.keys().filter(|name| !configs.targets.contains_key(*name));
        let targets = configs.targets.clone().into_iter().map(|(name, config)| (name, Some(config)));
        let targets = targets.chain(gone.map(|name| (name.clone(), None))).collect();
        self.update(ClusterChanges { targets, leaves }, now);
    }

    /// An attempt succeeded: requests can be sent.
    pub(crate) fn on_connected(&mut self, connection: ConnectionId, streams: Arc<Streams<H>>, now: Instant) {
        self.connects.on_connected(connection);
        self.with_owner(connection, now, |leaf, holder, scope| {
            leaf.on_connected(holder, connection, streams, scope);
        });
    }

    /// An attempt failed. The error names the address.
    pub(crate) fn on_failed(&mut self, connection: ConnectionId, error: ConnectError, now: Instant) {
        let cause = self.connects.on_failed(connection, error.cause, now);
        let error = ConnectError { cause, ..error };
        self.with_owner(connection, now, |leaf, holder, scope| {
            leaf.on_failed(holder, connection, error, scope);
        });
        self.commands.forget(connection);
    }

    /// A connection takes no more requests, or is closed.
    pub(crate) fn on_lost(&mut self, connection: ConnectionId, now: Instant) {
        self.connects.on_lost(connection);
        self.with_owner(connection, now, |leaf, holder, scope| leaf.on_lost(holder, connection, scope));
        self.commands.forget(connection);
    }

    /// All delays after failed attempts are over (CH3.3).
    pub(crate) fn reset_backoff(&mut self, now: Instant) {
        for place in self.leaves.places() {
            self.with_leaf(place, now, Leaf::reset_backoff);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first()
    }

    /// To be called when [`poll_timeout`](Self::poll_timeout) says so.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for due in self.deadlines.due(now) {
            match due {
                Due::Leaf(place) => self.with_leaf(place, now, Leaf::handle_timeout),
                Due::Target(name) => {
                    self.changes.targets.insert(name);
                }
                // The next command is polled after each event.
                Due::Connect => self.deadlines.set(Due::Connect, None),
            }
        }
        self.settle(now);
    }

    /// The next picker that changed, with its cluster.
    pub(crate) fn poll_picker(&mut self, now: Instant) -> Option<(Arc<str>, Arc<ClusterPicker<H>>)> {
        self.settle(now);
        self.refresh_pickers(now);
        let name = self.changes.outgoing.pop_first()?;
        let picker = self.targets[&name].picker.clone();
        Some((name, picker))
    }

    /// Ends all attempts, and the connections when their streams have ended.
    pub(crate) fn close(&mut self, now: Instant) {
        let targets = self.configs.targets.keys().map(|name| (name.clone(), None)).collect();
        let leaves = self.configs.leaves.keys().map(|name| (name.clone(), None)).collect();
        self.update(ClusterChanges { targets, leaves }, now);
    }

    /// The cluster with endpoints that a connection is of.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn leaf_of(&self, connection: ConnectionId) -> Option<Arc<str>> {
        let owner = self.commands.owner_of(connection)?;
        self.leaves.all.get(owner.leaf).map(|leaf| leaf.leaf.name().clone())
    }

    /// The state of a cluster with endpoints, without the endpoints of a policy before.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn leaf_connectivity(&self, name: &str) -> Option<Connectivity> {
        self.leaves.get(name).map(|leaf| leaf.leaf.current_connectivity())
    }

    /// The ejected endpoints of a cluster with endpoints.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn ejections(&self, name: &str) -> Option<super::leaf::Ejections> {
        self.leaves.get(name).map(|leaf| leaf.leaf.ejections())
    }

    /// Whether no connection is attempted or established.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn is_unconnected(&self) -> bool {
        self.commands.owns_nothing()
    }

    fn set_leaf(&mut self, name: Arc<str>, config: Arc<LeafConfig>, now: Instant) {
        if let Some(place) = self.leaves.by_name.get(&name).copied() {
            let breaker = self.breakers.of(&name, &config.service_name);
            let config = config.clone();
            self.with_leaf(place, now, |leaf, scope| leaf.update(config, breaker, scope));
        }
        self.configs.leaves.insert(name, config);
    }

    fn set_target(&mut self, name: Arc<str>, config: ClusterConfig, now: Instant) {
        if self.targets.get(&name).is_some_and(|target| target.config == config) {
            return;
        }
        let mut target = self.targets.remove(&name).unwrap_or_else(|| Target::new(&config));
        self.configs.targets.insert(name.clone(), config.clone());
        self.rearrange(&name, &mut target, config, now);
        self.targets.insert(name.clone(), target);
        self.changes.outgoing.insert(name.clone());
        self.changes.targets.insert(name);
    }

    fn remove_target(&mut self, name: &Arc<str>, now: Instant) {
        self.configs.targets.remove(name);
        let Some(mut target) = self.targets.remove(name) else { return };
        let leaves = target.config.leaves().to_vec();
        self.with_leaves(name, &leaves, now, |alternatives| target.failover.clear(alternatives));
        self.deadlines.set(Due::Target(name.clone()), None);
        let Changes { leaves: _, targets, leaf_pickers: _, target_pickers, outgoing } = &mut self.changes;
        for names in [targets, target_pickers, outgoing] {
            names.remove(name);
        }
    }

    /// Gives a target its new leaves, each of which keeps its state at its new place.
    fn rearrange(&mut self, name: &Arc<str>, target: &mut Target<H>, config: ClusterConfig, now: Instant) {
        let (before, after) = (target.config.leaves().to_vec(), config.leaves());
        let places: Vec<_> = after.iter().map(|leaf| before.iter().position(|known| known == leaf)).collect();
        let removed = before.iter().filter(|leaf| !after.contains(leaf));
        for leaf in removed.cloned().collect::<Vec<_>>() {
            self.release(name, &leaf, now);
        }
        target.failover.rearrange(&places);
        if let Some(picker) = config.picker() {
            target.picker = Arc::new(picker);
        }
        target.config = config;
    }

    /// Lets the targets of changed leaves choose among their leaves.
    fn settle(&mut self, now: Instant) {
        loop {
            for place in mem::take(&mut self.changes.leaves) {
                let it = &self.leaves.all[place];
                self.changes.targets.extend(it.targets.iter().cloned());
                self.changes.leaf_pickers.insert(place);
                self.deadlines.set(Due::Leaf(place), it.leaf.poll_timeout());
            }
            let Some(name) = self.changes.targets.pop_first() else { return };
            self.choose(&name, now);
            self.changes.target_pickers.insert(name);
        }
    }

    fn choose(&mut self, name: &Arc<str>, now: Instant) {
        let Some(target) = self.targets.get_mut(name) else { return };
        let mut failover = mem::take(&mut target.failover);
        let leaves = target.config.leaves().to_vec();
        self.with_leaves(name, &leaves, now, |alternatives| {
            failover.choose(leaves.len(), now, alternatives);
        });
        self.deadlines.set(Due::Target(name.clone()), failover.poll_timeout());
        if let Some(target) = self.targets.get_mut(name) {
            target.failover = failover;
        }
    }

    /// Makes the pickers of what changed.
    fn refresh_pickers(&mut self, now: Instant) {
        for place in mem::take(&mut self.changes.leaf_pickers) {
            let it = &mut self.leaves.all[place];
            if let Some(picker) = it.leaf.take_picker(now) {
                self.deadlines.set(Due::Leaf(place), it.leaf.poll_timeout());
                it.picker = Some(picker);
                self.changes.target_pickers.extend(it.targets.iter().cloned());
            }
        }
        for name in mem::take(&mut self.changes.target_pickers) {
            let Some(target) = self.targets.get_mut(&name) else { continue };
            let leaf =
                target.chosen().and_then(|name| self.leaves.get(name)).and_then(|leaf| leaf.picker.clone());
            if leaf.is_some_and(|leaf| target.refresh(leaf)) {
                self.changes.outgoing.insert(name);
            }
        }
    }

    fn with_leaves(
        &mut self,
        target: &Arc<str>,
        leaves: &[Arc<str>],
        now: Instant,
        then: impl FnOnce(&mut dyn Alternatives),
    ) {
        then(&mut TargetLeaves { balancer: self, target, leaves, now });
    }

    /// A target needs a leaf.
    fn use_leaf(&mut self, target: &Arc<str>, name: &Arc<str>, now: Instant) {
        if let Some(place) = self.leaves.by_name.get(name) {
            self.leaves.all[*place].targets.insert(target.clone());
            return;
        }
        let Some(config) = self.configs.leaves.get(name).cloned() else { return };
        let breaker = self.breakers.of(name, &config.service_name);
        let settings = (self.settings.pick_first.clone(), self.settings.sweep_slice);
        let entry = self.leaves.all.vacant_entry();
        let place = entry.key();
        let scope = &mut Scope { now, random: &mut self.random, commands: &mut self.commands };
        let mut leaf = Leaf::new((name.clone(), place), (config, breaker), settings, scope);
        leaf.set_sessions(self.has_sessions, scope);
        entry.insert(InUse { leaf, targets: BTreeSet::from([target.clone()]), picker: None });
        self.leaves.by_name.insert(name.clone(), place);
        self.changes.leaves.insert(place);
    }

    /// A target needs a leaf no more.
    fn release(&mut self, target: &Arc<str>, name: &Arc<str>, now: Instant) {
        let Some(place) = self.leaves.by_name.get(name).copied() else { return };
        let it = &mut self.leaves.all[place];
        it.targets.remove(target);
        if it.targets.is_empty() {
            let scope = &mut Scope { now, random: &mut self.random, commands: &mut self.commands };
            it.leaf.close(scope);
            self.leaves.all.remove(place);
            self.leaves.by_name.remove(name);
            self.deadlines.set(Due::Leaf(place), None);
            self.changes.leaves.remove(&place);
            self.changes.leaf_pickers.remove(&place);
        }
    }

    fn with_owner(
        &mut self,
        connection: ConnectionId,
        now: Instant,
        event: impl FnOnce(&mut Leaf<H>, Holder, &mut Scope<'_>),
    ) {
        if let Some(Owner { leaf, holder }) = self.commands.owner_of(connection) {
            self.with_leaf(leaf, now, |leaf, scope| event(leaf, holder, scope));
        }
    }

    fn with_leaf(&mut self, place: usize, now: Instant, event: impl FnOnce(&mut Leaf<H>, &mut Scope<'_>)) {
        let Some(it) = self.leaves.all.get_mut(place) else { return };
        event(&mut it.leaf, &mut Scope { now, random: &mut self.random, commands: &mut self.commands });
        self.changes.leaves.insert(place);
        self.deadlines.set(Due::Leaf(place), it.leaf.poll_timeout());
    }
}

/// The leaves of a target for the choice among them.
struct TargetLeaves<'a, H> {
    balancer: &'a mut Balancer<H>,
    target: &'a Arc<str>,
    leaves: &'a [Arc<str>],
    now: Instant,
}

impl<H: Clone> Alternatives for TargetLeaves<'_, H> {
    fn create(&mut self, index: usize) {
        self.balancer.use_leaf(self.target, &self.leaves[index], self.now);
    }

    /// A leaf goes on by itself.
    fn reactivate(&mut self, _: usize) {}

    fn destroy(&mut self, index: usize) {
        if let Some(leaf) = self.leaves.get(index) {
            self.balancer.release(self.target, leaf, self.now);
        }
    }

    fn connectivity(&self, index: usize) -> Connectivity {
        let leaf = self.leaves.get(index).and_then(|name| self.balancer.leaves.get(name));
        leaf.map_or(Connectivity::TransientFailure, |leaf| leaf.leaf.connectivity())
    }
}

impl<H> Target<H> {
    fn new(config: &ClusterConfig) -> Self {
        let picker =
            config.picker().unwrap_or_else(|| ClusterPicker::unusable("it has no leaf clusters".into()));
        Self {
            config: ClusterConfig::Leaves(Vec::new()),
            failover: Failover::default(),
            picker: Arc::new(picker),
        }
    }

    fn chosen(&self) -> Option<&Arc<str>> {
        self.config.leaves().get(self.failover.chosen()?)
    }

    /// The picker for the latest one of the chosen leaf; false if that is the same as before.
    fn refresh(&mut self, leaf: Arc<LeafPicker<H>>) -> bool {
        if let Choice::Leaf(known) = &self.picker.choice
            && Arc::ptr_eq(known, &leaf)
        {
            return false;
        }
        let connectivity = leaf.connectivity;
        self.picker = Arc::new(ClusterPicker { connectivity, choice: Choice::Leaf(leaf) });
        true
    }
}

impl<H> ClusterPicker<H> {
    fn unusable(reason: Arc<str>) -> Self {
        Self { connectivity: Connectivity::TransientFailure, choice: Choice::Unusable(reason) }
    }
}

impl<H> Leaves<H> {
    fn get(&self, name: &str) -> Option<&InUse<H>> {
        self.all.get(*self.by_name.get(name)?)
    }

    fn places(&self) -> Vec<usize> {
        self.all.iter().map(|(place, _)| place).collect()
    }
}

#[cfg(test)]
mod tests;
