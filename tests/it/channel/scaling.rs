//! Several connections to an endpoint.

use tokio::task::JoinSet;
use xdskit::pb::{
    envoy::config::cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds},
    google::protobuf::UInt32Value,
};

use super::{backend::HOLD, *};

fn scaled(max_connections: u32) -> ClusterBuilder {
    let max_connections = Some(UInt32Value { value: max_connections });
    let per_host_thresholds = vec![Thresholds { max_connections, ..Thresholds::default() }];
    let breakers = CircuitBreakers { per_host_thresholds, ..CircuitBreakers::default() };
    cluster("cart").edit(|it| it.circuit_breakers = Some(breakers))
}

#[tokio::test]
async fn ch4_10_servers_that_permit_few_streams_get_as_many_connections_as_calls_need() {
    let backends = [Backend::start_permitting("one", 5).await, Backend::start_permitting("two", 5).await];
    let mesh = Mesh::start(&backends.each_ref()).await;
    mesh.server.set(scaled(3));
    mesh.reach(&["one", "two"]).await;
    let mut calls = JoinSet::new();
    let mut hold = |count| {
        for _ in 0..count {
            let channel = mesh.channel.clone();
            calls.spawn(async move { call(&channel, HOLD, Request::new("hello".into())).await });
        }
    };
    // Round robin gives each of them half of the calls.
    hold(10);
    for backend in &backends {
        backend.holds(5).await;
        assert_eq!(backend.connections(), 1);
    }
    hold(12);
    for backend in &backends {
        backend.holds(11).await;
        assert_eq!(backend.connections(), 3);
    }
    // Those that exceed all connections wait, and are served after others.
    hold(28);
    for backend in &backends {
        backend.holds(15).await;
    }
    let mut ended = 0;
    soon(async {
        while ended < 50 {
            backends.iter().for_each(Backend::release);
            while let Some(result) = calls.try_join_next() {
                result.unwrap().unwrap();
                ended += 1;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(backends.each_ref().map(Backend::connections), [3, 3]);
}
