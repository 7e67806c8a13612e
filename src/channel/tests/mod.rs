//! Calls of a channel to scripted servers, by the configuration of an embedded control plane.

mod delays;
mod faults;
mod filters;
mod gcp_authn;
mod header_lists;
mod held_responses;
mod idle;
mod initial;
mod load_reports;
mod lookups;
mod malformed;
mod messages;
mod outliers;
mod peer;
mod plain_http;
mod queue;
pub(super) mod raw;
mod reconnecting;
mod repeats;
mod retries;
mod scaling;
pub(super) mod secure;
mod security;
mod session;
mod sharing;
mod spans;
mod streams;
mod task_end;
mod telemetry;
mod timeouts;
mod unsent;

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use tokio::{sync::mpsc, task::JoinHandle};
use tonic::{Code, Status};
use tower_service::Service;

use self::peer::{End, Peer};
use super::{Channel, ChannelBody, ChannelBuilder, task};
use crate::{
    Bootstrap, Client,
    testing::{
        TestControlPlane,
        resources::{EndpointsBuilder, cluster, endpoints, listener, route, route_config},
    },
};

/// A channel whose calls go to some peers, by the cluster that the test names for its own.
struct Mesh {
    server: TestControlPlane,
    client: Client,
    channel: Channel,
}

impl Mesh {
    async fn start(name: &str, peers: &[&Peer]) -> Self {
        Self::with(name, peers, |builder| builder).await
    }

    async fn with(
        name: &str,
        peers: &[&Peer],
        settings: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
    ) -> Self {
        let addresses: Vec<_> = peers.iter().map(|it| it.address).collect();
        Self::at(name, &addresses, settings).await
    }

    async fn at(
        name: &str,
        addresses: &[SocketAddr],
        settings: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
    ) -> Self {
        let server = TestControlPlane::start().await;
        server.set(listener("shop").rds("routes"));
        server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster(name)]));
        server.set(cluster(name));
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        server.set(endpoints(name).locality("eu", "a", addresses.iter().map(String::as_str)));
        let client =
            Client::builder(Bootstrap::from_json(&server.bootstrap_json()).unwrap()).build().unwrap();
        let builder = client.channel("xds:///shop");
        let builder = builder.connect_backoff(Duration::from_millis(20), Duration::from_millis(100));
        let channel = settings(builder).build().unwrap();
        Self { server, client, channel }
    }

    /// A call without a body.
    fn get(&self, path: &str) -> JoinHandle<Result<(), Status>> {
        self.call(path, Given::default())
    }

    /// Makes a call in a task of its own, which returns its status.
    fn call(&self, path: &str, body: Given) -> JoinHandle<Result<(), Status>> {
        tokio::spawn(finish(self.begin(path, body)))
    }

    /// A call that runs when it is polled.
    fn begin(&self, path: &str, body: Given) -> impl Future<Output = Response<ChannelBody>> + use<> {
        let request = Request::post(path).body(body).unwrap();
        let mut channel = self.channel.clone();
        async move { channel.call(request).await.unwrap_or_else(|error| match error {}) }
    }

    /// The calls that the circuit breaker of a cluster counts.
    fn running(&self, cluster: &str) -> u32 {
        task::breakers().running(cluster)
    }

    /// Waits until as many calls wait.
    async fn waits(&self, calls: usize) {
        until("calls wait", || self.channel.shared.calls.published.waiting() == calls).await;
    }

    /// Waits until as many calls wait for a picker.
    async fn picks(&self, calls: usize) {
        until("calls pick", || self.channel.shared.calls.published.waiting_for_pickers() == calls).await;
    }

    /// The endpoints of the first cluster that have a connection.
    fn ready_endpoints(&self) -> usize {
        self.channel.shared.calls.published.load().ready_endpoints(0)
    }

    /// The bytes of requests that are kept.
    fn buffered(&self) -> usize {
        self.channel.shared.calls.buffer.used()
    }

    fn with_timeout(&self, path: &str, timeout: &'static str) -> JoinHandle<Result<(), Status>> {
        let request = Request::post(path).header("grpc-timeout", timeout).body(Given::default()).unwrap();
        let mut channel = self.channel.clone();
        tokio::spawn(finish(
            async move { channel.call(request).await.unwrap_or_else(|error| match error {}) },
        ))
    }
}

fn assignment(name: &str, peers: &[&Peer]) -> EndpointsBuilder {
    let addresses: Vec<_> = peers.iter().map(|it| it.address.to_string()).collect();
    endpoints(name).locality("eu", "a", addresses.iter().map(String::as_str))
}

/// The status of a call, as tonic's clients read it.
async fn finish(call: impl Future<Output = Response<ChannelBody>>) -> Result<(), Status> {
    let response = call.await;
    if let Some(status) = Status::from_header_map(response.headers()).filter(|it| it.code() != Code::Ok) {
        return Err(status);
    }
    let mut body = response.into_body();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(trailers) = frame?.into_trailers()
            && let Some(status) = Status::from_header_map(&trailers).filter(|it| it.code() != Code::Ok)
        {
            return Err(status);
        }
    }
    Ok(())
}

/// A body of given parts, and those that are sent while the call runs.
#[derive(Default)]
struct Given {
    parts: std::collections::VecDeque<Bytes>,
    live: Option<mpsc::UnboundedReceiver<Bytes>>,
}

impl Given {
    fn of(parts: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self { parts: parts.into_iter().map(Bytes::from).collect(), live: None }
    }

    fn live() -> (mpsc::UnboundedSender<Bytes>, Self) {
        let (send, live) = mpsc::unbounded_channel();
        (send, Self { parts: [].into(), live: Some(live) })
    }
}

impl Body for Given {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(part) = self.parts.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        match &mut self.live {
            Some(live) => live.poll_recv(cx).map(|it| it.map(|data| Ok(Frame::data(data)))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty() && self.live.is_none()
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it takes too long")
}

/// Lets the tasks of the test's runtime run until something is true.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    soon(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let _ = what;
}
