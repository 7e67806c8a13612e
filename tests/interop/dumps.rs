//! The resources of istiod, Consul and Envoy Gateway, observed: all are provided, none is rejected, and each has the
//! result of gRPC's rules. `dumps/README.md` describes their origin.

mod counts;
mod trees;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{process::Command, time::timeout};
use xdskit::{
    Client, Observed, Resource, ResourceSelector,
    client::Validation,
    config::{ApiType, Bootstrap},
    control_plane::{
        self, AnyResource,
        session::{AfterNack, Answer, Behavior, Handled},
    },
    resource::{Cluster, ClusterLoadAssignment, Inspected, Listener, RouteConfiguration},
    testing::TestControlPlane,
};

use self::counts::Parts;
use crate::peer::program;

/// All resources that a server sent to a node.
#[derive(Deserialize)]
pub(crate) struct Dump {
    server: String,
    node: String,
    resources: Vec<Sent>,
}

#[derive(Deserialize)]
struct Sent {
    type_url: String,
    name: String,
    /// The message in base64.
    value: String,
}

impl Dump {
    pub(crate) fn read(name: &str) -> Self {
        let text = fs::read_to_string(file(name, "json")).expect("it was recorded");
        serde_json::from_str(&text).expect("it was recorded so")
    }
}

fn file(name: &str, extension: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/dumps");
    directory.join(name).with_extension(extension)
}

/// The results of gRPC's rules, by type and name: `None` for an accepted resource.
type Verdicts = BTreeMap<(String, String), Option<String>>;

#[tokio::test]
async fn everything_that_istiod_sends_to_a_sidecar_is_shown() {
    check("istio/sidecar").await;
}

#[tokio::test]
async fn everything_that_istiod_sends_to_a_router_is_shown() {
    check("istio/router").await;
}

#[tokio::test]
async fn everything_that_istiod_sends_to_a_grpc_client_is_shown() {
    let verdicts = check("istio/grpc").await;
    let rejected: Vec<_> = verdicts.iter().filter(|(_, reason)| reason.is_some()).collect();
    assert!(rejected.is_empty(), "it is made for gRPC's rules: {rejected:?}");
}

#[tokio::test]
async fn everything_that_consul_sends_to_a_sidecar_is_shown() {
    check("consul/sidecar").await;
}

#[tokio::test]
async fn everything_that_consul_sends_to_a_transparent_proxy_is_shown() {
    check("consul/transparent").await;
}

#[tokio::test]
async fn everything_that_envoy_gateway_sends_is_shown() {
    check("envoy-gateway/gateway").await;
}

/// The tool prints a mesh of proxies, with the reasons why gRPC clients cannot use it, and the messages in a pipe.
#[tokio::test]
async fn watch_observes_what_istiod_sends_to_a_sidecar() {
    let dump = Dump::read("istio/sidecar");
    let server = serve(&dump).await;
    let folder = tempfile::tempdir().expect("a folder for the bootstrap");
    let bootstrap = folder.path().join("bootstrap.json");
    fs::write(&bootstrap, server.bootstrap_json()).expect("the folder is there");
    let observed = watch(&bootstrap, &["--observe"]).await;
    for expected in [
        "● cluster PassthroughCluster  version ",
        "gRPC rejects it: type: ORIGINAL_DST is not supported, only EDS and LOGICAL_DNS",
        "● listener virtualInbound  version ",
        "gRPC rejects it: listener_filters: not supported; must be empty",
    ] {
        assert!(observed.contains(expected), "{expected:?} is not in:\n{observed}");
    }
    let of_types = [Listener::TYPE_URL, Cluster::TYPE_URL];
    let sent = dump.resources.iter().filter(|sent| of_types.contains(&sent.type_url.as_str())).count();
    assert_eq!(observed.matches("  version ").count(), sent);
    let messages = watch(&bootstrap, &["--raw"]).await;
    let messages = serde_json::Deserializer::from_str(&messages).into_iter::<Value>();
    let types: Vec<_> = messages.map(|message| message.expect("JSON alone")["@type"].clone()).collect();
    assert_eq!(types.len(), sent);
    assert!(types.iter().all(|found| of_types.iter().any(|of_type| found == of_type)), "{types:?}");
}

/// The tool prints as many listeners and clusters as each server sent.
#[tokio::test]
async fn watch_observes_as_much_as_each_server_sends() {
    let names =
        ["istio/router", "istio/grpc", "consul/sidecar", "consul/transparent", "envoy-gateway/gateway"];
    for name in names {
        let dump = Dump::read(name);
        let server = serve(&dump).await;
        let folder = tempfile::tempdir().expect("a folder for the bootstrap");
        let bootstrap = folder.path().join("bootstrap.json");
        fs::write(&bootstrap, server.bootstrap_json()).expect("the folder is there");
        let observed = watch(&bootstrap, &["--observe"]).await;
        let of_types = [Listener::TYPE_URL, Cluster::TYPE_URL];
        let sent = dump.resources.iter().filter(|sent| of_types.contains(&sent.type_url.as_str()));
        assert_eq!(observed.matches("  version ").count(), sent.clone().count(), "{name}");
        for sent in sent {
            assert!(observed.contains(&format!(" {}  version ", sent.name)), "{name}: {}", sent.name);
        }
    }
}

/// Returns the output of `watch` for all listeners and clusters.
async fn watch(bootstrap: &Path, options: &[&str]) -> String {
    let mut command = Command::new(program("XDSKIT_INTEROP_WATCH"));
    command.arg("--bootstrap").arg(bootstrap).args(options).arg("--once");
    let ended = command.args(["listener=*", "cluster=*"]).kill_on_drop(true).output();
    let output = timeout(BOUND, ended).await.expect("it ends").expect("it starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("it prints text")
}

/// Observes a dump in both variants of the protocol, and compares the results of gRPC's rules with the recorded ones.
async fn check(name: &str) -> Verdicts {
    let dump = Dump::read(name);
    println!("{} to {}: {} resources", dump.server, dump.node, dump.resources.len());
    let state_of_the_world = observe(&dump, ApiType::AggregatedGrpc).await;
    let incremental = observe(&dump, ApiType::AggregatedDeltaGrpc).await;
    assert_eq!(state_of_the_world, incremental);
    let sent: BTreeSet<_> = dump.resources.iter().map(|sent| (&sent.type_url, &sent.name)).collect();
    let seen: BTreeSet<_> = incremental.keys().map(|(type_url, name)| (type_url, name)).collect();
    assert_eq!(seen, sent, "all of it is shown");
    compare(&file(name, "verdicts"), &incremental);
    incremental
}

/// A server like Consul's, which sends nothing after a rejection.
pub(crate) async fn serve(dump: &Dump) -> TestControlPlane {
    let mut behavior = Behavior::default();
    behavior.after_nack = AfterNack::Silence;
    let settings = control_plane::ControlPlane::builder().behavior(behavior);
    let server = TestControlPlane::start_with(settings).await;
    server.update(|tx| {
        for Sent { type_url, name, value } in &dump.resources {
            let bytes = BASE64_STANDARD.decode(value).expect("it was recorded so");
            tx.set(AnyResource::new(type_url.as_str(), name.as_str(), bytes));
        }
    });
    server
}

async fn observe(dump: &Dump, api_type: ApiType) -> Verdicts {
    let server = serve(dump).await;
    let mut bootstrap: Value = serde_json::from_str(&server.bootstrap_json()).expect("it is JSON");
    // As in the bootstrap of Istio's agent, which istiod relies on. The files are only read when they are used.
    bootstrap["certificate_providers"] = json!({ "default": { "plugin_name": "file_watcher", "config": {
        "certificate_file": "cert-chain.pem", "private_key_file": "key.pem", "ca_certificate_file": "root-cert.pem",
    } } });
    let bootstrap = Bootstrap::from_json(&bootstrap.to_string()).expect("it is valid");
    let builder = Client::builder(bootstrap).api_type(api_type).validation(Validation::Observe);
    let client = builder.build().expect("there is a runtime");
    let mut verdicts = Verdicts::new();
    // In the order of a proxy: clusters first.
    observe_all::<Cluster>(&client, dump, &mut verdicts).await;
    observe_named::<ClusterLoadAssignment>(&client, dump, &mut verdicts).await;
    observe_all::<Listener>(&client, dump, &mut verdicts).await;
    observe_named::<RouteConfiguration>(&client, dump, &mut verdicts).await;
    let is_nack = |handled: &Handled| {
        matches!(handled, Handled::Understood { answer: Some(Answer::Rejected { .. }), .. })
    };
    assert!(!server.requests().iter().any(|request| is_nack(request.handled())), "nothing is rejected");
    verdicts
}

async fn observe_all<T: Resource + Parts>(client: &Client, dump: &Dump, verdicts: &mut Verdicts) {
    let of_type = dump.resources.iter().filter(|sent| sent.type_url == T::TYPE_URL).count();
    if of_type == 0 {
        return;
    }
    let mut all = client.watch_all::<Inspected<T>>(ResourceSelector::All);
    let members = timeout(BOUND, all.wait_for(|members| members.len() == of_type)).await;
    let members = members.expect("all of it comes").expect("the client lives");
    for (name, seen) in members.iter() {
        note(name, seen, verdicts);
    }
}

async fn observe_named<T: Resource + Parts>(client: &Client, dump: &Dump, verdicts: &mut Verdicts) {
    for sent in dump.resources.iter().filter(|sent| sent.type_url == T::TYPE_URL) {
        let mut watch = client.watch::<Inspected<T>>(sent.name.as_str());
        let seen = timeout(BOUND, watch.wait_for(Observed::is_present)).await;
        let seen = seen.expect("it comes").expect("the client lives");
        note(&sent.name, &seen, verdicts);
    }
}

fn note<T: Resource + Parts>(name: &str, seen: &Observed<Inspected<T>>, verdicts: &mut Verdicts) {
    let resource = seen.resource().unwrap_or_else(|| panic!("{name}: {seen:?}"));
    let shown = resource.to_json().expect("it holds no secrets");
    assert_eq!(shown["@type"], T::TYPE_URL);
    assert!(shown.get("@bytes").is_none(), "{name} is shown as a message");
    counts::assert_whole(resource);
    let reason = resource.typed().err().map(ToString::to_string);
    verdicts.insert((T::TYPE_URL.to_owned(), name.to_owned()), reason);
}

/// Compares with the file, which has a line for each resource. With `XDSKIT_INTEROP_WRITE_VERDICTS` set, the file is
/// rewritten.
fn compare(path: &PathBuf, verdicts: &Verdicts) {
    let mut lines = String::new();
    for ((type_url, name), reason) in verdicts {
        let of_type = type_url.rsplit('.').next().unwrap_or_default();
        lines += &format!("{of_type} {name}: {}\n", reason.as_deref().unwrap_or("accepted"));
    }
    if std::env::var_os("XDSKIT_INTEROP_WRITE_VERDICTS").is_some() {
        return fs::write(path, lines).expect("the directory is there");
    }
    assert_eq!(lines, fs::read_to_string(path).expect("it was written"), "{}", path.display());
}

const BOUND: Duration = Duration::from_secs(30);
