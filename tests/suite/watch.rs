//! Watches of a client on a real connection to an embedded control plane.

mod sharing;

use std::{pin::pin, time::Duration};

use crate::common::*;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tonic::Status;
use xdskit::{
    Names, Observed, WatchError,
    client::BuildError,
    control_plane::{ControlPlane, Event, session::Held, type_url},
    error::{Blame, Code},
};

#[tokio::test]
async fn a_watch_sees_the_resource_and_its_changes() {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let client = client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    assert!(shop.latest().is_pending());
    assert_eq!(note(&soon(shop.next()).await.unwrap()), Some("one"));
    assert_eq!(note(&shop.latest()), Some("one"));
    control_plane.set(cluster("shop", "two"));
    assert_eq!(note(&soon(StreamExt::next(&mut shop)).await.unwrap()), Some("two"));
    control_plane.set(cluster("shop", BAD));
    let seen = soon(shop.next()).await.unwrap();
    assert_eq!((note(&seen), seen.error().map(WatchError::code)), (Some("two"), Some(Code::InvalidArgument)));
    control_plane.remove(type_url::CLUSTER, "shop");
    let seen = soon(shop.next()).await.unwrap();
    assert!(seen.is_absent() && seen.error().unwrap().is_not_found(), "{seen:?}");
    assert_eq!(shop.next().now_or_never(), None, "nothing else has happened");
}

#[tokio::test]
async fn ready_gives_the_resource_or_the_reason() {
    let (_, server) = serve(&[("shop", "one")]).await;
    let client = builder(server.uri()).resource_timeout(Duration::from_millis(50)).build().unwrap();
    assert_eq!(soon(client.watch::<Cluster>("shop").ready()).await.unwrap().note, "one");
    let error = soon(client.watch::<Cluster>("missing").ready()).await.unwrap_err();
    assert_eq!((error.code(), error.name(), error.node_id()), (Code::NotFound, "missing", "test-node"));
    let error = soon(client.watch::<Cluster>("").ready()).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (Code::InvalidArgument, Blame::Local));
}

#[tokio::test]
async fn ready_counts_as_seen_and_can_be_asked_again() {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let client = client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    for _ in 0..2 {
        assert_eq!(soon(shop.ready()).await.unwrap().note, "one");
    }
    control_plane.set(cluster("shop", "two"));
    assert_eq!(note(&soon(shop.next()).await.unwrap()), Some("two"));
}

#[tokio::test]
async fn wait_for_waits_through_other_states() {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let client = client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    let mut looked_at = Vec::new();
    {
        let mut waiting = pin!(shop.wait_for(|seen| {
            looked_at.push(note(seen).unwrap_or("absent").to_owned());
            note(seen) == Some("three")
        }));
        let mut other = client.watch::<Cluster>("shop");
        for (change, after) in [("two", Some("two")), (BAD, Some("two")), ("three", Some("three"))] {
            assert!(waiting.as_mut().now_or_never().is_none());
            control_plane.set(cluster("shop", change));
            soon(other.wait_for(|seen| note(seen) == after && seen.error().is_some() == (change == BAD)))
                .await;
        }
        assert_eq!(note(&soon(waiting).await.unwrap()), Some("three"));
    }
    assert_eq!(looked_at, ["one", "two", "two", "three"]);
    let again = soon(shop.wait_for(Observed::is_present)).await.unwrap();
    assert_eq!(note(&again), Some("three"), "the latest state, though it was seen");
}

#[tokio::test]
async fn a_watcher_that_joins_sees_the_current_state_first() {
    let (_, server) = serve(&[("shop", "one")]).await;
    let client = client(server.uri());
    let mut first = client.watch::<Cluster>("shop");
    soon(first.next()).await.unwrap();
    let seen = client.watch::<Cluster>("shop").next().now_or_never();
    assert_eq!(note(&seen.expect("at once").unwrap()), Some("one"));
    let seen = first.clone().next().now_or_never();
    assert_eq!(note(&seen.expect("at once").unwrap()), Some("one"));
}

#[tokio::test]
async fn a_watcher_that_never_reads_slows_nobody() {
    let (control_plane, server) = serve(&[("shop", "0")]).await;
    let client = client(server.uri());
    let (mut lazy, mut busy) = (client.watch::<Cluster>("shop"), client.watch::<Cluster>("shop"));
    for version in 1..=200 {
        let version = version.to_string();
        control_plane.set(cluster("shop", &version));
        soon(busy.wait_for(|seen| note(seen) == Some(version.as_str()))).await.unwrap();
    }
    assert_eq!(note(&soon(lazy.next()).await.unwrap()), Some("200"));
    assert_eq!(lazy.next().now_or_never(), None, "no queue of old states");
}

#[tokio::test]
async fn names_are_given_up_with_their_last_watch() {
    let (control_plane, mut events) = observed();
    control_plane.set(cluster("shop", "one"));
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    let client = client(server.uri());
    let mut watches = [client.watch::<Cluster>("shop"), client.watch::<Cluster>("shop")];
    let mut other = client.watch::<Cluster>("other");
    soon(watches[0].ready()).await.unwrap();
    events.wanted(&["other", "shop"]).await;
    drop(watches);
    events.wanted(&["other"]).await;
    control_plane.set(cluster("other", "here"));
    assert_eq!(note(&soon(other.wait_for(Observed::is_present)).await.unwrap()), Some("here"));
    let again = client.watch::<Cluster>("shop");
    assert!(again.latest().is_pending());
    events.wanted(&["other", "shop"]).await;
}

#[tokio::test]
async fn on_change_calls_until_its_guard_is_dropped() {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let client = client(server.uri());
    let (calls, mut called) = mpsc::unbounded_channel();
    let guard = client.on_change::<Cluster, _>("shop", move |seen| calls.send(seen.clone()).unwrap());
    assert_eq!(note(&soon(called.recv()).await.unwrap()), Some("one"));
    control_plane.set(cluster("shop", "two"));
    assert_eq!(note(&soon(called.recv()).await.unwrap()), Some("two"));
    drop(guard);
    control_plane.set(cluster("shop", "three"));
    assert!(soon(called.recv()).await.is_none(), "the callback is dropped, not called");
}

#[tokio::test]
async fn watch_all_sees_all_members() {
    let (control_plane, server) = serve(&[("b", "1"), ("a", "1")]).await;
    let client = client(server.uri());
    let mut all = client.watch_all::<Cluster>(Names::All);
    let members = soon(all.ready()).await.unwrap();
    let names: Vec<_> = members.iter().map(|(name, seen)| (&**name, note(seen).unwrap())).collect();
    assert_eq!(names, [("a", "1"), ("b", "1")]);
    assert!(members.is_complete() && members.warning().is_none());
    control_plane.update(|tx| {
        tx.set(cluster("c", "2")).remove(type_url::CLUSTER, "a");
    });
    let members = soon(all.wait_for(|members| members.get("c").is_some())).await.unwrap();
    assert_eq!((members.len(), members.get("a")), (2, None));
    assert_eq!(note(members.get("b").unwrap()), Some("1"));
}

#[tokio::test]
async fn changes_gives_the_members_that_changed() {
    let (control_plane, server) = serve(&[("a", "1"), ("b", "1")]).await;
    let client = client(server.uri());
    let mut changes = client.watch_all::<Cluster>(Names::All).changes();
    let mut next = async || {
        let change = soon(changes.next()).await.unwrap();
        (change.name.to_string(), note(&change.observed).map(str::to_owned), change.complete)
    };
    assert_eq!(next().await, ("a".into(), Some("1".into()), false));
    assert_eq!(next().await, ("b".into(), Some("1".into()), true));
    control_plane.update(|tx| {
        tx.set(cluster("b", "2")).set(cluster("c", "1")).remove(type_url::CLUSTER, "a");
    });
    assert_eq!(next().await, ("a".into(), None, false));
    assert_eq!(next().await, ("b".into(), Some("2".into()), false));
    assert_eq!(next().await, ("c".into(), Some("1".into()), true));
    control_plane.remove(type_url::CLUSTER, "b");
    let change = soon(changes.next()).await.unwrap();
    let error = change.observed.error().unwrap();
    assert_eq!((error.is_not_found(), error.name(), error.node_id()), (true, "b", "test-node"));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_until_it_is() {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let (addr, uri) = (server.addr(), server.uri());
    server.shutdown().await;
    let client = client(uri.clone());
    let mut shop = client.watch::<Cluster>("shop");
    let error = soon(shop.ready()).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (Code::Unavailable, Blame::Network));
    assert!(error.is_transient(), "{error}");
    assert!(error.reason().contains(&uri) && error.reason().contains("refused (os error"), "{error}");
    let late = soon(client.watch::<Cluster>("late").ready()).await.unwrap_err();
    assert_eq!(late.code(), Code::Unavailable, "one that joins meanwhile");
    let _server = control_plane.serve(addr).await.unwrap();
    assert_eq!(note(&soon(shop.wait_for(Observed::is_present)).await.unwrap()), Some("one"));
}

#[tokio::test]
async fn a_restart_of_the_server_loses_nothing() {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let addr = server.addr();
    let client = client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    server.shutdown().await;
    control_plane.set(cluster("shop", "two"));
    let _server = control_plane.serve(addr).await.unwrap();
    let mut seen = Vec::new();
    let good = soon(shop.wait_for(|state| {
        seen.push(state.is_present());
        note(state) == Some("two") && state.error().is_none()
    }));
    good.await.unwrap();
    assert!(seen.iter().all(|present| *present), "the last good one stays: {seen:?}");
}

#[tokio::test]
async fn a_stream_that_fails_with_a_status_is_opened_again() {
    let (control_plane, mut events) = observed();
    control_plane.set_held(Held::all());
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    let client = client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    event(&mut events, |event| matches!(event, Event::Request { .. })).await;
    control_plane.disconnect(Status::permission_denied("who are you?"));
    let error = soon(shop.ready()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "whatever the status: {error}");
    assert!(error.reason().contains("PERMISSION_DENIED: who are you?"), "{error}");
    control_plane.set_held(Held::none());
    control_plane.set(cluster("shop", "one"));
    assert_eq!(note(&soon(shop.wait_for(Observed::is_present)).await.unwrap()), Some("one"));
}

#[tokio::test]
async fn all_watches_end_when_the_client_is_shut_down() {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let client = client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    control_plane.set_held(Held::all());
    let mut missing = client.watch::<Cluster>("missing");
    soon(client.shutdown()).await;
    soon(client.clone().shutdown()).await;
    assert!(soon(shop.next()).await.is_none());
    assert!(soon(missing.next()).await.is_none());
    assert_eq!(note(&shop.latest()), Some("one"));
    assert_eq!(soon(missing.ready()).await.unwrap_err().code(), Code::Cancelled);
    assert!(soon(client.watch::<Cluster>("late").next()).await.is_none());
    soon(until(|| control_plane.streams() == 0)).await;
}

#[tokio::test]
async fn the_driver_ends_when_the_last_handle_is_dropped() {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let (client, driver) = builder(server.uri()).build_with_driver().unwrap();
    let driver = tokio::spawn(driver);
    let mut shop = client.watch::<Cluster>("shop");
    let other = client.clone();
    drop(client);
    soon(shop.ready()).await.unwrap();
    drop(other);
    control_plane.set(cluster("shop", "two"));
    assert_eq!(note(&soon(shop.next()).await.unwrap()), Some("two"), "a watch is a handle, too");
    assert!(!driver.is_finished());
    drop(shop);
    soon(driver).await.unwrap();
    soon(until(|| control_plane.streams() == 0)).await;
}

#[tokio::test]
async fn watches_end_when_the_driver_is_dropped() {
    let (client, driver) = builder("127.0.0.1:1").build_with_driver().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    drop(driver);
    assert!(soon(shop.next()).await.is_none());
}

#[test]
fn a_client_needs_a_runtime() {
    assert_eq!(builder("127.0.0.1:1").build().unwrap_err(), BuildError::NoRuntime);
}

#[tokio::test]
async fn ten_thousand_watches_are_served() {
    let (control_plane, server) = serve(&[]).await;
    let names: Vec<_> = (0..10_000).map(|i| format!("cluster-{i}")).collect();
    control_plane.update(|tx| {
        for name in &names {
            tx.set(cluster(name, "1"));
        }
    });
    let client = client(server.uri());
    let mut watches: Vec<_> = names.iter().map(|name| client.watch::<Cluster>(name)).collect();
    for watch in &mut watches {
        assert_eq!(soon(watch.ready()).await.unwrap().note, "1");
    }
}

async fn serve(clusters: &[(&str, &str)]) -> (ControlPlane, xdskit::control_plane::Server) {
    let control_plane = ControlPlane::new();
    control_plane.update(|tx| {
        for (name, note) in clusters {
            tx.set(cluster(name, note));
        }
    });
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    (control_plane, server)
}

/// Waits for something that nobody tells of.
async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}
