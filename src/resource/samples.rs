//! Messages that are accepted as they are, for tests to spoil.

use prost::Message;

use super::{Context, Invalid, Resource, RouteConfiguration};
use crate::pb::envoy::config::route::v3::{
    self as route, route::Action, route_action::ClusterSpecifier, route_match::PathSpecifier,
};

/// As a client parses it that knows nothing beside.
pub(super) fn parse<T: Resource>(message: &impl Message) -> Result<T, Invalid> {
    parse_in(message, &Context::new())
}

pub(super) fn parse_in<T: Resource>(message: &impl Message, cx: &Context<'_>) -> Result<T, Invalid> {
    T::parse(message.encode_to_vec().into(), cx)
}

/// What a client is told of a message that is rejected.
pub(super) fn rejection<T: Resource>(message: &impl Message) -> String {
    parse::<T>(message).unwrap_err().to_string()
}

/// A route configuration of one virtual host for everything.
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

/// A route of requests that match, to the cluster `shop`.
pub(super) fn matching(matcher: route::RouteMatch) -> route::Route {
    let action = Some(Action::Route(to("shop")));
    route::Route { r#match: Some(matcher), action, ..Default::default() }
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

/// The only route of the only virtual host.
pub(super) fn only_route(message: &route::RouteConfiguration) -> super::route::Route {
    let parsed: RouteConfiguration = parse(message).unwrap();
    let [host] = &*parsed.virtual_hosts else { panic!("{parsed:?}") };
    let [route] = &*host.routes else { panic!("{host:?}") };
    route.clone()
}
