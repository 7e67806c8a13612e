//! Sources by type, and streams of single types: rules B0.4, B3.1, B3.2, B3.5, X11.

use std::time::Duration;

use super::{
    super::*,
    rig::{Cds, Eds, Full, Rig, any, delta_response, response, stream_to},
};
use crate::{
    config::{ApiType, AuthorityBuilder, PathSource, Server, ServerBuilder, TransportApiVersion},
    pb::envoy::service::discovery::v3::DiscoveryResponse,
    protocol::DisconnectKind,
    resource::{Endpoint, Resource, VirtualHost},
};

const NONE: Vec<String> = Vec::new();

fn server(uri: &str, api_type: ApiType) -> ServerBuilder {
    Server::new(uri).insecure().api_type(api_type)
}

fn rig(bootstrap: crate::config::BootstrapBuilder) -> Rig {
    Rig::of(bootstrap.node(crate::config::Node::new("n")).build().unwrap(), Settings::default())
}

fn encoded(response: &DiscoveryResponse) -> Vec<u8> {
    prost::Message::encode_to_vec(response)
}

#[test]
fn b3_1_each_type_has_a_stream_of_its_own() {
    let mut rig = rig(Bootstrap::builder().server(server("a:1", ApiType::Grpc)));
    assert_eq!(
        rig.watch::<Cds>("c").1,
        ["connect 0.1 /envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters"]
    );
    assert_eq!(
        rig.watch::<Eds>("e").1,
        ["connect 1.1 /envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints"]
    );
    assert_eq!(rig.connect_to(stream_to(1, 1)), ["read", "send ClusterLoadAssignment [e] / node"]);
    assert_eq!(rig.connect_to(stream_to(0, 1)), ["read", "send Cluster [c] / node"]);
    rig.sent_to(stream_to(0, 1));
    rig.sent_to(stream_to(1, 1));
    let clusters = encoded(&response::<Cds>("1", vec![any::<Cds>("c", "x")]));
    let outputs = rig.receive_from(stream_to(0, 1), clusters);
    assert_eq!(outputs, ["#1 present 1 x", "read", "send Cluster [c] 1/n1"]);
    let endpoints = encoded(&response::<Eds>("7", vec![any::<Eds>("e", "y")]));
    let outputs = rig.receive_from(stream_to(1, 1), endpoints.clone());
    assert_eq!(outputs, ["#2 present 7 y", "read", "send ClusterLoadAssignment [e] 7/n7"]);
    assert_eq!(rig.receive_from(stream_to(0, 1), endpoints), ["read"], "B0.7: not of this stream");
}

#[test]
fn b3_6_the_end_of_one_types_stream_leaves_the_others_alone() {
    let mut rig = rig(Bootstrap::builder().server(server("a:1", ApiType::Grpc)));
    rig.watch::<Cds>("c");
    rig.watch::<Eds>("e");
    rig.connect_to(stream_to(0, 1));
    rig.connect_to(stream_to(1, 1));
    let outputs = rig.disconnect_from(stream_to(1, 1), DisconnectKind::Closed);
    assert_eq!(outputs, ["#2 absent UNAVAILABLE"]);
    rig.sent_to(stream_to(0, 1));
    let clusters = encoded(&response::<Cds>("1", vec![any::<Cds>("c", "x")]));
    assert_eq!(rig.receive_from(stream_to(0, 1), clusters)[0], "#1 present 1 x");
}

#[test]
fn b3_6_streams_that_could_not_connect_try_at_once_when_another_of_the_server_is_answered() {
    let mut rig = rig(Bootstrap::builder().server(server("a:1", ApiType::Grpc)));
    rig.watch::<Cds>("c");
    rig.watch::<Eds>("e");
    rig.watch::<Full>("l");
    rig.disconnect_from(stream_to(1, 1), DisconnectKind::Unreachable);
    rig.connect_to(stream_to(2, 1));
    rig.disconnect_from(stream_to(2, 1), DisconnectKind::Closed);
    rig.connect_to(stream_to(0, 1));
    rig.sent_to(stream_to(0, 1));
    assert_eq!(rig.pass(Duration::ZERO), NONE, "a connection is not an answer");
    let clusters = encoded(&response::<Cds>("1", vec![any::<Cds>("c", "x")]));
    let outputs = rig.receive_from(stream_to(0, 1), clusters);
    // The one that was let in and sent away waits for its time: the server can be reached, but may not accept it yet.
    let connects: Vec<_> = outputs.iter().filter(|outputs| outputs.starts_with("connect")).collect();
    assert_eq!(connects, ["connect 1.2 /envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints"]);
    rig.disconnect_from(stream_to(1, 2), DisconnectKind::Unreachable);
    assert_eq!(rig.pass(Duration::from_millis(700)), NONE, "one answer hastens it once");
}

#[test]
fn b3_1_the_incremental_variant_has_its_own_methods() {
    let mut rig = rig(Bootstrap::builder().server(server("a:1", ApiType::DeltaGrpc)));
    assert_eq!(
        rig.watch::<Cds>("c").1,
        ["connect 0.1 /envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters"]
    );
    assert_eq!(rig.connect(1), ["read", "send Cluster +c node"]);
    rig.sent(1);
    let outputs = rig.receive_raw(1, delta_response::<Cds>("1", &[("c", "v", Some("x"))], &[]));
    assert_eq!(outputs, ["#1 present v x", "read", "send Cluster 1"]);
}

#[test]
fn types_may_come_from_different_servers() {
    let bootstrap = Bootstrap::builder()
        .server(server("a:1", ApiType::AggregatedGrpc))
        .source_for::<Eds>(server("b:1", ApiType::Grpc));
    let mut rig = rig(bootstrap);
    assert_eq!(rig.watch::<Cds>("c").1, ["connect 0.1"]);
    assert_eq!(
        rig.watch::<Eds>("e").1,
        ["connect 1.1 /envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints"]
    );
    assert_eq!(rig.watch::<Full>("f").1, NONE, "what is aggregated still shares one stream");
    assert_eq!(rig.connect_to(stream_to(0, 1)), ["read", "send Cluster [c] / node"]);
    assert_eq!(rig.sent_to(stream_to(0, 1)), ["send Full [f] /"]);
}

#[test]
fn a71_each_type_falls_back_by_itself_where_each_has_its_own_stream() {
    let bootstrap = Bootstrap::builder()
        .server(server("a:1", ApiType::Grpc))
        .server(server("b:1", ApiType::AggregatedGrpc));
    let mut rig = rig(bootstrap);
    rig.watch::<Cds>("c");
    rig.watch::<Eds>("e");
    rig.connect_to(stream_to(0, 1));
    rig.sent_to(stream_to(0, 1));
    let clusters = encoded(&response::<Cds>("1", vec![any::<Cds>("c", "x")]));
    assert_eq!(rig.receive_from(stream_to(0, 1), clusters)[0], "#1 present 1 x");
    assert_eq!(rig.disconnect_from(stream_to(1, 1), DisconnectKind::Unreachable), ["connect 2.1"]);
    assert_eq!(rig.connect_to(stream_to(2, 1)), ["read", "send ClusterLoadAssignment [e] / node"]);
}

#[test]
fn x11_an_authority_may_have_sources_of_any_kind_and_others_a_default() {
    let bootstrap = Bootstrap::builder()
        .server(server("a:1", ApiType::AggregatedGrpc))
        .authority("files", AuthorityBuilder::default().source_for::<Cds>(PathSource::new("c.json")))
        .default_authority(AuthorityBuilder::default().server(server("d:1", ApiType::AggregatedDeltaGrpc)));
    let mut rig = rig(bootstrap);
    assert_eq!(rig.watch::<Cds>("c").1, ["connect 0.1"]);
    assert_eq!(rig.watch::<Cds>("xdstp://files/envoy.config.cluster.v3.Cluster/c").1, ["open 1.1 c.json"]);
    assert_eq!(rig.watch::<Cds>("xdstp://other/envoy.config.cluster.v3.Cluster/c").1, ["connect 2.1"]);
    let nowhere = "xdstp://files/envoy.config.endpoint.v3.ClusterLoadAssignment/e";
    assert_eq!(rig.watch::<Eds>(nowhere).1, ["#4 absent FAILED_PRECONDITION"]);
}

#[test]
fn b3_5_what_a_variant_does_not_have_is_refused() {
    let refused = |api_type, version| {
        let polling = crate::config::Polling::default();
        let server = server("a:1", api_type).polling(polling).transport_api_version(version);
        let mut rig = rig(Bootstrap::builder().server(server));
        rig.watch_raw(ResourceType::of::<VirtualHost>(), Selection::One("r/h".into()))
    };
    for api_type in [ApiType::Grpc, ApiType::Rest] {
        assert_eq!(refused(api_type, TransportApiVersion::V3), ["#1 refused UNIMPLEMENTED"]);
    }
    assert_eq!(
        refused(ApiType::DeltaGrpc, TransportApiVersion::V2),
        ["connect 0.1 /envoy.api.v2.VirtualHostDiscoveryService/DeltaVirtualHosts"]
    );
}

#[test]
fn b3_5_single_endpoints_and_virtual_hosts_are_refused_on_aggregated_streams_of_the_state_of_the_world() {
    let endpoints = "xdstp://a/envoy.config.endpoint.v3.LbEndpoint/x/*";
    let host = Selection::One("r/h".into());
    let refused = |api_type, ty: ResourceType, names: &Selection| {
        let authority = AuthorityBuilder::default();
        let mut rig = rig(Bootstrap::builder().server(server("a:1", api_type)).authority("a", authority));
        rig.watch_raw(ty, names.clone())
    };
    let (hosts, members) = (ResourceType::of::<VirtualHost>(), ResourceType::of::<Endpoint>());
    let glob = Selection::Collection(endpoints.into());
    for (ty, names) in [(hosts, &host), (hosts, &Selection::All), (members, &glob)] {
        assert_eq!(refused(ApiType::AggregatedGrpc, ty, names), ["#1 refused UNIMPLEMENTED"]);
        assert_eq!(refused(ApiType::AggregatedDeltaGrpc, ty, names), ["connect 0.1"]);
    }
}

#[test]
fn v2_servers_get_the_type_urls_of_v2_and_send_the_same_resources() {
    let v2 = Server::new("a:1").insecure().transport_api_version(TransportApiVersion::V2);
    let mut rig = rig(Bootstrap::builder().server(v2));
    rig.watch::<Cds>("c");
    rig.watch::<Eds>("e");
    rig.engine.poll_timeout();
    let message = rig.connect_and_take(1);
    assert_eq!(message.type_url, "type.googleapis.com/envoy.api.v2.Cluster");
    rig.sent(1);
    let mut clusters = response::<Cds>("1", vec![any::<Cds>("c", "x")]);
    clusters.type_url = "type.googleapis.com/envoy.api.v2.Cluster".into();
    clusters.resources[0].type_url = clusters.type_url.clone();
    let outputs = rig.receive(1, &clusters);
    assert_eq!(outputs[0], "#1 present 1 x");
    rig.sent(1);
    let mut endpoints = response::<Eds>("2", vec![super::rig::wrapped::<Eds>("e", Some("y"))]);
    endpoints.type_url = "type.googleapis.com/envoy.api.v2.ClusterLoadAssignment".into();
    let mut wrapper: crate::pb::envoy::service::discovery::v3::Resource =
        prost::Message::decode(&*endpoints.resources[0].value).unwrap();
    wrapper.resource.as_mut().unwrap().type_url = endpoints.type_url.clone();
    endpoints.resources[0].type_url = "type.googleapis.com/envoy.api.v2.Resource".into();
    endpoints.resources[0].value = prost::Message::encode_to_vec(&wrapper).into();
    assert_eq!(rig.receive(1, &endpoints)[0], "#2 present 2 y");
    // As older parts of a server do that were not updated.
    let clusters = response::<Cds>("3", vec![any::<Cds>("c", "z")]);
    assert_eq!(rig.receive(1, &clusters)[0], "#1 present 3 z");
    assert_eq!(rig.pass(Duration::ZERO), NONE);
}

#[test]
fn the_status_distinguishes_the_streams_of_types() {
    let mut rig = rig(Bootstrap::builder().server(server("a:1", ApiType::Grpc)));
    rig.watch::<Cds>("c");
    rig.watch::<Eds>("e");
    let types: Vec<_> = rig.engine.status().servers.into_iter().map(|server| server.type_url).collect();
    assert_eq!(types, [Some(Cds::TYPE_URL), Some(Eds::TYPE_URL)]);
}
