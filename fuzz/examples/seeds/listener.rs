//! A listener with HTTP filters.

use xdskit::pb::envoy::{
    config::{
        common::mutation_rules::v3::{HeaderMutation as Mutation, header_mutation::Action},
        core::v3::{HeaderValue, HeaderValueOption},
        listener::v3::{ApiListener, Listener},
    },
    extensions::filters::{
        http::{
            header_mutation::v3::{HeaderMutation, Mutations},
            router::v3::Router,
        },
        network::http_connection_manager::v3::{
            HttpConnectionManager, HttpFilter, http_connection_manager::RouteSpecifier, http_filter,
        },
    },
};

use super::{extension, routes};

pub(crate) fn listener() -> Listener {
    let router = extension("filters.http.router.v3.Router", &Router {});
    let filter = HttpFilter {
        name: "router".into(),
        config_type: Some(http_filter::ConfigType::TypedConfig(router)),
        ..Default::default()
    };
    let header = HeaderValue { key: "x-user".into(), value: "ada, 100%%".into(), ..Default::default() };
    let append = HeaderValueOption { header: Some(header), append_action: 2, ..Default::default() };
    let request_mutations = vec![
        Mutation { action: Some(Action::Append(append)) },
        Mutation { action: Some(Action::Remove("x-debug".into())) },
    ];
    let mutations = Some(Mutations { request_mutations, ..Default::default() });
    let mutation = HeaderMutation { mutations, most_specific_header_mutations_wins: true };
    let mutation = extension("filters.http.header_mutation.v3.HeaderMutation", &mutation);
    let mutation = HttpFilter {
        name: "headers".into(),
        config_type: Some(http_filter::ConfigType::TypedConfig(mutation)),
        ..Default::default()
    };
    let manager = HttpConnectionManager {
        route_specifier: Some(RouteSpecifier::RouteConfig(routes())),
        http_filters: vec![mutation, filter],
        ..Default::default()
    };
    let manager = extension("filters.network.http_connection_manager.v3.HttpConnectionManager", &manager);
    let api_listener = Some(ApiListener { api_listener: Some(manager) });
    Listener { name: "edge".into(), api_listener, ..Default::default() }
}
