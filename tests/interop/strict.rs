//! Servers with the restrictions of real ones, such as istiod and Consul: the small management server of `strict/`.

use std::time::Duration;

use xdskit::{
    Client, ResourceSelector,
    client::{Members, WatchAll},
    config::Bootstrap,
    resource::{Cluster, Listener, Runtime},
};

use crate::{
    library::{is_good, ready, until},
    peer::{Peer, is_request},
    setup::{Setup, TestClient, on},
};

on! { [ignores_names_in_nack_sotw, ignores_names_in_nack_delta]: names_watched_while_a_cluster_is_rejected_come }
on! { [legacy_wildcard_delta]: a_legacy_wildcard_beside_a_name_has_all_members_also_on_the_next_stream }
on! { [legacy_wildcard_sotw, legacy_wildcard_delta]: a_legacy_wildcard_has_all_members_also_on_the_next_stream }
on! { [unknown_type_sotw, unknown_type_delta]: a_type_that_ends_the_stream_takes_no_other_with_it }

/// The server reads nothing but the error of a NACK, and a push with the rejected cluster precedes each name.
async fn names_watched_while_a_cluster_is_rejected_come(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    peer.command("add bad").await;
    let good: Vec<_> = (0..8).map(|number| format!("good-{number}")).collect();
    for name in &good {
        peer.command(&format!("add {name}")).await;
    }
    let client = client_of(&peer);
    let mut bad = client.watch::<Cluster>("bad");
    ready(&mut bad).await;
    peer.command("reject bad").await;
    until(&mut bad, |seen| seen.error().is_some_and(|why| why.is_rejected())).await;
    for name in &good {
        peer.command("change bad").await;
        let mut watch = client.watch::<Cluster>(name);
        let seen = until(&mut watch, |seen| seen.is_present() || seen.error().is_some()).await;
        assert!(is_good(&seen), "{name}: {seen:?}");
    }
    let rejected = |event: &&serde_json::Value| is_request(event, "Cluster") && !event["error"].is_null();
    assert!(peer.events_for(Duration::ZERO).await.iter().filter(rejected).count() > 1);
    peer.command("repair bad").await;
    until(&mut bad, is_good).await;
}

async fn a_legacy_wildcard_beside_a_name_has_all_members_also_on_the_next_stream(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    add(&mut peer, &["a", "b", "c"]).await;
    let client = client_of(&peer);
    let mut named = client.watch::<Listener>("b");
    let mut all = client.watch_all::<Listener>(ResourceSelector::All);
    is_shown(&mut all, &["a", "b", "c"]).await;
    ready(&mut named).await;
    add(&mut peer, &["d"]).await;
    is_shown(&mut all, &["a", "b", "c", "d"]).await;
    peer.command("stop").await;
    until(&mut named, |seen| seen.error().is_some()).await;
    add(&mut peer, &["e"]).await;
    peer.command("remove a").await;
    peer.command("start").await;
    is_shown(&mut all, &["b", "c", "d", "e"]).await;
    until(&mut named, is_good).await;
    add(&mut peer, &["f"]).await;
    is_shown(&mut all, &["b", "c", "d", "e", "f"]).await;
}

/// Alone, the wildcard has its older form in the state-of-the-world variant, too.
async fn a_legacy_wildcard_has_all_members_also_on_the_next_stream(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    add(&mut peer, &["a", "b"]).await;
    let client = client_of(&peer);
    let mut all = client.watch_all::<Listener>(ResourceSelector::All);
    let mut other = client.watch::<Cluster>("b");
    is_shown(&mut all, &["a", "b"]).await;
    ready(&mut other).await;
    add(&mut peer, &["c"]).await;
    is_shown(&mut all, &["a", "b", "c"]).await;
    peer.command("stop").await;
    until(&mut other, |seen| seen.error().is_some()).await;
    add(&mut peer, &["d"]).await;
    peer.command("start").await;
    is_shown(&mut all, &["a", "b", "c", "d"]).await;
    peer.command("remove a").await;
    is_shown(&mut all, &["b", "c", "d"]).await;
}

async fn a_type_that_ends_the_stream_takes_no_other_with_it(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    add(&mut peer, &["a", "b"]).await;
    let client = client_of(&peer);
    let mut unknown = client.watch::<Runtime>("flags");
    let mut cluster = client.watch::<Cluster>("a");
    let mut listeners = client.watch_all::<Listener>(ResourceSelector::All);
    let seen = until(&mut unknown, |seen| seen.error().is_some()).await;
    let why = seen.error().expect("it was waited for");
    for part in ["Runtime", "no generator"] {
        assert!(why.to_string().contains(part), "{part:?} is not in {why}");
    }
    until(&mut cluster, is_good).await;
    is_shown(&mut listeners, &["a", "b"]).await;
    // Updates are received, and so are resources that are only watched now.
    peer.command("change a").await;
    until(&mut cluster, |seen| is_good(seen) && seen.resource().is_some_and(|now| now.max_requests == 101))
        .await;
    ready(&mut client.watch::<Cluster>("b")).await;
    add(&mut peer, &["c"]).await;
    is_shown(&mut listeners, &["a", "b", "c"]).await;
    assert!(unknown.latest().is_absent());
    let requests = peer.events_for(Duration::ZERO).await.iter().filter(|event| is_request(event, "Runtime"));
    assert!((2..=6).contains(&requests.count()), "the type is held back after some streams");
}

async fn add(peer: &mut Peer, names: &[&str]) {
    for name in names {
        peer.command(&format!("add {name}")).await;
    }
}

/// Waits until the present members are these, all of them good.
async fn is_shown(all: &mut WatchAll<Listener>, expected: &[&str]) {
    let present = |members: &Members<Listener>| {
        let present = members.iter().filter(|(_, seen)| is_good(seen));
        present.map(|(name, _)| name.to_string()).collect::<Vec<_>>()
    };
    let wait = all.wait_for(|members| members.is_complete() && present(members) == expected);
    let found = tokio::time::timeout(crate::process::PATIENCE, wait).await;
    if found.is_err() {
        panic!("not {expected:?} but {:?}", all.latest());
    }
}

fn client_of(peer: &Peer) -> TestClient {
    let bootstrap = Bootstrap::from_json(&peer.bootstrap()).expect("the bootstrap is valid");
    peer.setup().client(Client::builder(bootstrap).resource_timeout(Duration::from_secs(10)))
}
