//! Waits until calls use what the client has accepted.

use xdskit::{
    control_plane::type_url,
    pb::envoy::extensions::load_balancing_policies::{
        least_request::v3::LeastRequest, round_robin::v3::RoundRobin,
    },
};

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
async fn a_policy_is_not_applied_before_it_has_connected() {
    let (mesh, [_one, two]) = mesh_and_other().await;
    mesh.server.set(cluster_with([policy("round_robin.v3.RoundRobin", &RoundRobin::default())]));
    mesh.ready().await;
    mesh.server.expect_ack(type_url::CLUSTER).await.unwrap();
    mesh.server.expect_ack(type_url::ENDPOINTS).await.unwrap();
    mesh.server.update(|tx| {
        tx.set(cluster_with([policy("least_request.v3.LeastRequest", &LeastRequest::default())]));
        tx.set(endpoints_at(&two, "cart"));
    });
    mesh.server.expect_ack(type_url::CLUSTER).await.unwrap();
    mesh.server.expect_ack(type_url::ENDPOINTS).await.unwrap();
    mesh.applies().await;
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
