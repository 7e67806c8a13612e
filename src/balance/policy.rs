//! What a cluster's configuration says of balancing, as far as it is executed.

use std::{cmp, collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use super::{
    cluster_load::ClusterLoad,
    identity::Security,
    locality_config::{ClusterLists, EndpointConfig, LocalityConfig},
    observer::ServiceLabels,
    policies::{Policy, round_robin::RoundRobin, subset::SubsetSizes},
};
use crate::resource::{LbPolicy, OutlierDetection};

/// The policy of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClusterPolicy {
    pub(crate) policy: Policy,
    /// First a locality by weight, then an endpoint in it (CH3.48). Otherwise, all localities of a priority are one list.
    pub(crate) by_locality: bool,
}

/// What of a configured policy is executed.
#[derive(Debug)]
pub(crate) struct Configured {
    pub(crate) policy: ClusterPolicy,
    pub(crate) subset: SubsetSizes,
    /// The name of the policy, if another one is executed instead.
    pub(crate) unsupported: Option<String>,
}

/// A cluster with endpoints of its own: one level of priorities over localities.
#[derive(Debug, Clone)]
pub(crate) struct LeafConfig {
    /// The policy that is executed, which may be another one than is configured.
    pub(crate) policy: ClusterPolicy,
    /// The endpoints that are used.
    pub(crate) priorities: Vec<Vec<LocalityConfig>>,
    /// All endpoints, if `priorities` has a subset of them (CH3.61).
    pub(crate) listed: Option<Vec<Vec<LocalityConfig>>>,
    /// Shares of requests that are dropped (CH4.1).
    pub(crate) drops: Arc<[Drop]>,
    /// The maximum number of concurrent requests (CH4.4).
    pub(crate) max_requests: u32,
    /// The maximum number of connections to an endpoint: at least 1 (CH4.9).
    pub(crate) max_connections: usize,
    /// As configured: without an algorithm it detects nothing.
    pub(crate) outlier_detection: Option<OutlierDetection>,
    /// The name of the endpoints' resource, a part of the key of the circuit breaker (CH4.7).
    pub(crate) service_name: Arc<str>,
    /// Why there may be no endpoints (CH1.14), or why they may be stale (CH1.9).
    pub(crate) note: Option<Arc<str>>,
    /// The numbers of endpoints by the reasons why none is usable, if none is.
    pub(crate) unusable: Option<Arc<str>>,
    /// Failed connections ask for another look-up of its name (CH1.27).
    pub(crate) is_dns: bool,
    /// Security of the cluster's endpoints, apart from their hostnames.
    pub(crate) security: Security,
    pub(crate) hosts: HostsConfig,
    /// Counters of the load reports, if the cluster's load is reported.
    pub(crate) load: Option<Arc<ClusterLoad>>,
    /// The service of the cluster, for metrics.
    pub(crate) service: Option<Arc<ServiceLabels>>,
}

/// Which endpoints the cookies of sessions may lead to (CH8.10), beside those of all priorities.
#[derive(Debug, Clone)]
pub(crate) struct HostsConfig {
    /// Endpoints that drain, which no policy has.
    pub(crate) draining: Vec<EndpointConfig>,
    /// Whether cookies may lead to endpoints that drain.
    pub(crate) allows_draining: bool,
    /// The first addresses of usable endpoints whose health is none that cookies may lead to.
    pub(crate) forbidden: BTreeSet<SocketAddr>,
    /// How long a connection is kept for the next call of a session (CH8.15).
    pub(crate) idle_timeout: Duration,
}

/// A share of requests that is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drop {
    /// The name in load reports and in the messages of dropped calls.
    pub(crate) category: Arc<str>,
    /// The number of dropped requests of a million.
    pub(crate) per_million: u32,
}

impl Default for HostsConfig {
    fn default() -> Self {
        let (draining, forbidden) = (Vec::new(), BTreeSet::new());
        Self { draining, allows_draining: false, forbidden, idle_timeout: Duration::from_secs(3_600) }
    }
}

impl LeafConfig {
    /// All endpoints, whether they are used or not.
    pub(super) fn listed(&self) -> &[Vec<LocalityConfig>] {
        self.listed.as_ref().unwrap_or(&self.priorities)
    }

    /// The lists of the endpoints that are used.
    pub(super) fn lists(&self) -> ClusterLists<'_> {
        ClusterLists { priorities: &self.priorities, by_locality: self.policy.by_locality }
    }
}

impl Configured {
    /// The policy that is executed.
    pub(crate) fn of(configured: &LbPolicy) -> Self {
        let (mut by_locality, mut subset, mut endpoint) = (false, SubsetSizes::default(), configured);
        loop {
            if let LbPolicy::WrrLocality(wrr) = endpoint
                && !by_locality
            {
                by_locality = true;
                endpoint = &wrr.endpoint_picking_policy;
            } else if let LbPolicy::RandomSubsetting(subsetting) = endpoint {
                // A subset of a subset is as large as the smaller of them.
                let level = if by_locality { &mut subset.locality } else { &mut subset.priority };
                let size = subsetting.subset_size;
                *level = Some(level.map_or(size, |known| cmp::min(size, known)));
                endpoint = &subsetting.child_policy;
            } else {
                break;
            }
        }
        let (policy, unsupported) = match (Policy::read(endpoint), endpoint) {
            (Some(policy), _) => (policy, None),
            (None, LbPolicy::Custom(custom)) => {
                (Policy::RoundRobin(RoundRobin), Some(custom.type_name().to_owned()))
            }
            // All others are read, so it is a policy of localities below itself.
            (None, _) => (Policy::RoundRobin(RoundRobin), Some("wrr_locality in wrr_locality".to_owned())),
        };
        Self { policy: ClusterPolicy { policy, by_locality }, subset, unsupported }
    }
}
