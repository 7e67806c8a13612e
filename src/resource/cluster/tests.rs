use super::*;
use crate::pb::envoy::{
    config::{
        cluster::v3::{
            CircuitBreakers, LoadBalancingPolicy, circuit_breakers::Thresholds, cluster::EdsClusterConfig,
        },
        core::v3::config_source::ConfigSourceSpecifier as Source,
    },
    extensions::transport_sockets::tls::v3 as tls,
};

fn parse(from: cluster::Cluster) -> Result<Cluster, String> {
    let providers = ["ca".to_owned()].into();
    let cx = Context::new().with_certificate_providers(&providers);
    Cluster::parse(from.encode_to_vec().into(), &cx).map_err(|e| e.to_string())
}

fn any(name: &str, message: &impl Message) -> google::Any {
    google::Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec().into() }
}

fn source(specifier: Source) -> core::ConfigSource {
    core::ConfigSource { config_source_specifier: Some(specifier), ..Default::default() }
}

fn ads() -> core::ConfigSource {
    source(Source::Ads(core::AggregatedConfigSource {}))
}

fn of_type(discovery: DiscoveryType) -> cluster::Cluster {
    cluster::Cluster {
        name: "shop".into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(discovery as i32)),
        ..Default::default()
    }
}

/// What is accepted, as the start of variations.
fn eds() -> cluster::Cluster {
    let config = EdsClusterConfig { eds_config: Some(ads()), service_name: "shop-eds".into() };
    cluster::Cluster { eds_cluster_config: Some(config), ..of_type(DiscoveryType::Eds) }
}

fn dns(host: &str, port: Option<u32>) -> cluster::Cluster {
    let socket = core::SocketAddress {
        address: host.into(),
        port_specifier: port.map(core::socket_address::PortSpecifier::PortValue),
        ..Default::default()
    };
    let address = core::Address { address: Some(core::address::Address::SocketAddress(socket)) };
    let endpoint = endpoint::Endpoint { address: Some(address), ..Default::default() };
    let host = endpoint::LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
        ..Default::default()
    };
    let locality = endpoint::LocalityLbEndpoints { lb_endpoints: vec![host], ..Default::default() };
    let load_assignment =
        Some(endpoint::ClusterLoadAssignment { endpoints: vec![locality], ..Default::default() });
    cluster::Cluster { load_assignment, ..of_type(DiscoveryType::LogicalDns) }
}

fn custom(config: Option<google::Any>) -> cluster::Cluster {
    let custom = CustomClusterType { name: "whatever".into(), typed_config: config };
    cluster::Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::ClusterType(custom)),
        ..of_type(DiscoveryType::Eds)
    }
}

fn socket(config: google::Any) -> Option<core::TransportSocket> {
    Some(core::TransportSocket { name: String::new(), config_type: Some(ConfigType::TypedConfig(config)) })
}

fn tls_context() -> google::Any {
    let instance =
        tls::CertificateProviderPluginInstance { instance_name: "ca".into(), ..Default::default() };
    let validation = tls::CertificateValidationContext {
        ca_certificate_provider_instance: Some(instance),
        ..Default::default()
    };
    let common = tls::CommonTlsContext {
        validation_context_type: Some(tls::common_tls_context::ValidationContextType::ValidationContext(
            validation,
        )),
        ..Default::default()
    };
    let message = tls::UpstreamTlsContext { common_tls_context: Some(common), ..Default::default() };
    any("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", &message)
}

#[test]
fn a_plain_cluster_has_the_defaults() {
    let parsed = parse(eds()).unwrap();
    assert_eq!(
        serde_json::to_value(&parsed).unwrap(),
        serde_json::json!({
            "name": "shop", "kind": "eds", "service_name": "shop-eds",
            "lb_policy": {"wrr_locality": {"endpoint_picking_policy": "round_robin"}},
            "max_requests": 1024, "outlier_detection": null, "tls": null, "http_connect": false,
            "idle_timeout": "3600s", "report_load": false,
            "reported_metrics": {"cpu_utilization": false, "mem_utilization": false,
                "application_utilization": false, "all_named_metrics": false, "named_metrics": []},
            "telemetry_labels": {"service_name": "unknown", "service_namespace": "unknown"},
            "override_host_status": {"unknown": true, "healthy": true, "draining": false},
            "metadata": {},
        })
    );
    let size = size_of::<Cluster>();
    assert!(size <= 256, "{size} bytes");
}

#[test]
fn g5_g6_bytes_and_names_must_be_there() {
    let e = Cluster::parse(Bytes::from_static(b"\xff"), &Context::new()).unwrap_err();
    assert!(e.reason().starts_with("not a valid message"), "{e}");
    assert_eq!(
        parse(cluster::Cluster { name: String::new(), ..eds() }).unwrap_err(),
        "name: must not be empty"
    );
}

#[test]
fn c1_endpoints_come_from_the_same_stream() {
    let with = |eds_config| {
        let config = EdsClusterConfig { eds_config, service_name: String::new() };
        parse(cluster::Cluster { eds_cluster_config: Some(config), ..eds() })
    };
    for good in [ads(), source(Source::Self_(core::SelfConfigSource::default()))] {
        assert_eq!(with(Some(good)).unwrap().kind, ClusterKind::Eds { service_name: "shop".into() });
    }
    for bad in [None, Some(core::ConfigSource::default()), Some(source(Source::Path("x".into())))] {
        assert!(with(bad).unwrap_err().starts_with("eds_cluster_config.eds_config: "));
    }
    let e = parse(cluster::Cluster { eds_cluster_config: None, ..eds() }).unwrap_err();
    assert_eq!(e, "eds_cluster_config: must be set");
}

#[test]
fn c2_a_cluster_with_an_xdstp_name_names_its_endpoints() {
    let with = |service_name: &str| {
        let config = EdsClusterConfig { eds_config: Some(ads()), service_name: service_name.into() };
        let name = "xdstp://a/envoy.config.cluster.v3.Cluster/c".to_owned();
        parse(cluster::Cluster { name, eds_cluster_config: Some(config), ..eds() })
    };
    assert!(with("").unwrap_err().starts_with("eds_cluster_config.service_name: must be set"));
    assert_eq!(with("e").unwrap().kind, ClusterKind::Eds { service_name: "e".into() });
}

#[test]
fn c3_logical_dns_has_one_host_to_look_up() {
    for (host, port, expected) in [("shop.local", 443, "shop.local:443"), ("::1", 0, "[::1]:0")] {
        let parsed = serde_json::to_value(parse(dns(host, Some(port))).unwrap()).unwrap();
        assert_eq!((&parsed["kind"], &parsed["address"]), (&"logical_dns".into(), &expected.into()));
    }
    let at = "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address";
    let socket = format!("{at}.socket_address");
    for (bad, expected) in [
        (dns("", Some(1)), format!("{socket}.address: must not be empty")),
        (dns("a", None), format!("{socket}.port_value: must be set")),
        (dns("a", Some(65536)), format!("{socket}.port_value: must be at most 65535, is 65536")),
        (of_type(DiscoveryType::LogicalDns), "load_assignment: must be set".to_owned()),
    ] {
        assert_eq!(parse(bad).unwrap_err(), expected);
    }
    type Change = fn(&mut endpoint::ClusterLoadAssignment);
    let changes: [(Change, &str); 7] = [
        (|a| a.endpoints.clear(), "load_assignment.endpoints: must be exactly one locality, are 0"),
        (
            |a| a.endpoints.push(a.endpoints[0].clone()),
            "load_assignment.endpoints: must be exactly one locality, are 2",
        ),
        (
            |a| a.endpoints[0].lb_endpoints.clear(),
            "load_assignment.endpoints[0].lb_endpoints: must be exactly one endpoint, are 0",
        ),
        (
            |a| a.endpoints[0].lb_endpoints[0].host_identifier = None,
            "load_assignment.endpoints[0].lb_endpoints[0].endpoint: must be set",
        ),
        (
            |a| host(a).address = None,
            "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address: must be set",
        ),
        (
            |a| socket_of(a).resolver_name = "mine".into(),
            "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address.resolver_name: \
             is not supported; names are looked up in DNS",
        ),
        (
            |a| {
                socket_of(a).port_specifier =
                    Some(core::socket_address::PortSpecifier::NamedPort("http".into()));
            },
            "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address.named_port: \
             must be a port_value, is the name \"http\"",
        ),
    ];
    for (change, expected) in changes {
        let mut from = dns("a", Some(1));
        change(from.load_assignment.as_mut().unwrap());
        assert_eq!(parse(from).unwrap_err(), expected);
    }
}

fn host(of: &mut endpoint::ClusterLoadAssignment) -> &mut endpoint::Endpoint {
    match of.endpoints[0].lb_endpoints[0].host_identifier.as_mut().unwrap() {
        HostIdentifier::Endpoint(endpoint) => endpoint,
        HostIdentifier::EndpointName(_) => panic!("a name"),
    }
}

fn socket_of(of: &mut endpoint::ClusterLoadAssignment) -> &mut core::SocketAddress {
    match host(of).address.as_mut().unwrap().address.as_mut().unwrap() {
        core::address::Address::SocketAddress(socket) => socket,
        core::address::Address::Pipe(_) => panic!("a pipe"),
    }
}

#[test]
fn c4_an_aggregate_is_known_by_its_type_url() {
    let config = |clusters: &[&str]| {
        let clusters = clusters.iter().map(|name| (*name).to_owned()).collect();
        any(AGGREGATE, &aggregate::ClusterConfig { clusters })
    };
    let parsed = parse(custom(Some(config(&["a", "b"])))).unwrap();
    assert_eq!(parsed.kind, ClusterKind::Aggregate { clusters: ["a".into(), "b".into()].into() });
    let json = serde_json::to_value(&parsed).unwrap();
    assert_eq!((&json["kind"], &json["clusters"]), (&"aggregate".into(), &serde_json::json!(["a", "b"])));
    for (bad, expected) in [
        (Some(config(&[])), "cluster_type.typed_config.clusters: must not be empty".to_owned()),
        (None, "cluster_type.typed_config: must be set".to_owned()),
        (
            Some(any("a.B", &google::Any::default())),
            format!("cluster_type.typed_config: \"a.B\" is not supported, only {AGGREGATE}"),
        ),
    ] {
        assert_eq!(parse(custom(bad)).unwrap_err(), expected);
    }
    let broken = google::Any { type_url: AGGREGATE.into(), value: b"\xff"[..].into() };
    assert!(parse(custom(Some(broken))).unwrap_err().starts_with("cluster_type.typed_config.value: "));
}

#[test]
fn c5_other_types_are_rejected() {
    for other in [DiscoveryType::Static, DiscoveryType::StrictDns, DiscoveryType::OriginalDst] {
        let e = parse(of_type(other)).unwrap_err();
        assert_eq!(e, format!("type: {} is not supported, only EDS and LOGICAL_DNS", other.as_str_name()));
    }
    let unset = cluster::Cluster { cluster_discovery_type: None, ..eds() };
    assert_eq!(parse(unset).unwrap_err(), "type: must be set");
    let unknown = ClusterDiscoveryType::Type(9);
    let unknown = cluster::Cluster { cluster_discovery_type: Some(unknown), ..eds() };
    assert_eq!(parse(unknown).unwrap_err(), "type: 9 is no known type");
}

#[test]
fn c10_a_bad_policy_rejects_the_cluster() {
    let from = cluster::Cluster { load_balancing_policy: Some(LoadBalancingPolicy::default()), ..eds() };
    assert!(parse(from).unwrap_err().starts_with("load_balancing_policy.policies: none is supported"));
}

#[test]
fn c19_transport_socket_matches_are_rejected() {
    let matches = vec![cluster::cluster::TransportSocketMatch::default()];
    let e = parse(cluster::Cluster { transport_socket_matches: matches, ..eds() }).unwrap_err();
    assert_eq!(e, "transport_socket_matches: is not supported; use transport_socket");
}

#[test]
fn c20_a_transport_socket_is_tls() {
    assert_eq!(parse(eds()).unwrap().tls, None);
    let parsed = parse(cluster::Cluster { transport_socket: socket(tls_context()), ..eds() }).unwrap();
    assert!(parsed.tls.is_some() && !parsed.http_connect);
    let other = socket(any("a.RawBuffer", &google::Any::default()));
    let e = parse(cluster::Cluster { transport_socket: other, ..eds() }).unwrap_err();
    assert!(e.starts_with("transport_socket.typed_config: \"a.RawBuffer\" is not supported"), "{e}");
    let empty = Some(core::TransportSocket::default());
    let e = parse(cluster::Cluster { transport_socket: empty, ..eds() }).unwrap_err();
    assert_eq!(e, "transport_socket.typed_config: must be set");
}

#[test]
fn c21_tls_may_go_through_an_http_proxy() {
    let proxy = |transport_socket| {
        let message = http_11_proxy::Http11ProxyUpstreamTransport { transport_socket };
        parse(cluster::Cluster { transport_socket: socket(any(HTTP_11_PROXY, &message)), ..eds() })
    };
    let plain = proxy(None).unwrap();
    assert!(plain.http_connect && plain.tls.is_none());
    let with_tls = proxy(socket(tls_context())).unwrap();
    assert!(with_tls.http_connect && with_tls.tls.is_some());
    let e = proxy(socket(any("a.B", &google::Any::default()))).unwrap_err();
    assert!(e.starts_with("transport_socket.typed_config.transport_socket.typed_config: "), "{e}");
}

#[test]
fn c24_load_is_reported_to_the_same_server_only() {
    let with = |lrs_server| parse(cluster::Cluster { lrs_server, ..eds() });
    assert!(with(Some(source(Source::Self_(core::SelfConfigSource::default())))).unwrap().report_load);
    assert!(!with(None).unwrap().report_load);
    for bad in [ads(), core::ConfigSource::default(), source(Source::Path("x".into()))] {
        assert!(with(Some(bad)).unwrap_err().starts_with("lrs_server: "));
    }
}

#[test]
fn c25_the_first_default_threshold_limits_requests() {
    let threshold = |priority, max: Option<u32>| Thresholds {
        priority,
        max_requests: max.map(|value| google::UInt32Value { value }),
        ..Default::default()
    };
    for (thresholds, expected) in [
        (vec![], 1024),
        (vec![threshold(1, Some(1))], 1024),
        (vec![threshold(0, None), threshold(0, Some(7))], 1024),
        (vec![threshold(1, Some(1)), threshold(0, Some(7)), threshold(0, Some(8))], 7),
        (vec![threshold(0, Some(0))], 0),
    ] {
        let circuit_breakers = Some(CircuitBreakers { thresholds, ..Default::default() });
        let parsed = parse(cluster::Cluster { circuit_breakers, ..eds() }).unwrap();
        assert_eq!(parsed.max_requests, expected);
    }
}

#[test]
fn c26_c29_outlier_detection_is_on_when_its_message_is_there() {
    let with = |detection| parse(cluster::Cluster { outlier_detection: Some(detection), ..eds() });
    assert!(with(cluster::OutlierDetection::default()).unwrap().outlier_detection.is_some());
    let interval = Some(google::Duration { seconds: -1, nanos: 0 });
    let e = with(cluster::OutlierDetection { interval, ..Default::default() }).unwrap_err();
    assert!(e.starts_with("outlier_detection.interval.seconds: "), "{e}");
}

#[test]
fn c30_labels_are_texts_of_the_metadata() {
    let value = |kind| google::Value { kind: Some(kind) };
    let labels = google::Struct {
        fields: [
            ("service_name".to_owned(), value(google::value::Kind::StringValue("web".into()))),
            ("service_namespace".to_owned(), value(google::value::Kind::NumberValue(1.0))),
        ]
        .into(),
    };
    let metadata = core::Metadata {
        filter_metadata: [("com.google.csm.telemetry_labels".to_owned(), labels)].into(),
        ..Default::default()
    };
    let parsed = parse(cluster::Cluster { metadata: Some(metadata), ..eds() }).unwrap();
    let expected = TelemetryLabels { service_name: "web".into(), service_namespace: "unknown".into() };
    assert_eq!(parsed.telemetry_labels, expected);
}

#[test]
fn c31_metrics_that_are_not_known_are_ignored() {
    let with = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        parse(cluster::Cluster { lrs_report_endpoint_metrics: names, ..eds() }).unwrap().reported_metrics
    };
    let some = with(&[
        "cpu_utilization",
        "named_metrics.b",
        "named_metrics.",
        "x",
        "named_metrics.a",
        "named_metrics.b",
    ]);
    assert!(some.cpu_utilization && !some.mem_utilization && !some.application_utilization);
    assert_eq!(some.named_metrics, ["a".into(), "b".into()].into());
    assert!(some.includes_named("a") && !some.includes_named("c"));
    let all = with(&["mem_utilization", "application_utilization", "named_metrics.a", "named_metrics.*"]);
    assert!(all.mem_utilization && all.application_utilization && all.includes_named("c"));
    assert!(all.named_metrics.is_empty());
}

#[test]
fn c32_metadata_that_cannot_be_parsed_rejects_the_cluster() {
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

#[test]
fn c33_the_upstream_options_are_http_with_an_idle_timeout_in_range() {
    let with = |typed_config| {
        let config = core::TypedExtensionConfig { name: "x".into(), typed_config };
        parse(cluster::Cluster { upstream_config: Some(config), ..eds() }).map(|c| c.idle_timeout)
    };
    let options = |idle_timeout| {
        let common_http_protocol_options =
            Some(core::HttpProtocolOptions { idle_timeout, ..Default::default() });
        Some(any(HTTP_PROTOCOL_OPTIONS, &upstreams::HttpProtocolOptions { common_http_protocol_options }))
    };
    assert_eq!(with(options(None)), Ok(Duration::from_secs(3600)));
    let half = google::Duration { seconds: 0, nanos: 500_000_000 };
    assert_eq!(with(options(Some(half))), Ok(Duration::from_millis(500)));
    let negative = google::Duration { seconds: -1, nanos: 0 };
    assert!(with(options(Some(negative))).unwrap_err().starts_with(
        "upstream_config.typed_config.common_http_protocol_options.idle_timeout.seconds: must be between"
    ));
    let e = with(Some(any("a.TcpOptions", &google::Any::default()))).unwrap_err();
    assert!(e.starts_with("upstream_config.typed_config: \"a.TcpOptions\" is not supported"), "{e}");
    assert_eq!(with(None).unwrap_err(), "upstream_config.typed_config: must be set");
}

#[test]
fn a55_1_session_affinity_prefers_the_named_states_of_health() {
    let with = |statuses: &[i32]| {
        let set = core::HealthStatusSet { statuses: statuses.to_vec() };
        let common_lb_config = Some(cluster::cluster::CommonLbConfig { override_host_status: Some(set) });
        parse(cluster::Cluster { common_lb_config, ..eds() }).unwrap().override_host_status
    };
    let expect = |unknown, healthy, draining| OverrideHostStatus { unknown, healthy, draining };
    assert_eq!(with(&[3, 2, 99]), expect(false, false, true));
    assert_eq!(with(&[0, 1, 5]), expect(true, true, false));
    assert_eq!(with(&[]), expect(false, false, false));
}
