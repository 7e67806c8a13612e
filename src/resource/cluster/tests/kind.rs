//! Sources of endpoints: rules C1 to C5.

use super::*;

#[test]
fn c1_accepts_endpoints_of_the_same_stream() {
    for good in [ads(), source(Source::Self_(core::SelfConfigSource::default()))] {
        let parsed = parse(eds_from(Some(good))).unwrap();
        assert_eq!(parsed.kind, ClusterKind::Eds { service_name: "shop".into(), source: None });
    }
}

#[test]
fn c1_rejects_endpoints_of_another_source() {
    let others = [None, Some(core::ConfigSource::default()), Some(source(Source::Path("x".into())))];
    let reasons = ["is not set", "is not set", "only the sources ads and self are supported"];
    for (other, reason) in others.into_iter().zip(reasons) {
        let e = parse(eds_from(other)).unwrap_err();
        assert!(e.starts_with("eds_cluster_config.eds_config: ") && e.ends_with(reason), "{e}");
    }
    let e = parse(cluster::Cluster { eds_cluster_config: None, ..eds() }).unwrap_err();
    assert_eq!(e, "eds_cluster_config: must be set");
}

fn eds_from(eds_config: Option<core::ConfigSource>) -> cluster::Cluster {
    let config = EdsClusterConfig { eds_config, service_name: String::new() };
    cluster::Cluster { eds_cluster_config: Some(config), ..eds() }
}

#[test]
fn c2_accepts_a_cluster_with_an_xdstp_name_that_names_its_endpoints() {
    assert_eq!(parse(xdstp("e")).unwrap().kind, ClusterKind::Eds { service_name: "e".into(), source: None });
}

#[test]
fn c2_rejects_a_cluster_with_an_xdstp_name_that_does_not() {
    assert_eq!(
        parse(xdstp("")).unwrap_err(),
        "eds_cluster_config.service_name: must be set, because the cluster's xdstp: name cannot be the name of \
         its endpoints"
    );
}

fn xdstp(service_name: &str) -> cluster::Cluster {
    let config = EdsClusterConfig { eds_config: Some(ads()), service_name: service_name.into() };
    let name = "xdstp://a/envoy.config.cluster.v3.Cluster/c".to_owned();
    cluster::Cluster { name, eds_cluster_config: Some(config), ..eds() }
}

#[test]
fn c3_accepts_one_host_to_look_up() {
    // Port 0, too: C-core checks its presence alone.
    for (host, port, expected) in [("shop.local", 443, "shop.local:443"), ("::1", 0, "[::1]:0")] {
        let parsed = serde_json::to_value(parse(dns(host, Some(port))).unwrap()).unwrap();
        assert_eq!((&parsed["kind"], &parsed["address"]), (&"logical_dns".into(), &expected.into()));
    }
}

#[test]
fn c3_rejects_anything_but_one_host_and_a_port() {
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
fn c4_accepts_an_aggregate_by_its_type_url() {
    // The type of the message decides, not the name of the extension (A37-3).
    let parsed = parse(custom(Some(clusters(&["a", "b"])))).unwrap();
    assert_eq!(parsed.kind, ClusterKind::Aggregate { clusters: ["a".into(), "b".into()].into() });
    let json = serde_json::to_value(&parsed).unwrap();
    assert_eq!((&json["kind"], &json["clusters"]), (&"aggregate".into(), &serde_json::json!(["a", "b"])));
}

#[test]
fn c4_rejects_an_aggregate_of_none_and_other_custom_types() {
    for (bad, expected) in [
        (Some(clusters(&[])), "cluster_type.typed_config.clusters: must not be empty".to_owned()),
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

fn clusters(names: &[&str]) -> google::Any {
    let clusters = names.iter().map(|name| (*name).to_owned()).collect();
    any(AGGREGATE, &aggregate::ClusterConfig { clusters })
}

#[test]
fn c5_accepts_eds_and_logical_dns() {
    assert!(matches!(parse(eds()).unwrap().kind, ClusterKind::Eds { .. }));
    assert!(matches!(parse(dns("a", Some(1))).unwrap().kind, ClusterKind::LogicalDns { .. }));
}

#[test]
fn c5_rejects_other_types() {
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
