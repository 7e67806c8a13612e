//! What clusters are doing, for operators.

use std::time::Instant;

use super::{Balancer, Target};
use crate::balance::{
    clusters::ClusterConfig,
    status::{ClusterStatus, LeafStatus},
};

impl<H: Clone> Balancer<H> {
    /// The clusters that requests are sent to, in the order of their names.
    pub(crate) fn cluster_status(&self) -> Vec<ClusterStatus> {
        let status = |(name, target): (_, &Target<H>)| {
            let error = match &target.config {
                ClusterConfig::Leaves(_) => None,
                ClusterConfig::Gone(reason)
                | ClusterConfig::Unusable(reason)
                | ClusterConfig::Unknown(reason) => Some(reason.clone()),
            };
            ClusterStatus {
                name: std::sync::Arc::clone(name),
                state: target.picker.connectivity,
                leaves: target.config.leaves().to_vec(),
                active_leaf: target.chosen().cloned(),
                error,
            }
        };
        self.targets.iter().map(status).collect()
    }

    /// The clusters with endpoints that are in use, in the order of their names.
    pub(crate) fn leaf_status(&self, now: Instant) -> Vec<LeafStatus> {
        let leaves = self.leaves.by_name.values().filter_map(|place| self.leaves.all.get(*place));
        leaves.map(|leaf| leaf.leaf.status(now)).collect()
    }
}
