//! The configuration of groups.

use std::sync::Arc;

use super::super::{
    addresses::shuffled,
    custom::CustomBalancer,
    member::{Hostname, Key, MemberConfig},
    policy::{ClusterPolicy, EndpointConfig, LeafConfig, LocalityConfig, Policy},
    ring::RingSizes,
    ring_slots::RingSlots,
};
use crate::resource::{Locality, load_balancing::PolicyEndpoint};

/// What a group is made of.
#[derive(Debug)]
pub(super) struct GroupConfig<'a> {
    pub(super) locality: Option<&'a Locality>,
    pub(super) weight: u32,
    localities: &'a [LocalityConfig],
}

impl<'a> GroupConfig<'a> {
    /// The groups of a priority.
    pub(super) fn all(localities: &'a [LocalityConfig], policy: &ClusterPolicy) -> Vec<Self> {
        if !policy.by_locality {
            return vec![Self { locality: None, weight: 1, localities }];
        }
        let each = localities.chunks(1).map(|one| Self {
            locality: Some(&one[0].locality),
            weight: one[0].weight,
            localities: one,
        });
        each.collect()
    }

    /// The policy of the application, which keeps its state if its configuration is equal.
    pub(super) fn custom(
        &self,
        policy: &ClusterPolicy,
        before: Option<CustomBalancer>,
        random: &mut fastrand::Rng,
    ) -> Option<CustomBalancer> {
        let Policy::Custom(policy) = &policy.policy else { return None };
        let before = before.filter(|it| it.is_of(policy) && !it.is_broken());
        let mut custom = before.unwrap_or_else(|| CustomBalancer::new(policy, random.u64(..)));
        let endpoints = self.localities.iter().flat_map(|locality| {
            locality.endpoints.iter().map(|it| {
                let (addresses, hostname) = (it.addresses.clone(), it.hostname.clone());
                PolicyEndpoint::new(addresses, locality.locality.clone(), it.weight, hostname)
            })
        });
        custom.set_endpoints(endpoints.collect());
        Some(custom)
    }

    /// The ring of ring_hash. The one before is taken over if it is of the same endpoints.
    pub(super) fn ring<H>(
        &self,
        policy: &ClusterPolicy,
        budget: Option<&RingBudget>,
        before: Option<RingSlots<H>>,
    ) -> Option<RingSlots<H>> {
        let Policy::RingHash(config) = &policy.policy else { return None };
        let weighted = self.weighted();
        let sizes = budget.map_or(config.sizes, |budget| budget.sizes(weighted.len()));
        Some(RingSlots::new(weighted.into_iter(), sizes, config.request_hash_header.clone(), before))
    }

    /// The endpoints of the group: one for each, or one for all under pick_first.
    pub(super) fn members(
        &self,
        priority: usize,
        policy: &ClusterPolicy,
        random: &mut fastrand::Rng,
    ) -> Vec<MemberConfig> {
        let Policy::PickFirst { shuffle } = policy.policy else {
            let endpoints = self.localities.iter().flat_map(|locality| &locality.endpoints);
            let reconnects = !policy.policy.is_on_demand();
            return endpoints.map(|it| MemberConfig { reconnects, ..MemberConfig::of(it) }).collect();
        };
        let endpoints = if shuffle {
            shuffled(self.weighted(), random)
        } else {
            self.localities.iter().flat_map(|locality| &locality.endpoints).collect()
        };
        if endpoints.is_empty() {
            return Vec::new();
        }
        let hostnames = endpoints.iter().flat_map(|it| {
            let hostname = it.hostname.iter();
            hostname.flat_map(|hostname| it.destinations().map(|destination| (destination, hostname.clone())))
        });
        let hostname = Hostname::Each(Arc::new(hostnames.collect()));
        let destinations = endpoints.iter().flat_map(|it| it.destinations()).collect();
        let locality = self.locality.map(ToString::to_string);
        let key = Key::All { priority, locality };
        vec![MemberConfig { key, destinations, hostname, reconnects: policy.by_locality }]
    }

    /// Each endpoint with its share of the group (CH3.50).
    fn weighted(&self) -> Vec<(&'a EndpointConfig, u64)> {
        let sum: u64 = self.localities.iter().map(|it| u64::from(it.weight)).sum();
        let mut weighted = Vec::new();
        for locality in self.localities {
            let share = u64::from(locality.weight) * ONE / sum.max(1);
            let sum: u64 = locality.endpoints.iter().map(|it| u64::from(it.weight)).sum();
            for endpoint in &locality.endpoints {
                let weight = u64::from(endpoint.weight) * ONE / sum.max(1);
                weighted.push((endpoint, ((share * weight) >> 31).max(1)));
            }
        }
        weighted
    }
}

/// The entries that the rings of a cluster may have, if those that are configured would be too many together.
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
    pub(super) fn of(config: &LeafConfig) -> Option<Self> {
        let Policy::RingHash(ring) = &config.policy.policy else { return None };
        let priorities = config.priorities.iter();
        let groups: Vec<_> =
            priorities.flat_map(|localities| GroupConfig::all(localities, &config.policy)).collect();
        let (mut sum, mut endpoints) = (0.0, 0);
        for group in groups {
            let weighted = group.weighted();
            sum += ring.sizes.scale(weighted.iter().map(|(_, weight)| *weight)).ceil();
            endpoints += weighted.len() as u64;
        }
        let entries = u64::from(ring.cluster_entries);
        (sum > entries as f64).then_some(Self { sizes: ring.sizes, entries, endpoints })
    }

    /// The sizes of a ring with so many endpoints, whose share of the entries is its share of the endpoints. Each ring has an entry.
    fn sizes(&self, endpoints: usize) -> RingSizes {
        let share = self.entries * endpoints as u64 / self.endpoints.max(1);
        let cap = u32::try_from(share.max(1)).unwrap_or(u32::MAX);
        RingSizes { min: self.sizes.min.min(cap), max: self.sizes.max.min(cap) }
    }
}

/// 1 as a fraction of 2³¹ (CH3.50).
const ONE: u64 = 1 << 31;

#[cfg(test)]
mod tests;
