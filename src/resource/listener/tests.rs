use std::time::Duration;

use serde_json::json;

use super::*;
use crate::{
    pb::{
        envoy::{
            config::{
                core::v3::{
                    self as core, AggregatedConfigSource, HttpProtocolOptions, SelfConfigSource,
                    TypedExtensionConfig, config_source::ConfigSourceSpecifier,
                },
                route::v3 as route,
            },
            extensions::filters::network::http_connection_manager::v3::{
                self as hcm, http_connection_manager::RouteSpecifier,
            },
        },
        google::protobuf::{self, Any},
    },
    resource::samples::{
        MANAGER, any, api_listener, by_rds, chain, configuration, manager, parse, parse_socket, rds,
        rejection, socket_listener, virtual_host,
    },
};

fn of_api(any: Option<Any>) -> pb::Listener {
    let api_listener = Some(pb::ApiListener { api_listener: any });
    pb::Listener { name: "shop".into(), api_listener, ..Default::default() }
}

fn ads() -> Option<ConfigSourceSpecifier> {
    Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {}))
}

fn routed(route_specifier: Option<RouteSpecifier>) -> hcm::HttpConnectionManager {
    hcm::HttpConnectionManager { route_specifier, ..manager() }
}

fn inline(virtual_hosts: Vec<route::VirtualHost>) -> hcm::HttpConnectionManager {
    let nameless = route::RouteConfiguration { name: String::new(), ..configuration(virtual_hosts) };
    routed(Some(RouteSpecifier::RouteConfig(nameless)))
}

fn limited(seconds: i64, nanos: i32) -> hcm::HttpConnectionManager {
    let max_stream_duration = Some(protobuf::Duration { seconds, nanos });
    let options = HttpProtocolOptions { max_stream_duration, ..Default::default() };
    hcm::HttpConnectionManager { common_http_protocol_options: Some(options), ..manager() }
}

fn accepted(manager: &hcm::HttpConnectionManager) -> HttpConnectionManager {
    let parsed: Listener = parse(&api_listener(manager)).unwrap();
    parsed.api().expect("an API listener").clone()
}

/// Returns the reason of the error, behind the path of the connection manager.
fn reason_of(manager: &hcm::HttpConnectionManager) -> String {
    let error = rejection::<Listener>(&api_listener(manager));
    let below = error.strip_prefix("api_listener.api_listener").expect(&error);
    below.trim_start_matches('.').to_owned()
}

#[test]
fn l1_l2_l3_l4_l5_l6_accepts_a_connection_manager() {
    let parsed: Listener = parse(&api_listener(&manager())).unwrap();
    assert_eq!(&*parsed.name, "shop");
    let manager = parsed.api().unwrap();
    assert_eq!(manager.routes, by_rds("routes"));
    assert_eq!((manager.http_filters.len(), manager.max_stream_duration), (1, None));
}

#[test]
fn l1_rejects_what_is_no_connection_manager() {
    let typed = crate::pb::xds::r#type::v3::TypedStruct { type_url: format!("t/{MANAGER}"), value: None };
    for (bad, name) in [
        (None, ""),
        (Some(any("x.Other", "")), "x.Other"),
        // The message has no JSON form here.
        (Some(any("xds.type.v3.TypedStruct", typed.encode_to_vec())), MANAGER),
    ] {
        let expected =
            format!("api_listener.api_listener: expected a message of type {MANAGER}, not {name:?}");
        assert_eq!(rejection::<Listener>(&of_api(bad)), expected);
    }
}

#[test]
fn l2_rejects_a_manager_that_cannot_be_decoded() {
    let error = rejection::<Listener>(&of_api(Some(any(MANAGER, &[0xff][..]))));
    assert!(error.starts_with("api_listener.api_listener: not a valid message: "), "{error}");
}

#[test]
fn l3_rejects_trust_in_forwarded_addresses() {
    let bad = hcm::HttpConnectionManager { xff_num_trusted_hops: 1, ..manager() };
    assert_eq!(reason_of(&bad), "xff_num_trusted_hops: not supported; must be 0");
}

#[test]
fn l4_rejects_the_detection_of_original_addresses() {
    let original_ip_detection_extensions = vec![TypedExtensionConfig::default()];
    let bad = hcm::HttpConnectionManager { original_ip_detection_extensions, ..manager() };
    assert_eq!(reason_of(&bad), "original_ip_detection_extensions: not supported; must be empty");
}

#[test]
fn l5_rejects_a_manager_without_routes() {
    assert_eq!(reason_of(&routed(None)), ": no route specifier; expected rds or route_config");
}

#[test]
fn l6_rejects_bad_scoped_routes() {
    let scoped = routed(Some(RouteSpecifier::ScopedRoutes(hcm::ScopedRoutes::default())));
    assert_eq!(reason_of(&scoped), "scoped_routes.name: must not be empty");
}

#[test]
fn l7_l8_accepts_routes_by_name_from_the_same_server() {
    for source in [ads(), Some(ConfigSourceSpecifier::Self_(SelfConfigSource::default()))] {
        assert_eq!(accepted(&routed(Some(rds(source, "r")))).routes, by_rds("r"));
    }
}

#[test]
fn l7_rejects_routes_from_elsewhere() {
    let nowhere = RouteSpecifier::Rds(hcm::Rds { config_source: None, route_config_name: "r".into() });
    for (specifier, reason) in [
        (nowhere, "must be ads or self, is not set"),
        (rds(None, "r"), "must be ads or self, is not set"),
        (
            rds(Some(ConfigSourceSpecifier::Path("/routes".into())), "r"),
            "only the sources ads and self are supported",
        ),
    ] {
        assert_eq!(reason_of(&routed(Some(specifier))), format!("rds.config_source: {reason}"));
    }
}

/// As in grpc-go; C-core does not check it.
#[test]
fn l8_rejects_routes_without_a_name() {
    assert_eq!(reason_of(&routed(Some(rds(ads(), "")))), "rds.route_config_name: must not be empty");
}

#[test]
fn l9_accepts_inline_routes_without_a_name() {
    let parsed = accepted(&inline(vec![virtual_host(&["*"], Vec::new())]));
    let RouteSource::Inline(routes) = parsed.routes else { panic!("{parsed:?}") };
    assert_eq!((&*routes.name, routes.virtual_hosts.len()), ("", 1));
}

#[test]
fn l9_rejects_inline_routes_that_would_be_rejected_by_themselves() {
    let bad = inline(vec![virtual_host(&[], Vec::new())]);
    assert_eq!(reason_of(&bad), "route_config.virtual_hosts[0].domains: must not be empty");
}

#[test]
fn l10_accepts_any_limit_of_streams() {
    for (seconds, nanos) in [(0, 0), (9, 500_000_000), (315_576_000_000, 0)] {
        let expected = Duration::new(seconds.try_into().unwrap(), nanos.try_into().unwrap());
        assert_eq!(accepted(&limited(seconds, nanos)).max_stream_duration, Some(expected));
    }
}

/// As in C-core: a value outside protobuf's range of durations.
#[test]
fn l10_rejects_a_limit_of_streams_that_is_no_duration() {
    let at = "common_http_protocol_options.max_stream_duration";
    for (seconds, nanos, expected) in [
        (-9, 0, "seconds: must be between 0 and 315576000000, is -9"),
        (0, -1, "nanos: must be between 0 and 999999999, is -1"),
    ] {
        assert_eq!(reason_of(&limited(seconds, nanos)), format!("{at}.{expected}"));
    }
}

#[test]
fn the_filters_of_a_listener_are_checked() {
    let unfiltered = hcm::HttpConnectionManager { http_filters: Vec::new(), ..manager() };
    assert!(reason_of(&unfiltered).starts_with("http_filters: "));
}

#[test]
fn l21_accepts_a_listener_of_a_client_of_a_server_and_the_clients_part_of_both() {
    let server = socket_listener(vec![chain("a", anywhere())]);
    assert_eq!(parse_socket(&server).filter_chains.len(), 1);
    let both = pb::Listener { address: Some(core::Address::default()), ..api_listener(&manager()) };
    assert!(parse::<Listener>(&both).unwrap().api().is_some());
}

/// Conditions without any constraint.
fn anywhere() -> pb::FilterChainMatch {
    pb::FilterChainMatch::default()
}

#[test]
fn l21_rejects_a_listener_of_neither() {
    let neither = pb::Listener { name: "shop".into(), ..Default::default() };
    assert_eq!(rejection::<Listener>(&neither), "neither api_listener nor address is set");
}

#[test]
fn l22_accepts_a_listener_of_a_server() {
    let parsed: Listener = parse(&socket_listener(vec![chain("a", anywhere())])).unwrap();
    assert_eq!(parsed.api(), None);
    let ListenerKind::Socket(socket) = parsed.kind else { panic!("{parsed:?}") };
    assert_eq!(socket.address.to_string(), "0.0.0.0:8080");
}

#[test]
fn g6_a_listener_has_a_name() {
    let nameless = pb::Listener { name: String::new(), ..api_listener(&manager()) };
    assert_eq!(rejection::<Listener>(&nameless), "name: must not be empty");
}

#[test]
fn what_is_written_is_what_was_sent() {
    let parsed: Listener = parse(&api_listener(&manager())).unwrap();
    let json = json!({"name": "shop", "api_listener": {
        "route_config_name": "routes",
        "http_filters": [{"name": "router", "config": "router", "disabled": false}],
        "max_stream_duration": null,
    }});
    assert_eq!(serde_json::to_value(parsed).unwrap(), json);
}
