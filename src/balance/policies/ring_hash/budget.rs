//! The entries of the rings of one cluster, if those that are configured would be too many together (CH3.30).

use super::{RingHash, ring::RingSizes};
use crate::balance::{lists::config::EndpointList, locality_config::ClusterLists};

/// The entries that the rings of a cluster share by their numbers of endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RingBudget {
    sizes: RingSizes,
    entries: u64,
    /// The number of the cluster's endpoints.
    endpoints: u64,
}

impl RingBudget {
    /// The budget of a cluster with several rings, for its localities and priorities. `None` if it needs none: rings are then those of
    /// gRPC.
    pub(super) fn of(ring: &RingHash, cluster: ClusterLists<'_>) -> Option<Self> {
        let (mut sum, mut endpoints) = (0.0, 0);
        for list in
            cluster.priorities.iter().zip(0..).flat_map(|(localities, priority)| {
                EndpointList::all(priority, localities, cluster.by_locality)
            })
        {
            let weighted = list.weighted();
            sum += ring.sizes.scale(weighted.iter().map(|(_, weight)| *weight)).ceil();
            endpoints += weighted.len() as u64;
        }
        let entries = u64::from(ring.cluster_entries);
        (sum > entries as f64).then_some(Self { sizes: ring.sizes, entries, endpoints })
    }

    /// The sizes of a ring with so many endpoints, whose share of the entries is its share of the endpoints. Each ring has an entry.
    pub(super) fn sizes(&self, endpoints: usize) -> RingSizes {
        let share = self.entries * endpoints as u64 / self.endpoints.max(1);
        let cap = u32::try_from(share.max(1)).unwrap_or(u32::MAX);
        RingSizes { min: self.sizes.min.min(cap), max: self.sizes.max.min(cap) }
    }
}

#[cfg(test)]
mod tests;
