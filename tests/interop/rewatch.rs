//! Watches that end and begin again, on servers that do not send resources again that a client had in the same
//! version: over a new stream, after the idle one was closed, and over the stream of other watches.

use std::time::Duration;

use serde_json::Value;
use xdskit::{
    Client, Resource, ResourceSelector,
    client::{Members, WatchAll},
    config::Bootstrap,
    resource::{Cluster, Listener, RouteConfiguration},
};

use crate::{
    library::{all_routes, ready, until, weights, within},
    mesh,
    peer::{Peer, is_request},
    setup::{Setup, TestClient, on},
};

on! { [snapshot_sotw, snapshot_delta, old_sotw, old_delta, linear_sotw, linear_delta]: all_names_of_a_type_end_and_come_again }
on! { [snapshot_sotw, snapshot_delta, ads_sotw, ads_delta, linear_sotw, linear_delta]:
    a_wildcard_comes_again_after_its_idle_stream_was_closed,
    names_come_again_after_their_idle_stream_was_closed,
    a_wildcard_that_ended_beside_another_comes_again,
    a_name_that_ended_beside_others_comes_again,
    names_of_a_wildcard_that_ended_come_again,
}
// In ADS mode a single name gets no response in the state-of-the-world variant.
on! { [snapshot_sotw, snapshot_delta, ads_delta, linear_sotw, linear_delta]: a_name_of_a_wildcard_that_ended_comes_again }

async fn a_wildcard_comes_again_after_its_idle_stream_was_closed(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    for round in 1..=3 {
        let all = all_clusters(&client).await;
        peer.event("an ACK", |event| is_ack(event, "Cluster") && event["stream"] == round).await;
        drop(all);
        peer.nth_event(round, "the end of the stream", |event| event["event"] == "closed").await;
    }
}

/// All names of a type are let go, and come again on the same stream, which another type needs.
async fn all_names_of_a_type_end_and_come_again(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    ready(&mut client.watch::<Listener>("payments")).await;
    let mut kept = client.watch::<Listener>("payments");
    ready(&mut kept).await;
    let asks_for_last = |event: &Value| is_request(event, "Cluster") && has(&event["subscribe"], "inventory");
    let is_end = |event: &Value| is_request(event, "Cluster") && has(&event["unsubscribe"], "inventory");
    for round in 1..=3 {
        // Counted anew in each round: names that the server does not send again are requested once more, on another stream.
        let asked = peer.events_for(Duration::ZERO).await.iter().filter(|event| asks_for_last(event)).count();
        let mut clusters = ["payments", "inventory"].map(|name| client.watch::<Cluster>(name));
        for watch in &mut clusters {
            ready(watch).await;
        }
        if setup.is_delta() {
            // What is watched again before the end was read may still be held, and is requested a moment later.
            peer.nth_event(asked + 1, "a request of the names", asks_for_last).await;
        } else {
            peer.nth_event(round, "an ACK", |event| is_ack(event, "Cluster")).await;
        }
        let ended = peer.events_for(Duration::ZERO).await.iter().filter(|event| is_end(event)).count();
        drop(clusters);
        released::<Cluster>(&client).await;
        if setup.is_delta() {
            // Names that are watched again before that are not sent again.
            peer.nth_event(ended + 1, "the end of the names", is_end).await;
        }
    }
}

/// Whether a list of names in an event has one.
fn has(names: &Value, name: &str) -> bool {
    names.as_array().is_some_and(|names| names.iter().any(|listed| listed == name))
}

async fn names_come_again_after_their_idle_stream_was_closed(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    for round in 1..=3 {
        let routes = all_routes(&client).await;
        peer.event("an ACK", |event| is_ack_of_all_routes(event) && event["stream"] == round).await;
        drop(routes);
        peer.nth_event(round, "the end of the stream", |event| event["event"] == "closed").await;
    }
}

async fn a_wildcard_that_ended_beside_another_comes_again(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut listeners = client.watch_all::<Listener>(ResourceSelector::All);
    within("all listeners", listeners.wait_for(Members::is_complete)).await.expect("it runs");
    for bulk in 1..=3 {
        let mut all = all_clusters(&client).await;
        peer.command(&format!("clusters {bulk}")).await;
        let total = mesh::clusters().len() + bulk;
        within("the new cluster", all.wait_for(|all| present(all) == total)).await.expect("it runs");
        peer.command("clusters 0").await;
        let is_as_before = |all: &Members<Cluster>| present(all) == mesh::clusters().len();
        within("its end", all.wait_for(is_as_before)).await.expect("it runs");
        drop(all);
        released::<Cluster>(&client).await;
    }
    let is_whole = |all: &Members<Listener>| all.is_complete() && all.len() == mesh::SERVICES.len();
    assert!(listeners.latest().is_some_and(|all| is_whole(&all)), "the other one goes on");
}

async fn a_name_that_ended_beside_others_comes_again(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut routes = all_routes(&client).await;
    let all = routes.len();
    for weight in 1..=3 {
        peer.nth_event(weight, "an ACK of all", is_ack_of_all_routes).await;
        drop(routes.remove("cart-routes").expect("it is watched"));
        let without = |event: &Value| is_request(event, "RouteConfiguration") && event["names"] == all - 1;
        peer.nth_event(weight, "a request without it", without).await;
        let mut again = client.watch::<RouteConfiguration>("cart-routes");
        ready(&mut again).await;
        peer.command(&format!("update canary {} {weight}", 100 - weight)).await;
        let is_new = |now: &RouteConfiguration| weights(now, "cart")[1].1 as usize == weight;
        until(&mut again, |seen| seen.resource().is_some_and(|now| is_new(now))).await;
        routes.insert("cart-routes".to_owned(), again);
    }
}

/// Resources that were received by the wildcard must be received again by the names that are watched after it.
async fn names_of_a_wildcard_that_ended_come_again(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut listeners = client.watch_all::<Listener>(ResourceSelector::All);
    within("all listeners", listeners.wait_for(Members::is_complete)).await.expect("it runs");
    let all = all_clusters(&client).await;
    peer.event("an ACK", |event| is_ack(event, "Cluster")).await;
    drop(all);
    released::<Cluster>(&client).await;
    let mut clusters: Vec<_> = mesh::clusters().iter().map(|name| client.watch::<Cluster>(name)).collect();
    for watch in &mut clusters {
        ready(watch).await;
    }
}

async fn a_name_of_a_wildcard_that_ended_comes_again(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut listeners = client.watch_all::<Listener>(ResourceSelector::All);
    within("all listeners", listeners.wait_for(Members::is_complete)).await.expect("it runs");
    let all = all_clusters(&client).await;
    peer.event("an ACK", |event| is_ack(event, "Cluster")).await;
    drop(all);
    released::<Cluster>(&client).await;
    ready(&mut client.watch::<Cluster>("payments")).await;
}

/// Waits for all clusters by the wildcard.
async fn all_clusters(client: &Client) -> WatchAll<Cluster> {
    let mut all = client.watch_all::<Cluster>(ResourceSelector::All);
    let is_whole = |all: &Members<Cluster>| all.is_complete() && present(all) == mesh::clusters().len();
    within("all clusters", all.wait_for(is_whole)).await.expect("it runs");
    all
}

/// Waits until a client has no resources of a type: the unsubscriptions were sent, if the variant has them.
async fn released<T: Resource>(client: &Client) {
    let released = async {
        while client.status().await.resources.iter().any(|held| held.type_url == T::TYPE_URL) {
            tokio::task::yield_now().await;
        }
    };
    within("the release", released).await;
}

/// A client that closes a stream without watches at once.
fn client_of(peer: &Peer) -> TestClient {
    let bootstrap = Bootstrap::from_json(&peer.bootstrap()).expect("the bootstrap is valid");
    peer.setup().client(Client::builder(bootstrap).idle_stream_timeout(Duration::from_millis(20)))
}

fn present(members: &Members<Cluster>) -> usize {
    members.iter().filter(|(_, seen)| seen.is_present()).count()
}

fn is_ack(event: &Value, short_type: &str) -> bool {
    is_request(event, short_type) && event["nonce"] != "" && event["error"].is_null()
}

fn is_ack_of_all_routes(event: &Value) -> bool {
    is_ack(event, "RouteConfiguration") && event["names"] == mesh::services_with_rds().len()
}
