//! The graph of clusters: what is watched, and what snapshots contain.

use std::{
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use imbl::OrdMap;

use self::{latest_config::LatestConfig, pending::Pending};
use super::{
    cluster_entry::ClusterEntry,
    descendants::Descendants,
    endpoint_sources::{EndpointSources, Joined, Left},
    endpoints::{Endpoints, Source},
    link::{Leafless, Linker, Topology},
    node::TreeNode,
    nodes::Nodes,
    orders::{Order, WatchKey},
    phase::Retention,
    routed::{Next, RoutedClusters},
    usage::Usage,
};
use crate::{error::WatchError, invariant, lrs::Loads, observed::Observed, resource::Cluster};

mod latest_config;
mod pending;

/// The clusters of a resolution: their users, their readiness, and their entries in snapshots.
///
/// Each change marks the clusters that it concerns; [`process`](Self::process) then works on these alone. Aggregates, whose
/// answer depends on others, are linked again when one of them or something below one is added, removed, or changes its state.
#[derive(Debug)]
pub(super) struct Graph {
    /// The clusters.
    nodes: Nodes,
    /// Their endpoints.
    sources: EndpointSources,
    /// The clusters below aggregates.
    descendants: Descendants,
    /// The aggregates in use whose latest configuration leads to no leaf.
    leafless: Leafless,
    /// The clusters of routes.
    routed: RoutedClusters,
    /// The content of a snapshot.
    entries: OrdMap<Arc<str>, Arc<ClusterEntry>>,
    /// What has changed since the last update.
    pending: Pending,
    settings: Settings,
    /// What the caller has to do.
    orders: Vec<Order>,
    /// The number of examined clusters, for tests of costs.
    work: u64,
}

#[derive(Debug)]
struct Settings {
    /// The time for which a deleted cluster stays in use.
    grace: Duration,
    node_id: Arc<str>,
    /// The metadata of endpoints is reported with their load.
    loads: Arc<Loads>,
}

impl Graph {
    /// A graph without clusters.
    pub(super) fn new(node_id: Arc<str>, loads: Arc<Loads>, grace: Duration) -> Self {
        Self {
            nodes: Nodes::default(),
            sources: EndpointSources::default(),
            descendants: Descendants::default(),
            leafless: Leafless::default(),
            routed: RoutedClusters::default(),
            entries: OrdMap::new(),
            pending: Pending::default(),
            settings: Settings { grace, node_id, loads },
            orders: Vec::new(),
            work: 0,
        }
    }

    /// The content of a snapshot.
    pub(super) fn entries(&self) -> &OrdMap<Arc<str>, Arc<ClusterEntry>> {
        &self.entries
    }

    /// The watches to begin and to end.
    pub(super) fn take_orders(&mut self) -> Vec<Order> {
        mem::take(&mut self.orders)
    }

    /// Whether the prepared routes can be put into use.
    pub(super) fn is_next_ready(&self) -> bool {
        self.usage().is_next_ready()
    }

    /// The time at which postponed work is due.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let deadlines = [self.usage().next_grace(), self.routed.readiness_deadline(), self.leafless.due()];
        deadlines.into_iter().flatten().min()
    }

    /// Sets, or withdraws, the clusters that the next routes lead to.
    pub(super) fn set_next(&mut self, next: Next) {
        for name in self.routed.withdraw_next() {
            self.update(&name, |node| node.roots_mut().next = false);
            self.pending.orphaned.insert(name);
        }
        if let Next::Clusters(names) = &next {
            for name in names {
                self.require(name);
                self.update(name, |node| node.roots_mut().next = true);
                self.pending.unlinked |= self.is_aggregate(name);
            }
        }
        self.routed.set_next(next);
        self.pending.unlinked |= !self.descendants.next.is_empty();
    }

    /// Puts the next routes into use.
    pub(super) fn commit(&mut self) {
        let Some(committed) = self.routed.commit() else {
            return invariant::broken("only prepared routes are put into use");
        };
        let mut known = true;
        for name in committed.before {
            known &= self.nodes.update(&name, |node| node.roots_mut().current = false).is_some();
            self.pending.touched.insert(name.clone());
            self.pending.orphaned.insert(name);
        }
        for name in committed.after {
            let update = self.nodes.update(name, |node| {
                let roots = node.roots_mut();
                (roots.current, roots.next) = (true, false);
            });
            known &= update.is_some();
            self.pending.touched.insert(name.clone());
        }
        check(known, "routes lead to nodes");
        self.pending.unlinked |= !self.nodes.index().aggregates().is_empty();
    }

    /// A call holds a cluster, or none does any more.
    pub(super) fn set_held(&mut self, name: &Arc<str>, held: bool) {
        if held {
            self.require(name);
        } else if !self.nodes.contains(name) {
            // A call may end that has never held it.
            return;
        }
        self.update(name, |node| node.roots_mut().held = held);
        self.pending.unlinked |= self.is_aggregate(name);
        self.pending.touched.insert(name.clone());
        self.pending.orphaned.insert(name.clone());
    }

    /// Handles the state of a cluster.
    pub(super) fn on_cluster(&mut self, name: &Arc<str>, seen: Arc<Observed<Cluster>>) {
        // There is none if the update was under way while the watch ended.
        if self.nodes.update(name, |node| node.on_cluster(seen)).is_some() {
            self.pending.dirty.insert(name.clone());
        }
    }

    /// Handles the endpoints of a source.
    pub(super) fn on_endpoints(&mut self, source: &Source, seen: Endpoints) {
        self.pending.dirty.extend(self.sources.on_endpoints(source, seen).cloned());
    }

    /// Processes all changes, while requests are sent by the current routes or not. Returns whether a snapshot would
    /// have another content than before.
    pub(super) fn process(&mut self, is_serving: bool, now: Instant) -> bool {
        self.routed.set_serving(is_serving);
        self.examine_graces(now);
        loop {
            while let Some(name) = self.pending.dirty.pop_first() {
                self.update_cluster(&name, now);
            }
            let links =
                mem::take(&mut self.pending.unlinked) || self.leafless.due().is_some_and(|due| due <= now);
            if links {
                self.link(now);
            }
            while let Some(name) = self.pending.orphaned.pop_first() {
                self.drop_if_orphaned(&name);
            }
            if links {
                self.forget_old_aggregates();
            }
            self.examine_graces(now);
            if self.pending.dirty.is_empty() && !self.pending.unlinked {
                break;
            }
        }
        self.update_readiness_deadline(now);
        let mut changed = false;
        for name in mem::take(&mut self.pending.touched) {
            changed |= self.update_entry(name);
        }
        #[cfg(test)]
        self.check();
        changed
    }

    /// Shows what the tree shows of a cluster. Returns whether that is something else than before.
    fn update_entry(&mut self, name: Arc<str>) -> bool {
        self.work += 1;
        let shown =
            self.nodes.get(&name).filter(|_| self.usage().is_in_tree(&name)).and_then(TreeNode::shown);
        match (shown, self.entries.get(&name)) {
            (Some(shown), Some(entry)) if Arc::ptr_eq(shown, entry) => false,
            (None, None) => false,
            (Some(shown), _) => {
                self.entries.insert(name, shown.clone());
                true
            }
            (None, Some(_)) => self.entries.remove(&name).is_some(),
        }
    }

    /// Ends the graces that are over, and restarts those whose clusters newer routes need again.
    fn examine_graces(&mut self, now: Instant) {
        for (name, examined) in self.usage().examined_graces(self.settings.grace, now) {
            let is_noted = self.update(&name, |node| node.phase_mut().on_grace_examined(examined.grace));
            check(is_noted == Some(true), "a grace was found in a phase that has one");
            if examined.is_due {
                self.pending.dirty.insert(name);
            }
        }
    }

    /// Decides how long the next routes wait for clusters that do not exist, or that lead to no endpoints, while others serve:
    /// the errors may be older than the routes.
    fn update_readiness_deadline(&mut self, now: Instant) {
        let limit = self.routed.wait_limit(self.settings.grace, now);
        let topology = Topology::new(&self.nodes);
        let lacks = |name: &Arc<str>| self.nodes.index().missing().contains(name) || topology.is_void(name);
        let waits =
            |names: &[Arc<str>]| names.iter().any(|name| lacks(name) && self.usage().is_awaited(name));
        let deadline = match self.routed.next() {
            Next::Clusters(names) => limit.filter(|_| waits(names)),
            Next::Nothing | Next::Unknown => None,
        };
        self.routed.set_readiness_deadline(deadline);
    }

    /// Decides on the entry of a cluster, by its state.
    fn update_cluster(&mut self, name: &Arc<str>, now: Instant) {
        self.work += 1;
        let Some(latest) = self.nodes.get(name).and_then(|node| node.latest().cloned()) else {
            return invariant::broken("only a cluster that is known changes");
        };
        match &*latest {
            Observed::Pending => {}
            Observed::Present { resource: config, warning, .. } => match Source::of(config) {
                Some(source) => {
                    let latest = LatestConfig { config, warning: warning.as_ref(), source: &source };
                    self.update_with_endpoints(name, latest, now);
                }
                None => {
                    self.show_old(name, None);
                    self.update(name, |node| node.phase_mut().on_aggregate());
                    self.pending.unlinked = true;
                }
            },
            Observed::Absent { reason } => {
                match self.retention(name, now).filter(|_| reason.is_not_found()) {
                    Some(retention) => {
                        self.keep_old(name, Some(reason.clone()));
                        self.update(name, |node| node.phase_mut().on_deleted(retention));
                    }
                    None => self.show(name, ClusterEntry::failed(name, None, reason.clone())),
                }
            }
        }
        // Checked above.
        let Some((before, after)) = self.update(name, TreeNode::update_child_state) else { return };
        let concerns_above = before != after && self.descendants.contains(name);
        self.pending.unlinked |= concerns_above || after.is_aggregate() || before.is_aggregate();
    }

    /// Applies the latest configuration of a cluster with endpoints of its own.
    fn update_with_endpoints(&mut self, name: &Arc<str>, latest: LatestConfig<'_>, now: Instant) {
        let LatestConfig { config, warning, source } = latest;
        self.watch_source(name, source);
        let Some(seen) = self.sources.seen(source).cloned() else {
            // Nothing has been received since the source is watched.
            return self.wait(name);
        };
        if self.nodes.get(name).is_some_and(|node| node.serves_without(source)) {
            if seen.is_unreachable() {
                return self.wait(name);
            }
            // The error may be older than the cluster.
            if seen.are_lacking()
                && let Some(retention @ Retention::InGrace(_)) = self.retention(name, now)
            {
                self.keep_old(name, None);
                self.update(name, |node| node.phase_mut().on_deleted(retention));
                return;
            }
        }
        let entry =
            ClusterEntry::with_endpoints(name, config, warning.cloned(), &seen, &self.settings.node_id);
        let removed = self.nodes.get(name).and_then(|node| node.removed_endpoints(source, &seen));
        match removed.zip(self.retention(name, now)) {
            Some((endpoints, retention)) => {
                self.show(name, entry.or_endpoints(Some(endpoints)));
                self.update(name, |node| node.phase_mut().on_endpoints_removed(retention));
            }
            None => self.show(name, entry),
        }
    }

    /// Shows the latest resources of a cluster.
    fn show(&mut self, name: &Arc<str>, entry: ClusterEntry) {
        self.update(name, |node| {
            node.forget_old();
            node.phase_mut().on_shown();
        });
        self.set_shown(name, entry);
        self.release_sources(name);
    }

    /// Shows something of a cluster, unless that is shown already.
    fn set_shown(&mut self, name: &Arc<str>, entry: ClusterEntry) {
        let is_reported = entry.config.as_ref().is_some_and(|config| config.report_load);
        let endpoints = entry.endpoints.clone().filter(|_| is_reported);
        if self.update(name, |node| node.show(entry)) == Some(true) {
            self.pending.touched.insert(name.clone());
            if let Some(endpoints) = endpoints {
                self.settings.loads.set_assignment(name, &endpoints);
            }
        }
    }

    /// The previous configuration serves on until more is known.
    fn wait(&mut self, name: &Arc<str>) {
        self.keep_old(name, None);
        self.update(name, |node| node.phase_mut().on_waiting());
    }

    /// The previous configuration serves on.
    fn keep_old(&mut self, name: &Arc<str>, deleted: Option<WatchError>) {
        self.show_old(name, deleted);
        self.release_sources(name);
    }

    /// Shows the previous configuration with its latest endpoints.
    fn show_old(&mut self, name: &Arc<str>, deleted: Option<WatchError>) {
        let retained = self.update(name, TreeNode::retain_old).flatten();
        if let Some(old) = retained
            && let Some(source) = Source::of(&old.config)
            && let Some(seen) = self.sources.seen(&source)
        {
            let (warning, node_id) = (deleted.or(old.warning), &self.settings.node_id);
            let entry = ClusterEntry::with_endpoints(name, &old.config, warning, seen, node_id);
            let removed = self.nodes.get(name).and_then(|node| node.removed_endpoints(&source, seen));
            self.set_shown(name, entry.or_endpoints(removed));
        }
    }

    /// Links all aggregates, and watches the clusters that they lead to.
    fn link(&mut self, now: Instant) {
        let latest = Topology::new(&self.nodes).latest_descendants();
        for name in &latest.all {
            self.require(name);
        }
        self.work += latest.visits as u64;
        let linker = Linker {
            topology: Topology::new(&self.nodes),
            before: &self.descendants,
            leafless: &self.leafless,
            grace: self.settings.grace,
            node_id: &self.settings.node_id,
        };
        let links = linker.link(latest, now);
        self.leafless = links.leafless;
        for aggregate in links.aggregates {
            let name = &aggregate.name;
            if aggregate.is_linked {
                self.update(name, TreeNode::forget_old);
            }
            if let Some(entry) = aggregate.entry {
                self.set_shown(name, entry);
            }
            if aggregate.is_linked {
                self.release_sources(name);
            }
            let is_legal = self.update(name, |node| node.phase_mut().on_linked(aggregate.is_linked));
            check(is_legal == Some(true), "only aggregates are linked");
        }
        let before = mem::replace(&mut self.descendants, links.descendants);
        self.pending.orphaned.extend(before.not_in(&self.descendants));
        self.pending.touched.extend(before.shown.symmetric_difference(&self.descendants.shown).cloned());
    }

    /// Forgets the previous configurations of aggregates out of the tree: the clusters below these are released, and would be
    /// missing if a call held the aggregate, or another one above it.
    fn forget_old_aggregates(&mut self) {
        let usage = self.usage();
        let is_stale = |name: &Arc<str>| {
            !usage.is_in_tree(name) && self.nodes.get(name).is_some_and(TreeNode::is_old_aggregate)
        };
        let stale: Vec<_> =
            self.nodes.index().aggregates().iter().filter(|name| is_stale(name)).cloned().collect();
        for name in stale {
            self.update(&name, TreeNode::forget_shown);
            self.pending.dirty.insert(name);
        }
    }

    /// What the clusters are needed for.
    pub(super) fn usage(&self) -> Usage<'_> {
        Usage { nodes: &self.nodes, descendants: &self.descendants, routed: &self.routed }
    }

    /// Why a cluster that was deleted stays in use, if it does.
    fn retention(&self, name: &Arc<str>, now: Instant) -> Option<Retention> {
        self.usage().retention(name, self.settings.grace, now)
    }

    fn is_aggregate(&self, name: &Arc<str>) -> bool {
        self.nodes.index().aggregates().contains(name)
    }

    /// Watches a cluster if it is not watched yet.
    fn require(&mut self, name: &Arc<str>) {
        if self.nodes.add(name) {
            self.orders.push(Order::Watch(WatchKey::Cluster(name.clone())));
        }
    }

    /// Changes an existing node.
    fn update<R>(&mut self, name: &Arc<str>, change: impl FnOnce(&mut TreeNode) -> R) -> Option<R> {
        let result = self.nodes.update(name, change);
        check(result.is_some(), "only a cluster of the graph changes");
        result
    }

    /// Removes a cluster that nothing needs.
    fn drop_if_orphaned(&mut self, name: &Arc<str>) {
        if self.usage().is_needed(name) {
            return;
        }
        // Routes and an aggregate may have left it at the same time.
        let Some(node) = self.nodes.remove(name) else { return };
        for source in node.sources() {
            self.leave_source(name, source);
        }
        self.pending.unlinked |= node.traits().aggregate;
        self.pending.touched.insert(name.clone());
        self.orders.push(Order::Unwatch(WatchKey::Cluster(name.clone())));
    }

    /// Makes a cluster a user of a source of endpoints.
    fn watch_source(&mut self, name: &Arc<str>, source: &Source) {
        let joined = self.sources.join(source, name);
        if joined == Joined::First {
            self.orders.push(Order::Watch(source.into()));
        }
        if joined != Joined::Before {
            self.update(name, |node| node.add_source(source));
        }
    }

    /// Leaves the sources that neither the latest nor the old configuration of a cluster has.
    fn release_sources(&mut self, name: &Arc<str>) {
        for source in self.update(name, TreeNode::take_unused_sources).unwrap_or_default() {
            self.leave_source(name, &source);
        }
    }

    /// Ends the use of a source.
    fn leave_source(&mut self, name: &Arc<str>, source: &Source) {
        match self.sources.leave(source, name) {
            Left::InUse => {}
            Left::Unused => self.orders.push(Order::Unwatch(source.into())),
            Left::NotAUser => invariant::broken("a cluster leaves sources that it uses"),
        }
    }
}

/// Checks an invariant of two collections that are kept in step.
fn check(holds: bool, invariant: &'static str) {
    if !holds {
        invariant::broken(invariant);
    }
}

#[cfg(test)]
mod check;
