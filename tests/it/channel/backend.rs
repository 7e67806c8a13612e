//! Servers for the channel's calls, with the behaviors that real ones have.

use std::{
    convert::Infallible,
    hash::{DefaultHasher, Hash, Hasher},
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, future::join_all, stream::BoxStream};
use http_body_util::{BodyExt, Full};
use prost::Message;
use tokio::{
    runtime::{Builder, Runtime},
    sync::{Notify, oneshot},
    task::JoinHandle,
};
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    codegen::{
        BoxFuture, Service,
        http::{self, HeaderName, HeaderValue},
    },
    server::{Grpc, NamedService, StreamingService, UnaryService},
    transport::{
        Server, ServerTlsConfig,
        server::{TcpConnectInfo, TcpIncoming, TlsConnectInfo},
    },
};
use xdskit::{
    orca::{CallMetricsLayer, Metric, OpenRcaService, ServerMetrics},
    pb::xds::service::orca::v3::OrcaLoadReportRequest,
};

use crate::common::raw::Raw;

/// Answers with its message, and its name in the header `x-backend`.
pub(crate) const ECHO: &str = "/test.Echo/Echo";
/// Answers with an empty message.
pub(crate) const EMPTY: &str = "/test.Echo/Empty";
/// As [`ECHO`], after [`Backend::release`].
pub(crate) const HOLD: &str = "/test.Echo/Hold";
/// Sends back each message of a stream.
pub(crate) const CHAT: &str = "/test.Echo/Chat";
/// Fails with the message as reason.
pub(crate) const FAIL: &str = "/test.Echo/Fail";
/// As [`ECHO`] for the fifth attempt of a call; earlier ones and later ones fail with UNAVAILABLE.
pub(crate) const FIFTH: &str = "/test.Echo/Fifth";

/// A server in a runtime of its own, so that it can crash.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    tls: Option<ServerTlsConfig>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
    runtime: Option<Runtime>,
}

#[derive(Debug, Default)]
struct State {
    name: String,
    connections: AtomicUsize,
    calls: AtomicUsize,
    running: AtomicUsize,
    began: Notify,
    release: Notify,
    /// The load that is reported, with responses and beside them.
    metrics: ServerMetrics,
    /// The streams of reports beside the calls.
    load_streams: AtomicUsize,
    /// All calls fail.
    is_sick: AtomicBool,
    /// They are not served.
    has_no_load_streams: AtomicBool,
}

impl Backend {
    pub(crate) async fn start(name: &str) -> Self {
        Self::start_at(name, (Ipv4Addr::LOCALHOST, 0).into()).await
    }

    /// Starts at an address, as a restarted process does.
    pub(crate) async fn start_at(name: &str, address: SocketAddr) -> Self {
        Self::start_with(name, address, (MAX_STREAMS, None)).await
    }

    /// Starts one that permits so many streams on each connection.
    pub(crate) async fn start_permitting(name: &str, streams: u32) -> Self {
        Self::start_with(name, (Ipv4Addr::LOCALHOST, 0).into(), (streams, None)).await
    }

    /// Starts one with TLS.
    pub(crate) async fn start_secured(name: &str, tls: ServerTlsConfig) -> Self {
        Self::start_with(name, (Ipv4Addr::LOCALHOST, 0).into(), (MAX_STREAMS, Some(tls))).await
    }

    async fn start_with(
        name: &str,
        address: SocketAddr,
        (max_streams, tls): (u32, Option<ServerTlsConfig>),
    ) -> Self {
        let state = Arc::new(State { name: name.to_owned(), ..State::default() });
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let service = Echo { state: state.clone() };
        let reports = OpenRcaService::new(state.metrics.clone()).with_min_interval(Duration::from_millis(1));
        let reports = Reports { state: state.clone(), reports };
        let (bound, address_of) = oneshot::channel();
        let (accepted, served) = (state.clone(), tls.clone());
        let serving = runtime.spawn(async move {
            let incoming = TcpIncoming::bind(address).unwrap();
            bound.send(incoming.local_addr().unwrap()).unwrap();
            let incoming = incoming.inspect(|_| {
                accepted.connections.fetch_add(1, Ordering::Relaxed);
            });
            let mut server = Server::builder();
            if let Some(tls) = served {
                server = server.tls_config(tls).unwrap();
            }
            let router = server
                .max_concurrent_streams(max_streams)
                .layer(CallMetricsLayer::new(accepted.metrics.clone()))
                .add_service(service)
                .add_service(reports);
            let stopped = async {
                let _ = stopped.await;
            };
            router.serve_with_incoming_shutdown(incoming, stopped).await.unwrap();
        });
        let address = address_of.await.unwrap();
        Self { address, state, tls, stop: Some(stop), serving, runtime: Some(runtime) }
    }

    /// Starts one for each name.
    pub(crate) async fn start_all<const N: usize>(names: [&str; N]) -> [Self; N] {
        join_all(names.map(Self::start)).await.try_into().ok().expect("there is one for each")
    }

    pub(crate) fn text(&self) -> String {
        self.address.to_string()
    }

    /// The connections that it has accepted.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// The calls that have begun.
    pub(crate) fn calls(&self) -> usize {
        self.state.calls.load(Ordering::Relaxed)
    }

    /// Reports this rate with half of its utilization from now on.
    pub(crate) fn report_rate(&self, rate: f64) {
        self.state.metrics.set(Metric::CpuUtilization, 0.5).unwrap();
        self.state.metrics.set(Metric::RequestsPerSecond, rate).unwrap();
    }

    /// The streams of load reports that were opened.
    pub(crate) fn load_streams(&self) -> usize {
        self.state.load_streams.load(Ordering::Relaxed)
    }

    /// Streams of load reports are not implemented any more.
    pub(crate) fn refuse_load_streams(&self) {
        self.state.has_no_load_streams.store(true, Ordering::Relaxed);
    }

    /// Whether all calls fail with INTERNAL from now on.
    pub(crate) fn set_sick(&self, is_sick: bool) {
        self.state.is_sick.store(is_sick, Ordering::Relaxed);
    }

    /// The calls that are held.
    pub(crate) fn running(&self) -> usize {
        self.state.running.load(Ordering::Relaxed)
    }

    /// Waits until this many calls are held.
    pub(crate) async fn holds(&self, calls: usize) {
        loop {
            let began = self.state.began.notified();
            if self.running() == calls {
                return;
            }
            crate::common::soon(began).await;
        }
    }

    /// Answers the calls that are held.
    pub(crate) fn release(&self) {
        self.state.release.notify_waiters();
    }

    /// Sends GOAWAY, and ends when the calls have.
    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Stops as before, and starts at the same address when all has ended.
    pub(crate) async fn restart_gracefully(mut self) -> Self {
        self.stop();
        crate::common::soon(&mut self.serving).await.unwrap();
        Self::start_with(&self.state.name, self.address, (MAX_STREAMS, self.tls.clone())).await
    }

    /// Ends at once: the connections are reset.
    pub(crate) fn crash(mut self) -> SocketAddr {
        self.runtime.take().unwrap().shutdown_background();
        self.address
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[derive(Debug, Clone)]
struct Echo {
    state: Arc<State>,
}

/// A call that is counted.
struct Running(Arc<State>);

impl Running {
    fn new(state: &Arc<State>) -> Self {
        state.calls.fetch_add(1, Ordering::Relaxed);
        state.running.fetch_add(1, Ordering::Relaxed);
        state.began.notify_waiters();
        Self(state.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
        self.0.began.notify_waiters();
    }
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Self { state } = self.clone();
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            let tag = request.headers().get("x-tag").cloned();
            let agent = request.headers().get("user-agent").cloned();
            let authority = request.uri().authority().map_or_else(String::new, ToString::to_string);
            let client = client_certificate(&request);
            let mut response = match path.as_str() {
                CHAT => Grpc::new(Raw).streaming(Chat { state: state.clone() }, request).await,
                ECHO | EMPTY | HOLD | FAIL | FIFTH => {
                    Grpc::new(Raw).unary(Unary { state: state.clone(), path }, request).await
                }
                _ => Status::unimplemented(path).into_http(),
            };
            response.headers_mut().insert("x-backend", state.name.parse().unwrap());
            response.headers_mut().insert("x-authority", authority.parse().unwrap());
            response.headers_mut().extend(client.map(|it| (HeaderName::from_static("x-client"), it)));
            response
                .headers_mut()
                .extend(agent.map(|agent| (HeaderName::from_static("x-user-agent"), agent)));
            response.headers_mut().extend(tag.map(|tag| (HeaderName::from_static("x-tag"), tag)));
            Ok(response)
        })
    }
}

/// What tells the certificates of clients apart.
fn client_certificate(request: &http::Request<Body>) -> Option<HeaderValue> {
    let info = request.extensions().get::<TlsConnectInfo<TcpConnectInfo>>()?;
    let mut hasher = DefaultHasher::new();
    info.peer_certs()?.first()?.as_ref().hash(&mut hasher);
    Some(hasher.finish().into())
}

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

/// The service of load reports beside the calls.
#[derive(Debug, Clone)]
struct Reports {
    state: Arc<State>,
    reports: OpenRcaService,
}

impl NamedService for Reports {
    const NAME: &'static str = OpenRcaService::NAME;
}

impl Service<http::Request<Body>> for Reports {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut service = self.clone();
        Box::pin(async move {
            service.state.load_streams.fetch_add(1, Ordering::Relaxed);
            if service.state.has_no_load_streams.load(Ordering::Relaxed) {
                return Ok(Status::unimplemented("no load reports").into_http());
            }
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let message = OrcaLoadReportRequest::decode(&body[PREFIX..]).unwrap();
            assert_eq!(message.report_interval.unwrap().seconds, 7);
            service.reports.call(http::Request::from_parts(parts, Body::new(Full::new(body)))).await
        })
    }
}

struct Unary {
    state: Arc<State>,
    path: String,
}

impl UnaryService<Bytes> for Unary {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (state, path) = (self.state.clone(), self.path.clone());
        Box::pin(async move {
            let released = state.release.notified();
            let _running = Running::new(&state);
            if state.is_sick.load(Ordering::Relaxed) {
                return Err(Status::internal("the backend is sick"));
            }
            match path.as_str() {
                HOLD => released.await,
                EMPTY => return Ok(Response::new(Bytes::new())),
                FAIL => {
                    return Err(Status::data_loss(String::from_utf8_lossy(request.get_ref()).into_owned()));
                }
                FIFTH if previous_attempts(&request) != Some("4") => {
                    return Err(Status::unavailable("this is not the fifth attempt"));
                }
                _ => {}
            }
            Ok(Response::new(request.into_inner()))
        })
    }
}

fn previous_attempts(request: &Request<Bytes>) -> Option<&str> {
    request.metadata().get("grpc-previous-rpc-attempts")?.to_str().ok()
}

struct Chat {
    state: Arc<State>,
}

impl StreamingService<Bytes> for Chat {
    type Response = Bytes;
    type ResponseStream = BoxStream<'static, Result<Bytes, Status>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let running = Running::new(&self.state);
        Box::pin(async move {
            let messages = counted(request.into_inner(), running);
            Ok(Response::new(messages.boxed()))
        })
    }
}

/// A stream that counts as long as it lives.
fn counted<T>(stream: impl Stream<Item = T>, running: Running) -> impl Stream<Item = T> {
    stream.map(move |it| {
        let _ = &running;
        it
    })
}

/// More streams than any test has on a connection.
const MAX_STREAMS: u32 = 10_000;
/// The compression and the length in front of a message.
const PREFIX: usize = 5;
