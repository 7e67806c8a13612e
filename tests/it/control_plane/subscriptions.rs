//! The subscriptions of all clients of a control plane together.

use xdskit::control_plane::{
    AnyResource, ControlPlane, SubscriptionChange,
    type_url::{CLUSTER, ENDPOINTS},
};

use super::peer::{DeltaPeer, Peer};

/// `+TYPE NAME` or `-TYPE NAME`.
fn text(change: &SubscriptionChange) -> String {
    let sign = if change.subscribed { '+' } else { '-' };
    format!("{sign}{} {}", change.type_url.rsplit('.').next().unwrap(), change.name)
}

#[tokio::test]
async fn changes_are_the_first_and_the_last_subscription_of_a_name() {
    let control_plane = ControlPlane::new();
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    let mut changes = control_plane.subscription_changes();
    assert!(control_plane.subscriptions().is_empty());
    let mut first = DeltaPeer::connect(&server.uri()).await;
    first.change(CLUSTER, &["a", "b"], &[]);
    assert_eq!(text(&changes.next().await.unwrap()), "+Cluster a");
    assert_eq!(text(&changes.next().await.unwrap()), "+Cluster b");
    let mut second =
        Peer::call(&server.uri(), "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters").await;
    second.request("", &["b", "c"]);
    assert_eq!(text(&changes.next().await.unwrap()), "+Cluster c");
    let subscriptions = control_plane.subscriptions();
    assert_eq!(
        subscriptions.iter().collect::<Vec<_>>(),
        [(CLUSTER, "a", 1), (CLUSTER, "b", 2), (CLUSTER, "c", 1)]
    );
    assert_eq!((subscriptions.len(), subscriptions.total()), (3, 4));
    assert_eq!(["b", "d"].map(|name| subscriptions.streams(CLUSTER, name)), [2, 0]);

    first.change(CLUSTER, &[], &["a", "b"]);
    first.change(ENDPOINTS, &[], &[]);
    assert_eq!(text(&changes.next().await.unwrap()), "-Cluster a");
    assert_eq!(text(&changes.next().await.unwrap()), "+ClusterLoadAssignment *");
    let mut late = control_plane.subscription_changes();
    assert_eq!(
        text(&late.next().await.unwrap()),
        "+Cluster b",
        "a later reader starts with all subscriptions"
    );

    drop(second);
    assert_eq!(text(&changes.next().await.unwrap()), "-Cluster b");
    assert_eq!(text(&changes.next().await.unwrap()), "-Cluster c");
    server.shutdown().await;
    drop(first);
    assert_eq!(text(&changes.next().await.unwrap()), "-ClusterLoadAssignment *");
    assert!(control_plane.subscriptions().is_empty());
    drop(control_plane);
    assert_eq!(changes.next().await, None);
}

#[tokio::test]
async fn a_server_that_loads_on_demand_answers_once_it_has_the_resources() {
    let control_plane = ControlPlane::builder().on_demand(true).build();
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    let mut changes = control_plane.subscription_changes();
    let mut peer = DeltaPeer::connect(&server.uri()).await;
    peer.change(CLUSTER, &["a", "b"], &[]);
    while let Some(change) = changes.next().await {
        if &*change.name == "b" {
            break;
        }
    }
    control_plane.set(AnyResource::new(CLUSTER, "a", "a1").with_version("v7"));
    let response = peer.response().await;
    assert_eq!((response.resources.len(), response.resources[0].version.as_str()), (1, "v7"));
    assert!(response.removed_resources.is_empty(), "of b nothing is known");
    peer.answer(&response, None);
    control_plane.update(|tx| {
        tx.set_absent(CLUSTER, "b");
    });
    assert_eq!(peer.response().await.removed_resources, ["b"]);
}
