use super::*;
use crate::pb::envoy::{
    config::{
        core::v3::{address::Address as Kind, socket_address::PortSpecifier},
        endpoint::v3::{LbEndpoint, LocalityLbEndpoints, endpoint::AdditionalAddress},
    },
    r#type::v3::FractionalPercent,
};

fn parse(from: &endpoint::ClusterLoadAssignment) -> Result<ClusterLoadAssignment, String> {
    ClusterLoadAssignment::parse(from.encode_to_vec().into(), &Context::new()).map_err(|e| e.to_string())
}

fn assignment(endpoints: impl IntoIterator<Item = LocalityLbEndpoints>) -> endpoint::ClusterLoadAssignment {
    endpoint::ClusterLoadAssignment {
        cluster_name: "shop".into(),
        endpoints: endpoints.into_iter().collect(),
        policy: None,
    }
}

fn parse_localities(
    endpoints: impl IntoIterator<Item = LocalityLbEndpoints>,
) -> Result<ClusterLoadAssignment, String> {
    parse(&assignment(endpoints))
}

fn value(value: u32) -> Option<google::UInt32Value> {
    Some(google::UInt32Value { value })
}

fn locality(
    zone: &str,
    priority: u32,
    lb_endpoints: impl IntoIterator<Item = LbEndpoint>,
) -> LocalityLbEndpoints {
    LocalityLbEndpoints {
        locality: Some(core::Locality { zone: zone.into(), ..Default::default() }),
        load_balancing_weight: value(1),
        lb_endpoints: lb_endpoints.into_iter().collect(),
        priority,
        ..Default::default()
    }
}

fn address(ip: &str, port: u32) -> core::Address {
    let socket = core::SocketAddress {
        address: ip.into(),
        port_specifier: Some(PortSpecifier::PortValue(port)),
        ..Default::default()
    };
    core::Address { address: Some(Kind::SocketAddress(socket)) }
}

fn host(address: Option<core::Address>) -> LbEndpoint {
    let endpoint = endpoint::Endpoint { address, ..Default::default() };
    LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..Default::default() }
}

fn at(ip: &str) -> LbEndpoint {
    host(Some(address(ip, 80)))
}

fn with_additional(ip: &str, additional: &[&str]) -> LbEndpoint {
    let endpoint = endpoint::Endpoint {
        address: Some(address(ip, 80)),
        additional_addresses: additional
            .iter()
            .map(|ip| AdditionalAddress { address: Some(address(ip, 80)) })
            .collect(),
        ..Default::default()
    };
    LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..Default::default() }
}

fn metadata(key: &str, field: &str, kind: google::value::Kind) -> Option<core::Metadata> {
    let fields = [(field.to_owned(), google::Value { kind: Some(kind) })].into();
    let filter_metadata = [(key.to_owned(), google::Struct { fields })].into();
    Some(core::Metadata { filter_metadata, ..Default::default() })
}

fn zones(of: &ClusterLoadAssignment) -> Vec<Vec<&str>> {
    of.priorities.iter().map(|p| p.localities.iter().map(|l| &*l.locality.zone).collect()).collect()
}

#[test]
fn the_json_has_addresses_names_and_categories_as_written() {
    let mut endpoint = with_additional("10.0.0.1", &["2001:db8::1"]);
    endpoint.health_status = 3;
    endpoint.load_balancing_weight = value(7);
    let Some(HostIdentifier::Endpoint(inner)) = &mut endpoint.host_identifier else { panic!("no endpoint") };
    inner.hostname = "a.shop.local".into();
    endpoint.metadata = metadata("envoy.lb", "hash_key", google::value::Kind::StringValue("k".into()));
    let mut from = assignment([locality("z", 0, [endpoint])]);
    let drop = policy::DropOverload {
        category: "throttle".into(),
        drop_percentage: Some(FractionalPercent { numerator: 5, denominator: 0 }),
    };
    from.policy = Some(endpoint::cluster_load_assignment::Policy {
        drop_overloads: vec![drop],
        overprovisioning_factor: value(140),
    });
    assert_eq!(
        serde_json::to_value(parse(&from).unwrap()).unwrap(),
        serde_json::json!({
            "cluster_name": "shop",
            "priorities": [{"localities": [{
                "locality": {"region": "", "zone": "z", "sub_zone": ""},
                "weight": 1,
                "endpoints": [{
                    "address": "10.0.0.1:80", "additional_addresses": ["[2001:db8::1]:80"],
                    "health": "DRAINING", "weight": 7, "hostname": "a.shop.local", "hash_key": "k",
                    "metadata": {"envoy.lb": {"hash_key": "k"}},
                }],
                "metadata": {},
            }]}],
            "drops": [{"category": "throttle", "requests_per_million": 50_000}],
        })
    );
    let size = size_of::<Endpoint>();
    assert!(size <= 112, "{size} bytes");
}

#[test]
fn g5_g6_bytes_and_names_must_be_there() {
    let e = ClusterLoadAssignment::parse(Bytes::from_static(b"\xff"), &Context::new()).unwrap_err();
    assert!(e.reason().starts_with("not a valid message"), "{e}");
    let unnamed = endpoint::ClusterLoadAssignment::default();
    assert_eq!(parse(&unnamed).unwrap_err(), "cluster_name: must not be empty");
}

#[test]
fn e1_no_endpoints_are_valid() {
    assert!(parse_localities([]).unwrap().priorities.is_empty());
    assert_eq!(zones(&parse_localities([locality("z", 0, [])]).unwrap()), [["z"]]);
}

#[test]
fn e2_a_locality_must_say_where_it_is() {
    let nowhere = LocalityLbEndpoints { locality: None, ..locality("", 0, []) };
    let e = parse_localities([locality("a", 0, []), nowhere.clone()]).unwrap_err();
    assert_eq!(e, "endpoints[1].locality: must be set");
    let empty = LocalityLbEndpoints { locality: Some(core::Locality::default()), ..nowhere };
    assert_eq!(zones(&parse_localities([empty]).unwrap()), [[""]]);
}

#[test]
fn e3_localities_without_weight_are_skipped_before_any_check() {
    for weight in [None, value(0)] {
        let bad = LocalityLbEndpoints {
            locality: None,
            load_balancing_weight: weight,
            ..locality("", 7, [LbEndpoint::default()])
        };
        let parsed = parse_localities([bad.clone(), locality("a", 0, [at("10.0.0.1")])]).unwrap();
        assert_eq!(zones(&parsed), [["a"]]);
        // Its priority does not fill a gap either.
        let filler = LocalityLbEndpoints { priority: 0, ..bad };
        assert!(parse_localities([filler, locality("a", 1, [])]).is_err());
    }
}

#[test]
fn e4_weights_of_localities_add_up_to_u32_max_in_each_priority() {
    let with = |zone, priority, weight| LocalityLbEndpoints {
        load_balancing_weight: value(weight),
        ..locality(zone, priority, [])
    };
    assert!(parse_localities([with("a", 0, u32::MAX - 1), with("b", 0, 1), with("c", 1, u32::MAX)]).is_ok());
    let e = parse_localities([with("a", 0, 1), with("b", 1, u32::MAX), with("c", 1, 1)]).unwrap_err();
    assert_eq!(
        e,
        "endpoints: the weights of the localities of priority 1 add up to 4294967296, which is over 4294967295"
    );
}

#[test]
fn e5_a_locality_is_once_in_a_priority() {
    let parsed = parse_localities([locality("a", 0, []), locality("a", 1, [])]).unwrap();
    assert_eq!(zones(&parsed), [["a"], ["a"]]);
    let e = parse_localities([locality("b", 1, []), locality("a", 0, []), locality("b", 1, [])]).unwrap_err();
    let twice = r#"{region="", zone="b", sub_zone=""} is there twice in priority 1"#;
    assert_eq!(e, format!("endpoints[2].locality: {twice}"));
}

#[test]
fn e6_priority_gaps_are_rejected() {
    let parsed =
        parse_localities([locality("b", 1, []), locality("a", 0, []), locality("c", 1, [])]).unwrap();
    assert_eq!(zones(&parsed), [vec!["a"], vec!["b", "c"]]);
    let e = parse_localities([locality("a", 0, []), locality("c", 2, [])]).unwrap_err();
    assert_eq!(e, "endpoints[1].priority: there is priority 2, but no priority 1");
    let e = parse_localities([locality("a", u32::MAX, [])]).unwrap_err();
    assert_eq!(e, "endpoints[0].priority: there is priority 4294967295, but no priority 0");
}

#[test]
fn e7_an_endpoint_of_weight_0_is_rejected_and_1_is_the_default() {
    let with = |weight| {
        let endpoint = LbEndpoint { load_balancing_weight: weight, ..at("10.0.0.1") };
        parse_localities([locality("a", 0, [endpoint])])
            .map(|parsed| parsed.endpoints().next().unwrap().weight.get())
    };
    assert_eq!((with(None), with(value(9))), (Ok(1), Ok(9)));
    assert_eq!(
        with(value(0)).unwrap_err(),
        "endpoints[0].lb_endpoints[0].load_balancing_weight: must not be 0; leave out the endpoint instead"
    );
}

#[test]
fn e8_weights_of_endpoints_add_up_to_u32_max_in_each_locality() {
    let with = |ip, weight| LbEndpoint { load_balancing_weight: value(weight), ..at(ip) };
    let most = [with("10.0.0.1", u32::MAX - 1), with("10.0.0.2", 1)];
    assert!(parse_localities([locality("a", 0, most), locality("b", 0, [with("10.0.0.3", 1)])]).is_ok());
    let over = [with("10.0.0.1", u32::MAX), with("10.0.0.2", 1)];
    let e = parse_localities([locality("a", 0, over)]).unwrap_err();
    assert!(e.starts_with("endpoints[0].lb_endpoints: the weights of the endpoints add up to 4294967296"));
}

#[test]
fn e9_an_address_is_that_of_one_endpoint_only() {
    let good = [with_additional("10.0.0.1", &["::1"]), host(Some(address("10.0.0.1", 81)))];
    assert!(parse_localities([locality("a", 0, good)]).is_ok());
    let twice = "is already the address of another endpoint";
    let e = parse_localities([locality("a", 0, [at("10.0.0.1")]), locality("a", 1, [at("10.0.0.1")])]);
    let place = "endpoints[1].lb_endpoints[0].endpoint.address";
    assert_eq!(e.unwrap_err(), format!("{place}: 10.0.0.1:80 {twice}"));
    let e = parse_localities([locality("a", 0, [with_additional("10.0.0.1", &["::1"]), at("::1")])]);
    let place = "endpoints[0].lb_endpoints[1].endpoint.address";
    assert_eq!(e.unwrap_err(), format!("{place}: [::1]:80 {twice}"));
    let e = parse_localities([locality("a", 0, [with_additional("10.0.0.1", &["::1", "10.0.0.1"])])]);
    let place = "endpoints[0].lb_endpoints[0].endpoint.additional_addresses[1].address";
    assert_eq!(e.unwrap_err(), format!("{place}: 10.0.0.1:80 {twice}"));
}

#[test]
fn e10_addresses_are_ip_literals_with_a_port() {
    let with = |address| {
        parse_localities([locality("a", 0, [host(address)])])
            .map(|parsed| parsed.endpoints().next().unwrap().address.to_string())
    };
    assert_eq!(with(Some(address("10.0.0.1", 65535))), Ok("10.0.0.1:65535".into()));
    assert_eq!(with(Some(address("2001:db8::1", 0))), Ok("[2001:db8::1]:0".into()));
    let pipe = core::Address { address: Some(Kind::Pipe(core::Pipe::default())) };
    let no_port = core::Address {
        address: Some(Kind::SocketAddress(core::SocketAddress {
            address: "10.0.0.1".into(),
            ..Default::default()
        })),
    };
    for (bad, expected) in [
        (None, ": must be set"),
        (Some(core::Address::default()), ": must be a socket_address, is not set"),
        (Some(pipe), ": must be a socket_address, is a pipe"),
        (Some(address("shop.local", 80)), ".socket_address.address: \"shop.local\" is no IP address"),
        (Some(address("10.0.0.1", 65536)), ".socket_address.port_value: must be at most 65535, is 65536"),
        (Some(no_port), ".socket_address.port_value: must be set"),
    ] {
        let at = "endpoints[0].lb_endpoints[0].endpoint.address";
        assert_eq!(with(bad).unwrap_err(), format!("{at}{expected}"));
    }
    for bad in [None, Some(HostIdentifier::EndpointName("x".into()))] {
        let endpoint = LbEndpoint { host_identifier: bad, ..Default::default() };
        let e = parse_localities([locality("a", 0, [endpoint])]).unwrap_err();
        assert_eq!(e, "endpoints[0].lb_endpoints[0].endpoint: must be set");
    }
}

#[test]
fn e11_a61_1_additional_addresses_are_as_good_as_the_main_one() {
    let parsed =
        parse_localities([locality("a", 0, [with_additional("10.0.0.1", &["::1", "::2"])])]).unwrap();
    let all: Vec<_> = parsed.endpoints().next().unwrap().addresses().map(|a| a.to_string()).collect();
    assert_eq!(all, ["10.0.0.1:80", "[::1]:80", "[::2]:80"]);
    let e = parse_localities([locality("a", 0, [with_additional("10.0.0.1", &["::1", "x"])])]).unwrap_err();
    let place =
        "endpoints[0].lb_endpoints[0].endpoint.additional_addresses[1].address.socket_address.address";
    assert_eq!(e, format!("{place}: \"x\" is no IP address"));
}

#[test]
fn e12_endpoints_of_every_health_are_kept() {
    use HealthStatus::{Degraded, Draining, Healthy, Timeout, Unhealthy, Unknown, Unrecognized};
    let endpoints = (0..7).map(|i| LbEndpoint { health_status: i, ..at(&format!("10.0.0.{i}")) });
    let parsed = parse_localities([locality("a", 0, endpoints)]).unwrap();
    let health: Vec<_> = parsed.endpoints().map(|e| e.health).collect();
    assert_eq!(health, [Unknown, Healthy, Unhealthy, Draining, Timeout, Degraded, Unrecognized]);
    let usable = parsed.endpoints().filter(|e| e.is_healthy()).count();
    assert_eq!(usable, 2);
}

#[test]
fn e13_drops_have_a_category_and_a_known_fraction() {
    let with = |category: &str, fraction: Option<(u32, i32)>| {
        let drop = policy::DropOverload {
            category: category.into(),
            drop_percentage: fraction
                .map(|(numerator, denominator)| FractionalPercent { numerator, denominator }),
        };
        let policy =
            endpoint::cluster_load_assignment::Policy { drop_overloads: vec![drop], ..Default::default() };
        parse(&endpoint::ClusterLoadAssignment { policy: Some(policy), ..assignment([]) })
            .map(|parsed| parsed.drops[0].requests_per_million)
    };
    assert_eq!(with("lb", Some((3, 1))), Ok(300));
    assert_eq!(with("lb", Some((200, 0))), Ok(1_000_000));
    let at = "policy.drop_overloads[0]";
    assert_eq!(with("", Some((3, 1))), Err(format!("{at}.category: must not be empty")));
    assert_eq!(with("lb", None), Err(format!("{at}.drop_percentage: must be set")));
    let e = with("lb", Some((3, 9))).unwrap_err();
    assert_eq!(e, format!("{at}.drop_percentage.denominator: 9 is no known denominator"));
}

#[test]
fn e14_the_hash_key_is_a_text_of_the_metadata() {
    use google::value::Kind::{NumberValue, StringValue};
    let with = |metadata| {
        let endpoint = LbEndpoint { metadata, ..at("10.0.0.1") };
        let parsed = parse_localities([locality("a", 0, [endpoint])]).unwrap();
        parsed.endpoints().next().unwrap().hash_key.clone()
    };
    assert_eq!(with(metadata("envoy.lb", "hash_key", StringValue("k".into()))), Some("k".into()));
    assert_eq!(with(metadata("envoy.lb", "hash_key", StringValue(String::new()))), None);
    assert_eq!(with(metadata("envoy.lb", "hash_key", NumberValue(1.0))), None);
    assert_eq!(with(metadata("other", "hash_key", StringValue("k".into()))), None);
    assert_eq!(with(None), None);
}

#[test]
fn e15_proxies_are_named_by_endpoints_and_localities() {
    let key = "envoy.http11_proxy_transport_socket.proxy_address";
    let proxy = |ip: &str| {
        let type_url = "type.googleapis.com/envoy.config.core.v3.Address".to_owned();
        let any = google::Any { type_url, value: address(ip, 3128).encode_to_vec().into() };
        let typed_filter_metadata = [(key.to_owned(), any)].into();
        Some(core::Metadata { typed_filter_metadata, ..Default::default() })
    };
    let with = |of_locality, of_endpoint| {
        let endpoint = LbEndpoint { metadata: of_endpoint, ..at("10.0.0.1") };
        parse_localities([LocalityLbEndpoints { metadata: of_locality, ..locality("a", 0, [endpoint]) }])
    };
    let parsed = with(proxy("10.9.9.1"), proxy("10.9.9.2")).unwrap();
    let locality = parsed.localities().next().unwrap();
    assert_eq!(locality.metadata.proxy_address(), Some("10.9.9.1:3128".parse().unwrap()));
    assert_eq!(locality.endpoints[0].metadata.proxy_address(), Some("10.9.9.2:3128".parse().unwrap()));
    for (bad, place) in [
        (with(proxy("x"), None), "endpoints[0].metadata"),
        (with(None, proxy("x")), "endpoints[0].lb_endpoints[0].metadata"),
    ] {
        let field = "socket_address.address: \"x\" is no IP address";
        assert_eq!(bad.unwrap_err(), format!("{place}.typed_filter_metadata[{key:?}].{field}"));
    }
}

#[test]
fn c12_an_endpoint_is_a_resource_of_its_own_without_a_name() {
    let from = at("10.0.0.1");
    let parsed = <Endpoint as Resource>::parse(from.encode_to_vec().into(), &Context::new()).unwrap();
    assert_eq!(parsed.address.to_string(), "10.0.0.1:80");
    assert!(<Endpoint as Resource>::name(&from.encode_to_vec()).is_err());
    let nowhere = LbEndpoint::default();
    assert!(<Endpoint as Resource>::parse(nowhere.encode_to_vec().into(), &Context::new()).is_err());
}
