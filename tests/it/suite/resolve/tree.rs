//! The tree while the mesh changes.

use crate::transport::Transport;
use futures_util::FutureExt;
use macro_rules_attribute::apply;
use xdskit::{control_plane::type_url, error::Code};

use super::*;

#[apply(servers)]
async fn new_routes_serve_when_their_clusters_are_there(transport: Transport) {
    // A held response would be a poll, and the next poll has the new names.
    if transport.is_polled() {
        return;
    }
    let server = shop().await;
    let client = client_of(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    see(&mut resolution, "cart: 10.0.0.1:80").await;

    server.hold_type(type_url::ENDPOINTS);
    server.update(|tx| {
        tx.set(cluster("next"));
        tx.set(endpoints("next").locality("eu", "a", ["10.0.0.2:80"]));
        tx.set(shop_routes(&["next"]));
    });
    // The client has received the cluster and requests its endpoints; the old ones are still subscribed to.
    server.expect_names(type_url::ENDPOINTS, &["cart", "next"]).await.unwrap();
    server.expect_names(type_url::CLUSTER, &["cart", "next"]).await.unwrap();
    assert!(resolution.next().now_or_never().is_none(), "the old routes serve");
    assert_eq!(text(&resolution.latest().unwrap()), "cart: 10.0.0.1:80");

    server.release_type(type_url::ENDPOINTS);
    let snapshot = soon(resolution.next()).await.unwrap();
    assert_eq!(text(&snapshot), "next: 10.0.0.2:80", "all at once");
    // Only now is the old cluster unsubscribed from.
    server.expect_names(type_url::CLUSTER, &["next"]).await.unwrap();
    server.expect_names(type_url::ENDPOINTS, &["next"]).await.unwrap();
}

/// The server replaces a cluster: a client receives its removal before the routes to the other one.
#[apply(servers)]
async fn a_cluster_that_is_replaced_leaves_no_gap(transport: Transport) {
    let server = shop().await;
    let client = transport.builder_of(&server).deletion_grace(Duration::from_secs(60)).build().unwrap();
    let mut resolution = client.resolve("xds:///shop");
    see(&mut resolution, "cart: 10.0.0.1:80").await;
    server.hold_type(type_url::ROUTE_CONFIGURATION);
    server.update(|tx| {
        tx.remove(type_url::CLUSTER, "cart");
        tx.remove(type_url::ENDPOINTS, "cart");
        tx.set(cluster("next"));
        tx.set(endpoints("next").locality("eu", "a", ["10.0.0.2:80"]));
        tx.set(shop_routes(&["next"]));
    });
    let seen = soon(resolution.next()).await.unwrap().unwrap();
    assert_eq!(text(&Ok(seen.clone())), "cart: 10.0.0.1:80", "it is used for the time of grace");
    assert!(seen.warnings().any(WatchError::is_not_found), "{seen:?}");
    server.release_type(type_url::ROUTE_CONFIGURATION);
    let is_next = |seen: &_| match &*text(seen) {
        "cart: 10.0.0.1:80" => false,
        "next: 10.0.0.2:80" => true,
        other => panic!("a gap: {other}"),
    };
    soon(resolution.wait_for(is_next)).await.unwrap().unwrap();
}

#[apply(servers)]
async fn resolutions_end_with_the_client(transport: Transport) {
    let server = shop().await;
    let client = client_of(transport, &server);
    let mut shop = client.resolve("xds:///shop");
    let snapshot = soon(shop.ready()).await.unwrap();
    server.hold();
    let mut missing = client.resolve("xds:///missing");
    let hold = shop.subscribe_cluster("cart");
    soon(client.shutdown()).await;
    while soon(shop.next()).await.is_some() {}
    assert!(soon(missing.next()).await.is_none());
    assert_eq!(text(&shop.latest().unwrap()), text(&Ok(snapshot)), "what was good stays");
    let error = soon(missing.ready()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Listener \"xds:///missing\": the client was shut down [node id: test-node]"
    );
    assert_eq!(error.code(), Code::Cancelled);
    assert!(soon(client.resolve("xds:///late").next()).await.is_none());
    drop((shop.subscribe_cluster("web"), hold));
    shop.request_reresolution();
    server.expect_clients(0).await.unwrap();
}

#[apply(servers)]
async fn ten_thousand_resolutions_that_end_leave_nothing(transport: Transport) {
    let server = shop().await;
    let (client, driver) = transport.builder_of(&server).build_with_driver().unwrap();
    let driver = tokio::spawn(driver);
    let mut kept = client.resolve("xds:///shop");
    see(&mut kept, "cart: 10.0.0.1:80").await;
    for i in 0..10_000 {
        let other = client.resolve(format!("xds:///shop-{i}"));
        let hold = other.subscribe_cluster(format!("cart-{i}"));
        if i % 10 == 0 {
            tokio::task::yield_now().await;
        }
        drop((other, hold));
    }
    server.expect_names(type_url::LISTENER, &["shop"]).await.unwrap();
    server.expect_names(type_url::CLUSTER, &["cart"]).await.unwrap();
    server.set(endpoints("cart").locality("eu", "a", ["10.0.0.2:80"]));
    see(&mut kept, "cart: 10.0.0.2:80").await;
    drop((kept, client));
    soon(driver).await.unwrap();
    server.expect_clients(0).await.unwrap();
}
