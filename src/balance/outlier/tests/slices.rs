//! Sweeps in slices, and what happens between these.

use super::*;

const BAD: (u32, u32) = (0, 10);

impl Fixture {
    /// Slices of one step.
    fn sliced(detection: OutlierDetection, ports: &[&[u16]]) -> Self {
        let mut it = Self::new(detection, ports);
        it.outliers.slice = 1;
        it
    }

    /// Begins a sweep, and gives what so many slices decide; `None` if it takes fewer.
    fn slices(&mut self, count: usize) -> Option<Vec<String>> {
        self.now = self.outliers.poll_timeout().expect("a sweep is due");
        let mut decisions = Vec::new();
        for _ in 0..count {
            decisions.extend(self.slice());
            if !self.outliers.is_sweeping() {
                return None;
            }
        }
        Some(decisions)
    }

    /// The slices that are left.
    fn rest(&mut self) -> Vec<String> {
        let mut decisions = Vec::new();
        while self.outliers.is_sweeping() {
            assert!(self.outliers.poll_timeout() <= Some(self.now), "the next slice is due at once");
            decisions.extend(self.slice());
        }
        decisions
    }
}

/// Runs a test for each place where something may happen between the slices of a sweep, until there is none; returns their number.
fn between_slices(
    detection: &OutlierDetection,
    attempts: &[(u32, u32)],
    mut then: impl FnMut(Fixture, Vec<String>),
) {
    let ports: Vec<u16> = (1..=attempts.len() as u16).collect();
    let mut places = 0;
    loop {
        let mut it = Fixture::sliced(detection.clone(), &[&ports]);
        (1..).zip(attempts).for_each(|(port, attempts)| it.attempts(port, *attempts));
        let Some(decisions) = it.slices(places + 1) else { break };
        then(it, decisions);
        places += 1;
    }
    assert!(places >= 2 * ports.len(), "{places} places");
}

#[test]
fn ch3_67_slices_of_any_size_decide_as_one_piece() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let percentage = FailurePercentage {
            threshold: random.u8(..100),
            enforcement_percent: random.u8(..=100),
            minimum_hosts: random.u32(..5),
            request_volume: random.u32(..20),
        };
        let rate = SuccessRate {
            stdev_factor: random.u32(..2_000),
            enforcement_percent: random.u8(..=100),
            minimum_hosts: random.u32(..5),
            request_volume: random.u32(..20),
        };
        let config = OutlierDetection {
            base_ejection_time: Duration::from_secs(random.u64(..30)),
            max_ejection_percent: random.u8(..=100),
            success_rate: random.bool().then_some(rate),
            failure_percentage: random.bool().then_some(percentage),
            ..detection()
        };
        if config.success_rate.is_none() && config.failure_percentage.is_none() {
            continue;
        }
        let ports: Vec<u16> = (1..random.u16(2..60)).collect();
        let mut all = [usize::MAX, 1, 7, 10_000].map(|slice| {
            let mut it = Fixture::new(config.clone(), &[&ports]);
            it.outliers.slice = slice;
            it
        });
        for sweep in 0..6 {
            let attempts: Vec<_> = ports.iter().map(|_| (random.u32(..20), random.u32(..20))).collect();
            let decisions = all.each_mut().map(|it| (it.sweep_after(&attempts), it.due(), it.random.u64(..)));
            let [expected, sliced @ ..] = &decisions;
            sliced.iter().for_each(|it| assert_eq!(it, expected, "seed {seed}, sweep {sweep}"));
        }
    }
}

#[test]
fn ch3_67_ch3_71_all_slices_have_the_time_at_which_the_sweep_began() {
    between_slices(&detection(), &[BAD, BAD, BAD], |mut it, _| {
        let began = it.outliers.poll_timeout().expect("it is running");
        it.now += Duration::from_secs(5);
        it.rest();
        assert_eq!(it.due(), Some(20), "the next interval has begun with the sweep");
        let until = |port| it.outliers.ejected_until(&[address(port)]);
        assert_eq!([1, 2, 3].map(until), [Some(began + Duration::from_secs(30)); 3]);
    });
    // At the beginning of the sweep, the ejection was not over.
    let mut it = Fixture::sliced(detection(), &[&[1, 2]]);
    it.sweep_after(&[BAD]);
    it.sweep();
    it.sweep();
    assert_eq!(it.slices(1), Some(Vec::new()));
    it.now += Duration::from_secs(1);
    assert!(it.rest().is_empty());
    assert_eq!(it.sweep(), ["1 back"]);
}

#[test]
fn ch3_64_an_endpoint_that_leaves_between_slices_is_not_decided_on_and_neither_is_one_at_its_place() {
    let mut slices = 0;
    between_slices(&detection(), &[BAD, BAD, BAD, BAD], |mut it, mut decisions| {
        slices += 1;
        it.list(&[&[1, 3, 4]]);
        assert!(!it.ejected().contains(&2));
        it.list(&[&[1, 3, 9, 4]]);
        it.attempts(9, BAD);
        decisions.retain(|it| it != "2 failure_percentage");
        decisions.extend(it.rest());
        decisions.sort();
        // The second slice takes the counts of the second place.
        let ports: &[u16] = if slices < 2 { &[1, 3, 4, 9] } else { &[1, 3, 4] };
        let expected: Vec<_> = ports.iter().map(|port| format!("{port} failure_percentage")).collect();
        assert_eq!((decisions, it.ejected()), (expected, ports.to_vec()), "{slices} slices");
        let next = it.sweep();
        assert_eq!(next.len(), 4 - ports.len(), "{next:?}");
        assert_eq!(it.ejected(), [1, 3, 4, 9]);
    });
}

#[test]
fn ch3_64_endpoints_that_come_between_slices_are_judged_once() {
    between_slices(&detection(), &[BAD, BAD], |mut it, mut decisions| {
        it.list(&[&[1, 2, 3, 4, 5]]);
        (3..=5).for_each(|port| it.attempts(port, BAD));
        decisions.extend(it.rest());
        decisions.extend(it.sweep());
        decisions.sort();
        assert_eq!(decisions, [1, 2, 3, 4, 5].map(|port| format!("{port} failure_percentage")));
    });
}

#[test]
fn ch3_66_a_sweep_ends_with_its_detection() {
    for without in [None, Some(OutlierDetection { failure_percentage: None, ..detection() })] {
        between_slices(&detection(), &[BAD, BAD, BAD], |mut it, _| {
            it.update(|config| config.outlier_detection = without.clone());
            assert_eq!((it.due(), it.ejected(), it.outliers.is_sweeping()), (None, vec![], false));
            assert!(it.slice().is_empty());
            it.update(|config| config.outlier_detection = Some(detection()));
            let now = it.now.duration_since(it.begin).as_secs();
            assert_eq!((it.due(), it.outliers.is_sweeping()), (Some(now + 10), false));
            assert!(it.sweep().is_empty(), "what was counted before is forgotten");
            assert_eq!(it.sweep_after(&[BAD]), ["1 failure_percentage"]);
        });
    }
}

#[test]
fn ch3_66_a_sweep_goes_on_by_another_configuration() {
    between_slices(&detection(), &[BAD, BAD, BAD], |mut it, decisions| {
        let none =
            OutlierDetection { max_ejection_percent: 0, interval: Duration::from_secs(25), ..detection() };
        it.update(|config| config.outlier_detection = Some(none));
        let rest = it.rest();
        assert!(rest.iter().all(|it| it.ends_with("max_ejection_overflow")), "{rest:?}");
        assert_eq!((it.ejected().len(), decisions.len() + rest.len()), (decisions.len(), 3));
        assert_eq!(it.due(), Some(35));
    });
    // The algorithm whose outliers are being ejected is configured no more.
    between_slices(&detection(), &[BAD, BAD, BAD], |mut it, decisions| {
        let rate = OutlierDetection { success_rate: Some(RATE), failure_percentage: None, ..detection() };
        it.update(|config| config.outlier_detection = Some(rate));
        assert!(it.rest().is_empty());
        assert_eq!(it.ejected().len(), decisions.len());
    });
}

#[test]
fn ch3_65_attempts_that_end_between_slices_are_counted_in_one_of_the_intervals() {
    let four = FailurePercentage { request_volume: 4, ..FAILURES };
    let config = OutlierDetection { failure_percentage: Some(four), ..detection() };
    let mut intervals = [0, 0];
    between_slices(&config, &[(0, 0), (0, 0), (0, 2)], |mut it, mut decisions| {
        it.attempts(3, (0, 2));
        decisions.extend(it.rest());
        let is_first = !decisions.is_empty();
        // In the second interval, two are too few, and four are enough.
        it.attempts(3, (0, 2));
        decisions.extend(it.sweep());
        assert_eq!(decisions, ["3 failure_percentage"]);
        intervals[usize::from(!is_first)] += 1;
    });
    assert!(intervals.iter().all(|it| *it > 0), "{intervals:?}");
}
