//! Connections from the driver's point of view, to real and to scripted servers.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests")]

use std::{future::Future, time::Duration};

use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc::{self, UnboundedReceiver},
    time::timeout,
};

use super::*;
use crate::{
    config::{ApiType, Bootstrap, Server},
    control_plane::{self, ControlPlane, Event, Headers, type_url},
    engine::Input,
    error::Code,
    pb::envoy::service::discovery::v3::DiscoveryRequest,
    protocol::{ServerId, StreamEvent, StreamId},
    testing::FaultyProxy,
    transport::DisconnectKind,
};

#[tokio::test]
async fn nobody_listens() {
    let addr = TcpListener::bind(LOOPBACK).await.unwrap().local_addr().unwrap();
    let end = Peer::connect(&addr.to_string()).end().await;
    assert_eq!(end.kind, DisconnectKind::Unreachable);
    assert!(end.message.contains("refused (os error "), "{}", end.message);
}

#[tokio::test]
async fn a_server_that_does_not_speak_is_given_up() {
    // The kernel accepts the connection, and sends nothing, where TLS would begin with a response.
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let server = Server::new(listener.local_addr().unwrap().to_string()).tls(Default::default());
    let transport = GrpcTransport::default().with_connect_timeout(Duration::from_millis(500));
    let mut peer = Peer::with(&transport, server, KEEPALIVE);
    if cfg!(feature = "tls") {
        let end = peer.end().await;
        assert_eq!(
            end,
            Disconnect::new(
                DisconnectKind::Unreachable,
                "the server accepts connections but sends nothing, within 500ms"
            )
        );
    }
}

#[tokio::test]
async fn messages_go_out_one_by_one_while_headers_are_awaited() {
    let (control_plane, mut events, server) = serve().await;
    control_plane.set_headers(Headers::Never);
    let request = DiscoveryRequest { type_url: type_url::CLUSTER.into(), ..Default::default() };
    let request = Bytes::from(request.encode_to_vec());
    let mut peer = Peer::connect(&server.uri());
    assert!(matches!(peer.input().await, StreamEvent::Connected { .. }));
    for _ in 0..3 {
        peer.connection.send(request.clone());
        assert!(matches!(peer.input().await, StreamEvent::RequestSent { .. }));
        soon(async { while !matches!(events.recv().await.unwrap(), Event::Request { .. }) {} }).await;
    }
}

#[tokio::test]
async fn keepalive_of_the_greatest_length_means_no_pings() {
    let (control_plane, mut events, server) = serve().await;
    let never = Duration::MAX;
    let transport = GrpcTransport::default().with_connect_timeout(never).with_keep_alive_timeout(never);
    let mut peer = Peer::with(&transport, Server::new(server.uri()).insecure(), never);
    peer.open(&mut events).await;
    peer.connection.read();
    assert_eq!(control_plane.inject_raw("one"), 1);
    assert_eq!(peer.message().await, "one");
}

#[tokio::test]
async fn as_many_messages_are_read_as_are_requested() {
    let (control_plane, mut events, server) = serve().await;
    let mut peer = Peer::opened(&server.uri(), &mut events).await;
    for message in ["one", "two", "three"] {
        assert_eq!(control_plane.inject_raw(message), 1);
    }
    for message in ["one", "two"] {
        peer.connection.read();
        assert_eq!(peer.message().await, message);
        assert!(peer.inputs.try_recv().is_err());
    }
}

#[tokio::test]
async fn the_end_of_a_stream_is_noticed_without_permission_to_read() {
    let (control_plane, mut events, server) = serve().await;
    let mut peer = Peer::opened(&server.uri(), &mut events).await;
    control_plane.inject_raw("unread");
    control_plane.disconnect(tonic::Status::permission_denied("who are you?"));
    let denied = DisconnectKind::Failed(Code::PermissionDenied);
    assert_eq!(peer.end().await, Disconnect::new(denied, "who are you?"));
}

#[tokio::test]
async fn the_end_of_a_connection_is_noticed_without_permission_to_read() {
    let (_, mut events, server) = serve().await;
    let proxy = FaultyProxy::start(server.addr()).await;
    let mut peer = Peer::opened(&proxy.uri(), &mut events).await;
    proxy.cut();
    assert_eq!(peer.end().await.kind, DisconnectKind::Failed(Code::Unavailable));
}

#[tokio::test]
async fn a_connection_cut_at_any_byte_gives_whole_messages_and_an_end() {
    let (control_plane, mut events, server) = serve().await;
    let proxy = FaultyProxy::start(server.addr()).await;
    let message = "a message of some length";
    let (mut whole, mut cut) = (0, 0);
    // Before the message there are settings and headers, after it a reset. Each is cut at some byte.
    for byte in 1..200 {
        proxy.cut_after(byte);
        let mut peer = Peer::connect(&proxy.uri());
        peer.connection.read();
        peer.connection.read();
        loop {
            tokio::select! {
                Some(Event::Opened { .. }) = events.recv() => {
                    control_plane.inject_raw(message);
                    control_plane.disconnect(tonic::Status::aborted("enough"));
                }
                input = peer.input() => match input {
                    StreamEvent::Received { message: received, .. } => {
                        assert_eq!(received, message);
                        whole += 1;
                    }
                    StreamEvent::Disconnected { reason, .. } => {
                        cut += usize::from(reason.kind != DisconnectKind::Failed(Code::Aborted));
                        break;
                    }
                    StreamEvent::Connected { .. }
                    | StreamEvent::Alive { .. }
                    | StreamEvent::GoingAway { .. }
                    | StreamEvent::RequestSent { .. }
                    | StreamEvent::Unchanged { .. }
                    | StreamEvent::NotFound { .. }
                    | StreamEvent::Failed { .. } => {}
                }
            }
        }
        proxy.cancel_cut();
    }
    assert!(whole > 20 && cut > 50, "{whole} messages came, {cut} connections were cut");
}

#[tokio::test]
async fn a_message_over_the_limit_ends_the_stream() {
    let (control_plane, mut events, server) = serve().await;
    let transport = GrpcTransport::default().with_max_message_size(1000);
    let mut peer = Peer::with(&transport, Server::new(server.uri()).insecure(), KEEPALIVE);
    peer.open(&mut events).await;
    (0..2).for_each(|_| peer.connection.read());
    control_plane.inject_raw(vec![0; 1000]);
    assert_eq!(peer.message().await.len(), 1000);
    control_plane.inject_raw(vec![0; 1001]);
    let too_large = DisconnectKind::TooLarge { limit: 1000 };
    assert_eq!(
        peer.end().await,
        Disconnect::new(too_large, "a message of 1001 bytes, with a limit of 1000 bytes")
    );
}

#[tokio::test]
async fn a_large_message_comes_whole() {
    let (control_plane, mut events, server) = serve().await;
    let mut peer = Peer::opened(&server.uri(), &mut events).await;
    peer.connection.read();
    control_plane.inject_raw(vec![7; 20 << 20]);
    let message = peer.message().await;
    assert!(message.len() == 20 << 20 && message.iter().all(|byte| *byte == 7));
}

#[tokio::test]
async fn a_server_that_does_not_read_stops_what_is_sent() {
    let (control_plane, mut events, server) = serve().await;
    control_plane.set_reading(false);
    let mut peer = Peer::opened(&server.uri(), &mut events).await;
    // The first message fits into the windows of HTTP/2, the second has to wait.
    let message = Bytes::from(vec![0; 8 << 20]);
    peer.connection.send(message.clone());
    assert!(matches!(peer.input().await, StreamEvent::RequestSent { .. }));
    peer.connection.send(message);
    peer.connection.read();
    control_plane.inject_raw("still here");
    assert_eq!(peer.message().await, "still here", "reading goes on, and nothing was sent before");
    drop(peer);
    soon(async { while !matches!(events.recv().await.unwrap(), Event::Closed { .. }) {} }).await;
}

#[tokio::test]
async fn too_many_pings_has_a_reason_of_its_own() {
    let uri = scripted(|mut client| async move {
        client.open_stream().await;
        client.goaway(ENHANCE_YOUR_CALM, b"too_many_pings").await;
    })
    .await;
    let end = Peer::connect(&uri).end().await;
    assert_eq!(end.kind, DisconnectKind::TooManyPings);
    assert!(end.message.contains("too_many_pings"), "{}", end.message);
}

#[tokio::test]
async fn enhance_your_calm_for_another_reason_than_pings_is_a_broken_connection() {
    let uri = scripted(|mut client| async move {
        client.open_stream().await;
        client.goaway(ENHANCE_YOUR_CALM, b"too_many_resets").await;
    })
    .await;
    let end = Peer::connect(&uri).end().await;
    assert_eq!(end.kind, DisconnectKind::Failed(Code::Unavailable));
    assert!(end.message.contains("too_many_resets"), "{}", end.message);
}

#[tokio::test]
async fn a_goaway_without_an_error_is_a_broken_connection() {
    let uri = scripted(|mut client| async move {
        client.open_stream().await;
        client.goaway(0, b"").await;
    })
    .await;
    assert_eq!(Peer::connect(&uri).end().await.kind, DisconnectKind::Failed(Code::Unavailable));
}

#[tokio::test]
async fn a_goaway_on_a_connection_that_stays_is_reported_and_the_stream_goes_on() {
    let uri = scripted(|mut client| async move {
        client.open_stream().await;
        client.frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]).await;
        client.read_to_end().await;
    })
    .await;
    let mut peer = Peer::connect(&uri);
    while !matches!(peer.input().await, StreamEvent::GoingAway { .. }) {}
    peer.connection.send(Bytes::from_static(b"a request"));
    assert!(matches!(peer.input().await, StreamEvent::RequestSent { .. }));
}

#[tokio::test]
async fn a_server_that_does_not_answer_pings_is_given_up() {
    let uri = scripted(|mut client| async move {
        client.open_stream().await;
        client.read_to_end().await;
    })
    .await;
    let transport = GrpcTransport::default().with_keep_alive_timeout(Duration::from_millis(10));
    let mut peer = Peer::with(&transport, Server::new(uri).insecure(), Duration::from_millis(10));
    let end = peer.end().await;
    assert_eq!(end.kind, DisconnectKind::Failed(Code::Unavailable));
    for part in ["keep-alive timed out", "the server accepts connections but sends nothing"] {
        assert!(end.message.contains(part), "{}", end.message);
    }
}

#[tokio::test]
async fn the_error_of_a_server_without_grpc_has_its_http_status() {
    let uri = scripted(|mut client| async move {
        client.open_stream().await;
        // `:status: 404` is number 13 of HPACK's static table.
        client.frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x80 | 13]).await;
        client.read_to_end().await;
    })
    .await;
    let end = Peer::connect(&uri).end().await;
    assert_eq!(end.kind, DisconnectKind::Failed(Code::Unimplemented));
    assert_eq!(end.message, "HTTP status 404 Not Found, not gRPC");
}

#[tokio::test]
async fn a_stream_that_is_reset_has_the_code_of_its_reason() {
    for (reason, code) in [(7, Code::Unavailable), (8, Code::Cancelled), (2, Code::Internal)] {
        let uri = scripted(move |mut client| async move {
            client.open_stream().await;
            client.frame(RST_STREAM, 0, 1, &u32::to_be_bytes(reason)).await;
            client.read_to_end().await;
        })
        .await;
        assert_eq!(Peer::connect(&uri).end().await.kind, DisconnectKind::Failed(code), "{reason}");
    }
}

#[tokio::test]
async fn a_connection_that_is_dropped_closes_its_stream() {
    let (control_plane, mut events, server) = serve().await;
    let peer = Peer::opened(&server.uri(), &mut events).await;
    assert_eq!(control_plane.streams(), 1);
    drop(peer);
    soon(async { while !matches!(events.recv().await.unwrap(), Event::Closed { .. }) {} }).await;
}

#[tokio::test]
async fn a_host_with_several_addresses_is_tried_at_all_of_them() {
    let (_, mut events, server) = serve().await;
    let nobody = TcpListener::bind(LOOPBACK).await.unwrap().local_addr().unwrap();
    let uri = format!("ipv4:{nobody},{}", server.addr());
    let _peer = Peer::opened(&uri, &mut events).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_is_reached() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("xds.sock");
    let end = Peer::connect(&format!("unix:{}", path.display())).end().await;
    assert!(end.message.contains("No such file"), "{}", end.message);
    let incoming =
        tokio_stream::wrappers::UnixListenerStream::new(tokio::net::UnixListener::bind(&path).unwrap());
    let (events, mut opened) = mpsc::unbounded_channel();
    let control_plane =
        ControlPlane::builder().observe(move |event| drop(events.send(event.clone()))).build();
    let server = tonic::transport::Server::builder().add_service(control_plane.service());
    let serving = tokio::spawn(server.serve_with_incoming(incoming));
    let _peer = Peer::opened(&format!("unix:{}", path.display()), &mut opened).await;
    serving.abort();
}

/// A connection and its reports.
struct Peer {
    connection: Box<dyn Connection>,
    inputs: UnboundedReceiver<Input>,
}

impl Peer {
    fn connect(uri: &str) -> Self {
        Self::with(&GrpcTransport::default(), Server::new(uri).insecure(), KEEPALIVE)
    }

    fn with(transport: &GrpcTransport, server: crate::config::ServerBuilder, keepalive: Duration) -> Self {
        let bootstrap = Bootstrap::builder().server(server).build().unwrap();
        let server = bootstrap.servers().next().unwrap().clone();
        let (reports, inputs) = mpsc::unbounded_channel();
        let events = ConnectionEvents::new(StreamId { server: ServerId(0), attempt: 1 }, reports);
        let path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources".into();
        let target =
            ConnectRequest { server, api_type: ApiType::AggregatedGrpc, path, polling: None, keepalive };
        Self { connection: transport.connect(target, events), inputs }
    }

    /// A connection whose stream the server has accepted.
    async fn opened(uri: &str, events: &mut UnboundedReceiver<Event>) -> Self {
        let mut peer = Self::connect(uri);
        peer.open(events).await;
        peer
    }

    async fn open(&mut self, events: &mut UnboundedReceiver<Event>) {
        assert!(matches!(self.input().await, StreamEvent::Connected { .. }));
        assert!(matches!(soon(events.recv()).await, Some(Event::Opened { .. })));
    }

    /// Returns the next report other than the first read, whose position varies.
    async fn input(&mut self) -> StreamEvent {
        loop {
            let input = soon(self.inputs.recv()).await.expect("an end comes before the channel is closed");
            let Input::Transport(input) = input else { panic!("a transport reports streams: {input:?}") };
            if !matches!(input, StreamEvent::Alive { .. }) {
                return input;
            }
        }
    }

    async fn message(&mut self) -> Bytes {
        match self.input().await {
            StreamEvent::Received { message, .. } => message,
            other => panic!("{other:?}"),
        }
    }

    async fn end(&mut self) -> Disconnect {
        loop {
            if let StreamEvent::Disconnected { reason, .. } = self.input().await {
                return reason;
            }
        }
    }
}

async fn serve() -> (ControlPlane, UnboundedReceiver<Event>, control_plane::ServerHandle) {
    let (events, observed) = mpsc::unbounded_channel();
    let control_plane =
        ControlPlane::builder().observe(move |event| drop(events.send(event.clone()))).build();
    let server = control_plane.serve(LOOPBACK).await.unwrap();
    (control_plane, observed, server)
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future).await.expect("it takes too long")
}

/// The other end of a connection, with HTTP/2 frame by frame.
struct Client(TcpStream);

/// Serves one connection by a script; returns the URI.
async fn scripted<F: Future<Output = ()> + Send>(
    script: impl FnOnce(Client) -> F + Send + 'static,
) -> String {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { script(Client(listener.accept().await.unwrap().0)).await });
    format!("http://{addr}")
}

impl Client {
    /// Reads until the client has opened stream 1.
    async fn open_stream(&mut self) {
        self.frame(SETTINGS, 0, 0, &[]).await;
        let mut preface = [0; 24];
        self.0.read_exact(&mut preface).await.unwrap();
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.unwrap();
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            self.0.read_exact(&mut payload).await.unwrap();
            if head[3] == HEADERS {
                return;
            }
        }
    }

    async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).await.unwrap();
    }

    /// Sends the reason for closing the connection, as real servers do for the open stream, too, and closes it.
    async fn goaway(&mut self, reason: u32, debug: &[u8]) {
        let mut payload = 1_u32.to_be_bytes().to_vec();
        payload.extend(reason.to_be_bytes());
        payload.extend(debug);
        self.frame(GOAWAY, 0, 0, &payload).await;
        self.0.shutdown().await.unwrap();
        self.read_to_end().await;
    }

    async fn read_to_end(&mut self) {
        // An error is an end, too.
        let _ = self.0.read_to_end(&mut Vec::new()).await;
    }
}

const LOOPBACK: &str = "127.0.0.1:0";
const KEEPALIVE: Duration = Duration::from_secs(30);

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ENHANCE_YOUR_CALM: u32 = 11;
