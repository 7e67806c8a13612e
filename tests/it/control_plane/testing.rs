use std::time::Duration;

use xdskit::{
    control_plane::{
        self,
        session::Handled,
        type_url::{CLUSTER, ENDPOINTS},
    },
    pb::envoy::service::discovery::v3::DiscoveryResponse,
    testing::{
        Direction, TestControlPlane,
        resources::{cluster, endpoints},
    },
};

use super::peer::Peer;

#[tokio::test]
async fn answers_are_expected_in_order() {
    let control_plane = TestControlPlane::start().await;
    control_plane.set(cluster("a"));
    let mut peer = Peer::connect(&control_plane.uri()).await;
    peer.request(CLUSTER, &["a"]);
    peer.response().await;
    peer.request(CLUSTER, &["a", "b"]);
    let ack = control_plane.expect_ack(CLUSTER).await.unwrap();
    assert_eq!((ack.stream, ack.version.as_str(), &ack.names[..]), (1, "1", &["a".into(), "b".into()][..]));

    assert_eq!(peer.response().await.resources.len(), 1);
    control_plane.set(cluster("b"));
    peer.reject(CLUSTER, &["a", "b"], "a: bad");
    assert_eq!(peer.response().await.version_info, control_plane.version(CLUSTER));
    peer.request(CLUSTER, &["a", "b"]);
    let ack = control_plane.expect_ack(CLUSTER).await.unwrap();
    let nack = control_plane.expect_nack(CLUSTER).await.unwrap();
    assert_eq!((ack.version.as_str(), nack.version.as_str()), ("2", "1"));
    assert_eq!((nack.code, nack.message.as_str()), (3, "a: bad"));
}

#[tokio::test]
async fn an_expectation_that_is_not_met_is_an_error_with_the_actual_events() {
    let control_plane = TestControlPlane::start().await.with_timeout(Duration::ZERO);
    let error = control_plane.expect_ack(CLUSTER).await.unwrap_err().to_string();
    let expected = format!("no ACK of {CLUSTER} within 0ns: no request of the type; 0 streams are open");
    assert_eq!(error, expected);

    let control_plane = control_plane.with_timeout(Duration::from_secs(10));
    let mut peer = Peer::connect(&control_plane.uri()).await;
    peer.request(CLUSTER, &["a"]);
    peer.response().await;
    peer.reject(CLUSTER, &["a"], "no");
    control_plane.expect_nack(CLUSTER).await.unwrap();
    let control_plane = control_plane.with_timeout(Duration::ZERO);
    let error = control_plane.expect_ack(CLUSTER).await.unwrap_err().to_string();
    let seen = r#"2 requests of the type, among them 0 ACKs and 1 NACKs; the last names ["a"] with the error "no"; 1 stream is open"#;
    assert!(error.ends_with(seen), "{error}");
    let error = control_plane.expect_clients(7).await.unwrap_err().to_string();
    assert_eq!(error, "no moment with 7 open streams within 0ns: 1 stream is open");
}

#[tokio::test]
async fn requests_are_recorded_with_their_sizes() {
    let control_plane = TestControlPlane::start().await;
    let mut peer = Peer::connect(&control_plane.uri()).await;
    peer.request(CLUSTER, &["a"]);
    peer.request(ENDPOINTS, &["b", "a"]);
    let newest = control_plane.expect_names(ENDPOINTS, &["a", "b"]).await.unwrap();
    assert_eq!(newest.message().node().unwrap().id, "test");
    let requests = control_plane.requests();
    assert_eq!((requests.len(), requests.of(ENDPOINTS).len()), (2, 1));
    assert_eq!(requests.of(ENDPOINTS).bytes(), newest.bytes());
    let encoded = prost::Message::encoded_len(newest.message().sotw().unwrap());
    assert_eq!(requests.last().unwrap().bytes(), encoded);
    assert!(matches!(newest.handled(), Handled::Understood { names_changed: true, .. }));
    control_plane.clear_requests();
    assert!(control_plane.requests().is_empty());
}

#[tokio::test]
async fn types_are_held_and_released() {
    let control_plane = TestControlPlane::start().await;
    control_plane.update(|tx| {
        tx.set(cluster("a")).set(endpoints("a"));
    });
    let mut peer = Peer::connect(&control_plane.uri()).await;
    control_plane.hold_type(CLUSTER);
    peer.request(CLUSTER, &["a"]);
    control_plane.expect_names(CLUSTER, &["a"]).await.unwrap();
    peer.request(ENDPOINTS, &["a"]);
    assert_eq!(peer.response().await.type_url, ENDPOINTS);
    control_plane.hold();
    control_plane.release();
    assert_eq!(peer.response().await.type_url, CLUSTER);
}

#[tokio::test]
async fn a_stopped_server_starts_again_on_its_address() {
    let settings = control_plane::ControlPlane::builder().version_prefix("v");
    let control_plane = TestControlPlane::start_with(settings).await;
    control_plane.set(cluster("a"));
    let mut peer = Peer::connect(&control_plane.uri()).await;
    control_plane.expect_clients(1).await.unwrap();
    control_plane.stop().await;
    peer.raw().await.unwrap_err();
    control_plane.expect_clients(0).await.unwrap();
    assert!(tokio::net::TcpStream::connect(control_plane.addr()).await.is_err());
    control_plane.restart().await;
    let mut peer = Peer::connect(&control_plane.uri()).await;
    peer.request(CLUSTER, &[]);
    assert_eq!(peer.response().await.version_info, "v1");
    control_plane.disconnect();
    peer.raw().await.unwrap_err();
    assert_eq!(control_plane.clients(), 0);
}

#[tokio::test]
async fn injected_responses_are_answered() {
    let control_plane = TestControlPlane::start().await;
    let mut peer = Peer::connect(&control_plane.uri()).await;
    peer.request(ENDPOINTS, &["a"]);
    control_plane.expect_names(ENDPOINTS, &["a"]).await.unwrap();
    let nonce = "injected-1".to_owned();
    let version_info = "odd".to_owned();
    let response =
        DiscoveryResponse { type_url: ENDPOINTS.into(), nonce, version_info, ..Default::default() };
    assert_eq!(control_plane.inject(response), 1);
    peer.response().await;
    peer.request(ENDPOINTS, &["a"]);
    assert_eq!(control_plane.expect_ack(ENDPOINTS).await.unwrap().version, "odd");
}

#[tokio::test]
async fn the_proxy_cuts_at_the_byte() {
    let control_plane = TestControlPlane::start().await;
    let proxy = control_plane.proxy().await;
    for bytes in [0, 1, 9, 100] {
        let mut peer = Peer::connect(&proxy.uri()).await;
        control_plane.set(cluster(format!("after-{bytes}")));
        peer.request(ENDPOINTS, &["a"]);
        control_plane.expect_names(ENDPOINTS, &["a"]).await.unwrap();
        let before = proxy.cut_after(bytes);
        peer.request(CLUSTER, &[]);
        peer.raw().await.unwrap_err();
        proxy.expect_cut().await;
        assert_eq!(proxy.passed(Direction::ToClient) - before, bytes);
        control_plane.expect_clients(0).await.unwrap();
        control_plane.clear_requests();
    }
    let mut peer = Peer::connect(&proxy.uri()).await;
    peer.request(CLUSTER, &[]);
    assert_eq!(peer.response().await.resources.len(), 4, "later connections work");
    proxy.cut_after(1 << 40);
    assert!(proxy.cancel_cut());
    assert!(!proxy.cancel_cut());
    proxy.cut();
    peer.raw().await.unwrap_err();
}

#[tokio::test]
async fn the_proxy_stalls_and_goes_on() {
    let control_plane = TestControlPlane::start().await;
    let proxy = control_plane.proxy().await;
    let mut peer = Peer::connect(&proxy.uri()).await;
    assert_eq!(proxy.connections(), 1);
    control_plane.expect_clients(1).await.unwrap();
    proxy.stall(Direction::ToServer);
    peer.request(ENDPOINTS, &["a"]);
    control_plane.inject_raw("still here");
    assert_eq!(peer.raw().await.unwrap().unwrap(), "still here");
    assert!(control_plane.requests().is_empty());
    proxy.resume(Direction::ToServer);
    control_plane.expect_names(ENDPOINTS, &["a"]).await.unwrap();

    proxy.stall(Direction::ToClient);
    let passed = proxy.passed(Direction::ToClient);
    control_plane.inject_raw("late");
    peer.request(ENDPOINTS, &["b"]);
    control_plane.expect_names(ENDPOINTS, &["b"]).await.unwrap();
    assert_eq!(proxy.passed(Direction::ToClient), passed);
    proxy.resume(Direction::ToClient);
    assert_eq!(peer.raw().await.unwrap().unwrap(), "late");
}
