//! What a cluster's configuration says of balancing, as far as it is executed.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use super::{ring::RingConfig, weights::WeightSettings};
use crate::resource::{LbPolicy, Locality, OutlierDetection, load_balancing::CustomPolicy};

/// How an endpoint is chosen among those that are ready.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Policy {
    /// One connection for all endpoints of a group.
    PickFirst {
        shuffle: bool,
    },
    RoundRobin,
    /// The least loaded of some at random (A48).
    LeastRequest {
        choice_count: u8,
    },
    /// One endpoint after the other, those of less weight less often (A58).
    Weighted(Box<WeightSettings>),
    /// By the hash of the request (A42).
    RingHash(RingConfig),
    /// A policy of the application (CH3.63).
    Custom(CustomPolicy),
}

/// The policy of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClusterPolicy {
    pub(crate) policy: Policy,
    /// First a locality by weight, then an endpoint in it (CH3.48). Otherwise, all localities of a priority are one list.
    pub(crate) by_locality: bool,
}

/// A cluster with endpoints of its own: one level of priorities over localities.
#[derive(Debug, Clone)]
pub(crate) struct LeafConfig {
    pub(crate) policy: ClusterPolicy,
    pub(crate) priorities: Vec<Vec<LocalityConfig>>,
    /// Shares of requests that are dropped (CH4.1).
    pub(crate) drops: Arc<[Drop]>,
    /// The maximum number of concurrent requests (CH4.4).
    pub(crate) max_requests: u32,
    /// As configured: without an algorithm it detects nothing.
    pub(crate) outlier_detection: Option<OutlierDetection>,
    /// The name of the endpoints' resource, a part of the key of the circuit breaker (CH4.7).
    pub(crate) service_name: Arc<str>,
    /// Why there may be no endpoints (CH1.14), or why they may be stale (CH1.9).
    pub(crate) note: Option<Arc<str>>,
    /// Failed connections ask for another look-up of its name (CH1.27).
    pub(crate) is_dns: bool,
    pub(crate) hosts: HostsConfig,
}

/// Which endpoints the cookies of sessions may lead to (CH8.10), beside those of all priorities.
#[derive(Debug, Clone)]
pub(crate) struct HostsConfig {
    /// Endpoints that drain, which no policy has.
    pub(crate) draining: Vec<EndpointConfig>,
    pub(crate) allows_draining: bool,
    /// The first addresses of usable endpoints whose health is none that cookies may lead to.
    pub(crate) forbidden: BTreeSet<SocketAddr>,
    /// How long a connection is kept for the next call of a session (CH8.15).
    pub(crate) idle_timeout: Duration,
}

/// The usable endpoints of a locality (CH3.51).
#[derive(Debug, Clone)]
pub(crate) struct LocalityConfig {
    pub(crate) locality: Locality,
    pub(crate) weight: u32,
    pub(crate) endpoints: Vec<EndpointConfig>,
}

/// An endpoint.
#[derive(Debug, Clone)]
pub(crate) struct EndpointConfig {
    /// Not empty.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) weight: u32,
    pub(crate) hostname: Option<Arc<str>>,
    /// Its key on hash rings, instead of its address (CH3.29); not empty.
    pub(crate) hash_key: Option<Arc<str>>,
}

/// A share of requests that is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drop {
    pub(crate) category: Arc<str>,
    pub(crate) per_million: u32,
}

impl Default for HostsConfig {
    fn default() -> Self {
        let (draining, forbidden) = (Vec::new(), BTreeSet::new());
        Self { draining, allows_draining: false, forbidden, idle_timeout: Duration::from_secs(3_600) }
    }
}

impl Policy {
    /// Whether endpoints are connected as calls need them, and not all of them (A42).
    pub(super) fn is_on_demand(&self) -> bool {
        matches!(self, Self::RingHash(_))
    }
}

impl ClusterPolicy {
    /// The policy that is executed, and the name of the configured one if that is another.
    pub(crate) fn of(configured: &LbPolicy) -> (Self, Option<String>) {
        let (by_locality, endpoint) = match configured {
            LbPolicy::WrrLocality(wrr) => (true, &*wrr.endpoint_picking_policy),
            LbPolicy::RoundRobin
            | LbPolicy::PickFirst(_)
            | LbPolicy::RingHash(_)
            | LbPolicy::LeastRequest(_)
            | LbPolicy::ClientSideWeightedRoundRobin(_)
            | LbPolicy::Custom(_) => (false, configured),
        };
        let (policy, unsupported) = match endpoint {
            LbPolicy::RoundRobin => (Policy::RoundRobin, None),
            LbPolicy::PickFirst(it) => (Policy::PickFirst { shuffle: it.shuffle_address_list }, None),
            LbPolicy::LeastRequest(it) => (Policy::LeastRequest { choice_count: it.choice_count }, None),
            LbPolicy::RingHash(it) => (Policy::RingHash(RingConfig::of(it)), None),
            LbPolicy::ClientSideWeightedRoundRobin(it) => (Policy::Weighted(Box::new((&**it).into())), None),
            LbPolicy::WrrLocality(_) => (Policy::RoundRobin, Some("wrr_locality in wrr_locality".to_owned())),
            LbPolicy::Custom(it) if it.is_executed() => (Policy::Custom(it.clone()), None),
            LbPolicy::Custom(it) => (Policy::RoundRobin, Some(it.type_name().to_owned())),
        };
        (Self { policy, by_locality }, unsupported)
    }
}

impl Policy {
    /// The settings of a policy that has weights by load.
    pub(crate) fn weights(&self) -> Option<&WeightSettings> {
        match self {
            Self::Weighted(settings) => Some(settings),
            Self::PickFirst { .. }
            | Self::RoundRobin
            | Self::LeastRequest { .. }
            | Self::RingHash(_)
            | Self::Custom(_) => None,
        }
    }
}

/// The reason why a call fails, and why the configuration may be stale (CH1.9).
pub(crate) fn with_note(reason: String, note: Option<&str>) -> String {
    match note {
        Some(note) => format!("{reason} (the configuration may be stale: {note})"),
        None => reason,
    }
}
