//! Features of the incremental variant alone, and peculiarities of servers in it.

use std::time::Duration;

use xdskit::{
    Client, ResourceSelector,
    client::Members,
    config::Bootstrap,
    resource::{Cluster, ClusterLoadAssignment, Listener, RouteConfiguration},
};

use crate::{
    library::{is_good, ready, until, within},
    mesh,
    peer::{Peer, is_request},
    setup::{Setup, TestClient, on},
};

on! { [snapshot_delta, linear_delta]:
    what_is_removed_while_the_client_is_away_is_gone_when_it_is_back,
    go4_a_missing_name_is_not_answered_and_comes_when_it_is_there,
    go5_an_unsubscribed_name_is_sent_again,
    go6_a_rejected_response_is_not_repeated,
    go12_the_end_of_a_wildcard_keeps_resources_requested_by_name,
}
on! { [snapshot_delta, linear_delta, java_delta]: one_change_among_thousands_comes_alone }

async fn what_is_removed_while_the_client_is_away_is_gone_when_it_is_back(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut all = client.watch_all::<Cluster>(ResourceSelector::All);
    let mut listener = client.watch::<Listener>("audit");
    let mut routes = client.watch::<RouteConfiguration>("audit-routes");
    let mut endpoints = client.watch::<ClusterLoadAssignment>("audit-endpoints");
    let mut other = client.watch::<RouteConfiguration>("cart-routes");
    ready(&mut listener).await;
    let before = ready(&mut routes).await;
    ready(&mut endpoints).await;
    ready(&mut other).await;
    let is_whole = |members: &Members<Cluster>| present(members) == mesh::clusters();
    within("all clusters", all.wait_for(is_whole)).await.expect("it runs");

    peer.command("stop").await;
    until(&mut routes, |seen| seen.error().is_some_and(|why| why.is_transient())).await;
    assert!(routes.latest().resource().is_some_and(|now| *now == before), "it may be there still");
    peer.command("remove audit").await;
    peer.command("start").await;
    until(&mut listener, |seen| seen.is_absent() && seen.error().is_some_and(|why| why.is_not_found())).await;
    until(&mut routes, |seen| seen.is_absent() && seen.error().is_some_and(|why| why.is_not_found())).await;
    until(&mut endpoints, |seen| seen.is_absent() && seen.error().is_some_and(|why| why.is_not_found()))
        .await;
    until(&mut other, is_good).await;
    let mut left = mesh::clusters();
    left.retain(|name| name != "audit");
    within("all clusters but one", all.wait_for(|members| present(members) == left)).await.expect("it runs");
    // The initial versions of each type were sent, once.
    let held = left.len() + 1;
    peer.event("who holds all clusters", |event| is_request(event, "Cluster") && event["held"] == held).await;
    let events = peer.events_for(Duration::ZERO).await;
    let has_held = |event: &&serde_json::Value| event["held"].as_u64().is_some_and(|held| held > 0);
    assert_eq!(events.iter().filter(has_held).count(), 4, "one for each type");
}

async fn one_change_among_thousands_comes_alone(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    peer.command("clusters 5000").await;
    let client = client_of(&peer);
    let mut all = client.watch_all::<Cluster>(ResourceSelector::All);
    let total = 5000 + mesh::clusters().len();
    within("all clusters", all.wait_for(|members| members.len() == total)).await.expect("it runs");
    let versions = peer.command("clusters 5001").await;
    within("one more", all.wait_for(|members| members.len() == total + 1)).await.expect("it runs");
    peer.accepted("Cluster", &versions["Cluster"]).await;
    let new = |event: &serde_json::Value| {
        event["event"] == "response" && event["type"] == "Cluster" && event["version"] == versions["Cluster"]
    };
    let response = peer.event("the response", new).await;
    assert_eq!(response["resources"], 1, "{response}");
}

async fn go4_a_missing_name_is_not_answered_and_comes_when_it_is_there(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let bootstrap = Bootstrap::from_json(&peer.bootstrap()).expect("the bootstrap is valid");
    let client = setup.client(Client::builder(bootstrap).resource_timeout(Duration::from_secs(3)));
    let mut bulk = client.watch::<Cluster>("bulk-00000");
    let mut payments = client.watch::<Cluster>("payments");
    until(&mut payments, is_good).await;
    let missing = until(&mut bulk, |seen| seen.is_absent()).await;
    assert!(missing.error().is_some_and(|why| why.is_not_found()), "{missing:?}");
    assert!(is_good(&payments.latest()));
    peer.command("clusters 1").await;
    until(&mut bulk, is_good).await;
}

async fn go5_an_unsubscribed_name_is_sent_again(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut other = client.watch::<Cluster>("inventory");
    ready(&mut other).await;
    for _ in 0..3 {
        // The unsubscription is not sent as long as nothing else is, and a new watch gets the resource at once.
        ready(&mut client.watch::<Cluster>("payments")).await;
        ready(&mut client.watch::<Cluster>("payments")).await;
    }
    let is_unsubscribed = |event: &serde_json::Value| {
        is_request(event, "Cluster") && event["unsubscribe"] == serde_json::json!(["payments"])
    };
    peer.event("that it is unsubscribed", is_unsubscribed).await;
    ready(&mut client.watch::<Cluster>("payments")).await;
    let both = |event: &&serde_json::Value| {
        let lists =
            |field: &str| event[field].as_array().is_some_and(|list| list.contains(&"payments".into()));
        lists("subscribe") && lists("unsubscribe")
    };
    let events = peer.events_for(Duration::ZERO).await;
    assert_eq!(events.iter().find(both), None, "B2.9: this server ends what is in both lists");
}

async fn go6_a_rejected_response_is_not_repeated(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut payments = client.watch::<Cluster>("payments");
    let mut inventory = client.watch::<Cluster>("inventory");
    let good = ready(&mut payments).await;
    ready(&mut inventory).await;
    peer.command("invalid").await;
    let bad = until(&mut payments, |seen| seen.error().is_some_and(|why| why.is_rejected())).await;
    assert!(bad.resource().is_some_and(|kept| *kept == good), "{bad:?}");
    until(&mut inventory, |seen| seen.resource().is_some_and(|now| now.max_requests == 77)).await;
    peer.command("valid").await;
    until(&mut payments, is_good).await;
    until(&mut inventory, |seen| seen.resource().is_some_and(|now| now.max_requests != 77)).await;
    let events = peer.events_for(Duration::ZERO).await;
    let rejections = events.iter().filter(|event| is_request(event, "Cluster") && !event["error"].is_null());
    assert_eq!(rejections.count(), 1);
}

async fn go12_the_end_of_a_wildcard_keeps_resources_requested_by_name(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut all = client.watch_all::<Cluster>(ResourceSelector::All);
    within("all clusters", all.wait_for(Members::is_complete)).await.expect("it runs");
    let mut inventory = client.watch::<Cluster>("inventory");
    ready(&mut inventory).await;
    drop(all);
    let ended = |event: &serde_json::Value| {
        is_request(event, "Cluster") && event["unsubscribe"] == serde_json::json!(["*"])
    };
    peer.event("the end of the wildcard", ended).await;
    peer.command("invalid").await;
    until(&mut inventory, |seen| is_good(seen) && seen.resource().is_some_and(|now| now.max_requests == 77))
        .await;
    // And all can be received again.
    peer.command("valid").await;
    let mut all = client.watch_all::<Cluster>(ResourceSelector::All);
    let is_whole = |members: &Members<Cluster>| present(members) == mesh::clusters();
    within("all clusters again", all.wait_for(is_whole)).await.expect("it runs");
}

fn client_of(peer: &Peer) -> TestClient {
    let bootstrap = Bootstrap::from_json(&peer.bootstrap()).expect("the bootstrap is valid");
    peer.setup().client(Client::builder(bootstrap))
}

fn present(members: &Members<Cluster>) -> Vec<String> {
    let there = members.iter().filter(|(_, seen)| seen.is_present());
    there.map(|(name, _)| name.to_string()).collect()
}
