//! The output of `watch --json` for go-control-plane's mesh.

use std::time::Duration;

use serde_json::Value;

use crate::{
    mesh,
    peer::{NODE, Peer, is_request},
    setup::{Setup, on, on_all, on_all_but_java_delta},
    watch::{Seen, Watch, holds_number, is_good, latest, texts},
};

on_all! {
    the_whole_mesh_is_seen,
    a_crash_of_the_server_loses_nothing,
}
// java-control-plane never sends a resource again after its removal, if the client subscribed to it by name.
on_all_but_java_delta! {
    what_is_removed_is_absent,
}
// java-control-plane assumes that a client that rejects a response has received nothing of it, and does not correct
// the rest.
on_all_but_java_delta! {
    an_invalid_cluster_keeps_its_last_good_and_holds_up_no_other,
    five_thousand_clusters_come_and_go,
}
on_all_but_java_delta! {
    a_drained_endpoint_and_a_canary_show_at_once,
    commands_add_and_end_watches,
}
on! { [snapshot_sotw, java_sotw]: go1_the_nack_loop_is_paced }

async fn the_whole_mesh_is_seen(setup: Setup) {
    let peer = Peer::start(setup).await;
    let mut targets = vec!["listener=*".to_owned(), "cluster=*".to_owned()];
    targets.extend(mesh::services_with_rds().iter().map(|service| format!("route={service}-routes")));
    targets.extend(mesh::endpoint_clusters().iter().map(|cluster| format!("endpoints={cluster}-endpoints")));
    let mut watch = Watch::start(&peer, &targets);

    let total =
        25 + mesh::clusters().len() + mesh::services_with_rds().len() + mesh::endpoint_clusters().len();
    watch.until("the whole mesh", |seen| seen.len() == total && seen.values().all(is_good)).await;

    let mut listeners = mesh::SERVICES.to_vec();
    listeners.sort();
    assert_eq!(members(watch.seen(), "listener=*"), listeners);
    assert_eq!(members(watch.seen(), "cluster=*"), mesh::clusters());
    let endpoints = |watched: &str| watched.starts_with("endpoints=");
    let all: Vec<_> = watch
        .seen()
        .iter()
        .filter(|((watched, _), _)| endpoints(watched))
        .flat_map(|(_, line)| texts(line))
        .collect();
    let mut addresses: Vec<_> = all.iter().copied().filter(|text| text.starts_with("10.1.")).collect();
    addresses.sort();
    assert_eq!(addresses, mesh::addresses());
    for zone in ["eu-a", "eu-b", "eu-c"] {
        assert!(all.iter().any(|text| text.contains(zone)), "{zone} is not in {all:?}");
    }
}

async fn a_drained_endpoint_and_a_canary_show_at_once(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let mut watch =
        Watch::start(&peer, ["route=cart-routes", "endpoints=payments-endpoints", "listener=shop"]);
    watch.until("the start", |seen| seen.len() == 3 && seen.values().all(is_good)).await;
    assert!(!texts(watch.latest("endpoints=payments-endpoints")).iter().any(|text| is_draining(text)));

    let versions = peer.command("drain 10.1.5.3:8080").await;
    watch
        .until("the drained endpoint", |seen| {
            texts(latest(seen, "endpoints=payments-endpoints")).iter().any(|text| is_draining(text))
        })
        .await;
    if !setup.is_delta() {
        let version = &watch.latest("endpoints=payments-endpoints")["version"];
        assert_eq!(*version, versions["ClusterLoadAssignment"]);
    }

    // One canary has RDS, the other inline routes.
    peer.command("update canary 83 17").await;
    let weighs = |seen: &Seen, watched: &str| {
        holds_number(latest(seen, watched), 83) && holds_number(latest(seen, watched), 17)
    };
    let lines = watch
        .until("the canary", |seen| weighs(seen, "route=cart-routes") && weighs(seen, "listener=shop"))
        .await;
    assert_eq!(lines, 6, "one line for each change");
}

async fn an_invalid_cluster_keeps_its_last_good_and_holds_up_no_other(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let mut watch = Watch::start(&peer, ["cluster=payments", "cluster=inventory"]);
    watch.until("the start", |seen| seen.len() == 2 && seen.values().all(is_good)).await;
    let good = watch.latest("cluster=payments").clone();

    let versions = peer.command("invalid").await;
    watch
        .until("both changes", |seen| {
            !latest(seen, "cluster=payments")["warning"].is_null()
                && holds_number(latest(seen, "cluster=inventory"), 77)
        })
        .await;
    let bad = watch.latest("cluster=payments");
    assert_eq!(
        (&bad["state"], &bad["version"], &bad["resource"]),
        (&good["state"], &good["version"], &good["resource"])
    );
    assert_eq!(bad["warning"]["code"], "INVALID_ARGUMENT");
    let message = bad["warning"]["message"].as_str().unwrap_or_default();
    for part in ["Cluster", "payments", "ring_hash_lb_config", NODE] {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    let other = watch.latest("cluster=inventory");
    assert!(is_good(other), "{other}");

    let nack =
        peer.event("the NACK", |event| is_request(event, "Cluster") && !event["error"].is_null()).await;
    assert_eq!(nack["error"]["code"], 3);
    if !setup.is_delta() {
        assert_eq!((&other["version"], &nack["version"]), (&versions["Cluster"], &Value::from("1")));
    }
    let message = nack["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("payments") && !message.contains("inventory"), "{message}");

    peer.command("valid").await;
    watch
        .until("the end of it", |seen| {
            seen.values().all(is_good) && !holds_number(latest(seen, "cluster=inventory"), 77)
        })
        .await;
}

/// go-control-plane sends a rejected response again at once, without limit: a client without pacing would send
/// thousands of NACKs a second.
async fn go1_the_nack_loop_is_paced(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let mut watch = Watch::start(&peer, ["cluster=payments"]);
    watch.until("the start", |seen| seen.values().any(is_good)).await;
    peer.command("invalid").await;
    watch.until("the warning", |seen| seen.values().any(|line| !line["warning"].is_null())).await;
    let events = peer.events_for(Duration::from_secs(3)).await;
    let nacks =
        events.iter().filter(|event| is_request(event, "Cluster") && !event["error"].is_null()).count();
    assert!((1..=6).contains(&nacks), "{nacks} NACKs in 3 s");
}

async fn a_crash_of_the_server_loses_nothing(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let mut watch = Watch::start(
        &peer,
        ["listener=*", "cluster=payments", "route=cart-routes", "endpoints=payments-endpoints"],
    );
    watch.until("the start", |seen| seen.len() == 28 && seen.values().all(is_good)).await;
    peer.accepted("RouteConfiguration", &"1".into()).await;
    let port = peer.kill().await;
    let never_absent = |line: &Value| assert_ne!(line["state"], "absent", "{line}");
    let unreachable = |line: &Value| line["warning"]["code"] == "UNAVAILABLE";
    watch.until_minding("the lost server", |seen| seen.values().all(unreachable), never_absent).await;

    let mut peer = Peer::start_on(setup, port).await;
    peer.command("update canary 61 39").await;
    watch
        .until_minding(
            "the mesh of the new server",
            |seen| seen.values().all(is_good) && holds_number(latest(seen, "route=cart-routes"), 61),
            never_absent,
        )
        .await;
}

async fn what_is_removed_is_absent(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let mut watch = Watch::start(&peer, ["listener=audit", "cluster=audit", "route=audit-routes"]);
    // Not in the same client: with `*` beside a name, this release treats it as a name, too (GO3).
    let mut all = Watch::start(&peer, ["cluster=*"]);
    watch.until("the start", |seen| seen.len() == 3 && seen.values().all(is_good)).await;
    all.until("all clusters", |seen| seen.len() == mesh::clusters().len() && seen.values().all(is_good))
        .await;

    peer.command("remove audit").await;
    let gone = |line: &Value| line["state"] == "absent" && line["error"]["code"] == "NOT_FOUND";
    watch
        .until("the removal", |seen| {
            gone(latest(seen, "listener=audit")) && gone(latest(seen, "cluster=audit"))
        })
        .await;
    if setup.is_delta() {
        watch.until("the removal", |seen| gone(latest(seen, "route=audit-routes"))).await;
    } else {
        // B1.11: a route configuration that a response omits is not removed.
        assert!(is_good(watch.latest("route=audit-routes")));
    }
    all.until("the removal", |seen| gone(&seen[&("cluster=*".to_owned(), "audit".to_owned())])).await;
    assert_eq!(all.seen().values().filter(|line| gone(line)).count(), 1);

    peer.command("set base").await;
    watch.until("its return", |seen| seen.values().all(is_good)).await;
    all.until("its return", |seen| seen.values().all(is_good)).await;
}

async fn five_thousand_clusters_come_and_go(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let versions = peer.command("clusters 5000").await;
    let mut watch = Watch::start(&peer, ["cluster=*"]);
    let all = 5000 + mesh::clusters().len();
    let lines = watch.until("all clusters", |seen| seen.len() == all).await;
    assert_eq!(lines, all);
    assert!(watch.seen().values().all(is_good));
    peer.accepted("Cluster", &versions["Cluster"]).await;

    // Each change is one line.
    peer.command("invalid").await;
    let changed = |seen: &Seen, name: &str| seen[&("cluster=*".to_owned(), name.to_owned())].clone();
    let lines = watch
        .until("the change", |seen| {
            holds_number(&changed(seen, "inventory"), 77) && !changed(seen, "payments")["warning"].is_null()
        })
        .await;
    assert_eq!(lines, all + 2);

    peer.command("set base").await;
    let absent = |seen: &Seen| seen.values().filter(|line| line["state"] == "absent").count();
    watch.until("their end", |seen| absent(seen) == 5000 && is_good(&changed(seen, "payments"))).await;
}

async fn commands_add_and_end_watches(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let mut watch = Watch::start_impatient(&peer, ["listener=shop"]);
    watch.until("the listener", |seen| is_good(latest(seen, "listener=shop"))).await;
    watch.send("watch cluster=payments").await;
    watch.send("watch cluster=no-such-cluster").await;
    watch.until("the cluster", |seen| is_good(latest(seen, "cluster=payments"))).await;
    // The server sends no response for missing resources: the does-not-exist timer expires.
    watch
        .until("the missing cluster", |seen| {
            latest(seen, "cluster=no-such-cluster")["error"]["code"] == "NOT_FOUND"
        })
        .await;

    watch.send("unwatch cluster=no-such-cluster").await;
    let one_name = |event: &Value| is_request(event, "Cluster") && event["names"] == 1;
    peer.event("the first request", one_name).await;
    peer.events_for(Duration::ZERO).await;
    watch.send("quit").await;
    assert!(watch.exit().await.success());
}

fn members<'a>(seen: &'a Seen, watched: &str) -> Vec<&'a str> {
    seen.keys().filter(|(kind, _)| kind == watched).map(|(_, name)| name.as_str()).collect()
}

fn is_draining(text: &str) -> bool {
    text.eq_ignore_ascii_case("draining")
}
