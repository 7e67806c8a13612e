//! Watches of the resources of an embedded control plane, over any transport.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::{pin::pin, time::Duration};

use crate::common::{BAD, Cluster, Serves, cluster, note, serve, soon};
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use xdskit::{
    Client, Observed, ResourceSelector, WatchError,
    control_plane::type_url,
    error::{Blame, Code},
};

#[apply(every_transport)]
async fn a_watch_sees_the_resource_and_its_changes(transport: Transport) {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let client = client(transport, &server);
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

#[apply(every_transport)]
async fn ready_gives_the_resource_or_the_reason(transport: Transport) {
    let (_, server) = serve(&[("shop", "one")]).await;
    let client = transport.builder_of(&server).resource_timeout(Duration::from_millis(50)).build().unwrap();
    assert_eq!(soon(client.watch::<Cluster>("shop").ready()).await.unwrap().note, "one");
    let error = soon(client.watch::<Cluster>("missing").ready()).await.unwrap_err();
    assert_eq!((error.code(), error.name(), error.node_id()), (Code::NotFound, "missing", "test-node"));
    let error = soon(client.watch::<Cluster>("").ready()).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (Code::InvalidArgument, Blame::Local));
}

#[apply(every_transport)]
async fn ready_counts_as_seen_and_can_be_called_again(transport: Transport) {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let client = client(transport, &server);
    let mut shop = client.watch::<Cluster>("shop");
    for _ in 0..2 {
        assert_eq!(soon(shop.ready()).await.unwrap().note, "one");
    }
    control_plane.set(cluster("shop", "two"));
    assert_eq!(note(&soon(shop.next()).await.unwrap()), Some("two"));
}

#[apply(every_transport)]
async fn wait_for_waits_through_other_states(transport: Transport) {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let client = client(transport, &server);
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

#[apply(every_transport)]
async fn a_watcher_that_joins_sees_the_current_state_first(transport: Transport) {
    let (_, server) = serve(&[("shop", "one")]).await;
    let client = client(transport, &server);
    let mut first = client.watch::<Cluster>("shop");
    soon(first.next()).await.unwrap();
    let seen = client.watch::<Cluster>("shop").next().now_or_never();
    assert_eq!(note(&seen.expect("at once").unwrap()), Some("one"));
    let seen = first.clone().next().now_or_never();
    assert_eq!(note(&seen.expect("at once").unwrap()), Some("one"));
}

#[apply(every_transport)]
async fn on_change_calls_until_its_guard_is_dropped(transport: Transport) {
    let (control_plane, server) = serve(&[("shop", "one")]).await;
    let client = client(transport, &server);
    let (calls, mut called) = mpsc::unbounded_channel();
    let guard = client.on_change::<Cluster, _>("shop", move |seen| calls.send(seen.clone()).unwrap());
    assert_eq!(note(&soon(called.recv()).await.unwrap()), Some("one"));
    control_plane.set(cluster("shop", "two"));
    assert_eq!(note(&soon(called.recv()).await.unwrap()), Some("two"));
    drop(guard);
    control_plane.set(cluster("shop", "three"));
    assert!(soon(called.recv()).await.is_none(), "the callback is dropped, not called");
}

#[apply(every_transport)]
async fn ready_after_a_shutdown_is_the_last_state_and_cancelled_without_one(transport: Transport) {
    let (_, server) = serve(&[("shop", "one")]).await;
    let client = client(transport, &server);
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    client.shutdown().await;
    for _ in 0..2 {
        assert_eq!(soon(shop.ready()).await.unwrap().note, "one");
    }
    assert!(soon(shop.next()).await.is_none());
    let late = soon(client.watch::<Cluster>("late").ready()).await.unwrap_err();
    assert_eq!((late.code(), late.reason()), (Code::Cancelled, "the client was shut down"));
}

#[apply(every_transport)]
async fn watch_all_sees_all_members(transport: Transport) {
    let (control_plane, server) = serve(&[("b", "1"), ("a", "1")]).await;
    let client = client(transport, &server);
    let mut all = client.watch_all::<Cluster>(ResourceSelector::All);
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

#[apply(every_transport)]
async fn changes_gives_the_members_that_changed(transport: Transport) {
    let (control_plane, server) = serve(&[("a", "1"), ("b", "1")]).await;
    let client = client(transport, &server);
    let mut changes = client.watch_all::<Cluster>(ResourceSelector::All).changes();
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

#[apply(every_transport)]
async fn ten_thousand_watches_are_served(transport: Transport) {
    let (control_plane, server) = serve(&[]).await;
    let names: Vec<_> = (0..10_000).map(|i| format!("cluster-{i}")).collect();
    control_plane.update(|tx| {
        for name in &names {
            tx.set(cluster(name, "1"));
        }
    });
    let client = client(transport, &server);
    let mut watches: Vec<_> = names.iter().map(|name| client.watch::<Cluster>(name)).collect();
    for watch in &mut watches {
        assert_eq!(soon(watch.ready()).await.unwrap().note, "1");
    }
}

fn client(transport: Transport, server: &impl Serves) -> Client {
    transport.builder_of(server).build().unwrap()
}
