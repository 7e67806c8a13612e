//! Envoy as a client of the example `relay`, which is a client of this crate's control plane or of go-control-plane.

use std::{collections::BTreeSet, fs, net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use xdskit::{
    Client, Observed, Resource,
    config::{ApiType, Bootstrap, Node, Server},
    control_plane::{
        Variant,
        type_url::{CLUSTER, ENDPOINTS, LISTENER},
    },
    resource::{Cluster, Listener},
    testing::resources::endpoints,
};

use crate::{
    envoy::{Envoy, assert_answer, in_both_variants, mesh, routes_to, until_answer},
    http::{backend, get},
    library::{until, within},
    mesh,
    peer::{Peer, program},
    process::{PATIENCE, Process},
    setup::{Setup, on},
};

in_both_variants! { it_routes_requests_by_the_upstream_of_the_relay_and_survives_its_absence }
on! { [snapshot_sotw, snapshot_delta, old_sotw, old_delta]: known_names_come_at_once_beside_missing_ones }
on! { [snapshot_sotw, linear_delta]: it_has_the_clusters_of_go_control_plane_by_a_relay }

async fn it_routes_requests_by_the_upstream_of_the_relay_and_survives_its_absence(variant: Variant) {
    let (blue, green) = (backend("blue").await, backend("green").await);
    let upstream = mesh(blue, green).await;
    let relay = Relay::start(upstream.addr(), variant).await;
    let mut envoy = Envoy::start(relay.addr, variant).await;
    envoy.becomes_ready().await;
    let edge = envoy.listener().await;
    assert_answer(&get(edge, "/").await, "blue");
    upstream.set(routes_to("green"));
    until_answer(edge, "green").await;
    upstream.set(endpoints("green").locality("eu", "a", [&*blue.to_string()]));
    until_answer(edge, "blue").await;
    upstream.update(|tx| {
        tx.remove(CLUSTER, "blue").remove(ENDPOINTS, "blue");
    });
    envoy.until_clusters("the end of one", |names| !names.contains("blue")).await;

    // It continues, and another Envoy starts, with the resources of the relay.
    upstream.stop().await;
    assert_answer(&get(edge, "/").await, "blue");
    let mut late = Envoy::start(relay.addr, variant).await;
    late.becomes_ready().await;
    assert_answer(&get(late.listener().await, "/").await, "blue");
    upstream.set(endpoints("green").locality("eu", "a", [&*green.to_string()]));
    upstream.restart().await;
    until_answer(edge, "green").await;
    upstream.remove(LISTENER, "edge");
    for envoy in [&envoy, &late] {
        within("the end of the listener", async {
            while !envoy.listeners().await.is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// A client of the relay names a missing resource of each type in the same request as one that there is. The time after which a client
/// takes a resource for missing is far below that of the relay.
async fn known_names_come_at_once_beside_missing_ones(setup: Setup) {
    let peer = Peer::start(setup).await;
    let variant = if setup.is_delta() { Variant::Delta } else { Variant::Sotw };
    let relay = Relay::start(peer.addr(), variant).await;
    for api_type in [ApiType::AggregatedGrpc, ApiType::AggregatedDeltaGrpc] {
        let server = Server::new(relay.addr.to_string()).insecure().api_type(api_type);
        let bootstrap = Bootstrap::builder().node(Node::new("interop-node")).server(server).build();
        let builder = Client::builder(bootstrap.expect("it is valid")).resource_timeout(MISSING_AFTER);
        let client = builder.build().expect("a client can be built");
        let mut missing = client.watch::<Listener>("no-listener");
        let mut listener = client.watch::<Listener>("payments");
        let mut gone = client.watch::<Cluster>("no-cluster");
        let mut cluster = client.watch::<Cluster>("payments");
        until(&mut listener, is_there).await;
        until(&mut cluster, is_there).await;
        until(&mut missing, |seen| seen.error().is_some()).await;
        until(&mut gone, |seen| seen.error().is_some()).await;
    }
}

async fn it_has_the_clusters_of_go_control_plane_by_a_relay(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let variant = if setup.is_delta() { Variant::Delta } else { Variant::Sotw };
    let relay = Relay::start(peer.addr(), variant).await;
    let mut envoy = Envoy::start(relay.addr, variant).await;
    envoy.becomes_ready().await;
    // Envoy rejects this aggregate, which gRPC accepts.
    let mut expected: BTreeSet<_> = mesh::clusters().into_iter().filter(|name| name != "orders").collect();
    expected.insert("control-plane".to_owned());
    envoy.until_clusters("the clusters of the mesh", |names| *names == expected).await;
    envoy.until_hosts("payments", |hosts| *hosts == healthy(mesh::addresses_of("payments"))).await;

    peer.command("drain 10.1.5.3:8080").await;
    let mut drained = healthy(mesh::addresses_of("payments"));
    drained.insert("10.1.5.3:8080".to_owned(), "DRAINING".to_owned());
    envoy.until_hosts("payments", |hosts| *hosts == drained).await;
    peer.command("remove audit").await;
    expected.remove("audit");
    envoy.until_clusters("the end of audit", |names| *names == expected).await;

    peer.command("stop").await;
    peer.event("the end of the streams", |event| event["event"] == "closed").await;
    peer.command("rename payments paid").await;
    assert_eq!(envoy.names().await, expected);
    assert_eq!(envoy.hosts("payments").await, drained);
    peer.command("start").await;
    expected.remove("payments");
    expected.insert("paid".to_owned());
    envoy.until_clusters("the new name", |names| *names == expected).await;
    envoy.until_hosts("paid", |hosts| *hosts == drained).await;
}

fn is_there<T: Resource>(seen: &Observed<T>) -> bool {
    assert!(seen.error().is_none(), "it is there: {:?}", seen.error());
    seen.resource().is_some()
}

/// The time after which the clients take a resource for missing.
const MISSING_AFTER: Duration = Duration::from_secs(3);

/// Envoy's health states of endpoints, by their addresses.
type Hosts = std::collections::BTreeMap<String, String>;

fn healthy(addresses: Vec<String>) -> Hosts {
    addresses.into_iter().map(|address| (address, "HEALTHY".to_owned())).collect()
}

impl Envoy {
    async fn names(&self) -> BTreeSet<String> {
        self.clusters().await.iter().map(|cluster| text(&cluster["name"])).collect()
    }

    async fn hosts(&self, cluster: &str) -> Hosts {
        let all = self.clusters().await;
        let found = all.iter().find(|shown| shown["name"] == cluster);
        let hosts = found.and_then(|shown| shown["host_statuses"].as_array()).cloned().unwrap_or_default();
        let host = |host: &Value| {
            let address = &host["address"]["socket_address"];
            let health = &host["health_status"]["eds_health_status"];
            (format!("{}:{}", text(&address["address"]), address["port_value"]), text(health))
        };
        hosts.iter().map(host).collect()
    }

    async fn until_clusters(&self, what: &str, is_met: impl Fn(&BTreeSet<String>) -> bool) {
        within(what, async {
            while !is_met(&self.names().await) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    async fn until_hosts(&self, cluster: &str, is_met: impl Fn(&Hosts) -> bool) {
        within(cluster, async {
            while !is_met(&self.hosts(cluster).await) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A running relay.
struct Relay {
    addr: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

impl Relay {
    /// Starts a relay of the management server at an address, in a variant of the protocol.
    async fn start(upstream: SocketAddr, variant: Variant) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the bootstrap");
        let path = folder.path().join("bootstrap.json");
        let server = json!({"server_uri": upstream.to_string(), "channel_creds": [{"type": "insecure"}]});
        let bootstrap = json!({"xds_servers": [server], "node": {"id": "relay"}});
        fs::write(&path, bootstrap.to_string()).expect("the folder can be written");
        let mut command = Command::new(program("XDSKIT_INTEROP_RELAY"));
        command.args(["--listen", "127.0.0.1:0", "--json", "--report", "1", "--bootstrap"]).arg(&path);
        command.args(["--protocol", if variant == Variant::Delta { "delta" } else { "sotw" }]);
        let mut process = Process::start("relay", &mut command);
        let first = process.line(PATIENCE).await.unwrap_or_default();
        let addr = first["listening"].as_str().and_then(|addr| addr.parse().ok());
        let addr = addr.unwrap_or_else(|| panic!("the relay did not print its address but {first}"));
        Self { addr, _process: process, _folder: folder }
    }
}
