//! A cluster that requests are sent to: the choice among its leaves.

use std::sync::Arc;

use crate::balance::{
    clusters::ClusterConfig,
    connectivity::Connectivity,
    failover::Failover,
    picker::{Choice, ClusterPicker, LeafPicker},
};

/// A cluster that requests are sent to.
#[derive(Debug)]
pub(super) struct Target<H> {
    /// The configuration, whose leaves have the indices of the failover.
    pub(super) config: ClusterConfig,
    pub(super) failover: Failover,
    /// The newest picker, which may not have been polled yet.
    pub(super) picker: Arc<ClusterPicker<H>>,
}

impl<H> Target<H> {
    /// A cluster without leaves, which it gets [next](Self::rearrange).
    pub(super) fn new(config: &ClusterConfig) -> Self {
        let unusable = || ClusterPicker {
            connectivity: Connectivity::TransientFailure,
            choice: Choice::Unusable("it has no leaf clusters".into()),
            aggregate: None,
        };
        Self {
            config: ClusterConfig::Leaves(Vec::new()),
            failover: Failover::default(),
            // Replaced before the first poll, unless no leaf can be created.
            picker: Arc::new(config.picker().unwrap_or_else(unusable)),
        }
    }

    /// The leaf in use.
    pub(super) fn chosen(&self) -> Option<&Arc<str>> {
        self.config.leaves().get(self.failover.chosen()?)
    }

    /// Sets a new configuration, in which each leaf keeps its state at its new place. Returns the leaves that it has no more.
    pub(super) fn rearrange(&mut self, config: ClusterConfig) -> Vec<Arc<str>> {
        let (before, after) = (self.config.leaves(), config.leaves());
        let places: Vec<_> = after.iter().map(|leaf| before.iter().position(|known| known == leaf)).collect();
        let removed = before.iter().filter(|leaf| !after.contains(leaf)).cloned().collect();
        self.failover.rearrange(&places);
        if let Some(picker) = config.picker() {
            self.picker = Arc::new(picker);
        }
        self.config = config;
        removed
    }

    #[cfg(any(test, feature = "channel"))]
    pub(super) fn status(&self, name: &Arc<str>) -> crate::balance::status::ClusterStatus {
        let error = match &self.config {
            ClusterConfig::Leaves(_) => None,
            ClusterConfig::Gone(reason)
            | ClusterConfig::Unusable(reason)
            | ClusterConfig::Unknown(reason) => Some(reason.clone()),
        };
        crate::balance::status::ClusterStatus {
            name: name.clone(),
            state: self.picker.connectivity,
            leaves: self.config.leaves().to_vec(),
            active_leaf: self.chosen().cloned(),
            error,
        }
    }

    /// Makes a picker of the latest one of the leaf in use, where `name` is that of the cluster; false if that is the same as before.
    pub(super) fn refresh(&mut self, name: &Arc<str>, leaf: Arc<LeafPicker<H>>) -> bool {
        // A cluster that is no aggregate is its own leaf.
        let place = self.failover.chosen().filter(|_| leaf.name != *name);
        let aggregate = place.and_then(|place| u32::try_from(place).ok());
        if let Choice::Leaf(known) = &self.picker.choice
            && self.picker.aggregate == aggregate
            // A leaf makes another picker only if calls would see a difference, so the pointers decide.
            && Arc::ptr_eq(known, &leaf)
        {
            return false;
        }
        let connectivity = leaf.connectivity;
        self.picker = Arc::new(ClusterPicker { connectivity, choice: Choice::Leaf(leaf), aggregate });
        true
    }
}
