//! What a cluster is configured as, which all of its parts read.

use std::{mem, sync::Arc};

use crate::balance::{
    breaker::Breaker, locality_config::LocalityConfig, pick_first::PickFirstSettings, policies::Policy,
    policy::LeafConfig,
};

/// A cluster with its current configuration.
#[derive(Debug)]
pub(in crate::balance) struct Cluster {
    pub(in crate::balance) name: Arc<str>,
    pub(in crate::balance) config: Arc<LeafConfig>,
    pub(in crate::balance) breaker: Arc<Breaker>,
    pub(in crate::balance) settings: PickFirstSettings,
}

/// How much of a cluster another configuration changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigChange {
    /// The endpoints of lists, whose policies need nothing but those that are ready.
    Endpoints,
    /// All endpoints may have another state, and policies another one for each list.
    Lists,
    /// The policy is of another type: what is connected serves calls until that has connections of its own.
    PolicyType,
}

impl Cluster {
    /// The policy that chooses among the endpoints of a list.
    pub(super) fn policy(&self) -> &Policy {
        &self.config.policy.policy
    }

    /// What the next configuration changes.
    pub(super) fn change(&self, next: &LeafConfig, breaker: &Arc<Breaker>) -> ConfigChange {
        let before = &*self.config;
        if mem::discriminant(&before.policy.policy) != mem::discriminant(&next.policy.policy) {
            return ConfigChange::PolicyType;
        }
        // Each endpoint keeps the breaker, its counters of outlier detection and the limit of connections, so a change of these
        // concerns all of them.
        let keeps_lists = Arc::ptr_eq(&self.breaker, breaker)
            && before.policy == next.policy
            && before.outlier_detection == next.outlier_detection
            && before.max_connections == next.max_connections
            && next.policy.policy.is_incremental()
            && are_alike(&before.priorities, &next.priorities)
            // An endpoint with several addresses may take over the connection of another one to any of them, although it stays as it is.
            && [before, next].iter().all(|config| has_single_addresses(&config.priorities))
            && self.keeps_labels(&next.priorities);
        if keeps_lists { ConfigChange::Endpoints } else { ConfigChange::Lists }
    }

    /// Whether an endpoint at any index of a list is in the same locality as before, as far as labels of metrics have it.
    fn keeps_labels(&self, next: &[Vec<LocalityConfig>]) -> bool {
        // In one list of several localities, the index of an endpoint determines its label.
        let counts = |all: &[Vec<LocalityConfig>]| {
            all.iter()
                .map(|localities| localities.iter().map(|locality| locality.endpoints.len()).collect())
                .collect::<Vec<Vec<_>>>()
        };
        !self.settings.observer.is_on()
            || self.config.policy.by_locality
            || counts(&self.config.priorities) == counts(next)
    }
}

/// Whether each endpoint has one address.
fn has_single_addresses(priorities: &[Vec<LocalityConfig>]) -> bool {
    let mut endpoints = priorities.iter().flatten().flat_map(|locality| &locality.endpoints);
    endpoints.all(|endpoint| endpoint.addresses.len() == 1)
}

/// Whether two configurations differ in their endpoints alone.
fn are_alike(before: &[Vec<LocalityConfig>], next: &[Vec<LocalityConfig>]) -> bool {
    let is_alike = |(one, other): (&LocalityConfig, &LocalityConfig)| {
        one.locality == other.locality && one.weight == other.weight
    };
    before.len() == next.len()
        && before
            .iter()
            .zip(next)
            .all(|(before, next)| before.len() == next.len() && before.iter().zip(next).all(is_alike))
}
