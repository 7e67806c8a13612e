//! The endpoints of clusters, with the identities of their connections.

use crate::{
    balance::{
        identity::{Identity, Security},
        locality_config::{EndpointConfig, LocalityConfig},
        policy::HostsConfig,
    },
    resource::{
        Cluster, ClusterLoadAssignment, Endpoint, HealthStatus, LeftOut, Metadata,
        endpoints::LocalityEndpoints,
    },
};

/// Translates the endpoints of a cluster.
pub(super) struct Endpoints<'a> {
    security: &'a Security,
    /// Their metadata may name an HTTP proxy (CH7.25).
    may_have_proxies: bool,
    /// Of the endpoints without proxies and hostnames that matter, which have this in common.
    identity: Identity,
}

impl<'a> Endpoints<'a> {
    pub(super) fn new(security: &'a Security, may_have_proxies: bool) -> Self {
        Self { security, may_have_proxies, identity: Identity::new(None, security.clone()) }
    }

    /// The usable endpoints of each priority.
    pub(super) fn priorities(&self, assignment: &ClusterLoadAssignment) -> Vec<Vec<LocalityConfig>> {
        let each = assignment.priorities.iter();
        each.map(|priority| priority.localities.iter().map(|locality| self.locality(locality)).collect())
            .collect()
    }

    /// A locality with its usable endpoints, which may be none.
    fn locality(&self, of: &LocalityEndpoints) -> LocalityConfig {
        let usable = of.endpoints.iter().filter(|endpoint| endpoint.is_healthy());
        let endpoints = usable.map(|endpoint| self.endpoint(endpoint, &of.metadata)).collect();
        LocalityConfig::new(of.locality.clone(), of.weight.get(), endpoints)
    }

    /// An endpoint, with the proxy of its own metadata or that of its locality.
    fn endpoint(&self, endpoint: &Endpoint, locality: &Metadata) -> EndpointConfig {
        EndpointConfig {
            addresses: endpoint.addresses().collect(),
            identity: self.identity(endpoint, locality),
            weight: endpoint.weight.get(),
            hostname: endpoint.hostname().map(Into::into),
            hash_key: endpoint.hash_key().map(Into::into),
        }
    }

    /// The proxy is that of the endpoint, or else of its locality (A86).
    fn identity(&self, endpoint: &Endpoint, locality: &Metadata) -> Identity {
        let metadata = [endpoint.metadata(), locality];
        // Metadata alone enables no proxy: the cluster must have the transport socket for it (CH7.25).
        let proxies = metadata.into_iter().filter(|_| self.may_have_proxies);
        let proxy = proxies.filter_map(Metadata::proxy_address).next();
        let security = self.security.for_hostname(endpoint.hostname());
        if proxy.is_none() && security == *self.security {
            // One allocation for most endpoints, whose identities are then compared by their pointers.
            return self.identity.clone();
        }
        Identity::new(proxy, security)
    }
}

/// The numbers of endpoints by the reasons why none of them is usable; `None` if one is.
pub(super) fn unusable(assignment: &ClusterLoadAssignment) -> Option<String> {
    if assignment.endpoints().any(Endpoint::is_healthy) {
        return None;
    }
    let count = |health| assignment.endpoints().filter(|endpoint| endpoint.health == health).count();
    let reasons = [
        (HealthStatus::Unhealthy, "unhealthy"),
        (HealthStatus::Draining, "draining"),
        (HealthStatus::Timeout, "timed out in health checks"),
        (HealthStatus::Degraded, "degraded"),
        (HealthStatus::Unrecognized, "of an unknown health"),
    ];
    let reasons = reasons.map(|(health, reason)| (count(health), reason));
    let counted: Vec<_> = reasons.iter().filter(|(count, _)| *count > 0).collect();
    let text = match counted[..] {
        [] => "the assignment has no endpoints".to_owned(),
        [(1, reason)] => format!("the only endpoint is {reason}"),
        [(count, reason)] => format!("all {count} endpoints are {reason}"),
        _ => {
            let all: usize = counted.iter().map(|(count, _)| count).sum();
            let reasons: Vec<_> =
                counted.iter().map(|(count, reason)| format!("{count} are {reason}")).collect();
            format!("of {all} endpoints {}", reasons.join(", "))
        }
    };
    let endpoints = match assignment.unweighted_endpoints() {
        0 => String::new(),
        1 => ", with 1 endpoint,".to_owned(),
        endpoints => format!(", with {endpoints} endpoints,"),
    };
    let text = match assignment.unweighted_localities.len() {
        0 => text,
        1 => format!("{text}; 1 locality without weight{endpoints} is left out"),
        omitted => format!("{text}; {omitted} localities without weight{endpoints} are left out"),
    };
    // Of the others, an error has the first: the log and the status have all of them.
    let is_other = |part: &&LeftOut| !part.reason.starts_with(NO_WEIGHT);
    Some(match assignment.remarks.left_out().iter().find(is_other) {
        Some(part) => format!("{text}; {part}"),
        None => text,
    })
}

/// How the reason of a locality without a weight begins.
const NO_WEIGHT: &str = "no load_balancing_weight";

/// What cookies may lead to, by the health of the endpoints (CH8.10).
pub(super) fn hosts(
    cluster: &Cluster,
    assignment: Option<&ClusterLoadAssignment>,
    endpoints: &Endpoints<'_>,
) -> HostsConfig {
    let localities = || {
        assignment
            .into_iter()
            .flat_map(|assignment| &assignment.priorities)
            .flat_map(|priority| &priority.localities)
    };
    let all = || {
        localities().flat_map(|locality| {
            locality.endpoints.iter().map(move |endpoint| (endpoint, &locality.metadata))
        })
    };
    let allowed = cluster.override_host_status;
    let forbidden = all()
        .map(|(endpoint, _)| endpoint)
        .filter(|endpoint| endpoint.is_healthy() && !allowed.contains(endpoint.health));
    let draining = all().filter(|(it, _)| it.health == HealthStatus::Draining);
    HostsConfig {
        draining: draining.map(|(it, locality)| endpoints.endpoint(it, locality)).collect(),
        allows_draining: allowed.draining,
        forbidden: forbidden.map(Endpoint::address).collect(),
        idle_timeout: cluster.idle_timeout,
    }
}

#[cfg(test)]
mod tests;
