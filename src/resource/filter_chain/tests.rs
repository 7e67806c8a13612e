use bytes::Bytes;
use prost::Message;
use serde_json::json;

use super::*;
use crate::{
    pb::{
        envoy::{
            config::core::v3::{
                AggregatedConfigSource, ConfigSource, SocketAddress, TransportSocket,
                address::Address as AddressKind, config_source::ConfigSourceSpecifier,
                socket_address::PortSpecifier, transport_socket,
            },
            extensions::filters::network::http_connection_manager::v3::{
                self as hcm, http_connection_manager::RouteSpecifier,
            },
        },
        google::protobuf::{Any, BoolValue, UInt32Value},
    },
    resource::{Listener, Resource, listener::ListenerKind},
};

const MANAGER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";
const FAULT: &str = "envoy.extensions.filters.http.fault.v3.HTTPFault";

fn any(type_name: &str, value: impl Into<Bytes>) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_name}"), value: value.into() }
}

fn http_filter(type_name: &str) -> hcm::HttpFilter {
    hcm::HttpFilter {
        name: type_name.into(),
        config_type: Some(hcm::http_filter::ConfigType::TypedConfig(any(type_name, ""))),
        ..Default::default()
    }
}

fn manager() -> hcm::HttpConnectionManager {
    let specifier = Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {}));
    let config_source = Some(ConfigSource { config_source_specifier: specifier, ..Default::default() });
    let rds = hcm::Rds { config_source, route_config_name: "routes".into() };
    hcm::HttpConnectionManager {
        route_specifier: Some(RouteSpecifier::Rds(rds)),
        http_filters: vec![http_filter(ROUTER)],
        ..Default::default()
    }
}

fn filter(name: &str, any: Any) -> pb::Filter {
    pb::Filter { name: name.into(), config_type: Some(ConfigType::TypedConfig(any)) }
}

fn chain(name: &str, conditions: pb::FilterChainMatch) -> pb::FilterChain {
    pb::FilterChain {
        name: name.into(),
        filter_chain_match: Some(conditions),
        filters: vec![filter("http", any(MANAGER, manager().encode_to_vec()))],
        ..Default::default()
    }
}

fn anywhere() -> pb::FilterChainMatch {
    pb::FilterChainMatch::default()
}

fn ranges(ranges: &[&str]) -> Vec<core::CidrRange> {
    let range = |text: &&str| {
        let (address, bits) = text.split_once('/').unwrap();
        let prefix_len = Some(UInt32Value { value: bits.parse().unwrap() });
        core::CidrRange { address_prefix: address.into(), prefix_len }
    };
    ranges.iter().map(range).collect()
}

fn to(destinations: &[&str]) -> pb::FilterChainMatch {
    pb::FilterChainMatch { prefix_ranges: ranges(destinations), ..anywhere() }
}

fn socket(protocol: i32, port: Option<PortSpecifier>) -> core::Address {
    let socket =
        SocketAddress { protocol, address: "0.0.0.0".into(), port_specifier: port, ..Default::default() };
    core::Address { address: Some(AddressKind::SocketAddress(socket)) }
}

fn listener(filter_chains: Vec<pb::FilterChain>) -> pb::Listener {
    let address = Some(socket(0, Some(PortSpecifier::PortValue(8080))));
    pb::Listener { name: "server".into(), address, filter_chains, ..Default::default() }
}

fn parse(message: &pb::Listener) -> Result<SocketListener, Invalid> {
    let parsed = Listener::parse(message.encode_to_vec().into(), &Context::new())?;
    match parsed.kind {
        ListenerKind::Socket(socket) => Ok(socket),
        ListenerKind::Api(_) => panic!("not a socket's"),
    }
}

fn names(chains: Vec<pb::FilterChain>) -> Result<Vec<String>, Invalid> {
    Ok(parse(&listener(chains))?.filter_chains.iter().map(|chain| chain.name.to_string()).collect())
}

fn error_path(message: &pb::Listener) -> String {
    parse(message).unwrap_err().path().to_owned()
}

/// The path of what is wrong with the first chain, below it.
fn chain_path(chain: pb::FilterChain) -> String {
    let error = parse(&listener(vec![chain])).unwrap_err();
    let path = error.path().strip_prefix("filter_chains[0]").unwrap_or_else(|| panic!("{error}"));
    path.trim_start_matches('.').to_owned()
}

#[test]
fn s1_s2_what_changes_connections_before_the_chains_is_not_supported() {
    let good = listener(vec![chain("a", anywhere())]);
    assert!(parse(&good).is_ok());
    let filtered = pb::Listener { listener_filters: vec![pb::ListenerFilter::default()], ..good.clone() };
    assert_eq!(error_path(&filtered), "listener_filters");
    let original = |value| pb::Listener { use_original_dst: Some(BoolValue { value }), ..good.clone() };
    assert_eq!(error_path(&original(true)), "use_original_dst");
    assert!(parse(&original(false)).is_ok());
}

#[test]
fn s3_the_address_is_a_tcp_socket() {
    let with = |address| pb::Listener { address: Some(address), ..listener(vec![chain("a", anywhere())]) };
    let parsed = parse(&with(socket(0, Some(PortSpecifier::PortValue(65535))))).unwrap();
    assert_eq!(parsed.address, "0.0.0.0:65535".parse().unwrap());
    for (address, path) in [
        (core::Address::default(), "address"),
        (socket(1, Some(PortSpecifier::PortValue(80))), "address.socket_address.protocol"),
        (socket(0, Some(PortSpecifier::PortValue(65536))), "address.socket_address.port_value"),
        (socket(0, None), "address.socket_address.port_value"),
    ] {
        assert_eq!(error_path(&with(address)), path);
    }
}

#[test]
fn s4_there_is_a_chain_to_choose() {
    assert_eq!(error_path(&listener(Vec::new())), "filter_chains");
    let never = pb::FilterChainMatch { server_names: vec!["a".into()], ..anywhere() };
    assert_eq!(error_path(&listener(vec![chain("a", never.clone())])), "filter_chains");
    let default_filter_chain = Some(chain("default", anywhere()));
    let with_default = pb::Listener { default_filter_chain, ..listener(vec![chain("a", never)]) };
    let parsed = parse(&with_default).unwrap();
    assert_eq!(parsed.filter_chains.len(), 0);
    assert_eq!(&*parsed.default_filter_chain.unwrap().name, "default");
}

#[test]
fn s5_the_default_chain_is_checked() {
    let default_filter_chain = Some(pb::FilterChain::default());
    let bad = pb::Listener { default_filter_chain, ..listener(vec![chain("a", anywhere())]) };
    assert_eq!(error_path(&bad), "default_filter_chain.filters");
}

#[test]
fn s6_to_s11_a_chain_has_one_filter_a_connection_manager() {
    let good = || filter("http", any(MANAGER, manager().encode_to_vec()));
    let with = |filters| pb::FilterChain { filters, ..chain("a", anywhere()) };
    let discovery = Some(ConfigType::ConfigDiscovery(core::ExtensionConfigSource::default()));
    for (filters, path) in [
        (vec![], "filters"),
        (vec![good(), filter("other", any(MANAGER, manager().encode_to_vec()))], "filters"),
        (vec![pb::Filter { name: String::new(), ..good() }], "filters[0].name"),
        (vec![pb::Filter { config_type: discovery, ..good() }], "filters[0]"),
        (vec![pb::Filter { config_type: None, ..good() }], "filters[0]"),
        (vec![filter("tcp", any("x.TcpProxy", ""))], "filters[0].typed_config"),
        (vec![filter("http", any(MANAGER, &[0xff][..]))], "filters[0].typed_config"),
    ] {
        assert_eq!(chain_path(with(filters)), path);
    }
    assert!(names(vec![with(vec![good()])]).is_ok());
}

#[test]
fn s12_s13_the_connection_manager_is_a_servers() {
    let with = |manager: hcm::HttpConnectionManager| pb::FilterChain {
        filters: vec![filter("http", any(MANAGER, manager.encode_to_vec()))],
        ..chain("a", anywhere())
    };
    let unrouted = hcm::HttpConnectionManager { route_specifier: None, ..manager() };
    assert_eq!(chain_path(with(unrouted)), "filters[0].typed_config");
    let http_filters = vec![http_filter(FAULT), http_filter(ROUTER)];
    let for_clients = hcm::HttpConnectionManager { http_filters, ..manager() };
    assert_eq!(chain_path(with(for_clients)), "filters[0].typed_config.http_filters[0]");
}

#[test]
fn s14_s15_s16_s18_chains_that_cannot_be_chosen_are_left_out() {
    for never in [
        pb::FilterChainMatch { destination_port: Some(UInt32Value { value: 80 }), ..anywhere() },
        pb::FilterChainMatch { server_names: vec!["a".into()], ..anywhere() },
        pb::FilterChainMatch { transport_protocol: "tls".into(), ..anywhere() },
        pb::FilterChainMatch { application_protocols: vec!["h2".into()], ..anywhere() },
    ] {
        let chosen = chain("chosen", anywhere());
        assert_eq!(names(vec![chain("never", never.clone()), chosen.clone()]).unwrap(), ["chosen"]);
        // Their content must be valid all the same.
        let broken = pb::FilterChain { filters: Vec::new(), ..chain("never", never) };
        assert!(names(vec![broken, chosen]).is_err());
    }
    let zero = pb::FilterChainMatch { destination_port: Some(UInt32Value { value: 0 }), ..anywhere() };
    assert_eq!(names(vec![chain("a", zero)]).unwrap(), ["a"]);
}

#[test]
fn s17_a_chain_for_plaintext_by_name_wins() {
    let raw = |conditions| pb::FilterChainMatch { transport_protocol: "raw_buffer".into(), ..conditions };
    for order in [false, true] {
        let mut chains = vec![chain("any", anywhere()), chain("raw", raw(anywhere()))];
        if order {
            chains.reverse();
        }
        assert_eq!(names(chains).unwrap(), ["raw"]);
    }
    let both = to(&["10.0.0.0/8", "11.0.0.0/8"]);
    let parsed = parse(&listener(vec![chain("any", both), chain("raw", raw(to(&["10.0.0.0/8"])))])).unwrap();
    assert_eq!(
        serde_json::to_value(&parsed.filter_chains[0].conditions.prefix_ranges).unwrap(),
        json!(["11.0.0.0/8"])
    );
}

#[test]
fn s19_ranges_have_an_address() {
    let bad = vec![core::CidrRange { address_prefix: "shop".into(), prefix_len: None }];
    let conditions = pb::FilterChainMatch { prefix_ranges: bad.clone(), ..anywhere() };
    let path = "filter_chain_match.prefix_ranges[0].address_prefix";
    assert_eq!(chain_path(chain("a", conditions)), path);
    let conditions = pb::FilterChainMatch { source_prefix_ranges: bad, ..anywhere() };
    let path = "filter_chain_match.source_prefix_ranges[0].address_prefix";
    assert_eq!(chain_path(chain("a", conditions)), path);
}

#[test]
fn s20_s21_ranges_are_normalised() {
    assert_eq!(parse_ranges(to(&["10.1.0.0/8", "10.2.0.0/8"])), ["10.0.0.0/8"]);
    assert_eq!(parse_ranges(to(&["10.1.2.3/99"])), ["10.1.2.3/32"]);
}

fn parse_ranges(conditions: pb::FilterChainMatch) -> Vec<String> {
    let parsed = parse(&listener(vec![chain("a", conditions)])).unwrap();
    parsed.filter_chains[0].conditions.prefix_ranges.iter().map(Cidr::to_string).collect()
}

#[test]
fn s22_the_kind_of_source_is_known() {
    let of = |source_type| chain("a", pb::FilterChainMatch { source_type, ..anywhere() });
    assert!(names(vec![of(0), of(1), of(2)]).is_ok());
    assert_eq!(chain_path(of(3)), "filter_chain_match.source_type");
}

#[test]
fn s23_two_chains_are_not_for_the_same_connections() {
    let from = |ports: &[u32], sources: &[&str]| pb::FilterChainMatch {
        source_ports: ports.to_vec(),
        source_prefix_ranges: ranges(sources),
        ..to(&["10.0.0.0/8"])
    };
    let both = |a, b| names(vec![chain("a", a), chain("b", b)]);
    assert!(both(from(&[1], &[]), from(&[2], &[])).is_ok());
    assert!(both(from(&[1], &["1.0.0.0/8"]), from(&[1], &["2.0.0.0/8"])).is_ok());
    assert!(both(from(&[], &[]), from(&[1], &[])).is_ok());
    for (a, b) in [
        (from(&[], &[]), from(&[], &[])),
        (from(&[1, 2], &[]), from(&[2, 3], &[])),
        (from(&[], &["1.2.0.0/8"]), from(&[], &["2.0.0.0/8", "1.0.0.0/8"])),
    ] {
        let error = both(a, b).unwrap_err();
        assert_eq!((error.path(), error.reason().contains("\"b\"")), ("filter_chains[1]", true), "{error}");
    }
}

#[test]
fn s24_a_chain_does_not_name_a_port_twice() {
    let twice = pb::FilterChainMatch { source_ports: vec![1, 1], ..anywhere() };
    assert_eq!(chain_path(chain("a", twice)), "");
}

#[test]
fn s23_conditions_that_multiply_without_bound_are_rejected() {
    let ports: Vec<u32> = (0..1000).collect();
    let sources: Vec<_> = (0..1000).map(|i| format!("10.{}.{}.0/24", i / 256, i % 256)).collect();
    let sources: Vec<_> = sources.iter().map(String::as_str).collect();
    let source_prefix_ranges = ranges(&sources);
    let huge = pb::FilterChainMatch { source_ports: ports, source_prefix_ranges, ..anywhere() };
    let error = parse(&listener(vec![chain("a", huge)])).unwrap_err();
    assert!(error.reason().contains("combine"), "{error}");
}

#[test]
fn s26_s28_a_transport_socket_is_tls() {
    let plain = parse(&listener(vec![chain("a", anywhere())])).unwrap();
    assert_eq!(plain.filter_chains[0].tls, None);
    let config_type = Some(transport_socket::ConfigType::TypedConfig(any("x.Alts", "")));
    let transport_socket = Some(TransportSocket { name: "alts".into(), config_type });
    let other = pb::FilterChain { transport_socket, ..chain("a", anywhere()) };
    assert!(chain_path(other).starts_with("transport_socket"));
}

#[test]
fn what_is_written_is_what_was_sent() {
    let parsed = Listener::parse(
        listener(vec![chain("a", to(&["10.0.0.0/8"]))]).encode_to_vec().into(),
        &Context::new(),
    );
    let json = json!({"name": "server", "socket": {
        "address": "0.0.0.0:8080",
        "filter_chains": [{
            "name": "a",
            "match": {
                "prefix_ranges": ["10.0.0.0/8"], "source_type": "any",
                "source_prefix_ranges": [], "source_ports": [],
            },
            "connection_manager": {
                "route_config_name": "routes",
                "http_filters": [{"name": ROUTER, "config": "router", "disabled": false}],
                "max_stream_duration": null,
            },
            "tls": null,
        }],
        "default_filter_chain": null,
    }});
    assert_eq!(serde_json::to_value(parsed.unwrap()).unwrap(), json);
}
