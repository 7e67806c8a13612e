//! A mesh of one service, and the text form of its resolutions.

use crate::transport::Transport;
use std::{sync::Arc, time::Duration};

use xdskit::{
    Client, Resolution, Snapshot, WatchError,
    resolve::ClusterView,
    testing::{
        TestControlPlane,
        resources::{RouteConfigBuilder, cluster, endpoints, listener, route, route_config},
    },
};

/// A server of one service: the listener `shop`, with routes to the cluster `cart`, which has one endpoint.
pub(super) async fn shop() -> TestControlPlane {
    let server = TestControlPlane::start().await;
    server.update(|tx| {
        tx.set(listener("shop"));
        tx.set(shop_routes(&["cart"]));
        tx.set(cluster("cart"));
        tx.set(endpoints("cart").locality("eu", "a", ["10.0.0.1:80"]));
    });
    server
}

/// Routes of `shop` with weighted clusters.
pub(super) fn shop_routes(clusters: &[&str]) -> RouteConfigBuilder {
    let split = clusters.iter().map(|name| (*name, 1));
    route_config("shop").virtual_host(["*"], [route::prefix("/").weighted(split)])
}

pub(super) fn client_of(transport: Transport, server: &TestControlPlane) -> Client {
    transport.builder_of(server).build().unwrap()
}

/// A client with a short resource timeout.
pub(super) fn impatient_client_of(transport: Transport, server: &TestControlPlane) -> Client {
    transport.builder_of(server).resource_timeout(Duration::from_millis(50)).build().unwrap()
}

/// Waits for a tree with this text, skipping others.
pub(super) async fn see(resolution: &mut Resolution, expected: &str) -> Arc<Snapshot> {
    let is_it = |seen: &Result<Arc<Snapshot>, WatchError>| text(seen) == expected;
    match tokio::time::timeout(Duration::from_secs(20), resolution.wait_for(is_it)).await {
        Ok(seen) => seen.unwrap().unwrap(),
        Err(_) => {
            panic!("waited for {expected:?}, and there is {:?}", resolution.latest().as_ref().map(text))
        }
    }
}

/// The clusters by name, each with its endpoints in the order of use, or the code of its error.
pub(super) fn text(seen: &Result<Arc<Snapshot>, WatchError>) -> String {
    match seen {
        Ok(snapshot) => snapshot.clusters().map(cluster_text).collect::<Vec<_>>().join(", "),
        Err(why) => why.code().to_string(),
    }
}

pub(super) fn cluster_text(cluster: ClusterView<'_>) -> String {
    let name = cluster.name();
    match cluster.unusable_reason() {
        Some(why) => format!("{name}: {}", why.code()),
        None => {
            let endpoints =
                cluster.usable_endpoints_of_all_priorities().map(|endpoint| endpoint.address().to_string());
            format!("{name}: {}", endpoints.collect::<Vec<_>>().join(" "))
        }
    }
}
