//! What clients have of the control plane: its status, its subsets, authorities with servers of their own, and fallback.

use prost::Message;
use xdskit::{
    client::ResourceState,
    config::{AuthorityBuilder, Node, Server, ServerBuilder},
    control_plane::type_url,
    pb::envoy::config::endpoint::v3 as pb,
};

use super::*;

fn server(of: &TestControlPlane) -> ServerBuilder {
    Server::new(of.uri()).insecure()
}

/// Serves the mesh of the tests with these backends.
fn serve(server: &TestControlPlane, backends: &[&Backend]) {
    server.set(listener("shop").rds("routes"));
    server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("cart")]));
    server.set(cluster("cart"));
    server.set(cart(backends));
}

/// A channel whose client has a primary server and a fallback.
fn with_fallback(primary: &TestControlPlane, fallback: &TestControlPlane) -> Channel {
    let bootstrap =
        Bootstrap::builder().node(Node::new("me")).server(server(primary)).server(server(fallback));
    Channel::builder("xds:///shop").bootstrap(bootstrap.build().unwrap()).build().unwrap()
}

/// Calls until a backend answers.
async fn reaches(channel: &Channel, backend: &str) {
    soon(async {
        while !call(channel, ECHO, Request::new("hello".into()))
            .await
            .is_ok_and(|it| backend_of(&it) == backend)
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn ch12_subsetting_and_csds_show_the_4_of_8_backends_that_get_the_calls() {
    let all = Backend::start_all(["a", "b", "c", "d", "e", "f", "g", "h"]).await;
    let subset: Vec<_> = all.iter().take(4).collect();
    let mesh = Mesh::start(&subset).await;
    mesh.reach(&["a", "b", "c", "d"]).await;
    assert!(mesh.shares(100).await.into_values().eq([25; 4]));
    assert_eq!(all[4..].iter().map(Backend::connections).sum::<usize>(), 0);

    let status = soon(mesh.client.status()).await;
    let types: Vec<_> = status.resources.iter().map(|it| it.type_url).collect();
    let expected =
        [type_url::CLUSTER, type_url::ENDPOINTS, type_url::LISTENER, type_url::ROUTE_CONFIGURATION];
    assert_eq!(BTreeSet::from_iter(types), BTreeSet::from(expected));
    assert!(status.resources.iter().all(|it| it.state == ResourceState::Acked), "{status:?}");
    let shown = status.resources.iter().find(|it| it.type_url == type_url::ENDPOINTS).unwrap();
    let shown = pb::ClusterLoadAssignment::decode(shown.bytes.clone().unwrap()).unwrap();
    assert_eq!(shown, cart(&subset).into_message());
}

#[tokio::test]
async fn ch12_federation_sends_the_calls_of_each_authority_to_the_mesh_of_its_servers() {
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let (own, other) = (TestControlPlane::start().await, TestControlPlane::start().await);
    serve(&own, &[&one]);
    let name = |of: &str, name: &str| format!("xdstp://other/envoy.config.{of}/{name}");
    let routes = name("route.v3.RouteConfiguration", "routes");
    let (cluster_name, endpoints_name) =
        (name("cluster.v3.Cluster", "cart"), name("endpoint.v3.ClusterLoadAssignment", "cart"));
    other.set(listener(name("listener.v3.Listener", "shop")).rds(&*routes));
    other.set(route_config(&*routes).virtual_host(["*"], [route::prefix("").cluster(&*cluster_name)]));
    other.set(cluster(&*cluster_name).eds_service(&*endpoints_name));
    other.set(locality(endpoints(&*endpoints_name), "a", 0, &[&two]));
    let bootstrap = Bootstrap::builder()
        .node(Node::new("me"))
        .server(server(&own))
        .authority("other", AuthorityBuilder::default().server(server(&other)))
        .build()
        .unwrap();
    let client = Client::builder(bootstrap).build().unwrap();
    for (target, backend) in [("xds:///shop", "one"), ("xds://other/shop", "two")] {
        reaches(&client.channel(target).build().unwrap(), backend).await;
    }
}

#[tokio::test]
async fn ch12_fallback_at_startup_serves_calls_until_the_primary_is_there() {
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let (primary, fallback) = (TestControlPlane::start().await, TestControlPlane::start().await);
    serve(&primary, &[&one]);
    serve(&fallback, &[&two]);
    primary.stop().await;
    let channel = with_fallback(&primary, &fallback);
    reaches(&channel, "two").await;
    primary.restart().await;
    reaches(&channel, "one").await;
}

#[tokio::test]
async fn ch12_fallback_mid_startup_serves_what_the_primary_did_not_send() {
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let (primary, fallback) = (TestControlPlane::start().await, TestControlPlane::start().await);
    serve(&primary, &[&one]);
    serve(&fallback, &[&two]);
    // The primary is lost between the clusters and their endpoints.
    primary.hold_type(type_url::ENDPOINTS);
    let channel = with_fallback(&primary, &fallback);
    channel.connect();
    soon(primary.expect_names(type_url::ENDPOINTS, &["cart"])).await.unwrap();
    primary.stop().await;
    reaches(&channel, "two").await;
    primary.release_type(type_url::ENDPOINTS);
    primary.restart().await;
    reaches(&channel, "one").await;
}

#[tokio::test]
async fn ch12_fallback_mid_update_keeps_the_calls_of_the_old_routes_until_the_new_ones_are_complete() {
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let (primary, fallback) = (TestControlPlane::start().await, TestControlPlane::start().await);
    serve(&primary, &[&one]);
    serve(&fallback, &[&two]);
    let channel = with_fallback(&primary, &fallback);
    reaches(&channel, "one").await;
    assert_eq!(fallback.requests().len(), 0, "everything is there");
    // The primary is lost between new routes and the cluster that they lead to.
    primary.hold_type(type_url::CLUSTER);
    primary.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("pay")]));
    soon(primary.expect_names(type_url::CLUSTER, &["cart", "pay"])).await.unwrap();
    let response = call(&channel, ECHO, Request::new("hello".into())).await.unwrap();
    assert_eq!(backend_of(&response), "one");
    primary.stop().await;
    reaches(&channel, "two").await;
}
