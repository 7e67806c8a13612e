//! Backends that fail calls are ejected.

use xdskit::pb::{
    envoy::config::cluster::v3::OutlierDetection,
    google::protobuf::{Duration as Time, UInt32Value},
};

use super::*;

#[tokio::test]
async fn ch12_outlier_detection_ejects_the_backend_that_fails_and_it_returns_when_it_is_well() {
    let backends = Backend::start_all(["five", "four", "one", "three", "two"]).await;
    let mesh = Mesh::start(&backends.each_ref()).await;
    let number = |value| Some(UInt32Value { value });
    let millis = |millis: i32| Some(Time { seconds: 0, nanos: millis * 1_000_000 });
    let detection = OutlierDetection {
        interval: millis(100),
        base_ejection_time: millis(100),
        max_ejection_time: millis(200),
        max_ejection_percent: number(50),
        failure_percentage_threshold: number(50),
        enforcing_failure_percentage: number(100),
        failure_percentage_minimum_hosts: number(5),
        failure_percentage_request_volume: number(1),
        enforcing_success_rate: number(0),
        ..OutlierDetection::default()
    };
    mesh.reach(&["five", "four", "one", "three", "two"]).await;
    backends[2].set_sick(true);
    mesh.server.set(cluster("cart").edit(|it| it.outlier_detection = Some(detection)));
    // In turns, every fifth call would fail.
    let mut in_a_row = 0;
    mesh.until(|seen| {
        in_a_row = if seen.is_ok() { in_a_row + 1 } else { 0 };
        in_a_row == 20
    })
    .await;
    backends[2].set_sick(false);
    mesh.reach(&["five", "four", "one", "three", "two"]).await;
}
