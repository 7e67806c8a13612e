//! Errors of a target, and what ends them.

use super::rig::Rig;
use crate::testing::resources::{route, route_config};

/// Routes for the host `shop`, to these clusters.
fn routes_to(clusters: &[&str]) -> crate::testing::resources::RouteConfigBuilder {
    let routes = clusters.iter().map(|cluster| route::prefix(format!("/{cluster}")).cluster(*cluster));
    route_config("routes").virtual_host(["shop"], routes)
}

#[test]
fn f3_an_error_whose_repair_waits_for_clusters_says_both() {
    let mut rig = Rig::with_tree();
    let none = || route_config("routes").virtual_host(["other"], [route::prefix("/").cluster("a")]);
    let error = "NOT_FOUND: RouteConfiguration \"routes\": could not find VirtualHost for \"shop\"; the domains are: other";
    assert_eq!(rig.routes(none()), [format!("{error} [node id: n]")]);
    let waiting = |clusters: &str| {
        format!("{error}; newer routes \"routes\" wait for the clusters {clusters} [node id: n]")
    };
    let orders = rig.routes(routes_to(&["a", "b", "c"]));
    assert_eq!(orders, [waiting("b, c"), "+cluster b".to_owned(), "+cluster c".to_owned()]);
    assert_eq!(
        rig.routes(none()),
        [format!("{error} [node id: n]"), "-cluster b".into(), "-cluster c".into()]
    );
}
