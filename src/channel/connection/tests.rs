//! Connections to scripted peers.

use std::net::Ipv4Addr;

use h2::{Reason, server};
use http::{Request, Response};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};

use super::*;
use crate::channel::status;

const BOUND: Duration = Duration::from_secs(20);

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn accept(listener: &TcpListener) -> server::Connection<TcpStream, Bytes> {
    server::handshake(listener.accept().await.unwrap().0).await.unwrap()
}

/// A connection that is driven, and where it tells of its loss.
struct Driven {
    handle: Handle,
    drain: Option<oneshot::Sender<()>>,
    lost: mpsc::UnboundedReceiver<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Driven {
    fn new(connection: Connection) -> Self {
        let ((drain, is_drained), (tell, lost)) = (oneshot::channel(), mpsc::unbounded_channel());
        let handle = connection.handle();
        let task = tokio::spawn(connection.drive(is_drained, move || tell.send(()).unwrap_or_default()));
        Self { handle, drain: Some(drain), lost, task }
    }

    fn request(&self) -> h2::client::ResponseFuture {
        let request = Request::get("http://shop/a").body(()).unwrap();
        self.handle.send.clone().send_request(request, true).unwrap().0
    }
}

async fn pair() -> (Driven, server::Connection<TcpStream, Bytes>) {
    let (listener, address) = listen().await;
    let (connected, server) = tokio::join!(Connection::connect(address, BOUND), accept(&listener));
    (Driven::new(connected.unwrap_or_else(|error| panic!("{error}"))), server)
}

/// The request that the server has, while it is polled.
async fn next(server: &mut server::Connection<TcpStream, Bytes>) -> server::SendResponse<Bytes> {
    server.accept().await.unwrap().unwrap().1
}

#[tokio::test(start_paused = true)]
async fn ch3_4_a_listener_that_accepts_and_sends_nothing_is_a_failed_attempt() {
    let (listener, address) = listen().await;
    let silent = tokio::spawn(async move { listener.accept().await.unwrap() });
    let Err(error) = Connection::connect(address, BOUND).await else { panic!("it is connected") };
    assert_eq!(&*error, format!("{address}: no HTTP/2 connection within 20s"));
    silent.await.unwrap();
}

#[tokio::test]
async fn ch3_4_a_connection_is_ready_with_the_settings_of_the_peer() {
    let (listener, address) = listen().await;
    let mut connecting = tokio::spawn(Connection::connect(address, BOUND));
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
    let Err(error) = Connection::connect(address, BOUND).await else { panic!("it is connected") };
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
        let (connected, ()) = tokio::join!(Connection::connect(address, BOUND), peer);
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
    drop(driven.handle);
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
    let address = (Ipv4Addr::LOCALHOST, 1).into();
    assert_eq!(status::of_stream(&error, address, None).code(), tonic::Code::Unavailable);
    assert!(!status::is_never_processed(&error), "the peer may have run it (CH6.14)");
    driven.task.await.unwrap();
}

#[tokio::test]
async fn ch6_13_a_refused_stream_was_never_processed() {
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
        let status = status::of_stream(&polled.unwrap_err(), (Ipv4Addr::LOCALHOST, 1).into(), None);
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
    drop(driven.handle);
    let server = tokio::spawn(async move { while server.accept().await.is_some() {} });
    assert!(!driven.task.is_finished());
    respond.send_response(Response::new(()), true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    driven.task.await.unwrap();
    server.await.unwrap();
    assert!(driven.lost.recv().await.is_none(), "a drain is no loss");
}

#[tokio::test]
async fn ch15_5_a_flood_of_resets_leaves_the_connection_usable_or_lost() {
    let (mut driven, mut server) = pair().await;
    let served = tokio::spawn(async move {
        while let Some(Ok((_, mut respond))) = server.accept().await {
            respond.send_reset(Reason::REFUSED_STREAM);
        }
    });
    for _ in 0..2_000 {
        let request = Request::get("http://shop/a").body(()).unwrap();
        match driven.handle.send.clone().send_request(request, true) {
            Ok((response, _)) => drop(response.await.unwrap_err()),
            Err(_) => {
                driven.lost.recv().await.unwrap();
                break;
            }
        }
    }
    served.abort();
}
