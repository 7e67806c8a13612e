//! Which endpoints are tracked, and what other configurations change.

use super::*;
use crate::balance::policies::pick_first::PickFirst;

const BAD: (u32, u32) = (0, 10);

#[test]
fn ch3_64_an_endpoint_keeps_its_state_in_another_priority() {
    let mut it = Fixture::new(detection(), &[&[1, 2], &[3]]);
    it.sweep_after(&[BAD]);
    it.attempts(2, (0, 4));
    it.list(&[&[3], &[2, 1]]);
    it.attempts(2, (3, 0));
    assert_eq!(it.ejected(), [1]);
    // It is listed twice, and then once.
    it.list(&[&[1, 3], &[2, 1]]);
    it.list(&[&[1, 3], &[2]]);
    assert_eq!((it.ejected(), it.outliers.ejected().2), (vec![1], 3));
    assert_eq!(it.sweep(), ["2 failure_percentage"], "4 of 7 attempts failed");
}

#[test]
fn ch3_64_an_endpoint_is_the_set_of_its_addresses() {
    let mut it = Fixture::new(detection(), &[&[1]]);
    it.update(|config| config.priorities[0][0].endpoints[0].addresses = vec![address(2), address(1)]);
    let pair = [address(1), address(2)];
    (0..10).for_each(|_| it.outliers.tracked(&pair).unwrap().outcomes.on_failure());
    it.sweep();
    it.update(|config| config.priorities[0][0].endpoints[0].addresses.reverse());
    assert!(it.outliers.tracked(&pair).unwrap().is_ejected);
    it.update(|config| config.priorities[0][0].endpoints[0].addresses.truncate(1));
    assert!(it.outliers.tracked(&pair).is_none());
    assert!(it.ejected().is_empty(), "another set is another endpoint");
}

#[test]
fn ch3_64_endpoints_that_left_are_forgotten() {
    // No ejection ends during the test.
    let day = Duration::from_secs(24 * 3_600);
    let mut it = Fixture::new(OutlierDetection { base_ejection_time: day, ..detection() }, &[&[]]);
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..500 {
        let mut list = |count: usize| -> Vec<u16> { (0..count).map(|_| random.u16(1..20)).collect() };
        let lists = [list(5), list(3), list(5)];
        it.list(&[&lists[0], &lists[1], &lists[2]]);
        let mut expected = lists.concat();
        expected.sort_unstable();
        expected.dedup();
        expected.iter().for_each(|port| it.attempts(*port, BAD));
        it.sweep();
        let known: Vec<_> = it.outliers.endpoints.iter().map(|it| it.addresses()[0].port()).collect();
        assert_eq!((&known, it.ejected()), (&expected, expected.clone()));
    }
}

#[test]
fn ch3_71_ch13_1_an_ejected_endpoint_that_leaves_is_not_counted_as_ejected() {
    let mut it = Fixture::new(OutlierDetection { max_ejection_percent: 50, ..detection() }, &[&[1, 2]]);
    for round in 0..20 {
        assert_eq!(it.sweep_after(&[BAD, (10, 0)]), ["1 failure_percentage"], "round {round}");
        it.list(&[&[2]]);
        assert!(it.ejected().is_empty());
        it.list(&[&[1, 2]]);
        assert!(it.ejected().is_empty(), "it is a new one");
    }
}

#[test]
fn ch3_66_without_an_algorithm_nothing_is_kept_and_nothing_is_due() {
    let neither = OutlierDetection { failure_percentage: None, ..detection() };
    let it = Fixture::new(neither.clone(), &[&[1]]);
    assert_eq!((it.due(), it.outliers.tracked(&[address(1)]).is_none()), (None, true));
    for without in [Some(neither), None] {
        let mut it = Fixture::new(detection(), &[&[1, 2]]);
        it.sweep_after(&[BAD]);
        it.attempts(2, BAD);
        it.update(|config| config.outlier_detection = without);
        assert_eq!((it.due(), it.outliers.tracked(&[address(1)]).is_none()), (None, true));
        assert!(it.outliers.sweep(it.now, &mut it.random).is_empty());
        // What was counted before is cleared, and the multiplier is 0 again.
        it.now += Duration::from_secs(7);
        it.update(|config| config.outlier_detection = Some(detection()));
        assert_eq!((it.due(), it.ejected()), (Some(27), vec![]));
        assert!(it.sweep().is_empty());
        it.sweep_after(&[BAD]);
        assert_eq!((1..).find(|_| it.sweep() == ["1 back"]), Some(4));
    }
}

#[test]
fn ch3_66_another_interval_is_that_of_the_current_one() {
    let mut it = Fixture::new(detection(), &[&[1, 2]]);
    it.attempts(1, BAD);
    it.now += Duration::from_secs(7);
    let interval = |seconds| OutlierDetection { interval: Duration::from_secs(seconds), ..detection() };
    for (seconds, due) in [(30, 30), (8, 8), (5, 5)] {
        it.update(|config| config.outlier_detection = Some(interval(seconds)));
        assert_eq!(it.due(), Some(due), "from the beginning of the interval, which may be over already");
    }
    assert_eq!(texts(it.outliers.sweep(it.now, &mut it.random)), ["1 failure_percentage"], "counts are kept");
    assert_eq!(it.due(), Some(12));
    // An interval of 0 is not always due.
    it.update(|config| config.outlier_detection = Some(interval(0)));
    assert!(it.outliers.poll_timeout() > Some(it.now));
    it.update(|config| config.outlier_detection = Some(interval(u64::MAX)));
    assert_eq!(it.due(), None);
}

#[test]
fn ch3_72_pick_first_standing_alone_is_not_ejected() {
    for by_locality in [false, true] {
        let mut it = Fixture::new(detection(), &[&[1, 2]]);
        it.sweep_after(&[BAD]);
        let pick_first =
            ClusterPolicy { policy: Policy::PickFirst(PickFirst { shuffle: false }), by_locality };
        it.update(|config| config.policy = pick_first);
        assert_eq!((it.due(), it.ejected()), (None, vec![]));
    }
}
