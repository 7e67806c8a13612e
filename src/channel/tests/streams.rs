//! Streams above the limit of the server (CH4.13).

use super::{peer::Received, *};
use crate::{
    balance::{
        pick_args::{CallAttributes, PickArgs},
        picker::Pick,
    },
    resolve::RouteQuery,
};

/// A server that permits one stream on each connection.
async fn narrow() -> Peer {
    Peer::with(|it| {
        it.max_concurrent_streams(1);
    })
    .await
}

#[tokio::test]
async fn ch4_13_calls_above_the_limit_of_the_server_are_sent_in_their_order() {
    let mut peer = narrow().await;
    let mesh = Mesh::start("ch4_13_order", &[&peer]).await;
    let mut calls = vec![mesh.get("/1")];
    let mut received = peer.request().await;
    calls.extend(["/2", "/3", "/4"].map(|path| mesh.get(path)));
    for (path, waiting) in [("/1", 3), ("/2", 2), ("/3", 1)] {
        assert_eq!(received.path(), path);
        mesh.waits(waiting).await;
        assert!(peer.is_quiet(), "one stream at a time");
        received.respond();
        received = peer.request().await;
    }
    assert_eq!(received.path(), "/4");
    received.respond();
    for call in calls {
        soon(call).await.unwrap().unwrap();
    }
    mesh.waits(0).await;
}

#[tokio::test]
async fn ch4_13_deadlines_and_cancellations_leave_the_queue_at_once() {
    let mut peer = narrow().await;
    let mesh = Mesh::start("ch4_13_deadlines", &[&peer]).await;
    let first = mesh.get("/first");
    let held = peer.request().await;
    let cancelled = mesh.get("/cancelled");
    mesh.waits(1).await;
    let late = mesh.with_timeout("/late", "50m");
    let status = soon(late).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(status.message().contains("permits no further stream"), "{status:?}");
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    mesh.waits(0).await;
    let last = mesh.get("/last");
    mesh.waits(1).await;
    held.respond();
    soon(first).await.unwrap().unwrap();
    let received = peer.request().await;
    assert_eq!(received.path(), "/last", "those that left were not sent");
    received.respond();
    soon(last).await.unwrap().unwrap();
}

#[tokio::test]
async fn ch6_12_calls_that_wait_for_a_stream_of_a_lost_connection_were_never_sent() {
    for end in [End::Crash, End::Graceful, End::Abrupt(h2::Reason::INTERNAL_ERROR)] {
        let mut peer = narrow().await;
        let mesh = Mesh::start("ch6_12_lost", &[&peer]).await;
        let first = mesh.get("/first");
        let held = peer.request().await;
        let others = ["/2", "/3"].map(|path| mesh.get(path));
        mesh.waits(2).await;
        let is_graceful = matches!(end, End::Graceful);
        peer.connection().await.send(end).unwrap_or_else(|_| panic!("it is open"));
        for path in ["/2", "/3"] {
            let received = peer.request().await;
            assert_eq!(received.path(), path);
            received.respond();
        }
        for other in others {
            soon(other).await.unwrap().unwrap();
        }
        if is_graceful {
            held.respond();
            soon(first).await.unwrap().unwrap();
        } else {
            assert_eq!(soon(first).await.unwrap().unwrap_err().code(), Code::Unavailable);
        }
        assert_eq!(mesh.running("ch6_12_lost"), 0);
    }
}

#[tokio::test]
async fn ch6_12_a_request_waits_on_at_most_1000_connections_that_are_lost() {
    // It permits no stream, so that the request is not sent.
    let mut peer = Peer::with(|it| {
        it.max_concurrent_streams(0);
    })
    .await;
    let settings = |builder: ChannelBuilder| {
        // Connections are made again without delay, although none of them carries a call.
        builder.connect_backoff(Duration::from_millis(1), Duration::from_millis(1)).wait_for_ready(true)
    };
    let mesh = Mesh::at("ch6_12_limit", &[peer.address], settings).await;
    let call = mesh.get("/a");
    let published = &mesh.channel.shared.calls.published;
    let mut lost = 0;
    while !call.is_finished() {
        let connection = peer.connection().await;
        until("the call waits", || {
            call.is_finished() || (published.waiting() == 1 && published.waiting_for_pickers() == 0)
        })
        .await;
        connection.send(End::Crash).unwrap_or_else(|_| panic!("it is open"));
        lost += 1;
    }
    let status = soon(call).await.unwrap().unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Internal, "1000 connections were lost before the request was sent")
    );
    assert!(lost > 1_000, "{lost}");
    assert_eq!(mesh.running("ch6_12_limit"), 0);
}

#[tokio::test]
async fn ch1_6_calls_that_wait_for_a_stream_fail_when_the_channel_is_shut_down() {
    let mut peer = narrow().await;
    let mesh = Mesh::start("ch1_6_streams", &[&peer]).await;
    let first = mesh.get("/first");
    let held = peer.request().await;
    let waiting = mesh.get("/waiting");
    mesh.waits(1).await;
    let channel = mesh.channel.clone();
    let shutdown = tokio::spawn(async move { channel.shutdown(Duration::from_secs(20)).await });
    let status = soon(waiting).await.unwrap().unwrap_err();
    assert_eq!(
        (status.code(), status.message().starts_with("channel is shut down")),
        (Code::Unavailable, true)
    );
    held.respond();
    soon(first).await.unwrap().unwrap();
    soon(shutdown).await.unwrap();
}

#[tokio::test]
async fn ch4_13_responses_that_the_application_has_not_read_do_not_block_its_next_call() {
    let mut peer = narrow().await;
    let mesh = Mesh::start("ch4_13_unread", &[&peer]).await;
    let mut responses = Vec::new();
    for path in ["/1", "/2", "/3"] {
        let (response, ()) = tokio::join!(mesh.begin(path, Given::default()), async {
            peer.request().await.respond();
        });
        responses.push(response);
    }
    for response in responses {
        finish(async { response }).await.unwrap();
    }
}

#[tokio::test]
async fn ch2_22_ch13_2_an_attempt_whose_connection_is_gone_counts_nowhere_and_waits_for_a_newer_picker() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch2_22", &[&peer]).await;
    let first = mesh.get("/first");
    peer.request().await.respond();
    soon(first).await.unwrap().unwrap();
    let published = &mesh.channel.shared.calls.published;
    let old = published.load().clone();
    peer.open(false);
    peer.connection().await.send(End::Crash).unwrap_or_else(|_| panic!("it is open"));
    until("the loss is published", || published.load().number() > old.number()).await;
    // A call that loads the old generation at the last moment picks the connection that is gone.
    let gone = published.replace(old);
    let call = mesh.get("/second");
    mesh.waits(1).await;
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    assert!(!call.is_finished(), "it neither fails nor tries again");
    assert_eq!(mesh.running("ch2_22"), 0);
    let (attributes, random) = (&mut CallAttributes::default(), &mut fastrand::Rng::new());
    let mut args = PickArgs { attributes, random, request: &RouteQuery::new("/", 0) };
    let Pick::Complete(attempt) = published.load().pick(0, &mut args) else {
        panic!("the old picker has the connection")
    };
    assert_eq!(mesh.running("ch2_22"), 1, "that of this pick");
    drop(attempt);
    published.replace(gone);
    peer.open(true);
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    assert_eq!(mesh.running("ch2_22"), 0);
}

/// The timeout that a request has, in nanoseconds.
fn timeout_of(received: &Received) -> u64 {
    let text = received.request.headers()["grpc-timeout"].to_str().unwrap();
    let (number, unit) = text.split_at(text.len() - 1);
    number.parse::<u64>().unwrap() * if unit == "u" { 1_000 } else { 1_000_000_000 }
}

#[tokio::test]
async fn ch2_14_the_time_of_a_call_includes_its_wait_for_the_configuration() {
    use crate::pb::{
        envoy::config::route::v3::{route::Action, route_action::MaxStreamDuration},
        google::protobuf::Duration as Limit,
    };
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch2_14", &[&peer]).await;
    let limited = route::prefix("").cluster("ch2_14").edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        let limit = Some(Limit { seconds: 90, nanos: 0 });
        action.max_stream_duration =
            Some(MaxStreamDuration { max_stream_duration: limit, ..MaxStreamDuration::default() });
    });
    mesh.server.set(route_config("routes").virtual_host(["*"], [limited]));
    mesh.server.hold();
    let calls = [mesh.get("/route"), mesh.with_timeout("/application", "90S")];
    mesh.waits(2).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
    mesh.server.release();
    for path in ["/route", "/application"] {
        let received = peer.request().await;
        let timeout = timeout_of(&received);
        assert!(timeout <= 80_000_000_000, "{path}: {timeout} ns");
        received.respond();
    }
    for call in calls {
        soon(call).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn ch2_16_a_call_without_a_deadline_sends_none_and_one_without_time_is_not_sent() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch2_16", &[&peer]).await;
    let status = soon(mesh.with_timeout("/late", "0m")).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let call = mesh.get("/a");
    let received = peer.request().await;
    assert_eq!((received.path(), received.request.headers().get("grpc-timeout")), ("/a", None));
    received.respond();
    soon(call).await.unwrap().unwrap();
}
