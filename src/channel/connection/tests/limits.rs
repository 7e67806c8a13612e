//! Limits of HTTP/2 on connections to scripted peers.

use super::{super::http2::REPLACE_AFTER_RESETS, *};
use crate::channel::tests::raw::{DATA, HEADERS, RST_STREAM};

#[tokio::test]
async fn ch15_5_resets_by_the_peer_leave_the_connection_usable() {
    let (driven, mut server) = pair().await;
    let served = tokio::spawn(async move {
        while let Some(Ok((_, mut respond))) = server.accept().await {
            respond.send_reset(Reason::REFUSED_STREAM);
        }
    });
    for _ in 0..2_000 {
        driven.request().await.unwrap_err();
    }
    assert!(!driven.task.is_finished());
    served.abort();
}

#[tokio::test]
async fn ch15_8_frames_on_streams_that_were_reset_leave_the_connection_open() {
    let (driven, mut peer) = raw_pair(ConnectionSettings::default()).await;
    // More than are remembered, and more than the limit of the h2 crate by default.
    let mut late = Vec::new();
    for _ in 0..20 {
        let mut cancelled = Vec::new();
        for _ in 0..1_000 {
            let response = driven.request();
            late.push(peer.request().await);
            cancelled.push(response);
        }
        drop(cancelled);
        while late.iter().any(|stream| *stream > 0) {
            let reset = peer.frame_of(RST_STREAM).await.stream;
            let place = late.iter().position(|stream| *stream == reset).unwrap();
            let stream = late.swap_remove(place);
            // The response was under way.
            peer.write(HEADERS, 4, stream, &[0x88]).await;
            peer.write(DATA, 1, stream, &[0; 10]).await;
        }
    }
    let response = driven.request();
    let stream = peer.request().await;
    peer.respond(stream).await;
    assert_eq!(response.await.unwrap().status(), 200);
    assert!(!driven.task.is_finished());
}

#[tokio::test]
async fn ch15_8_small_data_frames_on_streams_that_were_reset_leave_the_connection_open() {
    let (driven, mut peer) = raw_pair(ConnectionSettings::default()).await;
    let cancelled = driven.request();
    let stream = peer.request().await;
    drop(cancelled);
    assert_eq!(peer.frame_of(RST_STREAM).await.stream, stream);
    // The h2 crate takes 255 bytes of a budget for each, and gives nothing back.
    let late = [0, 0, 1, 0, 0, 0, 0, 0, 1, 0].repeat(1_000);
    for _ in 0..100 {
        peer.write_bytes(&late).await;
    }
    let response = driven.request();
    let stream = peer.request().await;
    peer.respond(stream).await;
    assert_eq!(response.await.unwrap().status(), 200);
    assert!(!driven.task.is_finished());
}

#[tokio::test]
async fn ch15_8_a_connection_with_many_late_frames_is_replaced_before_it_is_closed() {
    let (mut driven, mut peer) = raw_pair(ConnectionSettings::default()).await;
    let running = driven.request();
    let kept = peer.request().await;
    let outbound = driven.streams.handle().outbound.clone();
    for count in 1..=3 {
        let ended = driven.request();
        let stream = peer.request().await;
        peer.respond(stream).await;
        ended.await.unwrap();
        // Nothing is remembered of a stream that has ended.
        peer.write(HEADERS, 5, stream, &[0x88]).await;
        assert_eq!(peer.frame_of(RST_STREAM).await.stream, stream);
        assert_eq!(outbound.answered_forgotten(), count);
    }
    assert!(!driven.streams.is_closed());
    outbound.on_answered_forgotten(REPLACE_AFTER_RESETS);
    peer.permit(100).await;
    assert_eq!(driven.lost.recv().await, Some(Loss::Other(Disconnect::Shutdown)));
    assert!(driven.streams.is_closed(), "no call begins on it");
    peer.respond(kept).await;
    assert_eq!(running.await.unwrap().status(), 200);
}

#[tokio::test]
async fn ch15_8_frames_after_a_reset_of_the_peer_leave_the_connection_open() {
    let (driven, mut peer) = raw_pair(ConnectionSettings::default()).await;
    // As grpc-java does it when the deadline of a call has passed there: what was queued follows the reset.
    let late = |stream: u32| {
        let frame = |kind: u8, flags: u8, payload: &[u8]| {
            let head = [0, 0, payload.len() as u8, kind, flags];
            [&head[..], &stream.to_be_bytes(), payload].concat()
        };
        let begin = [frame(HEADERS, 4, &[0x88]), frame(RST_STREAM, 0, &[0, 0, 0, 8])].concat();
        let rest = [frame(DATA, 0, &[0; 100]), frame(DATA, 1, &[0; 10]), frame(HEADERS, 5, &[0x88])].concat();
        (begin, rest)
    };
    let inbound = driven.streams.handle().responses().clone();
    let (_, whole) = late(0);
    for cut in 0..=whole.len() {
        let unread = driven.request();
        let stream = peer.request().await;
        let (begin, rest) = late(stream);
        peer.write_bytes(&begin).await;
        peer.write_bytes(&rest[..cut]).await;
        // The parts are read one after the other.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        peer.write_bytes(&rest[cut..]).await;
        let response = driven.request();
        let stream = peer.request().await;
        peer.respond(stream).await;
        assert_eq!(response.await.unwrap().status(), 200, "{cut}");
        assert_eq!(unread.await.unwrap().status(), 200);
        assert!(!driven.task.is_finished(), "{cut}");
    }
    let ignored = 110 * (whole.len() as u64 + 1);
    assert_eq!(inbound.inbound().ignored(), ignored);
}

#[test]
fn ch15_8_defaults_of_the_h2_crate_are_those_that_were_decided_on() {
    // Each setting of the crate has a row in the table of limits of docs/channel/http2.md. A change of a default, or another setting,
    // asks for a decision.
    let defaults = format!("{:?}", h2::client::Builder::new());
    let decided = [
        "reset_stream_duration: 1s",
        "initial_max_send_streams: 18446744073709551615",
        "initial_target_connection_window_size: None",
        "max_send_buffer_size: 409600",
        "reset_stream_max: 50",
        "pending_accept_reset_stream_max: 20",
        "settings: Settings { flags: (0x0) }",
        "stream_id: StreamId(1)",
        "local_max_error_reset_streams: Some(1024)",
        "data_frame_budget: Auto",
    ];
    assert_eq!(defaults, format!("Builder {{ {} }}", decided.join(", ")));
}

#[tokio::test]
async fn ch15_9_a_request_that_the_peer_would_not_accept_is_not_sent() {
    let listener = RawListener::bind().await;
    let connect = async {
        let connected =
            Connection::connect(&listener.address.into(), BOUND, ConnectionSettings::default()).await;
        Driven::new(connected.unwrap_or_else(|error| panic!("{error}")))
    };
    let limit = 1_000_u32;
    let settings = [&[0, 6][..], &limit.to_be_bytes()].concat();
    let (driven, mut peer) = tokio::join!(connect, listener.accept_with(&settings));
    let sized = |value: usize| {
        let request = Request::get("http://shop/a").header("x", "v".repeat(value));
        driven.streams.handle().send(request.body(()).unwrap(), true)
    };
    // `:method: GET`, `:scheme: http`, `:authority: shop`, `:path: /a` and the name of the header.
    let others = (7 + 3) + (7 + 4) + (10 + 4) + (5 + 2) + 1 + 5 * 32;
    let largest = limit as usize - others;
    let (_response, _stream) = sized(largest).unwrap();
    assert_eq!(peer.request().await, 1);
    let Err(SendError::TooLarge { size, limit }) = sized(largest + 1) else { panic!("it is sent") };
    assert_eq!((size, limit), (1_001, 1_000));
    assert!(peer.is_quiet());
}

#[tokio::test]
async fn ch15_9_servers_are_told_the_largest_header_list() {
    let (listener, address) = listen().await;
    let connecting = tokio::spawn(connect(address));
    let mut peer = listener.accept().await.unwrap().0;
    let mut preface = [0; 24 + 9];
    peer.read_exact(&mut preface).await.unwrap();
    let mut settings = vec![0; preface[26].into()];
    peer.read_exact(&mut settings).await.unwrap();
    let parameters: Vec<_> =
        settings.chunks(6).map(|it| (it[1], u32::from_be_bytes([it[2], it[3], it[4], it[5]]))).collect();
    assert!(parameters.contains(&(6, 16 << 10)), "{parameters:?}");
    assert!(parameters.contains(&(4, (1 << 16) - 1)), "{parameters:?}");
    connecting.abort();
}
