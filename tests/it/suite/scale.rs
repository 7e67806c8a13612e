//! Many names and large responses over a real connection: what they cost, as the server counts it.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use xdskit::{
    Client, Resource, ResourceSelector, Watch,
    config::Bootstrap,
    resource::{Cluster, ClusterLoadAssignment},
    testing::{
        TestControlPlane,
        resources::{cluster, endpoints},
    },
};

/// A client of the server, with one watch that is served: a live stream.
async fn live(transport: Transport, server: &TestControlPlane) -> (Client, Watch<ClusterLoadAssignment>) {
    server.set(endpoints("first").locality("r", "z", ["10.0.0.1:80"]));
    let bootstrap = Bootstrap::from_json(&server.bootstrap_json()).unwrap();
    let client = transport.builder_from(bootstrap).build().unwrap();
    let mut first = client.watch("first");
    first.ready().await.unwrap();
    server.expect_ack(ClusterLoadAssignment::TYPE_URL).await.unwrap();
    (client, first)
}

/// Whether an application starts its watches in one step, or yields to other tasks after each.
#[derive(Debug, Clone, Copy)]
enum Start {
    AtOnce,
    OneByOne,
}

/// Starts watches, waits until all are served, and returns the number of requests that took, and their bytes as a multiple
/// of those of all names in one request.
async fn cost_of_watches(transport: Transport, count: usize, start: Start) -> (usize, f64) {
    let server = TestControlPlane::start().await;
    let names: Vec<_> = (0..count).map(|i| format!("service-{i:05}.example.com")).collect();
    server.update(|tx| {
        for name in &names {
            tx.set(endpoints(name).locality("r", "z", ["10.0.0.1:80"]));
        }
    });
    let (client, _first) = live(transport, &server).await;
    server.clear_requests();
    let mut watches: Vec<Watch<ClusterLoadAssignment>> = Vec::with_capacity(count);
    for name in &names {
        watches.push(client.watch(name));
        if matches!(start, Start::OneByOne) {
            tokio::task::yield_now().await;
        }
    }
    for watch in &mut watches {
        watch.ready().await.unwrap();
    }
    // The answer to the last response.
    let expected: Vec<_> = names.iter().map(String::as_str).chain(["first"]).collect();
    server.expect_names(ClusterLoadAssignment::TYPE_URL, &expected).await.unwrap();
    let requests = server.requests();
    let once: usize = expected.iter().map(|name| name.len() + 2).sum();
    (requests.len(), requests.bytes() as f64 / once as f64)
}

#[apply(streams_on_threads)]
async fn ten_thousand_watches_cost_at_most_40_requests_and_12_times_the_bytes_of_their_names(
    transport: Transport,
) {
    for start in [Start::AtOnce, Start::OneByOne] {
        let (requests, multiple) = cost_of_watches(transport, 10_000, start).await;
        println!("{start:?}: {requests} requests, {multiple:.1} × the bytes of the names");
        assert!(requests <= 40, "{requests} requests, {start:?}");
        assert!(multiple <= 12.0, "{multiple} × the bytes of the names, {start:?}");
    }
}

#[apply(streams_on_threads)]
async fn a_hundred_thousand_clusters_are_applied_and_one_change_is_one_update(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.update(|tx| {
        for i in 0..100_000 {
            tx.set(cluster(format!("cluster-{i:06}")).eds());
        }
    });
    let bootstrap = Bootstrap::from_json(&server.bootstrap_json()).unwrap();
    let client = transport.builder_from(bootstrap).build().unwrap();
    let mut changes = client.watch_all::<Cluster>(ResourceSelector::All).changes();
    let mut seen = 0;
    while seen < 100_000 {
        assert!(changes.next().await.unwrap().observed.is_present());
        seen += 1;
    }
    server.expect_ack(Cluster::TYPE_URL).await.unwrap();
    server.set(cluster("cluster-077777").eds_service("elsewhere"));
    let change = changes.next().await.unwrap();
    assert_eq!(&*change.name, "cluster-077777");
    server.set(cluster("cluster-000001").eds_service("elsewhere"));
    assert_eq!(&*changes.next().await.unwrap().name, "cluster-000001", "only changes are reported");
}
