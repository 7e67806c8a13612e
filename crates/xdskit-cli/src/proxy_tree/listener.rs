//! Listeners, as far as they are drawn: filter chains, and where their filters send connections and requests.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use serde::Serialize;
use xdskit::{
    pb::{
        envoy::{
            config::{
                core::v3::{self as core, socket_address::PortSpecifier},
                listener::v3::{self as pb, filter::ConfigType, filter_chain_match::ConnectionSourceType},
            },
            extensions::filters::network::{
                http_connection_manager::v3::{
                    self as hcm, http_connection_manager::RouteSpecifier, scoped_routes::ConfigSpecifier,
                },
                tcp_proxy::v3::{TcpProxy, tcp_proxy::ClusterSpecifier},
            },
        },
        google::protobuf::Any,
    },
    resource::{self, Invalid},
};

use super::{Content, Destination, Mesh, Resources, RouteTable, short_name};

/// A listener of a proxy, or of a gRPC client or server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Listener {
    /// The address of its socket; empty for a client's listener.
    pub(crate) address: String,
    /// In order; the default chain is the last one, and an API listener is a chain of its own.
    pub(crate) chains: Vec<Chain>,
}

/// A filter chain of a listener, also as JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Chain {
    /// When it applies.
    pub(crate) kind: ChainKind,
    /// Empty if it has none.
    pub(crate) name: String,
    /// The conditions on connections, all of which must hold.
    pub(crate) conditions: Vec<String>,
    /// The name of the transport socket; `None` is plain text.
    #[serde(rename = "transport_socket")]
    pub(crate) socket: Option<String>,
    /// The network filters in order.
    pub(crate) filters: Vec<NetworkFilter>,
}

/// The connections to which a filter chain applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChainKind {
    /// The only one of an API listener.
    Api,
    /// For connections that match its conditions.
    Matching,
    /// For connections that match no other one.
    Default,
}

/// A network filter of a chain, with the routes or clusters to which it leads.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NetworkFilter {
    /// The HTTP connection manager, with one route table, or several by scopes.
    Http(Vec<Routes>),
    /// The TCP proxy, with its clusters.
    Tcp(Vec<Destination>),
    /// Any other filter by its name.
    Other(String),
    /// A filter whose configuration cannot be read.
    Malformed(String),
}

/// The source of the routes of a connection manager.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Routes {
    /// The route configuration of a name, by RDS.
    Named(Arc<str>),
    /// Routes in the listener itself.
    Inline(RouteTable),
    /// A source that is not followed, such as scopes by SRDS.
    NotFollowed(&'static str),
}

impl Content for Listener {
    type Resource = resource::Listener;

    fn read(bytes: &Bytes) -> Result<Self, Invalid> {
        let message = pb::Listener::decode(bytes.clone())?;
        let api = message.api_listener.and_then(|api| api.api_listener).map(|any| Chain {
            kind: ChainKind::Api,
            name: String::new(),
            conditions: Vec::new(),
            socket: None,
            filters: vec![NetworkFilter::of_config(&any, "")],
        });
        let matching = message.filter_chains.into_iter().map(|chain| Chain::of(chain, ChainKind::Matching));
        let default = message.default_filter_chain.map(|chain| Chain::of(chain, ChainKind::Default));
        Ok(Self {
            address: message.address.as_ref().map(address).unwrap_or_default(),
            chains: api.into_iter().chain(matching).chain(default).collect(),
        })
    }

    fn of(mesh: &mut Mesh) -> &mut Resources<Self> {
        &mut mesh.listeners
    }
}

impl Chain {
    /// Reads a filter chain.
    fn of(chain: pb::FilterChain, kind: ChainKind) -> Self {
        Self {
            kind,
            name: chain.name,
            conditions: chain.filter_chain_match.map(conditions).unwrap_or_default(),
            socket: chain.transport_socket.map(|socket| socket.name),
            filters: chain.filters.into_iter().map(NetworkFilter::of).collect(),
        }
    }
}

impl NetworkFilter {
    /// Reads a network filter.
    fn of(filter: pb::Filter) -> Self {
        match filter.config_type {
            Some(ConfigType::TypedConfig(config)) => Self::of_config(&config, &filter.name),
            Some(ConfigType::ConfigDiscovery(_)) => {
                Self::Other(format!("{} (by extension config discovery)", filter.name))
            }
            None => Self::Other(filter.name),
        }
    }

    /// Reads the configuration of a filter; `name` is that of the filter, for display.
    fn of_config(config: &Any, name: &str) -> Self {
        // The fields that are read have the same numbers in v2.
        let read = match short_name(&config.type_url) {
            "HttpConnectionManager" => {
                hcm::HttpConnectionManager::decode(config.value.clone()).map(Self::of_http)
            }
            "TcpProxy" => TcpProxy::decode(config.value.clone()).map(Self::of_tcp),
            other => return Self::Other(if name.is_empty() { other } else { name }.to_owned()),
        };
        read.unwrap_or_else(|error| Self::Malformed(format!("{name}: {}", Invalid::from(error))))
    }

    /// Reads an HTTP connection manager.
    fn of_http(config: hcm::HttpConnectionManager) -> Self {
        let routes = match config.route_specifier {
            Some(RouteSpecifier::Rds(rds)) => vec![Routes::Named(rds.route_config_name.into())],
            Some(RouteSpecifier::RouteConfig(routes)) => vec![Routes::Inline(RouteTable::of(routes))],
            Some(RouteSpecifier::ScopedRoutes(scoped)) => scopes(scoped),
            None => vec![Routes::NotFollowed("has no routes")],
        };
        Self::Http(routes)
    }

    /// Reads a TCP proxy.
    fn of_tcp(config: TcpProxy) -> Self {
        Self::Tcp(match config.cluster_specifier {
            Some(ClusterSpecifier::Cluster(name)) => vec![Destination { cluster: name.into(), weight: 1 }],
            Some(ClusterSpecifier::WeightedClusters(weighted)) => {
                let parts = weighted.clusters.into_iter();
                parts.map(|part| Destination { cluster: part.name.into(), weight: part.weight }).collect()
            }
            None => Vec::new(),
        })
    }
}

/// The routes of all scopes.
fn scopes(scoped: hcm::ScopedRoutes) -> Vec<Routes> {
    match scoped.config_specifier {
        Some(ConfigSpecifier::ScopedRouteConfigurationsList(list)) => {
            let scopes = list.scoped_route_configurations.into_iter();
            let routes = scopes.map(|scope| match scope.route_configuration {
                Some(routes) => Routes::Inline(RouteTable::of(routes)),
                None => Routes::Named(scope.route_configuration_name.into()),
            });
            routes.collect()
        }
        Some(ConfigSpecifier::ScopedRds(_)) => {
            vec![Routes::NotFollowed(
                "has scopes by SRDS; xdskit watch --observe 'scoped-route=*' shows them",
            )]
        }
        None => vec![Routes::NotFollowed("has no scopes")],
    }
}

/// An address as text: `IP:PORT`, or the path of a pipe.
pub(super) fn address(address: &core::Address) -> String {
    use core::address::Address;

    match &address.address {
        Some(Address::SocketAddress(socket)) => {
            let port = match &socket.port_specifier {
                Some(PortSpecifier::PortValue(port)) => port.to_string(),
                Some(PortSpecifier::NamedPort(name)) => name.clone(),
                None => "0".to_owned(),
            };
            // An IPv6 address is in brackets before a port.
            match socket.address.contains(':') {
                true => format!("[{}]:{port}", socket.address),
                false => format!("{}:{port}", socket.address),
            }
        }
        Some(Address::Pipe(pipe)) => pipe.path.clone(),
        None => "an address of another kind".to_owned(),
    }
}

/// The conditions of a chain, each as text.
fn conditions(from: pb::FilterChainMatch) -> Vec<String> {
    let mut conditions = Vec::new();
    let mut add = |what: &str, values: Vec<String>| {
        if !values.is_empty() {
            conditions.push(format!("{what} {}", values.join(", ")));
        }
    };
    let ranges = |ranges: Vec<core::CidrRange>| {
        let text = |range: core::CidrRange| {
            let length = range.prefix_len.map_or(0, |length| length.value);
            format!("{}/{length}", range.address_prefix)
        };
        ranges.into_iter().map(text).collect::<Vec<_>>()
    };
    let source = match ConnectionSourceType::try_from(from.source_type) {
        Ok(ConnectionSourceType::Any) => Vec::new(),
        Ok(ConnectionSourceType::SameIpOrLoopback) => vec!["local".to_owned()],
        Ok(ConnectionSourceType::External) => vec!["external".to_owned()],
        Err(_) => vec![from.source_type.to_string()],
    };
    add("port", from.destination_port.map(|port| port.value.to_string()).into_iter().collect());
    add("to", ranges(from.prefix_ranges));
    add("server name", from.server_names);
    let transport = Some(from.transport_protocol).filter(|protocol| !protocol.is_empty());
    add("transport", transport.into_iter().collect());
    add("ALPN", from.application_protocols);
    add("source", source);
    add("from", ranges(from.source_prefix_ranges));
    add("from port", from.source_ports.iter().map(ToString::to_string).collect());
    conditions
}
