//! The decision which aggregates are shown by their latest configurations, and which by previous ones.
//!
//! Linking goes through all aggregates, since each depends on those below it; the graph does it only when one of them, or
//! something below one, has changed in a way that matters. Nothing is stored here between two links but the graces of
//! `Leafless`: the configuration that an aggregate is shown by is its entry.
//!
//! An aggregate turns to its latest configuration as a whole and in one step. Until then its leaves are those of the
//! configuration before, as far as they still exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    aggregate::{Child, Flat, MAX_DEPTH, flatten},
    cluster_entry::ClusterEntry,
    descendants::Descendants,
    node::{Roots, TreeNode},
    nodes::Nodes,
};
use crate::{
    error::{Blame, Code, Subject, WatchError},
    resource::{Cluster, Resource},
};

/// The aggregates of a graph, and the clusters below them.
///
/// Read-only: the graph applies what a link has decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Topology<'a> {
    /// The clusters.
    nodes: &'a Nodes,
}

/// Links all aggregates: those of which everything below is ready are shown by their latest configurations (A37-4, A74-5),
/// the others by the configurations that they were shown by, with the clusters below that are left.
#[derive(Debug)]
pub(super) struct Linker<'a> {
    /// The clusters.
    pub(super) topology: Topology<'a>,
    /// The clusters below aggregates as they were last linked. An aggregate that was in the tree then has leaves to lose.
    pub(super) before: &'a Descendants,
    /// Aggregates that would lose their last leaf, and until when they keep it.
    pub(super) leafless: &'a Leafless,
    /// The time for which an aggregate in use keeps its last leaves.
    pub(super) grace: Duration,
    /// The id of the node, for errors.
    pub(super) node_id: &'a Arc<str>,
}

/// The clusters below the aggregates by the latest configurations.
#[derive(Debug)]
pub(super) struct LatestDescendants {
    /// Of all aggregates in use, by their latest configurations, within the depth limit: nothing waits for a cluster that its
    /// routes cannot reach.
    pub(super) all: BTreeSet<Arc<str>>,
    /// Of the aggregates alone that the next routes lead to.
    pub(super) next: BTreeSet<Arc<str>>,
    /// The number of visited clusters, for tests of costs.
    pub(super) visits: usize,
}

/// The aggregates after they were linked.
#[derive(Debug)]
pub(super) struct Links {
    /// The aggregates with their entries.
    pub(super) aggregates: Vec<LinkedAggregate>,
    /// The clusters below them.
    pub(super) descendants: Descendants,
    /// The aggregates that would lose their last leaf.
    pub(super) leafless: Leafless,
}

/// An aggregate after it was linked.
#[derive(Debug)]
pub(super) struct LinkedAggregate {
    /// The name.
    pub(super) name: Arc<str>,
    /// Whether the aggregate is shown by its latest configuration. Its phase follows from that, and the sources of its previous
    /// configuration are released.
    pub(super) is_linked: bool,
    /// The new entry, unless no configuration of an aggregate is shown.
    pub(super) entry: Option<ClusterEntry>,
}

/// The aggregates in use that have leaves as they are shown, and would have none, or none with endpoints, or others than the first
/// one, by their latest configurations. While some clusters of a change are new and others still old, these may be closed to a ring, or lead to
/// what was absent before.
#[derive(Debug, Default)]
pub(super) struct Leafless {
    /// The end of the grace of each. It is rebuilt by each link, which keeps the ends that are in it already: a grace is not
    /// prolonged by other changes.
    until: BTreeMap<Arc<str>, Instant>,
    /// The earliest end of a grace. The graph links again then, without a change.
    due: Option<Instant>,
}

/// The configurations of clusters that count.
///
/// An aggregate below another one may be linked while that is not, so that both kinds of configurations can meet in one
/// traversal.
#[derive(Debug, Clone, Copy)]
enum By<'a> {
    /// The latest ones.
    Latest,
    /// The shown ones, but the latest of these aggregates.
    Shown(&'a BTreeSet<Arc<str>>),
}

/// The configuration of an aggregate that it is shown by.
#[derive(Debug, Clone, Copy)]
struct AggregateConfig<'a> {
    /// The aggregate.
    config: &'a Arc<Cluster>,
    /// Why it may be stale.
    warning: Option<&'a WatchError>,
}

/// The clusters below some aggregates.
#[derive(Debug, Default)]
struct Reach {
    /// The number of visited clusters.
    visits: usize,
    /// The clusters below the roots.
    below: BTreeSet<Arc<str>>,
    /// The aggregates in a chain that is too long.
    too_deep: BTreeSet<Arc<str>>,
}

impl<'a> Topology<'a> {
    /// The topology of some clusters.
    pub(super) fn new(nodes: &'a Nodes) -> Self {
        Self { nodes }
    }

    /// The clusters that the aggregates lead to by their latest configurations: they are watched.
    pub(super) fn latest_descendants(self) -> LatestDescendants {
        let all = self.reach(By::Latest, |_| true);
        let mut next = self.reach(By::Latest, |roots| roots.next);
        if !next.too_deep.is_empty() {
            // Aggregates above a cluster that is too deep from the top wait for it if it is in the graph for another reason.
            let aggregates = next.below.iter().filter(|name| self.is_aggregate(name));
            let awaited = aggregates.flat_map(|name| self.flatten(name, By::Latest).reached);
            let awaited: Vec<_> = awaited.filter(|name| all.below.contains(*name)).cloned().collect();
            next.below.extend(awaited);
        }
        LatestDescendants { all: all.below, next: next.below, visits: all.visits }
    }

    /// Whether nothing can be sent to a cluster because a resource is missing, by its state.
    ///
    /// The next routes wait for such a cluster for a while. One that is too deep is an error that waiting does not mend.
    pub(super) fn is_void(self, name: &Arc<str>) -> bool {
        if !self.is_aggregate(name) {
            return self.nodes.get(name).is_some_and(TreeNode::lacks_endpoints);
        }
        let flat = self.flatten(name, By::Latest);
        flat.too_deep.is_none() && self.are_lacking(&flat)
    }

    /// Whether all leaves have no endpoints because there are none, or none were received.
    fn are_lacking(self, flat: &Flat<'_>) -> bool {
        let lacks = |leaf: &&Arc<str>| self.nodes.get(leaf).is_none_or(TreeNode::lacks_endpoints);
        flat.leaves.iter().all(lacks)
    }

    /// Whether a cluster is an aggregate.
    fn is_aggregate(self, name: &Arc<str>) -> bool {
        self.nodes.index().aggregates().contains(name)
    }

    /// The clusters below the aggregates at the top.
    ///
    /// Aggregates without roots are not followed from: they are found below others, or lead nowhere in use.
    fn reach(self, by: By<'_>, top: impl Fn(Roots) -> bool) -> Reach {
        let mut reach = Reach::default();
        for name in self.nodes.index().aggregates() {
            let is_top = |node: &TreeNode| node.roots().any() && top(node.roots());
            if self.nodes.get(name).is_some_and(is_top) {
                let flat = self.flatten(name, by);
                reach.visits += flat.reached.len();
                reach.below.extend(flat.reached.iter().skip(1).map(|name| (*name).clone()));
                reach.too_deep.extend(flat.too_deep.into_iter().flatten().cloned());
            }
        }
        reach
    }

    /// The leaves below a cluster, by some configurations of the aggregates.
    fn flatten(self, name: &'a Arc<str>, by: By<'_>) -> Flat<'a> {
        flatten(name, |name| match (self.nodes.get(name), by) {
            (None, _) => Child::Nothing,
            (Some(node), By::Latest) => node.latest_as_child(),
            (Some(node), By::Shown(linked)) if linked.contains(name) => node.latest_as_child(),
            (Some(node), By::Shown(_)) => node.shown_as_child(),
        })
    }
}

impl<'a> Linker<'a> {
    /// Decides on all aggregates.
    pub(super) fn link(&self, latest: LatestDescendants, now: Instant) -> Links {
        let (linked, leafless) = self.linked(&latest.all, now);
        let shown = self.topology.reach(By::Shown(&linked), Roots::in_tree);
        let current = self.topology.reach(By::Shown(&linked), |roots| roots.current);
        let previous = self.previous(&linked, &latest.all, &shown.below);
        let aggregates = self.topology.nodes.index().aggregates().iter().map(|name| LinkedAggregate {
            name: name.clone(),
            is_linked: linked.contains(name),
            entry: self.entry(name, &linked, &shown),
        });
        Links {
            aggregates: aggregates.collect(),
            descendants: Descendants {
                latest: latest.all,
                next: latest.next,
                shown: shown.below,
                current: current.below,
                previous,
            },
            leafless,
        }
    }

    /// The clusters below the shown aggregates that wait for unknown clusters of their latest configurations.
    fn previous(
        &self,
        linked: &BTreeSet<Arc<str>>,
        latest: &BTreeSet<Arc<str>>,
        shown: &BTreeSet<Arc<str>>,
    ) -> BTreeSet<Arc<str>> {
        let is_waiting = |below: &&Arc<str>| {
            latest.contains(*below) && self.node(below).is_some_and(|node| node.phase().is_waiting())
        };
        let waits = |name: &&Arc<str>| {
            let is_in_tree =
                shown.contains(*name) || self.node(name).is_some_and(|node| node.roots().in_tree());
            let waits = || self.topology.flatten(name, By::Latest).reached.iter().any(is_waiting);
            is_in_tree && !linked.contains(*name) && waits()
        };
        let aggregates = self.topology.nodes.index().aggregates().iter().filter(waits);
        let below = aggregates
            .flat_map(|name| self.topology.flatten(name, By::Shown(linked)).reached.into_iter().skip(1));
        below.cloned().collect()
    }

    /// The aggregates that can be shown by their latest configurations: everything below them is ready. Those that the
    /// `latest` configurations of others do not lead to any more stay as they were.
    ///
    /// Complexity: a traversal for each aggregate, and then one pass for each that is blocked, of which there are none but in
    /// graphs that are too deep.
    fn linked(&self, latest: &BTreeSet<Arc<str>>, now: Instant) -> (BTreeSet<Arc<str>>, Leafless) {
        let mut linked = BTreeMap::new();
        let mut leafless = Leafless::default();
        for name in self.topology.nodes.index().aggregates() {
            // It outlives its deletion if its latest configuration is no aggregate's.
            let is_needed = latest.contains(name) || self.node(name).is_some_and(|node| node.roots().any());
            if !is_needed || !self.is_latest_aggregate(name) {
                continue;
            }
            let after = self.topology.flatten(name, By::Latest);
            if self.can_serve(name, &after, latest) && !self.keeps_leaves(name, &after, &mut leafless, now) {
                linked.insert(name, after.reached);
            }
        }
        // Where a graph is too deep, one below may lead to more clusters than are seen from above.
        loop {
            let is_linked = |below: &&Arc<str>| {
                linked.contains_key(*below) || !self.is_latest_aggregate(below) || !latest.contains(*below)
            };
            let blocked = linked.iter().find(|(_, reached)| !reached.iter().all(is_linked));
            let Some(name) = blocked.map(|(name, _)| *name) else { break };
            linked.remove(name);
        }
        (linked.into_keys().cloned().collect(), leafless)
    }

    /// Whether everything below an aggregate is ready. While it serves, it waits for clusters that are missing only
    /// because the server cannot be reached.
    ///
    /// Before it serves there is nothing to lose: the errors of its clusters are shown at once, as A74-5 has it.
    fn can_serve(&self, name: &'a Arc<str>, after: &Flat<'_>, latest: &BTreeSet<Arc<str>>) -> bool {
        let serving = self.is_serving(name);
        let before = self.shown_before(name);
        let is_ready = |below: &&Arc<str>| {
            let waits = serving && !before.reached.contains(below);
            let is_ready = |node: &TreeNode| node.phase().is_known() && !(waits && node.is_unreachable());
            // A cluster that nothing above leads to is too deep to be waited for, even if it is in the graph for another reason.
            !latest.contains(*below) || self.node(below).is_none_or(is_ready)
        };
        if !after.reached.iter().all(is_ready) {
            return false;
        }
        let has_endpoints = |leaf: &&Arc<str>| self.node(leaf).is_some_and(TreeNode::has_endpoints);
        let is_unreachable = |leaf: &&Arc<str>| self.node(leaf).is_some_and(TreeNode::is_unreachable);
        // An outage of the server must not take endpoints that serve, even if all clusters are known.
        let is_starved = !after.leaves.iter().any(has_endpoints) && after.leaves.iter().any(is_unreachable);
        !(serving && is_starved && before.leaves.iter().any(has_endpoints))
    }

    /// Whether an aggregate in use would lose all its leaves, or all endpoints of these, or the leaf that serves in favour of a less
    /// preferred one, and stays as it was for the grace period: the absence of the endpoints may be older than the update that
    /// leads to them.
    ///
    /// Found by simulations: while some clusters of a change are new and others still old, chains may close to a ring, or lead
    /// to a cluster whose absence is older than the change.
    fn keeps_leaves(
        &self,
        name: &'a Arc<str>,
        after: &Flat<'_>,
        leafless: &mut Leafless,
        now: Instant,
    ) -> bool {
        let before = self.shown_before(name);
        let has_endpoints = |leaf: &&Arc<str>| self.node(leaf).is_some_and(TreeNode::has_endpoints);
        let loses_leaves = after.leaves.is_empty() && !before.leaves.is_empty();
        let loses_endpoints = before.leaves.iter().any(has_endpoints) && self.topology.are_lacking(after);
        let serving = before.leaves.first().copied().filter(has_endpoints);
        let is_lacking = |first: &&Arc<str>| self.node(first).is_some_and(TreeNode::lacks_endpoints);
        // Calls would move to a less preferred leaf at once, and back when the endpoints of the first one arrive.
        let loses_first = serving.is_some()
            && after.leaves.first().is_some_and(is_lacking)
            && after.leaves.iter().copied().find(has_endpoints) != serving;
        let is_in_tree =
            self.before.shown.contains(name) || self.node(name).is_some_and(|node| node.roots().in_tree());
        if !(self.is_serving(name) && (loses_leaves || loses_endpoints || loses_first) && is_in_tree) {
            return false;
        }
        // The grace begins with the first link that would lose them.
        let until = self.leafless.until.get(name).copied().unwrap_or(now + self.grace);
        leafless.stays(name, until, now)
    }

    /// The entry of an aggregate by its latest configuration if it is linked, else by the one that it was shown by.
    fn entry(&self, name: &'a Arc<str>, linked: &BTreeSet<Arc<str>>, tree: &Reach) -> Option<ClusterEntry> {
        let node = self.node(name)?;
        let by = if linked.contains(name) {
            AggregateConfig { config: node.config()?, warning: node.latest()?.error() }
        } else if let Child::Aggregate(_) = node.shown_as_child() {
            let shown = node.shown()?;
            AggregateConfig { config: shown.config.as_ref()?, warning: shown.warning.as_ref() }
        } else {
            return None;
        };
        let flat = self.topology.flatten(name, By::Shown(linked));
        Some(self.entry_by(name, by, flat, tree))
    }

    /// The entry of an aggregate by one of its configurations.
    ///
    /// The errors have the words of gRPC's clients, which operators search for.
    fn entry_by(
        &self,
        name: &Arc<str>,
        by: AggregateConfig<'_>,
        flat: Flat<'_>,
        tree: &Reach,
    ) -> ClusterEntry {
        let is_shown = |name: &Arc<str>| {
            tree.below.contains(name) || self.node(name).is_some_and(|node| node.roots().in_tree())
        };
        // A cluster that is too deep from the top is not shown, though it may be in the graph for another reason.
        let leaves = flat.leaves.into_iter().filter(|leaf| is_shown(leaf) || !is_shown(name));
        let leaves: Vec<_> = leaves.cloned().collect();
        // Each aggregate of the chain has the error, and not the topmost alone.
        let reason = if flat.too_deep.is_some() || tree.too_deep.contains(name) {
            format!("aggregate cluster graph exceeds max depth ({MAX_DEPTH})")
        } else if leaves.is_empty() {
            "aggregate cluster graph has no leaf clusters".to_owned()
        } else {
            return ClusterEntry::with_leaves(name, by.config, by.warning.cloned(), leaves);
        };
        let about = Subject { type_url: Cluster::TYPE_URL, name: name.clone(), node: self.node_id.clone() };
        let error = WatchError::new(Code::FailedPrecondition, Blame::Peer, about, reason);
        ClusterEntry::failed(name, Some(by.config.clone()), error)
    }

    /// The cluster of a name.
    fn node(&self, name: &str) -> Option<&'a TreeNode> {
        self.topology.nodes.get(name)
    }

    /// Whether a cluster has a configuration that requests can be sent by. An aggregate in use without a leaf has an error, and
    /// does not serve.
    fn is_serving(&self, name: &str) -> bool {
        self.node(name).is_some_and(|node| node.serving().is_some())
    }

    /// Whether a cluster is an aggregate by its latest configuration.
    fn is_latest_aggregate(&self, name: &str) -> bool {
        self.node(name).is_some_and(|node| matches!(node.latest_as_child(), Child::Aggregate(_)))
    }

    /// The leaves below an aggregate by the shown configurations.
    fn shown_before(&self, name: &'a Arc<str>) -> Flat<'a> {
        self.topology.flatten(name, By::Shown(&BTreeSet::new()))
    }
}

impl Leafless {
    /// The earliest end of a grace.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Records one, and returns whether it stays as it is for now.
    fn stays(&mut self, name: &Arc<str>, until: Instant, now: Instant) -> bool {
        self.until.insert(name.clone(), until);
        let stays = now < until;
        if stays {
            self.due = Some(self.due.map_or(until, |due| due.min(until)));
        }
        stays
    }
}
