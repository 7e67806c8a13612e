//! Streams that are open for long, beside the calls of others.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::{
    server::{COLLECT, ECHO, END_EARLY, FLOOD, UNREAD},
    *,
};

/// A call beside others.
async fn neighbor(mesh: &Mesh) {
    let outcome = by_grpc(&mesh.channel, COLLECT, &["hello".into()], CallOptions::new()).await;
    assert_eq!((outcome.code, outcome.messages), (0, vec![Bytes::from("hello")]), "{}", outcome.message);
}

#[tokio::test]
async fn messages_go_both_ways_while_a_stream_is_open() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let (mut sender, mut receiver) = invoke(&mesh.channel, ECHO, CallOptions::new()).await;
    // The response begins before the first message.
    let headers = soon(receiver.recv(&mut Raw::default())).await;
    assert!(matches!(headers, ResponseStreamItem::Headers(_)), "{headers:?}");
    for message in ["one", "two", "three"] {
        send(&mut sender, message).await.unwrap();
        assert_eq!(receive(&mut receiver).await.unwrap(), message);
    }
    drop(sender);
    assert_eq!(end(&mut receiver).await, (None, String::new()));
    server.runs(0).await;
}

#[tokio::test]
async fn ch17_3_a_send_waits_for_a_server_that_does_not_read() {
    const MESSAGES: usize = 1_000;
    const SIZE: usize = 64 << 10;
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let (mut sender, mut receiver) = invoke(&mesh.channel, UNREAD, CallOptions::new()).await;
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let sending = tokio::spawn(async move {
        for _ in 0..MESSAGES {
            sender.send(&Raw::new(vec![7; SIZE]), SendOptions::new()).await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    server.runs(1).await;
    // Calls of others go on, and no further message is accepted: the window of the server is full.
    let (mut last, mut unchanged) = (0, 0);
    while unchanged < 20 {
        neighbor(&mesh).await;
        let now = sent.load(Ordering::Relaxed);
        unchanged = if now == last { unchanged + 1 } else { 0 };
        last = now;
    }
    assert!(last > 0 && last * SIZE <= 1 << 20, "{last} messages of {SIZE} bytes are accepted");
    server.release();
    soon(sending).await.unwrap();
    let size = receive(&mut receiver).await.unwrap();
    assert_eq!(size, (MESSAGES * (SIZE + 5)).to_string());
    assert_eq!(end(&mut receiver).await, (None, String::new()));
}

#[tokio::test]
async fn ch15_7_an_unread_stream_delays_no_calls_beside_it() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let (sender, mut receiver) = invoke(&mesh.channel, FLOOD, CallOptions::new()).await;
    drop(sender);
    assert_eq!(receive(&mut receiver).await.unwrap().len(), 16 << 10);
    for _ in 0..100 {
        neighbor(&mesh).await;
    }
    for _ in 0..1_000 {
        assert_eq!(receive(&mut receiver).await.unwrap().len(), 16 << 10);
    }
    drop(receiver);
    server.runs(0).await;
}

#[tokio::test]
async fn ch17_3_a_send_fails_once_the_server_has_ended_the_call() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let (mut sender, mut receiver) = invoke(&mesh.channel, END_EARLY, CallOptions::new()).await;
    soon(async { while send(&mut sender, vec![7; 64 << 10]).await.is_ok() {} }).await;
    assert_eq!(end(&mut receiver).await, (None, String::new()));
    server.runs(0).await;
}

#[tokio::test]
async fn a_future_of_either_stream_can_be_dropped_while_it_waits() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let (mut sender, mut receiver) = invoke(&mesh.channel, ECHO, CallOptions::new()).await;
    let mut message = Raw::default();
    for text in ["one", "two"] {
        // It is polled once, with nothing to receive.
        let polled = futures_util::future::poll_immediate(receiver.recv(&mut message)).await;
        assert!(matches!(polled, None | Some(ResponseStreamItem::Headers(_))), "{polled:?}");
        send(&mut sender, text).await.unwrap();
        assert_eq!(receive(&mut receiver).await.unwrap(), text);
    }
}
