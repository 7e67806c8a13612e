//! Weights of endpoints by the load that they report.

use prost::Message;

use super::*;
use crate::{
    balance::{
        policies::weighted::Weighted,
        weights::{LoadReport, UtilizationMetrics, WeightSettings},
    },
    pb::xds::data::orca::v3::OrcaLoadReport,
};

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn policy(blackout: u32, out_of_band: Option<u32>) -> ClusterPolicy {
    let settings = WeightSettings {
        blackout: blackout * SECOND,
        expiration: 180 * SECOND,
        update: SECOND,
        penalty: 1.0,
        out_of_band: out_of_band.map(|seconds| seconds * SECOND),
        metrics: UtilizationMetrics::default(),
    };
    ClusterPolicy { policy: Policy::Weighted(Weighted(Box::new(settings))), by_locality: false }
}

/// The utilization is the metric `queue`.
fn policy_by_queue() -> ClusterPolicy {
    let mut policy = policy(0, None);
    if let Policy::Weighted(Weighted(settings)) = &mut policy.policy {
        settings.metrics = UtilizationMetrics::new(&["named_metrics.queue".into()]);
    }
    policy
}

/// Half the utilization at this rate.
fn report(rate: f64) -> LoadReport {
    let load = OrcaLoadReport { cpu_utilization: 0.5, rps_fractional: rate, ..OrcaLoadReport::default() };
    LoadReport::decode(&load.encode_to_vec()).unwrap().unwrap()
}

impl Fixture {
    /// A call to each endpoint, whose response reports a load in proportion to the port.
    pub(super) fn report_all(&mut self) {
        for _ in 0..40 {
            let Pick::Complete(attempt) = self.pick("shop") else { panic!("an endpoint is ready") };
            let rate = f64::from(attempt.endpoint.address.port());
            attempt.on_report(&report(rate), self.now);
        }
    }

    fn watched(&self) -> Vec<(u16, Duration)> {
        let ports = self
            .connections
            .iter()
            .filter_map(|(address, connection)| Some((address.port(), *self.watches.get(connection)?)));
        ports.collect()
    }
}

#[test]
fn ch3_44_calls_follow_the_reported_load_from_the_next_update_of_weights_on() {
    let mut it = Fixture::new(shop(policy(0, None), &[&[1, 3]]));
    it.connect_all();
    assert_eq!(it.ports(), BTreeMap::from([(1, 20), (3, 20)]), "nothing is reported yet");
    it.report_all();
    assert_eq!(it.ports(), BTreeMap::from([(1, 20), (3, 20)]));
    it.wait(1);
    assert_eq!(it.ports(), BTreeMap::from([(1, 10), (3, 30)]));
}

#[test]
fn ch3_43_weights_count_after_the_blackout_and_begin_again_with_a_new_connection() {
    let mut it = Fixture::new(shop(policy(10, None), &[&[1, 3]]));
    it.connect_all();
    it.report_all();
    it.wait(9);
    assert_eq!(it.ports(), BTreeMap::from([(1, 20), (3, 20)]));
    it.wait(2);
    assert_eq!(it.ports(), BTreeMap::from([(1, 10), (3, 30)]));
    it.lose(3);
    it.connect(3);
    assert_eq!(it.ports(), BTreeMap::from([(1, 20), (3, 20)]), "fewer than two weights");
    it.report_all();
    it.wait(11);
    assert_eq!(it.ports(), BTreeMap::from([(1, 10), (3, 30)]));
}

#[test]
fn ch3_43_endpoints_of_the_next_configuration_keep_their_weights() {
    let mut it = Fixture::new(shop(policy(10, None), &[&[1, 3]]));
    it.connect_all();
    it.report_all();
    it.wait(11);
    it.update(shop(policy(10, None), &[&[3, 5, 1]]));
    it.connect_all();
    // The new one has the mean until its blackout is over.
    let ports = it.ports();
    for (port, expected) in [(1, 7), (3, 20), (5, 13)] {
        assert!(ports[&port].abs_diff(expected) <= 1, "{ports:?}");
    }
}

#[test]
fn ch3_46_weights_are_read_only_while_there_are_several_endpoints_to_choose_from() {
    let mut it = Fixture::new(shop(policy(0, None), &[&[1]]));
    it.connect_all();
    assert_eq!(it.balancer.poll_timeout(), None);
    it.update(shop(policy(0, None), &[&[1, 3]]));
    it.connect_all();
    assert_eq!(it.balancer.poll_timeout(), Some(it.now + SECOND));
    it.update(shop(ROUND_ROBIN, &[&[1, 3]]));
    assert_eq!(it.balancer.poll_timeout(), None);
}

#[test]
fn ch1_25_equal_weights_publish_no_picker() {
    let mut it = Fixture::new(shop(policy(0, None), &[&[1, 3]]));
    it.connect_all();
    it.report_all();
    it.wait(1);
    let before = it.pickers["shop"].clone();
    it.wait(5);
    assert!(Arc::ptr_eq(&before, &it.pickers["shop"]));
}

#[test]
fn ch3_46_with_reports_beside_the_calls_those_of_calls_are_not_read() {
    let mut it = Fixture::new(shop(policy(0, Some(7)), &[&[1, 3]]));
    it.connect_all();
    assert_eq!(it.watched(), [(1, 7 * SECOND), (3, 7 * SECOND)]);
    let Pick::Complete(attempt) = it.pick("shop") else { panic!("an endpoint is ready") };
    assert!(!attempt.reads_reports());
    drop(attempt);
    it.report_all();
    it.wait(1);
    assert_eq!(it.ports(), BTreeMap::from([(1, 20), (3, 20)]));
    for (address, connection) in it.connections.clone() {
        it.balancer.on_load(connection, &report(f64::from(address.port())), it.now);
    }
    it.wait(1);
    assert_eq!(it.ports(), BTreeMap::from([(1, 10), (3, 30)]));
}

#[test]
fn ch9_8_reports_beside_the_calls_are_requested_on_each_connection_and_anew_with_another_period() {
    let mut it = Fixture::new(shop(policy(0, Some(7)), &[&[1, 3]]));
    it.connect(1);
    assert_eq!(it.watched(), [(1, 7 * SECOND)]);
    it.lose(1);
    it.watches.clear();
    it.connect_all();
    assert_eq!(it.watched(), [(1, 7 * SECOND), (3, 7 * SECOND)]);
    it.update(shop(policy(0, Some(9)), &[&[1, 3]]));
    assert_eq!(it.watched(), [(1, 9 * SECOND), (3, 9 * SECOND)]);
    it.update(shop(policy(0, None), &[&[1, 3]]));
    assert_eq!(it.watched(), []);
    it.update(shop(policy(0, Some(9)), &[&[1, 3]]));
    it.update(shop(ROUND_ROBIN, &[&[1, 3]]));
    assert_eq!(it.watched(), [], "another policy has no weights");
}

#[test]
fn ch9_8_a_report_that_nobody_needs_ends_the_stream() {
    let mut it = Fixture::new(shop(policy(0, Some(7)), &[&[1, 3]]));
    it.connect_all();
    it.update(shop(PICK_FIRST, &[&[1, 3]]));
    let connection = it.connections[&address(1)];
    it.watches.insert(connection, SECOND);
    it.balancer.on_load(connection, &report(1.0), it.now);
    it.drain();
    assert_eq!(it.watched(), []);
}

#[test]
fn ch3_42_a114_other_metrics_apply_from_the_next_report_on() {
    let mut it = Fixture::new(shop(policy(0, None), &[&[1, 3]]));
    it.connect_all();
    it.report_all();
    it.wait(1);
    let by_processor = BTreeMap::from([(1, 10), (3, 30)]);
    assert_eq!(it.ports(), by_processor);
    it.update(shop(policy_by_queue(), &[&[1, 3]]));
    it.wait(1);
    assert_eq!(it.ports(), by_processor, "the last weights stay");
    for _ in 0..40 {
        let Pick::Complete(attempt) = it.pick("shop") else { panic!("an endpoint is ready") };
        let rate = f64::from(attempt.endpoint.address.port());
        let load = OrcaLoadReport {
            cpu_utilization: 0.5,
            rps_fractional: rate,
            named_metrics: [("queue".to_owned(), rate / 100.0)].into(),
            ..OrcaLoadReport::default()
        };
        attempt.on_report(&LoadReport::decode(&load.encode_to_vec()).unwrap().unwrap(), it.now);
    }
    it.wait(1);
    assert_eq!(it.ports(), BTreeMap::from([(1, 20), (3, 20)]));
}
