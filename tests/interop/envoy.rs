//! Envoy as a client of this crate's control plane.

use std::{fs, net::SocketAddr};

use prost::Message;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use xdskit::{
    control_plane::{
        AnyResource, Variant,
        type_url::{CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIGURATION},
    },
    pb::envoy::config::{
        core::v3::{Address, SocketAddress, address, socket_address::PortSpecifier},
        listener::v3::{Filter, FilterChain, filter::ConfigType},
    },
    testing::{
        TestControlPlane,
        resources::{cluster, endpoints, listener, route, route_config},
    },
};

use crate::{
    http::{backend, get},
    library::within,
    peer::program,
    process::Process,
};

/// Generates tests from functions, in both variants of the protocol.
macro_rules! in_both_variants {
    ($($test:ident),+ $(,)?) => { $(
        mod $test {
            use xdskit::control_plane::Variant;

            #[tokio::test(flavor = "multi_thread")]
            async fn envoy_sotw() {
                super::$test(Variant::Sotw).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn envoy_delta() {
                super::$test(Variant::Delta).await;
            }
        }
    )+ };
}

pub(crate) use in_both_variants;

in_both_variants! {
    it_routes_requests_as_configured,
    what_it_rejects_is_seen_and_the_rest_goes_on,
    it_rides_out_a_restart_and_forgets_what_is_removed,
}

async fn it_routes_requests_as_configured(variant: Variant) {
    let (blue, green) = (backend("blue").await, backend("green").await);
    let control_plane = mesh(blue, green).await;
    let mut envoy = Envoy::start(control_plane.addr(), variant).await;
    for type_url in [CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIGURATION] {
        control_plane.expect_ack(type_url).await.expect("Envoy accepts it");
    }
    assert!(control_plane.requests().iter().all(|request| request.message().variant() == variant));
    envoy.becomes_ready().await;
    let edge = envoy.listener().await;
    assert_answer(&get(edge, "/").await, "blue");

    // To another cluster by its route, and to another address by the endpoints.
    control_plane.set(routes_to("green"));
    until_answer(edge, "green").await;
    control_plane.set(endpoints("green").locality("eu", "a", [&*blue.to_string()]));
    until_answer(edge, "blue").await;
}

async fn what_it_rejects_is_seen_and_the_rest_goes_on(variant: Variant) {
    let (blue, green) = (backend("blue").await, backend("green").await);
    let control_plane = mesh(blue, green).await;
    let mut envoy = Envoy::start(control_plane.addr(), variant).await;
    envoy.becomes_ready().await;
    let edge = envoy.listener().await;
    control_plane.set(cluster("green").edit(|cluster| cluster.eds_cluster_config = None));
    let nack = control_plane.expect_nack(CLUSTER).await.expect("Envoy rejects it");
    assert_eq!(nack.version, control_plane.version(CLUSTER));
    assert!(nack.message.contains("green"), "{nack:?}");
    // The routes are of another type, and the previous cluster still exists.
    control_plane.set(routes_to("green"));
    until_answer(edge, "green").await;

    control_plane.clear_requests();
    control_plane.set(cluster("green").eds());
    let ack = control_plane.expect_ack(CLUSTER).await.expect("Envoy accepts it");
    assert_eq!(ack.version, control_plane.version(CLUSTER));
    assert_answer(&get(edge, "/").await, "green");
}

async fn it_rides_out_a_restart_and_forgets_what_is_removed(variant: Variant) {
    let (blue, green) = (backend("blue").await, backend("green").await);
    let control_plane = mesh(blue, green).await;
    let mut envoy = Envoy::start(control_plane.addr(), variant).await;
    envoy.becomes_ready().await;
    let edge = envoy.listener().await;
    control_plane.stop().await;
    assert_answer(&get(edge, "/").await, "blue");
    control_plane.update(|tx| {
        tx.set(routes_to("green"));
        tx.remove(CLUSTER, "blue").remove(ENDPOINTS, "blue");
    });
    control_plane.restart().await;
    until_answer(edge, "green").await;
    control_plane.remove(LISTENER, "edge");
    within("the end of the listener", async {
        while !envoy.listeners().await.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A control plane with a listener that routes to `blue`.
pub(crate) async fn mesh(blue: SocketAddr, green: SocketAddr) -> TestControlPlane {
    let control_plane = TestControlPlane::start().await;
    control_plane.update(|tx| {
        tx.set(edge()).set(routes_to("blue"));
        for (name, addr) in [("blue", blue), ("green", green)] {
            tx.set(cluster(name)).set(endpoints(name).locality("eu", "a", [&*addr.to_string()]));
        }
    });
    control_plane
}

/// A listener on a free port of loopback, with the HTTP connection manager of a listener for gRPC clients.
fn edge() -> AnyResource {
    let mut made = listener("edge").rds("routes").into_message();
    let api = made.api_listener.take().and_then(|api| api.api_listener);
    let mut manager = api.expect("the builder makes one of those");
    let prefix = StatPrefix { stat_prefix: "edge".to_owned() };
    manager.value = [manager.value.to_vec(), prefix.encode_to_vec()].concat().into();
    let filter = Filter { name: "http".to_owned(), config_type: Some(ConfigType::TypedConfig(manager)) };
    made.filter_chains = vec![FilterChain { filters: vec![filter], ..FilterChain::default() }];
    let any_port = SocketAddress {
        address: "127.0.0.1".to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(0)),
        ..SocketAddress::default()
    };
    made.address = Some(Address { address: Some(address::Address::SocketAddress(any_port)) });
    made.into()
}

/// A field of the connection manager that proxies require, and clients ignore.
#[derive(Clone, PartialEq, Message)]
struct StatPrefix {
    #[prost(string, tag = "2")]
    stat_prefix: String,
}

pub(crate) fn routes_to(cluster: &str) -> AnyResource {
    route_config("routes").virtual_host(["*"], [route::prefix("/").cluster(cluster)]).into()
}

/// A running Envoy.
pub(crate) struct Envoy {
    process: Process,
    admin: SocketAddr,
    _folder: TempDir,
}

impl Envoy {
    pub(crate) async fn start(control_plane: SocketAddr, variant: Variant) -> Self {
        Self::start_with(&bootstrap(control_plane, variant)).await
    }

    /// Starts one that has a stream of load reports to the control plane, too.
    pub(crate) async fn start_reporting(control_plane: SocketAddr, variant: Variant) -> Self {
        let mut bootstrap = bootstrap(control_plane, variant);
        bootstrap["cluster_manager"]["load_stats_config"] = json!({
            "api_type": "GRPC",
            "transport_api_version": "V3",
            "grpc_services": [{"envoy_grpc": {"cluster_name": "control-plane"}}],
        });
        Self::start_with(&bootstrap).await
    }

    /// Starts one with a bootstrap.
    pub(crate) async fn start_with(bootstrap: &Value) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the bootstrap");
        let path = folder.path().join("envoy.json");
        fs::write(&path, bootstrap.to_string()).expect("the folder can be written");
        // It does not outlive the test, even if the test is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program("XDSKIT_INTEROP_ENVOY"));
        command.args(["--disable-hot-restart", "--concurrency", "1", "--log-format", "%v", "-c"]).arg(path);
        let mut process = Process::start_logging("envoy", &mut command);
        let line = process.logged("admin address: ").await;
        let (_, admin) = line.rsplit_once(' ').expect("it was waited for");
        let admin = admin.parse().unwrap_or_else(|_| panic!("no address: {line}"));
        Self { process, admin, _folder: folder }
    }

    pub(crate) async fn becomes_ready(&mut self) {
        self.process.logged("all dependencies initialized. starting workers").await;
        assert_answer(&get(self.admin, "/ready").await, "LIVE");
    }

    /// The address of the only listener.
    pub(crate) async fn listener(&self) -> SocketAddr {
        let listeners = self.listeners().await;
        let [listener] = &*listeners else { panic!("{listeners:?}") };
        let address = &listener["local_address"]["socket_address"];
        let port = address["port_value"].as_u64().unwrap_or_else(|| panic!("no port: {listener}"));
        ([127, 0, 0, 1], port as u16).into()
    }

    pub(crate) async fn listeners(&self) -> Vec<Value> {
        self.shown("/listeners?format=json", "listener_statuses").await
    }

    /// The active clusters, including that of the control plane.
    pub(crate) async fn clusters(&self) -> Vec<Value> {
        self.shown("/clusters?format=json", "cluster_statuses").await
    }

    async fn shown(&self, path: &str, list: &str) -> Vec<Value> {
        let response = get(self.admin, path).await;
        let (start, end) = (response.find('{'), response.rfind('}'));
        let (Some(start), Some(end)) = (start, end) else { panic!("no JSON: {response}") };
        let all: Value = serde_json::from_str(&response[start..=end]).expect("it is JSON");
        all[list].as_array().cloned().unwrap_or_default()
    }
}

/// A bootstrap of Envoy with a control plane for all types.
fn bootstrap(control_plane: SocketAddr, variant: Variant) -> Value {
    let api_type = match variant {
        Variant::Sotw => "GRPC",
        Variant::Delta => "DELTA_GRPC",
    };
    let socket_address = |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    let lb_endpoint = json!({"endpoint": {"address": socket_address(control_plane.port())}});
    let http2 = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    });
    let from_ads = json!({"ads": {}, "resource_api_version": "V3"});
    json!({
        "node": {"id": "envoy", "cluster": "interop"},
        "admin": {"address": socket_address(0)},
        "dynamic_resources": {
            "ads_config": {
                "api_type": api_type,
                "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "control-plane"}}],
            },
            "cds_config": from_ads,
            "lds_config": from_ads,
        },
        "static_resources": {"clusters": [{
            "name": "control-plane",
            "type": "STATIC",
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2,
            },
            "load_assignment": {
                "cluster_name": "control-plane",
                "endpoints": [{"lb_endpoints": [lb_endpoint]}],
            },
        }]},
    })
}

/// Repeats a request until the expected response.
pub(crate) async fn until_answer(from: SocketAddr, expected: &str) {
    within(expected, async {
        while !get(from, "/").await.ends_with(expected) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[track_caller]
pub(crate) fn assert_answer(response: &str, expected: &str) {
    assert!(response.starts_with("HTTP/1.1 200 ") && response.contains(expected), "{response}");
}
