//! Snapshots by hand, for tests.

use std::sync::Arc;

use prost::Message;

use super::{
    Snapshot,
    cluster_entry::ClusterEntry,
    snapshot::{HostChoice, RoutingConfig},
};
use crate::{
    error::{Blame, Code, Subject, WatchError},
    lrs::{LoadSettings, Loads},
    pb::{
        envoy::{
            config::{
                cluster::v3::{
                    self as cluster,
                    cluster::{ClusterDiscoveryType, CustomClusterType, DiscoveryType, EdsClusterConfig},
                },
                core::v3::{
                    self as core, Address, AggregatedConfigSource, ConfigSource, HealthStatus, Locality,
                    SocketAddress, config_source::ConfigSourceSpecifier, socket_address::PortSpecifier,
                },
                endpoint::v3::{
                    self as endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
                },
                listener::v3 as listener,
                route::v3::{self as route, route::Action, route_action::ClusterSpecifier},
            },
            extensions::{
                clusters::aggregate::v3::ClusterConfig,
                filters::network::http_connection_manager::v3::{
                    self as hcm, http_connection_manager::RouteSpecifier, http_filter::ConfigType,
                },
            },
        },
        google::protobuf::{Any, UInt32Value},
    },
    resource::{Cluster, ClusterLoadAssignment, Context, Resource, RouteConfiguration},
};

/// A snapshot under construction.
pub(crate) struct Draft {
    authority: String,
    manager: hcm::HttpConnectionManager,
    virtual_hosts: Vec<route::VirtualHost>,
    warnings: Vec<WatchError>,
    clusters: Vec<ClusterEntry>,
}

/// A snapshot of the target `xds:///<authority>`, whose only virtual host has a route to the first cluster.
pub(crate) fn snapshot(authority: &str) -> Draft {
    Draft {
        authority: authority.into(),
        manager: hcm::HttpConnectionManager::default(),
        virtual_hosts: Vec::new(),
        warnings: Vec::new(),
        clusters: Vec::new(),
    }
}

impl Draft {
    /// Replaces the virtual hosts; the best one for the authority is the snapshot's.
    pub(crate) fn virtual_hosts(mut self, hosts: Vec<route::VirtualHost>) -> Self {
        self.virtual_hosts = hosts;
        self
    }

    /// Replaces the virtual hosts by one for everything.
    pub(crate) fn routes(self, routes: Vec<route::Route>) -> Self {
        self.virtual_hosts(vec![virtual_host(&["*"], routes)])
    }

    /// Sets the parts of the listener beside its routes; a router is added to the filters.
    pub(crate) fn manager(mut self, manager: hcm::HttpConnectionManager) -> Self {
        self.manager = manager;
        self
    }

    pub(crate) fn warning(mut self, warning: WatchError) -> Self {
        self.warnings.push(warning);
        self
    }

    /// Adds a cluster as it is.
    pub(crate) fn entry(mut self, entry: ClusterEntry) -> Self {
        self.clusters.push(entry);
        self
    }

    /// Adds an EDS cluster of these priorities: lists of addresses, each of which may be followed by a state of health.
    pub(crate) fn eds(self, name: &str, priorities: &[&[&str]]) -> Self {
        self.entry(eds(name, priorities))
    }

    /// Adds a cluster that there is not.
    pub(crate) fn missing(self, name: &str) -> Self {
        let error = error::<Cluster>(name, Code::NotFound, "does not exist");
        self.entry(ClusterEntry { config: None, error: Some(error), endpoints: None, ..eds(name, &[]) })
    }

    /// Adds an EDS cluster whose endpoints are not known.
    pub(crate) fn without_endpoints(self, name: &str) -> Self {
        let endpoints_error = error::<ClusterLoadAssignment>(name, Code::NotFound, "does not exist");
        self.entry(ClusterEntry { endpoints: None, endpoints_error: Some(endpoints_error), ..eds(name, &[]) })
    }

    /// Adds an aggregate; its leaves are clusters of their own.
    pub(crate) fn aggregate(self, name: &str, leaves: &[&str]) -> Self {
        let config = ClusterConfig { clusters: leaves.iter().map(|&leaf| leaf.into()).collect() };
        let custom = CustomClusterType {
            typed_config: Some(any("envoy.extensions.clusters.aggregate.v3.ClusterConfig", &config)),
            ..Default::default()
        };
        let config = cluster::Cluster {
            name: name.into(),
            cluster_discovery_type: Some(ClusterDiscoveryType::ClusterType(custom)),
            ..Default::default()
        };
        self.entry(ClusterEntry {
            config: Some(parse(&config)),
            endpoints: None,
            leaves: leaves.iter().map(|&leaf| leaf.into()).collect(),
            ..eds(name, &[])
        })
    }

    pub(crate) fn build(self) -> Snapshot {
        let Self { authority, mut manager, mut virtual_hosts, warnings, clusters } = self;
        if virtual_hosts.is_empty() {
            let first = clusters.first().map_or("none", |entry| &entry.name);
            virtual_hosts.push(virtual_host(&["*"], vec![route(prefix("/"), to(first))]));
        }
        let routes = route::RouteConfiguration { name: "routes".into(), virtual_hosts, ..Default::default() };
        let routes: Arc<RouteConfiguration> = parse(&routes);
        manager.route_specifier = Some(RouteSpecifier::Rds(hcm::Rds {
            config_source: Some(ads()),
            route_config_name: routes.name.to_string(),
        }));
        manager.http_filters.push(http_filter(
            "router",
            "envoy.extensions.filters.http.router.v3.Router",
            &(),
        ));
        let listener = listener::Listener {
            name: authority.clone(),
            api_listener: Some(listener::ApiListener {
                api_listener: Some(any(
                    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                    &manager,
                )),
            }),
            ..Default::default()
        };
        let virtual_host = routes.virtual_host_index(&authority).expect("a virtual host for the authority");
        let routing = RoutingConfig {
            target: format!("xds:///{authority}").into(),
            authority: authority.into(),
            listener: parse(&listener),
            routes,
            scope: None,
            virtual_host: HostChoice::Inline(virtual_host),
            warnings,
            loads: Loads::new(LoadSettings::default()),
        };
        let clusters = clusters.into_iter().map(|entry| (entry.name.clone(), Arc::new(entry))).collect();
        Snapshot { routing: Arc::new(routing), clusters }
    }
}

/// A later snapshot, with another state of one cluster.
pub(crate) fn with(snapshot: &Snapshot, entry: ClusterEntry) -> Snapshot {
    let clusters = snapshot.clusters.update(entry.name.clone(), Arc::new(entry));
    Snapshot { routing: snapshot.routing.clone(), clusters }
}

/// A later snapshot that lacks a cluster.
pub(crate) fn without(snapshot: &Snapshot, cluster: &str) -> Snapshot {
    Snapshot { routing: snapshot.routing.clone(), clusters: snapshot.clusters.without(cluster) }
}

/// A later snapshot with the same resources, and a reason why the routes may be stale.
pub(crate) fn with_warning(snapshot: &Snapshot, warning: WatchError) -> Snapshot {
    let routing = RoutingConfig { warnings: vec![warning], ..(*snapshot.routing).clone() };
    Snapshot { routing: Arc::new(routing), clusters: snapshot.clusters.clone() }
}

/// An EDS cluster: see [`Draft::eds`].
pub(crate) fn eds(name: &str, priorities: &[&[&str]]) -> ClusterEntry {
    let config = cluster::Cluster {
        name: name.into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig { eds_config: Some(ads()), ..Default::default() }),
        ..Default::default()
    };
    let endpoints = (0..).zip(priorities).map(|(priority, endpoints)| locality(priority, "zone", endpoints));
    ClusterEntry {
        name: name.into(),
        config: Some(parse(&config)),
        error: None,
        warning: None,
        endpoints: Some(assignment(name, endpoints.collect())),
        endpoints_error: None,
        leaves: Arc::default(),
    }
}

/// The endpoints of a cluster.
pub(crate) fn assignment(name: &str, localities: Vec<LocalityLbEndpoints>) -> Arc<ClusterLoadAssignment> {
    parse(&endpoint::ClusterLoadAssignment {
        cluster_name: name.into(),
        endpoints: localities,
        ..Default::default()
    })
}

/// A locality of weight 1; its endpoints are as `10.0.0.1:80` or, with a state of health, `10.0.0.1:80 DRAINING`.
pub(crate) fn locality(priority: u32, zone: &str, endpoints: &[impl AsRef<str>]) -> LocalityLbEndpoints {
    LocalityLbEndpoints {
        locality: Some(Locality { zone: zone.into(), ..Default::default() }),
        priority,
        load_balancing_weight: Some(UInt32Value { value: 1 }),
        lb_endpoints: endpoints.iter().map(|text| lb_endpoint(text.as_ref())).collect(),
        ..Default::default()
    }
}

fn lb_endpoint(text: &str) -> LbEndpoint {
    let (address, health) = text.split_once(' ').unwrap_or((text, "UNKNOWN"));
    let (ip, port) = address.rsplit_once(':').expect("an address and a port");
    let socket = SocketAddress {
        address: ip.into(),
        port_specifier: Some(PortSpecifier::PortValue(port.parse().expect("a port"))),
        ..Default::default()
    };
    let address = Address { address: Some(core::address::Address::SocketAddress(socket)) };
    let endpoint = endpoint::Endpoint { address: Some(address), ..Default::default() };
    LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
        health_status: HealthStatus::from_str_name(health).expect("a state of health").into(),
        ..Default::default()
    }
}

pub(crate) fn virtual_host(domains: &[impl AsRef<str>], routes: Vec<route::Route>) -> route::VirtualHost {
    let domains: Vec<String> = domains.iter().map(|domain| domain.as_ref().into()).collect();
    route::VirtualHost { name: domains.join(" "), domains, routes, ..Default::default() }
}

pub(crate) fn route(matcher: route::RouteMatch, action: route::RouteAction) -> route::Route {
    route::Route { r#match: Some(matcher), action: Some(Action::Route(action)), ..Default::default() }
}

pub(crate) fn prefix(prefix: &str) -> route::RouteMatch {
    let path = route::route_match::PathSpecifier::Prefix(prefix.into());
    route::RouteMatch { path_specifier: Some(path), ..Default::default() }
}

/// Sends requests to one cluster.
pub(crate) fn to(cluster: &str) -> route::RouteAction {
    let cluster_specifier = Some(ClusterSpecifier::Cluster(cluster.into()));
    route::RouteAction { cluster_specifier, ..Default::default() }
}

/// Splits requests by weight.
pub(crate) fn split(weights: &[(&str, u32)]) -> route::RouteAction {
    let clusters = weights.iter().map(|(name, weight)| route::weighted_cluster::ClusterWeight {
        name: (*name).into(),
        weight: Some(UInt32Value { value: *weight }),
        ..Default::default()
    });
    let weighted = route::WeightedCluster { clusters: clusters.collect(), ..Default::default() };
    let cluster_specifier = Some(ClusterSpecifier::WeightedClusters(weighted));
    route::RouteAction { cluster_specifier, ..Default::default() }
}

/// An HTTP filter of a listener.
pub(crate) fn http_filter(name: &str, type_name: &str, config: &impl Message) -> hcm::HttpFilter {
    let config_type = Some(ConfigType::TypedConfig(any(type_name, config)));
    hcm::HttpFilter { name: name.into(), config_type, ..Default::default() }
}

/// An error about a resource.
pub(crate) fn error<T: Resource>(name: &str, code: Code, reason: &str) -> WatchError {
    let about = Subject { type_url: T::TYPE_URL, name: name.into(), node: "test".into() };
    WatchError::new(code, Blame::Peer, about, reason)
}

pub(crate) fn any(type_name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_name}"), value: message.encode_to_vec().into() }
}

/// Parses a message of a trusted server into the resource that it is.
pub(crate) fn parse<T: Resource>(message: &impl Message) -> Arc<T> {
    let cx = Context::new().with_trusted_server(true);
    Arc::new(T::parse(&message.encode_to_vec().into(), &cx).expect("a valid resource"))
}

fn ads() -> ConfigSource {
    ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource::default())),
        ..Default::default()
    }
}
