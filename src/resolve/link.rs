use std::{collections::BTreeSet, sync::Arc};

use super::{
    aggregate::{Child, Flat, MAX_DEPTH, flatten},
    graph::Graph,
    node::Node,
    snapshot::ClusterEntry,
};
use crate::{
    error::{Blame, Code, Subject, WatchError},
    resource::{Cluster, Resource},
};

/// What the aggregates at the top lead to by their latest configurations.
#[derive(Debug, Default)]
struct Reach {
    below: BTreeSet<Arc<str>>,
    /// What those lead to that the next routes lead to.
    below_next: BTreeSet<Arc<str>>,
    /// The aggregates that stand in a chain which is too long.
    too_deep: BTreeSet<Arc<str>>,
}

impl Graph {
    /// Follows all aggregates anew: what is below them is needed, and those of which everything below is ready are shown
    /// as they now are (A37-4, A74-5).
    pub(super) fn link(&mut self) {
        let Reach { below, below_next, too_deep } = self.follow();
        for name in &below {
            // What was not there is watched from now on.
            self.node(name);
        }
        let aggregates: Vec<_> = self.aggregates.iter().cloned().collect();
        for name in &aggregates {
            self.show_aggregate(name, too_deep.contains(name));
        }
        let shown = self.follow_shown();
        let mut needed = below;
        needed.extend(shown.iter().cloned());
        let loose: Vec<_> = self.below.difference(&needed).cloned().collect();
        loose.into_iter().for_each(|name| self.may_be_loose(name));
        let turned: Vec<_> = self.below_shown.symmetric_difference(&shown).cloned().collect();
        self.touched.extend(turned);
        (self.below, self.below_next, self.below_shown) = (needed, below_next, shown);
    }

    fn follow(&self) -> Reach {
        let mut reach = Reach::default();
        for name in &self.aggregates {
            let Some(node) = self.nodes.get(name).filter(|node| node.roots.any()) else { continue };
            let flat = self.flatten(name);
            below_all(&mut reach.below, &flat);
            if node.roots.next {
                below_all(&mut reach.below_next, &flat);
            }
            reach.too_deep.extend(flat.too_deep.into_iter().flatten().cloned());
        }
        reach
    }

    /// What the aggregates of the tree lead to as they are shown.
    fn follow_shown(&self) -> BTreeSet<Arc<str>> {
        let mut below = BTreeSet::new();
        for name in &self.aggregates {
            let in_tree = |node: &&Node| node.roots.current || node.roots.held;
            if self.nodes.get(name).filter(in_tree).is_some() {
                let look = |name: &str| self.nodes.get(name).map_or(Child::Nothing, Node::as_shown_child);
                below_all(&mut below, &flatten(name, look));
            }
        }
        below
    }

    fn flatten<'a>(&'a self, name: &'a Arc<str>) -> Flat<'a> {
        flatten(name, |name| self.nodes.get(name).map_or(Child::Nothing, Node::as_child))
    }

    /// Shows an aggregate as it now is, if all that it leads to is ready.
    fn show_aggregate(&mut self, name: &Arc<str>, too_deep: bool) {
        let Some(node) = self.nodes.get(name) else { return };
        let (Some(latest), Some(config)) = (node.latest.clone(), node.config().cloned()) else { return };
        if !matches!(node.as_child(), Child::Aggregate(_)) {
            return;
        }
        let flat = self.flatten(name);
        let ready = |name: &&Arc<str>| self.nodes.get(*name).is_some_and(|node| node.ready);
        let too_deep = too_deep || flat.too_deep.is_some();
        if !too_deep && !flat.reached.iter().all(ready) {
            return;
        }
        let reached = flat.reached.len();
        let leaves: Vec<_> = flat.leaves.iter().map(|name| (*name).clone()).collect();
        self.count(reached);
        let problem = if too_deep {
            Some(format!("aggregate cluster graph exceeds max depth ({MAX_DEPTH})"))
        } else {
            leaves.is_empty().then(|| "aggregate cluster graph has no leaf clusters".to_owned())
        };
        let entry = match problem {
            Some(problem) => {
                let about =
                    Subject { type_url: Cluster::TYPE_URL, name: name.clone(), node: self.node_id.clone() };
                let error = WatchError::new(Code::FailedPrecondition, Blame::Peer, about, problem);
                ClusterEntry::failed(name, Some(config), error)
            }
            None => ClusterEntry::with_leaves(name, &config, latest.error().cloned(), leaves),
        };
        self.show(name, entry);
    }
}

fn below_all(below: &mut BTreeSet<Arc<str>>, flat: &Flat<'_>) {
    below.extend(flat.reached.iter().skip(1).map(|name| (*name).clone()));
}
