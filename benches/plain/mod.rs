//! The resources of a plain mesh as bytes, and responses of them.

#[path = "../mesh/mod.rs"]
mod mesh;

use bytes::Bytes;
use prost::Message;
use xdskit::pb::{
    envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse, Resource},
    google::protobuf::Any,
};

pub(crate) const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
pub(crate) const ASSIGNMENTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// The name of a cluster and of its assignment, as Istio would have it.
pub(crate) fn name(number: usize) -> String {
    format!("outbound|8080||service-{number:07}.checkout-in-europe.svc.cluster.local")
}

/// A cluster of 146 bytes. `turn` changes the name of its assignment.
pub(crate) fn cluster(number: usize, turn: u32) -> Bytes {
    mesh::cluster(name(number), name(number + turn as usize), None).encode_to_vec().into()
}

/// An assignment of 379 bytes. `turn` changes the weight of its locality.
pub(crate) fn assignment(number: usize, turn: u32) -> Bytes {
    mesh::assignment(name(number), number, 1 + turn, Some(1)).encode_to_vec().into()
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
