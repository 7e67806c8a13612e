use serde_json::json;

use super::*;
use crate::pb::{
    envoy::config::{
        core::v3::{
            self as core, AggregatedConfigSource, ConfigSource, HttpProtocolOptions, SelfConfigSource,
            TypedExtensionConfig, config_source::ConfigSourceSpecifier,
        },
        route::v3 as route,
    },
    google::protobuf,
};

fn source(specifier: Option<ConfigSourceSpecifier>) -> Option<ConfigSource> {
    Some(ConfigSource { config_source_specifier: specifier, ..Default::default() })
}

fn rds(name: &str, config_source: Option<ConfigSource>) -> RouteSpecifier {
    RouteSpecifier::Rds(hcm::Rds { config_source, route_config_name: name.into() })
}

fn ads() -> Option<ConfigSource> {
    source(Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})))
}

fn manager(route_specifier: Option<RouteSpecifier>) -> hcm::HttpConnectionManager {
    let router = Any {
        type_url: "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router".into(),
        value: Bytes::new(),
    };
    let router = hcm::HttpFilter {
        name: "router".into(),
        config_type: Some(hcm::http_filter::ConfigType::TypedConfig(router)),
        ..Default::default()
    };
    hcm::HttpConnectionManager { route_specifier, http_filters: vec![router], ..Default::default() }
}

fn routed() -> hcm::HttpConnectionManager {
    manager(Some(rds("routes", ads())))
}

fn any(type_name: &str, value: impl Into<Bytes>) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_name}"), value: value.into() }
}

fn listener(api_listener: Option<Any>) -> pb::Listener {
    let api_listener = Some(pb::ApiListener { api_listener });
    pb::Listener { name: "edge".into(), api_listener, ..Default::default() }
}

fn parse(message: &pb::Listener) -> Result<Listener, Invalid> {
    Listener::parse(message.encode_to_vec().into(), &Context::new())
}

fn parse_manager(manager: &hcm::HttpConnectionManager) -> Result<HttpConnectionManager, Invalid> {
    let parsed = parse(&listener(Some(any(CONNECTION_MANAGER, manager.encode_to_vec()))))?;
    Ok(parsed.api().expect("an API listener").clone())
}

/// The path below the connection manager.
fn error_path(manager: &hcm::HttpConnectionManager) -> String {
    let error = parse_manager(manager).unwrap_err();
    let path = error.path().strip_prefix("api_listener.api_listener").unwrap();
    path.trim_start_matches('.').to_owned()
}

#[test]
fn l1_l2_an_api_listener_is_a_connection_manager() {
    assert!(parse_manager(&routed()).is_ok());
    for bad in [None, Some(any("x.Other", "")), Some(any(CONNECTION_MANAGER, &[0xff][..]))] {
        let error = parse(&listener(bad)).unwrap_err();
        assert!(error.path().starts_with("api_listener.api_listener"), "{error}");
    }
}

#[test]
fn l3_forwarded_addresses_are_not_trusted() {
    let bad = hcm::HttpConnectionManager { xff_num_trusted_hops: 1, ..routed() };
    assert_eq!(error_path(&bad), "xff_num_trusted_hops");
}

#[test]
fn l4_addresses_are_not_detected_by_extensions() {
    let extensions = vec![TypedExtensionConfig::default()];
    let bad = hcm::HttpConnectionManager { original_ip_detection_extensions: extensions, ..routed() };
    assert_eq!(error_path(&bad), "original_ip_detection_extensions");
}

#[test]
fn l5_l6_routes_are_required_and_not_scoped() {
    assert_eq!(error_path(&manager(None)), "");
    let scoped = manager(Some(RouteSpecifier::ScopedRoutes(hcm::ScopedRoutes::default())));
    assert_eq!(error_path(&scoped), "scoped_routes");
}

#[test]
fn l7_routes_come_from_the_same_server() {
    let own = source(Some(ConfigSourceSpecifier::Self_(SelfConfigSource::default())));
    for good in [ads(), own] {
        let parsed = parse_manager(&manager(Some(rds("routes", good)))).unwrap();
        assert_eq!(parsed.routes, RouteSource::Rds("routes".into()));
    }
    for bad in [None, source(None), source(Some(ConfigSourceSpecifier::Path("/routes".into())))] {
        assert_eq!(error_path(&manager(Some(rds("routes", bad)))), "rds.config_source");
    }
}

#[test]
fn l8_routes_have_a_name() {
    assert_eq!(error_path(&manager(Some(rds("", ads())))), "rds.route_config_name");
}

#[test]
fn l9_inline_routes_are_checked_and_need_no_name() {
    let host = |domains| route::VirtualHost { domains, ..Default::default() };
    let inline = |domains| {
        let virtual_hosts = vec![host(domains)];
        let inline = route::RouteConfiguration { virtual_hosts, ..Default::default() };
        manager(Some(RouteSpecifier::RouteConfig(inline)))
    };
    let parsed = parse_manager(&inline(vec!["*".into()])).unwrap();
    assert!(matches!(&parsed.routes, RouteSource::Inline(inline) if inline.virtual_hosts.len() == 1));
    assert_eq!(error_path(&inline(Vec::new())), "route_config.virtual_hosts[0].domains");
}

#[test]
fn l10_the_default_limit_of_a_stream_is_a_duration() {
    let limited = |seconds| {
        let max_stream_duration = Some(protobuf::Duration { seconds, nanos: 0 });
        let options = HttpProtocolOptions { max_stream_duration, ..Default::default() };
        hcm::HttpConnectionManager { common_http_protocol_options: Some(options), ..routed() }
    };
    assert_eq!(parse_manager(&limited(9)).unwrap().max_stream_duration, Some(Duration::from_secs(9)));
    let path = "common_http_protocol_options.max_stream_duration.seconds";
    assert_eq!(error_path(&limited(-9)), path);
}

#[test]
fn l11_filters_are_checked() {
    assert_eq!(
        error_path(&hcm::HttpConnectionManager { http_filters: Vec::new(), ..routed() }),
        "http_filters"
    );
}

#[test]
fn l21_a_listener_is_for_a_client_or_for_a_server() {
    let neither = pb::Listener { name: "edge".into(), ..Default::default() };
    assert!(parse(&neither).unwrap_err().reason().contains("neither"));
    // A client's part wins.
    let both = pb::Listener {
        address: Some(core::Address::default()),
        ..listener(Some(any(CONNECTION_MANAGER, routed().encode_to_vec())))
    };
    assert!(parse(&both).unwrap().api().is_some());
}

#[test]
fn g6_a_listener_has_a_name() {
    let nameless = pb::Listener { name: String::new(), ..listener(None) };
    assert_eq!(parse(&nameless).unwrap_err().path(), "name");
}

#[test]
fn what_is_written_is_what_was_sent() {
    let parsed = parse(&listener(Some(any(CONNECTION_MANAGER, routed().encode_to_vec())))).unwrap();
    let json = json!({"name": "edge", "api_listener": {
        "route_config_name": "routes",
        "http_filters": [{"name": "router", "config": "router", "disabled": false}],
        "max_stream_duration": null,
    }});
    assert_eq!(serde_json::to_value(parsed).unwrap(), json);
}
