use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn settings() -> WeightSettings {
    let (blackout, expiration) = (10 * SECOND, 180 * SECOND);
    WeightSettings { blackout, expiration, update: SECOND, penalty: 1.0, out_of_band: None, metrics: none() }
}

/// No metrics beside those of A58.
fn none() -> UtilizationMetrics {
    UtilizationMetrics::default()
}

fn report(utilization: f64, rate: f64, errors: f64) -> LoadReport {
    let metrics = ReportedMetrics { processor: utilization, ..ReportedMetrics::default() };
    LoadReport { metrics, rate, errors }
}

/// The utilization, rate and errors of a report that has them.
fn decoded(from: OrcaLoadReport) -> Option<(f64, f64, f64)> {
    let report = LoadReport::decode(&from.encode_to_vec()).unwrap()?;
    Some((report.metrics.utilization(&none())?, report.rate, report.errors))
}

#[test]
fn ch3_41_settings_are_those_of_the_configuration() {
    let config = ClientSideWeightedRoundRobin {
        enable_oob_load_report: true,
        oob_reporting_period: 3 * SECOND,
        blackout_period: 4 * SECOND,
        weight_expiration_period: 5 * SECOND,
        weight_update_period: 6 * SECOND,
        error_utilization_penalty: 0.5,
        metric_names_for_computing_utilization: ["mem_utilization".into()].into(),
    };
    let expected = WeightSettings {
        blackout: 4 * SECOND,
        expiration: 5 * SECOND,
        update: 6 * SECOND,
        penalty: 0.5,
        out_of_band: Some(3 * SECOND),
        metrics: UtilizationMetrics::new(&["mem_utilization".into()]),
    };
    assert_eq!(WeightSettings::from(&config), expected);
    let per_call = ClientSideWeightedRoundRobin { enable_oob_load_report: false, ..config };
    assert_eq!(WeightSettings::from(&per_call).out_of_band, None);
}

#[test]
fn ch3_42_a_weight_is_the_rate_over_the_utilization_and_the_penalty_of_errors() {
    assert_eq!(report(0.5, 100.0, 0.0).weight(&none(), 1.0), Some(200.0));
    assert_eq!(report(0.5, 100.0, 50.0).weight(&none(), 1.0), Some(100.0));
    assert_eq!(report(0.5, 100.0, 50.0).weight(&none(), 3.0), Some(50.0));
    assert_eq!(report(0.5, 100.0, 50.0).weight(&none(), 0.0), Some(200.0));
}

#[test]
fn ch3_42_the_utilization_is_that_of_the_application_or_else_of_the_processor() {
    let from = OrcaLoadReport {
        cpu_utilization: 0.25,
        rps_fractional: 10.0,
        eps: 2.0,
        application_utilization: 0.5,
        ..OrcaLoadReport::default()
    };
    assert_eq!(decoded(from.clone()), Some((0.5, 10.0, 2.0)));
    let without = |application_utilization| OrcaLoadReport { application_utilization, ..from.clone() };
    for application in [0.0, -1.0, f64::NAN] {
        assert_eq!(decoded(without(application)), Some((0.25, 10.0, 2.0)), "{application}");
    }
}

#[test]
fn ch3_42_reports_without_a_positive_finite_utilization_and_rate_change_nothing() {
    let good = || OrcaLoadReport { cpu_utilization: 0.5, rps_fractional: 10.0, ..OrcaLoadReport::default() };
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(decoded(OrcaLoadReport { cpu_utilization: bad, ..good() }), None, "utilization {bad}");
        assert_eq!(decoded(OrcaLoadReport { rps_fractional: bad, ..good() }), None, "rate {bad}");
        assert_eq!(decoded(OrcaLoadReport { eps: bad, ..good() }), Some((0.5, 10.0, 0.0)), "errors {bad}");
    }
    assert!(LoadReport::decode(&[0xff; 7]).is_err(), "not a message");
    assert_eq!(LoadReport::decode(&[]), Ok(None), "an empty message");
    let start = Instant::now();
    let weight = EndpointWeight::new(&none(), start);
    weight.report(&report(f64::MIN_POSITIVE, f64::MAX, 0.0), 1.0, start);
    assert_eq!(
        weight.state(&WeightSettings { blackout: Duration::ZERO, ..settings() }, start).usable(),
        None
    );
}

#[test]
fn ch3_43_a_weight_counts_from_the_end_of_the_blackout_to_its_expiration() {
    let start = Instant::now();
    let weight = EndpointWeight::new(&none(), start);
    let usable = |seconds| weight.state(&settings(), start + seconds * SECOND).usable();
    assert_eq!(usable(1), None, "never reported");
    weight.report(&report(0.5, 100.0, 0.0), 1.0, start + 2 * SECOND);
    assert_eq!(usable(11), None);
    assert_eq!(usable(12), Some(200.0));
    weight.report(&report(0.5, 50.0, 0.0), 1.0, start + 12 * SECOND);
    assert_eq!(usable(191), Some(100.0));
    assert_eq!(usable(192), None, "expired");
    weight.report(&report(0.5, 50.0, 0.0), 1.0, start + 193 * SECOND);
    assert_eq!(usable(202), None, "the blackout begins again");
    assert_eq!(usable(203), Some(100.0));
}

#[test]
fn ch3_43_a_new_connection_begins_the_blackout_again_and_keeps_the_weight() {
    let start = Instant::now();
    let weight = EndpointWeight::new(&none(), start);
    weight.report(&report(0.5, 100.0, 0.0), 1.0, start);
    let usable = |seconds| weight.state(&settings(), start + seconds * SECOND).usable();
    assert_eq!(usable(20), Some(200.0));
    weight.on_ready();
    assert_eq!(usable(21), None);
    let no_blackout = WeightSettings { blackout: Duration::ZERO, ..settings() };
    assert_eq!(weight.state(&no_blackout, start + 21 * SECOND).usable(), Some(200.0), "the last weight");
    weight.report(&report(0.5, 200.0, 0.0), 1.0, start + 22 * SECOND);
    assert_eq!(usable(31), None);
    assert_eq!(usable(32), Some(400.0));
}

#[test]
fn ch3_42_a114_a_weight_by_other_metrics_keeps_its_value_and_its_times() {
    let start = Instant::now();
    let before = EndpointWeight::new(&none(), start);
    before.report(&report(0.5, 100.0, 0.0), 1.0, start);
    let queue = UtilizationMetrics::new(&["named_metrics.queue".into()]);
    assert!(before.is_by(&none()) && !before.is_by(&queue));
    let after = before.with_metrics(&queue);
    let usable = |seconds| after.state(&settings(), start + seconds * SECOND).usable();
    assert_eq!((usable(9), usable(10)), (None, Some(200.0)));
    let named = OrcaLoadReport {
        cpu_utilization: 0.5,
        rps_fractional: 100.0,
        named_metrics: [("queue".to_owned(), 0.25)].into(),
        ..OrcaLoadReport::default()
    };
    let named = LoadReport::decode(&named.encode_to_vec()).unwrap().unwrap();
    after.report(&named, 1.0, start + 11 * SECOND);
    assert_eq!(usable(11), Some(400.0));
}
