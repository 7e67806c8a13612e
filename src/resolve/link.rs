use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use super::{
    aggregate::{Child, Flat, MAX_DEPTH, flatten},
    graph::Graph,
    node::{Node, Roots},
    snapshot::ClusterEntry,
};
use crate::{
    error::{Blame, Code, Subject, WatchError},
    resource::{Cluster, Resource},
};

impl Graph {
    /// Follows all aggregates anew: what is below them is needed, and those of which everything below is ready are shown
    /// as they now are (A37-4, A74-5). The others are shown as they were, with what is left of that.
    pub(super) fn link(&mut self, now: Instant) {
        let latest = self.follow(By::Latest, |_| true);
        let mut next = self.follow(By::Latest, |roots| roots.next);
        for name in &latest.below {
            // What was not there is watched from now on.
            self.node(name);
        }
        if !next.too_deep.is_empty() {
            // What is too deep from the top is waited for by the aggregates above it, if it is there for something else.
            let waits: Vec<_> = next.below.iter().filter(|name| self.aggregates.contains(*name)).collect();
            let awaited = waits.into_iter().flat_map(|name| self.flatten(name, By::Latest).reached);
            let awaited: Vec<_> = awaited.filter(|name| latest.below.contains(*name)).cloned().collect();
            next.below.extend(awaited);
        }
        self.count(latest.visits);
        let (linked, leafless) = self.linked(&latest.below, now);
        self.leafless = leafless;
        let shown = self.follow(By::Shown(&linked), |roots| roots.current || roots.held);
        let current = self.follow(By::Shown(&linked), |roots| roots.current);
        let aggregates: Vec<_> = self.aggregates.iter().cloned().collect();
        for name in &aggregates {
            self.show_aggregate(name, &linked, &shown);
            self.set_linked(name, linked.contains(name) || self.is_overdue(name));
        }
        let mut needed = latest.below.clone();
        needed.extend(shown.below.iter().cloned());
        let loose: Vec<_> = self.below.difference(&needed).cloned().collect();
        loose.into_iter().for_each(|name| self.may_be_loose(name));
        let turned: Vec<_> = self.below_shown.symmetric_difference(&shown.below).cloned().collect();
        self.touched.extend(turned);
        (self.below, self.below_latest) = (needed, latest.below);
        (self.below_next, self.below_shown, self.below_current) = (next.below, shown.below, current.below);
    }

    /// What the aggregates at the top lead to.
    fn follow(&self, by: By<'_>, top: impl Fn(Roots) -> bool) -> Reach {
        let mut reach = Reach::default();
        for name in &self.aggregates {
            let is_top = |node: &&Node| node.roots.any() && top(node.roots);
            if self.nodes.get(name).filter(is_top).is_some() {
                let flat = self.flatten(name, by);
                reach.visits += flat.reached.len();
                reach.below.extend(flat.reached.iter().skip(1).map(|name| (*name).clone()));
                reach.too_deep.extend(flat.too_deep.into_iter().flatten().cloned());
            }
        }
        reach
    }

    /// Whether nothing can be sent to a cluster because something is missing, by what is known of it.
    pub(super) fn is_void(&self, name: &Arc<str>) -> bool {
        let Some(node) = self.nodes.get(name) else { return false };
        if !self.aggregates.contains(name) {
            return node.lacks_endpoints();
        }
        let flat = self.flatten(name, By::Latest);
        let lacks = |leaf: &&Arc<str>| self.nodes.get(*leaf).is_none_or(Node::lacks_endpoints);
        flat.too_deep.is_none() && flat.leaves.iter().all(lacks)
    }

    fn flatten<'a>(&'a self, name: &'a Arc<str>, by: By<'_>) -> Flat<'a> {
        flatten(name, |name| match (self.nodes.get(name), by) {
            (None, _) => Child::Nothing,
            (Some(node), By::Latest) => node.as_child(),
            (Some(node), By::Shown(linked)) if linked.contains(name) => node.as_child(),
            (Some(node), By::Shown(_)) => node.as_shown_child(),
        })
    }

    /// The aggregates that can be shown by their latest configurations: all that they lead to is ready. While one serves,
    /// what is missing only because the server cannot be reached is waited for. Those that would lose all their leaves, and
    /// those that the `latest` of others do not lead to any more, stay as they were.
    fn linked(&self, latest: &BTreeSet<Arc<str>>, now: Instant) -> (BTreeSet<Arc<str>>, Leafless) {
        let is_aggregate = |name: &Arc<str>| {
            self.nodes.get(name).is_some_and(|node| matches!(node.as_child(), Child::Aggregate(_)))
        };
        let is_wanted = |name: &Arc<str>| {
            latest.contains(name) || self.nodes.get(name).is_some_and(|node| node.roots.any())
        };
        // What nothing above leads to is so deep that nobody waits for it, even if it is there for something else.
        let is_asked = |below: &Arc<str>| latest.contains(below);
        let mut linked = BTreeMap::new();
        let mut leafless = Leafless::default();
        for name in self.aggregates.iter().filter(|name| is_aggregate(name) && is_wanted(name)) {
            let serving = self.nodes.get(name).is_some_and(|node| node.serving().is_some());
            let before = self.flatten(name, By::Shown(&BTreeSet::new()));
            let is_ready = |below: &&Arc<str>| {
                let waits = serving && !before.reached.contains(below);
                let is_ready = |node: &Node| node.ready && !(waits && node.is_cut_off());
                !is_asked(below) || self.nodes.get(*below).is_none_or(is_ready)
            };
            let after = self.flatten(name, By::Latest);
            if !after.reached.iter().all(is_ready) {
                continue;
            }
            let has_endpoints = |leaf: &&Arc<str>| self.nodes.get(*leaf).is_some_and(Node::has_endpoints);
            let is_cut_off = |leaf: &&Arc<str>| self.nodes.get(*leaf).is_some_and(Node::is_cut_off);
            let is_starved = !after.leaves.iter().any(has_endpoints) && after.leaves.iter().any(is_cut_off);
            if serving && is_starved && before.leaves.iter().any(has_endpoints) {
                continue;
            }
            let loses_leaves = after.leaves.is_empty() && !before.leaves.is_empty();
            if serving && loses_leaves && self.is_in_tree(name) {
                let until = self.leafless.until.get(name).copied().unwrap_or(now + self.grace);
                if leafless.stays(name, until, now) {
                    continue;
                }
            }
            linked.insert(name, after.reached);
        }
        // Where a graph is too deep, one below may lead to more than is seen from above.
        loop {
            let is_linked =
                |below: &&Arc<str>| linked.contains_key(*below) || !is_aggregate(below) || !is_asked(below);
            let blocked = linked.iter().find(|(_, reached)| !reached.iter().all(is_linked));
            let Some(name) = blocked.map(|(name, _)| *name) else { break };
            linked.remove(name);
        }
        (linked.into_keys().cloned().collect(), leafless)
    }

    /// Shows an aggregate as it now is if it is linked, else as it was.
    fn show_aggregate(&mut self, name: &Arc<str>, linked: &BTreeSet<Arc<str>>, tree: &Reach) {
        let Some(node) = self.nodes.get(name) else { return };
        let by = (By::Shown(linked), tree);
        if let (true, Some(latest), Some(config)) = (linked.contains(name), &node.latest, node.config()) {
            let entry = self.aggregate(name, (config, latest.error()), by);
            self.show(name, entry);
        } else if let (Child::Aggregate(_), Some(shown)) = (node.as_shown_child(), &node.shown)
            && let Some(config) = &shown.config
        {
            let entry = self.aggregate(name, (config, shown.warning.as_ref()), by);
            self.set_shown(name, entry);
        }
    }

    /// What is to be shown of an aggregate, by its configuration and those below it.
    fn aggregate(
        &self,
        name: &Arc<str>,
        (config, warning): (&Arc<Cluster>, Option<&WatchError>),
        (by, tree): (By<'_>, &Reach),
    ) -> ClusterEntry {
        let flat = self.flatten(name, by);
        let is_root = |node: &Node| node.roots.current || node.roots.held;
        let is_shown =
            |name: &Arc<str>| tree.below.contains(name) || self.nodes.get(name).is_some_and(is_root);
        // What is too deep from the top is not shown, though it may be there for something else.
        let leaves = flat.leaves.into_iter().filter(|leaf| is_shown(leaf) || !is_shown(name));
        let leaves: Vec<_> = leaves.cloned().collect();
        let problem = if flat.too_deep.is_some() || tree.too_deep.contains(name) {
            format!("aggregate cluster graph exceeds max depth ({MAX_DEPTH})")
        } else if leaves.is_empty() {
            "aggregate cluster graph has no leaf clusters".to_owned()
        } else {
            return ClusterEntry::with_leaves(name, config, warning.cloned(), leaves);
        };
        let about = Subject { type_url: Cluster::TYPE_URL, name: name.clone(), node: self.node_id.clone() };
        let error = WatchError::new(Code::FailedPrecondition, Blame::Peer, about, problem);
        ClusterEntry::failed(name, Some(config.clone()), error)
    }
}

/// The aggregates in use that have leaves as they are shown, and would have none by their latest configurations. While some
/// clusters of a change are new and others still old, these may be closed to a ring, or lead to what was absent before.
#[derive(Debug, Default)]
pub(super) struct Leafless {
    /// Until when each stays as it is.
    until: BTreeMap<Arc<str>, Instant>,
    /// When the first of them changes.
    pub(super) due: Option<Instant>,
}

impl Leafless {
    /// Notes one, and says whether it stays as it is for now.
    fn stays(&mut self, name: &Arc<str>, until: Instant, now: Instant) -> bool {
        self.until.insert(name.clone(), until);
        let stays = now < until;
        if stays {
            self.due = Some(self.due.map_or(until, |due| due.min(until)));
        }
        stays
    }
}

/// Which configurations of clusters count.
#[derive(Debug, Clone, Copy)]
enum By<'a> {
    Latest,
    /// Those that are shown, but the latest of these.
    Shown(&'a BTreeSet<Arc<str>>),
}

/// What aggregates lead to.
#[derive(Debug, Default)]
struct Reach {
    /// How many clusters were looked at.
    visits: usize,
    below: BTreeSet<Arc<str>>,
    /// The aggregates that stand in a chain which is too long.
    too_deep: BTreeSet<Arc<str>>,
}
