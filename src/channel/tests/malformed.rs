//! Malformed values of endpoints, which are ignored and counted.

use prost::Message;

use super::*;
use crate::pb::{
    envoy::{
        config::{
            cluster::v3::{LoadBalancingPolicy, load_balancing_policy::Policy},
            core::v3::TypedExtensionConfig,
        },
        extensions::load_balancing_policies::client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin,
    },
    google::protobuf::Any,
};

/// A policy that reads the load reports of responses.
fn weighted() -> LoadBalancingPolicy {
    let package = "envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3";
    let typed_config = Some(Any {
        type_url: format!("type.googleapis.com/{package}.ClientSideWeightedRoundRobin"),
        value: ClientSideWeightedRoundRobin::default().encode_to_vec().into(),
    });
    let extension = TypedExtensionConfig { typed_config, ..TypedExtensionConfig::default() };
    LoadBalancingPolicy { policies: vec![Policy { typed_extension_config: Some(extension) }] }
}

#[tokio::test]
async fn ch9_7_malformed_load_reports_fail_no_call_and_are_counted_where_they_are_read() {
    let mut peer = Peer::start().await;
    let name = "ch9_7_malformed";
    let mesh = Mesh::start(name, &[&peer]).await;
    let is_read = |mesh: &Mesh| mesh.channel.malformed().load_reports;
    let call = mesh.get("/a");
    peer.request().await.fail(Code::NotFound, &[("endpoint-load-metrics-bin", "?")]);
    assert_eq!(soon(call).await.unwrap().unwrap_err().code(), Code::NotFound);
    assert_eq!(is_read(&mesh), 0, "round_robin reads none");
    mesh.server.set(cluster(name).edit(|it| it.load_balancing_policy = Some(weighted())));
    // Until the policy is that one.
    while is_read(&mesh) == 0 {
        let call = mesh.get("/b");
        peer.request().await.fail(Code::NotFound, &[("endpoint-load-metrics-bin", "?")]);
        assert_eq!(soon(call).await.unwrap().unwrap_err().code(), Code::NotFound);
    }
    for (value, expected) in [("/w==", 2), ("", 2), ("AAA=A", 3)] {
        let call = mesh.get("/c");
        peer.request().await.fail(Code::NotFound, &[("endpoint-load-metrics-bin", value)]);
        assert_eq!(soon(call).await.unwrap().unwrap_err().code(), Code::NotFound);
        assert_eq!(is_read(&mesh), expected, "{value:?}");
    }
}
