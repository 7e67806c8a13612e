//! Calls by initial resources, while no management server is reachable.

use prost::Message;

use super::*;
use crate::{
    client::InitialResources,
    config::{Node, Server},
    control_plane::AnyResource,
    pb::{envoy::service::discovery::v3::DiscoveryResponse, google::protobuf::Any},
};

/// The resources of a mesh with one cluster.
fn initial(cluster_name: &str, peer: &Peer) -> InitialResources {
    let resources: [AnyResource; 4] = [
        listener("shop").rds("routes").into(),
        route_config("routes").virtual_host(["*"], [route::prefix("").cluster(cluster_name)]).into(),
        cluster(cluster_name).into(),
        assignment(cluster_name, &[peer]).into(),
    ];
    let any =
        |resource: AnyResource| Any { type_url: resource.type_url().into(), value: resource.bytes().clone() };
    let resources = resources.into_iter().map(any).collect();
    let response = DiscoveryResponse { resources, ..DiscoveryResponse::default() };
    InitialResources::new().with_response(&response.encode_to_vec()).unwrap()
}

#[tokio::test]
async fn in1_calls_start_while_no_server_is_reachable() {
    let mut peer = Peer::start().await;
    let nobody = Server::new("127.0.0.1:1").insecure();
    let bootstrap = Bootstrap::builder().node(Node::new("n")).server(nobody).build().unwrap();
    let client = Client::builder(bootstrap).initial_resources(initial("in1_outage", &peer)).build().unwrap();
    let channel = client.channel("xds:///shop").build().unwrap();
    let mut calls = channel.clone();
    let request = Request::post("/a").body(Given::default()).unwrap();
    let call =
        tokio::spawn(finish(async move { calls.call(request).await.unwrap_or_else(|error| match error {}) }));
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    let status = client.status().await;
    assert!(status.resources.iter().all(|resource| resource.is_initial), "{status}");
    assert_eq!(status.resources.len(), 4);
    drop(channel);
}

#[tokio::test]
async fn in2_the_resources_of_a_server_replace_the_initial_ones_as_it_sends_them() {
    let (mut before, mut after) = (Peer::start().await, Peer::start().await);
    let server = TestControlPlane::start().await;
    let bootstrap = Bootstrap::from_json(&server.bootstrap_json()).unwrap();
    let client =
        Client::builder(bootstrap).initial_resources(initial("in2_before", &before)).build().unwrap();
    let channel = client.channel("xds:///shop").build().unwrap();
    let mesh = Mesh { server, client, channel };
    // The server has nothing so far.
    let first = mesh.get("/a");
    before.request().await.respond();
    soon(first).await.unwrap().unwrap();
    mesh.server.set(cluster("in2_after"));
    mesh.server.set(assignment("in2_after", &[&after]));
    mesh.server.set(listener("shop").rds("routes"));
    mesh.server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("in2_after")]));
    let mut listener = mesh.client.watch::<crate::resource::Listener>("shop");
    soon(listener.wait_for(|seen| matches!(seen.source(), Some(crate::ResourceSource::Server { .. }))))
        .await
        .unwrap();
    soon(mesh.client.watch::<crate::resource::ClusterLoadAssignment>("in2_after").ready()).await.unwrap();
    soon(mesh.channel.wait_until_applied(Duration::from_secs(20))).await.unwrap();
    let second = mesh.get("/b");
    after.request().await.respond();
    soon(second).await.unwrap().unwrap();
}
