//! Resources with a time to live in go-control-plane's snapshots: in the state-of-the-world variant alone (GO6).

use serde_json::Value;
use xdskit::{
    Client,
    config::Bootstrap,
    resource::{Cluster, ClusterLoadAssignment},
};

use crate::{
    faults::Seen,
    library::{is_good, ready, until},
    peer::Peer,
    setup::{Setup, TestClient, on},
};

on! { [snapshot_sotw]:
    go7_heartbeats_keep_what_would_expire_and_delete_nothing,
    go7_what_is_not_confirmed_expires_and_comes_back,
}

async fn go7_heartbeats_keep_what_would_expire_and_delete_nothing(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    peer.command("ttl payments 4000").await;
    let client = client_of(&peer);
    let seen = Seen::default();
    let _payments = seen.note::<Cluster>(&client, "payments");
    let _inventory = seen.note::<Cluster>(&client, "inventory");
    let _endpoints = seen.note::<ClusterLoadAssignment>(&client, "payments-endpoints");
    ready(&mut client.watch::<Cluster>("payments")).await;
    ready(&mut client.watch::<Cluster>("inventory")).await;
    ready(&mut client.watch::<ClusterLoadAssignment>("payments-endpoints")).await;
    // The server sends at most five per second: these take longer than the time to live. The next is sent when one is
    // accepted.
    for type_name in ["Cluster", "ClusterLoadAssignment"] {
        peer.nth_event(25, "heartbeats", |event| is_heartbeat(event, type_name)).await;
    }
    seen.expect_no_loss();
}

async fn go7_what_is_not_confirmed_expires_and_comes_back(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    peer.command("ttl payments 2000").await;
    let client = client_of(&peer);
    let seen = Seen::default();
    let _inventory = seen.note::<Cluster>(&client, "inventory");
    let mut cluster = client.watch::<Cluster>("payments");
    let mut endpoints = client.watch::<ClusterLoadAssignment>("payments-endpoints");
    ready(&mut client.watch::<Cluster>("inventory")).await;
    ready(&mut cluster).await;
    ready(&mut endpoints).await;
    peer.freeze();
    let expired = until(&mut cluster, |seen| seen.is_absent()).await;
    assert!(expired.error().is_some_and(|why| why.is_not_found()), "{expired:?}");
    until(&mut endpoints, |seen| seen.is_absent() && seen.error().is_some_and(|why| why.is_not_found()))
        .await;
    peer.thaw();
    // A heartbeat does not restore it, but the next complete response does.
    peer.command("ttl payments 60000").await;
    until(&mut cluster, is_good).await;
    until(&mut endpoints, is_good).await;
    seen.expect_no_loss();
}

fn client_of(peer: &Peer) -> TestClient {
    let bootstrap = Bootstrap::from_json(&peer.bootstrap()).expect("the bootstrap is valid");
    peer.setup().client(Client::builder(bootstrap))
}

/// A heartbeat of the two watched clusters, of which one would expire.
fn is_heartbeat(event: &Value, type_name: &str) -> bool {
    event["event"] == "response" && event["type"] == type_name && event["resources"] == 1
}
