//! The client status service, read by gRPC's own implementation in Go with the messages of Envoy's API.

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
on! { [snapshot_sotw]: the_tool_shows_what_a_grpc_client_in_go_knows }

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
    let config = query(&address).await;
    assert_eq!(config["clientScope"], "xds:///cart");
    assert_eq!(config["node"]["id"], NODE);
    assert_eq!(config["node"]["userAgentName"], "xdskit");
    let resources = resources(&config);
    let states: BTreeSet<_> = resources.iter().map(|shown| shown["clientStatus"].to_string()).collect();
    assert_eq!(states, BTreeSet::from(["\"ACKED\"".to_owned()]), "{config}");
    let shown = the(resources, "payments");
    // Go has the type, and has decoded the bytes.
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
    let config = query(&address).await;
    let shown = the(self::resources(&config), "payments");
    assert_eq!((&shown["clientStatus"], &shown["xdsConfig"]["name"]), (&"NACKED".into(), &"payments".into()));
    let error = &shown["errorState"];
    assert!(error["details"].as_str().is_some_and(|text| text.contains(NODE)), "{shown}");
    assert!(error["lastUpdateAttempt"].is_string() && error["versionInfo"].is_string(), "{shown}");
}

/// `xdskit status` with gRPC's own client status service.
async fn the_tool_shows_what_a_grpc_client_in_go_knows(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let mut command = Command::new(program("XDSKIT_INTEROP_GRPC_GO"));
    command
        .args(["-server", "xds:///cart", "-stats_port", "0"])
        .env("GRPC_XDS_BOOTSTRAP", peer.bootstrap_path());
    let mut grpc = Process::start("grpcgo", &mut command);
    let first = grpc.line(PATIENCE).await.unwrap_or_default();
    let Some(port) = first["stats_port"].as_u64() else {
        panic!("gRPC did not print the port of its status service but {first}:\n{}", grpc.log())
    };
    let address = &format!("127.0.0.1:{port}");
    peer.event("an endpoint assignment is requested", |event| {
        event["type"].as_str().is_some_and(|url| url.ends_with("ClusterLoadAssignment"))
    })
    .await;

    // A client does not report the end of processing a response.
    let shown = timeout(PATIENCE, async {
        loop {
            let shown = status(address).await;
            if shown.contains("ClusterLoadAssignment") && !shown.contains("REQUESTED") {
                return shown;
            }
        }
    });
    let shown = shown.await.expect("in time");
    assert!(
        shown.starts_with(&format!("Client \"xds:///cart\", node \"{NODE}\", at {address}\n")),
        "{shown}"
    );
    for row in [
        ["cart", "ACKED", "1", "envoy.config.listener.v3.Listener"],
        ["cart-routes", "ACKED", "1", "envoy.config.route.v3.RouteConfiguration"],
        ["cart-stable", "ACKED", "1", "envoy.config.cluster.v3.Cluster"],
        ["cart-stable-endpoints", "ACKED", "1", "envoy.config.endpoint.v3.ClusterLoadAssignment"],
    ] {
        let is_row = |line: &str| line.split_whitespace().take(4).eq(row);
        assert!(shown.lines().any(is_row), "no {row:?}:\n{shown}");
    }
}

/// Returns the table of the tool.
async fn status(address: &str) -> String {
    let mut command = Command::new(program("XDSKIT_INTEROP_TOOL"));
    let output = command.args(["status", address]).kill_on_drop(true).output();
    let output = timeout(PATIENCE, output).await.expect("in time").expect("a process");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns the status of the only client of a process.
async fn query(address: &str) -> Value {
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
