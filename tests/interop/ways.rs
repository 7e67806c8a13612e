//! go-control-plane in other variants than one aggregated stream: with a stream for each type, and over REST.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use serde_json::Value;
use xdskit::{
    Client, ResourceSelector,
    config::{ApiType, Bootstrap},
    error::Code,
    resolve::Snapshot,
    resource::{Cluster, ClusterLoadAssignment, Listener, RouteConfiguration, Secret},
};

use crate::{
    library::{is_good, ready, until, weights, within},
    mesh,
    peer::{NODE, Peer, is_request},
    setup::{Setup, on},
    walk::{self, Hosts},
};

on! { [snapshot_sotw, linear_sotw]: a_tree_is_the_same_over_each_transport }
on! { [snapshot_types_sotw, snapshot_types_delta, linear_types_sotw, linear_types_delta]: each_type_has_a_stream_of_its_own }
on! { [snapshot_rest]:
    go3_the_wildcard_over_rest_names_nothing,
    go16_what_is_new_comes_over_rest_though_its_version_is_not,
    a_rejection_is_not_sent_over_rest,
    a_type_that_the_server_has_nothing_of_does_not_exist_over_rest,
}
on! { [linear_rest]: the_error_of_a_server_that_refuses_to_be_polled_has_its_reason }

async fn a_tree_is_the_same_over_each_transport(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let clients: Vec<_> = setup.ways().map(|api_type| (api_type, client_by(&peer, api_type))).collect();
    for step in ["set base", "canary shop 30", "fail orders-primary", "rename payments paid"] {
        peer.command(step).await;
        for service in ["shop", "cart", "orders", "payments", "inventory"] {
            let mut trees: BTreeMap<String, Vec<&str>> = BTreeMap::new();
            for (api_type, client) in &clients {
                let mut resolution = client.resolve(format!("xds:///{service}"));
                let is_new = |snapshot: &Snapshot| is_after(snapshot, step, service);
                let snapshot = walk::until(&mut resolution, is_new).await;
                trees.entry(tree(&snapshot)).or_default().push(api_type.name());
            }
            assert_eq!(trees.len(), 1, "{service} after {step:?} is {trees:#?}");
        }
    }
}

async fn each_type_has_a_stream_of_its_own(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_by(&peer, setup.api_type);
    walk::ready(&mut client.resolve("xds:///cart")).await;
    for short_type in ["Listener", "RouteConfiguration", "Cluster", "ClusterLoadAssignment"] {
        let opened = |event: &Value| event["event"] == "opened" && event["type"] == short_type;
        let stream = peer.event(short_type, opened).await["stream"].clone();
        let first = peer.event("a request", |event| is_request(event, short_type)).await;
        assert_eq!((&first["stream"], &first["node"]), (&stream, &Value::from(NODE)));
        peer.accepted(short_type, &"1".into()).await;
    }
    let events = peer.events_for(Duration::ZERO).await;
    let types = events.iter().filter(|event| event["event"] == "request");
    let types = types.fold(BTreeMap::new(), |mut types: BTreeMap<_, Vec<_>>, event| {
        types.entry(event["stream"].to_string()).or_default().push(event["type"].to_string());
        types
    });
    assert!(types.len() == 4 && types.values().all(|of| of.iter().all(|one| *one == of[0])), "{types:?}");
}

async fn go3_the_wildcard_over_rest_names_nothing(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_by(&peer, setup.api_type);
    let mut all = client.watch_all::<Cluster>(ResourceSelector::All);
    let members = within("all clusters", all.wait_for(|members| members.is_complete())).await;
    assert_eq!(members.expect("it runs").len(), mesh::clusters().len());
    peer.accepted("Cluster", &"1".into()).await;
    let events = peer.events_for(Duration::ZERO).await;
    assert!(events.iter().all(|event| !is_request(event, "Cluster") || event["names"] == 0), "{events:?}");
}

async fn go16_what_is_new_comes_over_rest_though_its_version_is_not(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_by(&peer, setup.api_type);
    let mut cart = client.watch::<RouteConfiguration>("cart-routes");
    ready(&mut cart).await;
    // Polls continue, with the version, and the response is that nothing has changed.
    let confirms = |event: &Value| is_request(event, "RouteConfiguration") && event["version"] == "1";
    peer.nth_event(3, "that it continues polling", confirms).await;
    assert_eq!(answers(peer.events_for(Duration::ZERO).await), 1);
    assert!(is_good(&cart.latest()));

    ready(&mut client.watch::<RouteConfiguration>("checkout-routes")).await;
    let both = |event: &Value| is_request(event, "RouteConfiguration") && event["names"] == 2;
    assert_eq!(peer.event("a request for both", both).await["version"], "", "or nothing would come");
    peer.command("update canary 55 45").await;
    until(&mut cart, |seen| seen.resource().is_some_and(|now| weights(now, "cart")[0].1 == 55)).await;
}

async fn a_rejection_is_not_sent_over_rest(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_by(&peer, setup.api_type);
    let mut payments = client.watch::<Cluster>("payments");
    let mut inventory = client.watch::<Cluster>("inventory");
    ready(&mut payments).await;
    ready(&mut inventory).await;
    peer.accepted("Cluster", &"1".into()).await;
    let version = peer.command("invalid").await["Cluster"].clone();
    until(&mut payments, |seen| seen.error().is_some_and(|why| why.is_rejected())).await;
    until(&mut inventory, |seen| seen.resource().is_some_and(|now| now.max_requests == 77)).await;
    let answered = |event: &Value| event["event"] == "response" && event["version"] == version;
    peer.nth_event(3, "that it is sent again and again", answered).await;
    let events = peer.events_for(Duration::ZERO).await;
    let is_reported = |event: &&Value| {
        is_request(event, "Cluster") && (!event["error"].is_null() || event["version"] == version)
    };
    assert_eq!(events.iter().find(is_reported), None, "D11");
    peer.command("valid").await;
    until(&mut payments, is_good).await;
}

async fn a_type_that_the_server_has_nothing_of_does_not_exist_over_rest(setup: Setup) {
    let peer = Peer::start(setup).await;
    let client = client_by(&peer, setup.api_type);
    // The version without resources is that of a client without resources, so the response is that nothing has
    // changed.
    let mut secret = client.watch::<Secret>("certificate");
    let seen = until(&mut secret, |seen| seen.error().is_some()).await;
    assert_eq!(seen.error().map(|why| why.code()), Some(Code::NotFound), "{seen:?}");
    ready(&mut client.watch::<Listener>("shop")).await;
}

async fn the_error_of_a_server_that_refuses_to_be_polled_has_its_reason(setup: Setup) {
    let peer = Peer::start(setup).await;
    let client = client_by(&peer, setup.api_type);
    let mut endpoints = client.watch::<ClusterLoadAssignment>("payments-endpoints");
    let seen = until(&mut endpoints, |seen| seen.error().is_some()).await;
    let why = seen.error().expect("it was waited for");
    assert!(why.is_transient() && why.to_string().contains("fetch is not implemented"), "{why}");
}

/// A client of a server with one of the variants.
fn client_by(peer: &Peer, api_type: ApiType) -> Client {
    let bootstrap = Bootstrap::from_json(&peer.bootstrap_for(api_type)).expect("the bootstrap is valid");
    let builder = Client::builder(bootstrap).dns(Hosts).resource_timeout(Duration::from_secs(3));
    builder.build().expect("a client can be built")
}

/// The contents of a snapshot, as text.
fn tree(snapshot: &Snapshot) -> String {
    let (listener, routes) = (snapshot.listener(), snapshot.route_config());
    let host = &snapshot.virtual_host().name;
    let mut text = format!("{listener:#?}\n{routes:#?}\n{host}\n");
    for cluster in snapshot.clusters() {
        let _ = writeln!(text, "{cluster:#?}"); // to a text
    }
    without_remarks(&text)
}

/// Fields that our messages lack are unknown in JSON, so that they are in the remarks on binary messages alone.
fn without_remarks(tree: &str) -> String {
    let mut rest = String::new();
    let mut end = None;
    for line in tree.lines() {
        let field = line.trim_start();
        if end.is_some() {
            end = end.filter(|end| *end != line);
        } else if field.starts_with("remarks: ") {
            let indent = &line[..line.len() - field.len()];
            end = (!field.ends_with(',')).then(|| format!("{indent}}},"));
        } else {
            rest.push_str(line);
            rest.push('\n');
        }
    }
    rest
}

/// Whether a snapshot of a service reflects a command, if the command affects it.
fn is_after(snapshot: &Snapshot, command: &str, service: &str) -> bool {
    let cluster = |name: &str| snapshot.cluster(name);
    match (command, service) {
        ("canary shop 30", "shop") => {
            walk::weights(snapshot) == [("shop-stable".to_owned(), 70), ("shop-canary".to_owned(), 30)]
        }
        ("fail orders-primary", "orders") => cluster("orders-primary")
            .is_some_and(|primary| primary.usable_endpoints_of_all_priorities().next().is_none()),
        ("rename payments paid", "payments") => cluster("paid").is_some() && cluster("payments").is_none(),
        _ => true,
    }
}

/// The number of responses of the gateway.
fn answers(events: &[Value]) -> usize {
    events.iter().filter(|event| event["event"] == "response").count()
}
