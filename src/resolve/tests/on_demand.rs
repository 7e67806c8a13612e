//! Virtual hosts on demand (VHDS).

use std::time::Duration;

use super::rig::{GRACE, Rig, error, present, virtual_host};
use crate::{
    error::Code,
    resolve::{RouteQuery, Seen},
    resource::VirtualHost,
    testing::resources::{RouteConfigBuilder, cluster, endpoints, listener, route, route_config},
};

const NONE: [&str; 0] = [];
const SHOP: (&str, &str) = ("routes/shop", "shop");

/// Routes that hold a virtual host for `other` alone.
fn with_vhds(name: &str) -> RouteConfigBuilder {
    route_config(name).virtual_host(["other"], [route::prefix("/").cluster("elsewhere")]).vhds()
}

fn with_shop(name: &str, cluster: &str) -> RouteConfigBuilder {
    with_vhds(name).virtual_host(["shop"], [route::prefix("/").cluster(cluster)])
}

fn serve(rig: &mut Rig, name: &str, address: &str) -> Vec<String> {
    rig.cluster(cluster(name));
    rig.endpoints(endpoints(name).locality("eu", "a", [address]))
}

/// A tree whose virtual host came on demand, and leads to `a`.
fn rig_on_demand() -> Rig {
    let mut rig = Rig::new();
    rig.listener(listener("shop").rds("routes"));
    assert_eq!(rig.routes(with_vhds("routes")), ["+virtual host routes/shop"]);
    assert_eq!(rig.virtual_host(SHOP, "a"), ["+cluster a"], "clusters are those of the virtual host");
    assert_eq!(serve(&mut rig, "a", "10.0.0.1:80"), ["routes routes/shop: a=10.0.0.1:80"]);
    rig
}

#[test]
fn vhds_requests_the_virtual_host_that_the_routes_lack() {
    let rig = rig_on_demand();
    let tree = rig.tree.expect("a tree");
    assert_eq!((&*tree.virtual_host().name, &*tree.route_config().name), ("routes/shop", "routes"));
    assert!(tree.route(&RouteQuery::new("/", 0)).is_some());
    assert!(tree.route(&RouteQuery::new("/", 0).with_host("SHOP")).is_some());
    for host in ["other", "third"] {
        assert!(tree.route(&RouteQuery::new("/", 0).with_host(host)).is_none(), "{host} is another host");
    }
}

#[test]
fn vhds_requests_nothing_where_the_routes_have_a_virtual_host_or_allow_no_others() {
    let mut rig = Rig::new();
    rig.listener(listener("shop").rds("routes"));
    assert_eq!(rig.routes(with_shop("routes", "a")), ["+cluster a"]);
    let mut rig = Rig::new();
    rig.listener(listener("shop").rds("routes"));
    let orders =
        rig.routes(route_config("routes").virtual_host(["other"], [route::prefix("/").cluster("a")]));
    assert_eq!(orders.len(), 1);
    assert!(orders[0].starts_with("NOT_FOUND: RouteConfiguration \"routes\""), "{orders:?}");
}

#[test]
fn vhds_names_the_host_in_lower_case_with_its_port() {
    let mut rig = Rig::with_authority("Shop.Example:8080");
    rig.listener(listener("shop").rds("a/b"));
    assert_eq!(rig.routes(with_vhds("a/b")), ["+virtual host a/b/shop.example:8080"]);
    let orders = rig.virtual_host(("any name", "shop.example:8080"), "a");
    assert_eq!(orders, ["+cluster a"], "what has the name for an alias has another one");
}

#[test]
fn vhds_a_virtual_host_for_others_is_no_match() {
    let mut rig = rig_on_demand();
    let text = "NOT_FOUND: VirtualHost \"routes/shop\": it is not for \"shop\"; its domains are: *.example [node id: n]";
    assert_eq!(rig.virtual_host(("routes/shop", "*.example"), "a"), [text]);
    assert_eq!(rig.virtual_host(SHOP, "a"), ["routes routes/shop: a=10.0.0.1:80"]);
}

#[test]
fn vhds_what_does_not_exist_is_an_error_until_it_comes() {
    let mut rig = Rig::new();
    rig.listener(listener("shop").rds("routes"));
    rig.routes(with_vhds("routes"));
    let text = "NOT_FOUND: VirtualHost \"routes/shop\": it is so [node id: n]";
    assert_eq!(rig.no_virtual_host("routes/shop", Code::NotFound), [text]);
    assert_eq!(rig.no_virtual_host("routes/shop", Code::NotFound), NONE, "it is published once");
    let waiting = "NOT_FOUND: VirtualHost \"routes/shop\": it is so; newer routes \"routes\" wait for the clusters a [node \
                   id: n]";
    assert_eq!(rig.virtual_host(SHOP, "a"), [waiting, "+cluster a"]);
    assert_eq!(serve(&mut rig, "a", "10.0.0.1:80"), ["routes routes/shop: a=10.0.0.1:80"]);
}

#[test]
fn vhds_the_old_routes_serve_until_the_virtual_host_of_others_is_there() {
    let mut rig = rig_on_demand();
    let orders = rig.listener(listener("shop").rds("others"));
    assert_eq!(orders, ["+routes others", "-routes routes", "-virtual host routes/shop"]);
    assert_eq!(rig.routes(with_vhds("others")), ["+virtual host others/shop"]);
    let orders = rig.endpoints(endpoints("a").locality("eu", "a", ["10.0.0.2:80"]));
    assert_eq!(orders, ["routes routes/shop: a=10.0.0.2:80"]);
    assert_eq!(rig.virtual_host(("others/shop", "shop"), "b"), ["+cluster b"]);
    let orders = serve(&mut rig, "b", "10.0.0.3:80");
    assert_eq!(orders, ["-endpoints a", "-cluster a", "others others/shop: b=10.0.0.3:80"]);
}

#[test]
fn vhds_an_update_takes_the_place_when_its_clusters_are_there() {
    let mut rig = rig_on_demand();
    assert_eq!(rig.virtual_host(SHOP, "b"), ["+cluster b"]);
    let orders = serve(&mut rig, "b", "10.0.0.2:80");
    assert_eq!(orders, ["-endpoints a", "-cluster a", "routes routes/shop: b=10.0.0.2:80"]);
}

#[test]
fn vhds_a_new_version_of_the_routes_requests_nothing_again() {
    let mut rig = rig_on_demand();
    assert_eq!(rig.routes(with_vhds("routes")), ["routes routes/shop: a=10.0.0.1:80"]);
}

#[test]
fn vhds_what_the_routes_hold_takes_the_place_of_what_came_on_demand() {
    let mut rig = rig_on_demand();
    assert_eq!(rig.routes(with_shop("routes", "b")), ["-virtual host routes/shop", "+cluster b"]);
    let orders = serve(&mut rig, "b", "10.0.0.2:80");
    assert_eq!(orders, ["-endpoints a", "-cluster a", "routes: b=10.0.0.2:80"]);
    assert_eq!(rig.routes(with_vhds("routes")), ["+virtual host routes/shop"], "and the other way round");
    let orders = rig.virtual_host(SHOP, "b");
    assert_eq!(orders, ["routes routes/shop: b=10.0.0.2:80"]);
}

#[test]
fn vhds_a_removed_virtual_host_that_is_in_use_serves_for_the_grace() {
    let mut rig = rig_on_demand();
    let orders = rig.no_virtual_host("routes/shop", Code::NotFound);
    assert_eq!(orders, ["routes routes/shop: a=10.0.0.1:80 (NOT_FOUND)"]);
    assert_eq!(rig.virtual_host(SHOP, "a"), ["routes routes/shop: a=10.0.0.1:80"]);
    rig.no_virtual_host("routes/shop", Code::NotFound);
    assert_eq!(rig.pass(GRACE - Duration::from_millis(1)), NONE);
    let text = "NOT_FOUND: VirtualHost \"routes/shop\": it is so [node id: n]";
    assert_eq!(rig.pass(GRACE), [text]);
}

#[test]
fn vhds_errors_are_warnings_and_an_unavailable_virtual_host_is_waited_for() {
    let mut rig = rig_on_demand();
    let warning = Some(error::<VirtualHost>("routes/shop", Code::InvalidArgument));
    let seen = Seen::VirtualHost(present(&virtual_host(SHOP, "a"), warning));
    assert_eq!(rig.handle(seen), ["routes routes/shop: a=10.0.0.1:80 (INVALID_ARGUMENT)"]);
    rig.listener(listener("shop").rds("others"));
    rig.routes(with_vhds("others"));
    let orders = rig.no_virtual_host("others/shop", Code::Unavailable);
    assert_eq!(orders, ["routes routes/shop: a=10.0.0.1:80 (UNAVAILABLE)"], "the old tree serves");
    assert_eq!(rig.virtual_host(("others/shop", "shop"), "a"), ["others others/shop: a=10.0.0.1:80"]);
}

#[test]
fn vhds_is_unsubscribed_when_the_listener_or_its_routes_end() {
    let mut rig = rig_on_demand();
    let orders = rig.no_listener(Code::NotFound);
    assert_eq!(orders[..2], ["-routes routes", "-virtual host routes/shop"]);
    let mut rig = rig_on_demand();
    assert_eq!(rig.no_routes("routes", Code::NotFound).len(), 1, "a warning: {:?}", rig.tree);
    let orders = rig.pass(GRACE);
    assert_eq!(orders[0], "-virtual host routes/shop", "{orders:?}");
    assert_eq!(rig.routes(with_vhds("routes")), ["+virtual host routes/shop"]);
}
