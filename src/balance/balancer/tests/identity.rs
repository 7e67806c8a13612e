//! Connections are of an identity: the proxy before their endpoint, and their security (CH7.20).

use super::*;
use crate::balance::policies::ring_hash::{RingHash, ring::RingSizes};

fn proxied(port: u16) -> Identity {
    Identity::new(Some(address(port)), Security::Plaintext)
}

fn fallback() -> Identity {
    Identity::new(None, Security::Fallback)
}

/// The same clusters, whose endpoints at some ports have an identity.
fn with(configs: &ClusterConfigs, ports: &[u16], identity: &Identity) -> ClusterConfigs {
    let mut configs = configs.clone();
    for leaf in configs.leaves.values_mut() {
        let mut next = (**leaf).clone();
        let usable = next.priorities.iter_mut().flatten().flat_map(|locality| &mut locality.endpoints);
        for endpoint in usable.chain(&mut next.hosts.draining) {
            if ports.contains(&endpoint.addresses[0].port()) {
                endpoint.identity = identity.clone();
            }
        }
        next.security = identity.security().clone();
        *leaf = Arc::new(next);
    }
    configs
}

fn ring() -> ClusterPolicy {
    let sizes = RingSizes { min: 8, max: 8 };
    ClusterPolicy {
        policy: Policy::RingHash(RingHash { sizes, cluster_entries: u32::MAX, request_hash_header: None }),
        by_locality: false,
    }
}

#[test]
fn ch7_20_ch13_9_an_update_of_the_identity_has_connections_of_its_own_and_the_ones_before_drain() {
    for policy in [ROUND_ROBIN, LEAST_REQUEST, PICK_FIRST] {
        for identity in [proxied(9), fallback()] {
            let plain = shop(policy.clone(), &[&[1]]);
            let mut it = Fixture::new(plain.clone());
            it.connect_all();
            let Pick::Complete(running) = it.pick("shop") else { panic!() };
            it.update(with(&plain, &[1], &identity));
            assert_eq!((it.drained.as_slice(), it.attempted()), (&[address(1)][..], vec![1]));
            assert!(matches!(it.pick("shop"), Pick::Queue), "no call goes by the connection before");
            it.connect(1);
            let Pick::Complete(next) = it.pick("shop") else { panic!() };
            assert_eq!(next.endpoint.destination(), Destination::new(address(1), identity.clone()));
            assert_eq!(running.endpoint.destination(), address(1).into());
            it.update(with(&plain, &[1], &identity));
            assert_eq!((it.drained.len(), it.attempted()), (1, vec![]), "an equal one changes nothing");
            it.update(plain);
            assert_eq!((it.drained.len(), it.attempted()), (2, vec![1]), "and back");
        }
    }
}

#[test]
fn ch7_20_an_equal_identity_keeps_connections_wherever_the_endpoint_is_listed() {
    let all = [1, 2, 3];
    let mut it = Fixture::new(with(&shop(ROUND_ROBIN, &[&[1, 2]]), &all, &proxied(9)));
    it.connect_all();
    it.update(with(&shop(ROUND_ROBIN, &[&[2], &[1]]), &all, &proxied(9)));
    assert_eq!((it.drained.as_slice(), it.attempted()), (&[][..], vec![]));
    it.update(with(&shop(LEAST_REQUEST, &[&[2, 1]]), &all, &proxied(9)));
    assert_eq!((it.drained.as_slice(), it.attempted()), (&[][..], vec![]));
    it.update(with(&shop(ROUND_ROBIN, &[&[2], &[1]]), &[1], &proxied(9)));
    assert_eq!((it.drained.as_slice(), it.attempted()), (&[address(2)][..], vec![2]), "1 alone is as before");
}

#[test]
fn ch7_20_one_of_many_endpoints_gets_another_identity() {
    let plain = shop(ROUND_ROBIN, &[&[1, 2, 3, 4, 5, 6]]);
    let mut it = Fixture::new(plain.clone());
    it.connect_all();
    let mut next = with(&plain, &[4], &proxied(9));
    it.update(next.clone());
    assert_eq!((it.drained.as_slice(), it.attempted()), (&[address(4)][..], vec![4]));
    assert!(!it.ports().contains_key(&4));
    it.connect(4);
    assert!(it.ports().contains_key(&4));
    next = with(&next, &[4], &proxied(8));
    it.update(next);
    assert_eq!((it.drained.len(), it.attempted()), (2, vec![4]));
}

#[test]
fn ch7_20_ch3_13_a_policy_before_is_not_used_when_the_next_one_has_other_identities() {
    let plain = shop(ROUND_ROBIN, &[&[1, 2]]);
    for (next, is_used) in [
        (shop(LEAST_REQUEST, &[&[3]]), true),
        (with(&shop(LEAST_REQUEST, &[&[3]]), &[3], &proxied(9)), true),
        (with(&shop(LEAST_REQUEST, &[&[3]]), &[3], &fallback()), false),
        (with(&shop(PICK_FIRST, &[&[3, 1, 2]]), &[1, 2], &proxied(9)), false),
        (with(&shop(ring(), &[&[1, 2]]), &[1, 2], &proxied(9)), false),
    ] {
        let mut it = Fixture::new(plain.clone());
        it.connect_all();
        it.update(next);
        let pick = it.pick("shop");
        assert_eq!(matches!(pick, Pick::Complete(_)), is_used, "{pick:?}");
        assert_eq!(it.drained.is_empty(), is_used);
    }
}

#[test]
fn ch7_20_ch3_13_a_policy_before_ends_with_a_later_update_of_identities() {
    let next = shop(LEAST_REQUEST, &[&[3]]);
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1, 2]]));
    it.connect_all();
    it.update(next.clone());
    assert_eq!(it.ports(), BTreeMap::from([(1, 20), (2, 20)]));
    it.update(with(&next, &[3], &fallback()));
    assert_eq!(it.drained, [address(1), address(2)]);
    assert!(matches!(it.pick("shop"), Pick::Queue));
}

#[test]
fn ch7_20_cookies_lead_to_connections_of_the_identity_alone() {
    let draining = |identity: &Identity| {
        let hosts = HostsConfig {
            draining: locality("a", 1, &[2]).endpoints,
            allows_draining: true,
            ..HostsConfig::default()
        };
        let leaf = LeafConfig { hosts, ..(*shop(ROUND_ROBIN, &[&[1]]).leaves["shop"]).clone() };
        with(&configs(&[("shop", Arc::new(leaf))], &[("shop", &["shop"])]), &[1, 2], identity)
    };
    let mut it = Fixture::new(ClusterConfigs::default());
    it.balancer.set_sessions(true, it.now);
    it.update(draining(&fallback()));
    it.connect_all();
    let led = |it: &mut Fixture| {
        let (Pick::Complete(attempt), _) = it.pick_session(&[2]) else { return None };
        Some(attempt.endpoint.destination())
    };
    assert_eq!(led(&mut it), None, "it is connected");
    it.connect(2);
    assert_eq!(led(&mut it), Some(Destination::new(address(2), fallback())));
    it.update(draining(&proxied(9)));
    it.drained.sort_unstable();
    assert_eq!(it.drained, [address(1), address(2)]);
    it.connect_all();
    assert_eq!(led(&mut it), None, "the connection before is of no use");
    it.connect(2);
    assert_eq!(led(&mut it), Some(Destination::new(address(2), proxied(9))));
}

#[test]
fn ch2_24_under_pick_first_the_hostname_is_that_of_the_connected_endpoint() {
    let mut configs = shop(PICK_FIRST, &[&[1, 2, 3]]);
    let mut leaf = (*configs.leaves["shop"]).clone();
    let endpoints = &mut leaf.priorities[0][0].endpoints;
    endpoints[0].hostname = Some("one".into());
    endpoints[1].hostname = Some("two".into());
    configs.leaves.insert("shop".into(), Arc::new(leaf));
    let mut it = Fixture::new(configs);
    let hostname = |it: &mut Fixture| {
        let Pick::Complete(attempt) = it.pick("shop") else { panic!() };
        attempt.endpoint.hostname.as_deref().map(str::to_owned)
    };
    for port in [1, 2, 3] {
        it.balancer.connect("shop", it.now);
        it.drain();
        (1..port).for_each(|failing| it.fail(failing));
        it.connect(port);
        assert_eq!(hostname(&mut it).as_deref(), [Some("one"), Some("two"), None][usize::from(port) - 1]);
        it.lose(port);
        it.wait(300);
    }
}
