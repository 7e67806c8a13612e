//! The tree while the mesh changes.

use futures_util::{FutureExt, StreamExt};
use xdskit::{RouteQuery, control_plane::type_url, error::Code, resource::ClusterKind};

use super::*;

#[tokio::test]
async fn a_resolution_shows_the_tree_and_its_changes() {
    let server = shop().await;
    let client = client_of(&server);
    let mut resolution = client.resolve("xds:///shop");
    assert!(resolution.latest().is_none());
    let snapshot = soon(resolution.next()).await.unwrap().unwrap();
    assert_eq!(text(&Ok(snapshot.clone())), "cart: 10.0.0.1:80");
    let names = (&*snapshot.listener().name, &*snapshot.route_config().name, &*snapshot.virtual_host().name);
    assert_eq!(names, ("shop", "shop", "*"));
    let route = snapshot.route(&RouteQuery::new("/add")).unwrap();
    assert_eq!(route.pick(0).unwrap().name(), "cart");

    server.set(endpoints("cart").locality("eu", "a", ["10.0.0.1:80", "10.0.0.2:80"]).draining("10.0.0.1:80"));
    let newer = soon(StreamExt::next(&mut resolution)).await.unwrap().unwrap();
    assert_eq!(text(&Ok(newer.clone())), "cart: 10.0.0.2:80");
    assert_eq!(newer.cluster("cart").unwrap().endpoints().count(), 2);
    assert!(Arc::ptr_eq(snapshot.listener(), newer.listener()), "what is the same is shared");
    assert_eq!(text(&Ok(snapshot)), "cart: 10.0.0.1:80", "a snapshot does not change");
    assert!(resolution.next().now_or_never().is_none(), "nothing else has happened");
}

#[tokio::test]
async fn new_routes_serve_when_their_clusters_are_there() {
    // What is held would be a poll, and the next one tells what is wanted then.
    if is_polled() {
        return;
    }
    let server = shop().await;
    let client = client_of(&server);
    let mut resolution = client.resolve("xds:///shop");
    see(&mut resolution, "cart: 10.0.0.1:80").await;

    server.hold_type(type_url::ENDPOINTS);
    server.update(|tx| {
        tx.set(cluster("next"));
        tx.set(endpoints("next").locality("eu", "a", ["10.0.0.2:80"]));
        tx.set(shop_routes(&["next"]));
    });
    // The client has got the cluster and asks for its endpoints; the old ones are wanted, too.
    server.expect_names(type_url::ENDPOINTS, &["cart", "next"]).await.unwrap();
    server.expect_names(type_url::CLUSTER, &["cart", "next"]).await.unwrap();
    assert!(resolution.next().now_or_never().is_none(), "the old routes serve");
    assert_eq!(text(&resolution.latest().unwrap()), "cart: 10.0.0.1:80");

    server.release_type(type_url::ENDPOINTS);
    let snapshot = soon(resolution.next()).await.unwrap();
    assert_eq!(text(&snapshot), "next: 10.0.0.2:80", "all at once");
    // Only now is the old cluster let go.
    server.expect_names(type_url::CLUSTER, &["next"]).await.unwrap();
    server.expect_names(type_url::ENDPOINTS, &["next"]).await.unwrap();
}

/// The server replaces a cluster: a client is told of its end before it is told of the routes that lead elsewhere.
#[tokio::test]
async fn a_cluster_that_is_replaced_leaves_no_gap() {
    let server = shop().await;
    let client = builder_of(&server).deletion_grace(Duration::from_secs(60)).build().unwrap();
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

#[tokio::test]
async fn a75_1_an_aggregate_uses_its_leaves_in_order() {
    let server = shop().await;
    server.update(|tx| {
        tx.set(shop_routes(&["all"]));
        tx.set(cluster("all").aggregate(["near", "far"]));
        tx.set(cluster("far").aggregate(["cart", "near"]));
        tx.set(cluster("near"));
        tx.set(
            endpoints("near")
                .locality("eu", "a", ["10.0.0.9:80"])
                .locality("eu", "b", ["10.0.0.8:80"])
                .priority(1),
        );
    });
    let client = client_of(&server);
    let mut resolution = client.resolve("xds:///shop");
    let both = "all: 10.0.0.9:80 10.0.0.8:80 10.0.0.1:80, cart: 10.0.0.1:80, near: 10.0.0.9:80 10.0.0.8:80";
    let snapshot = soon(resolution.ready()).await;
    let text_without_far = |seen: &_| text(seen).replace("far: 10.0.0.1:80 10.0.0.9:80 10.0.0.8:80, ", "");
    assert_eq!(text_without_far(&snapshot), both);
    let snapshot = snapshot.unwrap();
    let all = snapshot.cluster("all").unwrap();
    assert!(matches!(all.kind(), Some(ClusterKind::Aggregate { .. })), "{all:?}");
    assert_eq!(all.leaves().map(ClusterView::name).collect::<Vec<_>>(), ["near", "cart"]);
    let first = |snapshot: &Snapshot| {
        let priority = snapshot.cluster("all").unwrap().first_usable_priority().unwrap();
        (priority.cluster().name().to_owned(), priority.index())
    };
    assert_eq!(first(&snapshot), ("near".to_owned(), 0));

    let near = || endpoints("near").locality("eu", "a", ["10.0.0.9:80"]);
    server.set(near().unhealthy("10.0.0.9:80"));
    let snapshot = soon(resolution.wait_for(|seen| first(seen.as_ref().unwrap()).0 == "cart")).await;
    assert!(snapshot.unwrap().unwrap().cluster("all").unwrap().error().is_none());
    server.set(near());
    soon(resolution.wait_for(|seen| first(seen.as_ref().unwrap()).0 == "near")).await.unwrap().unwrap();
}

#[tokio::test]
async fn a74_5_a_missing_child_of_an_aggregate_is_skipped() {
    let server = shop().await;
    server.update(|tx| {
        tx.set(shop_routes(&["all"]));
        tx.set(cluster("all").aggregate(["missing", "cart"]));
    });
    let client = impatient_client_of(&server);
    let mut resolution = client.resolve("xds:///shop");
    see(&mut resolution, "all: 10.0.0.1:80, cart: 10.0.0.1:80, missing: NOT_FOUND").await;
}

#[tokio::test]
async fn resolutions_end_with_the_client() {
    let server = shop().await;
    let client = client_of(&server);
    let mut shop = client.resolve("xds:///shop");
    let snapshot = soon(shop.ready()).await.unwrap();
    server.hold();
    let mut missing = client.resolve("xds:///missing");
    let hold = shop.hold_cluster("cart");
    soon(client.shutdown()).await;
    while soon(shop.next()).await.is_some() {}
    assert!(soon(missing.next()).await.is_none());
    assert_eq!(text(&shop.latest().unwrap()), text(&Ok(snapshot)), "what was good stays");
    let error = soon(missing.ready()).await.unwrap_err();
    assert_eq!(error.to_string(), "Listener \"xds:///missing\": the client was shut down [node id: test]");
    assert_eq!(error.code(), Code::Cancelled);
    assert!(soon(client.resolve("xds:///late").next()).await.is_none());
    drop((shop.hold_cluster("web"), hold));
    shop.resolve_again();
    server.expect_clients(0).await.unwrap();
}

#[tokio::test]
async fn ten_thousand_resolutions_that_end_leave_nothing() {
    let server = shop().await;
    let (client, driver) = builder_of(&server).build_with_driver().unwrap();
    let driver = tokio::spawn(driver);
    let mut kept = client.resolve("xds:///shop");
    see(&mut kept, "cart: 10.0.0.1:80").await;
    for i in 0..10_000 {
        let other = client.resolve(format!("xds:///shop-{i}"));
        let hold = other.hold_cluster(format!("cart-{i}"));
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
