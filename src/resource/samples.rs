//! Valid messages, for tests to modify.

use bytes::Bytes;
use prost::Message;

use super::{Context, Invalid, Listener, Resource, RouteConfiguration, listener::ListenerKind};
use crate::pb::{
    envoy::{
        config::{
            core::v3::{
                Address, AggregatedConfigSource, ConfigSource, SocketAddress,
                address::Address as AddressKind, config_source::ConfigSourceSpecifier,
                socket_address::PortSpecifier,
            },
            listener::v3 as listener,
            route::v3::{
                self as route, route::Action, route_action::ClusterSpecifier, route_match::PathSpecifier,
            },
        },
        extensions::filters::network::http_connection_manager::v3::{
            self as hcm, http_connection_manager::RouteSpecifier,
        },
    },
    google::protobuf::Any,
};

pub(super) const MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
pub(super) const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";

pub(super) fn any(type_name: &str, value: impl Into<Bytes>) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_name}"), value: value.into() }
}

/// Parses a message in a default context.
pub(super) fn parse<T: Resource>(message: &impl Message) -> Result<T, Invalid> {
    parse_in(message, &Context::new())
}

pub(super) fn parse_in<T: Resource>(message: &impl Message, cx: &Context<'_>) -> Result<T, Invalid> {
    T::parse(&message.encode_to_vec().into(), cx)
}

/// Returns the error of a rejected message.
pub(super) fn rejection<T: Resource>(message: &impl Message) -> String {
    parse::<T>(message).unwrap_err().to_string()
}

/// A route configuration with one virtual host for all domains.
pub(super) fn routes(routes: Vec<route::Route>) -> route::RouteConfiguration {
    configuration(vec![virtual_host(&["*"], routes)])
}

pub(super) fn configuration(virtual_hosts: Vec<route::VirtualHost>) -> route::RouteConfiguration {
    route::RouteConfiguration { name: "shop".into(), virtual_hosts, ..Default::default() }
}

pub(super) fn virtual_host(domains: &[&str], routes: Vec<route::Route>) -> route::VirtualHost {
    let domains: Vec<String> = domains.iter().map(|&domain| domain.into()).collect();
    route::VirtualHost { name: domains.join(" "), domains, routes, ..Default::default() }
}

/// A route with these conditions, to the cluster `shop`.
pub(super) fn matching(matcher: route::RouteMatch) -> route::Route {
    let action = Some(Action::Route(to("shop")));
    route::Route { r#match: Some(matcher), action, ..Default::default() }
}

/// A route of all requests, with this action.
pub(super) fn acting(action: route::RouteAction) -> route::Route {
    route::Route { action: Some(Action::Route(action)), ..matching(prefix("/")) }
}

pub(super) fn to(cluster: &str) -> route::RouteAction {
    by(ClusterSpecifier::Cluster(cluster.into()))
}

pub(super) fn by(specifier: ClusterSpecifier) -> route::RouteAction {
    route::RouteAction { cluster_specifier: Some(specifier), ..Default::default() }
}

pub(super) fn prefix(prefix: &str) -> route::RouteMatch {
    path(PathSpecifier::Prefix(prefix.into()))
}

pub(super) fn path(specifier: PathSpecifier) -> route::RouteMatch {
    route::RouteMatch { path_specifier: Some(specifier), ..Default::default() }
}

/// Returns the routes of the only virtual host.
pub(super) fn parse_routes(message: &route::RouteConfiguration) -> super::route::Routes {
    let parsed: RouteConfiguration = parse(message).unwrap();
    let [host] = &*parsed.virtual_hosts else { panic!("{parsed:?}") };
    host.routes.clone()
}

/// Returns the only route of the only virtual host.
pub(super) fn only_route(message: &route::RouteConfiguration) -> super::route::Route {
    let routes = parse_routes(message);
    let [route] = &*routes else { panic!("{routes:?}") };
    route.clone()
}

/// A connection manager with RDS.
pub(super) fn manager() -> hcm::HttpConnectionManager {
    let specifier = Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {}));
    hcm::HttpConnectionManager {
        route_specifier: Some(rds(specifier, "routes")),
        http_filters: vec![http_filter("router", ROUTER)],
        ..Default::default()
    }
}

/// An RDS source of this name, on the same server.
pub(super) fn by_rds(name: &str) -> crate::resource::listener::RouteSource {
    let routes = crate::resource::listener::RouteConfigRef { name: name.into(), source: None };
    crate::resource::listener::RouteSource::Rds(routes)
}

pub(super) fn rds(source: Option<ConfigSourceSpecifier>, name: &str) -> RouteSpecifier {
    let config_source = Some(ConfigSource { config_source_specifier: source, ..Default::default() });
    RouteSpecifier::Rds(hcm::Rds { config_source, route_config_name: name.into() })
}

/// An HTTP filter with an empty message.
pub(super) fn http_filter(name: &str, type_name: &str) -> hcm::HttpFilter {
    hcm::HttpFilter {
        name: name.into(),
        config_type: Some(hcm::http_filter::ConfigType::TypedConfig(any(type_name, ""))),
        ..Default::default()
    }
}

/// A client's listener.
pub(super) fn api_listener(manager: &hcm::HttpConnectionManager) -> listener::Listener {
    let api = listener::ApiListener { api_listener: Some(any(MANAGER, manager.encode_to_vec())) };
    listener::Listener { name: "shop".into(), api_listener: Some(api), ..Default::default() }
}

/// A server's listener.
pub(super) fn socket_listener(filter_chains: Vec<listener::FilterChain>) -> listener::Listener {
    let address = Some(socket("0.0.0.0", Some(PortSpecifier::PortValue(8080))));
    listener::Listener { name: "server".into(), address, filter_chains, ..Default::default() }
}

pub(super) fn socket(address: &str, port: Option<PortSpecifier>) -> Address {
    let socket = SocketAddress { address: address.into(), port_specifier: port, ..Default::default() };
    Address { address: Some(AddressKind::SocketAddress(socket)) }
}

pub(super) fn chain(name: &str, conditions: listener::FilterChainMatch) -> listener::FilterChain {
    listener::FilterChain {
        name: name.into(),
        filter_chain_match: Some(conditions),
        filters: vec![network_filter("http", any(MANAGER, manager().encode_to_vec()))],
        ..Default::default()
    }
}

pub(super) fn network_filter(name: &str, any: Any) -> listener::Filter {
    let config_type = Some(listener::filter::ConfigType::TypedConfig(any));
    listener::Filter { name: name.into(), config_type }
}

/// Returns the parsed listener of a server.
pub(super) fn parse_socket(message: &listener::Listener) -> super::filter_chain::SocketListener {
    match parse::<Listener>(message).unwrap().kind {
        ListenerKind::Socket(socket) => socket,
        ListenerKind::Api(manager) => panic!("not a socket's: {manager:?}"),
    }
}
