//! Requests that the HTTP/2 library holds back (CH4.13, CH6.12).

use super::{
    raw::{GOAWAY, Raw, RawListener},
    *,
};
use crate::pb::{
    envoy::config::cluster::v3::OutlierDetection,
    google::protobuf::{Duration as Proto, UInt32Value},
};

/// A mesh with outlier detection, and a connection that permits one stream, whose response has begun and goes on.
async fn streaming(name: &str, listener: &RawListener) -> (Mesh, Raw, Response<ChannelBody>) {
    let mesh = Mesh::at(name, &[listener.address], |builder| builder).await;
    let interval = Some(Proto { seconds: 3_600, nanos: 0 });
    let detection = OutlierDetection {
        interval,
        success_rate_minimum_hosts: Some(UInt32Value { value: 1 }),
        ..Default::default()
    };
    mesh.server.set(cluster(name).edit(|cluster| cluster.outlier_detection = Some(detection)));
    let call = tokio::spawn(mesh.begin("/stream", Given::default()));
    let mut raw = listener.accept_permitting(1).await;
    mesh.counts(0, 0).await;
    let stream = raw.request().await;
    raw.headers(stream, &[("content-type", "application/grpc")], false).await;
    let response = soon(call).await.unwrap();
    (mesh, raw, response)
}

#[tokio::test]
async fn ch6_12_ch4_13_a_request_that_the_transport_held_back_was_never_sent_when_its_connection_is_lost() {
    for is_graceful in [false, true] {
        let name = "ch6_12_held_back";
        let listener = RawListener::bind().await;
        let (mesh, mut raw, first) = streaming(name, &listener).await;
        let body = Given::of((0..100).map(|_| vec![7; 10]));
        let second = mesh.call("/second", body);
        until("it has a stream", || mesh.running(name) == 2).await;
        let third = mesh.get("/third");
        mesh.waits(1).await;
        assert!(raw.is_quiet(), "the server permits one stream");
        if is_graceful {
            // The last stream is the first one, without an error.
            raw.write(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]).await;
        } else {
            drop(raw);
        }
        let mut next = listener.accept().await;
        for _ in 0..2 {
            let stream = next.request().await;
            next.respond(stream).await;
        }
        for call in [second, third] {
            soon(call).await.unwrap().unwrap();
        }
        if is_graceful {
            drop(first);
        } else {
            assert_eq!(finish(async { first }).await.unwrap_err().code(), Code::Unavailable);
        }
        mesh.counts(2, 1).await;
        assert_eq!((mesh.running(name), mesh.buffered()), (0, 0));
    }
}

#[tokio::test]
async fn ch6_12_a_request_whose_time_ends_before_it_is_sent_counts_for_nobody_and_is_told_apart() {
    let name = "ch6_12_late";
    let listener = RawListener::bind().await;
    let (mesh, mut raw, first) = streaming(name, &listener).await;
    let status = soon(mesh.with_timeout("/late", "50m")).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let address = listener.address;
    let text = format!("cluster {name}, {address}: the server permits no further stream on its connections");
    assert!(status.message().contains(&text), "{status:?}");
    let cancelled = mesh.get("/cancelled");
    until("it has a stream", || mesh.running(name) == 2).await;
    cancelled.abort();
    until("it has ended", || mesh.running(name) == 1).await;
    assert!(raw.is_quiet());
    assert_eq!(mesh.outcomes(), Some((0, 0)), "neither of them was sent");
    drop(first);
    mesh.counts(0, 1).await;
}

#[tokio::test]
async fn ch6_13_ch15_4_a_request_above_the_last_stream_of_a_goaway_with_an_error_is_sent_again() {
    let name = "ch6_13_error";
    let listener = RawListener::bind().await;
    let mesh = Mesh::at(name, &[listener.address], |builder| builder).await;
    let first = mesh.get("/first");
    let mut raw = listener.accept().await;
    let stream = raw.request().await;
    let second = mesh.get("/second");
    assert_eq!((stream, raw.request().await), (1, 3));
    // The last stream is the first one, the code SETTINGS_TIMEOUT.
    raw.write(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 4]).await;
    let mut next = listener.accept().await;
    let stream = next.request().await;
    next.respond(stream).await;
    soon(second).await.unwrap().unwrap();
    drop(raw);
    let status = soon(first).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "the server may have processed it: {status:?}");
    assert!(next.is_quiet());
}
