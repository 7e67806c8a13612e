//! The messages of resources that a [`SnapshotBuilder`](super::SnapshotBuilder) makes itself.

use std::net::SocketAddr;

use prost::Message;

use crate::pb::{
    envoy::{
        config::{
            cluster::v3::{
                self as cluster,
                cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig},
            },
            core::v3::{
                Address, AggregatedConfigSource, ConfigSource, Locality, SocketAddress, address,
                config_source::ConfigSourceSpecifier, socket_address::PortSpecifier,
            },
            endpoint::v3::{self as endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier},
            listener::v3 as listener,
            route::v3::{self as route, route::Action, route_action::ClusterSpecifier},
        },
        extensions::filters::network::http_connection_manager::v3::{
            self as manager, http_connection_manager::RouteSpecifier, http_filter::ConfigType,
        },
    },
    google::protobuf::{Any, UInt32Value},
};

/// A listener whose routes lead all requests to a cluster.
pub(super) fn listener(name: &str, cluster: &str) -> listener::Listener {
    let action = route::RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
        ..Default::default()
    };
    let everything = route::RouteMatch {
        path_specifier: Some(route::route_match::PathSpecifier::Prefix(String::new())),
        ..Default::default()
    };
    let host = route::VirtualHost {
        name: cluster.to_owned(),
        domains: vec!["*".to_owned()],
        routes: vec![route::Route {
            r#match: Some(everything),
            action: Some(Action::Route(action)),
            ..Default::default()
        }],
        ..Default::default()
    };
    let router = manager::HttpFilter {
        name: "router".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(
            "envoy.extensions.filters.http.router.v3.Router",
            &(),
        ))),
        ..Default::default()
    };
    let routes =
        route::RouteConfiguration { name: name.to_owned(), virtual_hosts: vec![host], ..Default::default() };
    let manager = manager::HttpConnectionManager {
        route_specifier: Some(RouteSpecifier::RouteConfig(routes)),
        http_filters: vec![router],
        ..Default::default()
    };
    let manager =
        any("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", &manager);
    listener::Listener {
        name: name.to_owned(),
        api_listener: Some(listener::ApiListener { api_listener: Some(manager) }),
        ..Default::default()
    }
}

/// An EDS cluster with the default of everything.
pub(super) fn cluster(name: &str) -> cluster::Cluster {
    let source = ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..Default::default()
    };
    cluster::Cluster {
        name: name.to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig { eds_config: Some(source), ..Default::default() }),
        ..Default::default()
    }
}

/// Endpoints by their priority.
pub(super) fn endpoints<'a>(
    cluster: &str,
    priorities: impl IntoIterator<Item = &'a [SocketAddr]>,
) -> endpoint::ClusterLoadAssignment {
    let locality = |(priority, addresses): (u32, &[SocketAddr])| LocalityLbEndpoints {
        locality: Some(Locality::default()),
        priority,
        load_balancing_weight: Some(UInt32Value { value: 1 }),
        lb_endpoints: addresses.iter().map(lb_endpoint).collect(),
        ..Default::default()
    };
    endpoint::ClusterLoadAssignment {
        cluster_name: cluster.to_owned(),
        endpoints: (0..).zip(priorities).map(locality).collect(),
        ..Default::default()
    }
}

fn lb_endpoint(address: &SocketAddr) -> LbEndpoint {
    let socket = SocketAddress {
        address: address.ip().to_string(),
        port_specifier: Some(PortSpecifier::PortValue(address.port().into())),
        ..Default::default()
    };
    let address = Address { address: Some(address::Address::SocketAddress(socket)) };
    let endpoint = endpoint::Endpoint { address: Some(address), ..Default::default() };
    LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..Default::default() }
}

fn any(type_name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_name}"), value: message.encode_to_vec().into() }
}
