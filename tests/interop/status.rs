//! The client status service as gRPC's own implementation in Go sees it, with the messages of Envoy's API.

use std::collections::BTreeSet;

use serde_json::Value;
use tokio::{net::TcpListener, process::Command, time::timeout};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use xdskit::{Client, config::Bootstrap, csds::ClientStatusService, resource::Cluster};

use crate::{
    peer::{NODE, Peer, program},
    process::{PATIENCE, Process},
    setup::{Setup, on},
};

on! { [snapshot_sotw, snapshot_delta]: csds_shows_a_client_in_go_what_this_one_knows }

async fn csds_shows_a_client_in_go_what_this_one_knows(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let bootstrap = Bootstrap::from_json(&peer.bootstrap()).expect("a bootstrap");
    let client = Client::builder(bootstrap).scope("xds:///cart").build().expect("a client");
    let service = ClientStatusService::new();
    service.add(&client);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it has one").to_string();
    let server = Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let mut cart = client.resolve("xds:///cart");
    timeout(PATIENCE, cart.ready()).await.expect("in time").expect("a tree");
    let mut payments = client.watch::<Cluster>("payments");
    timeout(PATIENCE, payments.ready()).await.expect("in time").expect("a cluster");
    let config = ask(&address).await;
    assert_eq!(config["clientScope"], "xds:///cart");
    assert_eq!(config["node"]["id"], NODE);
    assert_eq!(config["node"]["userAgentName"], "xdskit");
    let resources = resources(&config);
    let states: BTreeSet<_> = resources.iter().map(|shown| shown["clientStatus"].to_string()).collect();
    assert_eq!(states, BTreeSet::from(["\"ACKED\"".to_owned()]), "{config}");
    let shown = the(resources, "payments");
    // Go knows the type, and has decoded the bytes.
    assert_eq!(shown["xdsConfig"]["name"], "payments");
    assert_eq!(shown["xdsConfig"]["@type"], shown["typeUrl"]);
    assert!(shown["versionInfo"].is_string() && shown["lastUpdated"].is_string(), "{shown}");
    for type_name in ["Listener", "RouteConfiguration", "Cluster", "ClusterLoadAssignment"] {
        let of_type = |shown: &&Value| shown["typeUrl"].as_str().is_some_and(|url| url.ends_with(type_name));
        assert!(resources.iter().any(|shown| of_type(&shown)), "no {type_name}: {config}");
    }

    peer.command("invalid").await;
    let rejected = payments.wait_for(|seen| seen.error().is_some_and(|error| error.is_rejected()));
    timeout(PATIENCE, rejected).await.expect("in time").expect("a client");
    let config = ask(&address).await;
    let shown = the(self::resources(&config), "payments");
    assert_eq!((&shown["clientStatus"], &shown["xdsConfig"]["name"]), (&"NACKED".into(), &"payments".into()));
    let error = &shown["errorState"];
    assert!(error["details"].as_str().is_some_and(|text| text.contains(NODE)), "{shown}");
    assert!(error["lastUpdateAttempt"].is_string() && error["versionInfo"].is_string(), "{shown}");
}

/// What the only client of a process says.
async fn ask(address: &str) -> Value {
    let mut command = Command::new(program("XDSKIT_INTEROP_GCP"));
    let mut asking = Process::start("gcp -csds", command.args(["-csds", address]));
    let answer = asking.line(PATIENCE).await;
    let answer = answer.unwrap_or_else(|| panic!("no answer:\n{}", asking.log()));
    assert!(asking.exit().await.success());
    answer["config"][0].clone()
}

fn resources(config: &Value) -> &[Value] {
    config["genericXdsConfigs"].as_array().expect("resources")
}

fn the<'a>(resources: &'a [Value], name: &str) -> &'a Value {
    resources.iter().find(|shown| shown["name"] == name).unwrap_or_else(|| panic!("no {name}: {resources:?}"))
}
