//! Connections to scripted peers.

mod limits;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicUsize, Ordering},
};

use h2::{Reason, server};
use http::Response;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::*;
use crate::{
    balance::disconnect::Disconnect,
    channel::{
        status,
        tests::raw::{ACK, GOAWAY, PING, Raw, RawListener, SETTINGS, WINDOW_UPDATE},
    },
};

const BOUND: Duration = Duration::from_secs(20);

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A connection that is driven, and where it tells of its loss.
struct Driven {
    streams: Arc<Streams<Handle>>,
    drain: Option<oneshot::Sender<()>>,
    lost: mpsc::UnboundedReceiver<Loss>,
    task: tokio::task::JoinHandle<()>,
    /// How often the task was polled.
    polls: Arc<AtomicUsize>,
}

impl Driven {
    fn new(connection: Connection) -> Self {
        let ((drain, is_drained), (tell, lost)) = (oneshot::channel(), mpsc::unbounded_channel());
        let streams = connection.streams();
        let polls = Arc::<AtomicUsize>::default();
        let counter = polls.clone();
        let mut drive =
            Box::pin(connection.drive(is_drained, move |loss| tell.send(loss).unwrap_or_default()));
        let task = tokio::spawn(poll_fn(move |cx| {
            counter.fetch_add(1, Ordering::Relaxed);
            drive.as_mut().poll(cx)
        }));
        Self { streams, drain: Some(drain), lost, task, polls }
    }

    fn polls(&self) -> usize {
        self.polls.load(Ordering::Relaxed)
    }

    fn request(&self) -> ResponseFuture {
        self.streams.handle().send(get(), true).unwrap().0
    }
}

async fn pair() -> (Driven, server::Connection<TcpStream, Bytes>) {
    pair_with(ConnectionSettings::default(), &server::Builder::new()).await
}

async fn pair_with(
    settings: ConnectionSettings,
    server: &server::Builder,
) -> (Driven, server::Connection<TcpStream, Bytes>) {
    let (listener, address) = listen().await;
    let accept = async { server.handshake(listener.accept().await.unwrap().0).await.unwrap() };
    let peer = address.into();
    let (connected, server) = tokio::join!(Connection::connect(&peer, BOUND, settings), accept);
    (Driven::new(connected.unwrap_or_else(|error| panic!("{error}"))), server)
}

async fn connect(address: SocketAddr) -> Result<Connection, Arc<str>> {
    let connected = Connection::connect(&address.into(), BOUND, ConnectionSettings::default()).await;
    connected.map_err(|error| error.text)
}

fn get() -> Request<()> {
    Request::get("http://shop/a").body(()).unwrap()
}

/// A request without an end, which counts as a call.
fn reserved(streams: &Streams<Handle>) -> (ResponseFuture, SendStream<Bytes>) {
    assert!(streams.try_reserve());
    streams.handle().send(get(), false).unwrap()
}

fn status_of(error: &h2::Error) -> tonic::Status {
    status::of_error(error, (Ipv4Addr::LOCALHOST, 1).into(), None, None)
}

/// The request that the server has, while it is polled.
async fn next(server: &mut server::Connection<TcpStream, Bytes>) -> server::SendResponse<Bytes> {
    server.accept().await.unwrap().unwrap().1
}

#[tokio::test(start_paused = true)]
async fn ch3_4_a_listener_that_accepts_and_sends_nothing_is_a_failed_attempt() {
    let (listener, address) = listen().await;
    let silent = tokio::spawn(async move { listener.accept().await.unwrap() });
    let Err(error) = connect(address).await else { panic!("it is connected") };
    assert_eq!(&*error, format!("{address}: no HTTP/2 connection within 20s"));
    silent.await.unwrap();
}

#[tokio::test]
async fn ch3_4_ch15_2_a_connection_is_ready_with_the_settings_of_the_peer() {
    let (listener, address) = listen().await;
    let mut connecting = tokio::spawn(connect(address));
    let mut peer = listener.accept().await.unwrap().0;
    // The preface of the client, and the beginning of its SETTINGS.
    let mut preface = [0; 33];
    peer.read_exact(&mut preface).await.unwrap();
    assert!(preface.starts_with(b"PRI * HTTP/2.0"));
    tokio::task::yield_now().await;
    assert!(!connecting.is_finished());
    // An empty SETTINGS frame has no limit of streams.
    peer.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    assert!((&mut connecting).await.unwrap().is_ok());
}

#[tokio::test]
async fn ch1_18_a_failed_attempt_names_the_address() {
    let (listener, address) = listen().await;
    drop(listener);
    let Err(error) = connect(address).await else { panic!("it is connected") };
    assert!(error.starts_with(&format!("{address}: Connection refused")), "{error}");
}

#[tokio::test]
async fn ch3_4_a_peer_that_speaks_something_else_is_a_failed_attempt() {
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"", b"\0\0\0\x01\0\0\0\0\0"] {
        let (listener, address) = listen().await;
        let peer = async {
            let mut peer = listener.accept().await.unwrap().0;
            peer.write_all(answer).await.unwrap();
        };
        let (connected, ()) = tokio::join!(connect(address), peer);
        let Err(error) = connected else { panic!("it is connected") };
        assert!(error.starts_with(&format!("{address}: HTTP/2: ")), "{error}");
    }
}

#[tokio::test]
async fn ch3_5_goaway_is_seen_when_it_arrives_and_running_streams_finish() {
    let (mut driven, mut server) = pair().await;
    let response = driven.request();
    let mut respond = next(&mut server).await;
    server.graceful_shutdown();
    let server = tokio::spawn(async move { while server.accept().await.is_some() {} });
    driven.lost.recv().await.unwrap();
    respond.send_response(Response::new(()), true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    drop(driven.streams);
    driven.task.await.unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn ch3_5_a_connection_that_breaks_is_lost_and_fails_its_streams() {
    let (mut driven, mut server) = pair().await;
    let response = driven.request();
    next(&mut server).await;
    drop(server);
    driven.lost.recv().await.unwrap();
    let error = response.await.unwrap_err();
    assert_eq!(status_of(&error).code(), tonic::Code::Unavailable);
    assert!(!status::is_never_processed(&error), "the peer may have run it (CH6.14)");
    driven.task.await.unwrap();
}

#[tokio::test]
async fn ch6_13_ch15_4_a_refused_stream_was_never_processed() {
    let (driven, mut server) = pair().await;
    for (reason, is_never_processed) in
        [(Reason::REFUSED_STREAM, true), (Reason::CANCEL, false), (Reason::INTERNAL_ERROR, false)]
    {
        let response = driven.request();
        next(&mut server).await.send_reset(reason);
        let polled = tokio::select! {
            response = response => response,
            _ = server.accept() => panic!("there is no further request"),
        };
        assert_eq!(status::is_never_processed(&polled.unwrap_err()), is_never_processed, "{reason:?}");
    }
}

#[tokio::test]
async fn ch2_26_streams_without_a_status_end_by_the_code_of_their_reset() {
    use tonic::Code;
    let (driven, mut server) = pair().await;
    for (reason, code) in [
        (Reason::NO_ERROR, Code::Internal),
        (Reason::PROTOCOL_ERROR, Code::Internal),
        (Reason::INTERNAL_ERROR, Code::Internal),
        (Reason::FLOW_CONTROL_ERROR, Code::Internal),
        (Reason::SETTINGS_TIMEOUT, Code::Internal),
        (Reason::FRAME_SIZE_ERROR, Code::Internal),
        (Reason::COMPRESSION_ERROR, Code::Internal),
        (Reason::CONNECT_ERROR, Code::Internal),
        (Reason::REFUSED_STREAM, Code::Unavailable),
        (Reason::CANCEL, Code::Cancelled),
        (Reason::ENHANCE_YOUR_CALM, Code::ResourceExhausted),
        (Reason::INADEQUATE_SECURITY, Code::PermissionDenied),
    ] {
        let response = driven.request();
        next(&mut server).await.send_reset(reason);
        let polled = tokio::select! {
            response = response => response,
            _ = server.accept() => panic!("there is no further request"),
        };
        let status = status_of(&polled.unwrap_err());
        assert_eq!(status.code(), code, "{reason:?}");
        assert!(status.message().starts_with("127.0.0.1:1: the stream was reset"), "{status:?}");
    }
}

#[tokio::test]
async fn ch3_9_a_drained_connection_ends_with_its_last_stream() {
    let (mut driven, mut server) = pair().await;
    let response = driven.request();
    let mut respond = next(&mut server).await;
    drop(driven.drain.take());
    drop(driven.streams);
    let server = tokio::spawn(async move { while server.accept().await.is_some() {} });
    assert!(!driven.task.is_finished());
    respond.send_response(Response::new(()), true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    driven.task.await.unwrap();
    server.await.unwrap();
    assert!(driven.lost.recv().await.is_none(), "a drain is no loss");
}

#[tokio::test]
async fn ch3_5_a_goaway_together_with_the_settings_is_named() {
    for (debug, text) in [(&b""[..], "GOAWAY NO_ERROR"), (b"too busy", "GOAWAY NO_ERROR \"too busy\"")] {
        let (listener, address) = listen().await;
        let mut connecting = tokio::spawn(connect(address));
        let mut peer = listener.accept().await.unwrap().0;
        let length = 8 + u8::try_from(debug.len()).unwrap();
        let frames = [&[0, 0, 0, 4, 0, 0, 0, 0, 0][..], &[0, 0, length, 7, 0, 0, 0, 0, 0], &[0; 8], debug];
        peer.write_all(&frames.concat()).await.unwrap();
        let Err(error) = (&mut connecting).await.unwrap() else { panic!("it is connected") };
        let expected =
            format!("{address}: HTTP/2: the server closed the connection at its beginning with {text}");
        assert_eq!(*error, expected);
    }
}

/// Lets the runtime look for bytes, which it does once in 61 turns, before the paused clock goes on.
async fn turns() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A connection with pings to a peer that speaks frames.
async fn pinging(without_calls: bool) -> (Driven, Raw) {
    let keep_alive =
        KeepAlive { interval: Some(Duration::from_secs(10)), without_calls, ..KeepAlive::default() };
    let settings = ConnectionSettings { keep_alive, ..ConnectionSettings::default() };
    raw_pair(settings).await
}

async fn raw_pair(settings: ConnectionSettings) -> (Driven, Raw) {
    let listener = RawListener::bind().await;
    let connect = async {
        let connected = Connection::connect(&listener.address.into(), BOUND, settings).await;
        Driven::new(connected.unwrap_or_else(|error| panic!("{error}")))
    };
    tokio::join!(connect, listener.accept())
}

#[tokio::test(start_paused = true)]
async fn ch3_6_a_peer_that_answers_pings_keeps_its_connection_and_is_lost_when_it_does_not() {
    let (mut driven, mut peer) = pinging(false).await;
    let (response, _stream) = reserved(&driven.streams);
    for _ in 0..3 {
        let ping = peer.frame_of(PING).await;
        assert_eq!(ping.flags, 0);
        peer.write(PING, ACK, 0, &ping.payload).await;
        turns().await;
    }
    peer.frame_of(PING).await;
    assert_eq!(driven.lost.recv().await, Some(Loss::Other(Disconnect::TimedOut)));
    let error = response.await.unwrap_err();
    let reason = driven.streams.reason().unwrap();
    assert_eq!(reason, "no answer to a keepalive ping within 20s");
    let status = status::of_error(&error, (Ipv4Addr::LOCALHOST, 1).into(), Some(reason), None);
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert_eq!(status.message(), format!("127.0.0.1:1: the connection was closed: {reason}"));
    assert!(!status::is_never_processed(&error));
    driven.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ch3_6_any_bytes_of_the_peer_are_an_answer() {
    let (driven, mut peer) = pinging(false).await;
    let (_response, _stream) = reserved(&driven.streams);
    for _ in 0..3 {
        let ping = peer.frame_of(PING).await;
        tokio::time::advance(Duration::from_secs(15)).await;
        // That of a window, which does not answer the ping.
        peer.write(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).await;
        turns().await;
        assert!(!driven.task.is_finished());
        tokio::time::advance(Duration::from_secs(8)).await;
        peer.write(PING, ACK, 0, &ping.payload).await;
        turns().await;
    }
    assert!(!driven.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn ch3_6_without_calls_pings_are_sent_only_if_that_is_set() {
    let (driven, mut peer) = pinging(false).await;
    tokio::time::advance(Duration::from_secs(3_600)).await;
    turns().await;
    assert!(peer.is_quiet());
    let (_response, _stream) = reserved(&driven.streams);
    peer.frame_of(PING).await;
    let (_driven, mut peer) = pinging(true).await;
    peer.frame_of(PING).await;
}

#[tokio::test(start_paused = true)]
async fn ch11_11_a_connection_without_calls_is_not_woken() {
    let (with_pings, mut peer) = pinging(false).await;
    let (without, mut server) = pair().await;
    tokio::spawn(async move { while server.accept().await.is_some() {} });
    // The pings end when their interval is over.
    tokio::time::advance(Duration::from_secs(60)).await;
    turns().await;
    let polls = || (with_pings.polls(), without.polls());
    let before = polls();
    for _ in 0..24 {
        tokio::time::advance(Duration::from_secs(3_600)).await;
        turns().await;
    }
    assert_eq!(polls(), before);
    assert!(peer.is_quiet() && !with_pings.task.is_finished() && !without.task.is_finished());
}

#[tokio::test]
async fn ch3_6_sockets_send_at_once_and_have_the_timeout_of_the_pings() {
    let (listener, address) = listen().await;
    let timeout = Duration::from_secs(20);
    let (socket, _) = Socket::connect(&address.into(), Some(timeout)).await.unwrap();
    listener.accept().await.unwrap();
    assert!(socket.tcp().nodelay().unwrap());
    #[cfg(target_os = "linux")]
    assert_eq!(socket2::SockRef::from(socket.tcp()).tcp_user_timeout().unwrap(), Some(timeout));
}

#[tokio::test]
async fn ch3_5_a_peer_that_reports_too_many_pings_is_told_apart() {
    for (code, debug, loss) in [
        (11, &b"too_many_pings"[..], Loss::TooManyPings),
        (11, b"calm", Loss::Other(Disconnect::GoAway(11))),
        (2, b"too_many_pings", Loss::Other(Disconnect::GoAway(2))),
    ] {
        let (mut driven, mut peer) = raw_pair(ConnectionSettings::default()).await;
        let payload = [&[0, 0, 0, 0, 0, 0, 0, code], debug].concat();
        peer.write(GOAWAY, 0, 0, &payload).await;
        assert_eq!(driven.lost.recv().await, Some(loss), "{code} {debug:?}");
    }
}

#[tokio::test]
async fn ch9_18_the_first_reason_of_a_loss_is_the_one_that_is_seen() {
    let (mut driven, mut peer) = raw_pair(ConnectionSettings::default()).await;
    peer.write(GOAWAY, 0, 0, &[0; 8]).await;
    assert_eq!(driven.lost.recv().await, Some(Loss::Other(Disconnect::GoAway(0))));
    drop(peer);
    assert_eq!(driven.lost.recv().await, None, "the end of the socket is no other loss");
    let (mut driven, peer) = raw_pair(ConnectionSettings::default()).await;
    drop(peer);
    assert_eq!(driven.lost.recv().await, Some(Loss::Other(Disconnect::Socket)), "the end without GOAWAY");
    assert_eq!(Loss::TooManyPings.reason().name(), "GOAWAY ENHANCE_YOUR_CALM");
}

#[test]
fn ch3_5_too_many_pings_double_the_interval_of_the_address() {
    let settings = KeepAlive { interval: Some(Duration::from_secs(10)), ..KeepAlive::default() };
    let (one, other) = ((Ipv4Addr::LOCALHOST, 1).into(), (Ipv4Addr::LOCALHOST, 2).into());
    let mut longer = LongerIntervals::default();
    let none = |_: &SocketAddr| false;
    assert_eq!(longer.double(one, settings, none), Some(Duration::from_secs(20)));
    assert_eq!(longer.double(one, settings, none), Some(Duration::from_secs(40)));
    assert_eq!(longer.apply(one, settings).interval, Some(Duration::from_secs(40)));
    assert_eq!(longer.apply(other, settings), settings);
    assert_eq!(longer.double(other, KeepAlive::default(), none), None, "no pings were sent");
}

#[test]
fn ch3_5_ch11_12_intervals_of_departed_addresses_are_bounded() {
    let settings = KeepAlive { interval: Some(Duration::from_secs(10)), ..KeepAlive::default() };
    let address = |number: u32| SocketAddr::from((Ipv4Addr::from(number), 80));
    let mut longer = LongerIntervals::default();
    let is_used = |at: &SocketAddr| *at == address(0);
    for number in 0..10_000 {
        longer.double(address(number), settings, is_used);
        assert!(longer.len() <= keep_alive::MAX_UNUSED_INTERVALS, "{}", longer.len());
    }
    let doubled = Some(Duration::from_secs(20));
    assert_eq!(longer.apply(address(0), settings).interval, doubled, "its connection is there");
    assert_eq!(longer.apply(address(9_999), settings).interval, doubled, "the newest one");
}

#[tokio::test]
async fn ch1_32_a_connection_whose_driver_is_dropped_is_lost() {
    let (mut driven, _server) = pair().await;
    while driven.polls() == 0 {
        tokio::task::yield_now().await;
    }
    driven.task.abort();
    let lost = driven.lost.recv().await;
    assert!(matches!(lost, Some(Loss::Other(Disconnect::Unknown))), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn ch3_9_a_drained_connection_is_closed_after_the_limit() {
    let settings = ConnectionSettings { drain_limit: Some(Duration::from_secs(5)), ..Default::default() };
    let (mut driven, _peer) = raw_pair(settings).await;
    let (response, _stream) = reserved(&driven.streams);
    drop(driven.drain.take());
    let error = response.await.unwrap_err();
    let status = status::of_error(&error, (Ipv4Addr::LOCALHOST, 1).into(), driven.streams.reason(), None);
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(status.message().ends_with("its drain limit of 5s is over"), "{status:?}");
    driven.task.await.unwrap();
    assert!(driven.lost.recv().await.is_none(), "a drain is no loss");
}

#[tokio::test(start_paused = true)]
async fn ch3_9_the_limit_is_not_for_connections_that_the_peer_drains() {
    let settings = ConnectionSettings { drain_limit: Some(Duration::from_secs(5)), ..Default::default() };
    let (mut driven, mut server) = pair_with(settings, &server::Builder::new()).await;
    let response = driven.request();
    let mut respond = next(&mut server).await;
    server.graceful_shutdown();
    let server = tokio::spawn(async move { while server.accept().await.is_some() {} });
    driven.lost.recv().await.unwrap();
    // The channel lets go of what is lost.
    drop(driven.drain.take());
    tokio::time::advance(Duration::from_secs(3_600)).await;
    respond.send_response(Response::new(()), true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    drop(driven.streams);
    driven.task.await.unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn ch4_13_a_changed_limit_of_the_peer_is_seen_when_it_arrives() {
    let (driven, mut peer) = raw_pair(ConnectionSettings::default()).await;
    for limit in [7_u32, 0, 3] {
        let payload = [&[0, 3][..], &limit.to_be_bytes()].concat();
        peer.write(SETTINGS, 0, 0, &payload).await;
        peer.frame_of(SETTINGS).await;
        let seen = driven.streams.limit();
        assert_eq!(seen, u64::from(limit));
    }
}
