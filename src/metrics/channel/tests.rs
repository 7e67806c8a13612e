//! The instruments as OpenTelemetry's SDK collects them.

use std::{collections::BTreeMap, time::Duration};

use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter, SdkMeterProvider,
    data::{AggregatedMetrics, MetricData},
};

use super::{labels::Labels, *};
use crate::{
    balance::{
        observer::{Observation, PickLabels, ServiceLabels},
        picker::ActivePriority,
        weights::WeightState,
    },
    channel::telemetry::{
        AttemptSummary, CacheUsage, CallSummary, DelayScope, DelayType, LookupTarget, PickResult, Retried,
        SecurityLevel, SubchannelEvent,
    },
    error::Code,
    resource::Locality,
};

/// The prefix of metrics of route lookup.
const OF_LOOKUPS: &str = "lb.rls.";

/// What was exported: by name and labels, the value or the count and sum.
type Values = BTreeMap<String, String>;

struct Collected {
    provider: SdkMeterProvider,
    exporter: InMemoryMetricExporter,
    metrics: ChannelMetrics,
}

impl Collected {
    fn new(settings: impl FnOnce(ChannelMetricsBuilder) -> ChannelMetricsBuilder) -> Self {
        let exporter = InMemoryMetricExporter::default();
        let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
        let metrics = settings(ChannelMetrics::builder()).build(&provider.meter("test"));
        Self { provider, exporter, metrics }
    }

    /// Has everything recorded once. Returns the usage of a cache of lookups.
    fn record(&self) -> Arc<CacheUsage> {
        let recorder = self.metrics.recorder("xds:///shop");
        let method = recorder.method("/shop.Cart/Add", false);
        let (pick, custom) = (pick(), Some("checkout".into()));
        let (sent, duration) = (10, Duration::from_millis(15));
        let code = Code::DeadlineExceeded;
        method.on_attempt_started(custom.as_ref());
        method.on_attempt_ended(
            custom.as_ref(),
            &AttemptSummary { code, duration, sent, received: 0, labels: &pick },
        );
        for (scope, priority) in
            [(DelayScope::Call, None), (DelayScope::Attempt, Some(0)), (DelayScope::Attempt, Some(12))]
        {
            method.on_delay(
                custom.as_ref(),
                scope,
                DelayType::Connecting(ActivePriority { aggregate: None, priority }),
                Duration::from_secs(2),
            );
        }
        let retries = Retried { retries: 2, transparent: 1, delay: Duration::from_secs(3) };
        let (code, duration) = (Code::Ok, Duration::from_secs(4));
        method.on_call_ended(custom.as_ref(), &CallSummary { code, duration, retries });
        // Zeros are not recorded.
        let (retries, duration) = (Retried::default(), Duration::from_secs(1));
        method.on_call_ended(custom.as_ref(), &CallSummary { code, duration, retries });
        let weights =
            [WeightState::NotYetUsable, WeightState::Stale, WeightState::Stale, WeightState::Usable(7.0)];
        let (cluster, locality) = ("cart".into(), Locality::new("eu", "", ""));
        recorder.on_balance(Observation::Scheduler {
            cluster: &cluster,
            locality: Some(&locality),
            weights: &weights,
        });
        let weights = [WeightState::Usable(1.0), WeightState::Usable(2.0)];
        recorder.on_balance(Observation::Scheduler { cluster: &cluster, locality: None, weights: &weights });
        let cluster = &"cart".into();
        recorder.on_balance(Observation::Ejected { cluster, method: "success_rate" });
        let reason = "max_ejection_overflow";
        recorder.on_balance(Observation::NotEjected { cluster, method: "failure_percentage", reason });
        recorder.on_subchannel(&pick, SubchannelEvent::Connected(SecurityLevel::PrivacyAndIntegrity));
        for _ in 0..2 {
            recorder.on_subchannel(&pick, SubchannelEvent::Connected(SecurityLevel::None));
        }
        recorder.on_subchannel(&pick, SubchannelEvent::ConnectionFailed);
        recorder.on_subchannel(&pick, SubchannelEvent::Disconnected(SecurityLevel::None, "connection reset"));
        let service = Arc::<str>::from("xds:///lookup");
        for (is_default, result) in
            [(false, PickResult::Complete), (false, PickResult::Drop), (true, PickResult::Fail)]
        {
            let target = LookupTarget { service: service.clone(), cluster: "cart".into(), is_default };
            method.on_lookup_pick(&target, result);
        }
        method.on_lookup_failed(&service);
        // Without its channel, a cache has no value.
        recorder.on_lookup_cache(&service, &Arc::default());
        let usage = Arc::<CacheUsage>::default();
        recorder.on_lookup_cache(&service, &usage);
        usage.set(3, 1_700);
        usage
    }

    /// Passes each instrument and each of its values to a function.
    fn export(&self, mut each: impl FnMut(&str, &str, &str, &[f64])) -> Values {
        self.provider.force_flush().unwrap();
        let mut values = Values::new();
        for resource in self.exporter.get_finished_metrics().unwrap() {
            for metric in resource.scope_metrics().flat_map(|scope| scope.metrics()) {
                let points = points(metric.data());
                each(metric.name(), metric.unit(), metric.description(), &points[0].2);
                for (labels, value, _) in points {
                    values.insert(format!("{}{labels}", metric.name().strip_prefix("grpc.").unwrap()), value);
                }
            }
        }
        values
    }
}

fn pick() -> PickLabels {
    let service = ServiceLabels { name: "cart-service".into(), namespace: "eu".into() };
    PickLabels {
        backend_service: Some("cart".into()),
        locality: Some("here".into()),
        service: Some(Arc::new(service)),
    }
}

/// The labels, the value and the bounds of each point.
fn points(data: &AggregatedMetrics) -> Vec<(String, String, Vec<f64>)> {
    macro_rules! of {
        ($data:expr) => {
            match $data {
                MetricData::Sum(sum) => sum
                    .data_points()
                    .map(|it| (text(it.attributes()), it.value().to_string(), Vec::new()))
                    .collect(),
                MetricData::Histogram(histogram) => histogram
                    .data_points()
                    .map(|it| {
                        (
                            text(it.attributes()),
                            format!("{} sum {}", it.count(), it.sum()),
                            it.bounds().collect(),
                        )
                    })
                    .collect(),
                MetricData::Gauge(gauge) => gauge
                    .data_points()
                    .map(|it| (text(it.attributes()), it.value().to_string(), Vec::new()))
                    .collect(),
                other @ MetricData::ExponentialHistogram(_) => panic!("{other:?}"),
            }
        };
    }
    match data {
        AggregatedMetrics::F64(data) => of!(data),
        AggregatedMetrics::U64(data) => of!(data),
        AggregatedMetrics::I64(data) => of!(data),
    }
}

fn text<'a>(labels: impl Iterator<Item = &'a opentelemetry::KeyValue>) -> String {
    let mut labels: Vec<_> = labels
        .map(|it| {
            // It is random.
            if it.key.as_str() == "grpc.lb.rls.instance_uuid" {
                assert_eq!(it.value.as_str().len(), 36, "{}", it.value);
                return " lb.rls.instance_uuid=".to_owned();
            }
            format!(" {}={}", it.key.as_str().strip_prefix("grpc.").unwrap_or(it.key.as_str()), it.value)
        })
        .collect();
    labels.sort();
    labels.concat()
}

#[test]
fn ch9_10_by_default_the_metrics_of_calls_and_attempts_are_on_and_methods_are_other() {
    let collected = Collected::new(|it| it);
    let _usage = collected.record();
    let call = "method=other";
    let expected = [
        (
            format!("client.attempt.duration {call} status=DEADLINE_EXCEEDED target=xds:///shop"),
            "1 sum 0.015",
        ),
        (
            format!(
                "client.attempt.rcvd_total_compressed_message_size {call} status=DEADLINE_EXCEEDED target=xds:///shop"
            ),
            "1 sum 0",
        ),
        (
            format!(
                "client.attempt.sent_total_compressed_message_size {call} status=DEADLINE_EXCEEDED target=xds:///shop"
            ),
            "1 sum 10",
        ),
        (format!("client.attempt.started {call} target=xds:///shop"), "1"),
        (format!("client.call.duration {call} status=OK target=xds:///shop"), "2 sum 5"),
    ];
    let values = collected.export(|_, _, _, _| {});
    let expected: Values = expected.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    assert_eq!(values, expected);
}

#[test]
fn ch9_11_ch9_14_ch9_16_ch9_17_ch9_18_ch9_19_all_metrics_have_their_labels() {
    let labels = [LOCALITY, BACKEND_SERVICE, CUSTOM, DISCONNECT_ERROR, SECURITY_LEVEL];
    let collected = Collected::new(|it| it.enable_all().optional_labels(labels).all_methods());
    let _usage = collected.record();
    let call = "client.call.custom=checkout";
    let at = "lb.backend_service=cart lb.locality=here";
    let of_call = "method=shop.Cart/Add target=xds:///shop";
    let late = "method=shop.Cart/Add status=DEADLINE_EXCEEDED target=xds:///shop";
    let eu = r#"lb.backend_service=cart lb.locality={region="eu", zone="", sub_zone=""} target=xds:///shop"#;
    let none = "lb.backend_service=cart lb.locality= target=xds:///shop";
    let method = "lb.outlier_detection.detection_method";
    let expected = [
        (format!("client.attempt.delay.duration {call} delay_type=0:connecting {of_call}"), "1 sum 2"),
        (format!("client.attempt.delay.duration {call} delay_type=12:connecting {of_call}"), "1 sum 2"),
        (format!("client.attempt.duration {call} {at} {late}"), "1 sum 0.015"),
        (format!("client.call.delay.duration {call} delay_type=connecting {of_call}"), "1 sum 2"),
        (format!("client.attempt.rcvd_total_compressed_message_size {call} {at} {late}"), "1 sum 0"),
        (format!("client.attempt.sent_total_compressed_message_size {call} {at} {late}"), "1 sum 10"),
        (format!("client.attempt.started {call} {of_call}"), "1"),
        (format!("client.call.duration {call} method=shop.Cart/Add status=OK target=xds:///shop"), "2 sum 5"),
        (format!("client.call.retries {call} {of_call}"), "1 sum 2"),
        (format!("client.call.retry_delay {call} {of_call}"), "1 sum 3"),
        (format!("client.call.transparent_retries {call} {of_call}"), "1 sum 1"),
        (
            format!(
                "lb.outlier_detection.ejections_enforced lb.backend_service=cart {method}=success_rate target=xds:///shop"
            ),
            "1",
        ),
        (
            format!(
                "lb.outlier_detection.ejections_unenforced lb.backend_service=cart {method}=failure_percentage \
                 lb.outlier_detection.unenforced_reason=max_ejection_overflow target=xds:///shop"
            ),
            "1",
        ),
        (format!("lb.wrr.endpoint_weight_not_yet_usable {eu}"), "1"),
        (format!("lb.wrr.endpoint_weight_not_yet_usable {none}"), "0"),
        (format!("lb.wrr.endpoint_weight_stale {eu}"), "2"),
        (format!("lb.wrr.endpoint_weight_stale {none}"), "0"),
        (format!("lb.wrr.endpoint_weights {eu}"), "4 sum 7"),
        (format!("lb.wrr.endpoint_weights {none}"), "2 sum 3"),
        (format!("lb.wrr.rr_fallback {eu}"), "1"),
        (format!("subchannel.connection_attempts_failed {at} target=xds:///shop"), "1"),
        (format!("subchannel.connection_attempts_succeeded {at} target=xds:///shop"), "3"),
        (format!("subchannel.disconnections disconnect_error=connection reset {at} target=xds:///shop"), "1"),
        (format!("subchannel.open_connections {at} security_level=none target=xds:///shop"), "1"),
        (
            format!(
                "subchannel.open_connections {at} security_level=privacy_and_integrity target=xds:///shop"
            ),
            "1",
        ),
    ];
    let mut values = collected.export(|_, _, _, _| {});
    values.retain(|name, _| !name.starts_with(OF_LOOKUPS));
    let expected: Values = expected.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    assert_eq!(values, expected);
}

#[test]
fn rl15_metrics_of_lookups_have_their_labels() {
    let collected = Collected::new(ChannelMetricsBuilder::enable_all);
    let _usage = collected.record();
    let lookup = "lb.rls.server_target=xds:///lookup target=xds:///shop";
    let to_cart = "lb.rls.data_plane_target=cart";
    let expected = [
        (format!("lb.rls.cache_entries lb.rls.instance_uuid= {lookup}"), "3"),
        (format!("lb.rls.cache_size lb.rls.instance_uuid= {lookup}"), "1700"),
        (format!("lb.rls.default_target_picks lb.pick_result=fail {to_cart} {lookup}"), "1"),
        (format!("lb.rls.failed_picks {lookup}"), "1"),
        (format!("lb.rls.target_picks lb.pick_result=complete {to_cart} {lookup}"), "1"),
        (format!("lb.rls.target_picks lb.pick_result=drop {to_cart} {lookup}"), "1"),
    ];
    let mut values = collected.export(|_, _, _, _| {});
    values.retain(|name, _| name.starts_with(OF_LOOKUPS));
    let expected: Values = expected.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    assert_eq!(values, expected);
}

#[test]
fn ch9_13_instruments_have_units_descriptions_and_the_buckets_of_a66() {
    let collected = Collected::new(ChannelMetricsBuilder::enable_all);
    let _usage = collected.record();
    let mut seen = Vec::new();
    collected.export(|name, unit, description, bounds| {
        assert!(description.ends_with('.'), "{name}: {description}");
        seen.push((name.to_owned(), unit.to_owned(), bounds.len()));
        match bounds.len() {
            41 => assert_eq!([bounds[1], bounds[15], bounds[40]], [0.00001, 0.013, 100.0], "{name}"),
            14 => assert_eq!(
                [bounds[1], bounds[8], bounds[13]],
                [1_024.0, 4_194_304.0, 4_294_967_296.0],
                "{name}"
            ),
            6 => assert_eq!(bounds, [1.0, 2.0, 3.0, 4.0, 5.0, 10.0], "{name}"),
            5 => assert_eq!(bounds, [1.0, 2.0, 3.0, 4.0, 5.0], "{name}"),
            _ => assert!(bounds.is_sorted(), "{name}: those of the SDK"),
        }
    });
    seen.sort();
    let expected = [
        ("client.attempt.delay.duration", "s", 41),
        ("client.attempt.duration", "s", 41),
        ("client.attempt.rcvd_total_compressed_message_size", "By", 14),
        ("client.attempt.sent_total_compressed_message_size", "By", 14),
        ("client.attempt.started", "{attempt}", 0),
        ("client.call.delay.duration", "s", 41),
        ("client.call.duration", "s", 41),
        ("client.call.retries", "{retry}", 5),
        ("client.call.retry_delay", "s", 41),
        ("client.call.transparent_retries", "{transparent_retry}", 6),
        ("lb.outlier_detection.ejections_enforced", "{ejection}", 0),
        ("lb.outlier_detection.ejections_unenforced", "{ejection}", 0),
        ("lb.rls.cache_entries", "{entry}", 0),
        ("lb.rls.cache_size", "By", 0),
        ("lb.rls.default_target_picks", "{pick}", 0),
        ("lb.rls.failed_picks", "{pick}", 0),
        ("lb.rls.target_picks", "{pick}", 0),
        ("lb.wrr.endpoint_weight_not_yet_usable", "{endpoint}", 0),
        ("lb.wrr.endpoint_weight_stale", "{endpoint}", 0),
        ("lb.wrr.endpoint_weights", "{weight}", 15),
        ("lb.wrr.rr_fallback", "{update}", 0),
        ("subchannel.connection_attempts_failed", "{attempt}", 0),
        ("subchannel.connection_attempts_succeeded", "{attempt}", 0),
        ("subchannel.disconnections", "{disconnection}", 0),
        ("subchannel.open_connections", "{connection}", 0),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, unit, bounds)| (format!("grpc.{name}"), (*unit).to_owned(), *bounds))
        .collect();
    assert_eq!(seen, expected);
    let all: BTreeSet<_> = instruments::ALL.iter().map(|it| it.name).collect();
    assert_eq!(all.len(), instruments::ALL.len(), "no name is there twice");
}

#[test]
fn ch9_10_instruments_are_enabled_and_disabled_by_name() {
    let names = ["grpc.client.call.retries", "grpc.unknown"];
    let collected = Collected::new(|it| {
        it.enable(names).disable(["grpc.client.call.duration", "grpc.client.attempt.started"])
    });
    let _usage = collected.record();
    let mut seen = Vec::new();
    collected.export(|name, _, _, _| seen.push(name.to_owned()));
    seen.sort();
    let expected = [
        "grpc.client.attempt.duration",
        "grpc.client.attempt.rcvd_total_compressed_message_size",
        "grpc.client.attempt.sent_total_compressed_message_size",
        "grpc.client.call.retries",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn c30_attempts_have_the_service_of_their_cluster_and_nothing_else_has() {
    let all = LABELS;
    let collected = Collected::new(|it| it.enable_all().optional_labels(all).all_methods());
    let _usage = collected.record();
    let values = collected.export(|_, _, _, _| {});
    let of_service = "csm.service_name=cart-service csm.service_namespace_name=eu";
    let have: Vec<_> = values.keys().filter(|name| name.contains("csm.")).collect();
    assert_eq!(have.len(), 3, "{have:?}");
    for name in have {
        assert!(name.starts_with("client.attempt.") && name.contains(of_service), "{name}");
        assert!(
            name.contains(" status=") && name.contains(" lb.locality=here"),
            "no label is one too many: {name}"
        );
    }
}

#[test]
fn c30_the_service_of_an_attempt_without_a_cluster_is_unknown() {
    let mut labels = Labels::of(&[]);
    let optional = OptionalLabels { service_name: true, ..OptionalLabels::default() };
    labels.add_service(&PickLabels::default(), optional);
    let [label] = labels.all() else { panic!("{:?}", labels.all()) };
    assert_eq!((label.key.as_str(), label.value.as_str().as_ref()), ("csm.service_name", "unknown"));
}

#[test]
fn ch9_20_labels_of_picks_are_made_if_one_of_them_is_enabled() {
    let has = |labels: &[&str]| {
        let collected = Collected::new(|it| it.optional_labels(labels.iter().copied()));
        collected.metrics.recorder("xds:///shop").method("/shop.Cart/Add", false).has_pick_labels()
    };
    assert!(!has(&[]) && !has(&[CUSTOM, SECURITY_LEVEL]));
    assert!([LOCALITY, BACKEND_SERVICE, SERVICE_NAME, SERVICE_NAMESPACE].iter().all(|label| has(&[label])));
}

#[test]
fn ch9_11_a_method_has_one_recorder_in_a_channel_and_all_unnamed_ones_share_one() {
    let collected = Collected::new(|it| it.methods(["shop.Cart/Add", "shop.Cart/Get"]));
    let recorder = collected.metrics.recorder("xds:///shop");
    let of = |path: &str| Arc::as_ptr(&recorder.method(path, false)).cast::<()>();
    assert_eq!(of("/shop.Cart/Add"), of("/shop.Cart/Add"));
    assert_ne!(of("/shop.Cart/Add"), of("/shop.Cart/Get"));
    assert_ne!(of("/shop.Cart/Add"), of("/other"));
    assert_eq!(of("/other"), of("/users.text/Any"));
}
