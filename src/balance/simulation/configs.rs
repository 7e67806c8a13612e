//! Random configurations, and what a model reads in them.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use super::choices::Choices;
use crate::{
    balance::{
        clusters::{ClusterConfig, ClusterConfigs},
        identity::{Destination, Identity, Security},
        locality_config::{EndpointConfig, LocalityConfig},
        policies::{
            Policy,
            least_request::LeastRequest,
            pick_first::PickFirst,
            ring_hash::{RingHash, ring::RingSizes},
            round_robin::RoundRobin,
            weighted::Weighted,
        },
        policy::{ClusterPolicy, Drop, HostsConfig, LeafConfig},
        weights::{UtilizationMetrics, WeightSettings},
    },
    resource::{
        LbPolicy, Locality, OutlierDetection,
        load_balancing::Maglev,
        outlier::{FailurePercentage, SuccessRate},
        tls::{ProviderInstance, Roots, UpstreamTls},
    },
};

/// The clusters that calls are sent to.
pub(super) const TARGETS: [&str; 2] = ["shop", "cart"];
/// The header that some rings hash.
pub(super) const HEADER: &str = "x-user";
/// The certificate provider whose roots some clusters use.
pub(super) const ROOTS: &str = "roots";
/// The clusters with endpoints.
pub(super) const LEAVES: [&str; 2] = ["one", "two"];
/// The number of addresses: 127.0.0.1:1 and so on, those above 6 are IPv6.
pub(super) const PORTS: u16 = 8;

pub(super) fn address(port: u16) -> SocketAddr {
    match port {
        0..=6 => ([127, 0, 0, 1], port).into(),
        7.. => (std::net::Ipv6Addr::LOCALHOST, port).into(),
    }
}

/// Another configuration; what is not chosen stays as it is.
pub(super) fn change(configs: &mut ClusterConfigs, choices: &mut Choices<'_>) {
    for name in LEAVES {
        let next = match configs.leaves.get(name) {
            Some(known) => match choices.below(4) {
                0 | 1 => continue,
                2 => edited(known, choices),
                _ => leaf(choices),
            },
            None => leaf(choices),
        };
        configs.leaves.insert(name.into(), next);
    }
    for name in TARGETS {
        let leaves: &[&str] = match choices.below(8) {
            0 => &["one"],
            1 => &["two"],
            2 => &["one", "two"],
            3 => &["two", "one"],
            4 => {
                configs.targets.remove(name);
                continue;
            }
            5 => {
                configs.targets.insert(name.into(), ClusterConfig::Gone("gone".into()));
                continue;
            }
            _ => continue,
        };
        let leaves = leaves.iter().map(|leaf| (*leaf).into()).collect();
        configs.targets.insert(name.into(), ClusterConfig::Leaves(leaves));
    }
}

fn leaf(choices: &mut Choices<'_>) -> Arc<LeafConfig> {
    let ring = |max| {
        let sizes = RingSizes { min: 64, max };
        let request_hash_header = (max == 4_096).then(|| HEADER.into());
        Policy::RingHash(RingHash { sizes, cluster_entries: 150, request_hash_header })
    };
    let maglev = Policy::read(&LbPolicy::Maglev(Maglev { table_size: 251, locality_weighted: true }));
    let policy = match choices.below(12) {
        0 => ClusterPolicy { policy: Policy::PickFirst(PickFirst { shuffle: false }), by_locality: false },
        1 => ClusterPolicy { policy: Policy::PickFirst(PickFirst { shuffle: true }), by_locality: true },
        2 => ClusterPolicy {
            policy: Policy::LeastRequest(LeastRequest { choice_count: 2 }),
            by_locality: false,
        },
        3 => ClusterPolicy { policy: Policy::RoundRobin(RoundRobin), by_locality: false },
        4 => ClusterPolicy { policy: ring(4_095), by_locality: false },
        5 => ClusterPolicy { policy: ring(4_096), by_locality: false },
        6 => ClusterPolicy { policy: ring(4_095), by_locality: true },
        11 => ClusterPolicy { policy: maglev.unwrap_or_else(|| ring(4_095)), by_locality: choices.bool() },
        7 | 8 => ClusterPolicy { policy: weighted(choices), by_locality: choices.bool() },
        _ => ClusterPolicy { policy: Policy::RoundRobin(RoundRobin), by_locality: true },
    };
    let priorities = (0..choices.below(4)).map(|_| {
        let localities = ["a", "b"].into_iter().take(choices.below(3));
        localities.map(|name| locality(name, choices)).collect()
    });
    let mut leaf = LeafConfig {
        policy,
        priorities: priorities.collect(),
        listed: None,
        drops: match choices.below(12) {
            0 => [Drop { category: "all".into(), per_million: 1_000_000 }].into(),
            _ => [].into(),
        },
        max_requests: if choices.below(4) == 0 { 3 } else { 1_024 },
        max_connections: 1 + choices.below(3),
        security: Security::Plaintext,
        outlier_detection: if choices.bool() { Some(outlier_detection(choices)) } else { None },
        service_name: "eds".into(),
        note: None,
        unusable: None,
        is_dns: choices.below(4) == 0,
        hosts: hosts(choices),
        load: None,
        service: None,
    };
    secure(&mut leaf, security(choices));
    Arc::new(leaf)
}

fn security(choices: &mut Choices<'_>) -> Security {
    match choices.below(3) {
        0 => Security::Plaintext,
        1 => Security::Fallback,
        _ => Security::of_cluster(&UpstreamTls {
            identity: None,
            roots: Roots::Provider(ProviderInstance {
                instance_name: ROOTS.into(),
                certificate_name: "".into(),
            }),
            san_matchers: [].into(),
            sni: None,
            auto_host_sni: false,
            auto_sni_san_validation: false,
        }),
    }
}

/// Gives all endpoints the same security; their proxies stay.
fn secure(leaf: &mut LeafConfig, security: Security) {
    let usable = leaf.priorities.iter_mut().flatten().flat_map(|locality| &mut locality.endpoints);
    for endpoint in usable.chain(&mut leaf.hosts.draining) {
        endpoint.identity = Identity::new(endpoint.identity.proxy(), security.clone());
    }
    leaf.security = security;
}

fn weighted(choices: &mut Choices<'_>) -> Policy {
    let seconds = |count: usize| Duration::from_secs(count as u64);
    Policy::Weighted(Weighted(Box::new(WeightSettings {
        blackout: seconds(choices.below(3)),
        expiration: seconds(1 + choices.below(100)),
        update: seconds(1 + choices.below(3)),
        penalty: 1.0,
        out_of_band: choices.bool().then(|| seconds(1 + choices.below(2))),
        metrics: match choices.bool() {
            true => UtilizationMetrics::new(&["named_metrics.queue".into()]),
            false => UtilizationMetrics::default(),
        },
    })))
}

/// What cookies may lead to: often endpoints that drain, and seldom not those of a usable endpoint.
fn hosts(choices: &mut Choices<'_>) -> HostsConfig {
    let draining = (0..choices.below(3)).map(|_| endpoint(choices)).collect();
    let count = choices.below(8) / 6;
    let forbidden = (0..count).map(|_| address(1 + choices.below(usize::from(PORTS)) as u16)).collect();
    HostsConfig {
        draining,
        allows_draining: choices.below(4) > 0,
        forbidden,
        idle_timeout: Duration::from_secs(1 + choices.below(100) as u64),
    }
}

/// A leaf with a few other endpoints.
fn edited(leaf: &LeafConfig, choices: &mut Choices<'_>) -> Arc<LeafConfig> {
    let (mut priorities, mut hosts) = (leaf.priorities.clone(), leaf.hosts.clone());
    if choices.bool() {
        hosts.draining.clear();
    }
    for endpoints in priorities.iter_mut().flatten().map(|locality| &mut locality.endpoints) {
        let place = choices.below(endpoints.len() + 1);
        match choices.below(4) {
            0 => endpoints.insert(place, endpoint(choices)),
            1 if place < endpoints.len() => {
                let removed = endpoints.remove(place);
                if choices.bool() {
                    hosts.draining.push(removed);
                }
            }
            2 if place < endpoints.len() => endpoints[place] = endpoint(choices),
            _ => {}
        }
    }
    let outlier_detection = match choices.below(8) {
        0 => Some(outlier_detection(choices)),
        1 => None,
        _ => leaf.outlier_detection.clone(),
    };
    let mut leaf = LeafConfig { priorities, outlier_detection, hosts, ..leaf.clone() };
    // Otherwise, endpoints that have come get the security of the others.
    let next = if choices.below(6) == 0 { security(choices) } else { leaf.security.clone() };
    secure(&mut leaf, next);
    Arc::new(leaf)
}

fn outlier_detection(choices: &mut Choices<'_>) -> OutlierDetection {
    let percent = [0, 10, 50, 100];
    let success_rate = SuccessRate {
        stdev_factor: 500 * choices.below(4) as u32,
        enforcement_percent: [50, 100][choices.below(2)],
        minimum_hosts: choices.below(4) as u32,
        request_volume: choices.below(3) as u32,
    };
    let failure_percentage = FailurePercentage {
        threshold: percent[choices.below(4)],
        enforcement_percent: [50, 100][choices.below(2)],
        minimum_hosts: choices.below(3) as u32,
        request_volume: choices.below(3) as u32,
    };
    let mut seconds = |limit| Duration::from_secs(choices.below(limit) as u64);
    OutlierDetection {
        interval: Duration::from_secs(1) + seconds(3),
        base_ejection_time: seconds(10),
        max_ejection_time: seconds(60),
        max_ejection_percent: percent[choices.below(4)],
        success_rate: choices.bool().then_some(success_rate),
        failure_percentage: choices.bool().then_some(failure_percentage),
    }
}

/// The maximum percentage of ejected endpoints, if any can be ejected.
pub(super) fn max_ejection_percent(leaf: &LeafConfig) -> Option<usize> {
    let detection = leaf.outlier_detection.as_ref().filter(|_| is_petiole(leaf));
    let executed = detection.filter(|it| it.success_rate.is_some() || it.failure_percentage.is_some());
    executed.map(|it| it.max_ejection_percent.into())
}

fn locality(name: &str, choices: &mut Choices<'_>) -> LocalityConfig {
    let endpoints = (0..choices.below(4)).map(|_| endpoint(choices)).collect();
    LocalityConfig::new(Locality::new(name, "", ""), 1 + choices.below(9) as u32, endpoints)
}

fn endpoint(choices: &mut Choices<'_>) -> EndpointConfig {
    let first = 1 + choices.below(usize::from(PORTS)) as u16;
    let mut addresses = vec![address(first)];
    if choices.below(6) == 0 {
        addresses.push(address(1 + first % PORTS));
    }
    let hostname = (choices.below(4) == 0).then(|| "shop.example".into());
    // Several endpoints may have the same key.
    let hash_key = (choices.below(6) == 0).then(|| "key".into());
    let proxy = (choices.below(6) == 0).then(|| address(9));
    let identity = Identity::new(proxy, Security::Plaintext);
    EndpointConfig { addresses, identity, weight: 1 + choices.below(3) as u32, hostname, hash_key }
}

/// The leaves of a target, the preferred one first.
pub(super) fn leaves<'a>(configs: &'a ClusterConfigs, target: &str) -> &'a [Arc<str>] {
    match configs.targets.get(target) {
        Some(ClusterConfig::Leaves(leaves)) => leaves,
        Some(ClusterConfig::Gone(_) | ClusterConfig::Unusable(_) | ClusterConfig::Unknown(_)) | None => &[],
    }
}

/// The sets of destinations of a priority's endpoints.
pub(super) fn endpoints(localities: &[LocalityConfig]) -> impl Iterator<Item = BTreeSet<Destination>> {
    let endpoints = localities.iter().flat_map(|locality| &locality.endpoints);
    endpoints.map(|endpoint| endpoint.destinations().collect())
}

/// The endpoint that cookies lead to by an address, and whether they may; the first one that is listed.
pub(super) fn host(leaf: &LeafConfig, address: SocketAddr) -> Option<(&EndpointConfig, bool)> {
    let HostsConfig { draining, allows_draining, forbidden, .. } = &leaf.hosts;
    let usable = leaf.priorities.iter().flatten().flat_map(|locality| &locality.endpoints);
    let usable = usable.map(|it| (it, !forbidden.contains(&it.addresses[0])));
    let mut all = usable.chain(draining.iter().map(|it| (it, *allows_draining)));
    all.find(|(endpoint, _)| endpoint.addresses.contains(&address))
}

/// All addresses of a leaf.
pub(super) fn addresses(leaf: &LeafConfig) -> BTreeSet<SocketAddr> {
    let all = leaf.priorities.iter().flat_map(|localities| endpoints(localities));
    all.flatten().map(|it| it.address).collect()
}

/// Whether endpoints are connected as calls need them.
pub(super) fn is_ring(leaf: &LeafConfig) -> bool {
    leaf.policy.policy.connects_on_demand()
}

/// Whether each endpoint has a connection of its own, or only one is connected of all.
pub(super) fn is_petiole(leaf: &LeafConfig) -> bool {
    !leaf.policy.policy.shares_connection()
}
