//! Routes that are chosen by a scope (SRDS).

use std::time::Duration;

use super::rig::{GRACE, Rig, TIMEOUT, error, members};
use crate::{
    error::Code,
    resolve::Seen,
    resource::ScopedRouteConfiguration,
    testing::resources::{
        ListenerBuilder, RouteConfigBuilder, ScopeBuilder, cluster, endpoints, listener, route, route_config,
        scope,
    },
};

const NONE: [&str; 0] = [];

fn routes_to(name: &str, cluster: &str) -> RouteConfigBuilder {
    route_config(name).virtual_host(["shop"], [route::prefix("/").cluster(cluster)])
}

fn serve(rig: &mut Rig, name: &str, address: &str) -> Vec<String> {
    rig.cluster(cluster(name));
    rig.endpoints(endpoints(name).locality("eu", "a", [address]))
}

/// A listener whose scopes are chosen by the region, and are resources by themselves.
fn by_region() -> ListenerBuilder {
    listener("shop").srds(["x-region"])
}

fn regions() -> [ScopeBuilder; 2] {
    [scope("scope-eu", ["eu"]).rds("eu"), scope("scope-us", ["us"]).rds("us")]
}

/// A tree of the region `eu`, whose routes lead to `a`.
fn rig_in_eu() -> Rig {
    let mut rig = Rig::with_headers("shop", &[("X-Region", "eu")]);
    assert_eq!(rig.listener(by_region()), ["+scopes *"]);
    assert_eq!(rig.scopes(&regions()), ["+routes eu"]);
    assert_eq!(rig.routes(routes_to("eu", "a")), ["+cluster a"]);
    assert_eq!(serve(&mut rig, "a", "10.0.0.1:80"), ["scope-eu > eu: a=10.0.0.1:80"]);
    rig
}

#[test]
fn srds_the_routes_are_those_of_the_scope_whose_key_the_headers_have() {
    let rig = rig_in_eu();
    let tree = rig.tree.expect("a tree");
    assert_eq!(tree.scope().map(|scope| &*scope.name), Some("scope-eu"));
    assert!(Rig::with_tree().tree.expect("a tree").scope().is_none());
}

#[test]
fn srds_scopes_in_the_listener_are_chosen_at_once() {
    let mut rig = Rig::with_headers("shop", &[("x-region", "eu"), ("x-tier", "gold")]);
    let scopes = [
        scope("other", ["eu"]).rds("other"),
        scope("all", ["eu", "gold"]).rds("routes"),
        scope("turned", ["gold", "eu"]).rds("turned"),
    ];
    let orders = rig.listener(listener("shop").inline_scopes(["x-region", "x-tier"], scopes));
    assert_eq!(orders, ["+routes routes"], "all fragments are equal, in their order");
    let inline = [scope("own", ["eu", "gold"]).inline_routes(routes_to("held", "b"))];
    let orders = rig.listener(listener("shop").inline_scopes(["x-region", "x-tier"], inline));
    assert_eq!(orders, ["-routes routes", "+cluster b"]);
    assert_eq!(serve(&mut rig, "b", "10.0.0.2:80"), ["own > held: b=10.0.0.2:80"]);
}

#[test]
fn srds_no_scope_with_the_key_is_an_error_with_the_keys_that_there_are() {
    let mut rig = Rig::with_headers("shop", &[("x-region", "asia")]);
    rig.listener(by_region());
    let text = "NOT_FOUND: ScopedRouteConfiguration \"*\": could not find a scope with the key [\"asia\"]; the keys are: \
                [\"eu\"], [\"us\"] [node id: n]";
    assert_eq!(rig.scopes(&regions()), [text]);
    assert_eq!(rig.scopes(&[scope("asia", ["asia"])]), ["+routes asia"], "it may come later");
    let orders = rig.listener(listener("shop").inline_scopes(["x-region"], [scope("eu", ["eu"])]));
    let text = "NOT_FOUND: Listener \"shop\": could not find a scope with the key [\"asia\"]; the keys are: [\"eu\"] \
                [node id: n]";
    assert_eq!(orders, ["-scopes *", "-routes asia", text]);
}

#[test]
fn srds_a_target_without_a_header_of_the_key_is_of_no_scope() {
    let mut rig = Rig::with_headers("shop", &[("x-region-2", "eu")]);
    let text = "NOT_FOUND: Listener \"shop\": could not find a scope: the target lacks the header \"x-region\", which is a \
                part of the key [node id: n]";
    assert_eq!(rig.listener(by_region()), [text]);
}

#[test]
fn srds_the_first_value_of_a_header_counts_and_the_host_is_the_authority() {
    let mut rig = Rig::with_headers("a.shop", &[("x-region", "eu"), ("X-Region", "us")]);
    let scopes = || [scope("us", ["us", "a.shop"]), scope("eu", ["eu", "a.shop"])];
    assert_eq!(
        rig.listener(listener("shop").inline_scopes(["x-region", ":authority"], scopes())),
        ["+routes eu"]
    );
    let orders =
        rig.listener(listener("shop").inline_scopes(["x-region", "Host"], [scope("b", ["eu", "a.shop"])]));
    assert_eq!(orders, ["+routes b", "-routes eu"]);
}

#[test]
fn srds_nothing_is_published_before_all_scopes_are_known_unless_the_right_one_is() {
    let mut rig = Rig::with_headers("shop", &[("x-region", "eu")]);
    rig.listener(by_region());
    let [eu, us] = regions();
    assert_eq!(rig.handle(Seen::Scopes(members(std::slice::from_ref(&us), false, None))), NONE);
    assert_eq!(rig.handle(Seen::Scopes(members(&[us, eu], false, None))), ["+routes eu"]);
}

#[test]
fn srds_scopes_that_cannot_be_had_for_now_keep_the_tree() {
    let mut rig = rig_in_eu();
    let away = || Some(error::<ScopedRouteConfiguration>("*", Code::Unavailable));
    let orders = rig.handle(Seen::Scopes(members(&regions(), true, away())));
    assert_eq!(orders, ["scope-eu > eu: a=10.0.0.1:80 (UNAVAILABLE)"]);
    let orders = rig.handle(Seen::Scopes(members(&[], false, away())));
    assert_eq!(orders, NONE, "it serves with the same warning");
    let mut rig = Rig::with_headers("shop", &[("x-region", "eu")]);
    rig.listener(by_region());
    let orders = rig.handle(Seen::Scopes(members(&[], false, away())));
    assert_eq!(orders, ["UNAVAILABLE: ScopedRouteConfiguration \"*\": it is so [node id: n]"]);
}

#[test]
fn srds_of_two_scopes_with_the_same_key_the_later_is_not_used() {
    let mut rig = rig_in_eu();
    let [eu, us] = regions();
    let orders = rig.scopes(&[scope("before", ["eu"]), eu.clone(), us.clone()]);
    assert_eq!(orders, ["scope-eu > eu: a=10.0.0.1:80 (INVALID_ARGUMENT)"], "the one in use stays");
    let warning = rig.tree.as_ref().and_then(|tree| tree.warnings().next()).expect("a warning").to_string();
    let text = "ScopedRouteConfiguration \"before\": is not used: scope \"scope-eu\" has the same key [\"eu\"] [node id: n]";
    assert_eq!(warning, text);
    assert_eq!(rig.scopes(&[eu.clone(), us]), ["scope-eu > eu: a=10.0.0.1:80"]);
    let mut rig = Rig::with_headers("shop", &[("x-region", "eu")]);
    rig.listener(by_region());
    assert_eq!(rig.scopes(&[eu, scope("before", ["eu"])]), ["+routes before"], "else the first by name");
    let mut rig = Rig::with_headers("shop", &[("x-region", "eu")]);
    let listed = [scope("b", ["eu"]), scope("a", ["eu"])];
    assert_eq!(
        rig.listener(listener("shop").inline_scopes(["x-region"], listed)),
        ["+routes b"],
        "and in a list the first"
    );
}

#[test]
fn srds_the_old_tree_serves_until_the_routes_of_the_new_scope_are_there() {
    let mut rig = rig_in_eu();
    let orders = rig.scopes(&[scope("scope-eu", ["eu"]).rds("new")]);
    assert_eq!(orders, ["+routes new", "-routes eu"]);
    let orders = rig.endpoints(endpoints("a").locality("eu", "a", ["10.0.0.2:80"]));
    assert_eq!(orders, ["scope-eu > eu: a=10.0.0.2:80"]);
    rig.routes(routes_to("new", "b"));
    let orders = serve(&mut rig, "b", "10.0.0.3:80");
    assert_eq!(orders, ["-endpoints a", "-cluster a", "scope-eu > new: b=10.0.0.3:80"]);
}

#[test]
fn srds_updates_of_other_scopes_change_nothing() {
    let mut rig = rig_in_eu();
    let [eu, us] = regions();
    let seen = members(&[eu, us], true, None);
    assert_eq!(rig.handle(Seen::Scopes(seen.clone())).len(), 1, "another allocation is another resource");
    let mut more = (*seen).clone();
    more.map.extend(members(&[scope("asia", ["asia"])], true, None).map.clone());
    assert_eq!(rig.handle(Seen::Scopes(more.into())), NONE);
}

#[test]
fn srds_a_deleted_scope_in_use_serves_for_the_grace() {
    let mut rig = rig_in_eu();
    let [eu, us] = regions();
    assert_eq!(rig.scopes(std::slice::from_ref(&us)), ["scope-eu > eu: a=10.0.0.1:80 (NOT_FOUND)"]);
    assert_eq!(rig.scopes(&[us.clone(), eu.clone()]), ["scope-eu > eu: a=10.0.0.1:80"]);
    let another_key = [us.clone(), scope("scope-eu", ["africa"]).rds("eu")];
    assert_eq!(
        rig.scopes(&another_key),
        ["scope-eu > eu: a=10.0.0.1:80 (NOT_FOUND)"],
        "the same goes for its key"
    );
    rig.scopes(&[us.clone(), eu]);
    assert_eq!(rig.pass(GRACE * 2), NONE);
    rig.scopes(std::slice::from_ref(&us));
    assert_eq!(rig.pass(GRACE - Duration::from_millis(1)), NONE);
    let orders = rig.pass(GRACE);
    assert!(
        orders.len() == 2 && orders[0] == "-routes eu" && orders[1].starts_with("NOT_FOUND"),
        "{orders:?}"
    );
    assert_eq!(rig.scopes(&[us, scope("other", ["eu"]).rds("eu")]), ["+routes eu"]);
    assert_eq!(rig.routes(routes_to("eu", "a")), ["other > eu: a=10.0.0.1:80"]);
}

#[test]
fn srds_another_scope_with_the_key_of_the_deleted_one_takes_its_place() {
    let mut rig = rig_in_eu();
    assert_eq!(rig.scopes(&[]), ["scope-eu > eu: a=10.0.0.1:80 (NOT_FOUND)"]);
    assert_eq!(rig.scopes(&[scope("new", ["eu"]).rds("eu")]), ["new > eu: a=10.0.0.1:80"]);
    assert_eq!(rig.pass(GRACE * 2), NONE);
}

#[test]
fn srds_scopes_are_unsubscribed_with_the_listener_that_has_them() {
    let mut rig = rig_in_eu();
    let orders = rig.listener(listener("shop").rds("eu"));
    assert_eq!(orders, ["-scopes *", "eu: a=10.0.0.1:80"]);
    let mut rig = rig_in_eu();
    assert_eq!(rig.no_listener(Code::NotFound)[..2], ["-scopes *", "-routes eu"]);
}

#[test]
fn srds_a_collection_of_scopes_is_watched_by_its_name() {
    const SCOPES: &str = "xdstp://mesh/envoy.config.route.v3.ScopedRouteConfiguration/shop/*";
    let mut rig = Rig::with_headers("shop", &[("x-region", "eu")]);
    let orders = rig.listener(listener("shop").srds_in(SCOPES, ["x-region"]));
    assert_eq!(orders, [format!("+scopes {SCOPES}")]);
    assert_eq!(rig.listener(by_region()), ["+scopes *".to_owned(), format!("-scopes {SCOPES}")]);
}

#[test]
fn srds_and_vhds_go_together() {
    let mut rig = Rig::with_headers("shop", &[("x-region", "eu")]);
    rig.listener(by_region());
    rig.scopes(&regions());
    assert_eq!(rig.routes(route_config("eu").vhds()), ["+virtual host eu/shop"]);
    assert_eq!(rig.virtual_host(("eu/shop", "shop"), "a"), ["+cluster a"]);
    assert_eq!(serve(&mut rig, "a", "10.0.0.1:80"), ["scope-eu > eu eu/shop: a=10.0.0.1:80"]);
}

#[test]
fn srds_a_server_that_does_not_send_its_scopes_is_an_error_until_it_does() {
    let text = "UNAVAILABLE: ScopedRouteConfiguration \"*\": the server has not sent its scopes within 15s [node id: n]";
    let mut rig = Rig::with_headers("shop", &[("x-region", "eu")]);
    rig.listener(by_region());
    assert_eq!(rig.pass(TIMEOUT - Duration::from_millis(1)), NONE);
    assert_eq!(rig.pass(TIMEOUT), [text]);
    assert_eq!(rig.scopes(&regions()), ["+routes eu"]);
    let mut rig = Rig::with_headers("shop", &[("x-region", "eu")]);
    rig.listener(by_region());
    let [eu, us] = regions();
    rig.handle(Seen::Scopes(members(&[us], false, None)));
    assert_eq!(rig.pass(TIMEOUT), [text], "others are not enough");
    assert_eq!(rig.scopes(&[eu]), ["+routes eu"]);
    assert_eq!(rig.pass(TIMEOUT * 2), NONE);
}

#[test]
fn srds_a_tree_in_use_serves_while_scopes_are_late() {
    let mut rig = Rig::with_headers("shop", &[("x-region", "eu")]);
    rig.listener(listener("shop").rds("eu"));
    rig.routes(routes_to("eu", "a"));
    serve(&mut rig, "a", "10.0.0.1:80");
    assert_eq!(rig.listener(by_region()), ["+scopes *", "-routes eu"]);
    assert_eq!(rig.pass(TIMEOUT), ["eu: a=10.0.0.1:80 (UNAVAILABLE)"]);
}
