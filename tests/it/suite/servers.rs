//! Watches during changes of servers, the subscriptions that servers receive, and the end of watches.

use crate::common::*;
use crate::transport::Transport;
use futures_util::FutureExt;
use macro_rules_attribute::apply;
use xdskit::{
    Observed,
    client::BuildError,
    control_plane::session::Held,
    error::{Blame, Code},
};

#[apply(servers)]
async fn a_watcher_that_never_reads_slows_nobody(transport: Transport) {
    let (control_plane, server) = serve(&[("shop", "0")]).await;
    let client = transport.client(server.uri());
    let (mut lazy, mut busy) = (client.watch::<Cluster>("shop"), client.watch::<Cluster>("shop"));
    for version in 1..=200 {
        let version = version.to_string();
        control_plane.set(cluster("shop", &version));
        soon(busy.wait_for(|seen| note(seen) == Some(version.as_str()))).await.unwrap();
    }
    assert_eq!(note(&soon(lazy.next()).await.unwrap()), Some("200"));
    assert_eq!(lazy.next().now_or_never(), None, "no queue of old states");
}

#[apply(servers)]
async fn names_are_given_up_with_their_last_watch(transport: Transport) {
    let (control_plane, mut events) = observed();
    control_plane.set(cluster("shop", "one"));
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    let client = transport.client(server.uri());
    let mut watches = [client.watch::<Cluster>("shop"), client.watch::<Cluster>("shop")];
    let mut other = client.watch::<Cluster>("other");
    soon(watches[0].ready()).await.unwrap();
    events.until_subscribed(&["other", "shop"]).await;
    drop(watches);
    events.until_subscribed(&["other"]).await;
    control_plane.set(cluster("other", "here"));
    assert_eq!(note(&soon(other.wait_for(Observed::is_present)).await.unwrap()), Some("here"));
    let again = client.watch::<Cluster>("shop");
    assert!(again.latest().is_pending());
    events.until_subscribed(&["other", "shop"]).await;
}

#[apply(servers)]
async fn a_server_that_is_not_there_is_unavailable_until_it_is(transport: Transport) {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let (addr, uri) = (server.addr(), server.uri());
    server.shutdown().await;
    let client = transport.client(uri.clone());
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

#[apply(servers)]
async fn a_restart_of_the_server_loses_nothing(transport: Transport) {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let addr = server.addr();
    let client = transport.client(server.uri());
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

#[apply(servers)]
async fn all_watches_end_when_the_client_is_shut_down(transport: Transport) {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let client = transport.client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    control_plane.set_held(Held::all());
    let mut missing = client.watch::<Cluster>("missing");
    soon(client.shutdown()).await;
    soon(client.clone().shutdown()).await;
    assert!(soon(shop.next()).await.is_none());
    assert!(soon(missing.next()).await.is_none());
    assert_eq!(note(&shop.latest()), Some("one"));
    assert!(soon(shop.ready()).await.is_ok(), "the last known one");
    assert_eq!(soon(client.watch::<Cluster>("late").ready()).await.unwrap_err().code(), Code::Cancelled);
    assert_eq!(soon(missing.ready()).await.unwrap_err().code(), Code::Cancelled);
    assert!(soon(client.watch::<Cluster>("late").next()).await.is_none());
    soon(until(|| control_plane.streams() == 0)).await;
}

#[apply(servers)]
async fn the_driver_ends_when_the_last_handle_is_dropped(transport: Transport) {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let (client, driver) = transport.builder(server.uri()).build_with_driver().unwrap();
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

#[apply(servers)]
async fn watches_end_when_the_driver_is_dropped(transport: Transport) {
    let (client, driver) = transport.builder("127.0.0.1:1").build_with_driver().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    drop(driver);
    assert!(soon(shop.next()).await.is_none());
}

#[apply(servers)]
fn a_client_needs_a_runtime(transport: Transport) {
    assert_eq!(transport.builder("127.0.0.1:1").build().unwrap_err(), BuildError::NoRuntime);
}

/// Waits for a condition without a notification.
async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}
