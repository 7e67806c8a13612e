//! Which attempts to connect begin, and when: silent endpoints, endpoints that close what they accept, and too few file descriptors.

use std::collections::BTreeMap;

use super::*;
use crate::balance::{
    connect_request::ConnectRequest,
    policies::ring_hash::{RingHash, ring::RingSizes},
    policy::LeafConfig,
    simulation::network::{self, Behavior, Network, cluster},
};

const SECOND: Duration = Duration::from_secs(1);
const ANSWERS: Behavior = Behavior::Answers(Duration::from_millis(1));

fn network() -> Network {
    Network::new(BalancerSettings::with_seed(1))
}

/// A network with this cluster alone.
fn with_shop(leaf: LeafConfig) -> (Network, BTreeMap<&'static str, LeafConfig>) {
    let clusters = BTreeMap::from([("shop", leaf)]);
    (network(), clusters)
}

fn ring_hash() -> ClusterPolicy {
    let sizes = RingSizes { min: 64, max: 64 };
    let ring = RingHash { sizes, cluster_entries: u32::MAX, request_hash_header: None };
    ClusterPolicy { policy: Policy::RingHash(ring), by_locality: false }
}

fn seconds(times: &[Duration]) -> Vec<f64> {
    times.iter().map(Duration::as_secs_f64).collect()
}

/// Whether delays grow from the first one by 1.6, ± 20 %.
fn grow(delays: &[f64], first: f64) -> bool {
    let expected = std::iter::successors(Some(first), |delay| Some(delay * 1.6));
    delays.iter().zip(expected).all(|(delay, expected)| (delay / expected - 1.0).abs() < 0.21)
}

#[test]
fn ch11_8_the_failover_from_1_000_silent_endpoints_takes_10_s() {
    let (mut it, clusters) = with_shop(cluster(ROUND_ROBIN, &[(0..1_000).collect(), vec![2_000]]));
    it.set(0..1_000, Behavior::Silent);
    it.update(&clusters);
    let served = it.until_served("shop", 60 * SECOND).expect("priority 1 is used").as_secs_f64();
    assert!((9.0..11.0).contains(&served), "{served} s");
}

#[test]
fn ch11_8_an_endpoint_that_is_added_to_1_000_silent_ones_is_used_in_less_than_1_s() {
    // While the first attempts wait, when all have begun, and when attempts are repeated.
    for after in [0, 100, 700, 5_000, 20_000, 60_000] {
        let mut endpoints: Vec<_> = (0..1_000).collect();
        let (mut it, mut clusters) = with_shop(cluster(ROUND_ROBIN, &[endpoints.clone()]));
        it.set(0..1_000, Behavior::Silent);
        it.update(&clusters);
        it.pass(Duration::from_millis(after));
        endpoints.insert(500, 2_000);
        clusters.insert("shop", cluster(ROUND_ROBIN, &[endpoints]));
        it.update(&clusters);
        let served = it.until_served("shop", 60 * SECOND).expect("it is used");
        assert!(served < SECOND, "{served:?} after {after} ms");
    }
}

#[test]
fn ch11_8_silent_endpoints_of_a_cluster_delay_no_other_cluster() {
    for after in [0, 100, 20_000] {
        let (mut it, mut clusters) = with_shop(cluster(ROUND_ROBIN, &[(0..1_000).collect()]));
        it.set(0..1_000, Behavior::Silent);
        it.update(&clusters);
        it.pass(Duration::from_millis(after));
        clusters.insert("cart", cluster(ROUND_ROBIN, &[vec![2_000]]));
        it.update(&clusters);
        let served = it.until_served("cart", 60 * SECOND).expect("it is used");
        assert_eq!(served, Duration::from_millis(1), "after {after} ms");
    }
}

#[test]
fn ch11_8_the_endpoint_of_a_cookie_is_connected_at_once_beside_1_000_silent_ones() {
    let hosts = HostsConfig {
        draining: cluster(ROUND_ROBIN, &[vec![2_000]]).priorities[0][0].endpoints.clone(),
        allows_draining: true,
        ..HostsConfig::default()
    };
    let leaf = LeafConfig { hosts, ..cluster(ROUND_ROBIN, &[(0..1_000).collect()]) };
    let (mut it, clusters) = with_shop(leaf);
    it.set(0..1_000, Behavior::Silent);
    it.balancer.set_sessions(true, it.now);
    it.update(&clusters);
    it.pass(Duration::from_millis(100));
    let request = ConnectRequest::of_host(&"shop".into(), network::address(2_000));
    it.balancer.connect_endpoint(&request, it.now);
    it.pass(Duration::from_millis(1));
    assert!(it.connected().contains(&2_000));
}

#[test]
fn ch11_8_a_further_connection_is_attempted_at_once_beside_1_000_silent_endpoints() {
    let leaf = LeafConfig { max_connections: 2, ..cluster(ROUND_ROBIN, &[vec![2_000]]) };
    let (mut it, mut clusters) = with_shop(leaf);
    it.update(&clusters);
    assert_eq!(it.until_served("shop", SECOND), Some(Duration::from_millis(1)));
    it.set(0..1_000, Behavior::Silent);
    clusters.insert("cart", cluster(ROUND_ROBIN, &[(0..1_000).collect()]));
    it.update(&clusters);
    let (connection, streams) =
        it.connections.iter().next().map(|(id, (_, streams))| (*id, streams.clone())).unwrap();
    streams.set_limit(0);
    let endpoint = it.balancer.ready(connection).unwrap();
    let waiting = endpoint.connections.queue().wait().unwrap();
    it.balancer.on_full(connection, it.now);
    it.pass(Duration::from_millis(1));
    assert_eq!(it.connections.len(), 2);
    drop(waiting);
}

#[test]
fn ch3_3_an_endpoint_that_closes_after_settings_is_reconnected_with_backoff() {
    for policy in [ROUND_ROBIN, LEAST_REQUEST] {
        let (mut it, clusters) = with_shop(cluster(policy, &[vec![1, 2]]));
        it.set([1], Behavior::Closes);
        it.update(&clusters);
        it.pass(60 * SECOND);
        let times = seconds(&it.attempts_at(1));
        assert!((7..=11).contains(&times.len()), "{times:?}");
        assert!(times[1] - times[0] < 0.1, "the first replacement is attempted at once: {times:?}");
        let delays: Vec<_> = times[1..].windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(grow(&delays, 1.6), "{delays:?}");
        assert_eq!(it.attempts_at(2).len(), 1, "its neighbour is connected");
        assert_eq!(it.pick("shop"), Some(2));
    }
}

#[test]
fn ch3_3_calls_to_an_endpoint_that_closes_after_settings_do_not_shorten_the_delays() {
    for policy in [PICK_FIRST, ring_hash()] {
        let (mut it, clusters) = with_shop(cluster(policy, &[vec![1]]));
        it.set([1], Behavior::Closes);
        it.update(&clusters);
        for _ in 0..6_000 {
            it.pick("shop");
            it.pass(Duration::from_millis(10));
        }
        let times = seconds(&it.attempts_at(1));
        assert!((7..=11).contains(&times.len()), "{times:?}");
        let delays: Vec<_> = times[1..].windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(grow(&delays, 1.6), "{delays:?}");
    }
}

#[test]
fn ch3_3_several_addresses_that_close_after_settings_do_not_reset_each_others_delays() {
    let mut leaf = cluster(ROUND_ROBIN, &[vec![1]]);
    leaf.priorities[0][0].endpoints[0].addresses.push(network::address(2));
    let (mut it, clusters) = with_shop(leaf);
    it.set([1, 2], Behavior::Closes);
    it.update(&clusters);
    it.pass(60 * SECOND);
    assert!(it.begun.len() <= 22, "{:?}", it.begun);
    it.set([2], ANSWERS);
    assert!(it.until_served("shop", 120 * SECOND).is_some());
}

#[test]
fn ch3_3_calls_fail_with_the_reason_while_a_connection_that_was_lost_at_once_is_delayed() {
    let (mut it, clusters) = with_shop(cluster(ROUND_ROBIN, &[vec![1], vec![2]]));
    it.set([1], Behavior::Closes);
    it.update(&clusters);
    assert!(it.until_served("shop", SECOND).is_some(), "the next priority is used");
    let status = &it.balancer.leaf_status(it.now)[0];
    assert_eq!(
        status.priorities[0].error.as_deref(),
        Some("10.0.0.1:80: the connection was lost again before it had carried a complete call")
    );
}

#[test]
fn ch3_3_a_server_that_has_served_a_call_is_reconnected_at_once_again_and_again() {
    let (mut it, clusters) = with_shop(cluster(ROUND_ROBIN, &[vec![1]]));
    it.update(&clusters);
    for restarts in 1..20 {
        it.pass(Duration::from_millis(1));
        assert_eq!(it.call("shop"), Some(1));
        it.lose(1);
        assert_eq!(it.attempts_at(1).len(), restarts + 1);
    }
}

#[test]
fn ch3_3_a_connection_that_lives_for_the_delay_resets_it_without_a_call() {
    let (mut it, clusters) = with_shop(cluster(ROUND_ROBIN, &[vec![1]]));
    it.update(&clusters);
    for restarts in 1..20 {
        it.pass(Duration::from_millis(1_250));
        it.lose(1);
        assert_eq!(it.attempts_at(1).len(), restarts + 1, "at once");
    }
    it.pass(Duration::from_millis(100));
    it.lose(1);
    it.pass(Duration::from_millis(100));
    it.lose(1);
    assert_eq!(it.attempts_at(1).len(), 21, "the second one in a row waits");
    it.balancer.reset_backoff(it.now);
    it.drain();
    assert_eq!(it.attempts_at(1).len(), 22);
}

#[test]
fn ch3_2_after_an_outage_the_attempts_to_each_backend_begin_when_those_of_grpc_do() {
    let backends: Vec<_> = (1..=5).collect();
    let (mut it, clusters) = with_shop(cluster(ROUND_ROBIN, std::slice::from_ref(&backends)));
    it.update(&clusters);
    it.pass(10 * SECOND);
    it.set(backends.clone(), Behavior::Refuses);
    let lost_at = it.now - it.start;
    backends.iter().for_each(|backend| it.lose(*backend));
    it.pass(20 * SECOND);
    for backend in backends {
        let since = |time: &Duration| (*time - lost_at).as_secs_f64();
        let times: Vec<_> = it.attempts_at(backend)[1..].iter().map(since).collect();
        assert!(times[0] < 0.001, "at once");
        let delays: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(delays.len() >= 4 && grow(&delays, 1.0), "{delays:?}");
    }
}

#[test]
fn ch3_2_a_call_that_waits_after_an_outage_is_served_by_the_first_attempt_that_is_due() {
    let backends: Vec<_> = (1..=20).collect();
    let (mut it, clusters) = with_shop(cluster(ROUND_ROBIN, std::slice::from_ref(&backends)));
    it.set(backends.clone(), Behavior::Refuses);
    it.update(&clusters);
    it.pass(Duration::from_millis(100));
    it.set(backends, ANSWERS);
    let served = it.until_served("shop", 60 * SECOND).unwrap().as_secs_f64();
    assert!((0.65..0.95).contains(&served), "the earliest of 20 delays of 1 s ± 20 %: {served} s");
}

#[test]
fn ch11_8_the_lack_of_descriptors_by_one_cluster_does_not_starve_another_one() {
    // Five descriptors, which the silent endpoints of a cluster hold and want again.
    let (mut it, mut clusters) = with_shop(cluster(ROUND_ROBIN, &[(0..50).collect()]));
    it.set(0..50, Behavior::Silent);
    it.descriptors = 5;
    it.update(&clusters);
    it.pass(Duration::from_millis(500));
    clusters.insert("cart", cluster(ROUND_ROBIN, &[vec![2_000]]));
    it.update(&clusters);
    let served = it.until_served("cart", 120 * SECOND).expect("it gets one of the descriptors");
    assert!(served < 22 * SECOND, "{served:?}: they are free after 20 s");
}

#[test]
fn ch11_8_without_descriptors_lost_connections_are_replaced_after_clusters_that_have_none() {
    let (mut it, mut clusters) = with_shop(cluster(ROUND_ROBIN, &[(0..50).collect()]));
    it.descriptors = 50;
    it.update(&clusters);
    it.pass(10 * SECOND);
    clusters.insert("cart", cluster(ROUND_ROBIN, &[vec![2_000]]));
    it.update(&clusters);
    it.pass(100 * SECOND);
    assert_eq!(it.pick("cart"), None);
    assert!(it.attempts_at(2_000).len() > 60, "the delay does not grow: no endpoint is at fault");
    it.lose(7);
    assert!(it.until_served("cart", 2 * SECOND).is_some(), "it has the next descriptor");
    assert!(!it.connected().contains(&7));
}
