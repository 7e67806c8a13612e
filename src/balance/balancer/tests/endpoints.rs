//! What picks find among the endpoints of a cluster.

use super::*;
use crate::balance::{
    policies::custom::{Custom, tests::by_path},
    policy::Drop as DropShare,
};

#[test]
fn ch3_11_a_priority_is_ready_or_connecting_if_any_endpoint_is_and_fails_with_the_last_one() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1, 2, 3]]));
    assert!(matches!(it.pick("shop"), Pick::Queue));
    it.fail(1);
    it.fail(2);
    assert!(matches!(it.pick("shop"), Pick::Queue), "3 is connecting");
    it.connect(3);
    assert_eq!(it.ports(), BTreeMap::from([(3, 40)]));
    it.lose(3);
    it.fail(3);
    let Pick::Fail(reason) = it.pick("shop") else { panic!() };
    assert_eq!(
        &*reason,
        "cluster shop: no endpoint can be reached, the latest error is: 127.0.0.1:3: refused"
    );
}

#[test]
fn ch3_24_an_endpoint_is_the_set_of_its_addresses() {
    let with = |addresses: &[u16]| {
        let mut list = locality("a", 1, &[addresses[0]]);
        list.endpoints[0].addresses = addresses.iter().copied().map(address).collect();
        configs(&[("shop", leaf(LEAST_REQUEST, vec![vec![list]]))], &[("shop", &["shop"])])
    };
    let mut it = Fixture::new(with(&[1, 2]));
    it.connect(1);
    let Pick::Complete(running) = it.pick("shop") else { panic!() };
    it.update(with(&[2, 1]));
    let Pick::Complete(after) = it.pick("shop") else { panic!() };
    assert_eq!(running.endpoint.load.running(), 2, "another order is the same endpoint");
    it.update(with(&[3, 1]));
    let Pick::Complete(other) = it.pick("shop") else { panic!() };
    assert_eq!(
        (other.endpoint.address, other.endpoint.load.running()),
        (address(1), 1),
        "another set is another one"
    );
    assert_eq!(
        (it.drained.as_slice(), after.endpoint.load.running()),
        (&[][..], 2),
        "its address keeps the connection"
    );
}

#[test]
fn ch3_39_ch13_7_a_reconnected_endpoint_keeps_its_count() {
    let mut it = Fixture::new(shop(LEAST_REQUEST, &[&[1]]));
    it.connect(1);
    let running: Vec<_> = (0..5).map(|_| it.pick("shop")).collect();
    it.lose(1);
    it.connect(1);
    let Pick::Complete(attempt) = it.pick("shop") else { panic!() };
    assert_eq!(attempt.endpoint.load.running(), 6, "those of the connection before have not ended");
    drop(running);
    assert_eq!(attempt.endpoint.load.running(), 1);
}

#[test]
fn ch3_48_each_locality_has_the_endpoint_policy_of_its_own() {
    let localities = vec![locality("a", 1, &[1, 2]), locality("b", 1, &[3, 4])];
    let first = ClusterPolicy { policy: Policy::PickFirst(PickFirst { shuffle: false }), by_locality: true };
    for (policy, ready) in [(first, [1, 3].as_slice()), (ROUND_ROBIN, &[1, 2, 3, 4])] {
        let leaves = [("shop", leaf(policy, vec![localities.clone()]))];
        let mut it = Fixture::new(configs(&leaves, &[("shop", &["shop"])]));
        it.connect_all();
        assert_eq!(it.ports().keys().copied().collect::<Vec<_>>(), ready);
    }
}

#[test]
fn ch4_6_an_attempt_counts_from_its_pick_to_its_end() {
    let mut config = leaf(ROUND_ROBIN, vec![vec![locality("a", 1, &[1])]]);
    Arc::get_mut(&mut config).expect("nobody else has it").max_requests = 2;
    let mut it = Fixture::new(configs(&[("shop", config)], &[("shop", &["shop"])]));
    assert!((0..5).all(|_| matches!(it.pick("shop"), Pick::Queue)), "calls that wait do not count");
    it.connect(1);
    let running = [it.pick("shop"), it.pick("shop")];
    assert!(running.iter().all(|pick| matches!(pick, Pick::Complete(_))));
    assert!(matches!(it.pick("shop"), Pick::Drop(..)));
    it.lose(1);
    assert!(matches!(it.pick("shop"), Pick::Drop(..)), "a stream counts until it has ended");
    drop(running);
    assert!(matches!(it.pick("shop"), Pick::Queue));
}

#[test]
fn ch2_20_drops_come_before_the_breaker_and_both_before_the_endpoints() {
    let limited = |per_million| {
        let mut config = leaf(ROUND_ROBIN, vec![vec![locality("a", 1, &[1])]]);
        let it = Arc::get_mut(&mut config).expect("nobody else has it");
        it.drops = [DropShare { category: "all".into(), per_million }].into();
        it.max_requests = 0;
        configs(&[("shop", config)], &[("shop", &["shop"])])
    };
    for (per_million, expected) in [(1_000_000, "overload category all"), (0, "circuit breaker")] {
        let mut it = Fixture::new(limited(per_million));
        let Pick::Drop(_, reason) = it.pick("shop") else { panic!() };
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn ch1_25_an_event_publishes_the_picker_of_its_cluster_alone() {
    let one = |port| leaf(ROUND_ROBIN, vec![vec![locality("a", 1, &[port])]]);
    let leaves = [("shop", one(1)), ("cart", one(2))];
    let mut it = Fixture::new(configs(&leaves, &[("shop", &["shop"]), ("cart", &["cart"])]));
    it.pickers.clear();
    it.connect(2);
    assert_eq!(it.pickers.keys().map(|name| &**name).collect::<Vec<_>>(), ["cart"]);
    it.pickers.clear();
    it.drain();
    assert!(it.pickers.is_empty());
}

#[test]
fn ch3_63_a_policy_of_the_application_is_replaced_by_failure_when_it_panics() {
    let policy = ClusterPolicy { policy: Policy::Custom(Custom(by_path())), by_locality: false };
    let mut it = Fixture::new(shop(policy.clone(), &[&[1, 2], &[3]]));
    it.connect_all();
    let Pick::Complete(attempt) = it.pick_for("shop", "/1") else { panic!() };
    assert_eq!((attempt.endpoint.address, attempt.metadata.len()), (address(2), 1));
    let Pick::Broken(reason) = it.pick_for("shop", "/panic") else { panic!() };
    assert_eq!(&*reason, "cluster shop: the load balancing policy panicked");
    it.balancer.connect("shop", it.now);
    it.drain();
    assert_eq!(it.attempted(), [3], "the next priority");
    it.connect(3);
    let Pick::Complete(attempt) = it.pick_for("shop", "/0") else { panic!() };
    assert_eq!(attempt.endpoint.address, address(3));
    it.update(shop(policy, &[&[1, 2]]));
    assert!(matches!(it.pick_for("shop", "/0"), Pick::Complete(_)), "until the next configuration");
}

#[test]
fn ch3_52_a_policy_that_is_not_in_wrr_locality_has_all_localities_in_one_list() {
    let flat = ClusterPolicy { policy: Policy::RoundRobin(RoundRobin), by_locality: false };
    let localities = vec![locality("a", 90, &[1]), locality("b", 10, &[2, 3])];
    let leaves = [("shop", leaf(flat, vec![localities]))];
    let mut it = Fixture::new(configs(&leaves, &[("shop", &["shop"])]));
    it.connect_all();
    let picks: Vec<_> = (0..6).map(|_| it.picked("shop").port()).collect();
    assert_eq!(picks[..3], picks[3..], "in turn, whatever the weights of the localities");
    assert_eq!(picks.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2, 3]));
}

#[test]
fn ch3_53_calls_do_not_spill_to_the_next_priority_while_one_endpoint_is_ready() {
    let limit = |settings: &mut BalancerSettings| settings.max_concurrent_connects = 8;
    let mut it = Fixture::with(shop(ROUND_ROBIN, &[&[1, 2, 3, 4], &[5]]), limit);
    it.connect(1);
    (2..=4).for_each(|port| it.fail(port));
    assert_eq!((it.ports(), it.attempted()), (BTreeMap::from([(1, 40)]), vec![]));
}

#[test]
fn ch1_26_ch3_59_an_update_of_all_priorities_publishes_one_picker() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1, 2], &[3, 4]]));
    it.connect_all();
    it.balancer.replace(shop(ROUND_ROBIN, &[&[3, 2], &[1, 5], &[4]]), it.now);
    let pickers: Vec<_> = std::iter::from_fn(|| it.balancer.poll_picker(it.now)).collect();
    assert_eq!(pickers.len(), 1);
    assert!(it.balancer.poll_picker(it.now).is_none());
}

#[test]
fn ch3_40_least_request_connects_like_round_robin() {
    let least =
        ClusterPolicy { policy: Policy::LeastRequest(LeastRequest { choice_count: 2 }), by_locality: true };
    let mut it = Fixture::new(shop(least, &[&[1, 2, 3]]));
    it.connect_all();
    assert_eq!(it.ports().len(), 3, "each is drawn");
    it.lose(2);
    assert_eq!(it.attempted(), [2], "a lost connection is replaced at once");
    assert_eq!(it.ports().len(), 2);
}

#[test]
fn ch1_9_a_note_is_a_part_of_failures_and_changes_no_endpoint() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1, 2]]));
    it.connect_all();
    let noted = |note: Option<&str>| {
        let config = leaf(ROUND_ROBIN, vec![vec![locality("a", 1, &[1, 2])]]);
        let mut config = Arc::try_unwrap(config).unwrap();
        config.note = note.map(Arc::from);
        configs(&[("shop", config.into())], &[("shop", &["shop"])])
    };
    it.update(noted(Some("the server is away")));
    assert_eq!(it.ports(), BTreeMap::from([(1, 20), (2, 20)]));
    assert!(it.drained.is_empty() && it.attempts.is_empty());
    for port in [1, 2] {
        it.lose(port);
        it.fail(port);
    }
    let failure = "cluster shop: no endpoint can be reached, the latest error is: 127.0.0.1:2: refused";
    let note = " (the configuration may be stale: the server is away)";
    assert_eq!(it.reason(), format!("{failure}{note}"));
    it.update(noted(None));
    assert_eq!(it.reason(), failure);
}

#[test]
fn ch11_11_a_cluster_whose_endpoints_are_connected_waits_for_nothing() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1, 2], &[3]]));
    it.fail(1);
    assert!(it.balancer.poll_timeout().is_some(), "it is in backoff");
    it.connect(2);
    it.wait(2);
    it.connect(1);
    assert_eq!((it.balancer.poll_timeout(), it.attempts.len()), (None, 0));
}
