//! A server whose methods end calls in all ways that the protocol permits, and in some that it does not.

use std::{
    convert::Infallible,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::{sync::Notify, task::JoinHandle};
use tonic::{
    Status,
    body::Body,
    codegen::{
        BoxFuture, Service,
        http::{HeaderMap, Request, Response},
    },
    server::NamedService,
    transport::{Server, server::TcpIncoming},
};

use crate::common::soon;

/// Sends back each message.
pub(super) const ECHO: &str = "/test.Calls/Echo";
/// Responds with all messages as one.
pub(super) const COLLECT: &str = "/test.Calls/Collect";
/// Responds with the first message five times.
pub(super) const REPEAT: &str = "/test.Calls/Repeat";
/// Sends one message, and fails.
pub(super) const FAIL_LATE: &str = "/test.Calls/FailLate";
/// Fails with trailers alone.
pub(super) const FAIL_AT_ONCE: &str = "/test.Calls/FailAtOnce";
/// Fails with UNAVAILABLE before the third attempt, which is answered as by [`COLLECT`].
pub(super) const FLAKY: &str = "/test.Calls/Flaky";
/// Never responds.
pub(super) const HOLD: &str = "/test.Calls/Hold";
/// Sends headers, and then nothing.
pub(super) const HOLD_OPEN: &str = "/test.Calls/HoldOpen";
/// Reads the request when it is released, and responds with its size.
pub(super) const UNREAD: &str = "/test.Calls/Unread";
/// Sends messages of 16 KiB without an end.
pub(super) const FLOOD: &str = "/test.Calls/Flood";
/// Ends after the first message, and reads no other.
pub(super) const END_EARLY: &str = "/test.Calls/EndEarly";
/// Sends a message with the flag of compression.
pub(super) const COMPRESSED: &str = "/test.Calls/Compressed";
/// Ends within a message.
pub(super) const CUT: &str = "/test.Calls/Cut";
/// Ends with metadata that are malformed, beside well-formed ones.
pub(super) const BAD_METADATA: &str = "/test.Calls/BadMetadata";

/// A running server.
pub(super) struct TestServer {
    pub(super) address: String,
    state: Arc<State>,
    serving: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The calls that have begun.
    calls: AtomicUsize,
    /// The calls that have not ended.
    running: AtomicUsize,
    ended: Notify,
    release: Notify,
}

impl TestServer {
    pub(super) fn start() -> Self {
        let incoming = TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = incoming.local_addr().unwrap().to_string();
        let state = Arc::<State>::default();
        // The window of a connection is that of many streams, so that one that is not read does not hold the others up.
        let server = Server::builder().initial_stream_window_size(64 << 10);
        let mut server = server.initial_connection_window_size(16 << 20);
        let router = server.add_service(Calls { state: state.clone() });
        let serving = tokio::spawn(async move { router.serve_with_incoming(incoming).await.unwrap() });
        Self { address, state, serving }
    }

    /// The calls that have begun.
    pub(super) fn calls(&self) -> usize {
        self.state.calls.load(Ordering::Relaxed)
    }

    /// Waits until this many calls are running.
    pub(super) async fn runs(&self, calls: usize) {
        soon(async {
            loop {
                let changed = self.state.ended.notified();
                if self.state.running.load(Ordering::Relaxed) == calls {
                    return;
                }
                changed.await;
            }
        })
        .await;
    }

    /// Has the calls of [`UNREAD`] go on.
    pub(super) fn release(&self) {
        self.state.release.notify_waiters();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[derive(Debug, Clone)]
struct Calls {
    state: Arc<State>,
}

/// A call that is counted.
struct Running(Arc<State>);

impl Running {
    fn new(state: &Arc<State>) -> Self {
        state.calls.fetch_add(1, Ordering::Relaxed);
        state.running.fetch_add(1, Ordering::Relaxed);
        state.ended.notify_waiters();
        Self(state.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.notify_waiters();
    }
}

impl NamedService for Calls {
    const NAME: &'static str = "test.Calls";
}

impl Service<Request<Body>> for Calls {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let running = Running::new(&self.state);
        Box::pin(async move { Ok(respond(request, running).await) })
    }
}

/// The response of each method.
async fn respond(request: Request<Body>, running: Running) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let attempt = parts.headers.get("grpc-previous-rpc-attempts").cloned();
    let tags = parts.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-"));
    let tags: HeaderMap = tags.map(|(name, value)| (name.clone(), value.clone())).collect();
    let mut response = match parts.uri.path() {
        ECHO => body_of(echo(body), running),
        COLLECT => collected(body, running).await,
        FLAKY if attempt.is_some_and(|attempt| attempt == "2") => collected(body, running).await,
        FLAKY => Status::unavailable("this is not the third attempt").into_http(),
        REPEAT => {
            let first = Frame::data(body.collect().await.unwrap().to_bytes());
            body_of(stream::iter([(); 5]).map(move |()| clone(&first)).chain(end("0")), running)
        }
        FAIL_LATE => body_of(stream::iter([message(b"one")]).chain(end("9")), running),
        FAIL_AT_ONCE => {
            let mut response = Response::new(Body::empty());
            response.headers_mut().extend(trailers("8"));
            response
        }
        HOLD => {
            let _held = (running, body);
            std::future::pending().await
        }
        HOLD_OPEN => body_of(stream::pending(), (running, body)),
        UNREAD => body_of(counted(body, running.0.clone()), running),
        FLOOD => body_of(stream::repeat(()).map(|()| message(&[7; 16 << 10])), running),
        END_EARLY => {
            let mut body = body;
            body.frame().await.unwrap().unwrap();
            body_of(end("0"), running)
        }
        COMPRESSED => body_of(stream::iter([Frame::data(Bytes::from_static(&[1, 0, 0, 0, 1, 9]))]), running),
        CUT => {
            let cut = Frame::data(Bytes::from_static(&[0, 0, 0, 0, 9, 1]));
            body_of(stream::iter([cut]).chain(end("0")), running)
        }
        BAD_METADATA => {
            let mut trailers = trailers("5");
            trailers.append("x-bad-bin", "?!".parse().unwrap());
            body_of(stream::iter([Frame::trailers(trailers)]), running)
        }
        path => Status::unimplemented(path).into_http(),
    };
    response.headers_mut().extend(tags);
    response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    response
}

/// A response with these frames, which holds something as long as it lives.
fn body_of<T: Send + 'static>(
    frames: impl Stream<Item = Frame<Bytes>> + Send + 'static,
    held: T,
) -> Response<Body> {
    let frames = frames.map(move |frame| {
        let _ = &held;
        Ok::<_, Status>(frame)
    });
    Response::new(Body::new(StreamBody::new(frames)))
}

/// The data of a request, and trailers.
fn echo(body: Body) -> impl Stream<Item = Frame<Bytes>> + Send {
    let data = stream::unfold(body, async |mut body| {
        let data = body.frame().await?.ok()?.into_data().ok()?;
        Some((Frame::data(data), body))
    });
    data.chain(end("0"))
}

/// The messages of a request as one.
async fn collected(body: Body, running: Running) -> Response<Body> {
    let mut data = body.collect().await.unwrap().to_bytes();
    let mut all = BytesMut::new();
    while data.has_remaining() {
        data.advance(1);
        let length = data.get_u32() as usize;
        all.put(data.split_to(length));
    }
    body_of(stream::iter([message(&all)]).chain(end("0")), running)
}

/// The size of a request that is not read until the server is released.
fn counted(body: Body, state: Arc<State>) -> impl Stream<Item = Frame<Bytes>> + Send {
    let size = async move {
        state.release.notified().await;
        let size = body.collect().await.map_or(0, |body| body.to_bytes().len());
        message(size.to_string().as_bytes())
    };
    stream::once(size).chain(end("0"))
}

fn message(data: &[u8]) -> Frame<Bytes> {
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(data.len() as u32);
    message.put(data);
    Frame::data(message.freeze())
}

/// Data as another frame.
fn clone(frame: &Frame<Bytes>) -> Frame<Bytes> {
    Frame::data(frame.data_ref().unwrap().clone())
}

fn end(code: &'static str) -> impl Stream<Item = Frame<Bytes>> + Send {
    stream::iter([Frame::trailers(trailers(code))])
}

/// A status with details, and metadata of both kinds.
fn trailers(code: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    for (name, value) in [
        ("grpc-status", code),
        ("x-trailer", "one"),
        ("x-trailer", "two"),
        ("x-trailer-bin", "AP8"),
        ("x-trailer-bin", "AQ=="),
    ] {
        trailers.append(name, value.parse().unwrap());
    }
    if code != "0" {
        trailers.insert("grpc-message", "it fails: %C3%A4".parse().unwrap());
        trailers.insert("grpc-status-details-bin", "CAkSAWE".parse().unwrap());
    }
    trailers
}
