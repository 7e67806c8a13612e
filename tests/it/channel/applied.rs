//! Waits until calls use what the client has accepted.

use tokio::net::TcpListener;
use xdskit::{control_plane::type_url, testing::resources::lb_policy};

use super::*;

const LIMIT: Duration = Duration::from_secs(20);

fn routes_to(name: &str) -> RouteConfigBuilder {
    route_config("routes").virtual_host(["*"], [route::prefix("").cluster(name)])
}

/// Endpoints of a cluster with the name of its only backend.
fn endpoints_at(backend: &Backend, name: &str) -> EndpointsBuilder {
    endpoints(name).locality("eu", "a", [backend.text().as_str()])
}

/// A mesh whose calls go to the backend `cart`, and another backend whose cluster no route names.
async fn mesh_and_other() -> (Mesh, [Backend; 2]) {
    let backends = Backend::start_all(["cart", "other"]).await;
    let mesh = Mesh::start(&[&backends[0]]).await;
    mesh.server.set(cluster("other"));
    mesh.server.set(endpoints_at(&backends[1], "other"));
    (mesh, backends)
}

impl Mesh {
    async fn applies(&self) {
        self.channel.wait_until_applied(LIMIT).await.unwrap();
    }

    /// The backend that answers a call.
    async fn answered_by(&self) -> String {
        backend_of(&self.call(ECHO, "hello").await.unwrap())
    }
}

#[tokio::test]
async fn each_of_100_route_changes_is_used_by_the_next_call_after_the_wait() {
    let (mesh, _backends) = mesh_and_other().await;
    mesh.ready().await;
    mesh.server.expect_ack(type_url::ROUTE_CONFIGURATION).await.unwrap();
    for name in ["other", "cart"].into_iter().cycle().take(100) {
        mesh.server.set(routes_to(name));
        mesh.server.expect_ack(type_url::ROUTE_CONFIGURATION).await.unwrap();
        mesh.applies().await;
        assert_eq!(mesh.answered_by().await, name);
    }
}

#[tokio::test]
async fn each_of_20_endpoint_changes_is_used_by_the_next_call_after_the_wait() {
    let (mesh, [one, two]) = mesh_and_other().await;
    mesh.ready().await;
    mesh.server.expect_ack(type_url::ENDPOINTS).await.unwrap();
    for (backend, name) in [(&two, "other"), (&one, "cart")].into_iter().cycle().take(20) {
        mesh.server.set(endpoints_at(backend, "cart"));
        mesh.server.expect_ack(type_url::ENDPOINTS).await.unwrap();
        mesh.applies().await;
        assert_eq!(mesh.answered_by().await, name);
    }
}

#[tokio::test]
async fn routes_are_not_applied_before_the_endpoints_of_their_clusters_are_known() {
    let (mesh, _backends) = mesh_and_other().await;
    mesh.ready().await;
    mesh.server.expect_ack(type_url::ROUTE_CONFIGURATION).await.unwrap();
    mesh.server.hold_type(type_url::ENDPOINTS);
    mesh.server.set(routes_to("other"));
    mesh.server.expect_ack(type_url::ROUTE_CONFIGURATION).await.unwrap();
    mesh.server.expect_names(type_url::ENDPOINTS, &["cart", "other"]).await.unwrap();
    let error = mesh.channel.wait_until_applied(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error.reason(), r#"newer routes "routes" wait for the clusters other"#);
    assert_eq!(
        error.to_string(),
        "the accepted configuration of xds:///shop is not in use after 50ms: newer routes \"routes\" wait for the clusters other"
    );
    assert_eq!(mesh.answered_by().await, "cart");
    mesh.server.release_type(type_url::ENDPOINTS);
    mesh.applies().await;
    assert_eq!(mesh.answered_by().await, "other");
}

#[tokio::test]
async fn a_policy_of_another_type_is_not_applied_before_it_has_connected() {
    let (mesh, [_one, two]) = mesh_and_other().await;
    mesh.ready().await;
    // It accepts connections, and does not answer on them.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    mesh.server.set(endpoints("silent").locality("eu", "a", [&*address]));
    // With endpoints of another name, so that both are used at the same time.
    mesh.server.set(cluster("cart").eds_service("silent").lb_policy(lb_policy::least_request(2)));
    let (_socket, _) = silent.accept().await.unwrap();
    let error = mesh.channel.wait_until_applied(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error.reason(), "a load balancing policy has not connected yet");
    assert_eq!(mesh.answered_by().await, "cart", "the endpoints of the policy before serve");
    mesh.server.set(endpoints_at(&two, "silent"));
    mesh.applied(type_url::ENDPOINTS).await;
    assert_eq!(mesh.answered_by().await, "other");
}

#[tokio::test]
async fn a_deleted_cluster_is_applied_after_its_grace() {
    let (mesh, _backends) = mesh_and_other().await;
    let mesh = Mesh::with(mesh.server, |client| client.deletion_grace(Duration::from_millis(200)));
    mesh.ready().await;
    mesh.server.remove(type_url::CLUSTER, "cart");
    mesh.applied(type_url::CLUSTER).await;
    assert!(mesh.call(ECHO, "hello").await.unwrap_err().message().contains("cart"));
}

#[tokio::test]
async fn an_idle_channel_resolves_its_target_for_the_wait() {
    let (mesh, _backends) = mesh_and_other().await;
    assert_eq!(mesh.channel.state(), ChannelState::Idle);
    mesh.applies().await;
    assert_ne!(mesh.channel.state(), ChannelState::Idle);
    assert_eq!(mesh.answered_by().await, "cart");
}

#[tokio::test]
async fn after_a_shutdown_of_channel_or_client_the_wait_returns() {
    let (mesh, _backends) = mesh_and_other().await;
    mesh.ready().await;
    mesh.client.shutdown().await;
    mesh.applies().await;
    assert_eq!(mesh.answered_by().await, "cart", "the last state is in use");
    mesh.channel.shutdown(Duration::ZERO).await;
    mesh.applies().await;
}
