//! What a change costs, counted in clusters that are looked at.

use super::rig::Rig;
use crate::testing::resources::{cluster, endpoints, listener, route, route_config};

/// A resolver whose routes lead to so many clusters, the first hundred of them aggregates of two leaves each.
fn mesh(clusters: u32) -> Rig {
    let mut rig = Rig::new();
    let routes = (0..clusters).map(|i| route::path(format!("/{i}")).cluster(format!("c{i}")));
    rig.listener(listener("shop").inline_routes(route_config("").virtual_host(["shop"], routes)));
    for i in 0..clusters {
        let name = format!("c{i}");
        if i >= 100 {
            rig.resolver.handle(seen_cluster(cluster(name)));
            continue;
        }
        let leaves = [format!("{name} first"), format!("{name} second")];
        rig.resolver.handle(seen_cluster(cluster(name).aggregate(leaves.clone())));
    }
    rig.orders();
    for leaf in (0..100).flat_map(|i| [format!("c{i} first"), format!("c{i} second")]) {
        rig.resolver.handle(seen_cluster(cluster(leaf)));
    }
    rig.orders();
    for i in 100..clusters {
        rig.resolver.handle(seen_endpoints(&format!("c{i}"), "10.0.0.1:80"));
    }
    for leaf in (0..100).flat_map(|i| [format!("c{i} first"), format!("c{i} second")]) {
        rig.resolver.handle(seen_endpoints(&leaf, "10.0.0.1:80"));
    }
    rig.orders();
    assert_eq!(rig.tree.as_ref().expect("a tree").clusters.len() as u32, clusters + 200);
    rig
}

fn seen_cluster(cluster: crate::testing::resources::ClusterBuilder) -> crate::resolve::Seen {
    let message = cluster.into_message();
    crate::resolve::Seen::Cluster(message.name.as_str().into(), super::rig::present(&message, None))
}

fn seen_endpoints(name: &str, address: &str) -> crate::resolve::Seen {
    use crate::resolve::{Endpoints, Seen, Source};

    let message = endpoints(name).locality("eu", "a", [address]).into_message();
    Seen::Endpoints(Source::Eds(name.into()), Endpoints::Eds(super::rig::present(&message, None)))
}

#[test]
fn the_first_snapshot_looks_at_each_cluster_a_few_times() {
    let work = |clusters| f64::from(u32::try_from(mesh(clusters).resolver.work()).expect("few"));
    let (small, large) = (work(1_000), work(10_000));
    assert!(large <= 5.0 * 10_200.0, "{large} for 10,200 clusters");
    assert!(large / small <= 10.0, "{large} for ten times {small}");
}

#[test]
fn one_change_of_endpoints_looks_at_one_cluster_of_10_000() {
    let mut rig = mesh(10_000);
    for name in ["c5000", "c7 second"] {
        let before = rig.tree.clone().expect("a tree");
        let work = rig.resolver.work();
        rig.handle(seen_endpoints(name, "10.0.0.2:80"));
        assert!(rig.resolver.work() - work <= 2, "{} for {name}", rig.resolver.work() - work);
        let after = rig.tree.clone().expect("a tree");
        let shared = before.clusters.iter().filter(|(name, entry)| {
            after.clusters.get(*name).is_some_and(|other| std::sync::Arc::ptr_eq(entry, other))
        });
        assert_eq!(shared.count(), 10_199, "all but {name} are the same allocation");
    }
}

#[test]
fn one_change_of_a_cluster_looks_at_one_cluster_of_10_000() {
    let mut rig = mesh(10_000);
    let work = rig.resolver.work();
    rig.handle(seen_cluster(cluster("c5000")));
    assert!(rig.resolver.work() - work <= 2);
}
