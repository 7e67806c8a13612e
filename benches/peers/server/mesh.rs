//! Resources as a plain mesh has many of: clusters whose endpoints come by EDS, and assignments of ten endpoints.

use prost::Message;
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

/// The name of a cluster and of its assignment, as Istio would have it. The clients spell it, too.
pub(crate) fn name(number: usize) -> String {
    format!("{PREFIX}{number:06}.shop.svc.cluster.local")
}

/// The number of a name.
pub(crate) fn number(name: &[u8]) -> Option<usize> {
    let digits = name.strip_prefix(PREFIX.as_bytes())?.get(..6)?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// A cluster of about 146 bytes; what it says differs by its `turn`, in the requests that it may have at a time.
pub(crate) fn cluster(number: usize, turn: u32) -> Vec<u8> {
    let source = ConfigSourceSpecifier::Ads(AggregatedConfigSource::default());
    let cluster = Cluster {
        name: name(number),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(ConfigSource { config_source_specifier: Some(source), ..Default::default() }),
            service_name: name(number),
        }),
        lb_policy: LbPolicy::RoundRobin.into(),
        circuit_breakers: (turn > 0)
            .then(|| CircuitBreakers { thresholds: vec![limit(turn)], ..CircuitBreakers::default() }),
        ..Cluster::default()
    };
    cluster.encode_to_vec()
}

fn limit(max_requests: u32) -> Thresholds {
    Thresholds { max_requests: Some(UInt32Value { value: max_requests }), ..Thresholds::default() }
}

/// An assignment of ten endpoints and about 375 bytes; what it says differs by its `turn`, in the weight of its locality.
pub(crate) fn assignment(number: usize, turn: u32) -> Vec<u8> {
    let locality = LocalityLbEndpoints {
        locality: Some(Locality {
            region: "europe-west1".into(),
            zone: "europe-west1-b".into(),
            ..Default::default()
        }),
        lb_endpoints: (1..=10).map(|last| endpoint(number, last)).collect(),
        load_balancing_weight: Some(UInt32Value { value: 1 + turn }),
        ..LocalityLbEndpoints::default()
    };
    let assignment = ClusterLoadAssignment {
        cluster_name: name(number),
        endpoints: vec![locality],
        ..ClusterLoadAssignment::default()
    };
    assignment.encode_to_vec()
}

fn endpoint(number: usize, last: usize) -> LbEndpoint {
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
        ..LbEndpoint::default()
    }
}

const PREFIX: &str = "outbound|8080||service-";
