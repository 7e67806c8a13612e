//! The resources of a simulated mesh in short, and as messages that carry the generation in which they were made.

use std::{fmt, net::IpAddr};

use prost::Message;

use crate::{
    control_plane::AnyResource,
    pb::{
        envoy::{
            config::{
                cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds},
                core::v3::{
                    Address, HttpProtocolOptions, SocketAddress, address::Address as Kind,
                    socket_address::PortSpecifier,
                },
                listener::v3::{
                    ApiListener, Filter, FilterChain, Listener as ListenerMessage, filter::ConfigType,
                },
            },
            extensions::filters::network::http_connection_manager::v3::HttpConnectionManager,
        },
        google::protobuf::{Any, Duration, UInt32Value},
    },
    resource::{
        Cluster, ClusterLoadAssignment, Listener, Resource, RouteConfiguration, listener::ListenerKind,
    },
    testing::resources::{
        ClusterBuilder, RouteConfigBuilder, cluster, endpoints, listener, route, route_config,
    },
};

/// The types that a resolution goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Type {
    Listener,
    Routes,
    Cluster,
    Endpoints,
}

/// A resource: its type and name.
pub(super) type ResourceKey = (Type, String);

/// The content of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Spec {
    /// A listener whose routes have this name.
    Rds(String),
    /// A listener with routes of its own.
    Inline(Vec<Host>),
    /// A server's listener.
    Socket,
    Routes(Vec<Host>),
    /// A cluster whose endpoints have this name.
    Eds(String),
    /// A cluster that is a host and a port.
    Dns(String, u16),
    Aggregate(Vec<String>),
    Endpoints,
    /// Nothing that a client accepts.
    Bad,
}

/// A virtual host: its domain, and the clusters of its routes.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) domain: String,
    pub(super) clusters: Vec<String>,
}

/// A resource as it was made in some generation of the mesh.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) generation: u32,
    pub(super) spec: Spec,
}

impl Type {
    pub(super) const ALL: [Self; 4] = [Self::Listener, Self::Routes, Self::Cluster, Self::Endpoints];

    pub(super) fn url(self) -> &'static str {
        match self {
            Self::Listener => Listener::TYPE_URL,
            Self::Routes => RouteConfiguration::TYPE_URL,
            Self::Cluster => Cluster::TYPE_URL,
            Self::Endpoints => ClusterLoadAssignment::TYPE_URL,
        }
    }
}

impl Spec {
    /// The message of a resource with this content.
    pub(super) fn encode(&self, (ty, name): &ResourceKey, generation: u32) -> AnyResource {
        let name = name.as_str();
        match (ty, self) {
            (Type::Listener, Self::Rds(routes)) => {
                listener(name).rds(routes).edit(|message| of_client(message, generation)).into()
            }
            (Type::Listener, Self::Inline(hosts)) => {
                let listener = listener(name).inline_routes(routes("", hosts, generation));
                listener.edit(|message| of_client(message, generation)).into()
            }
            (Type::Listener, Self::Socket) => {
                listener(name).edit(|message| of_server(message, generation)).into()
            }
            (Type::Listener, _) => listener(name).edit(|message| *api(message) = Any::default()).into(),
            (Type::Routes, Self::Routes(hosts)) => routes(name, hosts, generation).into(),
            // A virtual host needs a domain.
            (Type::Routes, _) => route_config(name).virtual_host([""; 0], []).into(),
            (Type::Cluster, Self::Eds(service)) => limited(cluster(name).eds_service(service), generation),
            (Type::Cluster, Self::Dns(host, port)) => {
                limited(cluster(name).logical_dns(host, *port), generation)
            }
            (Type::Cluster, Self::Aggregate(children)) => {
                limited(cluster(name).aggregate(children), generation)
            }
            (Type::Cluster, _) => cluster(name).edit(|message| message.cluster_discovery_type = None).into(),
            (Type::Endpoints, Self::Endpoints) => {
                let address = format!("{}:80", address(name, generation));
                endpoints(name).locality("", "", [address.as_str()]).into()
            }
            // Priorities have no gaps.
            (Type::Endpoints, _) => endpoints(name).locality("", "", []).priority(7).into(),
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.domain, self.clusters.join(" "))
    }
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{}", self.spec, self.generation)
    }
}

/// The generation of a resource as it was parsed.
pub(super) trait Generation {
    fn generation(&self) -> u32;
}

impl Generation for Listener {
    fn generation(&self) -> u32 {
        match &self.kind {
            ListenerKind::Api(manager) => {
                manager.max_stream_duration.expect("it holds the generation").as_secs() as u32
            }
            ListenerKind::Socket(socket) => socket.address.port().into(),
        }
    }
}

impl Generation for RouteConfiguration {
    fn generation(&self) -> u32 {
        let name = &self.virtual_hosts[0].name;
        name.parse().expect("the first virtual host is named by the generation")
    }
}

impl Generation for Cluster {
    fn generation(&self) -> u32 {
        self.max_requests
    }
}

impl Generation for ClusterLoadAssignment {
    fn generation(&self) -> u32 {
        let name = self.cluster_name.split(':').next().expect("a name");
        let endpoint = &self.priorities[0].localities[0].endpoints[0];
        let IpAddr::V4(found) = endpoint.address().ip() else { panic!("{endpoint:?} is of nobody") };
        let [.., high, low] = found.octets();
        let generation = u32::from(high) << 8 | u32::from(low);
        assert_eq!(IpAddr::V4(found), address(name, generation), "the endpoints of {name:?}");
        generation
    }
}

/// An address that identifies its cluster and generation.
pub(super) fn address(name: &str, generation: u32) -> IpAddr {
    let (kind, number) = name.split_at(1);
    let base = match kind {
        "s" => 0,
        "k" => 50,
        "w" => 100,
        "h" => 150,
        other => panic!("{other:?} is no kind of name"),
    };
    let whose = base + number.parse::<u8>().expect("a number");
    [10, whose, (generation >> 8) as u8, generation as u8].into()
}

fn routes(name: &str, hosts: &[Host], generation: u32) -> RouteConfigBuilder {
    let of = |clusters: &[String]| {
        let weighted = clusters.iter().map(|cluster| (cluster.clone(), 1)).collect::<Vec<_>>();
        match clusters {
            [one] => vec![route::prefix("/").cluster(one)],
            [first, ..] => vec![route::path("/first").cluster(first), route::prefix("/").weighted(weighted)],
            [] => vec![route::prefix("/").non_forwarding()],
        }
    };
    // Something must carry the generation, hosts or not.
    let builder = route_config(name).virtual_host(["nobody"], []);
    let builder = hosts
        .iter()
        .fold(builder, |builder, host| builder.virtual_host([host.domain.as_str()], of(&host.clusters)));
    builder.edit(|message| message.virtual_hosts[0].name = generation.to_string())
}

fn of_client(message: &mut ListenerMessage, generation: u32) {
    let manager = api(message);
    let mut read = HttpConnectionManager::decode(manager.value.clone()).expect("a manager");
    let duration = Duration { seconds: generation.into(), nanos: 0 };
    let options = HttpProtocolOptions { max_stream_duration: Some(duration), ..Default::default() };
    read.common_http_protocol_options = Some(options);
    manager.value = read.encode_to_vec().into();
}

fn of_server(message: &mut ListenerMessage, generation: u32) {
    let config_type = Some(ConfigType::TypedConfig(api(message).clone()));
    let filters = vec![Filter { name: "http".into(), config_type }];
    message.default_filter_chain = Some(FilterChain { filters, ..FilterChain::default() });
    let socket = SocketAddress {
        address: "127.0.0.1".into(),
        port_specifier: Some(PortSpecifier::PortValue(generation)),
        ..SocketAddress::default()
    };
    message.address = Some(Address { address: Some(Kind::SocketAddress(socket)) });
    message.api_listener = None;
}

fn api(message: &mut ListenerMessage) -> &mut Any {
    let api: &mut ApiListener = message.api_listener.as_mut().expect("it is of a client");
    api.api_listener.as_mut().expect("it has a manager")
}

/// The generation is the limit of its requests.
fn limited(builder: ClusterBuilder, generation: u32) -> AnyResource {
    let max_requests = Some(UInt32Value { value: generation });
    let thresholds = vec![Thresholds { max_requests, ..Thresholds::default() }];
    let breakers = CircuitBreakers { thresholds, ..CircuitBreakers::default() };
    builder.edit(|message| message.circuit_breakers = Some(breakers)).into()
}
