use prost::Message;

use super::*;
use crate::pb::envoy::{
    config::{
        cluster::v3::{
            CircuitBreakers,
            circuit_breakers::Thresholds,
            cluster::{ClusterDiscoveryType, EdsClusterConfig},
        },
        core::v3::config_source::ConfigSourceSpecifier as Source,
        endpoint::v3::{self as endpoint, lb_endpoint::HostIdentifier},
    },
    extensions::transport_sockets::tls::v3 as tls,
};

fn parse(from: cluster::Cluster) -> Result<Cluster, String> {
    let providers = ["ca".to_owned()].into();
    let cx = Context::new().with_certificate_providers(&providers);
    Cluster::parse(&from.encode_to_vec().into(), &cx).map_err(|e| e.to_string())
}

fn any(name: &str, message: &impl Message) -> google::Any {
    google::Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec().into() }
}

fn source(specifier: Source) -> core::ConfigSource {
    core::ConfigSource { config_source_specifier: Some(specifier), ..Default::default() }
}

fn ads() -> core::ConfigSource {
    source(Source::Ads(core::AggregatedConfigSource {}))
}

fn of_type(discovery: DiscoveryType) -> cluster::Cluster {
    cluster::Cluster {
        name: "shop".into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(discovery as i32)),
        ..Default::default()
    }
}

/// A valid EDS cluster, the basis of variations.
fn eds() -> cluster::Cluster {
    let config = EdsClusterConfig { eds_config: Some(ads()), service_name: "shop-eds".into() };
    cluster::Cluster { eds_cluster_config: Some(config), ..of_type(DiscoveryType::Eds) }
}

fn dns(host: &str, port: Option<u32>) -> cluster::Cluster {
    let socket = core::SocketAddress {
        address: host.into(),
        port_specifier: port.map(core::socket_address::PortSpecifier::PortValue),
        ..Default::default()
    };
    let address = core::Address { address: Some(core::address::Address::SocketAddress(socket)) };
    let endpoint = endpoint::Endpoint { address: Some(address), ..Default::default() };
    let host = endpoint::LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
        ..Default::default()
    };
    let locality = endpoint::LocalityLbEndpoints { lb_endpoints: vec![host], ..Default::default() };
    let load_assignment =
        Some(endpoint::ClusterLoadAssignment { endpoints: vec![locality], ..Default::default() });
    cluster::Cluster { load_assignment, ..of_type(DiscoveryType::LogicalDns) }
}

fn custom(config: Option<google::Any>) -> cluster::Cluster {
    let custom = CustomClusterType { name: "whatever".into(), typed_config: config };
    cluster::Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::ClusterType(custom)),
        ..of_type(DiscoveryType::Eds)
    }
}

fn socket(config: google::Any) -> Option<core::TransportSocket> {
    Some(core::TransportSocket { name: String::new(), config_type: Some(ConfigType::TypedConfig(config)) })
}

fn tls_context() -> google::Any {
    let instance =
        tls::CertificateProviderPluginInstance { instance_name: "ca".into(), ..Default::default() };
    let validation = tls::CertificateValidationContext {
        ca_certificate_provider_instance: Some(instance),
        ..Default::default()
    };
    let common = tls::CommonTlsContext {
        validation_context_type: Some(tls::common_tls_context::ValidationContextType::ValidationContext(
            validation,
        )),
        ..Default::default()
    };
    let message = tls::UpstreamTlsContext { common_tls_context: Some(common), ..Default::default() };
    any("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", &message)
}

#[test]
fn a_plain_cluster_has_the_defaults() {
    let parsed = parse(eds()).unwrap();
    assert_eq!(
        serde_json::to_value(&parsed).unwrap(),
        serde_json::json!({
            "name": "shop", "kind": "eds", "service_name": "shop-eds",
            "lb_policy": {"wrr_locality": {"endpoint_picking_policy": "round_robin"}},
            "max_requests": 1024, "max_connections": 1, "outlier_detection": null, "tls": null, "http_connect": false,
            "idle_timeout": "3600s", "report_load": false,
            "reported_metrics": {"cpu_utilization": false, "mem_utilization": false,
                "application_utilization": false, "all_named_metrics": false, "named_metrics": []},
            "telemetry_labels": {"service_name": "unknown", "service_namespace": "unknown"},
            "override_host_status": {"unknown": true, "healthy": true, "draining": false},
            "metadata": {},
        })
    );
    let size = size_of::<Cluster>();
    assert!(size <= 160, "{size} bytes");
}

#[test]
fn g5_g6_accepts_a_message_with_a_name() {
    assert_eq!(&*parse(eds()).unwrap().name, "shop");
}

#[test]
fn g5_rejects_bytes_that_are_no_message() {
    let e = Cluster::parse(&Bytes::from_static(b"\xff"), &Context::new()).unwrap_err();
    assert!(e.path().is_empty() && e.reason().starts_with("not a valid message"), "{e}");
}

#[test]
fn g6_rejects_an_empty_name() {
    let e = parse(cluster::Cluster { name: String::new(), ..eds() }).unwrap_err();
    assert_eq!(e, "name: must not be empty");
}

#[test]
fn g9_accepts_fields_that_are_not_known() {
    let mut bytes = eds().encode_to_vec();
    // Field 2000, which is unknown.
    bytes.extend([0x82, 0x7d, 2, b'h', b'i']);
    assert_eq!(Cluster::parse(&bytes.into(), &Context::new()).map_err(|e| e.to_string()), parse(eds()));
}

mod kind;
mod properties;
mod settings;
mod transport;
