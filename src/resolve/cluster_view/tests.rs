use super::*;
use crate::resolve::fixture::snapshot;

fn addresses<'a>(endpoints: impl Iterator<Item = EndpointView<'a>>) -> Vec<String> {
    endpoints.map(|endpoint| endpoint.address.to_string()).collect()
}

#[test]
fn a75_1_an_aggregate_has_the_priorities_of_its_leaves_in_order() {
    let snapshot = snapshot("shop")
        .aggregate("all", &["b", "c", "a"])
        .eds("a", &[&["10.0.1.1:80"]])
        .eds("b", &[&["10.0.2.1:80 UNHEALTHY"], &["10.0.2.2:80 DRAINING", "10.0.2.3:80 HEALTHY"]])
        .without_endpoints("c")
        .build();
    let all = snapshot.cluster("all").unwrap();
    assert_eq!(all.leaves().map(ClusterView::name).collect::<Vec<_>>(), ["b", "c", "a"]);
    let priorities = all.priorities().map(|priority| (priority.cluster().name(), priority.index()));
    assert_eq!(priorities.collect::<Vec<_>>(), [("b", 0), ("b", 1), ("a", 0)]);
    let endpoints = addresses(all.endpoints());
    assert_eq!(endpoints, ["10.0.2.1:80", "10.0.2.2:80", "10.0.2.3:80", "10.0.1.1:80"]);
    assert_eq!(addresses(all.usable_endpoints()), ["10.0.2.3:80", "10.0.1.1:80"]);
    let first = all.first_usable_priority().unwrap();
    assert_eq!((first.cluster().name(), first.index()), ("b", 1));
    assert_eq!(addresses(first.usable_endpoints()), ["10.0.2.3:80"]);
}
