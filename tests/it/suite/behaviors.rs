//! Servers with permitted behavior that occurs in practice.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::time::Duration;

use crate::common::*;
use xdskit::{
    Client, Observed, ResourceSelector,
    control_plane::{Event, ServerHandle, session::Behavior},
};

/// A control plane with a behavior and with clusters, each with its note.
async fn serve_as(behavior: Behavior, clusters: &[(&str, &str)]) -> (ServerHandle, Events) {
    let (control_plane, events) = observed_as(behavior);
    control_plane.update(|tx| {
        for (name, note) in clusters {
            tx.set(cluster(name, note));
        }
    });
    (control_plane.serve("127.0.0.1:0").await.unwrap(), events)
}

/// A client whose streams end as soon as there are no watches.
fn restless_client(transport: Transport, server: &ServerHandle) -> Client {
    transport.builder(server.uri()).idle_stream_timeout(Duration::ZERO).build().unwrap()
}

/// go-control-plane and java-control-plane send nothing for a wildcard with the current version.
fn skipping() -> Behavior {
    let mut behavior = Behavior::default();
    behavior.skip_known_versions = true;
    behavior
}

#[apply(streams)]
async fn b1_6_a_name_that_is_watched_again_after_an_idle_stream_comes_from_a_server_that_skips_known_versions(
    transport: Transport,
) {
    let (server, mut events) = serve_as(skipping(), &[("shop", "one"), ("cart", "two")]).await;
    let client = restless_client(transport, &server);
    for names in [&["shop"][..], &["shop"], &["shop", "cart"], &["cart"]] {
        let mut watches: Vec<_> = names.iter().map(|name| client.watch::<Cluster>(*name)).collect();
        for watch in &mut watches {
            soon(watch.ready()).await.unwrap();
        }
        drop(watches);
        event(&mut events, |event| matches!(event, Event::Closed { .. })).await;
    }
}

#[apply(streams)]
async fn b1_6_a_wildcard_that_is_watched_again_after_an_idle_stream_comes_from_a_server_that_skips_known_versions(
    transport: Transport,
) {
    let (server, mut events) = serve_as(skipping(), &[("shop", "one"), ("cart", "two")]).await;
    let client = restless_client(transport, &server);
    for _ in 0..3 {
        let mut all = client.watch_all::<Cluster>(ResourceSelector::All);
        let members = soon(all.ready()).await.unwrap();
        assert_eq!(members.len(), 2, "{members:?}");
        drop(all);
        event(&mut events, |event| matches!(event, Event::Closed { .. })).await;
    }
}

/// istiod and Consul ignore the names in a NACK.
#[apply(streams)]
async fn names_that_are_watched_while_a_cluster_is_rejected_come_from_a_server_that_ignores_names_in_nacks(
    transport: Transport,
) {
    let mut behavior = Behavior::default();
    behavior.ignore_names_in_nack = true;
    let names: Vec<_> = (0..12).map(|number| format!("shop-{number}")).collect();
    let good: Vec<_> = names.iter().map(|name| (name.as_str(), "one")).collect();
    let (server, _events) = serve_as(behavior, &good).await;
    let client = transport.client(server.uri());
    let mut rejected = client.watch::<Cluster>("rejected");
    for (push, name) in names.iter().enumerate() {
        server.control_plane().set(cluster("rejected", BAD));
        server.control_plane().set(cluster("other", &push.to_string()));
        let mut watch = client.watch::<Cluster>(name.as_str());
        let seen = soon(watch.wait_for(|_| true)).await.unwrap();
        assert!(seen.is_present(), "push {push}: {seen:?}");
    }
    server.control_plane().set(cluster("rejected", "repaired"));
    let seen = soon(rejected.wait_for(Observed::is_present)).await.unwrap();
    assert_eq!(note(&seen), Some("repaired"));
}
