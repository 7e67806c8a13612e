//! The clusters that are in use, and what has to follow from their events.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Instant,
};

use super::{
    leaves::{Leaves, UsedLeaf},
    target::Target,
};
use crate::balance::{
    breaker::Breakers,
    clusters::{ClusterChanges, ClusterConfig, ClusterConfigs},
    command::LeafIndex,
    connectivity::Connectivity,
    deadlines::Deadlines,
    failover::Alternatives,
    leaf::{Cluster, Leaf},
    picker::ClusterPicker,
    policy::LeafConfig,
    scope::{EventScope, LeafScope},
    settings::BalancerSettings,
};

/// The clusters that requests are sent to, and the leaves that they use.
#[derive(Debug)]
pub(super) struct ClustersInUse<H> {
    settings: BalancerSettings,
    breakers: Arc<Breakers>,
    /// The newest configurations, also those of leaves that no target has needed yet.
    configs: ClusterConfigs,
    targets: BTreeMap<Arc<str>, Target<H>>,
    leaves: Leaves<H>,
    /// When leaves and targets are due, so that a timeout concerns those alone.
    deadlines: Deadlines<Due>,
    changes: Changes,
    /// Routes have filters that keep sessions.
    has_sessions: bool,
}

/// What is due at a deadline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Leaf(LeafIndex),
    Target(Arc<str>),
}

/// What has to follow from events, so that an event costs what it changes (CH1.25).
#[derive(Debug, Default)]
struct Changes {
    /// Leaves whose targets may have to choose anew.
    leaves: BTreeSet<LeafIndex>,
    /// Targets that have to choose anew.
    targets: BTreeSet<Arc<str>>,
    /// Leaves whose picker may be older than their state.
    leaf_pickers: BTreeSet<LeafIndex>,
    /// Targets whose picker may be older than that of their leaf.
    target_pickers: BTreeSet<Arc<str>>,
    /// Targets with a picker that was not polled yet.
    outgoing: BTreeSet<Arc<str>>,
}

impl<H: Clone> ClustersInUse<H> {
    /// Without clusters.
    pub(super) fn new(settings: BalancerSettings, breakers: Arc<Breakers>) -> Self {
        Self {
            settings,
            breakers,
            configs: ClusterConfigs::default(),
            targets: BTreeMap::new(),
            leaves: Leaves::new(),
            deadlines: Deadlines::default(),
            changes: Changes::default(),
            has_sessions: false,
        }
    }

    pub(super) fn settings(&self) -> &BalancerSettings {
        &self.settings
    }

    /// The configurations in use.
    pub(super) fn configs(&self) -> &ClusterConfigs {
        &self.configs
    }

    /// The clusters that requests are sent to.
    pub(super) fn targets(&self) -> &BTreeMap<Arc<str>, Target<H>> {
        &self.targets
    }

    /// The clusters with endpoints.
    pub(super) fn leaves(&self) -> &Leaves<H> {
        &self.leaves
    }

    /// Replaces the configurations of some clusters. What is equal stays as it is.
    pub(super) fn update(&mut self, changes: ClusterChanges, scope: &mut EventScope<'_>) {
        let mut removed = BTreeSet::new();
        for (name, config) in changes.leaves {
            match config {
                Some(config) => {
                    // A leaf that one target gives up and another one gets is listed twice, and its last change counts.
                    removed.remove(&name);
                    self.set_leaf(name, config, scope);
                }
                None => {
                    removed.insert(name);
                }
            }
        }
        for (name, config) in changes.targets {
            match config {
                Some(config) => self.set_target(name, config, scope),
                None => self.remove_target(&name, scope),
            }
        }
        // Only now, when no target has them any more.
        removed.iter().for_each(|name| drop(self.configs.leaves.remove(name)));
        self.choose_all(scope);
    }

    /// Lets a leaf handle an event.
    pub(super) fn with_leaf(
        &mut self,
        index: LeafIndex,
        scope: &mut EventScope<'_>,
        event: impl FnOnce(&mut Leaf<H>, &mut LeafScope<'_>),
    ) {
        // No event finds another leaf at the index of a released one: its connections have no owner, and its deadline is gone.
        let Some(used) = self.leaves.get_mut(index) else { return };
        event(&mut used.leaf, &mut scope.of(index));
        self.changes.leaves.insert(index);
        self.deadlines.set(Due::Leaf(index), used.leaf.poll_timeout());
    }

    /// Lets each leaf handle an event.
    pub(super) fn with_each_leaf(
        &mut self,
        scope: &mut EventScope<'_>,
        event: impl Fn(&mut Leaf<H>, &mut LeafScope<'_>),
    ) {
        for index in self.leaves.indices() {
            self.with_leaf(index, scope, &event);
        }
    }

    /// Calls may have sessions from now on, or have none any more (CH8.16).
    pub(super) fn set_sessions(&mut self, has_sessions: bool, scope: &mut EventScope<'_>) {
        if mem::replace(&mut self.has_sessions, has_sessions) != has_sessions {
            self.with_each_leaf(scope, |leaf, scope| leaf.set_sessions(has_sessions, scope));
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first()
    }

    /// To be called when [`poll_timeout`](Self::poll_timeout) says so.
    pub(super) fn handle_timeout(&mut self, scope: &mut EventScope<'_>) {
        for due in self.deadlines.due(scope.now) {
            match due {
                Due::Leaf(index) => self.with_leaf(index, scope, Leaf::handle_timeout),
                Due::Target(name) => {
                    self.changes.targets.insert(name);
                }
            }
        }
        self.choose_all(scope);
    }

    /// The next picker that changed, with its cluster.
    pub(super) fn poll_picker(
        &mut self,
        scope: &mut EventScope<'_>,
    ) -> Option<(Arc<str>, Arc<ClusterPicker<H>>)> {
        self.choose_all(scope);
        self.refresh_pickers(scope.now);
        let name = self.changes.outgoing.pop_first()?;
        // Each outgoing name is that of a target: `remove_target` takes it out.
        let picker = self.targets[&name].picker.clone();
        Some((name, picker))
    }

    /// Sets the configuration of a leaf, and updates the leaf if it was created.
    fn set_leaf(&mut self, name: Arc<str>, config: Arc<LeafConfig>, scope: &mut EventScope<'_>) {
        // A leaf that does not exist yet is created by the failover of its target, if that ever needs it.
        if let Some(index) = self.leaves.index(&name) {
            let breaker = self.breakers.of(&name, &config.service_name);
            let config = config.clone();
            self.with_leaf(index, scope, |leaf, scope| leaf.update(config, breaker, scope));
        }
        self.configs.leaves.insert(name, config);
    }

    /// Sets the configuration of a target, which releases the leaves that it names no more.
    fn set_target(&mut self, name: Arc<str>, config: ClusterConfig, scope: &mut EventScope<'_>) {
        if self.targets.get(&name).is_some_and(|target| target.config == config) {
            return;
        }
        let mut target = self.targets.remove(&name).unwrap_or_else(|| Target::new(&config));
        self.configs.targets.insert(name.clone(), config.clone());
        for leaf in target.rearrange(config) {
            self.release(&name, &leaf, scope);
        }
        self.targets.insert(name.clone(), target);
        // The picker of a cluster without leaves is complete; that of others follows from their choice.
        self.changes.outgoing.insert(name.clone());
        self.changes.targets.insert(name);
    }

    /// Removes a target with its timer and its changes, and releases its leaves.
    fn remove_target(&mut self, name: &Arc<str>, scope: &mut EventScope<'_>) {
        self.configs.targets.remove(name);
        let Some(mut target) = self.targets.remove(name) else { return };
        let leaves = target.config.leaves();
        target.failover.clear(&mut TargetLeaves { clusters: self, target: name, leaves, scope });
        self.deadlines.set(Due::Target(name.clone()), None);
        let Changes { leaves: _, targets, leaf_pickers: _, target_pickers, outgoing } = &mut self.changes;
        for names in [targets, target_pickers, outgoing] {
            names.remove(name);
        }
    }

    /// Lets the targets of changed leaves choose among their leaves.
    fn choose_all(&mut self, scope: &mut EventScope<'_>) {
        // A choice that creates a leaf marks that leaf, so that its targets choose once more, until nothing changes.
        loop {
            for index in mem::take(&mut self.changes.leaves) {
                let Some(UsedLeaf { leaf, targets, .. }) = self.leaves.get(index) else { continue };
                self.changes.targets.extend(targets.iter().cloned());
                self.changes.leaf_pickers.insert(index);
                self.deadlines.set(Due::Leaf(index), leaf.poll_timeout());
            }
            let Some(name) = self.changes.targets.pop_first() else { return };
            self.choose(&name, scope);
            self.changes.target_pickers.insert(name);
        }
    }

    /// Lets a target choose among its leaves, which may create some and release others.
    fn choose(&mut self, name: &Arc<str>, scope: &mut EventScope<'_>) {
        let Some(target) = self.targets.get_mut(name) else { return };
        // Taken out for the time of the choice, which creates and releases leaves of `self`.
        let mut failover = mem::take(&mut target.failover);
        let leaves = target.config.leaves().to_vec();
        let now = scope.now;
        let alternatives = &mut TargetLeaves { clusters: self, target: name, leaves: &leaves, scope };
        failover.choose(leaves.len(), now, alternatives);
        self.deadlines.set(Due::Target(name.clone()), failover.poll_timeout());
        if let Some(target) = self.targets.get_mut(name) {
            target.failover = failover;
        }
    }

    /// Makes the pickers of what changed.
    fn refresh_pickers(&mut self, now: Instant) {
        // Leaves first: a target is refreshed once, however many of its leaves have changed (CH1.26).
        for index in mem::take(&mut self.changes.leaf_pickers) {
            let Some(used) = self.leaves.get_mut(index) else { continue };
            if let Some(picker) = used.leaf.take_picker(now) {
                self.deadlines.set(Due::Leaf(index), used.leaf.poll_timeout());
                used.picker = Some(picker);
                self.changes.target_pickers.extend(used.targets.iter().cloned());
            }
        }
        for name in mem::take(&mut self.changes.target_pickers) {
            let Some(target) = self.targets.get_mut(&name) else { continue };
            let leaf = target.chosen().and_then(|name| self.leaves.by_name(name));
            if leaf.and_then(|leaf| leaf.picker.clone()).is_some_and(|leaf| target.refresh(&name, leaf)) {
                self.changes.outgoing.insert(name);
            }
        }
    }

    /// A target needs a leaf.
    fn use_leaf(&mut self, target: &Arc<str>, name: &Arc<str>, scope: &mut EventScope<'_>) {
        if let Some(used) = self.leaves.index(name).and_then(|index| self.leaves.get_mut(index)) {
            used.targets.insert(target.clone());
            return;
        }
        let Some(config) = self.configs.leaves.get(name).cloned() else { return };
        let breaker = self.breakers.of(name, &config.service_name);
        let settings = self.settings.pick_first.clone();
        let cluster = Cluster { name: name.clone(), config, breaker, settings };
        let (sweep_slice, has_sessions) = (self.settings.sweep_slice, self.has_sessions);
        let index = self.leaves.insert(name, target, |index| {
            let scope = &mut scope.of(index);
            let mut leaf = Leaf::new(cluster, sweep_slice, scope);
            leaf.set_sessions(has_sessions, scope);
            leaf
        });
        self.changes.leaves.insert(index);
    }

    /// A target needs a leaf no more.
    fn release(&mut self, target: &Arc<str>, name: &Arc<str>, scope: &mut EventScope<'_>) {
        let Some(index) = self.leaves.index(name) else { return };
        let Some(used) = self.leaves.get_mut(index) else { return };
        used.targets.remove(target);
        if used.targets.is_empty() {
            used.leaf.close(&mut scope.of(index));
            self.leaves.remove(name);
            self.deadlines.set(Due::Leaf(index), None);
            self.changes.leaves.remove(&index);
            self.changes.leaf_pickers.remove(&index);
        }
    }
}

/// The leaves of a target for the choice among them.
struct TargetLeaves<'a, 'b, H> {
    clusters: &'a mut ClustersInUse<H>,
    target: &'a Arc<str>,
    leaves: &'a [Arc<str>],
    scope: &'a mut EventScope<'b>,
}

impl<H: Clone> Alternatives for TargetLeaves<'_, '_, H> {
    fn create(&mut self, index: usize) {
        self.clusters.use_leaf(self.target, &self.leaves[index], self.scope);
    }

    /// A leaf goes on by itself.
    fn reactivate(&mut self, _: usize) {}

    fn destroy(&mut self, index: usize) {
        if let Some(leaf) = self.leaves.get(index) {
            self.clusters.release(self.target, leaf, self.scope);
        }
    }

    fn connectivity(&self, index: usize) -> Connectivity {
        let leaf = self.leaves.get(index).and_then(|name| self.clusters.leaves.by_name(name));
        // A leaf without a configuration was not created. It counts as failing, so that the next one is used.
        leaf.map_or(Connectivity::TransientFailure, |used| used.leaf.connectivity())
    }
}
