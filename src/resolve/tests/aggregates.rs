//! Aggregate clusters in resolutions; the order of their leaves alone is tested where it is made.

use super::rig::{GRACE, Rig};
use crate::{
    error::Code,
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

const NONE: [&str; 0] = [];

/// A resolver whose routes lead to these clusters.
fn rig(clusters: &[&str]) -> Rig {
    let mut rig = Rig::new();
    let routes = clusters.iter().map(|cluster| route::prefix(format!("/{cluster}")).cluster(*cluster));
    rig.listener(listener("shop").inline_routes(route_config("").virtual_host(["shop"], routes)));
    rig
}

impl Rig {
    /// A cluster with one endpoint; its number is the last part of the address.
    fn leaf(&mut self, name: &str, number: u8) -> Vec<String> {
        let mut orders = self.cluster(cluster(name));
        orders.extend(self.endpoints(endpoints(name).locality("eu", "a", [&*format!("10.0.0.{number}:80")])));
        orders
    }

    fn aggregate(&mut self, name: &str, children: &[&str]) -> Vec<String> {
        self.cluster(cluster(name).aggregate(children.iter().copied()))
    }
}

#[test]
fn a37_4_leaves_are_in_order_and_each_once() {
    let mut rig = rig(&["top"]);
    assert_eq!(rig.aggregate("top", &["a", "side", "b"]), ["+cluster a", "+cluster b", "+cluster side"]);
    rig.aggregate("side", &["c", "a"]);
    rig.leaf("a", 1);
    rig.leaf("b", 2);
    let orders = rig.leaf("c", 3);
    let tree = ": a=10.0.0.1:80 b=10.0.0.2:80 c=10.0.0.3:80 side>c,a top>a,c,b";
    assert_eq!(orders.last().map(String::as_str), Some(tree));
}

#[test]
fn a37_4_a_chain_over_16_is_an_error_of_each_aggregate_in_it() {
    let mut rig = rig(&["a0", "z"]);
    rig.leaf("z", 9);
    let mut orders = Vec::new();
    for i in 0..16 {
        orders = rig.aggregate(&format!("a{i}"), &[&format!("a{}", i + 1), "z"]);
        assert!(i == 15 || orders == [format!("+cluster a{}", i + 1)], "{orders:?}");
    }
    let errors: Vec<_> = (0..16).map(|i| format!("a{i}!FAILED_PRECONDITION")).collect();
    let tree = orders.last().expect("a tree");
    assert!(errors.iter().all(|error| tree.contains(error)), "{tree}");
    assert!(tree.contains("z=10.0.0.9:80"), "the leaf itself is well: {tree}");
    let tree = rig.tree.clone().expect("a tree");
    let error = tree.clusters["a3"].error.clone().expect("an error");
    assert_eq!(error.reason(), "aggregate cluster graph exceeds max depth (16)");
    let orders = rig.aggregate("a14", &["z"]);
    assert!(orders.last().is_some_and(|tree| tree.contains("a0>z")), "16 are allowed: {orders:?}");
}

#[test]
fn f5_each_aggregate_of_a_cycle_without_leaves_has_none() {
    let mut rig = rig(&["a"]);
    rig.aggregate("a", &["b"]);
    assert_eq!(rig.aggregate("b", &["a", "b"]), [": a!FAILED_PRECONDITION b!FAILED_PRECONDITION"]);
    let tree = rig.tree.clone().expect("a tree");
    for name in ["a", "b"] {
        let error = tree.clusters[name].error.clone().expect("an error");
        assert_eq!(error.reason(), "aggregate cluster graph has no leaf clusters");
    }
    assert_eq!(rig.aggregate("b", &["a", "x"]), ["+cluster x"]);
    assert_eq!(rig.leaf("x", 1), ["+endpoints x", ": a>x b>x x=10.0.0.1:80"]);
}

#[test]
fn a74_5_children_that_are_missing_are_skipped_until_all_are() {
    let mut rig = rig(&["top"]);
    rig.aggregate("top", &["a", "b"]);
    rig.leaf("a", 1);
    assert_eq!(rig.no_cluster("b", Code::NotFound), [": a=10.0.0.1:80 b!NOT_FOUND top>a"]);
    let orders = rig.no_cluster("a", Code::InvalidArgument);
    assert_eq!(orders, ["-endpoints a", ": a!INVALID_ARGUMENT b!NOT_FOUND top!FAILED_PRECONDITION"]);
    assert_eq!(rig.leaf("b", 2), ["+endpoints b", ": a!INVALID_ARGUMENT b=10.0.0.2:80 top>b"]);
}

#[test]
fn a74_5_a_missing_child_does_not_end_the_watches_of_its_siblings() {
    let mut rig = rig(&["top"]);
    rig.aggregate("top", &["gone", "b"]);
    rig.leaf("b", 2);
    assert_eq!(rig.no_cluster("gone", Code::NotFound), [": b=10.0.0.2:80 gone!NOT_FOUND top>b"]);
}

#[test]
fn a74_5_a_child_without_endpoints_is_a_leaf_still() {
    let mut rig = rig(&["top"]);
    rig.aggregate("top", &["a", "b"]);
    rig.leaf("b", 2);
    rig.cluster(cluster("a"));
    assert_eq!(rig.no_endpoints("a", Code::NotFound), [": a(NOT_FOUND) b=10.0.0.2:80 top>a,b"]);
}

#[test]
fn f5_two_aggregates_may_share_a_leaf_that_is_a_routes_own() {
    let mut rig = rig(&["one", "two", "x"]);
    rig.aggregate("one", &["x"]);
    rig.aggregate("two", &["x"]);
    assert_eq!(rig.leaf("x", 1), ["+endpoints x", ": one>x two>x x=10.0.0.1:80"]);
}

#[test]
fn an_aggregate_serves_as_it_was_until_its_new_children_are_ready() {
    let mut rig = rig(&["top"]);
    rig.aggregate("top", &["a"]);
    rig.leaf("a", 1);
    assert_eq!(rig.aggregate("top", &["b"]), ["+cluster b"]);
    assert_eq!(rig.cluster(cluster("b")), ["+endpoints b"]);
    let orders = rig.endpoints(endpoints("a").locality("eu", "a", ["10.0.0.8:80"]));
    assert_eq!(orders, [": a=10.0.0.8:80 top>a"], "and its old child is followed");
    let orders = rig.endpoints(endpoints("b").locality("eu", "a", ["10.0.0.2:80"]));
    assert_eq!(orders, ["-endpoints a", "-cluster a", ": b=10.0.0.2:80 top>b"]);
}

#[test]
fn a_cluster_may_become_an_aggregate_and_be_one_no_more() {
    let mut rig = rig(&["top"]);
    rig.leaf("top", 1);
    assert_eq!(rig.aggregate("top", &["a"]), ["+cluster a"]);
    assert_eq!(rig.leaf("a", 2), ["+endpoints a", "-endpoints top", ": a=10.0.0.2:80 top>a"]);
    assert_eq!(rig.cluster(cluster("top")), ["+endpoints top"]);
    let orders = rig.endpoints(endpoints("top").locality("eu", "a", ["10.0.0.3:80"]));
    assert_eq!(orders, ["-endpoints a", "-cluster a", ": top=10.0.0.3:80"]);
}

#[test]
fn aggregates_that_lead_to_each_other_are_unsubscribed_together() {
    let mut rig = rig(&["a", "keep"]);
    rig.leaf("keep", 9);
    rig.aggregate("a", &["b", "keep"]);
    assert_eq!(rig.aggregate("b", &["a"]), [": a>keep b>keep keep=10.0.0.9:80"]);
    let routes = route_config("").virtual_host(["shop"], [route::prefix("/").cluster("keep")]);
    let orders = rig.listener(listener("shop").inline_routes(routes));
    assert_eq!(orders, ["-cluster a", "-cluster b", ": keep=10.0.0.9:80"]);
    assert_eq!(rig.aggregate("b", &["x"]), NONE, "nobody listens to it");
}

#[test]
fn a75_1_an_aggregate_leads_to_the_clusters_of_its_leaves() {
    let mut rig = rig(&["top"]);
    rig.aggregate("top", &["a", "b"]);
    rig.leaf("a", 1);
    rig.leaf("b", 2);
    let tree = rig.tree.expect("a tree");
    let top = tree.cluster("top").expect("a cluster");
    let leaves: Vec<_> = top.leaves().map(|leaf| leaf.name().to_string()).collect();
    assert_eq!(leaves, ["a", "b"]);
    let policies = top.leaves().filter_map(|leaf| leaf.config().map(|config| config.lb_policy.clone()));
    assert_eq!(policies.count(), 2, "each leaf has the policy that counts");
}

#[test]
fn a_deleted_cluster_that_a_call_holds_serves_an_aggregate_until_its_new_children_are_ready() {
    let mut rig = rig(&["top"]);
    rig.aggregate("top", &["a"]);
    rig.leaf("a", 1);
    rig.hold("a", true);
    assert_eq!(rig.aggregate("top", &["b", "c"]), ["+cluster b", "+cluster c"]);
    assert_eq!(rig.no_cluster("a", Code::NotFound), [": a=10.0.0.1:80(NOT_FOUND) top>a"]);
    rig.leaf("b", 2);
    assert_eq!(rig.pass(GRACE * 10), NONE, "as without the call");
    let orders = rig.no_cluster("c", Code::NotFound);
    assert_eq!(orders, ["-endpoints a", ": a!NOT_FOUND b=10.0.0.2:80 c!NOT_FOUND top>b"]);
}

#[test]
fn f5_an_aggregate_in_use_that_is_closed_to_a_ring_keeps_its_leaves_for_the_grace() {
    let tree = ": a=10.0.0.1:80 top>a";
    let ring = || {
        let mut rig = rig(&["top"]);
        rig.aggregate("top", &["a"]);
        assert_eq!(rig.leaf("a", 1), ["+endpoints a", tree]);
        assert_eq!(rig.aggregate("a", &["b"]), ["+cluster b"]);
        // It is older than what leads to it.
        assert_eq!(rig.aggregate("b", &["a"]), NONE);
        assert_eq!(rig.pass(GRACE / 2), NONE);
        rig
    };
    let mut mended = ring();
    assert_eq!(mended.leaf("b", 2), ["+endpoints b", "-endpoints a", ": a>b b=10.0.0.2:80 top>b"]);
    assert_eq!(mended.pass(GRACE), NONE);
    let errors = ": a!FAILED_PRECONDITION b!FAILED_PRECONDITION top!FAILED_PRECONDITION";
    let mut lasting = ring();
    assert_eq!(lasting.pass(GRACE), ["-endpoints a", errors]);
    assert_eq!(lasting.pass(GRACE), NONE);
}

#[test]
fn a74_5_an_aggregate_in_use_whose_new_children_do_not_exist_keeps_its_leaves_for_the_grace() {
    let mut rig = rig(&["top"]);
    rig.aggregate("top", &["a"]);
    rig.leaf("a", 1);
    rig.aggregate("top", &["b"]);
    assert_eq!(rig.no_cluster("b", Code::NotFound), NONE, "the error may be older than the reference to it");
    assert_eq!(rig.pass(GRACE / 2), NONE);
    assert_eq!(rig.leaf("b", 2), ["+endpoints b", "-endpoints a", "-cluster a", ": b=10.0.0.2:80 top>b"]);
    rig.aggregate("top", &["c"]);
    rig.no_cluster("c", Code::NotFound);
    let orders = rig.pass(GRACE);
    assert_eq!(orders.last().map(String::as_str), Some(": c!NOT_FOUND top!FAILED_PRECONDITION"));
}

#[test]
fn a74_6_deleted_aggregates_that_calls_hold_do_not_keep_each_other() {
    let mut rig = rig(&["top"]);
    rig.leaf("top", 1);
    for name in ["a", "b"] {
        rig.hold(name, true);
    }
    rig.aggregate("a", &["b", "c"]);
    rig.aggregate("b", &["a"]);
    let orders = rig.leaf("c", 3);
    assert_eq!(orders.last().map(String::as_str), Some(": a>c b>c c=10.0.0.3:80 top=10.0.0.1:80"));
    rig.no_cluster("a", Code::NotFound);
    rig.no_cluster("b", Code::NotFound);
    let orders = rig.pass(GRACE);
    assert_eq!(orders.last().map(String::as_str), Some(": a!NOT_FOUND b!NOT_FOUND top=10.0.0.1:80"));
}

#[test]
fn a37_4_routes_to_a_chain_over_16_are_used_although_what_is_too_deep_was_deleted() {
    let mut rig = rig(&["k"]);
    rig.leaf("k", 1);
    let routes = route_config("").virtual_host(["shop"], [route::prefix("/").cluster("a0")]);
    rig.listener(listener("shop").inline_routes(routes));
    // It serves until the next routes are used, and these do not lead to it.
    assert_eq!(rig.no_cluster("k", Code::NotFound), [": k=10.0.0.1:80(NOT_FOUND)"]);
    for i in 0..15 {
        rig.aggregate(&format!("a{i}"), &[&format!("a{}", i + 1)]);
    }
    let orders = rig.aggregate("a15", &["k"]);
    assert!(orders.contains(&"-cluster k".to_owned()), "{orders:?}");
    let names = (0..16).map(|i| format!("a{i}!FAILED_PRECONDITION"));
    assert!(
        names.into_iter().all(|name| orders.last().is_some_and(|tree| tree.contains(&name))),
        "{orders:?}"
    );
}
