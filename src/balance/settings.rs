//! The settings of load balancing.

use super::{identity::EndpointCredentials, pick_first::PickFirstSettings};

/// Settings of a [`Balancer`](super::balancer::Balancer).
#[derive(Debug, Clone)]
pub(crate) struct BalancerSettings {
    pub(crate) pick_first: PickFirstSettings,
    /// Attempts to connect that begin at a time; further ones wait for their turn (CH11.8). 256.
    pub(crate) max_concurrent_connects: usize,
    /// The largest size of hash rings (CH3.28). 4,096.
    pub(crate) ring_size_cap: u32,
    /// The largest number of entries that the rings of a cluster have together (CH3.30). 65,536.
    pub(crate) cluster_ring_entries: u32,
    /// The largest number of connections to an endpoint (CH4.9). 10.
    pub(crate) max_connections_cap: usize,
    /// Steps of outlier detection in a row, before anything else has a turn: to look at an endpoint is one, to decide on an outlier
    /// 50 (CH3.67). 5,000.
    pub(crate) sweep_slice: usize,
    pub(crate) seed: u64,
    /// What the application has chosen for the security of connections (CH7.1, CH7.2).
    pub(crate) credentials: EndpointCredentials,
}

impl BalancerSettings {
    /// The usual ones.
    pub(crate) fn with_seed(seed: u64) -> Self {
        Self {
            pick_first: PickFirstSettings::default(),
            max_concurrent_connects: 256,
            ring_size_cap: 4_096,
            cluster_ring_entries: 65_536,
            max_connections_cap: 10,
            sweep_slice: 5_000,
            seed,
            credentials: EndpointCredentials::Unset,
        }
    }
}
