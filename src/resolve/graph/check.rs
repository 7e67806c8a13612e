//! The invariants of a graph between two calls.

use std::collections::BTreeSet;

use super::*;

impl Graph {
    /// The number of examined clusters so far.
    pub(in super::super) fn work(&self) -> u64 {
        self.work
    }

    /// Compares the indexes with the nodes that they are derived from. Large graphs are left out: the tests that count
    /// work use them.
    pub(super) fn check(&self) {
        assert_eq!(invariant::count(), 0);
        if self.nodes.iter().count() > LARGEST {
            return;
        }
        self.nodes.check();
        let with_root = |has: fn(&TreeNode) -> bool| -> BTreeSet<_> {
            self.nodes.iter().filter(|(_, node)| has(node)).map(|(name, _)| name).collect()
        };
        let current: BTreeSet<_> = self.routed.current().iter().collect();
        assert_eq!(current, with_root(|node| node.roots().current));
        let next = match self.routed.next() {
            Next::Clusters(names) => names.iter().collect(),
            Next::Nothing | Next::Unknown => BTreeSet::new(),
        };
        assert_eq!(next, with_root(|node| node.roots().next));
        let uses = self
            .nodes
            .iter()
            .flat_map(|(name, node)| node.sources().iter().map(move |source| (name, source)));
        assert_eq!(self.sources.uses(), uses.collect());
        assert!(self.nodes.iter().all(|(name, _)| self.usage().is_needed(name)), "orphans are dropped");
        self.check_entries();
    }

    fn check_entries(&self) {
        let shown = self.nodes.iter().filter(|(name, _)| self.usage().is_in_tree(name));
        let shown: BTreeSet<_> =
            shown.filter_map(|(name, node)| Some((name, Arc::as_ptr(node.shown()?)))).collect();
        let entries: BTreeSet<_> =
            self.entries.iter().map(|(name, entry)| (name, Arc::as_ptr(entry))).collect();
        assert_eq!(entries, shown);
    }
}

/// The number of nodes to compare.
const LARGEST: usize = 256;
