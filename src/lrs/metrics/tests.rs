use super::*;
use crate::resource::cluster::ReportedMetrics;

#[test]
fn lr8_2_only_the_metrics_of_the_cluster_are_summed() {
    let report = OrcaLoadReport {
        cpu_utilization: 0.5,
        mem_utilization: 0.25,
        application_utilization: 2.0,
        named_metrics: [("a".to_owned(), 1.0), ("b".to_owned(), 2.0)].into(),
    };
    let of = |metrics: ReportedMetrics| {
        let mut sums = MetricSums::default();
        sums.add(&report, &Propagation { metrics, max_names: 10 });
        let named: Vec<_> = sums.named.iter().map(|(name, sum)| (name.to_string(), sum.total)).collect();
        ([sums.cpu, sums.mem, sums.application].map(|sum| (sum.count, sum.total)), named)
    };
    let mut metrics = ReportedMetrics {
        mem_utilization: true,
        named_metrics: ["b".into(), "c".into()].into(),
        ..ReportedMetrics::default()
    };
    assert_eq!(of(metrics.clone()), ([(0, 0.0), (1, 0.25), (0, 0.0)], vec![("b".to_owned(), 2.0)]));
    metrics.all_named_metrics = true;
    metrics.cpu_utilization = true;
    metrics.application_utilization = true;
    let (utilizations, named) = of(metrics);
    assert_eq!((utilizations, named.len()), ([(1, 0.5), (1, 0.25), (1, 2.0)], 2));
}

#[test]
fn lr8_3_lr8_6_the_example_of_a64() {
    let metrics = ReportedMetrics { all_named_metrics: true, ..ReportedMetrics::default() };
    let propagation = Propagation { metrics, max_names: 10 };
    let mut sums = MetricSums::default();
    for named in [&[("k1", 1.0), ("k2", 2.0)][..], &[("k2", 3.0), ("k3", 4.0)], &[]] {
        let named_metrics = named.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        sums.add(&OrcaLoadReport { named_metrics, ..OrcaLoadReport::default() }, &propagation);
    }
    let sums: Vec<_> = sums.named.iter().map(|(name, sum)| (&**name, sum.count, sum.total)).collect();
    assert_eq!(sums, [("k1", 1, 1.0), ("k2", 2, 5.0), ("k3", 1, 4.0)]);
}

#[test]
fn lr8_4_a_utilization_of_zero_counts_and_what_is_no_number_does_not() {
    let metrics =
        ReportedMetrics { cpu_utilization: true, all_named_metrics: true, ..ReportedMetrics::default() };
    let propagation = Propagation { metrics, max_names: 10 };
    let mut sums = MetricSums::default();
    sums.add(&OrcaLoadReport::default(), &propagation);
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let named_metrics = [("a".to_owned(), value)].into();
        sums.add(
            &OrcaLoadReport { cpu_utilization: value, named_metrics, ..Default::default() },
            &propagation,
        );
    }
    assert_eq!((sums.cpu, sums.named.len()), (MetricSum { count: 1, total: 0.0 }, 0));
}

#[test]
fn lr8_7_names_are_limited_and_those_beyond_are_counted() {
    let metrics = ReportedMetrics { all_named_metrics: true, ..ReportedMetrics::default() };
    let propagation = Propagation { metrics, max_names: 2 };
    let report = |names: &[&str]| OrcaLoadReport {
        named_metrics: names.iter().map(|name| (name.to_string(), 1.0)).collect(),
        ..OrcaLoadReport::default()
    };
    let (mut one, mut other) = (MetricSums::default(), MetricSums::default());
    one.add(&report(&["a", "b", "c"]), &propagation);
    other.add(&report(&["b", "x"]), &propagation);
    other.add(&report(&["b", "x"]), &propagation);
    one.append(other, 2);
    assert_eq!((one.named.len(), one.named["b"].count, one.dropped), (2, 3, 3));
}

#[cfg(feature = "client")]
#[test]
fn lr8_8_the_last_trailer_is_decoded_and_others_are_ignored() {
    let trailers = |values: &[&str]| {
        let mut trailers = http::HeaderMap::new();
        for value in values {
            trailers.append(TRAILER, value.parse().unwrap());
        }
        trailers
    };
    // cpu_utilization 1.0, named_metrics {"a": 0.5}
    let message = b"\x09\0\0\0\0\0\0\xf0\x3f\x42\x0c\x0a\x01a\x11\0\0\0\0\0\0\xe0\x3f";
    let text = {
        use base64::{Engine, engine::general_purpose::STANDARD};
        STANDARD.encode(message)
    };
    for value in [text.as_str(), text.trim_end_matches('=')] {
        let report = OrcaLoadReport::from_trailer(&trailers(&["!!", value])).unwrap();
        assert_eq!((report.cpu_utilization, report.named_metrics["a"]), (1.0, 0.5));
    }
    assert_eq!(OrcaLoadReport::from_trailer(&trailers(&[])), None);
    assert_eq!(OrcaLoadReport::from_trailer(&trailers(&[&text, "!!"])), None);
    assert_eq!(OrcaLoadReport::from_trailer(&trailers(&["/w=="])), None);
}
