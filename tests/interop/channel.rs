//! The crate's channel with gRPC servers of other implementations, by the configuration of go-control-plane.

mod availability;
mod calls;
mod neighbors;
mod security;

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use serde_json::Value;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming, client::Grpc, codegen::http::uri::PathAndQuery};
use xdskit::{
    Channel, Client,
    channel::{ChannelBuilder, ChannelState, FallbackCredentials},
    config::Bootstrap,
};

use crate::{
    backend::{Backend, Language},
    library::within,
    load::Load,
    peer::Peer,
    process::PATIENCE,
    raw::Raw,
    setup::{Setup, TestClient},
};

pub(crate) const ECHO: &str = "/interop.Backend/Echo";
const COLLECT: &str = "/interop.Backend/Collect";
const EXPAND: &str = "/interop.Backend/Expand";
const CHAT: &str = "/interop.Backend/Chat";
const HOLD: &str = "/interop.Backend/Hold";
const FAIL: &str = "/interop.Backend/Fail";

/// The number of tasks that call while a test changes something.
const TASKS: usize = 4;

/// Generates tests from functions with a [`Language`]: the test `unary_calls` with grpc-go is called `unary_calls::go`.
macro_rules! with_each_backend {
    ($($test:ident),+ $(,)?) => { $(
        mod $test {
            use crate::backend::Language;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn go() {
                super::$test(Language::Go).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn java() {
                super::$test(Language::Java).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn python() {
                super::$test(Language::Python).await;
            }
        }
    )+ };
}
pub(crate) use with_each_backend;

/// Generates tests of the same kind with grpc-js alone, which has no TLS here: that of `unary_calls` is called `node::unary_calls`.
macro_rules! with_node_backend {
    ($($test:ident),+ $(,)?) => {
        mod node {
            use crate::backend::Language;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(Language::Node).await;
                }
            )+
        }
    };
}
use with_node_backend;

/// go-control-plane's mesh, in which a channel calls the service `payments`. It has no endpoints at first.
struct Mesh {
    peer: Peer,
    _client: TestClient,
    channel: Channel,
}

impl Mesh {
    /// The control plane depends on the language, so that each kind of it is used.
    async fn start(language: Language, backends: &[&Backend]) -> Self {
        Self::of(language, "payments", backends).await
    }

    /// Calls another service, and gives its cluster of the same name these backends.
    async fn of(language: Language, service: &str, backends: &[&Backend]) -> Self {
        let peer = Self::peer(language, backends).await;
        let bootstrap = peer.bootstrap();
        Self::build(peer, &bootstrap, service, |builder| builder)
    }

    /// Calls with the credentials of the configuration: the TLS of the cluster, if it has it, and these certificate providers.
    async fn secured(
        language: Language,
        backends: &[&Backend],
        tls: Option<Value>,
        providers: Value,
    ) -> Self {
        let mut peer = Self::peer(language, backends).await;
        if let Some(tls) = tls {
            peer.command(&format!("secure payments {tls}")).await;
        }
        let mut bootstrap: Value = serde_json::from_str(&peer.bootstrap()).expect("it is JSON");
        bootstrap["certificate_providers"] = providers;
        Self::build(peer, &bootstrap.to_string(), "payments", |builder| {
            builder.xds_credentials(FallbackCredentials::Plaintext)
        })
    }

    /// The control plane, in which `payments` has these backends.
    async fn peer(language: Language, backends: &[&Backend]) -> Peer {
        let setup = match language {
            Language::Go => Setup::snapshot_sotw(),
            Language::Java => Setup::linear_delta(),
            Language::Python | Language::Node => Setup::snapshot_delta(),
        };
        let mut peer = Peer::start(setup).await;
        peer.command(&endpoints("payments", backends)).await;
        peer
    }

    fn build(
        peer: Peer,
        bootstrap: &str,
        service: &str,
        settings: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
    ) -> Self {
        let bootstrap = Bootstrap::from_json(bootstrap).expect("the bootstrap is valid");
        let client = peer.setup().client(Client::builder(bootstrap));
        let builder = client
            .channel(format!("xds:///{service}"))
            .connect_backoff(Duration::from_millis(50), Duration::from_millis(200));
        let channel = settings(builder).build().expect("a channel can be built");
        Self { peer, _client: client, channel }
    }

    /// One backend, and a mesh in which `payments` has it.
    async fn with_one(language: Language) -> (Self, Backend) {
        let backend = Backend::start(language, "one").await;
        (Self::start(language, &[&backend]).await, backend)
    }

    async fn unary(&self, method: &'static str, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        unary(&self.channel, method, request).await
    }

    /// Calls of some tasks, one after the other.
    fn load(&self) -> Load {
        let channel = self.channel.clone();
        Load::start(TASKS, move || {
            let channel = channel.clone();
            async move {
                let response = unary(&channel, ECHO, Request::new("hello".into())).await;
                response.map(|response| backend_of(&response))
            }
        })
    }

    async fn becomes(&self, expected: ChannelState) {
        let mut states = self.channel.watch_state();
        let wait = async { while states.next().await.expect("it is there") != expected {} };
        within("the state of the channel", wait).await;
    }
}

/// The command that sets the endpoints of a cluster.
fn endpoints(cluster: &str, backends: &[&Backend]) -> String {
    backends.iter().fold(format!("endpoints {cluster}"), |command, it| command + " " + &it.address())
}

fn grpc(channel: &Channel) -> Grpc<Channel> {
    Grpc::new(channel.clone()).max_decoding_message_size(64 << 20)
}

async fn unary(
    channel: &Channel,
    method: &'static str,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, Status> {
    let mut grpc = grpc(channel);
    let call = grpc.unary(request, PathAndQuery::from_static(method), Raw);
    within(method, call).await
}

/// A stream that stays open while its sender is kept.
async fn chat(channel: &Channel) -> Result<(mpsc::UnboundedSender<Bytes>, Streaming<Bytes>), Status> {
    let (send, messages) = mpsc::unbounded_channel::<Bytes>();
    let messages = stream::unfold(messages, async |mut it| Some((it.recv().await?, it)));
    let mut grpc = grpc(channel);
    let streaming = grpc.streaming(Request::new(messages), PathAndQuery::from_static(CHAT), Raw);
    let answers = within("the headers", streaming).await?;
    Ok((send, answers.into_inner()))
}

fn backend_of<T>(response: &Response<T>) -> String {
    let name = response.metadata().get("x-backend").expect("the backends have it");
    name.to_str().expect("it is text").to_owned()
}
