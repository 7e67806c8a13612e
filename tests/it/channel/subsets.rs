//! Subsets of the endpoints of a cluster (A68).

use xdskit::pb::{
    envoy::extensions::load_balancing_policies::{
        random_subsetting::v3::RandomSubsetting, round_robin::v3::RoundRobin,
    },
    google::protobuf as google,
};

use super::*;

/// A cluster that uses as many endpoints.
fn subset_of(size: u32) -> ClusterBuilder {
    let policies = vec![policy("round_robin.v3.RoundRobin", &RoundRobin::default())];
    let config = RandomSubsetting {
        subset_size: Some(google::UInt32Value { value: size }),
        child_policy: Some(LoadBalancingPolicy { policies }),
    };
    cluster_with([policy("random_subsetting.v3.RandomSubsetting", &config)])
}

#[tokio::test]
async fn ch3_61_ch3_62_calls_reach_a_subset_of_the_backends_and_the_others_are_not_connected() {
    let names = ["one", "two", "three", "four", "five", "six"];
    let backends = Backend::start_all(names).await;
    let all = backends.each_ref();
    let mesh = Mesh::start_with(subset_of(2), &all).await;
    soon(async { while mesh.shares(40).await.len() != 2 {} }).await;
    let first = mesh.shares(40).await;
    assert_eq!(first.values().copied().collect::<Vec<_>>(), [20, 20]);
    assert_eq!(backends.iter().map(Backend::connections).sum::<usize>(), 2);
    // Without one of those outside, it is the same subset; without a member, one of two is another.
    let outside = names.iter().position(|name| !first.contains_key(*name)).unwrap();
    let without = |place: usize| all.iter().enumerate().filter(move |it| it.0 != place).map(|it| *it.1);
    mesh.server.set(cart(&without(outside).collect::<Vec<_>>()));
    assert_eq!(mesh.shares(40).await, first);
    let inside = names.iter().position(|name| first.contains_key(*name)).unwrap();
    mesh.server.set(cart(&without(inside).collect::<Vec<_>>()));
    soon(async { while mesh.shares(40).await.contains_key(names[inside]) {} }).await;
    let next = mesh.shares(40).await;
    assert_eq!(next.keys().filter(|name| first.contains_key(*name)).count(), 1, "{first:?}, {next:?}");
    mesh.server.set(subset_of(6));
    soon(async { while mesh.shares(40).await.len() != 5 {} }).await;
}
