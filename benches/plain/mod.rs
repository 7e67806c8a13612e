//! Resources as a plain mesh has many of: clusters whose endpoints come by EDS, and assignments of ten endpoints.

use bytes::Bytes;
use prost::Message;
use xdskit::pb::{
    envoy::{
        config::{
            cluster::v3::{
                Cluster,
                cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig, LbPolicy},
            },
            core::v3::{
                Address, AggregatedConfigSource, ConfigSource, HealthStatus, Locality, SocketAddress,
                address, config_source::ConfigSourceSpecifier, socket_address::PortSpecifier,
            },
            endpoint::v3::{
                ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
            },
        },
        service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse, Resource},
    },
    google::protobuf::{Any, UInt32Value},
};

pub(crate) const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
pub(crate) const ASSIGNMENTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// The name of a cluster and of its assignment, as Istio would have it.
pub(crate) fn name(number: usize) -> String {
    format!("outbound|8080||service-{number:07}.checkout-in-europe.svc.cluster.local")
}

/// A cluster of about 146 bytes; what it says differs by its `turn`, in the name of its assignment.
pub(crate) fn cluster(number: usize, turn: u32) -> Bytes {
    let source = ConfigSourceSpecifier::Ads(AggregatedConfigSource::default());
    let cluster = Cluster {
        name: name(number),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(ConfigSource {
                config_source_specifier: Some(source),
                ..ConfigSource::default()
            }),
            service_name: name(number + turn as usize),
        }),
        lb_policy: LbPolicy::RoundRobin.into(),
        ..Cluster::default()
    };
    cluster.encode_to_vec().into()
}

/// An assignment of ten endpoints and about 375 bytes; what it says differs by its `turn`, in the weight of its locality.
pub(crate) fn assignment(number: usize, turn: u32) -> Bytes {
    let endpoint = |last: usize| {
        let socket = SocketAddress {
            address: format!("10.{}.{}.{last}", number >> 8 & 255, number & 255),
            port_specifier: Some(PortSpecifier::PortValue(8080)),
            ..SocketAddress::default()
        };
        let address = Address { address: Some(address::Address::SocketAddress(socket)) };
        LbEndpoint {
            host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
                address: Some(address),
                ..Endpoint::default()
            })),
            health_status: HealthStatus::Healthy.into(),
            load_balancing_weight: Some(UInt32Value { value: 1 }),
            ..LbEndpoint::default()
        }
    };
    let locality = LocalityLbEndpoints {
        locality: Some(Locality {
            region: "europe-west1".into(),
            zone: "europe-west1-b".into(),
            ..Default::default()
        }),
        lb_endpoints: (1..=10).map(endpoint).collect(),
        load_balancing_weight: Some(UInt32Value { value: 1 + turn }),
        ..LocalityLbEndpoints::default()
    };
    let assignment = ClusterLoadAssignment {
        cluster_name: name(number),
        endpoints: vec![locality],
        ..ClusterLoadAssignment::default()
    };
    assignment.encode_to_vec().into()
}

/// A response of the state of the world.
pub(crate) fn response(number: usize, type_url: &str, resources: &[Bytes]) -> Bytes {
    let boxed = |value: &Bytes| Any { type_url: type_url.into(), value: value.clone() };
    let response = DiscoveryResponse {
        version_info: number.to_string(),
        nonce: number.to_string(),
        type_url: type_url.into(),
        resources: resources.iter().map(boxed).collect(),
        ..DiscoveryResponse::default()
    };
    response.encode_to_vec().into()
}

/// A response of the incremental variant, with resources by their numbers.
pub(crate) fn delta<'a>(
    number: usize,
    type_url: &str,
    resources: impl Iterator<Item = (usize, &'a Bytes)>,
) -> Bytes {
    let wrapped = |(place, value): (usize, &Bytes)| Resource {
        name: name(place),
        version: number.to_string(),
        resource: Some(Any { type_url: type_url.into(), value: value.clone() }),
        ..Resource::default()
    };
    let response = DeltaDiscoveryResponse {
        nonce: number.to_string(),
        type_url: type_url.into(),
        resources: resources.map(wrapped).collect(),
        ..DeltaDiscoveryResponse::default()
    };
    response.encode_to_vec().into()
}
