//! The rules of resolutions, each by its number.

use std::time::Duration;

use super::rig::{GRACE, Rig, error, present};
use crate::{
    error::Code,
    resolve::{Endpoints, Seen, Source},
    resource::{Cluster, ClusterLoadAssignment, Listener, Resource, RouteConfiguration},
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

const NONE: [&str; 0] = [];

/// Routes of this name for the host `shop`, to these clusters.
fn routes_to(name: &str, clusters: &[&str]) -> crate::testing::resources::RouteConfigBuilder {
    let routes = clusters.iter().map(|cluster| route::prefix(format!("/{cluster}")).cluster(*cluster));
    route_config(name).virtual_host(["shop"], routes)
}

fn at(name: &str, address: &str) -> crate::testing::resources::EndpointsBuilder {
    endpoints(name).locality("eu", "a", [address])
}

/// A listener for a server's socket.
fn socket_listener() -> crate::testing::resources::ListenerBuilder {
    listener("shop").inline_routes(routes_to("", &["a"])).edit(|message| {
        use crate::pb::envoy::config::{core::v3 as core, listener::v3 as pb};

        let manager = message.api_listener.take().and_then(|api| api.api_listener);
        let filter =
            pb::Filter { name: "http".into(), config_type: manager.map(pb::filter::ConfigType::TypedConfig) };
        message.filter_chains = vec![pb::FilterChain { filters: vec![filter], ..Default::default() }];
        let socket = core::SocketAddress {
            address: "10.0.0.9".into(),
            port_specifier: Some(core::socket_address::PortSpecifier::PortValue(80)),
            ..Default::default()
        };
        message.address =
            Some(core::Address { address: Some(core::address::Address::SocketAddress(socket)) });
    })
}

#[test]
fn f1_l22_rejects_a_resolution_from_a_listener_without_api_listener() {
    let mut rig = Rig::new();
    let orders = rig.listener(socket_listener());
    let text = "FAILED_PRECONDITION: Listener \"shop\": client-side listener resource \"shop\" does not contain API \
                listener configuration [node id: n]";
    assert_eq!(orders, [text]);
    assert_eq!(rig.listener(socket_listener()), NONE, "an equal state is not published twice");
}

#[test]
fn f2_inline_routes_need_no_watch_and_end_one() {
    let mut rig = Rig::with_tree();
    let orders = rig.listener(listener("shop").inline_routes(routes_to("inline", &["a"])));
    assert_eq!(orders, ["-routes routes", "inline: a=10.0.0.1:80"]);
}

#[test]
fn f2_the_same_routes_serve_a_new_listener_at_once() {
    let mut rig = Rig::with_tree();
    let orders = rig.listener(listener("shop").rds("routes"));
    assert_eq!(orders, ["routes: a=10.0.0.1:80"]);
}

#[test]
fn f2_the_old_routes_serve_until_those_of_another_name_are_there() {
    let mut rig = Rig::with_tree();
    assert_eq!(rig.listener(listener("shop").rds("others")), ["+routes others", "-routes routes"]);
    let orders = rig.endpoints(at("a", "10.0.0.2:80"));
    assert_eq!(orders, ["routes: a=10.0.0.2:80"], "with updates of its clusters");
    assert_eq!(rig.routes(routes_to("others", &["a"])), ["others: a=10.0.0.2:80"]);
}

#[test]
fn f2_the_old_tree_serves_while_other_routes_cannot_be_had() {
    let mut rig = Rig::with_tree();
    rig.listener(listener("shop").rds("others"));
    let orders = rig.no_routes("others", Code::Unavailable);
    assert_eq!(orders, ["routes: a=10.0.0.1:80 (UNAVAILABLE)"]);
    assert_eq!(rig.routes(routes_to("others", &["a"])), ["others: a=10.0.0.1:80"]);
    rig.listener(listener("shop").rds("none"));
    let orders = rig.no_routes("none", Code::NotFound);
    assert_eq!(orders, ["NOT_FOUND: RouteConfiguration \"none\": it is so [node id: n]"]);
}

#[test]
fn f3_the_virtual_host_is_that_of_the_authority() {
    let mut rig = Rig::with_authority("cart.shop.example");
    let routes = ["*", "cart.*", "*.example", "*.shop.example", "cart.shop.example"]
        .map(|domain| (domain, [route::prefix("/").cluster(format!("of {domain}"))]));
    for count in 1..=routes.len() {
        let hosts = routes.iter().take(count).fold(route_config(""), |config, (domain, routes)| {
            config.virtual_host([*domain], routes.clone())
        });
        let orders = rig.listener(listener("shop").inline_routes(hosts));
        let best = routes[count - 1].0;
        assert!(orders.contains(&format!("+cluster of {best}")), "{orders:?}");
        assert_eq!(
            orders.iter().filter(|orders| orders.starts_with('+')).count(),
            1,
            "that one alone: {orders:?}"
        );
    }
}

#[test]
fn f3_no_virtual_host_is_an_error_and_ends_the_tree() {
    let mut rig = Rig::with_tree();
    let others =
        route_config("routes").virtual_host(["other", "*.example"], [route::prefix("/").cluster("a")]);
    let text = "NOT_FOUND: RouteConfiguration \"routes\": could not find VirtualHost for \"shop\"; the domains are: \
                other, *.example [node id: n]";
    assert_eq!(rig.routes(others), [text]);
    assert_eq!(rig.endpoints(at("a", "10.0.0.2:80")), NONE, "there is no tree");
    assert_eq!(rig.routes(routes_to("routes", &["a"])), ["routes: a=10.0.0.2:80"]);
}

#[test]
fn f4_clusters_are_those_of_the_virtual_host_each_once() {
    let mut rig = Rig::new();
    rig.listener(listener("shop").rds("routes"));
    let routes = route_config("routes")
        .virtual_host(["other"], [route::prefix("/").cluster("elsewhere")])
        .virtual_host(
            ["shop"],
            [
                route::path("/a").weighted([("b", 1), ("a", 99)]),
                route::path("/b").cluster("b"),
                route::prefix("/").weighted([("c", 1), ("unused", 0)]),
            ],
        );
    assert_eq!(rig.routes(routes), ["+cluster a", "+cluster b", "+cluster c"]);
    let orders = rig.routes(routes_to("routes", &["b", "d"]));
    assert_eq!(orders, ["+cluster d", "-cluster a", "-cluster c"], "unused clusters are unsubscribed");
}

#[test]
fn f5_a_cluster_that_cannot_be_had_is_ready_with_its_error() {
    for code in [Code::NotFound, Code::InvalidArgument, Code::Unavailable] {
        let mut rig = Rig::new();
        rig.listener(listener("shop").inline_routes(routes_to("", &["a", "b"])));
        rig.cluster(cluster("a"));
        rig.endpoints(at("a", "10.0.0.1:80"));
        assert_eq!(rig.no_cluster("b", code), [format!(": a=10.0.0.1:80 b!{code}")]);
    }
}

#[test]
fn f5_endpoints_are_requested_by_the_service_or_the_cluster() {
    let mut rig = Rig::new();
    rig.listener(listener("shop").inline_routes(routes_to("", &["a", "b"])));
    assert_eq!(rig.cluster(cluster("a")), ["+endpoints a"]);
    assert_eq!(rig.cluster(cluster("b").eds_service("of b")), ["+endpoints of b"]);
    assert_eq!(rig.endpoints(at("a", "10.0.0.1:80")), NONE, "b is not ready");
    assert_eq!(rig.endpoints(at("of b", "10.0.0.2:80")), [": a=10.0.0.1:80 b=10.0.0.2:80"]);
}

#[test]
fn f5_clusters_may_share_their_endpoints() {
    let mut rig = Rig::new();
    rig.listener(listener("shop").inline_routes(routes_to("", &["a", "b"])));
    assert_eq!(rig.cluster(cluster("a").eds_service("both")), ["+endpoints both"]);
    assert_eq!(rig.cluster(cluster("b").eds_service("both")), NONE);
    assert_eq!(rig.endpoints(at("both", "10.0.0.1:80")), [": a=10.0.0.1:80 b=10.0.0.1:80"]);
    assert_eq!(
        rig.listener(listener("shop").inline_routes(routes_to("", &["b"]))),
        ["-cluster a", ": b=10.0.0.1:80"]
    );
    assert_eq!(rig.no_listener(Code::NotFound).len(), 1);
}

#[test]
fn f5_endpoints_that_cannot_be_had_are_a_note() {
    let mut rig = Rig::new();
    rig.listener(listener("shop").inline_routes(routes_to("", &["a"])));
    rig.cluster(cluster("a"));
    assert_eq!(rig.no_endpoints("a", Code::NotFound), [": a(NOT_FOUND)"]);
    assert_eq!(rig.endpoints(at("a", "10.0.0.1:80")), [": a=10.0.0.1:80"]);
}

#[test]
fn f6_unneeded_resources_are_unsubscribed_after_the_change() {
    let mut rig = Rig::with_tree();
    assert_eq!(rig.routes(routes_to("routes", &["b"])), ["+cluster b"]);
    assert_eq!(rig.cluster(cluster("b")), ["+endpoints b"]);
    let orders = rig.endpoints(at("b", "10.0.0.2:80"));
    assert_eq!(orders, ["-endpoints a", "-cluster a", "routes: b=10.0.0.2:80"]);
}

#[test]
fn f6_endpoints_of_another_service_take_the_place_when_they_are_there() {
    let mut rig = Rig::with_tree();
    assert_eq!(rig.cluster(cluster("a").eds_service("new")), ["+endpoints new"]);
    assert_eq!(rig.endpoints(at("a", "10.0.0.2:80")), ["routes: a=10.0.0.2:80"], "the old ones are followed");
    assert_eq!(rig.endpoints(at("new", "10.0.0.3:80")), ["-endpoints a", "routes: a=10.0.0.3:80"]);
}

#[test]
fn f7_nothing_is_published_before_every_cluster_of_the_routes_is_ready() {
    let mut rig = Rig::new();
    rig.listener(listener("shop").inline_routes(routes_to("", &["a", "b"])));
    assert_eq!(rig.cluster(cluster("a")), ["+endpoints a"]);
    assert_eq!(rig.endpoints(at("a", "10.0.0.1:80")), NONE);
    assert_eq!(rig.cluster(cluster("b")), ["+endpoints b"]);
    assert_eq!(rig.endpoints(at("b", "10.0.0.2:80")), [": a=10.0.0.1:80 b=10.0.0.2:80"]);
}

#[test]
fn f7_new_routes_wait_for_what_cannot_be_had_only_because_the_server_is_away() {
    let mut rig = Rig::with_tree();
    rig.routes(routes_to("routes", &["b"]));
    assert_eq!(rig.no_cluster("b", Code::Unavailable), NONE, "a serves");
    rig.cluster(cluster("b"));
    assert_eq!(rig.no_endpoints("b", Code::Unavailable), NONE, "a serves still");
    let orders = rig.endpoints(at("b", "10.0.0.2:80"));
    assert_eq!(orders.last().map(String::as_str), Some("routes: b=10.0.0.2:80"));
}

#[test]
fn a74_4_new_routes_do_not_wait_for_what_the_server_fails_to_give() {
    let mut rig = Rig::with_tree();
    rig.routes(routes_to("routes", &["b"]));
    let orders = rig.no_cluster("b", Code::Internal);
    assert_eq!(orders.last().map(String::as_str), Some("routes: b!INTERNAL"));
}

#[test]
fn f8_warnings_ride_along() {
    let mut rig = Rig::with_tree();
    let message = listener("shop").rds("routes").into_message();
    let warning = Some(error::<Listener>("shop", Code::Unavailable));
    assert_eq!(
        rig.handle(Seen::Listener(present(&message, warning))),
        ["routes: a=10.0.0.1:80 (UNAVAILABLE)"]
    );
    let warning = Some(error::<Cluster>("a", Code::InvalidArgument));
    let seen = Seen::Cluster("a".into(), present(&cluster("a").into_message(), warning));
    assert_eq!(rig.handle(seen), ["routes: a=10.0.0.1:80(INVALID_ARGUMENT) (UNAVAILABLE)"]);
    let warning = Some(error::<ClusterLoadAssignment>("a", Code::InvalidArgument));
    let seen = Endpoints::Eds(present(&at("a", "10.0.0.1:80").into_message(), warning));
    let orders = rig.handle(Seen::Endpoints(Source::Eds("a".into()), seen));
    assert_eq!(orders, ["routes: a=10.0.0.1:80(INVALID_ARGUMENT)(INVALID_ARGUMENT) (UNAVAILABLE)"]);
    let warning = Some(error::<RouteConfiguration>("routes", Code::InvalidArgument));
    let seen = Seen::Routes(present(&routes_to("routes", &["a"]).into_message(), warning));
    assert!(rig.handle(seen)[0].ends_with(" (UNAVAILABLE) (INVALID_ARGUMENT)"));
}

#[test]
fn f8_a_listener_error_drops_the_routes_and_keeps_the_clusters() {
    let mut rig = Rig::with_tree();
    let orders = rig.no_listener(Code::NotFound);
    assert_eq!(orders, ["-routes routes", "NOT_FOUND: Listener \"shop\": it is so [node id: n]"]);
    assert_eq!(rig.endpoints(at("a", "10.0.0.2:80")), NONE);
    assert_eq!(rig.listener(listener("shop").rds("routes")), ["+routes routes"]);
    assert_eq!(rig.routes(routes_to("routes", &["a"])), ["routes: a=10.0.0.2:80"]);
}

#[test]
fn f8_a_route_error_is_the_error_of_the_target() {
    let mut rig = Rig::new();
    rig.listener(listener("shop").rds("routes"));
    let orders = rig.no_routes("routes", Code::Unavailable);
    assert_eq!(orders, ["UNAVAILABLE: RouteConfiguration \"routes\": it is so [node id: n]"]);
    let orders = rig.no_routes("routes", Code::NotFound);
    assert_eq!(orders, ["NOT_FOUND: RouteConfiguration \"routes\": it is so [node id: n]"]);
}

#[test]
fn f9_a_cluster_is_held_as_long_as_a_call_holds_it() {
    let mut rig = Rig::with_tree();
    assert_eq!(rig.hold("d", true), ["+cluster d"]);
    assert_eq!(rig.hold("d", true), NONE);
    assert_eq!(rig.cluster(cluster("d")), ["+endpoints d"]);
    assert_eq!(rig.endpoints(at("d", "10.0.0.4:80")), ["routes: a=10.0.0.1:80 d=10.0.0.4:80"]);
    assert_eq!(rig.hold("d", false), ["-endpoints d", "-cluster d", "routes: a=10.0.0.1:80"]);
    assert_eq!(rig.hold("d", false), NONE);
}

#[test]
fn f9_a_held_cluster_outlives_its_route() {
    let mut rig = Rig::with_tree();
    assert_eq!(rig.hold("a", true), NONE);
    rig.routes(routes_to("routes", &["b"]));
    rig.cluster(cluster("b"));
    assert_eq!(rig.endpoints(at("b", "10.0.0.2:80")), ["routes: a=10.0.0.1:80 b=10.0.0.2:80"]);
    assert_eq!(rig.hold("a", false), ["-endpoints a", "-cluster a", "routes: b=10.0.0.2:80"]);
}

#[test]
fn f7_held_clusters_that_are_not_ready_are_left_out_and_block_nothing() {
    let mut rig = Rig::with_tree();
    rig.hold("d", true);
    assert_eq!(rig.endpoints(at("a", "10.0.0.2:80")), ["routes: a=10.0.0.2:80"]);
    assert_eq!(rig.routes(routes_to("routes", &["a"])), ["routes: a=10.0.0.2:80"]);
    assert_eq!(rig.no_cluster("d", Code::NotFound), ["routes: a=10.0.0.2:80 d!NOT_FOUND"]);
}

#[test]
fn f10_a_snapshot_holds_all_clusters_of_routes_aggregates_and_calls() {
    let mut rig = Rig::new();
    rig.listener(listener("shop").inline_routes(routes_to("", &["a", "top"])));
    rig.hold("d", true);
    for name in ["a", "leaf", "d"] {
        rig.cluster(cluster(name));
        rig.endpoints(at(name, "10.0.0.1:80"));
    }
    rig.cluster(cluster("top").aggregate(["leaf", "gone"]));
    rig.cluster(cluster("leaf"));
    rig.endpoints(at("leaf", "10.0.0.2:80"));
    let orders = rig.no_cluster("gone", Code::NotFound);
    assert_eq!(orders, [": a=10.0.0.1:80 d=10.0.0.1:80 gone!NOT_FOUND leaf=10.0.0.2:80 top>leaf"]);
}

#[test]
fn f11_errors_stay_where_they_belong() {
    let mut rig = Rig::new();
    rig.listener(listener("shop").inline_routes(routes_to("", &["a", "b"])));
    rig.no_cluster("a", Code::NotFound);
    rig.cluster(cluster("b"));
    rig.no_endpoints("b", Code::NotFound);
    let tree = rig.tree.as_ref().expect("a tree");
    let entry = |name: &str| tree.clusters.get(name).expect("an entry");
    assert_eq!(entry("a").error.as_ref().map(|e| e.type_url()), Some(Cluster::TYPE_URL));
    assert!(entry("b").error.is_none());
    assert_eq!(
        entry("b").endpoints_error.as_ref().map(|e| e.type_url()),
        Some(ClusterLoadAssignment::TYPE_URL)
    );
    assert!(rig.no_listener(Code::NotFound)[0].starts_with("NOT_FOUND: Listener"));
}

#[test]
fn a74_2_the_virtual_host_is_part_of_the_tree() {
    let rig = Rig::with_tree();
    let tree = rig.tree.expect("a tree");
    assert_eq!(tree.virtual_host().domains[0].as_str(), "shop");
    assert_eq!((tree.target(), tree.authority()), ("xds:///shop", "shop"));
    assert_eq!((&*tree.listener().name, &*tree.route_config().name), ("shop", "routes"));
}

#[test]
fn a74_3_only_listener_and_routes_are_errors_of_the_target() {
    let mut rig = Rig::new();
    assert!(rig.no_listener(Code::Unavailable)[0].starts_with("UNAVAILABLE"), "without a good one before");
    let mut rig = Rig::with_tree();
    let message = listener("shop").rds("routes").into_message();
    let warning = Some(error::<Listener>("shop", Code::Unavailable));
    rig.handle(Seen::Listener(present(&message, warning)));
    assert!(rig.tree.is_some(), "with a good one before");
}

#[test]
fn a74_4_a_deleted_cluster_is_an_error_after_its_grace() {
    let mut rig = Rig::with_tree();
    rig.listener(listener("shop").inline_routes(routes_to("", &["a", "b"])));
    rig.cluster(cluster("b"));
    rig.endpoints(at("b", "10.0.0.2:80"));
    let orders = rig.no_cluster("a", Code::NotFound);
    assert_eq!(
        orders,
        [": a=10.0.0.1:80(NOT_FOUND) b=10.0.0.2:80"],
        "routes that do without it may be on their way"
    );
    assert_eq!(rig.pass(GRACE - Duration::from_millis(1)), NONE);
    assert_eq!(rig.pass(Duration::from_millis(1)), ["-endpoints a", ": a!NOT_FOUND b=10.0.0.2:80"]);
    assert_eq!(rig.cluster(cluster("a")), ["+endpoints a"]);
    assert_eq!(rig.endpoints(at("a", "10.0.0.1:80")), [": a=10.0.0.1:80 b=10.0.0.2:80"]);
}

#[test]
fn a74_4_a_deleted_cluster_serves_while_routes_without_it_are_prepared() {
    let mut rig = Rig::with_tree();
    rig.no_cluster("a", Code::NotFound);
    assert_eq!(rig.routes(routes_to("routes", &["b"])), ["+cluster b"]);
    assert_eq!(rig.pass(GRACE * 5), NONE);
    assert_eq!(rig.resolver.next_timeout(), None, "nothing is due");
    rig.cluster(cluster("b"));
    let orders = rig.endpoints(at("b", "10.0.0.2:80"));
    assert_eq!(orders, ["-endpoints a", "-cluster a", "routes: b=10.0.0.2:80"]);
}

#[test]
fn a74_4_a_deleted_cluster_that_comes_back_was_never_away() {
    let mut rig = Rig::with_tree();
    rig.no_cluster("a", Code::NotFound);
    assert_eq!(rig.cluster(cluster("a")), ["routes: a=10.0.0.1:80"]);
    assert_eq!(rig.pass(GRACE * 2), NONE);
}

#[test]
fn a74_4_a_cluster_dropped_for_its_data_is_an_error_at_once() {
    let mut rig = Rig::with_tree();
    assert_eq!(rig.no_cluster("a", Code::InvalidArgument), ["-endpoints a", "routes: a!INVALID_ARGUMENT"]);
}

#[test]
fn b3_3_removed_routes_serve_for_their_grace() {
    let mut rig = Rig::with_tree();
    assert_eq!(rig.no_routes("routes", Code::NotFound), ["routes: a=10.0.0.1:80 (NOT_FOUND)"]);
    assert_eq!(rig.pass(GRACE - Duration::from_millis(1)), NONE);
    let orders = rig.pass(Duration::from_millis(1));
    assert_eq!(orders, ["NOT_FOUND: RouteConfiguration \"routes\": it is so [node id: n]"]);
    assert_eq!(rig.resolver.next_timeout(), None);
    assert_eq!(rig.routes(routes_to("routes", &["a"])), ["routes: a=10.0.0.1:80"]);
    assert_eq!(rig.no_routes("routes", Code::NotFound), ["routes: a=10.0.0.1:80 (NOT_FOUND)"]);
    assert_eq!(rig.routes(routes_to("routes", &["a"])), ["routes: a=10.0.0.1:80"]);
    assert_eq!(rig.pass(GRACE * 2), NONE);
}

#[test]
fn b3_3_removed_routes_serve_until_the_listener_leads_to_others_or_ends() {
    let mut rig = Rig::with_tree();
    rig.no_routes("routes", Code::NotFound);
    let orders = rig.listener(listener("shop").rds("others"));
    assert_eq!(orders, ["+routes others", "-routes routes"]);
    assert_eq!(rig.pass(GRACE * 2), NONE);
    assert_eq!(rig.routes(routes_to("others", &["a"])), ["others: a=10.0.0.1:80"]);
    rig.no_routes("others", Code::NotFound);
    assert!(rig.no_listener(Code::NotFound)[1].starts_with("NOT_FOUND: Listener"));
    assert_eq!(rig.pass(GRACE * 2), NONE);
}

#[test]
fn b3_3_removed_endpoints_serve_for_their_grace() {
    let mut rig = Rig::with_tree();
    assert_eq!(rig.no_endpoints("a", Code::NotFound), ["routes: a=10.0.0.1:80(NOT_FOUND)"]);
    assert_eq!(rig.pass(GRACE - Duration::from_millis(1)), NONE);
    assert_eq!(rig.pass(Duration::from_millis(1)), ["routes: a(NOT_FOUND)"]);
    assert_eq!(rig.pass(GRACE * 2), NONE);
    assert_eq!(rig.endpoints(at("a", "10.0.0.1:80")), ["routes: a=10.0.0.1:80"]);
    assert_eq!(rig.no_endpoints("a", Code::NotFound), ["routes: a=10.0.0.1:80(NOT_FOUND)"]);
    assert_eq!(rig.endpoints(at("a", "10.0.0.2:80")), ["routes: a=10.0.0.2:80"]);
    assert_eq!(rig.resolver.next_timeout(), None);
}

#[test]
fn b3_3_removed_endpoints_serve_while_routes_without_them_are_prepared() {
    let mut rig = Rig::with_tree();
    rig.no_endpoints("a", Code::NotFound);
    rig.no_cluster("a", Code::NotFound);
    assert_eq!(rig.routes(routes_to("routes", &["b"])), ["+cluster b"]);
    assert_eq!(rig.pass(GRACE * 5), NONE);
    rig.cluster(cluster("b"));
    let orders = rig.endpoints(at("b", "10.0.0.2:80"));
    assert_eq!(orders, ["-endpoints a", "-cluster a", "routes: b=10.0.0.2:80"]);
}

#[test]
fn b3_3_a_cluster_and_its_endpoints_are_removed_in_any_order() {
    for cluster_first in [true, false] {
        let mut rig = Rig::with_tree();
        for is_cluster in [cluster_first, !cluster_first] {
            let orders = match is_cluster {
                true => rig.no_cluster("a", Code::NotFound),
                false => rig.no_endpoints("a", Code::NotFound),
            };
            assert!(orders[0].contains("a=10.0.0.1:80(NOT_FOUND)"), "{orders:?}");
            assert_eq!(rig.pass(GRACE / 4), NONE);
        }
        assert_eq!(rig.pass(GRACE / 2), ["-endpoints a", "routes: a!NOT_FOUND"], "the first began it");
    }
}

#[test]
fn b3_3_endpoints_that_never_were_or_are_rejected_are_not_kept() {
    let mut rig = Rig::with_tree();
    rig.routes(routes_to("routes", &["a", "b"]));
    rig.cluster(cluster("b"));
    assert_eq!(rig.no_endpoints("b", Code::NotFound), NONE, "they may come after the routes");
    assert_eq!(rig.pass(GRACE), ["routes: a=10.0.0.1:80 b(NOT_FOUND)"]);
    assert_eq!(rig.no_endpoints("a", Code::InvalidArgument), ["routes: a(INVALID_ARGUMENT) b(NOT_FOUND)"]);
}

#[test]
fn a74_6_entries_for_every_cluster_of_routes_aggregates_and_handles() {
    let mut rig = Rig::with_tree();
    rig.hold("top", true);
    rig.cluster(cluster("top").aggregate(["x", "a"]));
    rig.cluster(cluster("x"));
    let orders = rig.endpoints(at("x", "10.0.0.7:80"));
    assert_eq!(orders, ["routes: a=10.0.0.1:80 top>x,a x=10.0.0.7:80"]);
    assert_eq!(
        rig.hold("top", false),
        ["-cluster top", "-endpoints x", "-cluster x", "routes: a=10.0.0.1:80"]
    );
}

#[test]
fn a74_7_a_reference_of_a_call_keeps_the_cluster_subscribed() {
    let mut rig = Rig::with_tree();
    rig.hold("a", true);
    assert_eq!(rig.no_listener(Code::NotFound).len(), 2);
    rig.listener(listener("shop").inline_routes(routes_to("", &["b"])));
    let orders = rig.no_cluster("b", Code::NotFound);
    assert_eq!(orders, [": a=10.0.0.1:80 b!NOT_FOUND"], "a stays subscribed");
}
