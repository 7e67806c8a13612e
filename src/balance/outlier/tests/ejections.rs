//! Sweeps: who is ejected, and for how long.

use super::*;

const BAD: (u32, u32) = (0, 100);
const GOOD: (u32, u32) = (100, 0);

#[test]
fn ch3_67_success_rate_comes_first_and_then_failure_percentage() {
    let both = OutlierDetection { success_rate: Some(RATE), ..detection() };
    let mut it = Fixture::new(both, &[&[1, 2, 3, 4, 5]]);
    // The third is an outlier for both, and is ejected and counted once (CH13.1).
    assert_eq!(it.sweep_after(&[GOOD, GOOD, BAD, GOOD, GOOD]), ["3 success_rate"]);
    assert_eq!(it.ejected(), [3]);
    let mut sorted = it.sweep_after(&[BAD, GOOD, GOOD, GOOD, (49, 51)]);
    sorted.sort();
    assert_eq!(sorted, ["1 failure_percentage", "5 failure_percentage"]);
}

#[test]
fn ch3_67_each_interval_has_counts_of_its_own() {
    let few = FailurePercentage { request_volume: 100, ..FAILURES };
    let mut it = Fixture::new(OutlierDetection { failure_percentage: Some(few), ..detection() }, &[&[1, 2]]);
    for _ in 0..3 {
        assert!(it.sweep_after(&[(0, 99), GOOD]).is_empty());
    }
    assert_eq!(it.due(), Some(40));
    assert_eq!(it.sweep_after(&[(0, 100), GOOD]), ["1 failure_percentage"]);
}

#[test]
fn ch3_67_ejections_last_a_multiple_of_the_base_up_to_the_maximum() {
    let config = OutlierDetection { max_ejection_time: Duration::from_secs(70), ..detection() };
    let mut it = Fixture::new(config, &[&[1, 2]]);
    // The interval is 10 s, and an ejection ends with the first sweep after its time: 30 s, 60 s, and then 70 s at most.
    for (multiplier, sweeps) in [(1, 4), (2, 7), (3, 8), (4, 8)] {
        assert_eq!(it.sweep_after(&[BAD]), ["1 failure_percentage"], "{multiplier}");
        for number in 1..sweeps {
            assert!(it.sweep().is_empty(), "sweep {number} of {sweeps}");
        }
        assert_eq!(it.sweep(), ["1 back"], "{multiplier}");
    }
}

#[test]
fn ch3_67_a_base_above_the_maximum_is_the_maximum() {
    let config = OutlierDetection { max_ejection_time: Duration::from_secs(1), ..detection() };
    let mut it = Fixture::new(config, &[&[1, 2]]);
    it.sweep_after(&[BAD]);
    for _ in 0..3 {
        assert!(it.sweep().is_empty());
    }
    assert_eq!(it.sweep(), ["1 back"]);
}

#[test]
fn ch3_67_each_interval_without_an_ejection_makes_the_next_one_shorter() {
    let mut it = Fixture::new(detection(), &[&[1, 2]]);
    let until_back = |it: &mut Fixture| (1..).find(|_| it.sweep() == ["1 back"]);
    for expected in [4, 7] {
        it.sweep_after(&[BAD]);
        assert_eq!(until_back(&mut it), Some(expected));
    }
    // From 2 to 0, and never below.
    for _ in 0..5 {
        it.sweep();
    }
    it.sweep_after(&[BAD]);
    assert_eq!(until_back(&mut it), Some(4));
}

#[test]
fn ch3_70_ejections_stop_at_the_maximum_and_one_is_always_possible() {
    // Percent, endpoints, and how many of them are ejected.
    let table =
        [(0, 4, 0), (1, 4, 1), (25, 4, 1), (26, 4, 2), (50, 4, 2), (10, 20, 2), (10, 21, 3), (100, 4, 4)];
    for (percent, endpoints, expected) in table {
        let ports: Vec<u16> = (1..=endpoints).collect();
        let config = OutlierDetection { max_ejection_percent: percent, ..detection() };
        let mut it = Fixture::new(config, &[&ports]);
        let decisions = it.sweep_after(&vec![BAD; ports.len()]);
        assert_eq!(it.ejected().len(), expected, "{percent} % of {endpoints}");
        let overflows = decisions.iter().filter(|it| it.ends_with("not, max_ejection_overflow")).count();
        assert_eq!(overflows, ports.len() - expected, "{percent} % of {endpoints}");
    }
}

#[test]
fn ch3_62_ch3_70_the_maximum_is_of_all_endpoints_also_of_those_outside_of_the_subset() {
    let all: Vec<u16> = (1..=40).collect();
    let config = OutlierDetection { max_ejection_percent: 10, ..detection() };
    let mut it = Fixture::new(config, &[&all[..8]]);
    it.update(|config| config.listed = Some(priorities(&[&all])));
    it.sweep_after(&[BAD; 8]);
    assert_eq!(it.ejected().len(), 4);
    it.list(&[&all[..8]]);
    it.update(|config| config.listed = None);
    assert!(it.outliers.tracked(&[address(9)]).is_none());
}

#[test]
fn ch3_70_outliers_are_ejected_in_a_random_order() {
    let mut first = [0_u32; 4];
    for seed in 0..400 {
        let mut it =
            Fixture::new(OutlierDetection { max_ejection_percent: 1, ..detection() }, &[&[1, 2, 3, 4]]);
        it.random = fastrand::Rng::with_seed(seed);
        it.sweep_after(&[BAD; 4]);
        first[usize::from(it.ejected()[0]) - 1] += 1;
    }
    assert!(first.iter().all(|count| (70..130).contains(count)), "{first:?}");
}

#[test]
fn ch3_70_outliers_are_ejected_with_the_probability_of_the_enforcement() {
    let some = FailurePercentage { enforcement_percent: 30, ..FAILURES };
    let ports: Vec<u16> = (1..=1_000).collect();
    let config = OutlierDetection { failure_percentage: Some(some), ..detection() };
    let mut it = Fixture::new(config, &[&ports]);
    let decisions = it.sweep_after(&vec![(0, 1); ports.len()]);
    let kept = decisions.iter().filter(|it| it.ends_with("not, enforcement_percentage")).count();
    assert_eq!(kept + it.ejected().len(), 1_000);
    assert!((650..750).contains(&kept), "{kept}");
}

#[test]
fn ch3_70_an_ejected_endpoint_that_still_fails_is_skipped() {
    let mut it = Fixture::new(detection(), &[&[1, 2]]);
    it.sweep_after(&[BAD, GOOD]);
    assert!(it.sweep_after(&[BAD, GOOD]).is_empty(), "by attempts that began before");
    assert_eq!(it.ejected(), [1]);
}
