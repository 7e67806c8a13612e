//! `walk --observe` of recorded configurations: each listener, chain, virtual host, route, cluster and endpoint that the server sent
//! is in the trees, or among the clusters that no listener leads to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use prost::Message;
use serde_json::Value;
use tokio::{process::Command, time::timeout};
use xdskit::{
    Resource,
    pb::envoy::config::{
        cluster::v3::Cluster as ClusterMessage, endpoint::v3::ClusterLoadAssignment as AssignmentMessage,
        listener::v3::Listener as ListenerMessage, route::v3::RouteConfiguration as RouteMessage,
    },
    resource::{Cluster, ClusterLoadAssignment, Listener, RouteConfiguration},
};

use super::{BOUND, Dump, serve};
use crate::peer::program;

/// The number of the parts of a configuration.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    /// Chains by listener.
    listeners: BTreeMap<String, usize>,
    /// Virtual hosts and routes by route configuration.
    routes: BTreeMap<String, (usize, usize)>,
    clusters: BTreeSet<String>,
    /// Endpoints by assignment, or by cluster for those in it.
    endpoints: BTreeMap<String, usize>,
}

#[tokio::test]
async fn walk_observe_draws_all_that_istiod_sends() {
    check("istio/sidecar").await;
    check("istio/router").await;
    check("istio/grpc").await;
}

#[tokio::test]
async fn walk_observe_draws_all_that_consul_sends() {
    check("consul/sidecar").await;
    check("consul/transparent").await;
}

#[tokio::test]
async fn walk_observe_draws_all_that_envoy_gateway_sends() {
    check("envoy-gateway/gateway").await;
}

/// The example of the documentation is what the tool draws.
#[tokio::test]
async fn the_tree_of_the_documentation_is_that_of_istiods_sidecar() {
    let documentation = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/CLI.md");
    let text = fs::read_to_string(documentation).expect("it is there");
    let (_, example) = text.split_once("$ xdskit walk --once --observe ").expect("the example");
    let (target, tree) = example.split_once('\n').expect("its output");
    let (tree, _) = tree.split_once("```").expect("its end");
    let server = serve(&Dump::read("istio/sidecar")).await;
    let folder = tempfile::tempdir().expect("a folder for the bootstrap");
    let bootstrap = folder.path().join("bootstrap.json");
    fs::write(&bootstrap, server.bootstrap_json()).expect("the folder is there");
    assert_eq!(walk(&bootstrap, &["--once", "--observe", target]).await, tree);
}

/// Returns the output of `xdskit walk`.
async fn walk(bootstrap: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program("XDSKIT_INTEROP_TOOL"));
    command.arg("walk").arg("--bootstrap").arg(bootstrap).args(arguments);
    let output =
        timeout(BOUND, command.kill_on_drop(true).output()).await.expect("it ends").expect("it starts");
    String::from_utf8(output.stdout).expect("it prints text")
}

async fn check(name: &str) {
    let dump = Dump::read(name);
    let server = serve(&dump).await;
    let folder = tempfile::tempdir().expect("a folder for the bootstrap");
    let bootstrap = folder.path().join("bootstrap.json");
    fs::write(&bootstrap, server.bootstrap_json()).expect("the folder is there");
    for protocol in ["sotw", "delta"] {
        let output = walk(&bootstrap, &["--observe", "--json", "--once", "--protocol", protocol]).await;
        let lines = serde_json::Deserializer::from_str(&output).into_iter::<Value>();
        let lines: Vec<_> = lines.map(|line| line.expect("JSON alone")).collect();
        let (shown, unused) = Counts::shown(&lines);
        assert_eq!(shown, Counts::sent(&dump, &unused), "{name} by {protocol}: {output}");
    }
    let nacks = server.requests().iter().filter(|request| request.message().error().is_some()).count();
    assert_eq!(nacks, 0, "{name}");
}

impl Counts {
    /// What the server sent, without the clusters that are named as unused, and their endpoints.
    fn sent(dump: &Dump, unused: &BTreeSet<String>) -> Self {
        let mut counts = Self::default();
        let mut assignments = BTreeMap::new();
        for sent in &dump.resources {
            let bytes = BASE64_STANDARD.decode(&sent.value).expect("it was recorded so");
            let (name, bytes) = (sent.name.clone(), &*bytes);
            match &*sent.type_url {
                Listener::TYPE_URL => {
                    let message = ListenerMessage::decode(bytes).expect("a listener");
                    let chains = message.filter_chains.len()
                        + usize::from(message.default_filter_chain.is_some())
                        + usize::from(message.api_listener.is_some());
                    counts.listeners.insert(name, chains);
                }
                RouteConfiguration::TYPE_URL => {
                    let message = RouteMessage::decode(bytes).expect("routes");
                    let routes = message.virtual_hosts.iter().map(|host| host.routes.len()).sum();
                    counts.routes.insert(name, (message.virtual_hosts.len(), routes));
                }
                Cluster::TYPE_URL if !unused.contains(&name) => {
                    let message = ClusterMessage::decode(bytes).expect("a cluster");
                    if let Some(inline) = &message.load_assignment {
                        counts.endpoints.insert(name.clone(), endpoints(inline));
                    }
                    counts.clusters.insert(name);
                }
                ClusterLoadAssignment::TYPE_URL => {
                    let message = AssignmentMessage::decode(bytes).expect("endpoints");
                    assignments.insert(name, endpoints(&message));
                }
                _ => {}
            }
        }
        // In these dumps an assignment has the name of its cluster.
        counts.endpoints.extend(assignments.into_iter().filter(|(name, _)| counts.clusters.contains(name)));
        counts.endpoints.retain(|_, count| *count > 0);
        counts
    }

    /// What is shown, and the names of unused clusters.
    fn shown(lines: &[Value]) -> (Self, BTreeSet<String>) {
        let (mut counts, mut unused) = (Self::default(), BTreeSet::new());
        let length = |value: &Value| value.as_array().map_or(0, Vec::len);
        let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
        for line in lines {
            if let Some(names) = line["unused_clusters"].as_array() {
                unused.extend(names.iter().filter_map(Value::as_str).map(str::to_owned));
                continue;
            }
            let name = line["listener"].as_str().expect("a name").to_owned();
            counts.listeners.insert(name, length(&line["chains"]));
            for (name, routes) in fields(&line["routes"]) {
                let hosts = routes["virtual_hosts"].as_array().cloned().unwrap_or_default();
                let routes = hosts.iter().map(|host| length(&host["routes"])).sum();
                counts.routes.insert(name, (hosts.len(), routes));
            }
            for (name, cluster) in fields(&line["clusters"]) {
                let places = cluster["localities"].as_array().cloned().unwrap_or_default();
                let endpoints: usize = places.iter().map(|place| length(&place["endpoints"])).sum();
                if endpoints > 0 {
                    counts.endpoints.insert(name.clone(), endpoints);
                }
                assert!(cluster["error"].is_null(), "{name}: {cluster}");
                counts.clusters.insert(name);
            }
        }
        (counts, unused)
    }
}

fn endpoints(message: &AssignmentMessage) -> usize {
    message.endpoints.iter().map(|place| place.lb_endpoints.len()).sum()
}
