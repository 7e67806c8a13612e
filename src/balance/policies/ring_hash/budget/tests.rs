use super::*;
use crate::{
    balance::{
        identity::{Identity, Security},
        locality_config::{EndpointConfig, LocalityConfig},
        policies::{EndpointPolicy, Policy, PolicyLimits},
        policy::{ClusterPolicy, HostsConfig, LeafConfig},
    },
    resource::Locality,
};

fn endpoint(port: u16, weight: u32) -> EndpointConfig {
    EndpointConfig {
        addresses: vec![([127, 0, 0, 1], port).into()],
        identity: Identity::default(),
        weight,
        hostname: None,
        hash_key: None,
    }
}

/// A cluster under ring_hash, whose localities have so many endpoints.
fn rings(by_locality: bool, cap: u32, priorities: &[&[usize]]) -> LeafConfig {
    let locality = |count: &usize| {
        let endpoints = (1..=*count as u16).map(|port| endpoint(port, 1)).collect();
        LocalityConfig::new(Locality::new("a", "", ""), 1, endpoints)
    };
    let sizes = RingSizes { min: 1_024, max: 4_096 };
    let ring = RingHash { sizes, cluster_entries: u32::MAX, request_hash_header: None };
    let limits = PolicyLimits { table_entries: 4_096, cluster_table_entries: cap };
    let policy = Policy::RingHash(ring.limited(&limits));
    LeafConfig {
        policy: ClusterPolicy { policy, by_locality },
        priorities: priorities.iter().map(|localities| localities.iter().map(locality).collect()).collect(),
        listed: None,
        drops: [].into(),
        max_requests: 1_024,
        max_connections: 1,
        outlier_detection: None,
        service_name: "eds".into(),
        note: None,
        unusable: None,
        is_dns: false,
        security: Security::default(),
        hosts: HostsConfig::default(),
        load: None,
        service: None,
    }
}

/// The ring_hash of a cluster, and its budget.
fn budget(config: &LeafConfig) -> (&RingHash, Option<RingBudget>) {
    let Policy::RingHash(ring) = &config.policy.policy else { panic!() };
    (ring, RingBudget::of(ring, config.lists()))
}

/// The entries of all rings of a cluster.
fn entries(config: &LeafConfig) -> f64 {
    let (ring, budget) = budget(config);
    let by_locality = config.policy.by_locality;
    let lists = config.priorities.iter().flat_map(|localities| EndpointList::all(0, localities, by_locality));
    let entries = |list: EndpointList<'_>| {
        let weights: Vec<_> = list.weighted().into_iter().map(|(_, weight)| weight).collect();
        let sizes = budget.map_or(ring.sizes, |budget| budget.sizes(weights.len()));
        sizes.scale(weights.into_iter()).ceil()
    };
    lists.map(entries).sum()
}

#[test]
fn ch3_30_the_rings_of_a_cluster_have_its_maximum_of_entries_together() {
    let ones = [1; 1_000];
    assert_eq!(entries(&rings(true, u32::MAX, &[&ones])), 1_024_000.0, "without a maximum");
    assert_eq!(entries(&rings(true, 65_536, &[&ones])), 65_000.0);
    assert_eq!(entries(&rings(true, 65_536, &[&ones[..500], &ones[..500]])), 65_000.0, "of all priorities");
    let most = [1; 10_000];
    assert_eq!(entries(&rings(true, 4_096, &[&most])), 10_000.0, "each has one at least");
}

#[test]
fn ch3_30_rings_up_to_the_maximum_are_those_of_grpc() {
    for config in [
        rings(true, 65_536, &[&[1; 64]]),
        rings(true, 65_536, &[&[1_024; 64]]),
        rings(false, 0, &[&[1; 4_000]]),
        rings(false, 65_536, &[&[5_000], &[5_000], &[5_000]]),
        rings(true, 0, &[&[]]),
    ] {
        assert_eq!(budget(&config).1, None);
    }
    assert!(budget(&rings(true, 65_536, &[&[1; 65]])).1.is_some());
}

#[test]
fn ch3_30_above_the_maximum_entries_are_in_proportion_to_the_endpoints_of_a_ring() {
    let budget = budget(&rings(true, 4_096, &[&[30, 10, 1, 1, 1, 0]])).1.unwrap();
    let sizes = |min, max| RingSizes { min, max };
    assert_eq!(budget.sizes(30), sizes(1_024, 2_857));
    assert_eq!([budget.sizes(10), budget.sizes(1)], [sizes(952, 952), sizes(95, 95)]);
    assert_eq!(budget.sizes(0), sizes(1, 1));
}
