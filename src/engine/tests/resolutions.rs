//! Resolutions among the other watches: their requests and their notifications.

use std::time::Duration;

use super::rig::Rig;
use crate::{
    base::WatchId,
    config::{AuthorityBuilder, Bootstrap, Node, Server, ServerBuilder, Target},
    control_plane::AnyResource,
    engine::{Input, ResolutionChange, Settings},
    pb::{envoy::service::discovery::v3::DiscoveryResponse, google::protobuf::Any},
    resolve::{Addresses, LookupId},
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

mod all_names;
mod on_demand;
mod peer_sources;
mod scopes;

/// A response of one type, whose version and nonce are the same text.
pub(super) fn response<R: Into<AnyResource>>(
    version: &str,
    resources: impl IntoIterator<Item = R>,
) -> DiscoveryResponse {
    let resources: Vec<AnyResource> = resources.into_iter().map(Into::into).collect();
    let any = |resource: &AnyResource| Any {
        type_url: resource.type_url().to_owned(),
        value: resource.bytes().clone(),
    };
    DiscoveryResponse {
        version_info: version.into(),
        nonce: format!("n{version}"),
        type_url: resources[0].type_url().to_owned(),
        resources: resources.iter().map(any).collect(),
        ..DiscoveryResponse::default()
    }
}

impl Rig {
    fn resolve(&mut self, target: impl Into<Target>) -> (WatchId, Vec<String>) {
        let watch_id = self.next_watch_id();
        self.engine.resolve(watch_id, &target.into(), self.now);
        (watch_id, self.drain())
    }

    fn looked_up(&mut self, lookup: u64, ip: &str) -> Vec<String> {
        let addresses = Addresses::new([ip.parse().expect("an address")]);
        self.input(Input::Resolved { lookup: LookupId(lookup), result: Ok(addresses) })
    }

    /// What a response leads to, after the request that it leads to is written; answers alone are left out.
    fn receive_all<R: Into<AnyResource>>(
        &mut self,
        version: &str,
        resources: impl IntoIterator<Item = R>,
    ) -> Vec<String> {
        let mut outputs = self.receive(1, &response(version, resources));
        outputs.extend(self.sent(1));
        for _ in 0..4 {
            outputs.extend(self.pass(Duration::from_millis(250)));
            outputs.extend(self.sent(1));
        }
        outputs.retain(|outputs| outputs != "read");
        outputs
    }
}

/// A stream on which `xds:///shop` was resolved, its listener is known, and its routes lead to these clusters.
fn rig_with_routes(clusters: &[&str]) -> (Rig, WatchId) {
    let mut rig = Rig::new();
    let (watch_id, outputs) = rig.resolve("xds:///shop");
    assert_eq!(outputs, ["connect 0.1"]);
    assert_eq!(rig.connect(1), ["read", "send Listener [shop] / node"]);
    rig.sent(1);
    let routes = clusters.iter().map(|cluster| route::prefix(format!("/{cluster}")).cluster(*cluster));
    let routes = route_config("").virtual_host(["shop"], routes);
    rig.receive_all("1", [listener("shop").inline_routes(routes)]);
    (rig, watch_id)
}

#[test]
fn a74_1_a_target_is_followed_to_its_endpoints() {
    let mut rig = Rig::new();
    rig.resolve("xds:///shop");
    rig.connect(1);
    rig.sent(1);
    let requested = |outputs: Vec<String>| {
        outputs.into_iter().find(|outputs| !outputs.contains("1/n1")).expect("a request")
    };
    assert_eq!(
        requested(rig.receive_all("1", [listener("shop").rds("routes")])),
        "send RouteConfiguration [routes] /"
    );
    let routes = route_config("routes").virtual_host(["shop"], [route::prefix("/").cluster("a")]);
    assert_eq!(requested(rig.receive_all("1", [routes])), "send Cluster [a] /");
    assert_eq!(
        requested(rig.receive_all("1", [cluster("a").eds_service("of a")])),
        "send ClusterLoadAssignment [of a] /"
    );
    let tree = "#1 tree routes: a=10.0.0.1:80";
    assert_eq!(
        requested(rig.receive_all("1", [endpoints("of a").locality("eu", "a", ["10.0.0.1:80"])])),
        tree
    );
}

#[test]
fn a_response_is_seen_as_a_whole() {
    let (mut rig, _) = rig_with_routes(&["a", "b"]);
    rig.receive_all("1", [cluster("a"), cluster("b")]);
    let at = |last: u8| {
        ["a", "b"].map(|name| endpoints(name).locality("eu", "a", [&*format!("10.0.0.{last}:80")]))
    };
    let trees = |outputs: Vec<String>| {
        outputs.into_iter().filter(|outputs| outputs.contains("tree")).collect::<Vec<_>>()
    };
    assert_eq!(trees(rig.receive_all("1", at(1))), ["#1 tree : a=10.0.0.1:80 b=10.0.0.1:80"]);
    assert_eq!(
        trees(rig.receive_all("2", at(2))),
        ["#1 tree : a=10.0.0.2:80 b=10.0.0.2:80"],
        "one tree for two changes"
    );
}

#[test]
fn resolutions_share_subscriptions_and_end_alone() {
    let (mut rig, first) = rig_with_routes(&["a"]);
    rig.receive_all("1", [cluster("a")]);
    rig.receive_all("1", [endpoints("a").locality("eu", "a", ["10.0.0.1:80"])]);
    let (second, outputs) = rig.resolve("xds:///shop");
    assert_eq!(outputs, ["#2 tree : a=10.0.0.1:80"], "nothing is requested");
    assert!(rig.unwatch(first).is_empty());
    let outputs = rig.receive_all("2", [endpoints("a").locality("eu", "a", ["10.0.0.2:80"])]);
    assert!(outputs.contains(&"#2 tree : a=10.0.0.2:80".to_owned()), "{outputs:?}");
    let mut outputs = rig.unwatch(second);
    for _ in 0..4 {
        outputs.extend(rig.sent(1));
        outputs.extend(rig.pass(Duration::from_millis(250)));
    }
    for ty in ["Listener", "Cluster", "ClusterLoadAssignment"] {
        assert!(outputs.iter().any(|outputs| outputs.starts_with(&format!("send {ty} []"))), "{outputs:?}");
    }
    assert_eq!(rig.engine.resources(), 0);
}

#[test]
fn a37_5_logical_dns_is_looked_up_by_an_order() {
    let (mut rig, watch_id) = rig_with_routes(&["db"]);
    let outputs = rig.receive_all("1", [cluster("db").logical_dns("db.example", 5432)]);
    assert!(outputs.contains(&"lookup 1 db.example".to_owned()), "{outputs:?}");
    assert_eq!(rig.looked_up(1, "10.0.0.1"), ["#1 tree : db=10.0.0.1:5432"]);
    rig.engine.change_resolution(watch_id, ResolutionChange::LookUpAgain, rig.now);
    assert_eq!(rig.drain(), [""; 0], "not before the least time");
    let outputs = rig.pass(Duration::from_secs(30));
    assert!(outputs.contains(&"lookup 2 db.example".to_owned()), "{outputs:?}");
    assert_eq!(rig.looked_up(2, "10.0.0.2"), ["#1 tree : db=10.0.0.2:5432"]);
    rig.unwatch(watch_id);
    assert_eq!(rig.looked_up(3, "10.0.0.3"), [""; 0]);
}

#[test]
fn a74_6_a_call_holds_a_cluster() {
    let (mut rig, watch_id) = rig_with_routes(&["a"]);
    rig.receive_all("1", [cluster("a")]);
    rig.receive_all("1", [endpoints("a").locality("eu", "a", ["10.0.0.1:80"])]);
    rig.engine.change_resolution(watch_id, ResolutionChange::Subscribe("d"), rig.now);
    let outputs = rig.drain();
    assert!(outputs.iter().any(|outputs| outputs.starts_with("send Cluster [a,d]")), "{outputs:?}");
    rig.receive_all("2", [cluster("a"), cluster("d")]);
    let outputs = rig.receive_all("2", [endpoints("d").locality("eu", "a", ["10.0.0.4:80"])]);
    assert!(outputs.contains(&"#1 tree : a=10.0.0.1:80 d=10.0.0.4:80".to_owned()), "{outputs:?}");
    rig.engine.change_resolution(watch_id, ResolutionChange::Unsubscribe("d"), rig.now);
    assert!(rig.drain().contains(&"#1 tree : a=10.0.0.1:80".to_owned()));
}

#[test]
fn a47_targets_name_listeners_by_template_and_authority() {
    let bootstrap = Bootstrap::builder()
        .node(Node::new("n"))
        .server(Server::new("127.0.0.1:1").insecure())
        .authority("a.example", AuthorityBuilder::default())
        .build()
        .expect("a bootstrap");
    let requested = |target: &str| {
        let mut rig = Rig::of(bootstrap.clone(), Settings::default());
        rig.resolve(target);
        rig.connect(1).pop().expect("a request")
    };
    assert_eq!(requested("xds:///shop"), "send Listener [shop] / node");
    assert_eq!(requested("xds:///a%20b"), "send Listener [a b] / node");
    let name = "xdstp://a.example/envoy.config.listener.v3.Listener/shop";
    assert_eq!(requested("xds://a.example/shop"), format!("send Listener [{name}] / node"));
    let mut rig = Rig::of(bootstrap.clone(), Settings::default());
    for (target, part) in [
        ("shop", "does not start with `xds:`"),
        ("xds:///", "no name of a service"),
        ("xds://b.example/shop", "authority \"b.example\" is not found in the bootstrap"),
    ] {
        let (watch_id, outputs) = rig.resolve(target);
        assert!(outputs[0].contains("INVALID_ARGUMENT") && outputs[0].contains(part), "{outputs:?}");
        assert_eq!(outputs.len(), 1);
        assert!(rig.unwatch(watch_id).is_empty());
    }
}

/// That `*` is requested from a server in a response of one of the resolution's steps, be it in the legacy form.
fn requests_wildcard(outputs: &[String]) -> bool {
    outputs
        .iter()
        .filter(|outputs| outputs.starts_with("send"))
        .any(|outputs| outputs.contains('*') || outputs.contains("[]"))
}

#[test]
fn the_wildcard_is_no_name_of_anything_that_a_resolution_needs() {
    let error = "`*` is the wildcard and not the name of a resource";
    let mut rig = Rig::new();
    let (_, outputs) = rig.resolve("xds:///*");
    assert!(outputs[0].contains("INVALID_ARGUMENT") && outputs[0].contains(error), "{outputs:?}");

    rig.resolve("xds:///shop");
    rig.connect(1);
    rig.sent(1);
    let outputs = rig.receive_all("1", [listener("shop").rds("*")]);
    assert!(!requests_wildcard(&outputs), "{outputs:?}");
    let errors =
        outputs.iter().filter(|outputs| outputs.contains("INVALID_ARGUMENT") && outputs.contains(error));
    assert_eq!(errors.count(), 1, "{outputs:?}");

    let (mut rig, watch_id) = rig_with_routes(&["*", "a", "b"]);
    let all = [cluster("a").eds_service("*"), cluster("b").aggregate(["*", "c"])];
    let mut outputs = rig.receive_all("1", all.clone());
    let all = all.into_iter().chain([cluster("c").logical_dns("db.example", 5432)]);
    outputs.extend(rig.receive_all("2", all));
    assert!(!requests_wildcard(&outputs), "{outputs:?}");
    let outputs = rig.looked_up(1, "10.0.0.1");
    assert_eq!(
        outputs,
        ["#1 tree : *= a= b=10.0.0.1:5432 c=10.0.0.1:5432"],
        "each error stays with its cluster"
    );
    rig.engine.change_resolution(watch_id, ResolutionChange::Subscribe("*"), rig.now);
    assert!(!requests_wildcard(&rig.drain()));
}

#[test]
fn the_authority_of_a_target_can_be_overridden() {
    let mut rig = Rig::new();
    rig.resolve(Target::new("xds:///shop").with_authority("other.example"));
    rig.connect(1);
    rig.sent(1);
    let routes = route_config("")
        .virtual_host(["shop"], [route::prefix("/").cluster("a")])
        .virtual_host(["*.example"], [route::prefix("/").cluster("b")]);
    let outputs = rig.receive_all("1", [listener("shop").inline_routes(routes)]);
    assert!(outputs.iter().any(|outputs| outputs.starts_with("send Cluster [b]")), "{outputs:?}");
}

#[test]
fn f4_only_clusters_of_the_chosen_virtual_host_are_subscribed() {
    let (mut rig, _) = rig_with_routes(&["a"]);
    let routes = route_config("")
        .virtual_host(["shop"], [route::prefix("/").cluster("a")])
        .virtual_host(["*"], (0..100).map(|i| route::path(format!("/{i}")).cluster(format!("other {i}"))));
    let outputs = rig.receive_all("2", [listener("shop").inline_routes(routes)]);
    assert!(!outputs.iter().any(|outputs| outputs.contains("other")), "{outputs:?}");
}

#[test]
fn one_update_of_endpoints_in_a_mesh_of_10_000_clusters_touches_one() {
    let names: Vec<_> = (0..10_000).map(|i| format!("c{i}")).collect();
    let (mut rig, _) = rig_with_routes(&names.iter().map(String::as_str).collect::<Vec<_>>());
    rig.receive_all("1", names.iter().map(cluster));
    let at = |name: &String| endpoints(name).locality("eu", "a", ["10.0.0.1:80"]);
    let outputs = rig.receive_all("1", names.iter().map(at));
    assert_eq!(outputs.iter().filter(|outputs| outputs.contains("tree")).count(), 1);
    let first = rig.engine.resolutions.clusters_examined();
    assert!(first <= 50_000, "{first} for the first snapshot");
    let outputs = rig.receive_all("2", [endpoints("c5000").locality("eu", "a", ["10.0.0.2:80"])]);
    assert_eq!(outputs.iter().filter(|outputs| outputs.contains("tree")).count(), 1);
    assert!(rig.engine.resolutions.clusters_examined() - first <= 2);
}
