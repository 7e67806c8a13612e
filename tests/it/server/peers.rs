//! Peers that are slow, silent or hostile, beside a neighbour whose calls succeed.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::transport::Channel;

use super::world::{ECHO, World, call, is_closed_at_once};
use crate::common::soon;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

async fn calls_succeed(neighbor: &Channel) {
    for _ in 0..50 {
        call(neighbor, ECHO, "a").await.unwrap();
    }
}

/// Waits until the server has closed a connection.
async fn is_closed(stream: &mut TcpStream) {
    let mut all = Vec::new();
    // A reset is an end as well.
    drop(soon(stream.read_to_end(&mut all)).await);
}

#[tokio::test]
async fn sv5_4_sv5_14_silent_peers_are_closed_and_limited_beside_a_neighbor() {
    let settings =
        |time: Duration| World::start_with(move |builder| builder.handshake_timeout(time).max_handshakes(3));
    let world = settings(Duration::from_secs(3_600)).await;
    let neighbor = world.client();
    calls_succeed(&neighbor).await;
    let mut silent = Vec::new();
    for sent in [&b""[..], &PREFACE[..1], &PREFACE[..20]] {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(sent).await.unwrap();
        silent.push(stream);
    }
    soon(async {
        while world.server.status().await[0].connections.handshaking < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(is_closed_at_once(world.address).await);
    calls_succeed(&neighbor).await;
    // One of them ends its handshake, which makes room.
    silent[2].write_all(&PREFACE[20..]).await.unwrap();
    soon(async {
        while world.server.status().await[0].connections.handshaking > 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    call(&world.client(), ECHO, "a").await.unwrap();

    let world = settings(Duration::from_millis(100)).await;
    let neighbor = world.client();
    calls_succeed(&neighbor).await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(&PREFACE[..5]).await.unwrap();
    is_closed(&mut stream).await;
    calls_succeed(&neighbor).await;
}

#[tokio::test]
async fn sv6_14_slow_heads_are_closed_and_long_ones_refused_beside_a_neighbor() {
    let world = World::start_with(|builder| builder.header_read_timeout(Duration::from_millis(500))).await;
    let neighbor = world.client();
    calls_succeed(&neighbor).await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(b"GET /test.Echo/x HTTP/1.1\r\nhost:").await.unwrap();
    is_closed(&mut stream).await;
    for size in [15 << 10, 17 << 10] {
        let long = "x".repeat(size);
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let head =
            format!("GET /test.Echo/x HTTP/1.1\r\nhost: a\r\nx-long: {long}\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut text = vec![0; 64];
        let count = soon(stream.read(&mut text)).await.unwrap();
        let expected = if size < 16 << 10 { "HTTP/1.1 200" } else { "HTTP/1.1 431" };
        let text = String::from_utf8_lossy(&text[..count]);
        assert!(text.starts_with(expected), "{size}: {text}");
    }
    calls_succeed(&neighbor).await;
}

#[tokio::test]
async fn sv6_14_connections_past_the_limit_are_closed_beside_a_neighbor() {
    let world = World::start_with(|builder| builder.max_connections(2)).await;
    let neighbor = world.client();
    calls_succeed(&neighbor).await;
    let stream = TcpStream::connect(world.address).await.unwrap();
    soon(async {
        while world.server.status().await[0].connections.handshaking < 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(is_closed_at_once(world.address).await);
    calls_succeed(&neighbor).await;
    drop(stream);
    soon(async { while is_refused(&world).await {} }).await;
}

/// Whether a new connection is refused.
async fn is_refused(world: &World) -> bool {
    call(&world.client(), ECHO, "a").await.is_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn sv13_6_a_peer_with_ten_thousand_resets_is_sent_away_beside_a_neighbor() {
    let world = World::start().await;
    let neighbor = world.client();
    calls_succeed(&neighbor).await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let mut bytes = PREFACE.to_vec();
    // SETTINGS.
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    for stream in (1..20_001_u32).step_by(2) {
        // GET / by http, as HPACK's table has it, and a reset (CANCEL).
        bytes.extend([0, 0, 3, 1, 5]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend([0x82, 0x84, 0x86]);
        bytes.extend([0, 0, 4, 3, 0]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend([0, 0, 0, 8]);
    }
    let (mut read, mut write) = stream.split();
    let mut received = Vec::new();
    let reading = async { drop(soon(read.read_to_end(&mut received)).await) };
    // The server may close the connection before it has read all.
    let writing = async { drop(write.write_all(&bytes).await) };
    tokio::join!(reading, writing, calls_succeed(&neighbor));
    // GOAWAY with ENHANCE_YOUR_CALM.
    let calm = [0_u8, 0, 0, 11];
    let is_goaway = |frame: &[u8]| frame[3] == 7 && frame[13..17] == calm;
    assert!(received.windows(17).any(is_goaway), "{} bytes", received.len());
    calls_succeed(&neighbor).await;
}

/// What the server sends first decides what clients may do, so that an update of a library must not change it.
#[tokio::test]
async fn sv6_14_the_limits_of_http2_are_those_that_were_decided_on() {
    let world = World::start().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(&[PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat()).await.unwrap();
    let mut settings = None;
    let mut window = None;
    while settings.is_none() || window.is_none() {
        let mut head = [0; 9];
        soon(stream.read_exact(&mut head)).await.unwrap();
        let mut payload = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
        soon(stream.read_exact(&mut payload)).await.unwrap();
        match head[3] {
            // Not the acknowledgement of ours.
            4 if head[4] == 0 => settings = Some(payload),
            8 => window = Some(u32::from_be_bytes(payload[..].try_into().unwrap())),
            _ => {}
        }
    }
    let mut values: Vec<_> = settings
        .unwrap()
        .chunks(6)
        .map(|entry| (entry[1], u32::from_be_bytes(entry[2..].try_into().unwrap())))
        .collect();
    values.sort_unstable();
    // MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE.
    assert_eq!(values, [(3, 100), (4, 1 << 20), (5, 16 << 10), (6, 16 << 10)]);
    // That of the connection begins with 65,535.
    assert_eq!(window, Some((1 << 20) - 65_535));
}
