//! go-control-plane's snapshots in ADS mode: a state-of-the-world request with names only gets a response if it
//! contains the names of all resources of the type in the snapshot.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde_json::Value;
use xdskit::{
    Client, Observed, ResourceSelector, WatchError,
    client::{Members, WatchAll},
    config::Bootstrap,
    error::Code,
    resource::{Cluster, ClusterLoadAssignment, Listener},
};

use crate::{
    library::{is_good, ready, until, within},
    mesh,
    peer::{Peer, is_request},
    setup::{Setup, TestClient, on},
    walk,
};

on! { [ads_sotw]:
    endpoints_of_a_partial_mesh_are_not_found_with_a_hint,
    a_tree_of_a_partial_mesh_has_a_hint_in_the_place_of_endpoints,
}
on! { [ads_delta]: endpoints_of_a_partial_mesh_come_in_the_incremental_variant }
on! { [snapshot_sotw, ads_sotw]: go1_a_nack_loop_in_shuffled_order_is_paced_and_new_clusters_come }

async fn endpoints_of_a_partial_mesh_are_not_found_with_a_hint(setup: Setup) {
    let peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let _listeners = all::<Listener>(&client).await;
    let mut endpoints = client.watch::<ClusterLoadAssignment>("payments-endpoints");
    let seen = until(&mut endpoints, |seen| seen.error().is_some()).await;
    assert!(seen.is_absent(), "{seen:?}");
    expect_hint(seen.error().expect("it was waited for"));
    // All of them are received.
    let names = mesh::endpoint_clusters().into_iter().map(|cluster| format!("{cluster}-endpoints"));
    let mut all: Vec<_> = names.map(|name| client.watch::<ClusterLoadAssignment>(name)).collect();
    for watch in &mut all {
        until(watch, is_good).await;
    }
    until(&mut endpoints, is_good).await;
}

async fn a_tree_of_a_partial_mesh_has_a_hint_in_the_place_of_endpoints(setup: Setup) {
    let peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let _listeners = all::<Listener>(&client).await;
    let _clusters = all::<Cluster>(&client).await;
    let tree = walk::until(&mut client.resolve("xds:///email"), |_| true).await;
    let email = tree.cluster("email").expect("routes lead to it");
    assert!(email.endpoints().next().is_none() && email.error().is_none(), "{email:?}");
    expect_hint(email.endpoints_error().expect("a reason"));
}

async fn endpoints_of_a_partial_mesh_come_in_the_incremental_variant(setup: Setup) {
    let peer = Peer::start(setup).await;
    let client = client_of(&peer);
    ready(&mut client.watch::<ClusterLoadAssignment>("payments-endpoints")).await;
    let tree = walk::ready(&mut client.resolve("xds:///email")).await;
    let email = tree.cluster("email").expect("routes lead to it");
    assert_eq!(email.usable_endpoints_of_all_priorities().count(), 8);
}

/// go-control-plane responds to each NACK with the same resources, in the iteration order of a map, which varies.
async fn go1_a_nack_loop_in_shuffled_order_is_paced_and_new_clusters_come(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut clusters = all::<Cluster>(&client).await;
    peer.accepted("Cluster", &"1".into()).await;
    let version = peer.command("invalid").await["Cluster"].clone();
    let events = peer.events_for(Duration::from_secs(3)).await;
    let rejections = events.iter().filter(|event| is_rejection(event)).count();
    assert!((2..=8).contains(&rejections), "{rejections} rejections in 3 s");
    let responses = events.iter().filter(|event| {
        event["event"] == "response" && event["type"] == "Cluster" && event["version"] == version
    });
    let orders: BTreeSet<_> = responses.map(|response| response["order"].to_string()).collect();
    assert!(orders.len() > 1, "all responses have one order");
    let is_new = |seen: &Observed<Cluster>| seen.resource().is_some_and(|now| now.max_requests == 77);
    let is_beside = |all: &Members<Cluster>| all.get("inventory").is_some_and(is_new);
    within("the good change beside it", clusters.wait_for(is_beside)).await.expect("it runs");

    // The server receives nothing before the delayed NACK.
    let pushed = Instant::now();
    peer.command("clusters 3").await;
    let has_new = |all: &Members<Cluster>| all.get("bulk-00002").is_some_and(is_good);
    within("the new clusters", clusters.wait_for(has_new)).await.expect("it runs");
    assert!(pushed.elapsed() < SOON, "new clusters came after {:?}", pushed.elapsed());
    let repaired = Instant::now();
    peer.command("valid").await;
    let is_repaired = |all: &Members<Cluster>| all.get("payments").is_some_and(is_good);
    within("the repair", clusters.wait_for(is_repaired)).await.expect("it runs");
    assert!(repaired.elapsed() < SOON, "the repair came after {:?}", repaired.elapsed());
    let rejections = peer.events_for(Duration::ZERO).await.iter().filter(|event| is_rejection(event)).count();
    assert!(rejections <= 12, "{rejections} rejections in all");
}

/// Waits for all resources of a type by the wildcard.
async fn all<T: xdskit::Resource>(client: &Client) -> WatchAll<T> {
    let mut all = client.watch_all::<T>(ResourceSelector::All);
    let is_whole = |all: &Members<T>| all.is_complete() && !all.is_empty();
    within("all", all.wait_for(is_whole)).await.expect("it runs");
    all
}

fn expect_hint(why: &WatchError) {
    assert_eq!(why.code(), Code::NotFound, "{why}");
    for part in ["ADS mode", "all resources of a type", "AGGREGATED_DELTA_GRPC"] {
        assert!(why.reason().contains(part), "{part:?} is not in {why}");
    }
}

/// A client with a resource timeout of two seconds.
fn client_of(peer: &Peer) -> TestClient {
    let bootstrap = Bootstrap::from_json(&peer.bootstrap()).expect("the bootstrap is valid");
    peer.setup().client(Client::builder(bootstrap).resource_timeout(Duration::from_secs(2)))
}

fn is_rejection(event: &Value) -> bool {
    is_request(event, "Cluster") && !event["error"].is_null()
}

/// Longer than the pause between two NACKs after some seconds.
const SOON: Duration = Duration::from_secs(6);
