//! `walk --observe`: the configuration of proxies.

#![allow(clippy::unwrap_used, reason = "tests")]

use prost::Message;
use serde_json::{Value, json};
use xdskit::{
    control_plane::{AnyResource, type_url},
    pb::envoy::config::{
        core::v3::{Address, SocketAddress, address, socket_address::PortSpecifier},
        listener::v3::{Filter, FilterChain, Listener, ListenerFilter, filter::ConfigType},
    },
    testing::{
        TestControlPlane,
        resources::{cluster, endpoints, listener, route, route_config},
    },
};

use super::{Server, keys, process::Process};

/// Serves a listener that gRPC's rules reject, with routes to a cluster of one endpoint.
fn serve(control_plane: &TestControlPlane, name: &str, endpoint: &str) {
    control_plane.update(|tx| {
        tx.set(rejected(name));
        tx.set(route_config(name).virtual_host([name], [route::prefix("/").cluster(name)]));
        tx.set(cluster(name));
        tx.set(endpoints(name).locality("eu", "a", [endpoint]));
    });
}

fn rejected(name: &str) -> AnyResource {
    let mut message: Listener = listener(name).rds(name).into_message();
    // As a proxy has it: in a chain of filters.
    let config = message.api_listener.take().and_then(|api| api.api_listener).unwrap();
    let filter = Filter { name: "http".into(), config_type: Some(ConfigType::TypedConfig(config)) };
    message.filter_chains = vec![FilterChain { filters: vec![filter], ..Default::default() }];
    message.address = Some(address("10.9.0.1", 15001));
    message.listener_filters = vec![ListenerFilter { name: "tls_inspector".into() }];
    AnyResource::new(type_url::LISTENER, name, message.encode_to_vec())
}

fn address(host: &str, port: u32) -> Address {
    let port_specifier = Some(PortSpecifier::PortValue(port));
    let socket = SocketAddress { address: host.into(), port_specifier, ..Default::default() };
    Address { address: Some(address::Address::SocketAddress(socket)) }
}

#[tokio::test]
async fn walk_observe_draws_what_grpc_rejects() {
    let server = Server::start().await;
    serve(&server.control_plane, "web", "10.0.0.1:80");
    for (protocol, target) in [
        ("sotw", None),
        ("delta", None),
        ("sotw", Some("web")),
        ("delta", Some("xds:///web")),
        ("sotw", Some("w*")),
    ] {
        let protocol = format!("--protocol={protocol}");
        let args: Vec<_> = ["--once", "--observe", &protocol].into_iter().chain(target).collect();
        let mut walk = server.tool("walk", &args);
        let tree = "\
! listener web  10.9.0.1:15001  gRPC rejects it: listener_filters: not supported; must be empty
├─ chain
│  └─ HTTP → routes web
├─ ● routes web
│  └─ virtual host web (web)
│     └─ /*  → web
└─ ● web  EDS  eu/a  ● 10.0.0.1:80
";
        assert_eq!(walk.text().await, tree, "{target:?}");
        assert_eq!(walk.exit().await.code(), Some(0), "{target:?}");
    }
    assert!(
        server.control_plane.requests().iter().all(|request| request.message().error().is_none()),
        "no NACK"
    );
}

#[tokio::test]
async fn walk_observe_follows_listeners_that_come_change_and_go() {
    let server = Server::start().await;
    serve(&server.control_plane, "a", "10.0.0.1:80");
    let mut walk = server.tool("walk", &["--observe", "--json"]);
    let first = walk.json().await;
    let fields =
        ["address", "chains", "clusters", "error", "invalid", "listener", "routes", "target", "warning"];
    assert_eq!(keys(&first), fields);
    assert_eq!((&first["target"], &first["listener"]), (&json!("*"), &json!("a")));
    assert_eq!(first["clusters"]["a"]["localities"][0]["endpoints"][0]["address"], "10.0.0.1:80");

    server.control_plane.set(endpoints("a").locality("eu", "a", ["10.0.0.2:80"]));
    let moved = walk.json().await;
    assert_eq!(moved["clusters"]["a"]["localities"][0]["endpoints"][0]["address"], "10.0.0.2:80");
    serve(&server.control_plane, "b", "10.0.0.3:80");
    assert_eq!(tree(&mut walk).await["listener"], "b");
    server.control_plane.remove(type_url::LISTENER, "a");
    let gone = tree(&mut walk).await;
    assert_eq!((&gone["listener"], &gone["error"]["code"]), (&json!("a"), &json!("NOT_FOUND")));
    assert_eq!(walk.json().await, json!({"target": "*", "unused_clusters": ["a"]}));
    assert!(!walk.has_line());
}

/// The next tree. A cluster may be there before its listener, and is unused until then.
async fn tree(walk: &mut Process) -> Value {
    loop {
        let line = walk.json().await;
        if line.get("unused_clusters").is_none() {
            return line;
        }
    }
}

#[tokio::test]
async fn walk_observe_once_ends_with_exit_code_1_if_something_is_missing() {
    let server = Server::start().await;
    let options = ["--once", "--observe", "--resource-timeout=0.3"];
    let cases = [("*", "✗ listener *  NOT_FOUND: ", 1), ("nope", "✗ listener nope  NOT_FOUND: ", 1)];
    for (target, start, code) in cases {
        let args: Vec<_> = options.into_iter().chain([target]).collect();
        let mut walk = server.tool("walk", &args);
        let text = walk.text().await;
        assert!(text.starts_with(start), "{text}");
        assert_eq!(walk.exit().await.code(), Some(code));
    }
    serve(&server.control_plane, "web", "10.0.0.1:80");
    let mut walk = server.tool("walk", &["--once", "--observe", "x*"]);
    assert_eq!(walk.text().await, "✗ listener x*  NOT_FOUND: nothing matches\n");
    assert_eq!(walk.exit().await.code(), Some(1));
    server.control_plane.remove(type_url::ENDPOINTS, "web");
    server.control_plane.set(endpoints("web"));
    let mut walk = server.tool("walk", &options);
    let text = walk.text().await;
    assert!(text.ends_with("✗ web  EDS  no endpoints\n"), "{text}");
    assert_eq!(walk.exit().await.code(), Some(1));
    server.control_plane.stop().await;
    let mut walk = server.tool("walk", &options);
    assert!(walk.text().await.starts_with("✗ listener *  UNAVAILABLE: "));
    assert_eq!(walk.exit().await.code(), Some(1));
}

#[tokio::test]
async fn walk_observe_shows_what_the_trees_need_and_no_more() {
    let server = Server::start().await;
    serve(&server.control_plane, "a", "10.0.0.1:80");
    serve(&server.control_plane, "b", "10.0.0.2:80");
    let mut walk = server.tool("walk", &["--observe", "--json", "a"]);
    let line = walk.json().await;
    assert_eq!(line["target"], "a");
    assert_eq!(keys(&line["clusters"]), ["a"]);
    // Of another cluster, only what it is replaced by is watched.
    server.control_plane.set(route_config("a").virtual_host(["a"], [route::prefix("/").cluster("b")]));
    let line = walk.json().await;
    assert_eq!(keys(&line["clusters"]), ["b"]);
    let names = |of_type: &'static str| {
        let requests = server.control_plane.requests();
        let last = requests.iter().rev().find(|request| request.message().type_url() == of_type).unwrap();
        format!("{:?}", last.message())
    };
    assert!(!names(type_url::LISTENER).contains("\"b\""), "a named listener alone is requested");
    assert!(!walk.has_line());
}
