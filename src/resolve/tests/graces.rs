//! What was deleted serves for a while: until when, and what begins that anew.

use std::time::Duration;

use super::rig::{GRACE, Rig};
use crate::{
    error::Code,
    testing::resources::{
        EndpointsBuilder, RouteConfigBuilder, cluster, endpoints, listener, route, route_config,
    },
};

const NONE: [&str; 0] = [];

#[test]
fn a74_4_the_grace_of_a_deleted_cluster_begins_anew_with_routes_that_need_it() {
    let mut rig = Rig::with_tree();
    rig.no_cluster("a", Code::NotFound);
    assert_eq!(rig.routes(routes_to(&["b"])), ["+cluster b"]);
    assert_eq!(rig.pass(GRACE * 5), NONE, "what comes next does without it");
    assert_eq!(rig.routes(routes_to(&["a"])), ["-cluster b"]);
    assert_eq!(rig.pass(GRACE - MOMENT), NONE, "it may be on its way as well");
    assert_eq!(rig.cluster(cluster("a")), ["routes: a=10.0.0.1:80"]);
    assert_eq!(rig.pass(GRACE * 2), NONE);
}

#[test]
fn a74_4_a_deleted_cluster_that_does_not_come_with_routes_that_need_it_is_an_error_after_the_grace() {
    let mut rig = Rig::with_tree();
    rig.no_cluster("a", Code::NotFound);
    rig.routes(routes_to(&["b"]));
    rig.pass(GRACE * 5);
    rig.routes(routes_to(&["a"]));
    assert_eq!(rig.pass(GRACE), ["-endpoints a", "routes: a!NOT_FOUND"]);
}

#[test]
fn a74_4_a_deleted_cluster_serves_until_routes_that_need_it_as_well_are_used() {
    let mut rig = Rig::with_tree();
    assert_eq!(rig.routes(routes_to(&["a", "b"])), ["+cluster b"]);
    rig.no_cluster("a", Code::NotFound);
    assert_eq!(rig.pass(GRACE * 5), NONE, "the routes wait for another cluster");
    assert_eq!(rig.resolver.next_timeout(), None, "nothing is due");
    rig.cluster(cluster("b"));
    let orders = rig.endpoints(at("b", 2));
    assert_eq!(orders, ["-endpoints a", "routes: a!NOT_FOUND b=10.0.0.2:80"]);
}

/// Found by the simulation: seed 98,940 of `a_valid_change_takes_nothing_from_who_is_served`.
#[test]
fn a74_4_a_deleted_child_serves_an_aggregate_whose_next_children_are_unknown_although_these_lead_to_it() {
    let mut rig = Rig::with_tree();
    rig.cluster(cluster("a").aggregate(["b"]));
    rig.cluster(cluster("b"));
    rig.endpoints(at("b", 2));
    rig.cluster(cluster("c"));
    assert_eq!(rig.cluster(cluster("a").aggregate(["c"])), ["+cluster c"]);
    rig.cluster(cluster("c").aggregate(["b", "d", "e"]));
    rig.cluster(cluster("e"));
    rig.endpoints(at("e", 5));
    assert_eq!(rig.no_cluster("b", Code::NotFound), ["routes: a>b b=10.0.0.2:80(NOT_FOUND)"]);
    assert_eq!(rig.pass(GRACE * 5), NONE, "d is unknown");
    assert_eq!(rig.resolver.next_timeout(), None, "nothing is due");
    let orders = rig.no_cluster("d", Code::NotFound);
    let tree = "routes: a>e b!NOT_FOUND c>e d!NOT_FOUND e=10.0.0.5:80";
    assert_eq!(orders, ["-endpoints b", tree]);
}

#[test]
fn b3_3_removed_endpoints_serve_until_routes_that_need_them_as_well_are_used() {
    let mut rig = Rig::with_tree();
    assert_eq!(rig.routes(routes_to(&["a", "b"])), ["+cluster b"]);
    rig.no_endpoints("a", Code::NotFound);
    assert_eq!(rig.pass(GRACE * 5), NONE);
    rig.cluster(cluster("b"));
    let orders = rig.endpoints(at("b", 2));
    assert_eq!(orders, ["routes: a(NOT_FOUND) b=10.0.0.2:80"]);
}

#[test]
fn a74_4_routes_wait_for_a_cluster_that_came_and_was_deleted_although_a_call_saw_it_missing_before() {
    let mut rig = Rig::with_tree();
    rig.hold("b", true);
    rig.no_cluster("b", Code::NotFound);
    assert_eq!(rig.cluster(cluster("b").aggregate(["c"])), ["+cluster c"]);
    assert_eq!(rig.routes(routes_to(&["b"])), NONE);
    rig.pass(GRACE * 5);
    assert_eq!(rig.no_cluster("b", Code::NotFound), ["-cluster c"], "other routes may be on their way");
    assert_eq!(rig.pass(GRACE - MOMENT), NONE);
    assert_eq!(rig.routes(routes_to(&["a"])), ["routes: a=10.0.0.1:80 b!NOT_FOUND"]);
}

#[test]
fn a74_4_routes_wait_for_an_aggregate_without_leaves_that_a_call_holds() {
    let mut rig = Rig::with_tree();
    rig.hold("b", true);
    rig.cluster(cluster("b").aggregate(["c"]));
    rig.no_cluster("c", Code::NotFound);
    assert_eq!(rig.routes(routes_to(&["b"])), NONE, "it may be older than the routes");
    rig.cluster(cluster("b"));
    let orders = rig.endpoints(at("b", 2));
    assert_eq!(orders.last().map(String::as_str), Some("routes: b=10.0.0.2:80"));
}

#[test]
fn a74_4_a_deleted_aggregate_in_a_chain_that_is_too_long_serves_others_for_its_grace() {
    let mut rig = Rig::with_tree();
    let name = |floor: usize| format!("w{floor}");
    rig.routes(routes_to(&["top"]));
    rig.cluster(cluster("top").aggregate([name(2)]));
    rig.hold(&name(0), true);
    for floor in 0..16 {
        rig.cluster(cluster(name(floor)).aggregate([name(floor + 1)]));
    }
    rig.cluster(cluster(name(16)));
    let orders = rig.endpoints(at(&name(16), 1));
    assert!(orders.last().is_some_and(|tree| tree.contains("top>w16") && tree.contains("w9!")), "{orders:?}");
    let orders = rig.no_cluster(&name(9), Code::NotFound);
    assert!(orders.iter().all(|tree| tree.contains("top>w16")), "{orders:?}");
    let orders = rig.pass(GRACE);
    assert!(orders.last().is_some_and(|tree| tree.contains("top!")), "{orders:?}");
}

#[test]
fn a74_4_routes_wait_for_endpoints_that_are_not_there() {
    for code in [Code::NotFound, Code::Internal] {
        let mut rig = Rig::with_tree();
        rig.routes(routes_to(&["b"]));
        rig.cluster(cluster("b"));
        assert_eq!(rig.no_endpoints("b", code), NONE, "that may be older than the routes");
        let orders = rig.endpoints(at("b", 2));
        assert_eq!(orders, ["-endpoints a", "-cluster a", "routes: b=10.0.0.2:80"]);
        rig.routes(routes_to(&["c"]));
        rig.cluster(cluster("c"));
        rig.no_endpoints("c", code);
        let orders = rig.pass(GRACE);
        assert_eq!(orders, ["-endpoints b", "-cluster b", &*format!("routes: c({})", code.as_str())]);
    }
}

#[test]
fn f6_endpoints_of_another_service_that_are_not_there_are_waited_for() {
    for code in [Code::NotFound, Code::Internal] {
        let mut rig = Rig::with_tree();
        assert_eq!(rig.cluster(cluster("a").eds_service("b")), ["+endpoints b"]);
        assert_eq!(rig.no_endpoints("b", code), NONE, "that may be older than the cluster");
        assert_eq!(rig.pass(GRACE - MOMENT), NONE);
        let mut late = Rig::with_tree();
        late.cluster(cluster("a").eds_service("b"));
        late.no_endpoints("b", code);
        assert_eq!(rig.endpoints(at("b", 2)), ["-endpoints a", "routes: a=10.0.0.2:80"]);
        assert_eq!(late.pass(GRACE), ["-endpoints a", &*format!("routes: a({})", code.as_str())]);
    }
}

#[test]
fn a74_5_an_aggregate_in_use_keeps_endpoints_while_the_server_is_away() {
    let mut rig = Rig::new();
    rig.listener(listener("shop").rds("routes"));
    rig.routes(routes_to(&["top"]));
    rig.cluster(cluster("top").aggregate(["b", "a"]));
    rig.cluster(cluster("b"));
    rig.no_endpoints("b", Code::Unavailable);
    rig.cluster(cluster("a"));
    assert_eq!(rig.endpoints(at("a", 1)), ["routes: a=10.0.0.1:80 b(UNAVAILABLE) top>b,a"]);
    assert_eq!(rig.cluster(cluster("top").aggregate(["b"])), NONE, "nothing could be sent to b");
    let orders = rig.endpoints(at("b", 2));
    assert_eq!(orders, ["-endpoints a", "-cluster a", "routes: b=10.0.0.2:80 top>b"]);
}

/// Found by the simulation: seed 67,815 of `a_lost_server_takes_nothing_from_who_is_served`.
#[test]
fn a74_5_an_aggregate_in_use_whose_new_leaves_lack_endpoints_keeps_those_that_it_has_for_the_grace() {
    for code in [Code::NotFound, Code::Internal] {
        for before in [cluster("a"), cluster("a").aggregate(["c"])] {
            let (mut mended, mut lasting) = (Rig::with_tree(), Rig::with_tree());
            for rig in [&mut mended, &mut lasting] {
                rig.cluster(before.clone());
                rig.cluster(cluster("c"));
                rig.endpoints(at("c", 3));
                rig.cluster(cluster("a").aggregate(["b"]));
                rig.cluster(cluster("b"));
                assert_eq!(rig.no_endpoints("b", code), NONE, "that may be older than the cluster");
                assert_eq!(rig.pass(GRACE - MOMENT), NONE);
            }
            let orders = mended.endpoints(at("b", 2));
            assert_eq!(orders.last().map(String::as_str), Some("routes: a>b b=10.0.0.2:80"));
            assert_eq!(mended.pass(GRACE), NONE);
            let orders = lasting.pass(GRACE);
            assert_eq!(orders.last(), Some(&format!("routes: a>b b({})", code.as_str())));
        }
    }
}

/// A switch from one cluster to another, whose endpoints are reported missing for a moment, does not reach the fallback of both.
#[test]
fn a74_5_an_aggregate_in_use_whose_new_first_leaf_lacks_endpoints_keeps_the_one_before_for_the_grace() {
    for code in [Code::NotFound, Code::Internal] {
        let (mut mended, mut lasting) = (Rig::with_tree(), Rig::with_tree());
        for rig in [&mut mended, &mut lasting] {
            rig.cluster(cluster("a").aggregate(["blue", "fallback"]));
            rig.cluster(cluster("blue"));
            rig.endpoints(at("blue", 2));
            rig.cluster(cluster("fallback"));
            let orders = rig.endpoints(at("fallback", 3));
            let tree = "routes: a>blue,fallback blue=10.0.0.2:80 fallback=10.0.0.3:80";
            assert_eq!(orders.last().map(String::as_str), Some(tree));
            rig.cluster(cluster("a").aggregate(["green", "fallback"]));
            rig.cluster(cluster("green"));
            assert_eq!(rig.no_endpoints("green", code), NONE, "that may be older than the cluster");
            assert_eq!(rig.pass(GRACE - MOMENT), NONE);
        }
        let orders = mended.endpoints(at("green", 4));
        let tree = "routes: a>green,fallback fallback=10.0.0.3:80 green=10.0.0.4:80";
        assert_eq!(orders.last().map(String::as_str), Some(tree));
        assert_eq!(mended.pass(GRACE), NONE);
        let orders = lasting.pass(GRACE);
        let tree = format!("routes: a>green,fallback fallback=10.0.0.3:80 green({})", code.as_str());
        assert_eq!(orders.last(), Some(&tree));
    }
}

#[test]
fn a74_5_an_aggregate_whose_first_leaf_comes_behind_one_that_lacks_endpoints_serves_by_it_at_once() {
    let mut rig = Rig::with_tree();
    rig.cluster(cluster("a").aggregate(["blue"]));
    rig.cluster(cluster("blue"));
    rig.endpoints(at("blue", 2));
    rig.cluster(cluster("a").aggregate(["green", "blue"]));
    rig.cluster(cluster("green"));
    let orders = rig.no_endpoints("green", Code::NotFound);
    assert_eq!(orders, ["routes: a>green,blue blue=10.0.0.2:80 green(NOT_FOUND)"]);
}

/// Found by the simulation: seed 20,327 of `resolutions_of_anything`.
#[test]
fn f7_an_aggregate_of_routes_to_come_that_is_one_no_more_is_left_out_until_it_is_ready() {
    let mut rig = Rig::with_tree();
    rig.routes(routes_to(&["b", "c"]));
    rig.cluster(cluster("b").aggregate(["d"]));
    rig.cluster(cluster("d"));
    rig.endpoints(at("d", 4));
    assert_eq!(rig.cluster(cluster("b")), ["+endpoints b", "-endpoints d", "-cluster d"]);
    assert_eq!(rig.hold("b", true), NONE, "its endpoints are not known yet");
    assert_eq!(rig.endpoints(at("b", 2)), ["routes: a=10.0.0.1:80 b=10.0.0.2:80"]);
}

#[test]
fn f7_an_aggregate_that_is_one_no_more_is_left_out_for_the_next_call_when_the_last_one_has_ended() {
    let mut rig = Rig::with_tree();
    rig.routes(routes_to(&["b", "c"]));
    rig.cluster(cluster("b").aggregate(["d"]));
    rig.cluster(cluster("d"));
    rig.endpoints(at("d", 4));
    rig.hold("b", true);
    assert_eq!(rig.cluster(cluster("b")), ["+endpoints b"], "it serves by its old configuration");
    let tree = "routes: a=10.0.0.1:80";
    assert_eq!(rig.hold("b", false), ["-endpoints d", "-cluster d", tree]);
    assert_eq!(
        rig.hold("b", true),
        NONE,
        "the cluster below it is gone, and its endpoints are not known yet"
    );
    assert_eq!(rig.endpoints(at("b", 2)), ["routes: a=10.0.0.1:80 b=10.0.0.2:80"]);
}

#[test]
fn f7_an_aggregate_of_routes_to_come_is_left_out_when_a_cluster_below_it_becomes_unknown_again() {
    let mut rig = Rig::with_tree();
    rig.routes(routes_to(&["b", "c"]));
    rig.cluster(cluster("b").aggregate(["d"]));
    rig.cluster(cluster("d").aggregate(["e"]));
    rig.cluster(cluster("e"));
    rig.endpoints(at("e", 4));
    assert_eq!(rig.cluster(cluster("d")), ["+endpoints d", "-endpoints e", "-cluster e"]);
    assert_eq!(rig.hold("b", true), NONE, "the endpoints of d are not known yet");
    assert_eq!(rig.endpoints(at("d", 2)), ["routes: a=10.0.0.1:80 b>d d=10.0.0.2:80"]);
}

fn routes_to(clusters: &[&str]) -> RouteConfigBuilder {
    let routes = clusters.iter().map(|cluster| route::prefix(format!("/{cluster}")).cluster(*cluster));
    route_config("routes").virtual_host(["shop"], routes)
}

fn at(name: &str, number: u8) -> EndpointsBuilder {
    endpoints(name).locality("eu", "a", [&*format!("10.0.0.{number}:80")])
}

const MOMENT: Duration = Duration::from_millis(1);
