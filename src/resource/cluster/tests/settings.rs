//! Other settings of clusters: rules C24 to C33.

use super::*;

#[test]
fn c24_accepts_load_reports_to_the_same_server() {
    let with = |lrs_server| parse(cluster::Cluster { lrs_server, ..eds() }).unwrap().report_load;
    assert!(with(Some(source(Source::Self_(core::SelfConfigSource::default())))));
    assert!(!with(None));
}

#[test]
fn c24_rejects_load_reports_to_another_server() {
    for bad in [ads(), core::ConfigSource::default(), source(Source::Path("x".into()))] {
        let e = parse(cluster::Cluster { lrs_server: Some(bad), ..eds() }).unwrap_err();
        assert_eq!(e, "lrs_server: only the server that sends the cluster is supported: self");
    }
}

fn max_requests_of(thresholds: impl IntoIterator<Item = (core::RoutingPriority, Option<u32>)>) -> u32 {
    let threshold = |(priority, max): (core::RoutingPriority, Option<u32>)| Thresholds {
        priority: priority as i32,
        max_requests: max.map(|value| google::UInt32Value { value }),
        ..Default::default()
    };
    let thresholds = thresholds.into_iter().map(threshold).collect();
    let circuit_breakers = Some(CircuitBreakers { thresholds, ..Default::default() });
    parse(cluster::Cluster { circuit_breakers, ..eds() }).unwrap().max_requests
}

#[test]
fn c25_accepts_the_first_threshold_of_the_default_priority() {
    use super::core::RoutingPriority::{Default, High};
    assert_eq!(max_requests_of([]), 1024);
    assert_eq!(max_requests_of([(Default, None), (Default, Some(7))]), 1024);
    assert_eq!(max_requests_of([(High, Some(1)), (Default, Some(7)), (Default, Some(8))]), 7);
    assert_eq!(max_requests_of([(Default, Some(0))]), 0);
}

#[test]
fn c25_ignores_thresholds_of_other_priorities() {
    assert_eq!(max_requests_of([(core::RoutingPriority::High, Some(1))]), 1024);
}

fn max_connections_of(
    thresholds: impl IntoIterator<Item = (core::RoutingPriority, Option<u32>)>,
) -> Result<u32, String> {
    let threshold = |(priority, max): (core::RoutingPriority, Option<u32>)| Thresholds {
        priority: priority as i32,
        max_connections: max.map(|value| google::UInt32Value { value }),
        ..Default::default()
    };
    let per_host_thresholds = thresholds.into_iter().map(threshold).collect();
    // Those of the cluster limit connections of proxies.
    let thresholds = vec![threshold((core::RoutingPriority::Default, Some(0)))];
    let circuit_breakers = Some(CircuitBreakers { thresholds, per_host_thresholds });
    parse(cluster::Cluster { circuit_breakers, ..eds() }).map(|it| it.max_connections)
}

#[test]
fn ch4_9_accepts_the_first_threshold_of_the_default_priority_for_each_endpoint() {
    use super::core::RoutingPriority::{Default, High};
    assert_eq!(parse(eds()).unwrap().max_connections, 1);
    assert_eq!(max_connections_of([]), Ok(1));
    assert_eq!(max_connections_of([(Default, None), (Default, Some(7))]), Ok(1));
    assert_eq!(max_connections_of([(High, Some(0)), (Default, Some(7)), (Default, Some(0))]), Ok(7));
    assert_eq!(max_connections_of([(Default, Some(u32::MAX))]), Ok(u32::MAX));
}

#[test]
fn ch4_9_rejects_a_threshold_of_no_connections_with_its_place() {
    use super::core::RoutingPriority::{Default, High};
    assert_eq!(
        max_connections_of([(High, Some(1)), (Default, Some(0))]).unwrap_err(),
        "circuit_breakers.per_host_thresholds[1].max_connections: must be greater than 0"
    );
}

fn detection(from: cluster::OutlierDetection) -> Result<Option<Box<OutlierDetection>>, String> {
    parse(cluster::Cluster { outlier_detection: Some(from), ..eds() })
        .map(|cluster| cluster.outlier_detection)
}

#[test]
fn c29_accepts_an_empty_message_as_outlier_detection_with_the_defaults() {
    let parsed = detection(cluster::OutlierDetection::default()).unwrap().unwrap();
    assert!(parsed.success_rate.is_some() && parsed.failure_percentage.is_none());
    assert_eq!((parsed.interval, parsed.max_ejection_percent), (Duration::from_secs(10), 10));
}

#[test]
fn c29_ignores_outlier_detection_that_is_not_there() {
    assert_eq!(parse(eds()).unwrap().outlier_detection, None);
}

#[test]
fn c26_rejects_the_cluster_with_the_place_of_the_duration() {
    let interval = Some(google::Duration { seconds: -1, nanos: 0 });
    let e = detection(cluster::OutlierDetection { interval, ..Default::default() }).unwrap_err();
    assert!(e.starts_with("outlier_detection.interval.seconds: must be between 0 and"), "{e}");
}

fn labels(fields: impl IntoIterator<Item = (&'static str, google::value::Kind)>) -> [String; 2] {
    let value = |kind| google::Value { kind: Some(kind) };
    let fields = fields.into_iter().map(|(key, kind)| (key.to_owned(), value(kind))).collect();
    let labels = [("com.google.csm.telemetry_labels".to_owned(), google::Struct { fields })].into();
    let metadata = core::Metadata { filter_metadata: labels, ..Default::default() };
    let parsed = parse(cluster::Cluster { metadata: Some(metadata), ..eds() }).unwrap();
    let TelemetryLabels { service_name, service_namespace } = parsed.telemetry_labels();
    [service_name, service_namespace].map(str::to_owned)
}

#[test]
fn c30_accepts_labels_that_are_texts() {
    use google::value::Kind::StringValue;
    let parsed = labels([
        ("service_name", StringValue("web".into())),
        ("service_namespace", StringValue("shop".into())),
        ("other", StringValue("x".into())),
    ]);
    assert_eq!(parsed, ["web", "shop"]);
}

#[test]
fn c30_ignores_labels_that_are_no_texts() {
    use google::value::Kind::{NumberValue, StringValue};
    assert_eq!(labels([("service_name", NumberValue(1.0))]), ["unknown"; 2]);
    assert_eq!(labels([]), ["unknown"; 2]);
    let parsed =
        labels([("service_name", StringValue("web".into())), ("service_namespace", NumberValue(1.0))]);
    assert_eq!(parsed, ["web", "unknown"]);
}

fn reported(names: &[&str]) -> ReportedMetrics {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    parse(cluster::Cluster { lrs_report_endpoint_metrics: names, ..eds() }).unwrap().reported_metrics
}

#[test]
fn c31_a85_accepts_the_metrics_that_are_known() {
    let some = reported(&["cpu_utilization", "named_metrics.b", "named_metrics.a", "named_metrics.b"]);
    assert!(some.cpu_utilization && !some.mem_utilization && !some.application_utilization);
    assert_eq!(some.named_metrics, ["a".into(), "b".into()].into());
    assert!(some.includes_named("a") && !some.includes_named("c"));
    let all = reported(&["mem_utilization", "application_utilization", "named_metrics.a", "named_metrics.*"]);
    assert!(all.mem_utilization && all.application_utilization && all.includes_named("c"));
    assert!(all.named_metrics.is_empty());
}

#[test]
fn c31_a85_ignores_other_metrics() {
    assert_eq!(reported(&["named_metrics.", "x", "named_metrics", "CPU_utilization"]), reported(&[]));
    assert_eq!(reported(&[]), ReportedMetrics::default());
}

#[test]
fn c32_rejects_the_cluster_with_the_place_of_the_metadata() {
    let audience = "envoy.extensions.filters.http.gcp_authn.v3.Audience";
    let metadata = core::Metadata {
        typed_filter_metadata: [(
            "x".to_owned(),
            google::Any { type_url: audience.into(), ..Default::default() },
        )]
        .into(),
        ..Default::default()
    };
    let e = parse(cluster::Cluster { metadata: Some(metadata), ..eds() }).unwrap_err();
    assert_eq!(e, "metadata.typed_filter_metadata[\"x\"].url: must not be empty");
}

fn idle_timeout_of(typed_config: Option<google::Any>) -> Result<Duration, String> {
    let config = core::TypedExtensionConfig { name: "x".into(), typed_config };
    parse(cluster::Cluster { upstream_config: Some(config), ..eds() }).map(|cluster| cluster.idle_timeout)
}

fn http_options(idle_timeout: Option<google::Duration>) -> Option<google::Any> {
    let common_http_protocol_options = Some(core::HttpProtocolOptions { idle_timeout, ..Default::default() });
    Some(any(HTTP_PROTOCOL_OPTIONS, &upstreams::HttpProtocolOptions { common_http_protocol_options }))
}

#[test]
fn c33_a75_accepts_http_options_with_an_idle_timeout_in_range() {
    let span = |seconds, nanos| Some(google::Duration { seconds, nanos });
    for (timeout, expected) in [
        (None, Duration::from_secs(3600)),
        (span(0, 0), Duration::ZERO),
        (span(0, 500_000_000), Duration::from_millis(500)),
        (span(315_576_000_000, 999_999_999), Duration::new(315_576_000_000, 999_999_999)),
    ] {
        assert_eq!(idle_timeout_of(http_options(timeout)), Ok(expected));
    }
    assert_eq!(parse(eds()).unwrap().idle_timeout, Duration::from_secs(3600));
}

#[test]
fn c33_a75_rejects_other_options_and_timeouts_out_of_range() {
    let at = "upstream_config.typed_config";
    for (seconds, nanos, field) in
        [(-1, 0, "seconds"), (315_576_000_001, 0, "seconds"), (1, -1, "nanos"), (1, 1_000_000_000, "nanos")]
    {
        let e = idle_timeout_of(http_options(Some(google::Duration { seconds, nanos }))).unwrap_err();
        let at = format!("{at}.common_http_protocol_options.idle_timeout.{field}: must be between 0 and");
        assert!(e.starts_with(&at), "{e}");
    }
    let e = idle_timeout_of(Some(any("a.TcpOptions", &google::Any::default()))).unwrap_err();
    assert_eq!(e, format!("{at}: \"a.TcpOptions\" is not supported, only {HTTP_PROTOCOL_OPTIONS}"));
    assert_eq!(idle_timeout_of(None).unwrap_err(), format!("{at}: must be set"));
    let broken = google::Any { type_url: HTTP_PROTOCOL_OPTIONS.into(), value: b"\xff"[..].into() };
    assert!(idle_timeout_of(Some(broken)).unwrap_err().starts_with(&format!("{at}.value: ")));
}

fn statuses(statuses: &[i32]) -> OverrideHostStatus {
    let set = core::HealthStatusSet { statuses: statuses.to_vec() };
    let common_lb_config =
        Some(cluster::cluster::CommonLbConfig { override_host_status: Some(set), ..Default::default() });
    parse(cluster::Cluster { common_lb_config, ..eds() }).unwrap().override_host_status
}

#[test]
fn c33_a55_accepts_the_states_of_health_for_session_affinity() {
    let expect = |unknown, healthy, draining| OverrideHostStatus { unknown, healthy, draining };
    assert_eq!(statuses(&[0, 1]), expect(true, true, false));
    assert_eq!(statuses(&[3]), expect(false, false, true));
    assert_eq!(statuses(&[]), expect(false, false, false));
    let unset = parse(eds()).unwrap().override_host_status;
    assert_eq!(unset, expect(true, true, false));
    assert!(unset.contains(HealthStatus::Healthy) && !unset.contains(HealthStatus::Draining));
}

#[test]
fn c33_a55_ignores_other_states_of_health() {
    assert_eq!(statuses(&[2, 4, 5, 99]), statuses(&[]));
    assert_eq!(statuses(&[3, 2, 99]), statuses(&[3]));
}

/// What the reader of the bytes takes for the policy of the older field, which has settings in two messages of the cluster.
#[test]
fn c9_reads_maglev_in_the_older_field() {
    use cluster::cluster::{
        CommonLbConfig, LbConfig, MaglevLbConfig, common_lb_config::LocalityConfigSpecifier,
    };
    let weighted = LocalityConfigSpecifier::LocalityWeightedLbConfig(Default::default());
    let from = cluster::Cluster {
        lb_policy: cluster::cluster::LbPolicy::Maglev.into(),
        lb_config: Some(LbConfig::MaglevLbConfig(MaglevLbConfig {
            table_size: Some(google::UInt64Value { value: 251 }),
        })),
        common_lb_config: Some(CommonLbConfig {
            locality_config_specifier: Some(weighted),
            ..Default::default()
        }),
        ..eds()
    };
    let LbPolicy::Maglev(maglev) = parse(from).unwrap().lb_policy else { panic!("another policy") };
    assert_eq!((maglev.table_size, maglev.locality_weighted), (251, true));
}
