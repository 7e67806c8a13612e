//! The output of `walk --json` for go-control-plane's mesh, driven by a script.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tokio::{process::Command, time::Instant};

use crate::{
    mesh,
    peer::{NODE, Peer, program},
    process::{PATIENCE, Process},
    setup::{Setup, on, on_all_but_java_delta},
};

on_all_but_java_delta! {
    the_whole_mesh_is_walked,
    no_line_is_torn_while_canaries_move_and_clusters_are_renamed,
    an_aggregate_is_seen_to_fail_over,
}
// Not with java-control-plane, which does not send a resource again after an unsubscription and a new subscription at
// the same version.
on! { [snapshot_sotw, snapshot_delta, linear_sotw, linear_delta]: a_missing_cluster_a_missing_target_and_a_server_that_is_down_are_errors }

async fn the_whole_mesh_is_walked(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    peer.command("fallback localhost").await; // the only host that is known everywhere
    let mut walk = Walk::start(&peer, mesh::SERVICES);
    walk.until("all of it", |seen| seen.len() == mesh::SERVICES.len(), assert_whole).await;
    let (mut clusters, mut endpoints) = (BTreeSet::new(), BTreeSet::new());
    for service in mesh::SERVICES {
        let line = &walk.seen[service];
        let fields = ["listener", "route_config", "virtual_host"].map(|field| &line[field]);
        assert_eq!(fields, [service, &format!("{service}-routes"), service]);
        assert_eq!(line["warnings"], json!([]));
        for (name, cluster) in clusters_of(line) {
            clusters.insert(name.clone());
            if cluster["kind"] == "eds" {
                endpoints.extend(texts(&cluster["endpoints"]));
            }
        }
    }
    assert_eq!(clusters.into_iter().collect::<Vec<_>>(), mesh::clusters());
    assert_eq!(endpoints.into_iter().collect::<Vec<_>>(), mesh::addresses());

    let orders = &walk.seen["orders"]["clusters"];
    assert_eq!(orders["orders"]["kind"], "aggregate");
    assert_eq!(orders["orders"]["leaves"], json!(["orders-primary", "orders-fallback"]));
    assert_eq!(orders["orders-fallback"]["kind"], "logical_dns");
}

async fn no_line_is_torn_while_canaries_move_and_clusters_are_renamed(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let mut walk = Walk::start(&peer, ["shop", "cart", "payments", "email"]);
    walk.until("the mesh", |seen| seen.len() == 4, assert_whole).await;
    for (round, weight) in [0, 25, 50, 75, 100].into_iter().enumerate() {
        peer.command(&format!("canary shop {weight}")).await;
        peer.command(&format!("canary cart {weight}")).await;
        peer.command(&format!("rename payments payments-{round}")).await;
        peer.command(&format!("rename email email-{round}")).await;
        let alone = |seen: &Seen, service: &str| {
            names(&seen[service]) == [format!("{service}-{round}")] && is_complete(&seen[service], service)
        };
        let is_met = |seen: &Seen| alone(seen, "payments") && alone(seen, "email");
        walk.until("the new names", is_met, assert_whole).await;
    }
    // A cluster without weight is not a cluster of the routes.
    let moved = |seen: &Seen| {
        names(&seen["shop"]) == ["shop-canary".to_owned()]
            && names(&seen["cart"]) == ["cart-canary".to_owned()]
    };
    walk.until("the canaries alone", moved, assert_whole).await;
}

async fn a_missing_cluster_a_missing_target_and_a_server_that_is_down_are_errors(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let mut walk = Walk::start_impatient(&peer, ["users", "no-such-service"]);
    let never = |seen: &Seen| code(&seen["no-such-service"]) == "NOT_FOUND";
    walk.until("that there is no such target", |seen| seen.len() == 2 && never(seen), |_| {}).await;
    assert!(message(&walk.seen["no-such-service"]).contains(NODE));

    peer.command("lose users").await;
    let lost = |seen: &Seen| code(&seen["users"]["clusters"]["users-lost"]) == "NOT_FOUND";
    walk.until("that there is no such cluster", lost, |_| {}).await;
    let cluster = &walk.seen["users"]["clusters"]["users-lost"];
    assert_eq!((&cluster["kind"], &cluster["endpoints"]), (&Value::Null, &json!([])));
    assert!(message(cluster).contains("users-lost"));

    peer.command("find users").await;
    walk.until("the cluster", |seen| names(&seen["users"]) == ["users".to_owned()], |_| {}).await;
    peer.command("stop").await;
    let stale = |seen: &Seen| seen["users"]["warnings"][0]["code"] == "UNAVAILABLE";
    walk.until("that it may be stale", stale, |_| {}).await;
    assert!(is_complete(&walk.seen["users"], "users"));
    peer.command("start").await;
    walk.until("the end of that", |seen| seen["users"]["warnings"] == json!([]), |_| {}).await;
}

async fn an_aggregate_is_seen_to_fail_over(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    peer.command("fallback localhost").await;
    let mut walk = Walk::start(&peer, ["orders"]);
    let of = |seen: &Seen, cluster: &str| texts(&seen["orders"]["clusters"][cluster]["endpoints"]).len();
    let healthy = |seen: &Seen| seen.contains_key("orders") && of(seen, "orders-primary") == 8;
    walk.until("the primary", healthy, assert_whole).await;
    peer.command("fail orders-primary").await;
    let failed = |seen: &Seen| of(seen, "orders-primary") == 0 && of(seen, "orders-fallback") > 0;
    walk.until("the fallback alone", failed, assert_whole).await;
    peer.command("heal orders-primary").await;
    walk.until("the primary again", healthy, assert_whole).await;
}

/// A running `walk --json`, and the latest line for each target, by its service.
struct Walk {
    process: Process,
    seen: Seen,
}

type Seen = BTreeMap<String, Value>;

impl Walk {
    fn start<'a>(peer: &Peer, services: impl IntoIterator<Item = &'a str>) -> Self {
        Self::start_with(&[], peer, services)
    }

    /// Starts it with a resource timeout of three seconds.
    fn start_impatient<'a>(peer: &Peer, services: impl IntoIterator<Item = &'a str>) -> Self {
        Self::start_with(&["--resource-timeout", "3"], peer, services)
    }

    fn start_with<'a>(options: &[&str], peer: &Peer, services: impl IntoIterator<Item = &'a str>) -> Self {
        let mut command = Command::new(program("XDSKIT_INTEROP_WALK"));
        command.arg("--bootstrap").arg(peer.bootstrap_path()).arg("--json").args(options);
        command.args(services.into_iter().map(|service| format!("xds:///{service}")));
        Self { process: Process::start("walk", &mut command), seen: Seen::new() }
    }

    /// Waits until the lines fulfil a condition; `mind` checks each line.
    async fn until(&mut self, what: &str, is_met: impl Fn(&Seen) -> bool, mind: impl Fn(&Value)) {
        let deadline = Instant::now() + PATIENCE;
        while !is_met(&self.seen) {
            let Some(line) = self.process.line(deadline.saturating_duration_since(Instant::now())).await
            else {
                panic!("walk does not show {what}; the latest: {:#?}", self.seen)
            };
            mind(&line);
            let target = line["target"].as_str().expect("each line has it");
            let service = target.strip_prefix("xds:///").expect("targets have that form");
            self.seen.insert(service.to_owned(), line);
        }
    }
}

/// Checks that all of a target's clusters are usable.
fn assert_whole(line: &Value) {
    assert!(line["error"].is_null() && !clusters_of(line).is_empty(), "{line}");
    for (name, cluster) in clusters_of(line) {
        let leads_on = cluster["kind"] == "aggregate" && !texts(&cluster["leaves"]).is_empty();
        let has_endpoints = !texts(&cluster["endpoints"]).is_empty() || name == "orders-primary";
        assert!(cluster["error"].is_null() && (leads_on || has_endpoints), "{name}: {line}");
    }
}

/// Whether the only cluster of a target has all the endpoints of the service.
fn is_complete(line: &Value, service: &str) -> bool {
    let endpoints =
        clusters_of(line).values().flat_map(|cluster| texts(&cluster["endpoints"])).collect::<BTreeSet<_>>();
    endpoints.into_iter().eq(mesh::addresses_of(service))
}

fn clusters_of(line: &Value) -> &serde_json::Map<String, Value> {
    line["clusters"].as_object().unwrap_or_else(|| panic!("no clusters: {line}"))
}

fn names(line: &Value) -> Vec<String> {
    clusters_of(line).keys().cloned().collect()
}

fn texts(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten();
    texts.map(|text| text.as_str().expect("a list of texts").to_owned()).collect()
}

fn code(of: &Value) -> &str {
    of["error"]["code"].as_str().unwrap_or_default()
}

fn message(of: &Value) -> &str {
    of["error"]["message"].as_str().unwrap_or_default()
}
