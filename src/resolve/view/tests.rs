use crate::resolve::{
    RouteQuery,
    fixture::{prefix, route, snapshot, split},
};

#[test]
fn a28_8_a_split_has_the_weights_of_its_clusters() {
    let routes = vec![route(prefix("/"), split(&[("a", 1), ("zero", 0), ("b", 3)]))];
    let snapshot = snapshot("shop").eds("a", &[]).eds("b", &[]).routes(routes).build();
    let route = snapshot.route(&RouteQuery::new("/")).unwrap();
    let splits: Vec<_> = route.splits().map(|(weight, cluster)| (weight, cluster.name())).collect();
    assert_eq!(splits, [(1, "a"), (3, "b")]);
    assert!(!route.is_unsupported());
}
