//! Fields of localities, and policies: rules E9 to E17.

use super::*;

#[test]
fn e9_accepts_addresses_that_differ_in_the_port() {
    let good = [with_additional("10.0.0.1", &["::1"]), host(Some(address("10.0.0.1", 81)))];
    let parsed = parse_localities([locality("a", 0, good)]).unwrap();
    let all = parsed.endpoints().flat_map(Endpoint::addresses).map(|a| a.to_string()).collect::<Vec<_>>();
    assert_eq!(all, ["10.0.0.1:80", "[::1]:80", "10.0.0.1:81"]);
}

#[test]
fn e9_rejects_an_address_of_two_endpoints() {
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

fn address_of(address: Option<core::Address>) -> Result<String, String> {
    let parsed = parse_localities([locality("a", 0, [host(address)])])?;
    Ok(parsed.endpoints().next().unwrap().address().to_string())
}

#[test]
fn e10_accepts_ip_literals_with_a_port() {
    assert_eq!(address_of(Some(address("10.0.0.1", 65535))), Ok("10.0.0.1:65535".into()));
    assert_eq!(address_of(Some(address("2001:db8::1", 0))), Ok("[2001:db8::1]:0".into()));
}

#[test]
fn e10_rejects_other_addresses() {
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
        assert_eq!(address_of(bad).unwrap_err(), format!("{at}{expected}"));
    }
    for bad in [None, Some(HostIdentifier::EndpointName("x".into()))] {
        let endpoint = LbEndpoint { host_identifier: bad, ..Default::default() };
        let e = parse_localities([locality("a", 0, [endpoint])]).unwrap_err();
        assert_eq!(e, "endpoints[0].lb_endpoints[0].endpoint: must be set");
    }
}

#[test]
fn e11_a61_accepts_additional_addresses_as_good_as_the_main_one() {
    let parsed =
        parse_localities([locality("a", 0, [with_additional("10.0.0.1", &["::1", "::2"])])]).unwrap();
    let all: Vec<_> = parsed.endpoints().next().unwrap().addresses().map(|a| a.to_string()).collect();
    assert_eq!(all, ["10.0.0.1:80", "[::1]:80", "[::2]:80"]);
}

#[test]
fn e11_a61_rejects_additional_addresses_that_are_none() {
    let e = parse_localities([locality("a", 0, [with_additional("10.0.0.1", &["::1", "x"])])]).unwrap_err();
    let at = "endpoints[0].lb_endpoints[0].endpoint.additional_addresses";
    assert_eq!(e, format!("{at}[1].address.socket_address.address: \"x\" is no IP address"));
    let mut unset = with_additional("10.0.0.1", &["::1"]);
    let Some(HostIdentifier::Endpoint(inner)) = &mut unset.host_identifier else { panic!("no endpoint") };
    inner.additional_addresses[0].address = None;
    let e = parse_localities([locality("a", 0, [unset])]).unwrap_err();
    assert_eq!(e, format!("{at}[0].address: must be set"));
}

#[test]
fn e12_accepts_endpoints_of_every_health() {
    use HealthStatus::{Degraded, Draining, Healthy, Timeout, Unhealthy, Unknown, Unrecognized};
    let endpoints = (0..7).map(|i| LbEndpoint { health_status: i, ..at(&format!("10.0.0.{i}")) });
    let parsed = parse_localities([locality("a", 0, endpoints)]).unwrap();
    let health: Vec<_> = parsed.endpoints().map(|e| e.health).collect();
    assert_eq!(health, [Unknown, Healthy, Unhealthy, Draining, Timeout, Degraded, Unrecognized]);
    let usable = parsed.endpoints().filter(|e| e.is_healthy()).count();
    assert_eq!(usable, 2);
}

fn drop_of(category: &str, fraction: Option<(u32, i32)>) -> Result<u32, String> {
    let drop = policy::DropOverload {
        category: category.into(),
        drop_percentage: fraction
            .map(|(numerator, denominator)| FractionalPercent { numerator, denominator }),
    };
    let policy =
        endpoint::cluster_load_assignment::Policy { drop_overloads: vec![drop], ..Default::default() };
    let parsed = parse(&endpoint::ClusterLoadAssignment { policy: Some(policy), ..assignment([]) })?;
    assert_eq!(&*parsed.drops[0].category, category);
    Ok(parsed.drops[0].requests_per_million)
}

#[test]
fn e13_accepts_drops_with_a_category_and_a_known_fraction() {
    for (fraction, per_million) in [((3, 0), 30_000), ((3, 1), 300), ((3, 2), 3), ((200, 0), 1_000_000)] {
        assert_eq!(drop_of("lb", Some(fraction)), Ok(per_million));
    }
}

#[test]
fn e13_rejects_drops_without_a_category_or_a_known_fraction() {
    let at = "policy.drop_overloads[0]";
    assert_eq!(drop_of("", Some((3, 1))), Err(format!("{at}.category: must not be empty")));
    assert_eq!(drop_of("lb", None), Err(format!("{at}.drop_percentage: must be set")));
    let e = drop_of("lb", Some((3, 9))).unwrap_err();
    assert_eq!(e, format!("{at}.drop_percentage.denominator: 9 is no known denominator"));
}

fn hash_key_of(metadata: Option<core::Metadata>) -> Option<Box<str>> {
    let endpoint = LbEndpoint { metadata, ..at("10.0.0.1") };
    let parsed = parse_localities([locality("a", 0, [endpoint])]).unwrap();
    parsed.endpoints().next().unwrap().hash_key().map(Into::into)
}

#[test]
fn e14_accepts_a_text_of_the_metadata_as_the_hash_key() {
    let text = google::value::Kind::StringValue("k".into());
    assert_eq!(hash_key_of(metadata("envoy.lb", "hash_key", text)), Some("k".into()));
}

#[test]
fn e14_ignores_a_hash_key_that_is_no_text() {
    use google::value::Kind::{NumberValue, StringValue};
    assert_eq!(hash_key_of(metadata("envoy.lb", "hash_key", StringValue(String::new()))), None);
    assert_eq!(hash_key_of(metadata("envoy.lb", "hash_key", NumberValue(1.0))), None);
    assert_eq!(hash_key_of(metadata("other", "hash_key", StringValue("k".into()))), None);
    assert_eq!(hash_key_of(None), None);
}

const PROXY: &str = "envoy.http11_proxy_transport_socket.proxy_address";

fn proxy(ip: &str) -> Option<core::Metadata> {
    let type_url = "type.googleapis.com/envoy.config.core.v3.Address".to_owned();
    let any = google::Any { type_url, value: address(ip, 3128).encode_to_vec().into() };
    let typed_filter_metadata = [(PROXY.to_owned(), any)].into();
    Some(core::Metadata { typed_filter_metadata, ..Default::default() })
}

fn with_metadata(
    of_locality: Option<core::Metadata>,
    of_endpoint: Option<core::Metadata>,
) -> Result<ClusterLoadAssignment, String> {
    let endpoint = LbEndpoint { metadata: of_endpoint, ..at("10.0.0.1") };
    parse_localities([LocalityLbEndpoints { metadata: of_locality, ..locality("a", 0, [endpoint]) }])
}

#[test]
fn e15_a86_accepts_proxies_of_endpoints_and_of_localities() {
    let parsed = with_metadata(proxy("10.9.9.1"), proxy("10.9.9.2")).unwrap();
    let locality = parsed.localities().next().unwrap();
    assert_eq!(locality.metadata.proxy_address(), Some("10.9.9.1:3128".parse().unwrap()));
    assert_eq!(locality.endpoints[0].metadata().proxy_address(), Some("10.9.9.2:3128".parse().unwrap()));
}

#[test]
fn e15_a86_rejects_proxies_without_an_ip_address() {
    for (bad, place) in [
        (with_metadata(proxy("x"), None), "endpoints[0].metadata"),
        (with_metadata(None, proxy("x")), "endpoints[0].lb_endpoints[0].metadata"),
    ] {
        let field = "socket_address.address: \"x\" is no IP address";
        assert_eq!(bad.unwrap_err(), format!("{place}.typed_filter_metadata[{PROXY:?}].{field}"));
    }
}

#[test]
fn e16_a81_accepts_any_hostname_as_it_is() {
    for (hostname, expected) in [("a.shop.local", Some("a.shop.local")), ("A b:8", Some("A b:8")), ("", None)]
    {
        let mut endpoint = at("10.0.0.1");
        let Some(HostIdentifier::Endpoint(inner)) = &mut endpoint.host_identifier else {
            panic!("no endpoint")
        };
        inner.hostname = hostname.into();
        let parsed = parse_localities([locality("a", 0, [endpoint])]).unwrap();
        assert_eq!(parsed.endpoints().next().unwrap().hostname(), expected);
    }
}

#[test]
fn e17_accepts_an_assignment_whose_parts_are_all_good() {
    let parsed = parse_localities([
        locality("a", 0, [at("10.0.0.1"), at("10.0.0.2")]),
        locality("b", 1, [at("10.0.0.3")]),
    ]);
    let parsed = parsed.unwrap();
    let all = parsed.endpoints().map(|endpoint| endpoint.address().to_string()).collect::<Vec<_>>();
    assert_eq!(all, ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]);
}

#[test]
fn e17_rejects_the_whole_assignment_for_its_last_endpoint() {
    let e = parse_localities([
        locality("a", 0, [at("10.0.0.1"), at("10.0.0.2")]),
        locality("b", 1, [at("10.0.0.3"), at("shop.local")]),
    ]);
    let at = "endpoints[1].lb_endpoints[1].endpoint.address.socket_address.address";
    assert_eq!(e.unwrap_err(), format!("{at}: \"shop.local\" is no IP address"));
}

#[test]
fn x12_an_endpoint_is_a_resource_of_its_own_without_a_name() {
    let from = at("10.0.0.1");
    let parsed = <Endpoint as Resource>::parse(&from.encode_to_vec().into(), &Context::new()).unwrap();
    assert_eq!(parsed.address().to_string(), "10.0.0.1:80");
    assert!(<Endpoint as Resource>::name(&from.encode_to_vec()).is_err());
    let nowhere = LbEndpoint::default();
    assert!(<Endpoint as Resource>::parse(&nowhere.encode_to_vec().into(), &Context::new()).is_err());
}
