//! Which endpoints calls go to while the mesh changes.

use tonic::Code;
use xdskit::{
    control_plane::type_url,
    pb::envoy::{
        config::cluster::v3::cluster::LbPolicy,
        extensions::load_balancing_policies::pick_first::v3::PickFirst,
    },
};

use super::{
    backend::{FAIL, HOLD},
    calls::call_owned,
    *,
};

#[tokio::test]
async fn ch3_27_round_robin_gives_each_of_4_backends_25_of_100_calls() {
    let backends = [
        Backend::start("1").await,
        Backend::start("2").await,
        Backend::start("3").await,
        Backend::start("4").await,
    ];
    let mesh = Mesh::start(&backends.iter().collect::<Vec<_>>()).await;
    mesh.reach(&["1", "2", "3", "4"]).await;
    assert!(mesh.shares(100).await.into_values().eq([25; 4]));
}

#[tokio::test]
async fn ch3_10_backends_restart_and_calls_succeed_again() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.ready().await;
    let address = one.crash();
    mesh.becomes(ChannelState::TransientFailure).await;
    let error = mesh.call(ECHO, "").await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains(&format!("{address}: ")), "{error:?}");
    assert!(error.message().contains("cluster cart"), "{error:?}");
    let _two = Backend::start_at("two", address).await;
    mesh.becomes(ChannelState::Ready).await;
    assert_eq!(mesh.shares(3).await, BTreeMap::from([("two".to_owned(), 3)]));
}

#[tokio::test]
async fn ch3_9_an_endpoint_is_removed_and_another_added_without_a_failed_call() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let mesh = Mesh::start(&[&one]).await;
    let held = tokio::spawn(call_owned(mesh.channel.clone(), HOLD));
    one.holds(1).await;
    mesh.server.set(cart(&[&two]));
    mesh.until(|name| name.unwrap() == "two").await;
    assert_eq!(mesh.shares(10).await, BTreeMap::from([("two".to_owned(), 10)]));
    one.release();
    assert_eq!(backend_of(&soon(held).await.unwrap().unwrap()), "one", "a running call ends as it began");
}

#[tokio::test]
async fn ch3_51_a_draining_endpoint_gets_no_new_calls() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let mesh = Mesh::start(&[&one, &two]).await;
    mesh.server.set(cart(&[&one, &two]).draining(&one.text()));
    let mut row = 0;
    mesh.until(|name| {
        row = if name.unwrap() == "two" { row + 1 } else { 0 };
        row == 10
    })
    .await;
}

#[tokio::test]
async fn ch3_5_a_graceful_stop_of_a_backend_fails_no_call() {
    let (mut one, two) = (Backend::start("one").await, Backend::start("two").await);
    let mesh = Mesh::start(&[&one, &two]).await;
    mesh.until(|name| name.unwrap() == "one").await;
    let held: Vec<_> = (0..10).map(|_| tokio::spawn(call_owned(mesh.channel.clone(), HOLD))).collect();
    soon(async {
        while one.running() + two.running() < 10 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    one.stop();
    let mut row = 0;
    mesh.until(|name| {
        row = if name.unwrap() == "two" { row + 1 } else { 0 };
        row == 20
    })
    .await;
    one.release();
    two.release();
    for call in held {
        soon(call).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn ch3_22_a_crashed_backend_fails_the_calls_on_its_connections_alone() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let mesh = Mesh::start(&[&one, &two]).await;
    mesh.reach(&["one", "two"]).await;
    let held: Vec<_> = (0..10).map(|_| tokio::spawn(call_owned(mesh.channel.clone(), HOLD))).collect();
    soon(async {
        while one.running() + two.running() < 10 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let on_one = one.running();
    assert_eq!(on_one, 5, "they are in turns");
    one.crash();
    let mut failed = 0;
    // The crash is seen by all: later calls go to the other one.
    mesh.until(|name| {
        failed += usize::from(name.is_err());
        two.calls() > 100
    })
    .await;
    two.release();
    let mut results = Vec::new();
    for call in held {
        results.push(soon(call).await.unwrap().map_err(|error| error.code()));
    }
    assert_eq!(results.iter().filter(|it| it.is_ok()).count(), 10 - on_one);
    assert!(results.iter().flat_map(|it| it.as_ref().err()).all(|code| *code == Code::Unavailable));
    // One call at a time: the one that meets the crash fails, and no later one picks the crashed backend.
    assert!(failed <= 1, "{failed} calls failed");
}

#[tokio::test]
async fn ch3_57_the_second_priority_takes_over_while_the_first_is_down() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let mesh = Mesh::start(&[&one]).await;
    let both = || cart(&[&one]).locality("eu", "b", [two.text().as_str()]).priority(1);
    mesh.server.set(both());
    mesh.ready().await;
    assert_eq!(mesh.shares(10).await, BTreeMap::from([("one".to_owned(), 10)]));
    mesh.server.set(both().unhealthy(&one.text()));
    mesh.until(|name| name.unwrap() == "two").await;
    mesh.server.set(both());
    mesh.until(|name| name.unwrap() == "one").await;
    assert_eq!(mesh.shares(10).await, BTreeMap::from([("one".to_owned(), 10)]));
    // It crashes, and the control plane does not know.
    let address = one.crash();
    mesh.until(|name| name.is_ok_and(|name| name == "two")).await;
    let _one = Backend::start_at("one", address).await;
    mesh.until(|name| name.unwrap() == "one").await;
}

#[tokio::test]
async fn ch3_49_localities_get_calls_by_weight() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let mesh = Mesh::start(&[&one]).await;
    let weighted = cart(&[&one]).weight(80).locality("eu", "b", [two.text().as_str()]).weight(20);
    mesh.server.set(weighted);
    mesh.until(|name| name.unwrap() == "two").await;
    mesh.has_share("one", 80).await;
}

/// Two endpoints with 9 and 1 as weights.
fn weighted(one: &Backend, two: &Backend) -> EndpointsBuilder {
    cart(&[one, two]).endpoint_weight(&one.text(), 9).endpoint_weight(&two.text(), 1)
}

#[tokio::test]
async fn ch3_27_round_robin_ignores_the_weights_9_and_1_of_endpoints() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let mesh = Mesh::start(&[&one]).await;
    mesh.server.set(weighted(&one, &two));
    mesh.reach(&["one", "two"]).await;
    assert!(mesh.shares(100).await.into_values().eq([50, 50]));
}

#[tokio::test]
async fn ch3_39_least_request_ignores_the_weights_9_and_1_of_endpoints() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let mesh = Mesh::start(&[&one]).await;
    mesh.server.set(weighted(&one, &two));
    mesh.server.set(cluster("cart").edit(|it| it.lb_policy = LbPolicy::LeastRequest.into()));
    mesh.reach(&["one", "two"]).await;
    mesh.has_share("one", 50).await;
}

#[tokio::test]
async fn ch3_15_channels_shuffle_endpoints_by_their_weights_9_and_1() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let mesh = Mesh::start(&[&one]).await;
    mesh.server.set(weighted(&one, &two));
    let shuffle = PickFirst { shuffle_address_list: true };
    mesh.server.set(cluster_with([policy("pick_first.v3.PickFirst", &shuffle)]));
    // 180 of 200 with a standard deviation of 4; chance exceeds three of them once in 370 times.
    let mut rounds = Vec::new();
    for _ in 0..3 {
        let mut calls = 0;
        for _ in 0..200 {
            let channel = mesh.client.channel("xds:///shop").build().unwrap();
            let response = call(&channel, ECHO, Request::new("hello".into())).await.unwrap();
            calls += usize::from(backend_of(&response) == "one");
        }
        if calls.abs_diff(180) <= 12 {
            return;
        }
        rounds.push(calls);
    }
    panic!("{rounds:?} of 200 channels use the endpoint with 90 % of the weight");
}

#[tokio::test]
async fn ch3_23_what_calls_end_with_does_not_change_the_state_of_an_endpoint() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let mesh = Mesh::start(&[&one, &two]).await;
    mesh.reach(&["one", "two"]).await;
    for _ in 0..200 {
        let error = mesh.call(FAIL, "no").await.unwrap_err();
        assert_eq!(error.code(), Code::DataLoss);
    }
    assert_eq!(mesh.channel.state(), ChannelState::Ready);
    assert!(mesh.shares(100).await.into_values().eq([50, 50]));
}

#[tokio::test]
async fn ch4_4_circuit_breaking_permits_as_many_calls_as_configured() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    // The counter is that of the process, so that other tests' calls would count in a cluster of the same name.
    mesh.server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("limited")]));
    mesh.server.set(limited(3));
    mesh.server.set(endpoints("limited").locality("eu", "a", [one.text().as_str()]));
    mesh.until(|seen| seen.is_ok()).await;
    let held: Vec<_> = (0..3).map(|_| tokio::spawn(call_owned(mesh.channel.clone(), HOLD))).collect();
    one.holds(3).await;
    mesh.until(|seen| {
        seen.is_err_and(|error| error.message().contains("limited: 3 requests are running, the maximum"))
    })
    .await;
    mesh.server.set(limited(4));
    mesh.until(|seen| seen.is_ok()).await;
    one.release();
    for call in held {
        soon(call).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn ch4_1_a_share_of_calls_is_dropped() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.ready().await;
    mesh.server.set(cart(&[&one]).drop_percent("shed", 100));
    mesh.until(|seen| {
        seen.is_err_and(|error| {
            error.code() == Code::Unavailable && error.message().contains("overload category shed")
        })
    })
    .await;
}

#[tokio::test]
async fn ch3_60_an_aggregate_falls_back_to_its_next_cluster() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let mesh = Mesh::start(&[&one]).await;
    mesh.server.set(cluster("first"));
    mesh.server.set(endpoints("first").locality("eu", "a", [one.text().as_str()]));
    mesh.server.set(cluster("second"));
    mesh.server.set(endpoints("second").locality("eu", "a", [two.text().as_str()]));
    mesh.server.set(cluster("cart").aggregate(["first", "second"]));
    mesh.ready().await;
    assert_eq!(mesh.shares(5).await, BTreeMap::from([("one".to_owned(), 5)]));
    one.crash();
    mesh.until(|name| name.is_ok_and(|name| name == "two")).await;
}

#[tokio::test]
async fn a_logical_dns_cluster_is_called() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.server.set(cluster("cart").logical_dns("localhost", one.address.port()));
    assert_eq!(mesh.shares(3).await, BTreeMap::from([("one".to_owned(), 3)]));
}

#[tokio::test]
async fn ch1_24_calls_go_on_while_the_control_plane_is_away() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.ready().await;
    mesh.server.stop().await;
    assert_eq!(mesh.shares(100).await, BTreeMap::from([("one".to_owned(), 100)]));
    mesh.server.restart().await;
    assert_eq!(mesh.shares(100).await, BTreeMap::from([("one".to_owned(), 100)]));
}

#[tokio::test]
async fn ch1_13_a_deleted_cluster_fails_calls_with_its_name() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.ready().await;
    mesh.server.remove(type_url::CLUSTER, "cart");
    mesh.until(|seen| {
        seen.is_err_and(|error| error.code() == Code::Unavailable && error.message().contains("\"cart\""))
    })
    .await;
    mesh.server.set(cluster("cart"));
    mesh.until(|seen| seen.is_ok()).await;
}

fn limited(max_requests: u32) -> ClusterBuilder {
    use xdskit::pb::{
        envoy::config::cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds},
        google::protobuf::UInt32Value,
    };
    cluster("limited").edit(|cluster| {
        let max_requests = Some(UInt32Value { value: max_requests });
        let thresholds = vec![Thresholds { max_requests, ..Thresholds::default() }];
        cluster.circuit_breakers = Some(CircuitBreakers { thresholds, ..CircuitBreakers::default() });
    })
}
