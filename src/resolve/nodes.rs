//! All clusters of a graph, with indexes of those that need attention.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::node::{Traits, TreeNode};

/// The clusters of a resolution by their names, with indexes of the traits that many of them are searched by.
///
/// A node changes in [`update`](Self::update) alone, so that its place in the indexes cannot differ from its state.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// The clusters by name. Never iterated over: its order would show.
    map: HashMap<Arc<str>, TreeNode>,
    /// Their names by their properties. Follows from the nodes.
    index: NodeIndex,
}

/// The names of the nodes that have a trait.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NodeIndex {
    /// The clusters that are not shown by their latest configurations. Usually a few, so that the question whether the next
    /// routes are ready does not go through ten thousand clusters.
    unready: BTreeSet<Arc<str>>,
    /// The clusters that cannot get any requests.
    unreachable: BTreeSet<Arc<str>>,
    /// The clusters that do not exist.
    missing: BTreeSet<Arc<str>>,
    /// The clusters that were deleted and stay in use. Searched for the next deadline.
    in_grace: BTreeSet<Arc<str>>,
    /// The aggregates. All of them are looked at by each link.
    aggregates: BTreeSet<Arc<str>>,
}

impl Nodes {
    /// The cluster of a name.
    pub(super) fn get(&self, name: &str) -> Option<&TreeNode> {
        self.map.get(name)
    }

    /// Whether there is a cluster of a name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// Adds a node if there is none of this name. Returns whether it did.
    ///
    /// A new node has traits, since it is not ready: the next routes wait for it.
    pub(super) fn add(&mut self, name: &Arc<str>) -> bool {
        if self.map.contains_key(name) {
            return false;
        }
        let node = TreeNode::default();
        self.index.on_change(name, Traits::default(), node.traits());
        self.map.insert(name.clone(), node);
        true
    }

    /// Changes a node; `None` if there is none.
    pub(super) fn update<R>(
        &mut self,
        name: &Arc<str>,
        change: impl FnOnce(&mut TreeNode) -> R,
    ) -> Option<R> {
        let node = self.map.get_mut(name)?;
        let before = node.traits();
        let result = change(node);
        self.index.on_change(name, before, node.traits());
        Some(result)
    }

    /// Removes a cluster.
    pub(super) fn remove(&mut self, name: &Arc<str>) -> Option<TreeNode> {
        let node = self.map.remove(name)?;
        self.index.on_change(name, node.traits(), Traits::default());
        Some(node)
    }

    /// The names of clusters by their properties.
    pub(super) fn index(&self) -> &NodeIndex {
        &self.index
    }

    /// Compares the indexes with the nodes.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut index = NodeIndex::default();
        for (name, node) in &self.map {
            index.on_change(name, Traits::default(), node.traits());
        }
        assert_eq!(self.index, index, "the indexes follow from the nodes");
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &TreeNode)> {
        self.map.iter()
    }
}

impl NodeIndex {
    /// The nodes for which the next routes wait.
    pub(super) fn unready(&self) -> &BTreeSet<Arc<str>> {
        &self.unready
    }

    /// The nodes without an entry because their server cannot be reached.
    pub(super) fn unreachable(&self) -> &BTreeSet<Arc<str>> {
        &self.unreachable
    }

    /// The nodes that are known not to exist.
    pub(super) fn missing(&self) -> &BTreeSet<Arc<str>> {
        &self.missing
    }

    /// The nodes that outlive their deletion, or that of their endpoints.
    pub(super) fn in_grace(&self) -> &BTreeSet<Arc<str>> {
        &self.in_grace
    }

    /// The nodes that were aggregates when they were last examined.
    pub(super) fn aggregates(&self) -> &BTreeSet<Arc<str>> {
        &self.aggregates
    }

    /// The only place where the indexes change.
    ///
    /// The cost is that of the traits that differ.
    fn on_change(&mut self, name: &Arc<str>, before: Traits, after: Traits) {
        let changes = [
            (&mut self.unready, before.unready, after.unready),
            (&mut self.unreachable, before.unreachable, after.unreachable),
            (&mut self.missing, before.missing, after.missing),
            (&mut self.in_grace, before.in_grace, after.in_grace),
            (&mut self.aggregates, before.aggregate, after.aggregate),
        ];
        for (names, before, after) in changes {
            match (before, after) {
                (false, true) => drop(names.insert(name.clone())),
                (true, false) => drop(names.remove(name)),
                // Most changes of a node do not concern an index: nothing is allocated then.
                (false, false) | (true, true) => {}
            }
        }
    }
}
