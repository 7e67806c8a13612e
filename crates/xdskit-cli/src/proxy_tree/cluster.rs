//! Clusters and their endpoints, as far as they are drawn.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use serde::Serialize;
use xdskit::{
    pb::envoy::{
        config::{
            cluster::v3::{
                self as pb,
                cluster::{ClusterDiscoveryType, CustomClusterType, DiscoveryType},
            },
            core::v3::HealthStatus,
            endpoint::v3::{self as endpoint, lb_endpoint::HostIdentifier, locality_lb_endpoints::LbConfig},
        },
        extensions::clusters::aggregate::v3::ClusterConfig,
    },
    resource::{self, Invalid},
};

use super::{Content, Mesh, Resources, listener::address};

/// A cluster by the source of its endpoints.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cluster {
    /// Its discovery type: `EDS`, `STATIC`, `aggregate`.
    pub(crate) kind: String,
    /// Where its endpoints are.
    pub(crate) source: EndpointSource,
}

/// Where the endpoints of a cluster come from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum EndpointSource {
    /// The endpoints of EDS by this name; `None` is the name of the cluster.
    Eds(Option<Arc<str>>),
    /// The clusters of an aggregate, in the order of preference.
    Aggregate(Vec<Arc<str>>),
    /// The endpoints in the cluster itself, if it has any.
    Inline(Assignment),
}

/// Endpoints by locality.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Assignment {
    /// The localities, in the order of the resource.
    pub(crate) localities: Vec<Locality>,
}

/// A locality of an assignment, also as JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Locality {
    /// The non-empty parts of region, zone and sub-zone.
    pub(crate) name: String,
    /// The priority; 0 is the highest.
    pub(crate) priority: u32,
    /// The weight among localities of its priority, if it has one.
    pub(crate) weight: Option<u32>,
    /// The endpoints.
    pub(crate) endpoints: Vec<Endpoint>,
    /// The collection that the endpoints are in instead (LEDS), which is not followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) collection: Option<String>,
}

/// An endpoint of a locality, also as JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Endpoint {
    /// The address, or the name in place of one.
    pub(crate) address: String,
    /// Whether requests may go there.
    pub(crate) health: Health,
}

/// The health of an endpoint, as far as requests depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Health {
    /// Healthy, or not checked.
    Usable,
    /// Only for requests that are bound to it.
    Draining,
    /// The name of the health status.
    #[serde(untagged)]
    Unusable(&'static str),
}

impl Content for Cluster {
    type Resource = resource::Cluster;

    fn read(bytes: &Bytes) -> Result<Self, Invalid> {
        let message = pb::Cluster::decode(bytes.clone())?;
        let inline = |assignment: Option<endpoint::ClusterLoadAssignment>| {
            EndpointSource::Inline(assignment.map(Assignment::of).unwrap_or_default())
        };
        let number = match message.cluster_discovery_type {
            Some(ClusterDiscoveryType::ClusterType(custom)) => {
                let (kind, source) = match aggregate(&custom)? {
                    Some(children) => ("aggregate".to_owned(), EndpointSource::Aggregate(children)),
                    None => (custom.name, inline(message.load_assignment)),
                };
                return Ok(Self { kind, source });
            }
            Some(ClusterDiscoveryType::Type(number)) => number,
            // An unset type is STATIC, as in Envoy.
            None => DiscoveryType::Static.into(),
        };
        let (kind, source) = match DiscoveryType::try_from(number) {
            Ok(DiscoveryType::Eds) => {
                let service = message.eds_cluster_config.map(|config| config.service_name);
                let service = service.filter(|name| !name.is_empty()).map(Arc::from);
                ("EDS".to_owned(), EndpointSource::Eds(service))
            }
            Ok(kind) => (kind.as_str_name().to_owned(), inline(message.load_assignment)),
            Err(_) => (format!("type {number}"), inline(message.load_assignment)),
        };
        Ok(Self { kind, source })
    }

    fn of(mesh: &mut Mesh) -> &mut Resources<Self> {
        &mut mesh.clusters
    }
}

/// The children of an aggregate; `None` if the cluster is of another type.
fn aggregate(custom: &CustomClusterType) -> Result<Option<Vec<Arc<str>>>, Invalid> {
    let config = custom.typed_config.as_ref();
    // `cluster.aggregate` in v2.
    let is_aggregate =
        |url: &str| url.contains(".clusters.aggregate.") || url.contains(".cluster.aggregate.");
    let config = config.filter(|config| is_aggregate(&config.type_url));
    let Some(config) = config else { return Ok(None) };
    let config = ClusterConfig::decode(config.value.clone())?;
    Ok(Some(config.clusters.into_iter().map(Into::into).collect()))
}

impl Content for Assignment {
    type Resource = resource::ClusterLoadAssignment;

    fn read(bytes: &Bytes) -> Result<Self, Invalid> {
        Ok(Self::of(endpoint::ClusterLoadAssignment::decode(bytes.clone())?))
    }

    fn of(mesh: &mut Mesh) -> &mut Resources<Self> {
        &mut mesh.endpoints
    }
}

impl Assignment {
    /// Reads an assignment.
    fn of(message: endpoint::ClusterLoadAssignment) -> Self {
        Self { localities: message.endpoints.into_iter().map(Locality::of).collect() }
    }

    /// All endpoints, over the localities.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.localities.iter().flat_map(|locality| &locality.endpoints)
    }

    /// Whether there is an endpoint that requests can be sent to, as far as it is known.
    pub(super) fn is_usable(&self) -> bool {
        self.endpoints().any(|endpoint| endpoint.health == Health::Usable)
            || self.localities.iter().any(|locality| locality.collection.is_some())
    }
}

impl Locality {
    /// Reads a locality.
    fn of(from: endpoint::LocalityLbEndpoints) -> Self {
        let place = from.locality.unwrap_or_default();
        let parts = [place.region, place.zone, place.sub_zone].into_iter().filter(|part| !part.is_empty());
        let (endpoints, collection) = match from.lb_config {
            Some(LbConfig::LoadBalancerEndpoints(list)) => (list.lb_endpoints, None),
            Some(LbConfig::LedsClusterLocalityConfig(leds)) => (Vec::new(), Some(leds.leds_collection_name)),
            None => (from.lb_endpoints, None),
        };
        Self {
            name: parts.collect::<Vec<_>>().join("/"),
            priority: from.priority,
            weight: from.load_balancing_weight.map(|weight| weight.value),
            endpoints: endpoints.into_iter().map(Endpoint::of).collect(),
            collection,
        }
    }
}

impl Endpoint {
    /// Reads an endpoint.
    fn of(from: endpoint::LbEndpoint) -> Self {
        let address = match from.host_identifier {
            Some(HostIdentifier::Endpoint(endpoint)) => {
                endpoint.address.as_ref().map_or_else(|| "no address".to_owned(), address)
            }
            Some(HostIdentifier::EndpointName(name)) => name,
            None => "no address".to_owned(),
        };
        let health = match HealthStatus::try_from(from.health_status) {
            Ok(HealthStatus::Unknown | HealthStatus::Healthy) => Health::Usable,
            Ok(HealthStatus::Draining) => Health::Draining,
            Ok(HealthStatus::Unhealthy) => Health::Unusable("unhealthy"),
            Ok(HealthStatus::Timeout) => Health::Unusable("timeout"),
            Ok(HealthStatus::Degraded) => Health::Unusable("degraded"),
            Err(_) => Health::Unusable("unrecognized"),
        };
        Self { address, health }
    }
}
