use super::{outcomes::Counts, *};
use crate::{
    balance::{
        locality_config::EndpointConfig,
        policies::{Policy, round_robin::RoundRobin},
        policy::{ClusterPolicy, HostsConfig},
    },
    resource::{
        Locality,
        outlier::{FailurePercentage, SuccessRate},
    },
};

mod ejections;
mod endpoints;
mod slices;

const FAILURES: FailurePercentage =
    FailurePercentage { threshold: 50, enforcement_percent: 100, minimum_hosts: 1, request_volume: 1 };
const RATE: SuccessRate =
    SuccessRate { stdev_factor: 1_900, enforcement_percent: 100, minimum_hosts: 5, request_volume: 100 };

/// All may be ejected, with more than half of the attempts failed.
fn detection() -> OutlierDetection {
    OutlierDetection {
        interval: Duration::from_secs(10),
        base_ejection_time: Duration::from_secs(30),
        max_ejection_time: Duration::from_secs(300),
        max_ejection_percent: 100,
        success_rate: None,
        failure_percentage: Some(FAILURES),
    }
}

/// A cluster whose endpoints have one address each, and attempts to these.
struct Fixture {
    outliers: Outliers,
    config: LeafConfig,
    begin: Instant,
    now: Instant,
    random: fastrand::Rng,
}

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// Priorities with one locality each.
fn priorities(ports: &[&[u16]]) -> Vec<Vec<LocalityConfig>> {
    let endpoint = |port: &u16| EndpointConfig {
        addresses: vec![address(*port)],
        identity: crate::balance::identity::Identity::default(),
        weight: 1,
        hostname: None,
        hash_key: None,
    };
    let each = ports.iter().map(|ports| {
        let endpoints = ports.iter().map(endpoint).collect();
        vec![LocalityConfig::new(Locality::new("a", "", ""), 1, endpoints)]
    });
    each.collect()
}

impl Fixture {
    fn new(detection: OutlierDetection, ports: &[&[u16]]) -> Self {
        let config = LeafConfig {
            policy: ClusterPolicy { policy: Policy::RoundRobin(RoundRobin), by_locality: false },
            priorities: priorities(ports),
            listed: None,
            drops: [].into(),
            max_requests: 1_024,
            max_connections: 1,
            outlier_detection: Some(detection),
            service_name: "eds".into(),
            note: None,
            unusable: None,
            is_dns: false,
            security: crate::balance::identity::Security::default(),
            hosts: HostsConfig::default(),
            load: None,
            service: None,
        };
        let begin = Instant::now();
        let outliers = Outliers::new(&config, usize::MAX, begin);
        Self { outliers, config, begin, now: begin, random: fastrand::Rng::with_seed(1) }
    }

    /// Changes the configuration.
    fn update(&mut self, edit: impl FnOnce(&mut LeafConfig)) {
        let before = self.config.listed().to_vec();
        edit(&mut self.config);
        self.outliers.update(&before, &self.config, self.now);
    }

    fn list(&mut self, ports: &[&[u16]]) {
        self.update(|config| config.priorities = priorities(ports));
    }

    fn attempts(&self, port: u16, (successes, failures): (u32, u32)) {
        let tracked = self.outliers.tracked(&[address(port)]).expect("it is tracked");
        (0..successes).for_each(|_| tracked.outcomes.on_success());
        (0..failures).for_each(|_| tracked.outcomes.on_failure());
    }

    /// The next sweep.
    fn sweep(&mut self) -> Vec<String> {
        self.now = self.outliers.poll_timeout().expect("a sweep is due");
        let mut decisions = self.slice();
        while self.outliers.is_sweeping() {
            decisions.extend(self.slice());
        }
        decisions
    }

    /// The next slice of a sweep, which takes a while.
    fn slice(&mut self) -> Vec<String> {
        let decisions = self.outliers.sweep(self.now, &mut self.random);
        self.now += Duration::from_micros(100);
        texts(decisions)
    }

    /// The next sweep, after attempts to the endpoints 1, 2 and so on.
    fn sweep_after(&mut self, attempts: &[(u32, u32)]) -> Vec<String> {
        (1..).zip(attempts).for_each(|(port, attempts)| self.attempts(port, *attempts));
        self.sweep()
    }

    /// When the next sweep is due, in seconds from the beginning.
    fn due(&self) -> Option<u64> {
        self.outliers.poll_timeout().map(|at| at.duration_since(self.begin).as_secs())
    }

    /// The ports of the ejected endpoints.
    fn ejected(&self) -> Vec<u16> {
        let (ejected, count, _) = self.outliers.ejected();
        assert_eq!(ejected.len(), count, "the number that is counted");
        ejected.iter().map(|addresses| addresses[0].port()).collect()
    }
}

fn texts(decisions: Decisions) -> Vec<String> {
    let text = |(addresses, decision): (Arc<[SocketAddr]>, Decision)| {
        let port = addresses[0].port();
        match decision {
            Decision::Ejected(method) => format!("{port} {}", method.as_str()),
            Decision::NotEjected(_, reason) => format!("{port} not, {}", reason.as_str()),
            Decision::Unejected => format!("{port} back"),
        }
    };
    decisions.into_iter().map(text).collect()
}

fn counts(attempts: &[(u64, u64)]) -> Vec<Counts> {
    attempts
        .iter()
        .map(|(successes, failures)| Counts { successes: *successes, failures: *failures })
        .collect()
}

#[test]
fn ch3_68_success_rates_far_below_the_mean_are_outliers() {
    let rate = |stdev_factor, minimum_hosts| SuccessRate { stdev_factor, minimum_hosts, ..RATE };
    let (all, none, tenth) = ((100, 0), (0, 100), (10, 90));
    type Row<'a> = (SuccessRate, &'a [(u64, u64)], &'a [usize]);
    let table: [Row<'_>; 9] = [
        // One of five is 2 standard deviations of the population below the mean, however much it fails; of a sample, 1.79.
        (rate(1_900, 5), &[all, all, tenth, all, all], &[2]),
        (rate(1_900, 5), &[all, all, (99, 1), all, all], &[2]),
        (rate(2_001, 5), &[all, all, tenth, all, all], &[]),
        // One of four is 1.73.
        (rate(1_900, 4), &[all, all, tenth, all], &[]),
        (rate(1_900, 5), &[all, all, tenth, all], &[]),
        // At the bound, which is 0 here, and above.
        (rate(1_000, 2), &[all, none], &[]),
        (rate(999, 2), &[all, none], &[1]),
        // Equal rates.
        (rate(1_900, 5), &[none, none, none, none, none], &[]),
        // Those below the volume are neither judged nor part of the mean.
        (rate(1_900, 5), &[all, all, tenth, all, all, (0, 99)], &[2]),
    ];
    for (number, (config, attempts, expected)) in table.into_iter().enumerate() {
        assert_eq!(algorithms::success_rate(&config, &counts(attempts)), expected, "row {number}");
    }
}

#[test]
fn ch3_73_a_bound_below_0_has_no_outliers() {
    let config = SuccessRate { stdev_factor: 5_000, ..RATE };
    let attempts = [(100, 0), (100, 0), (0, 100), (0, 100), (0, 100)];
    assert!(algorithms::success_rate(&config, &counts(&attempts)).is_empty());
}

#[test]
fn ch3_69_more_failures_than_the_threshold_are_an_outlier() {
    let of = |threshold, minimum_hosts, request_volume| FailurePercentage {
        threshold,
        minimum_hosts,
        request_volume,
        ..FAILURES
    };
    type Row<'a> = (FailurePercentage, &'a [(u64, u64)], &'a [usize]);
    let table: [Row<'_>; 8] = [
        (of(85, 1, 50), &[(15, 85), (14, 86), (100, 0)], &[1]),
        (of(85, 3, 50), &[(0, 50), (0, 50)], &[]),
        (of(85, 2, 50), &[(0, 50), (0, 49), (50, 0)], &[0]),
        (of(85, 3, 50), &[(0, 50), (0, 49), (50, 0)], &[]),
        (of(100, 1, 1), &[(0, 100)], &[]),
        (of(0, 1, 1), &[(100, 0), (99, 1)], &[1]),
        // One without attempts is no candidate, even if none is required.
        (of(0, 2, 0), &[(0, 0), (0, 1)], &[]),
        (of(99, 1, 1), &[(1, u64::MAX - 1)], &[0]),
    ];
    for (number, (config, attempts, expected)) in table.into_iter().enumerate() {
        assert_eq!(algorithms::failure_percentage(&config, &counts(attempts)), expected, "row {number}");
    }
}

#[test]
fn ch3_65_ch11_6_attempts_of_many_threads_are_counted_once_in_one_interval() {
    let outcomes = Outcomes::default();
    let mut sum = Counts::default();
    std::thread::scope(|scope| {
        let calls = || {
            for number in 0..10_000 {
                if number % 4 == 0 { outcomes.on_failure() } else { outcomes.on_success() }
            }
        };
        let threads = [scope.spawn(calls), scope.spawn(calls)];
        let mut taken = Counts::default();
        let mut add = || {
            let counts = outcomes.take_since(&mut taken);
            (sum.successes, sum.failures) =
                (sum.successes + counts.successes, sum.failures + counts.failures);
        };
        while threads.iter().any(|it| !it.is_finished()) {
            add();
        }
        add();
        assert_eq!(outcomes.take_since(&mut taken), Counts::default());
    });
    assert_eq!(sum, Counts { successes: 15_000, failures: 5_000 });
}
