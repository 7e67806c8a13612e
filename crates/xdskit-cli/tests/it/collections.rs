//! `watch` with the names of collections: each member has its lines.

use std::fs;

use serde_json::{Value, json};
use xdskit::{
    control_plane::{AnyResource, type_url},
    testing::resources::{cluster, collection},
};

use super::{Server, brief};

const GLOB: &str = "xdstp://mesh/envoy.config.cluster.v3.Cluster/shop/*";
const LIST: &str = "xdstp://mesh/envoy.config.cluster.v3.ClusterCollection/all";

/// A server with an authority in its bootstrap.
async fn start() -> Server {
    let server = Server::start().await;
    let bootstrap = fs::read_to_string(server.bootstrap()).expect("a file");
    let mut bootstrap: Value = serde_json::from_str(&bootstrap).expect("it is JSON");
    bootstrap["authorities"] = json!({"mesh": {}});
    fs::write(server.bootstrap(), bootstrap.to_string()).expect("a file");
    server
}

fn name(id: &str) -> String {
    format!("xdstp://mesh/envoy.config.cluster.v3.Cluster/{id}")
}

fn named(id: &str) -> AnyResource {
    AnyResource::from(cluster("c").eds_service("e")).with_name(name(id))
}

#[tokio::test]
async fn each_member_of_a_glob_has_its_lines() {
    let server = start().await;
    server.control_plane.update(|tx| {
        tx.set(named("shop/a"));
        tx.set(named("shop/b"));
        tx.set(named("c"));
    });
    let mut watch = server.watch(&format!("--json cluster={GLOB}"));
    for id in ["shop/a", "shop/b"] {
        assert_eq!(brief(&watch.json().await), format!("cluster={GLOB} {} present", name(id)));
    }
    server.control_plane.remove(type_url::CLUSTER, &name("shop/a"));
    let gone = watch.json().await;
    assert_eq!(brief(&gone), format!("cluster={GLOB} {} absent", name("shop/a")));
    assert_eq!(gone["error"]["code"], "NOT_FOUND");
}

#[tokio::test]
async fn each_member_of_a_list_has_its_lines_and_one_entry_can_be_watched() {
    let server = start().await;
    server.control_plane.update(|tx| {
        tx.set(named("a"));
        tx.set(collection(LIST).locator(&name("a")).inline("i", "7", cluster("c").eds_service("e")));
    });
    let mut watch = server.watch(&format!("--json cluster={LIST}"));
    let mut lines = [brief(&watch.json().await), brief(&watch.json().await)];
    lines.sort_unstable();
    let member = |name: &str| format!("cluster={LIST} {name} present");
    assert_eq!(lines, [member(&name("a")), member(&format!("{LIST}#entry=i"))]);
    let entry = format!("{LIST}#entry=i");
    let mut one = server.watch(&format!("--json cluster={entry}"));
    let line = one.json().await;
    assert_eq!((brief(&line), &line["version"]), (format!("cluster={entry} {entry} present"), &json!("7")));
}

#[tokio::test]
async fn an_error_of_a_collection_is_printed_under_its_name() {
    let server = start().await;
    let wrong = "xdstp://nowhere/envoy.config.cluster.v3.Cluster/*";
    let mut watch = server.watch(&format!("--json cluster={wrong}"));
    let line = watch.json().await;
    assert_eq!(brief(&line), format!("cluster={wrong} {wrong} absent"));
    assert_eq!(line["error"]["code"], "FAILED_PRECONDITION");
}
