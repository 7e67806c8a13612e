//! Weights of endpoints by the load that they report.

use xdskit::pb::{
    envoy::extensions::load_balancing_policies::client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin,
    google::protobuf as google,
};

use super::*;

/// A cluster whose weights change at once, and are read as often as is permitted.
fn weighted(out_of_band: bool) -> ClusterBuilder {
    let seconds = |seconds| Some(google::Duration { seconds, nanos: 0 });
    let config = ClientSideWeightedRoundRobin {
        enable_oob_load_report: Some(google::BoolValue { value: out_of_band }),
        oob_reporting_period: seconds(7),
        blackout_period: seconds(0),
        weight_update_period: seconds(0),
        ..ClientSideWeightedRoundRobin::default()
    };
    cluster_with([policy("client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin", &config)])
}

async fn mesh(backends: &[&Backend], out_of_band: bool) -> Mesh {
    Mesh::start_with(weighted(out_of_band), backends).await
}

/// Makes calls until the backends `one` and `two` have these shares of 40 calls.
async fn until_shares(mesh: &Mesh, one: usize, two: usize) {
    let expected = BTreeMap::from([("one".to_owned(), one), ("two".to_owned(), two)]);
    soon(async { while mesh.shares(40).await != expected {} }).await;
}

#[tokio::test]
async fn ch3_44_calls_follow_the_load_in_the_trailers_of_responses() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let mesh = mesh(&[&one, &two], false).await;
    until_shares(&mesh, 20, 20).await;
    one.report_rate(100.0);
    two.report_rate(300.0);
    until_shares(&mesh, 10, 30).await;
    one.report_rate(300.0);
    until_shares(&mesh, 20, 20).await;
    assert_eq!((one.load_streams(), two.load_streams()), (0, 0), "nothing beside the calls");
}

#[tokio::test]
async fn ch9_8_calls_follow_the_load_that_is_reported_beside_them() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    one.report_rate(300.0);
    two.report_rate(100.0);
    let mesh = mesh(&[&one, &two], true).await;
    until_shares(&mesh, 30, 10).await;
    assert_eq!((one.load_streams(), two.load_streams()), (1, 1));
    // The stream of a connection that is replaced is opened on the next one.
    let one = one.restart_gracefully().await;
    one.report_rate(100.0);
    until_shares(&mesh, 20, 20).await;
    mesh.channel.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn ch9_9_an_endpoint_without_reports_beside_the_calls_is_asked_once() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    one.refuse_load_streams();
    two.report_rate(300.0);
    let mesh = mesh(&[&one, &two], true).await;
    soon(async {
        while one.load_streams() == 0 || two.load_streams() == 0 {
            mesh.shares(4).await;
        }
    })
    .await;
    assert_eq!(mesh.shares(400).await, BTreeMap::from([("one".to_owned(), 200), ("two".to_owned(), 200)]));
    assert_eq!((one.load_streams(), two.load_streams()), (1, 1));
}
