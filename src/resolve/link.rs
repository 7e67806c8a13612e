use std::{collections::BTreeSet, sync::Arc};

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
    pub(super) fn link(&mut self) {
        let latest = self.follow(Node::as_child, |_| true);
        let next = self.follow(Node::as_child, |roots| roots.next);
        let in_tree = |roots: Roots| roots.current || roots.held;
        let deep = self.follow(Node::as_child, in_tree).too_deep;
        for name in &latest.below {
            // What was not there is watched from now on.
            self.node(name);
        }
        let aggregates: Vec<_> = self.aggregates.iter().cloned().collect();
        let (ready, waiting): (Vec<_>, Vec<_>) =
            aggregates.into_iter().partition(|name| self.is_linked(name, &deep));
        for name in &ready {
            let node = self.nodes.get(name);
            let latest =
                node.and_then(|node| Some((node.config()?.clone(), node.latest.as_ref()?.error().cloned())));
            if let Some(latest) = latest {
                let entry = self.aggregate(name, latest, (Node::as_child, &deep));
                self.show(name, entry);
            }
        }
        let shown = self.follow(Node::as_shown_child, in_tree);
        for name in &waiting {
            let node = self.nodes.get(name);
            let was = node.filter(|node| matches!(node.as_shown_child(), Child::Aggregate(_)));
            let was = was.and_then(|node| node.shown.as_ref());
            if let Some((Some(config), warning)) = was.map(|was| (was.config.clone(), was.warning.clone())) {
                let entry = self.aggregate(name, (config, warning), (Node::as_shown_child, &shown.too_deep));
                self.set_shown(name, entry);
            }
        }
        let mut needed = latest.below.clone();
        needed.extend(shown.below.iter().cloned());
        let loose: Vec<_> = self.below.difference(&needed).cloned().collect();
        loose.into_iter().for_each(|name| self.may_be_loose(name));
        let turned: Vec<_> = self.below_shown.symmetric_difference(&shown.below).cloned().collect();
        self.touched.extend(turned);
        (self.below, self.below_latest) = (needed, latest.below);
        (self.below_next, self.below_shown) = (next.below, shown.below);
    }

    /// What the aggregates at the top lead to.
    fn follow(&self, look: Look, top: impl Fn(Roots) -> bool) -> Reach {
        let mut reach = Reach::default();
        for name in &self.aggregates {
            let is_top = |node: &&Node| node.roots.any() && top(node.roots);
            if self.nodes.get(name).filter(is_top).is_some() {
                let flat = self.flatten(name, look);
                reach.below.extend(flat.reached.iter().skip(1).map(|name| (*name).clone()));
                reach.too_deep.extend(flat.too_deep.into_iter().flatten().cloned());
            }
        }
        reach
    }

    fn flatten<'a>(&'a self, name: &'a Arc<str>, look: Look) -> Flat<'a> {
        flatten(name, |name| self.nodes.get(name).map_or(Child::Nothing, look))
    }

    /// Whether an aggregate can be shown by its latest configuration: all that it leads to is ready. While it serves, what
    /// is missing only because the server cannot be reached is waited for. In a chain that is `too_deep` nobody asks for
    /// what is at its end.
    fn is_linked(&self, name: &Arc<str>, too_deep: &BTreeSet<Arc<str>>) -> bool {
        let Some(node) = self.nodes.get(name) else { return false };
        let serving = node.serving().is_some();
        let is_ready = |below: &Arc<str>| match self.nodes.get(below) {
            Some(node) => node.ready && !(serving && node.is_cut_off() && !self.is_in_tree(below)),
            None => too_deep.contains(name),
        };
        matches!(node.as_child(), Child::Aggregate(_))
            && self.flatten(name, Node::as_child).reached.into_iter().all(is_ready)
    }

    /// What is to be shown of an aggregate, by its configuration and those below it.
    fn aggregate(
        &mut self,
        name: &Arc<str>,
        (config, warning): (Arc<Cluster>, Option<WatchError>),
        (look, too_deep): (Look, &BTreeSet<Arc<str>>),
    ) -> ClusterEntry {
        let flat = self.flatten(name, look);
        let leaves: Vec<_> = flat.leaves.iter().map(|name| (*name).clone()).collect();
        let problem = if flat.too_deep.is_some() || too_deep.contains(name) {
            Some(format!("aggregate cluster graph exceeds max depth ({MAX_DEPTH})"))
        } else {
            leaves.is_empty().then(|| "aggregate cluster graph has no leaf clusters".to_owned())
        };
        let reached = flat.reached.len();
        self.count(reached);
        let Some(problem) = problem else {
            return ClusterEntry::with_leaves(name, &config, warning, leaves);
        };
        let about = Subject { type_url: Cluster::TYPE_URL, name: name.clone(), node: self.node_id.clone() };
        let error = WatchError::new(Code::FailedPrecondition, Blame::Peer, about, problem);
        ClusterEntry::failed(name, Some(config), error)
    }
}

/// Which configuration of a cluster counts.
type Look = for<'a> fn(&'a Node) -> Child<'a>;

/// What aggregates lead to.
#[derive(Debug, Default)]
struct Reach {
    below: BTreeSet<Arc<str>>,
    /// The aggregates that stand in a chain which is too long.
    too_deep: BTreeSet<Arc<str>>,
}
