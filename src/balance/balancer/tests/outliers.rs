//! Ejections by outlier detection, and what picks find then.

use super::*;
use crate::resource::{OutlierDetection, outlier::FailurePercentage};

/// More than half of the attempts in 10 s must have failed, and the first ejection lasts 30 s.
fn detection() -> OutlierDetection {
    OutlierDetection {
        interval: Duration::from_secs(10),
        base_ejection_time: Duration::from_secs(30),
        max_ejection_time: Duration::from_secs(300),
        max_ejection_percent: 100,
        success_rate: None,
        failure_percentage: Some(FailurePercentage {
            threshold: 50,
            enforcement_percent: 100,
            minimum_hosts: 1,
            request_volume: 1,
        }),
    }
}

pub(super) fn detected(leaf: &Arc<LeafConfig>) -> Arc<LeafConfig> {
    Arc::new(LeafConfig { outlier_detection: Some(detection()), ..(**leaf).clone() })
}

pub(super) fn detecting(policy: ClusterPolicy, priorities: &[&[u16]]) -> ClusterConfigs {
    let mut configs = shop(policy, priorities);
    configs.leaves.values_mut().for_each(|leaf| *leaf = detected(leaf));
    configs
}

impl Fixture {
    /// Makes 40 attempts, which fail on some endpoints.
    pub(super) fn attempts(&mut self, bad: &[u16]) {
        for _ in 0..40 {
            let Pick::Complete(mut attempt) = self.pick("shop") else { panic!() };
            attempt.on_stream();
            if !bad.contains(&attempt.endpoint.address.port()) {
                attempt.on_ok();
            }
        }
    }

    /// The ports that picks lead to.
    fn used(&mut self) -> Vec<u16> {
        self.ports().into_keys().collect()
    }

    fn is_as_connected(&self) -> bool {
        self.drained.is_empty() && self.attempts.is_empty()
    }
}

#[test]
fn ch3_23_ch3_71_an_ejected_endpoint_is_not_picked_and_keeps_its_connection() {
    for policy in [ROUND_ROBIN, LEAST_REQUEST] {
        let mut it = Fixture::new(detecting(policy, &[&[1, 2, 3]]));
        it.connect_all();
        it.attempts(&[1]);
        it.wait(9);
        assert_eq!(it.used(), [1, 2, 3]);
        it.wait(1);
        assert_eq!(it.used(), [2, 3]);
        // The sweep in which the time is over is not the first one after it.
        it.wait(30);
        assert_eq!(it.used(), [2, 3]);
        it.wait(10);
        assert_eq!(it.used(), [1, 2, 3]);
        assert!(it.is_as_connected());
    }
}

#[test]
fn ch3_71_an_ejected_endpoint_stays_ejected_when_it_connects_again() {
    let mut it = Fixture::new(detecting(ROUND_ROBIN, &[&[1, 2]]));
    it.connect_all();
    it.attempts(&[1]);
    it.wait(10);
    it.lose(1);
    assert_eq!(it.attempted(), [1], "the connection goes on as without an ejection");
    it.connect(1);
    assert_eq!(it.used(), [2]);
    it.lose(1);
    it.wait(40);
    assert_eq!(it.used(), [2], "what the connection says is that there is none");
    it.connect(1);
    assert_eq!(it.used(), [1, 2]);
}

#[test]
fn ch3_72_with_all_endpoints_ejected_the_next_priority_is_used() {
    let mut it = Fixture::new(detecting(ROUND_ROBIN, &[&[1, 2], &[3]]));
    it.connect_all();
    it.attempts(&[1, 2]);
    it.wait(10);
    assert_eq!(it.attempted(), [3]);
    it.connect(3);
    assert_eq!(it.used(), [3]);
    it.wait(40);
    assert_eq!(it.used(), [1, 2]);
    assert!(it.is_as_connected());
}

#[test]
fn ch3_72_calls_fail_with_the_number_of_ejected_endpoints() {
    let mut it = Fixture::new(detecting(ROUND_ROBIN, &[&[1, 2]]));
    it.connect_all();
    it.attempts(&[1, 2]);
    it.wait(10);
    let ejected = "cluster shop: no endpoint can be reached, 2 of 2 are ejected by outlier detection";
    assert_eq!(it.reason(), ejected);
    it.lose(1);
    it.fail(1);
    assert_eq!(it.reason(), format!("{ejected}, the latest error is: 127.0.0.1:1: refused"));
    it.lose(2);
    it.fail(2);
    it.wait(40);
    assert_eq!(
        it.reason(),
        "cluster shop: no endpoint can be reached, the latest error is: 127.0.0.1:2: refused"
    );
}

#[test]
fn ch3_72_pick_first_standing_alone_counts_nothing() {
    for by_locality in [false, true] {
        let pick_first = ClusterPolicy { by_locality, ..PICK_FIRST };
        let mut it = Fixture::new(detecting(pick_first, &[&[1]]));
        it.connect_all();
        it.attempts(&[1]);
        assert_eq!(it.balancer.poll_timeout(), None);
        assert_eq!(it.used(), [1]);
    }
}

#[test]
fn ch3_64_an_ejection_outlives_changes_of_the_list() {
    let mut it = Fixture::new(detecting(ROUND_ROBIN, &[&[1, 2, 3]]));
    it.connect_all();
    it.attempts(&[1]);
    it.wait(10);
    // A change of few endpoints, of the order, and of the priorities.
    it.update(detecting(ROUND_ROBIN, &[&[1, 2, 3, 4]]));
    it.connect_all();
    assert_eq!(it.used(), [2, 3, 4]);
    it.update(detecting(ROUND_ROBIN, &[&[4, 1]]));
    assert_eq!(it.used(), [4]);
    it.update(detecting(ROUND_ROBIN, &[&[4], &[1]]));
    it.lose(4);
    it.fail(4);
    it.connect_all();
    assert!(it.reason().contains("1 of 1 are ejected"), "{}", it.reason());
    // One that was removed is another one when it comes back.
    it.update(detecting(ROUND_ROBIN, &[&[4]]));
    it.update(detecting(ROUND_ROBIN, &[&[4, 1]]));
    it.connect_all();
    assert!(it.used().contains(&1));
}

#[test]
fn ch3_66_without_an_algorithm_ejections_end_at_once_and_nothing_is_due() {
    let mut it = Fixture::new(detecting(ROUND_ROBIN, &[&[1, 2]]));
    it.connect_all();
    it.attempts(&[1]);
    it.wait(10);
    assert_eq!(it.used(), [2]);
    it.update(shop(ROUND_ROBIN, &[&[1, 2]]));
    assert_eq!((it.used(), it.balancer.poll_timeout()), (vec![1, 2], None));
    let Pick::Complete(attempt) = it.pick("shop") else { panic!() };
    assert_eq!(attempt.endpoint.outcomes(), None);
    drop(attempt);
    it.update(detecting(ROUND_ROBIN, &[&[1, 2]]));
    let Pick::Complete(attempt) = it.pick("shop") else { panic!() };
    assert_eq!(attempt.endpoint.outcomes(), Some((0, 0)), "present endpoints are counted from now on");
    assert_eq!(it.balancer.poll_timeout(), Some(it.now + Duration::from_secs(10)));
    assert!(it.is_as_connected());
}

#[test]
fn ch3_60_each_leaf_of_an_aggregate_has_ejections_of_its_own() {
    let leaf = |port| leaf(ROUND_ROBIN, vec![vec![locality("a", 1, &[port])]]);
    let (one, two) = (detected(&leaf(1)), leaf(2));
    let mut it = Fixture::new(configs(&[("one", one), ("two", two)], &[("shop", &["one", "two"])]));
    it.connect_all();
    it.attempts(&[1]);
    it.wait(10);
    it.connect(2);
    it.attempts(&[2]);
    it.wait(20);
    assert_eq!(it.used(), [2], "the second leaf has no outlier detection");
    it.wait(20);
    assert_eq!(it.used(), [1]);
}

#[test]
fn ch3_67_ch11_7_pickers_follow_the_last_slice_of_a_sweep_and_other_changes_at_once() {
    let picker = |it: &Fixture| Arc::as_ptr(&it.pickers["shop"]);
    for lost_after in 1.. {
        let configs = detecting(ROUND_ROBIN, &[&[1, 2, 3, 4]]);
        let mut it = Fixture::with(configs, |settings| settings.sweep_slice = 1);
        it.connect_all();
        it.attempts(&[1, 2]);
        let before = picker(&it);
        it.now += Duration::from_secs(10);
        for slice in 1.. {
            it.balancer.handle_timeout(it.now);
            let used = it.used();
            if it.balancer.poll_timeout() > Some(it.now) {
                assert!(slice > 8, "{slice} slices");
                let (expected, has_lost) =
                    if slice > lost_after { (&[3][..], true) } else { (&[3, 4][..], false) };
                assert_eq!(used, expected);
                if has_lost {
                    break;
                }
                return;
            }
            if slice < lost_after {
                assert_eq!((used, picker(&it)), (vec![1, 2, 3, 4], before));
            } else if slice == lost_after {
                it.lose(4);
            } else {
                assert!(!used.contains(&4), "{used:?}");
            }
            it.now += Duration::from_millis(1);
        }
    }
}

#[test]
fn ch3_64_an_update_between_slices_of_a_sweep_loses_no_ejection() {
    for updated_after in 0..16 {
        let configs = detecting(ROUND_ROBIN, &[&[1, 2, 3, 4]]);
        let mut it = Fixture::with(configs, |settings| settings.sweep_slice = 1);
        it.connect_all();
        it.attempts(&[1, 2]);
        it.now += Duration::from_secs(10);
        for _ in 0..updated_after {
            it.balancer.handle_timeout(it.now);
        }
        // A change of one endpoint, and then one of all.
        it.update(detecting(ROUND_ROBIN, &[&[1, 5, 3, 4]]));
        it.connect_all();
        it.balancer.handle_timeout(it.now);
        it.update(detecting(ROUND_ROBIN, &[&[5, 4], &[3, 1]]));
        it.connect_all();
        it.wait(0);
        assert_eq!(it.used(), [4, 5], "after {updated_after} slices");
        it.lose(4);
        it.lose(5);
        it.fail(4);
        it.fail(5);
        it.connect_all();
        assert_eq!(it.used(), [3], "1 is ejected, after {updated_after} slices");
    }
}
