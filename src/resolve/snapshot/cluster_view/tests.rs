use std::fmt::Write;

use proptest::prelude::*;

use super::*;
use crate::{
    error::Code,
    pb::google::protobuf::UInt32Value,
    resolve::fixture::{assignment, eds, error, locality, snapshot},
    resource::{Listener, cluster::OverrideHostStatus},
};

fn addresses<'a>(endpoints: impl Iterator<Item = EndpointView<'a>>) -> Vec<String> {
    endpoints.map(|endpoint| endpoint.address().to_string()).collect()
}

#[test]
fn clusters_are_there_by_name_and_in_the_order_of_their_names() {
    let snapshot = snapshot("shop").eds("b", &[]).missing("c").aggregate("a", &["b"]).build();
    assert_eq!(snapshot.clusters().map(ClusterView::name).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(snapshot.cluster("b").unwrap().name(), "b");
    assert!(snapshot.cluster("d").is_none());
}

#[test]
fn a37_4_an_aggregate_has_its_leaves_in_order_and_other_clusters_themselves() {
    let snapshot = snapshot("shop")
        .aggregate("all", &["b", "a"])
        .aggregate("nothing", &["gone"])
        .eds("a", &[])
        .without_endpoints("b")
        .missing("gone")
        .build();
    for (name, leaves) in [("all", &["b", "a"][..]), ("a", &["a"]), ("b", &["b"]), ("gone", &[])] {
        let found: Vec<_> = snapshot.cluster(name).unwrap().leaves().map(ClusterView::name).collect();
        assert_eq!(found, leaves, "{name}");
    }
    // A leaf may be a cluster that there is not any more; then it has no endpoints.
    assert_eq!(snapshot.cluster("nothing").unwrap().endpoints().count(), 0);
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
    let priorities = all.priorities().map(|priority| (priority.cluster().name(), priority.index()));
    assert_eq!(priorities.collect::<Vec<_>>(), [("b", 0), ("b", 1), ("a", 0)]);
    let endpoints = addresses(all.endpoints());
    assert_eq!(endpoints, ["10.0.2.1:80", "10.0.2.2:80", "10.0.2.3:80", "10.0.1.1:80"]);
    assert_eq!(addresses(all.usable_endpoints_of_all_priorities()), ["10.0.2.3:80", "10.0.1.1:80"]);
    let first = all.first_usable_priority().unwrap();
    assert_eq!((first.cluster().name(), first.index()), ("b", 1));
    assert_eq!(addresses(first.usable_endpoints()), ["10.0.2.3:80"]);
    assert_eq!(addresses(first.endpoints()), ["10.0.2.2:80", "10.0.2.3:80"]);
}

#[test]
fn a27_20_endpoints_of_good_and_of_unknown_health_are_usable() {
    for (health, usable) in [
        ("UNKNOWN", true),
        ("HEALTHY", true),
        ("UNHEALTHY", false),
        ("DRAINING", false),
        ("TIMEOUT", false),
        ("DEGRADED", false),
    ] {
        let snapshot = snapshot("shop").eds("a", &[&[&format!("10.0.0.1:80 {health}")]]).build();
        let cluster = snapshot.cluster("a").unwrap();
        assert_eq!(cluster.usable_endpoints_of_all_priorities().count(), usize::from(usable), "{health}");
        assert_eq!(cluster.first_usable_priority().is_some(), usable, "{health}");
        assert_eq!(cluster.endpoints().count(), 1, "{health}");
    }
}

#[test]
fn a55_1_sessions_stay_on_endpoints_whose_health_the_cluster_allows() {
    let all = ["10.0.0.1:1 UNKNOWN", "10.0.0.1:2 HEALTHY", "10.0.0.1:3 DRAINING", "10.0.0.1:4 UNHEALTHY"];
    for (status, expected) in [
        (OverrideHostStatus { unknown: true, healthy: true, draining: false }, &[1, 2][..]),
        (OverrideHostStatus { unknown: true, healthy: true, draining: true }, &[1, 2, 3]),
        (OverrideHostStatus { unknown: false, healthy: false, draining: true }, &[3]),
        (OverrideHostStatus { unknown: false, healthy: false, draining: false }, &[]),
    ] {
        let mut entry = eds("a", &[&all]);
        Arc::make_mut(entry.config.as_mut().unwrap()).override_host_status = status;
        let snapshot = snapshot("shop").aggregate("all", &["a"]).entry(entry).build();
        for name in ["a", "all"] {
            let endpoints = snapshot.cluster(name).unwrap().affinity_endpoints();
            let ports: Vec<_> = endpoints.map(|endpoint| endpoint.address().port()).collect();
            assert_eq!(ports, expected, "{status:?}");
        }
    }
    let unset = snapshot("shop").eds("a", &[&all]).build();
    assert_eq!(unset.cluster("a").unwrap().affinity_endpoints().count(), 2);
}

#[test]
fn an_endpoint_knows_its_place_and_the_weights() {
    let mut west = locality(0, "west", &["10.0.0.1:80", "10.0.0.2:80"]);
    west.load_balancing_weight = Some(UInt32Value { value: 3 });
    west.lb_endpoints[1].load_balancing_weight = Some(UInt32Value { value: 5 });
    let localities =
        vec![locality(1, "backup", &["10.0.0.4:80"]), west, locality(0, "east", &["10.0.0.3:80"])];
    let entry = ClusterEntry { endpoints: Some(assignment("a", localities)), ..eds("a", &[]) };
    let snapshot = snapshot("shop").aggregate("all", &["a"]).entry(entry).build();
    let mut seen = String::new();
    for endpoint in snapshot.cluster("all").unwrap().endpoints() {
        let locality = endpoint.locality();
        let place = (endpoint.cluster().name(), endpoint.priority().index(), locality.locality.zone());
        writeln!(seen, "{place:?} {} {} {}", locality.weight, endpoint.weight(), endpoint.address()).unwrap();
    }
    let expected = "(\"a\", 0, \"west\") 3 1 10.0.0.1:80\n\
                    (\"a\", 0, \"west\") 3 5 10.0.0.2:80\n\
                    (\"a\", 0, \"east\") 1 1 10.0.0.3:80\n\
                    (\"a\", 1, \"backup\") 1 1 10.0.0.4:80\n";
    assert_eq!(seen, expected);
    let priorities = snapshot.cluster("all").unwrap().priorities();
    assert_eq!(priorities.map(|priority| priority.localities().len()).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn f11_an_error_is_of_the_cluster_and_a_note_of_its_endpoints() {
    let stale = error::<ClusterLoadAssignment>("stale", Code::Unavailable, "no connection");
    let entry = ClusterEntry { endpoints_error: Some(stale), ..eds("stale", &[&["10.0.0.1:80"]]) };
    let snapshot = snapshot("shop")
        .eds("good", &[])
        .missing("gone")
        .without_endpoints("bare")
        .entry(entry)
        .aggregate("all", &["bare"])
        .build();
    for (name, error, endpoints_error, problem) in [
        ("good", false, false, false),
        ("gone", true, false, true),
        ("bare", false, true, true),
        ("stale", false, true, false),
        ("all", false, false, false),
    ] {
        let cluster = snapshot.cluster(name).unwrap();
        let found = (
            cluster.error().is_some(),
            cluster.endpoints_error().is_some(),
            cluster.unusable_reason().is_some(),
        );
        assert_eq!(found, (error, endpoints_error, problem), "{name}");
        assert_eq!(cluster.config().is_some(), name != "gone");
        assert_eq!(cluster.kind().is_some(), name != "gone");
    }
}

#[test]
fn warnings_are_of_all_that_may_be_stale_and_of_nothing_else() {
    let listener = error::<Listener>("shop", Code::NotFound, "deleted");
    let config = error::<Cluster>("a", Code::InvalidArgument, "rejected");
    let endpoints = error::<ClusterLoadAssignment>("a", Code::Unavailable, "no connection");
    let entry = ClusterEntry {
        warning: Some(config.clone()),
        endpoints_error: Some(endpoints.clone()),
        ..eds("a", &[&["10.0.0.1:80"]])
    };
    let draft = snapshot("shop").warning(listener.clone());
    let snapshot = draft.without_endpoints("b").missing("c").entry(entry).build();
    assert_eq!(snapshot.warnings().collect::<Vec<_>>(), [&listener, &config, &endpoints]);
    assert_eq!(snapshot.cluster("a").unwrap().warning(), Some(&config));
}

/// Three clusters, each a list of priorities, each a list of states of health.
fn clusters() -> impl Strategy<Value = Vec<Vec<Vec<&'static str>>>> {
    // Most are of no use, so that the search does not always end with the first.
    let useless = ["UNHEALTHY", "DRAINING", "TIMEOUT", "DEGRADED"];
    let state = prop_oneof![
        1 => prop::sample::select(&["UNKNOWN", "HEALTHY"][..]),
        4 => prop::sample::select(useless.to_vec()),
    ];
    let priorities = prop::collection::vec(prop::collection::vec(state, 0..4), 0..4);
    prop::collection::vec(priorities, 3)
}

/// The address of an endpoint by its places: cluster, priority, endpoint.
fn address(cluster: usize, priority: usize, endpoint: usize) -> String {
    format!("10.{cluster}.{priority}.{endpoint}:80")
}

fn entry(cluster: usize, priorities: &[Vec<&str>]) -> ClusterEntry {
    let mut localities = Vec::new();
    for (p, states) in priorities.iter().enumerate() {
        let endpoints =
            states.iter().enumerate().map(|(e, state)| format!("{} {state}", address(cluster, p, e)));
        let endpoints: Vec<_> = endpoints.collect();
        localities.push(locality(p as u32, "zone", &endpoints));
    }
    let name = cluster.to_string();
    ClusterEntry { endpoints: Some(assignment(&name, localities)), ..eds(&name, &[]) }
}

proptest! {
    #[test]
    fn a37_4_the_first_usable_priority_is_that_of_the_model(
        clusters in clusters(),
        order in prop::sample::subsequence(vec![0, 1, 2], 1..=3).prop_shuffle(),
    ) {
        let (mut all, mut usable, mut first) = (Vec::new(), Vec::new(), None);
        for &c in &order {
            for (p, states) in clusters[c].iter().enumerate() {
                for (e, state) in states.iter().enumerate() {
                    all.push(address(c, p, e));
                    if ["UNKNOWN", "HEALTHY"].contains(state) {
                        usable.push(address(c, p, e));
                        first = first.or(Some((c.to_string(), p)));
                    }
                }
            }
        }
        let names: Vec<_> = order.iter().map(usize::to_string).collect();
        let draft = snapshot("shop").aggregate("all", &names.iter().map(String::as_str).collect::<Vec<_>>());
        let draft = clusters.iter().enumerate().fold(draft, |draft, (c, it)| draft.entry(entry(c, it)));
        let snapshot = draft.build();
        let view = snapshot.cluster("all").unwrap();
        prop_assert_eq!(addresses(view.endpoints()), all);
        prop_assert_eq!(addresses(view.usable_endpoints_of_all_priorities()), usable);
        let found = view.first_usable_priority().map(|p| (p.cluster().name().to_owned(), p.index()));
        prop_assert_eq!(found, first);
    }
}
