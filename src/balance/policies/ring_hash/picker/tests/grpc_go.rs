//! The picks of grpc-go's ring_hash, which `tests/interop/rings` has written down.

use super::*;
use crate::balance::{
    locality_config::EndpointConfig,
    policies::{EndpointPolicy, EndpointState, PolicyLimits, PolicyState, ring_hash::RingHash},
};

/// A set of endpoints, and what is picked of it.
#[derive(Debug, Default)]
struct Set {
    sizes: Vec<u32>,
    endpoints: Vec<(EndpointConfig, u64)>,
    picks: Vec<usize>,
}

fn sets() -> Vec<Set> {
    let mut sets: Vec<Set> = Vec::new();
    for line in include_str!("grpc_go.txt").lines() {
        let (kind, rest) = line.split_once(' ').unwrap();
        let words: Vec<_> = rest.split(' ').collect();
        if kind == "ring" {
            let sizes = words.iter().map(|it| it.parse().unwrap()).collect();
            sets.push(Set { sizes, ..Set::default() });
            continue;
        }
        let set = sets.last_mut().expect("it begins with a ring");
        match (kind, &*words) {
            ("endpoint", [weight, key, addresses @ ..]) => {
                let endpoint = EndpointConfig {
                    addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
                    identity: crate::balance::identity::Identity::default(),
                    weight: 1,
                    hostname: None,
                    hash_key: (*key != "-").then(|| (*key).into()),
                };
                set.endpoints.push((endpoint, weight.parse().unwrap()));
            }
            ("picks", picks) => set.picks = picks.iter().map(|it| it.parse().unwrap()).collect(),
            other => panic!("{other:?}"),
        }
    }
    sets
}

#[test]
fn ch3_30_ch3_33_each_of_4000_picks_is_that_of_grpc_go() {
    let mut compared = 0;
    for set in sets() {
        let sizes = RingSizes { min: set.sizes[0], max: set.sizes[1] };
        let limits = PolicyLimits { table_entries: 4_096, cluster_table_entries: u32::MAX };
        let policy =
            RingHash { sizes, cluster_entries: u32::MAX, request_hash_header: None }.limited(&limits);
        let endpoints = set.endpoints.iter().map(|(endpoint, weight)| (endpoint, *weight));
        let mut state = policy.state_of(endpoints.collect(), policy.sizes, None);
        for index in 0..set.endpoints.len() {
            state.set_endpoint(index, || EndpointState::Ready(endpoint(index)));
        }
        let picker = super::super::super::tests::picker(&mut state);
        for (number, expected) in set.picks.iter().enumerate() {
            let (pick, _) = picker.pick_hashed(hash(number.to_string().as_bytes()));
            let RingPick::Endpoint(picked) = pick else { panic!("{pick:?}") };
            assert_eq!(picked.handle(), *expected, "hash {number} of {:?}", set.sizes);
            compared += 1;
        }
    }
    assert_eq!(compared, 4_000);
}
