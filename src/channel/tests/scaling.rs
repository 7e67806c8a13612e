//! Further connections to an endpoint whose server permits no more streams (A105).

use std::sync::atomic::{AtomicU32, Ordering};

use super::{peer::Received, raw::RawListener, *};
use crate::{
    pb::{
        envoy::config::cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds},
        google::protobuf::UInt32Value,
    },
    testing::resources::ClusterBuilder,
};

fn scaled(name: &str, max_connections: u32) -> ClusterBuilder {
    let max_connections = Some(UInt32Value { value: max_connections });
    let per_host_thresholds = vec![Thresholds { max_connections, ..Thresholds::default() }];
    let breakers = CircuitBreakers { per_host_thresholds, ..CircuitBreakers::default() };
    cluster(name).edit(|cluster| cluster.circuit_breakers = Some(breakers))
}

/// A server that permits so many streams on each connection.
async fn permitting(streams: u32) -> Peer {
    Peer::with(move |it| {
        it.max_concurrent_streams(streams);
    })
    .await
}

impl Mesh {
    /// With a cluster that permits so many connections to each endpoint.
    async fn scaled(name: &str, peer: &Peer, max_connections: u32) -> Self {
        Self::scaled_at(name, peer.address, max_connections, |builder| builder).await
    }

    async fn scaled_at(
        name: &str,
        address: SocketAddr,
        max_connections: u32,
        settings: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
    ) -> Self {
        let mesh = Self::at(name, &[address], settings).await;
        mesh.server.set(scaled(name, max_connections));
        mesh
    }
}

/// The next requests, by their paths.
async fn requests<const N: usize>(peer: &mut Peer) -> [Received; N] {
    let mut received = Vec::new();
    for _ in 0..N {
        received.push(peer.request().await);
    }
    received.sort_by_key(|it| it.path().to_owned());
    received.try_into().unwrap_or_else(|_| panic!("there are so many"))
}

async fn all_succeed(calls: impl IntoIterator<Item = JoinHandle<Result<(), Status>>>) {
    for call in calls {
        soon(call).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn ch4_10_calls_that_wait_get_further_connections_up_to_the_limit() {
    let mut peer = permitting(1).await;
    let mesh = Mesh::scaled("ch4_10_limit", &peer, 3).await;
    let mut calls = Vec::new();
    for path in ["/1", "/2", "/3", "/4", "/5"] {
        calls.push(mesh.get(path));
        mesh.waits(calls.len().saturating_sub(3)).await;
    }
    let [one, two, three] = requests(&mut peer).await;
    assert_eq!([&one, &two, &three].map(|it| (it.path(), it.connection)), [("/1", 0), ("/2", 1), ("/3", 2)]);
    for _ in 0..3 {
        peer.connection().await;
    }
    mesh.waits(2).await;
    assert!(peer.has_no_further_connection() && peer.is_quiet());
    // The first stream that ends is that of the first call that waits.
    two.respond();
    let four = peer.request().await;
    assert_eq!((four.path(), four.connection), ("/4", 1));
    three.respond();
    let five = peer.request().await;
    assert_eq!((five.path(), five.connection), ("/5", 2));
    for received in [one, four, five] {
        received.respond();
    }
    all_succeed(calls).await;
    // The oldest connection is the first to be used.
    let call = mesh.get("/6");
    let six = peer.request().await;
    assert_eq!(six.connection, 0);
    six.respond();
    all_succeed([call]).await;
    assert!(peer.has_no_further_connection());
}

#[tokio::test]
async fn ch4_9_the_cap_of_the_channel_and_sharing_limit_the_connections() {
    for connections in [1, 2] {
        let settings = move |builder: ChannelBuilder| match connections {
            1 => builder.share_connections(true),
            _ => builder.max_connections_cap(2),
        };
        let mut peer = permitting(1).await;
        let mesh = Mesh::scaled_at("ch4_9_cap", peer.address, 1_000, settings).await;
        let calls = ["/1", "/2", "/3"].map(|path| mesh.get(path));
        mesh.waits(3 - connections).await;
        for _ in 0..connections {
            peer.connection().await;
        }
        for _ in 0..3 {
            peer.request().await.respond();
        }
        all_succeed(calls).await;
        assert!(peer.has_no_further_connection(), "{connections}");
    }
}

#[tokio::test]
async fn ch4_9_another_limit_applies_to_living_connections() {
    let mut peer = permitting(1).await;
    let name = "ch4_9_update";
    let mesh = Mesh::start(name, &[&peer]).await;
    let mut calls = vec![mesh.get("/1")];
    let one = peer.request().await;
    calls.push(mesh.get("/2"));
    mesh.waits(1).await;
    assert!(peer.is_quiet());
    mesh.server.set(scaled(name, 2));
    let two = peer.request().await;
    assert_eq!((two.path(), two.connection), ("/2", 1));
    // A lower limit closes nothing.
    let seen = mesh.channel.shared.calls.published.load().number();
    mesh.server.set(cluster(name));
    until("the limit is lowered", || mesh.channel.shared.calls.published.load().number() > seen).await;
    one.respond();
    two.respond();
    all_succeed(calls).await;
    let calls = ["/3", "/4"].map(|path| mesh.get(path));
    let [three, four] = requests(&mut peer).await;
    assert_ne!(three.connection, four.connection);
    three.respond();
    four.respond();
    all_succeed(calls).await;
    peer.connection().await;
    peer.connection().await;
    assert!(peer.has_no_further_connection());
}

#[tokio::test]
async fn ch4_10_a_streamed_response_does_not_hold_up_the_next_call() {
    let mut peer = permitting(1).await;
    let mesh = Mesh::scaled("ch4_10_streams", &peer, 2).await;
    let watch = mesh.get("/watch");
    let mut held = peer.request().await;
    let mut stream = held.begin_response();
    stream.send_data(Bytes::from_static(b"\0\0\0\0\0"), false).unwrap();
    // With one connection this call would be passed on, to begin after the stream.
    let call = mesh.get("/next");
    let next = peer.request().await;
    assert_eq!((next.path(), next.connection), ("/next", 1));
    next.respond();
    all_succeed([call]).await;
    watch.abort();
    drop(stream);
}

#[tokio::test]
async fn ch4_11_ch4_12_goaway_on_one_of_two_connections_moves_its_waiting_calls_to_the_others() {
    for end in [End::Graceful, End::Crash] {
        let mut peer = permitting(1).await;
        let mesh = Mesh::scaled("ch4_11_goaway", &peer, 2).await;
        let first = mesh.get("/1");
        let ended = peer.request().await;
        let second = mesh.get("/2");
        let other = peer.request().await;
        assert_eq!((ended.connection, other.connection), (0, 1));
        let waiting = mesh.get("/3");
        mesh.waits(1).await;
        let is_graceful = matches!(end, End::Graceful);
        peer.connection().await.send(end).unwrap_or_else(|_| panic!("it is open"));
        // There is one connection left, so that another one may be made.
        let three = peer.request().await;
        assert_eq!((three.path(), three.connection), ("/3", 2));
        three.respond();
        other.respond();
        all_succeed([waiting, second]).await;
        if is_graceful {
            ended.respond();
            all_succeed([first]).await;
        } else {
            assert_eq!(soon(first).await.unwrap().unwrap_err().code(), Code::Unavailable);
        }
        assert_eq!(mesh.ready_endpoints(), 1);
    }
}

#[tokio::test]
async fn ch4_12_ch6_12_the_loss_of_all_connections_sends_waiting_calls_elsewhere() {
    let mut peer = permitting(1).await;
    let mesh = Mesh::scaled("ch4_12_lost", &peer, 2).await;
    let calls = ["/1", "/2"].map(|path| mesh.get(path));
    let held: [Received; 2] = requests(&mut peer).await;
    let waiting = ["/3", "/4"].map(|path| mesh.get(path));
    mesh.waits(2).await;
    for _ in 0..2 {
        peer.connection().await.send(End::Crash).unwrap_or_else(|_| panic!("it is open"));
    }
    for call in calls {
        assert_eq!(soon(call).await.unwrap().unwrap_err().code(), Code::Unavailable);
    }
    for received in requests::<2>(&mut peer).await {
        received.respond();
    }
    all_succeed(waiting).await;
    drop(held);
    assert_eq!(mesh.running("ch4_12_lost"), 0);
}

#[tokio::test]
async fn ch4_15_a_refused_further_connection_is_tried_again_and_fails_no_call() {
    let mut peer = permitting(1).await;
    let mesh = Mesh::scaled("ch4_15_refused", &peer, 2).await;
    let mut calls = vec![mesh.get("/1")];
    let one = peer.request().await;
    peer.refuse(true);
    calls.push(mesh.get("/2"));
    calls.push(mesh.get("/3"));
    mesh.waits(2).await;
    assert_eq!(mesh.channel.state(), super::super::ChannelState::Ready);
    // A stream that ends serves the queue during the delays.
    one.respond();
    let two = peer.request().await;
    assert_eq!((two.path(), two.connection), ("/2", 0));
    peer.refuse(false);
    let three = peer.request().await;
    assert_eq!((three.path(), three.connection), ("/3", 1));
    two.respond();
    three.respond();
    all_succeed(calls).await;
}

#[tokio::test]
async fn ch4_16_the_last_connection_is_lost_while_another_one_is_attempted() {
    let mut peer = permitting(1).await;
    let mesh = Mesh::scaled("ch4_16_lost", &peer, 2).await;
    let first = mesh.get("/1");
    let held = peer.request().await;
    peer.open(false);
    let waiting = mesh.get("/2");
    mesh.waits(1).await;
    let state = || mesh.channel.state();
    peer.connection().await.send(End::Crash).unwrap_or_else(|_| panic!("it is open"));
    assert_eq!(soon(first).await.unwrap().unwrap_err().code(), Code::Unavailable);
    until("it connects", || state() == super::super::ChannelState::Connecting).await;
    mesh.picks(1).await;
    peer.open(true);
    let two = peer.request().await;
    assert_eq!((two.path(), two.connection), ("/2", 1), "the attempt goes on");
    two.respond();
    all_succeed([waiting]).await;
    drop(held);
}

#[tokio::test]
async fn ch4_10_connections_may_permit_different_numbers_of_streams() {
    let connections = AtomicU32::new(0);
    let mut peer = Peer::with(move |it| {
        let number = connections.fetch_add(1, Ordering::SeqCst);
        it.max_concurrent_streams([1, 0, 3][number as usize]);
    })
    .await;
    let mesh = Mesh::scaled("ch4_10_different", &peer, 3).await;
    let calls = ["/1", "/2", "/3", "/4"].map(|path| mesh.get(path));
    let received: [Received; 4] = requests(&mut peer).await;
    let mut used = received.each_ref().map(|it| it.connection);
    used.sort_unstable();
    assert_eq!(used, [0, 2, 2, 2]);
    received.into_iter().for_each(Received::respond);
    all_succeed(calls).await;
}

#[tokio::test]
async fn ch4_13_ch4_14_settings_that_change_while_calls_wait_are_seen() {
    let listener = RawListener::bind().await;
    let mesh = Mesh::scaled_at("ch4_13_settings", listener.address, 2, |builder| builder).await;
    let mut calls = vec![mesh.get("/1")];
    let mut first = listener.accept_permitting(0).await;
    // The limit of 0 queues, and another connection may be better.
    mesh.waits(1).await;
    let mut second = listener.accept_permitting(0).await;
    second.permit(2).await;
    let one = second.request().await;
    calls.push(mesh.get("/2"));
    let two = second.request().await;
    mesh.waits(0).await;
    second.permit(1).await;
    let last = mesh.get("/3");
    mesh.waits(1).await;
    assert!(second.is_quiet(), "both streams run on, and no further one begins");
    second.respond(one).await;
    all_succeed(calls.drain(..1)).await;
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    assert!(second.is_quiet(), "one runs, as permitted");
    first.permit(1).await;
    let three = first.request().await;
    first.respond(three).await;
    second.respond(two).await;
    all_succeed(calls.into_iter().chain([last])).await;
}

#[tokio::test]
async fn ch4_10_a_cancelled_call_frees_its_place_in_the_queue() {
    let mut peer = permitting(1).await;
    let mesh = Mesh::scaled("ch4_10_cancelled", &peer, 2).await;
    let calls = ["/1", "/2"].map(|path| mesh.get(path));
    let [one, two] = requests(&mut peer).await;
    let cancelled = mesh.get("/cancelled");
    mesh.waits(1).await;
    let late = mesh.with_timeout("/late", "50m");
    let status = soon(late).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let next = mesh.get("/next");
    mesh.waits(2).await;
    cancelled.abort();
    mesh.waits(1).await;
    one.respond();
    let received = peer.request().await;
    assert_eq!(received.path(), "/next");
    received.respond();
    two.respond();
    all_succeed(calls.into_iter().chain([next])).await;
}
