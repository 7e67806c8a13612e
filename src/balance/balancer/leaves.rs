//! The clusters with endpoints that are in use.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use slab::Slab;

use crate::balance::{command::LeafIndex, leaf::Leaf, picker::LeafPicker};

/// The leaves that are in use, by index and by name.
#[derive(Debug)]
pub(super) struct Leaves<H> {
    all: Slab<UsedLeaf<H>>,
    by_name: BTreeMap<Arc<str>, LeafIndex>,
}

/// A leaf that is in use.
#[derive(Debug)]
pub(super) struct UsedLeaf<H> {
    pub(super) leaf: Leaf<H>,
    /// The targets that have created it.
    pub(super) targets: BTreeSet<Arc<str>>,
    /// The picker that was made last.
    pub(super) picker: Option<Arc<LeafPicker<H>>>,
}

impl<H: Clone> Leaves<H> {
    /// Without leaves.
    pub(super) fn new() -> Self {
        Self { all: Slab::new(), by_name: BTreeMap::new() }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The leaf of an index, which may be that of a removed one.
    pub(super) fn get(&self, index: LeafIndex) -> Option<&UsedLeaf<H>> {
        self.all.get(index.0)
    }

    /// The leaf of an index, which may be that of a removed one.
    pub(super) fn get_mut(&mut self, index: LeafIndex) -> Option<&mut UsedLeaf<H>> {
        self.all.get_mut(index.0)
    }

    /// The index of a name.
    pub(super) fn index(&self, name: &str) -> Option<LeafIndex> {
        self.by_name.get(name).copied()
    }

    /// The leaf of a name.
    pub(super) fn by_name(&self, name: &str) -> Option<&UsedLeaf<H>> {
        self.get(self.index(name)?)
    }

    /// The leaves in the order of their names.
    #[cfg(any(test, feature = "channel"))]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Leaf<H>> {
        self.by_name.values().filter_map(|index| self.get(*index)).map(|used| &used.leaf)
    }

    /// The indices of all leaves, for events of each of them.
    pub(super) fn indices(&self) -> Vec<LeafIndex> {
        self.all.iter().map(|(index, _)| LeafIndex(index)).collect()
    }

    /// Adds a leaf that a target needs; it is made with its index.
    pub(super) fn insert(
        &mut self,
        name: &Arc<str>,
        target: &Arc<str>,
        make: impl FnOnce(LeafIndex) -> Leaf<H>,
    ) -> LeafIndex {
        // The index precedes the leaf, whose first attempts to connect carry it.
        let entry = self.all.vacant_entry();
        let index = LeafIndex(entry.key());
        let targets = BTreeSet::from([target.clone()]);
        entry.insert(UsedLeaf { leaf: make(index), targets, picker: None });
        self.by_name.insert(name.clone(), index);
        index
    }

    /// Removes a leaf.
    pub(super) fn remove(&mut self, name: &str) {
        if let Some(index) = self.by_name.remove(name) {
            self.all.remove(index.0);
        }
    }
}
