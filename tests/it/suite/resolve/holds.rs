//! Clusters with subscriptions of calls (A74-6, A74-7).

use crate::transport::Transport;
use futures_util::FutureExt;
use macro_rules_attribute::apply;
use xdskit::control_plane::type_url;

use super::*;

#[apply(servers)]
async fn a74_6_a_cluster_that_is_held_is_in_the_snapshots(transport: Transport) {
    let server = shop().await;
    server.update(|tx| {
        tx.set(cluster("extra"));
        tx.set(endpoints("extra").locality("eu", "a", ["10.0.0.7:80"]));
    });
    let client = client_of(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    see(&mut resolution, "cart: 10.0.0.1:80").await;
    let first = resolution.subscribe_cluster("extra");
    let second = resolution.subscribe_cluster("extra");
    see(&mut resolution, "cart: 10.0.0.1:80, extra: 10.0.0.7:80").await;
    drop(first);
    server.set(endpoints("extra").locality("eu", "a", ["10.0.0.8:80"]));
    see(&mut resolution, "cart: 10.0.0.1:80, extra: 10.0.0.8:80").await;
    drop(second);
    see(&mut resolution, "cart: 10.0.0.1:80").await;
    server.expect_names(type_url::CLUSTER, &["cart"]).await.unwrap();
    server.expect_names(type_url::ENDPOINTS, &["cart"]).await.unwrap();
}

/// F7: a missing cluster with a subscription alone does not delay snapshots.
#[apply(servers)]
async fn a_cluster_that_is_held_and_not_known_is_not_waited_for(transport: Transport) {
    let server = shop().await;
    let client = client_of(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    let _hold = resolution.subscribe_cluster("unknown");
    // The incremental variant reports absence.
    let tree = if transport.api_type().is_delta() {
        "cart: 10.0.0.1:80, unknown: NOT_FOUND"
    } else {
        "cart: 10.0.0.1:80"
    };
    see(&mut resolution, tree).await;
    server.expect_names(type_url::CLUSTER, &["cart", "unknown"]).await.unwrap();
    server.update(|tx| {
        tx.set(cluster("unknown"));
        tx.set(endpoints("unknown").locality("eu", "a", ["10.0.0.7:80"]));
    });
    see(&mut resolution, "cart: 10.0.0.1:80, unknown: 10.0.0.7:80").await;
}

#[apply(servers)]
async fn a74_7_a_call_keeps_its_cluster_when_the_routes_change(transport: Transport) {
    let server = shop().await;
    let client = client_of(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    see(&mut resolution, "cart: 10.0.0.1:80").await;
    let call = resolution.subscribe_cluster("cart");
    server.update(|tx| {
        tx.set(shop_routes(&["next"]));
        tx.set(cluster("next"));
        tx.set(endpoints("next").locality("eu", "a", ["10.0.0.2:80"]));
    });
    see(&mut resolution, "cart: 10.0.0.1:80, next: 10.0.0.2:80").await;
    server.set(endpoints("cart").locality("eu", "a", ["10.0.0.3:80"]));
    see(&mut resolution, "cart: 10.0.0.3:80, next: 10.0.0.2:80").await;
    drop(call);
    see(&mut resolution, "next: 10.0.0.2:80").await;
    server.expect_names(type_url::CLUSTER, &["next"]).await.unwrap();
    assert!(resolution.next().now_or_never().is_none());
}
