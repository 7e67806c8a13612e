//! The resources of a plain mesh: clusters whose endpoints come by EDS, and assignments of ten endpoints. The benches and the
//! server of the comparison with other clients make them here, each with its names and its way to change a resource.

use xdskit::pb::{
    envoy::config::{
        cluster::v3::{
            CircuitBreakers, Cluster,
            circuit_breakers::Thresholds,
            cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig, LbPolicy},
        },
        core::v3::{
            Address, AggregatedConfigSource, ConfigSource, HealthStatus, Locality, SocketAddress, address,
            config_source::ConfigSourceSpecifier, socket_address::PortSpecifier,
        },
        endpoint::v3::{
            ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
        },
    },
    google::protobuf::UInt32Value,
};

/// A cluster with the EDS service `service_name`, and a limit of concurrent requests if one is given.
pub(crate) fn cluster(name: String, service_name: String, max_requests: Option<u32>) -> Cluster {
    let source = ConfigSourceSpecifier::Ads(AggregatedConfigSource::default());
    let limit =
        |limit| Thresholds { max_requests: Some(UInt32Value { value: limit }), ..Thresholds::default() };
    Cluster {
        name,
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(ConfigSource {
                config_source_specifier: Some(source),
                ..ConfigSource::default()
            }),
            service_name,
        }),
        lb_policy: LbPolicy::RoundRobin.into(),
        circuit_breakers: max_requests
            .map(|max| CircuitBreakers { thresholds: vec![limit(max)], ..CircuitBreakers::default() }),
        ..Cluster::default()
    }
}

/// An assignment of ten endpoints in one locality of this weight, with addresses that the number makes distinct.
/// `endpoint_weight` is the weight of each endpoint; none is sent if it is `None`.
pub(crate) fn assignment(
    name: String,
    number: usize,
    locality_weight: u32,
    endpoint_weight: Option<u32>,
) -> ClusterLoadAssignment {
    let locality = LocalityLbEndpoints {
        locality: Some(Locality {
            region: "europe-west1".into(),
            zone: "europe-west1-b".into(),
            ..Locality::default()
        }),
        lb_endpoints: (1..=10).map(|last| endpoint(number, last, endpoint_weight)).collect(),
        load_balancing_weight: Some(UInt32Value { value: locality_weight }),
        ..LocalityLbEndpoints::default()
    };
    ClusterLoadAssignment {
        cluster_name: name,
        endpoints: vec![locality],
        ..ClusterLoadAssignment::default()
    }
}

fn endpoint(number: usize, last: usize, weight: Option<u32>) -> LbEndpoint {
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
        load_balancing_weight: weight.map(|value| UInt32Value { value }),
        ..LbEndpoint::default()
    }
}
