//! Resolutions on a server that answers only to requests that name all resources of a type, as go-control-plane does in ADS mode:
//! listeners and clusters come, and routes or endpoints of a part of the mesh never do.

use super::*;
use crate::{
    engine::Output,
    error::{Code, WatchError},
    resolve::Resolved,
};

const HINT: &str = "only to requests that name all resources of a type, as go-control-plane does in ADS mode";

/// What the resolution publishes last while time passes.
fn last_published(rig: &mut Rig, time: Duration) -> Resolved {
    let until = rig.now + time;
    let mut last = None;
    while let Some((at, _)) = rig.engine.poll_timeout().filter(|(at, _)| *at <= until) {
        rig.now = rig.now.max(at);
        rig.engine.handle_timeout(rig.now);
        while let Some(output) = rig.engine.poll_output() {
            if let Output::Notify { observed, .. } = output {
                last = observed.downcast_ref::<Resolved>().cloned();
            }
        }
    }
    rig.now = until;
    last.expect("the resolution publishes something")
}

/// A resolution by routes of this name that serves from cluster `a`.
fn rig_with_tree(server: ServerBuilder, routes: &str) -> Rig {
    let mut rig = Rig::with(server);
    rig.resolve("xds:///shop");
    rig.connect(1);
    rig.sent(1);
    rig.receive_all("1", [listener("shop").rds(routes)]);
    rig.receive_all("1", [route_config(routes).virtual_host(["shop"], [route::prefix("/").cluster("a")])]);
    rig.receive_all("1", [cluster("a")]);
    let outputs = rig.receive_all("1", [endpoints("a").locality("eu", "a", ["10.0.0.1:80"])]);
    assert!(outputs.contains(&format!("#1 tree {routes}: a=10.0.0.1:80")), "{outputs:?}");
    rig
}

fn server() -> ServerBuilder {
    Server::new("127.0.0.1:1").insecure()
}

fn check(error: &WatchError, code: Code) {
    assert_eq!(error.code(), code, "{error}");
    assert!(error.reason().contains(HINT), "{error}");
}

#[test]
fn endpoints_of_a_partial_mesh_are_a_note_with_a_hint_after_the_does_not_exist_time() {
    let (mut rig, _) = rig_with_routes(&["a", "b"]);
    rig.receive_all("1", [cluster("a"), cluster("b"), cluster("c")]);
    let tree = last_published(&mut rig, Duration::from_secs(15)).expect("a tree");
    for name in ["a", "b"] {
        let watch_id = tree.cluster(name).expect("a cluster of the routes");
        assert!(watch_id.assignment().is_none());
        check(watch_id.endpoints_error().expect("a note"), Code::NotFound);
    }
}

#[test]
fn a_tree_in_use_takes_a_cluster_without_endpoints_with_a_hint_after_the_does_not_exist_time() {
    let mut rig = rig_with_tree(server(), "routes");
    let to = |cluster: &str| route::prefix(format!("/{cluster}")).cluster(cluster);
    rig.receive_all("2", [route_config("routes").virtual_host(["shop"], [to("a"), to("b")])]);
    rig.receive_all("2", [cluster("a"), cluster("b"), cluster("c")]);
    let tree = last_published(&mut rig, Duration::from_secs(15)).expect("a tree");
    check(tree.cluster("b").and_then(|b| b.endpoints_error()).expect("a note"), Code::NotFound);
    assert!(tree.cluster("a").is_some_and(|a| a.assignment().is_some() && a.endpoints_error().is_none()));
}

#[test]
fn a_cluster_in_use_whose_new_endpoints_never_come_has_an_error_after_the_does_not_exist_timeout() {
    let mut rig = rig_with_tree(server(), "routes");
    rig.receive_all("2", [cluster("a").eds_service("new")]);
    // And the grace of what it served by until then.
    let tree = last_published(&mut rig, Duration::from_secs(16)).expect("a tree");
    check(tree.cluster("a").and_then(|a| a.endpoints_error()).expect("a note"), Code::NotFound);
}

#[test]
fn routes_that_never_come_are_an_error_with_a_hint_after_the_does_not_exist_time() {
    let mut rig = rig_with_tree(server(), "routes");
    rig.receive_all("2", [listener("shop").rds("others")]);
    let error = last_published(&mut rig, Duration::from_secs(15)).expect_err("an error");
    check(&error, Code::NotFound);
}

#[test]
fn routes_that_never_come_are_a_warning_where_the_timer_is_a_transient_error() {
    let mut rig = rig_with_tree(server().features(["resource_timer_is_transient_error"]), "routes");
    rig.receive_all("2", [listener("shop").rds("others")]);
    let tree = last_published(&mut rig, Duration::from_secs(30)).expect("the tree in use");
    let warnings: Vec<_> = tree.warnings().collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    check(warnings[0], Code::Unavailable);
}
