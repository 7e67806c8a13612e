//! Rules S1 to S26.

use super::*;
use crate::{
    pb::{
        envoy::{
            config::core::v3::{
                AggregatedConfigSource, SelfConfigSource, address::Address as AddressKind,
                config_source::ConfigSourceSpecifier, socket_address::PortSpecifier,
            },
            extensions::filters::network::http_connection_manager::v3 as hcm,
        },
        google::protobuf::BoolValue,
    },
    resource::samples::{MANAGER, any, manager, network_filter, rds, socket},
};
use prost::Message;

fn good() -> pb::Listener {
    socket_listener(vec![chain("a", anywhere())])
}

fn with_filters(filters: Vec<pb::Filter>) -> pb::FilterChain {
    pb::FilterChain { filters, ..chain("a", anywhere()) }
}

fn with_manager(manager: &hcm::HttpConnectionManager) -> pb::FilterChain {
    with_filters(vec![network_filter("http", any(MANAGER, manager.encode_to_vec()))])
}

/// The HTTP connection manager filter of the other tests.
fn http() -> pb::Filter {
    network_filter("http", any(MANAGER, manager().encode_to_vec()))
}

#[test]
fn s1_s2_accepts_what_leaves_connections_as_they_are() {
    let message = pb::Listener { use_original_dst: Some(BoolValue { value: false }), ..good() };
    assert_eq!(names_in(&parse_socket(&message)), ["a"]);
}

#[test]
fn s1_rejects_listener_filters() {
    let message = pb::Listener { listener_filters: vec![pb::ListenerFilter::default()], ..good() };
    assert_eq!(rejection::<Listener>(&message), "listener_filters: not supported; must be empty");
}

#[test]
fn s2_rejects_the_original_destination() {
    let message = pb::Listener { use_original_dst: Some(BoolValue { value: true }), ..good() };
    assert_eq!(rejection::<Listener>(&message), "use_original_dst: not supported; must be false");
}

#[test]
fn s3_accepts_a_tcp_socket() {
    let at = |address, port| {
        let address = Some(socket(address, Some(PortSpecifier::PortValue(port))));
        parse_socket(&pb::Listener { address, ..good() }).address.to_string()
    };
    assert_eq!(at("0.0.0.0", 65535), "0.0.0.0:65535");
    assert_eq!(at("::", 80), "[::]:80");
}

#[test]
fn s3_rejects_what_is_no_tcp_socket() {
    let mut udp = socket("0.0.0.0", Some(PortSpecifier::PortValue(80)));
    if let Some(AddressKind::SocketAddress(socket)) = &mut udp.address {
        socket.protocol = 1;
    }
    let port = |port| socket("0.0.0.0", Some(PortSpecifier::PortValue(port)));
    for (address, expected) in [
        (core::Address::default(), "address: must be a socket_address, is not set"),
        (udp, "address.socket_address.protocol: must be TCP, is UDP"),
        (port(65536), "address.socket_address.port_value: must be at most 65535, is 65536"),
        (socket("0.0.0.0", None), "address.socket_address.port_value: must be set"),
        (socket("host", None), "address.socket_address.address: \"host\" is no IP address"),
    ] {
        let message = pb::Listener { address: Some(address), ..good() };
        assert_eq!(rejection::<Listener>(&message), expected);
    }
}

#[test]
fn s4_s5_accepts_a_default_chain_alone() {
    let never = pb::FilterChainMatch { server_names: vec!["a".into()], ..anywhere() };
    for chains in [Vec::new(), vec![chain("never", never)]] {
        let default_filter_chain = Some(chain("default", anywhere()));
        let parsed = parse_socket(&pb::Listener { default_filter_chain, ..socket_listener(chains) });
        assert_eq!(parsed.filter_chains.len(), 0);
        assert_eq!(&*parsed.default_filter_chain.unwrap().name, "default");
    }
}

#[test]
fn s4_rejects_a_listener_without_a_chain_to_choose() {
    let never = pb::FilterChainMatch { server_names: vec!["a".into()], ..anywhere() };
    for chains in [Vec::new(), vec![chain("never", never)]] {
        let expected = "filter_chains: no chain can ever be chosen, and there is no default_filter_chain";
        assert_eq!(rejected(chains), expected);
    }
}

#[test]
fn s5_rejects_an_invalid_default_chain() {
    let message = pb::Listener { default_filter_chain: Some(pb::FilterChain::default()), ..good() };
    let expected = "default_filter_chain.filters: must be exactly one, an HttpConnectionManager; there are 0";
    assert_eq!(rejection::<Listener>(&message), expected);
}

#[test]
fn s6_s7_s8_s9_s10_s11_accepts_a_connection_manager() {
    let parsed = parse_socket(&socket_listener(vec![with_filters(vec![http()])]));
    assert_eq!(parsed.filter_chains[0].connection_manager.routes, crate::resource::samples::by_rds("routes"));
}

#[test]
fn s6_rejects_a_filter_without_a_name() {
    let filters = vec![pb::Filter { name: String::new(), ..http() }];
    assert_eq!(rejected(vec![with_filters(filters)]), "filter_chains[0].filters[0].name: must not be empty");
}

#[test]
fn s7_rejects_a_filter_whose_configuration_is_elsewhere() {
    let discovery = Some(ConfigType::ConfigDiscovery(core::ExtensionConfigSource::default()));
    for (config_type, reason) in
        [(discovery, "config_discovery is not supported"), (None, "typed_config must be set")]
    {
        let filters = vec![pb::Filter { config_type, ..http() }];
        assert_eq!(rejected(vec![with_filters(filters)]), format!("filter_chains[0].filters[0]: {reason}"));
    }
}

#[test]
fn s8_rejects_other_network_filters() {
    let struct_of = crate::pb::xds::r#type::v3::TypedStruct { type_url: "t/x.Tcp".into(), value: None };
    for filter in [
        network_filter("tcp", any("x.Tcp", "")),
        network_filter("tcp", any("xds.type.v3.TypedStruct", struct_of.encode_to_vec())),
    ] {
        let expected = format!(
            "filter_chains[0].filters[0].typed_config: expected a message of type {MANAGER}, not \"x.Tcp\""
        );
        assert_eq!(rejected(vec![with_filters(vec![filter])]), expected);
    }
}

#[test]
fn s9_rejects_a_manager_that_cannot_be_decoded() {
    let error = rejected(vec![with_filters(vec![network_filter("http", any(MANAGER, &[0xff][..]))])]);
    assert!(error.starts_with("filter_chains[0].filters[0].typed_config: not a valid message: "), "{error}");
}

#[test]
fn s10_rejects_a_chain_without_filters() {
    let expected = "filter_chains[0].filters: must be exactly one, an HttpConnectionManager; there are 0";
    assert_eq!(rejected(vec![with_filters(Vec::new())]), expected);
}

/// As in C-core, and in the text of A36; grpc-go accepts and ignores all but the first. So names cannot be repeated.
#[test]
fn s6_s11_rejects_a_second_filter() {
    let second = network_filter("other", any(MANAGER, manager().encode_to_vec()));
    for filters in [vec![http(), second], vec![http(), http()]] {
        let expected = "filter_chains[0].filters: must be exactly one, an HttpConnectionManager; there are 2";
        assert_eq!(rejected(vec![with_filters(filters)]), expected);
    }
}

/// A deliberate decision: both sources are accepted for servers, too.
#[test]
fn s12_accepts_routes_from_the_same_server() {
    for source in [
        ConfigSourceSpecifier::Ads(AggregatedConfigSource {}),
        ConfigSourceSpecifier::Self_(SelfConfigSource::default()),
    ] {
        let route_specifier = Some(rds(Some(source), "r"));
        let manager = hcm::HttpConnectionManager { route_specifier, ..manager() };
        let parsed = parse_socket(&socket_listener(vec![with_manager(&manager)]));
        assert_eq!(parsed.filter_chains[0].connection_manager.routes, crate::resource::samples::by_rds("r"));
    }
}

#[test]
fn s12_rejects_a_manager_by_the_rules_of_clients() {
    let path = ConfigSourceSpecifier::Path("/routes".into());
    for (manager, expected) in [
        (
            hcm::HttpConnectionManager { xff_num_trusted_hops: 1, ..manager() },
            "xff_num_trusted_hops: not supported; must be 0",
        ),
        (
            hcm::HttpConnectionManager { route_specifier: Some(rds(Some(path), "r")), ..manager() },
            "rds.config_source: only the sources ads and self are supported",
        ),
        (
            hcm::HttpConnectionManager { route_specifier: None, ..manager() },
            "no route specifier; expected rds or route_config",
        ),
    ] {
        let error = rejected(vec![with_manager(&manager)]);
        let error = error.strip_prefix("filter_chains[0].filters[0].typed_config").expect(&error);
        assert_eq!(error.trim_start_matches(['.', ':', ' ']), expected);
    }
}

#[test]
fn l6_rejects_scoped_routes_of_a_server() {
    let route_specifier =
        Some(hcm::http_connection_manager::RouteSpecifier::ScopedRoutes(hcm::ScopedRoutes::default()));
    let manager = hcm::HttpConnectionManager { route_specifier, ..manager() };
    let error = rejected(vec![with_manager(&manager)]);
    assert!(error.ends_with("scoped_routes: not supported; expected rds or route_config"), "{error}");
}

/// As in C-core, the content of a chain that can never be chosen must be valid all the same.
fn never_chosen(never: pb::FilterChainMatch) {
    let chosen = chain("chosen", to(&["10.0.0.0/8"]));
    assert_eq!(names(vec![chain("never", never.clone()), chosen.clone()]), ["chosen"]);
    let broken = pb::FilterChain { filters: Vec::new(), ..chain("never", never) };
    let expected = "filter_chains[0].filters: must be exactly one, an HttpConnectionManager; there are 0";
    assert_eq!(rejected(vec![broken, chosen]), expected);
}

#[test]
fn s14_ignores_a_chain_for_another_port() {
    never_chosen(pb::FilterChainMatch { destination_port: Some(UInt32Value { value: 80 }), ..anywhere() });
}

#[test]
fn s15_ignores_a_chain_for_names_of_servers() {
    never_chosen(pb::FilterChainMatch { server_names: vec!["a".into()], ..anywhere() });
}

#[test]
fn s16_ignores_a_chain_for_another_transport() {
    never_chosen(pb::FilterChainMatch { transport_protocol: "tls".into(), ..anywhere() });
}

#[test]
fn s18_ignores_a_chain_for_protocols_of_applications() {
    never_chosen(pb::FilterChainMatch { application_protocols: vec!["h2".into()], ..anywhere() });
}

#[test]
fn s14_s15_s16_s18_accepts_a_chain_with_none_of_these() {
    let none = pb::FilterChainMatch {
        destination_port: Some(UInt32Value { value: 0 }),
        transport_protocol: "raw_buffer".into(),
        ..anywhere()
    };
    assert_eq!(names(vec![chain("a", none)]), ["a"]);
}

fn raw(conditions: pb::FilterChainMatch) -> pb::FilterChainMatch {
    pb::FilterChainMatch { transport_protocol: "raw_buffer".into(), ..conditions }
}

#[test]
fn s17_accepts_chains_with_and_without_plaintext_by_name_for_other_destinations() {
    let both = to(&["10.0.0.0/8", "11.0.0.0/8"]);
    let parsed =
        parse_socket(&socket_listener(vec![chain("any", both), chain("raw", raw(to(&["10.0.0.0/8"])))]));
    let left: Vec<_> = parsed.filter_chains.iter().map(|chain| &*chain.conditions.prefix_ranges).collect();
    let range = |text: &str| text.parse::<Cidr>().unwrap();
    assert_eq!(left, [&[range("11.0.0.0/8")], &[range("10.0.0.0/8")]]);
}

#[test]
fn s17_ignores_a_chain_that_does_not_name_plaintext_where_one_does() {
    for order in [false, true] {
        let mut chains = vec![chain("any", anywhere()), chain("raw", raw(anywhere()))];
        if order {
            chains.reverse();
        }
        assert_eq!(names(chains), ["raw"]);
    }
    // Also where the chain that names plaintext has a condition that is evaluated later (application protocols), but
    // not where it has one that is evaluated earlier (server names).
    let h2 = pb::FilterChainMatch { application_protocols: vec!["h2".into()], ..raw(to(&["10.0.0.0/8"])) };
    let named = pb::FilterChainMatch { server_names: vec!["a".into()], ..raw(to(&["10.0.0.0/8"])) };
    let any = || vec![chain("any", to(&["10.0.0.0/8", "11.0.0.0/8"]))];
    let shadowed = parse_socket(&socket_listener([any(), vec![chain("h2", h2)]].concat()));
    assert_eq!(shadowed.filter_chains[0].conditions.prefix_ranges.len(), 1);
    assert_eq!(*shadowed.unserved_ranges, ["10.0.0.0/8".parse().unwrap()]);
    let parsed = parse_socket(&socket_listener([any(), vec![chain("named", named)]].concat()));
    assert_eq!(parsed.filter_chains[0].conditions.prefix_ranges.len(), 2);
    assert!(parsed.unserved_ranges.is_empty());
}

#[test]
fn s19_s20_s21_accepts_ranges_and_normalises_them() {
    for (written, expected) in [
        ("10.1.2.3/8", "10.0.0.0/8"),
        // A prefix that is too long is the whole address, as in A36 and C-core; grpc-go rejects it.
        ("10.1.2.3/33", "10.1.2.3/32"),
        ("2001:db8::1/999", "2001:db8::1/128"),
        ("::ffff:10.1.2.3/104", "10.0.0.0/8"),
    ] {
        let conditions = pb::FilterChainMatch { source_prefix_ranges: ranges(&[written]), ..to(&[written]) };
        let parsed = parse_socket(&socket_listener(vec![chain("a", conditions)]));
        let conditions = &parsed.filter_chains[0].conditions;
        let expected: Cidr = expected.parse().unwrap();
        assert_eq!(
            (&*conditions.prefix_ranges, &*conditions.source_prefix_ranges),
            (&[expected][..], &[expected][..])
        );
    }
    let same = parse_socket(&socket_listener(vec![chain("a", to(&["10.1.0.0/8", "10.2.0.0/8"]))]));
    assert_eq!(*same.filter_chains[0].conditions.prefix_ranges, ["10.0.0.0/8".parse().unwrap()]);
}

#[test]
fn s19_rejects_a_range_without_an_address() {
    let bad = vec![core::CidrRange { address_prefix: "shop".into(), prefix_len: None }];
    let of_destinations = pb::FilterChainMatch { prefix_ranges: bad.clone(), ..anywhere() };
    let of_sources = pb::FilterChainMatch { source_prefix_ranges: bad, ..anywhere() };
    for (conditions, field) in [(of_destinations, "prefix_ranges"), (of_sources, "source_prefix_ranges")] {
        let expected = format!(
            "filter_chains[0].filter_chain_match.{field}[0].address_prefix: \"shop\" is no IP address"
        );
        assert_eq!(rejected(vec![chain("a", conditions)]), expected);
    }
}

/// The same range in two notations.
#[test]
fn s21_rejects_equal_ranges_of_two_chains() {
    let chains =
        vec![chain("a", to(&["10.1.0.0/8"])), chain("b", to(&["11.0.0.0/8", "::ffff:10.2.0.0/104"]))];
    let expected = "filter_chains[1]: \"b\" matches connections that it or an earlier chain matches already";
    assert_eq!(rejected(chains), expected);
}

fn of_type(source_type: i32) -> pb::FilterChain {
    chain("a", pb::FilterChainMatch { source_type, ..anywhere() })
}

#[test]
fn s22_accepts_each_kind_of_source() {
    let parsed = parse_socket(&socket_listener(vec![of_type(0), of_type(1), of_type(2)]));
    let kinds: Vec<_> = parsed.filter_chains.iter().map(|chain| chain.conditions.source_type).collect();
    assert_eq!(kinds, [SourceType::Any, SourceType::SameIpOrLoopback, SourceType::External]);
}

#[test]
fn s22_rejects_an_unknown_kind_of_source() {
    let expected = "filter_chains[0].filter_chain_match.source_type: 3 is no known type";
    assert_eq!(rejected(vec![of_type(3)]), expected);
}

#[test]
fn s23_s24_accepts_chains_that_differ_in_one_condition() {
    for (a, b) in [
        (from(&[], &[1]), from(&[], &[2])),
        (from(&["1.0.0.0/8"], &[1]), from(&["2.0.0.0/8"], &[1])),
        (from(&["1.0.0.0/8"], &[]), from(&["1.0.0.0/9"], &[])),
        (from(&[], &[]), from(&[], &[1])),
        (to(&["10.0.0.0/8"]), to(&["10.0.0.0/9"])),
        (anywhere(), to(&["0.0.0.0/0"])),
        (anywhere(), pb::FilterChainMatch { source_type: 1, ..anywhere() }),
    ] {
        assert_eq!(names(vec![chain("a", a), chain("b", b)]), ["a", "b"]);
    }
}

#[test]
fn s23_rejects_two_chains_for_the_same_connections() {
    for (a, b) in [
        (from(&[], &[]), from(&[], &[])),
        (from(&[], &[1, 2]), from(&[], &[2, 3])),
        (from(&["1.2.0.0/8"], &[]), from(&["2.0.0.0/8", "1.0.0.0/8"], &[])),
        (to(&["10.0.0.0/8"]), to(&["11.0.0.0/8", "10.0.0.0/8"])),
    ] {
        let expected =
            "filter_chains[1]: \"b\" matches connections that it or an earlier chain matches already";
        assert_eq!(rejected(vec![chain("a", a), chain("b", b)]), expected);
    }
}

#[test]
fn s23_rejects_conditions_that_multiply_without_bound() {
    let ports: Vec<u32> = (0..1000).collect();
    let sources: Vec<_> = (0..1000).map(|i| format!("10.{}.{}.0/24", i / 256, i % 256)).collect();
    let sources: Vec<_> = sources.iter().map(String::as_str).collect();
    let expected = "filter_chains[0]: the chains combine more than 262144 conditions";
    assert_eq!(rejected(vec![chain("a", from(&sources, &ports))]), expected);
}

#[test]
fn s24_rejects_a_port_that_a_chain_names_twice() {
    let expected = "filter_chains[0]: \"a\" matches connections that it or an earlier chain matches already";
    assert_eq!(rejected(vec![chain("a", from(&[], &[1, 1]))]), expected);
}

#[test]
fn s25_accepts_destinations_some_of_whose_chains_can_be_chosen() {
    let named = pb::FilterChainMatch { server_names: vec!["a".into()], ..to(&["10.0.0.0/8"]) };
    let parsed =
        parse_socket(&socket_listener(vec![chain("named", named), chain("plain", to(&["10.0.0.0/8"]))]));
    assert_eq!(names_in(&parsed), ["plain"]);
    assert!(parsed.unserved_ranges.is_empty());
}

/// As in C-core; in grpc-go the chain for a wider range applies.
#[test]
fn s25_ignores_the_wider_range_where_no_chain_of_a_destination_can_be_chosen() {
    let named = pb::FilterChainMatch { server_names: vec!["a".into()], ..to(&["10.0.0.0/8"]) };
    let parsed = parse_socket(&socket_listener(vec![chain("named", named), chain("all", anywhere())]));
    assert_eq!(names_in(&parsed), ["all"]);
    assert_eq!(*parsed.unserved_ranges, ["10.0.0.0/8".parse().unwrap()]);
    let to = |address: [u8; 4]| Connection::new((address, 80).into(), ([192, 0, 2, 1], 1).into());
    assert_eq!(parsed.filter_chain(&to([10, 0, 0, 1])), None);
    assert_eq!(parsed.filter_chain(&to([11, 0, 0, 1])).map(|chain| &*chain.name), Some("all"));
    // Ports are evaluated before destinations, so a chain for another port has no effect.
    let other_port = pb::FilterChainMatch {
        destination_port: Some(UInt32Value { value: 80 }),
        prefix_ranges: ranges(&["10.0.0.0/8"]),
        ..anywhere()
    };
    let parsed = parse_socket(&socket_listener(vec![chain("port", other_port), chain("all", anywhere())]));
    assert_eq!(parsed.filter_chain(&to([10, 0, 0, 1])).map(|chain| &*chain.name), Some("all"));
}

#[test]
fn s26_accepts_plaintext() {
    let parsed = parse_socket(&good());
    assert_eq!(parsed.filter_chains[0].tls, None);
}
