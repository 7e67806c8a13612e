use super::*;
use crate::resolve::fixture::{prefix, route, snapshot, to, virtual_host};

/// The cluster that a request goes to.
fn cluster<'a>(snapshot: &'a Snapshot, query: &RouteQuery<'_>) -> Option<&'a str> {
    Some(snapshot.route(query)?.pick(0)?.name())
}

#[test]
fn a28_9_the_first_route_that_matches_wins() {
    let routes = ["/shop/", "/shop/cart", "/"].into_iter().zip(["a", "b", "c"]);
    let routes = routes.map(|(path, cluster)| route(prefix(path), to(cluster))).collect();
    let snapshot = snapshot("shop").eds("a", &[]).eds("b", &[]).eds("c", &[]).routes(routes).build();
    for (path, expected) in [
        ("/shop/cart", Some("a")),
        ("/shop", Some("c")),
        ("/?/shop/", Some("c")),
        ("/shop/?q", Some("a")),
        ("shop", None),
        ("", None),
    ] {
        assert_eq!(cluster(&snapshot, &RouteQuery::new(path)), expected, "{path:?}");
    }
}

#[test]
fn a28_1_only_the_virtual_host_of_the_snapshot_has_routes() {
    let host = |domain: &str, to_cluster| virtual_host(&[domain], vec![route(prefix("/"), to(to_cluster))]);
    let snapshot = snapshot("shop.example")
        .eds("shop", &[])
        .virtual_hosts(vec![host("*", "any"), host("*.example", "shop"), host("pay.example", "pay")])
        .build();
    for (host, expected) in [
        ("shop.example", Some("shop")),
        ("CART.example", Some("shop")),
        ("pay.example", None),
        ("other", None),
    ] {
        assert_eq!(cluster(&snapshot, &RouteQuery::new("/").host(host)), expected, "{host:?}");
    }
    assert_eq!(cluster(&snapshot, &RouteQuery::new("/")), Some("shop"));
}
