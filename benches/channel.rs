//! What a call costs the client: the channel beside tonic's own, to the same server, in turns, on one thread.
//!
//! ```console
//! $ cargo bench --bench channel            # --quick for a short run
//! ```

#[path = "ratio/mod.rs"]
#[allow(dead_code, reason = "every bench uses a part of it")]
mod ratio;

use std::{
    convert::Infallible,
    env,
    error::Error,
    net::{Ipv4Addr, SocketAddr},
    task::{Context, Poll},
    thread,
};

use bytes::{Buf, BufMut, Bytes};
use futures_util::{StreamExt, stream};
use tokio::runtime::{Builder, Runtime};
use tonic::{
    Request, Response, Status,
    body::Body,
    client::{Grpc, GrpcService},
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::{
        BoxFuture, Service, StdError,
        http::{self, uri::PathAndQuery},
    },
    server::{NamedService, UnaryService},
    transport::{Endpoint, Server, server::TcpIncoming},
};
use xdskit::{
    Bootstrap, Client,
    testing::{
        ControlPlane,
        resources::{cluster, endpoints, listener, route, route_config},
    },
};

/// Calls at a time.
const IN_FLIGHT: usize = 64;
const CALLS: usize = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let is_quick = env::args().any(|argument| argument == "--quick");
    let rounds = if is_quick { 5 } else { 41 };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    println!("| endpoints | message | tonic, CPU per call | channel, CPU per call | ratio |");
    println!("|---|---|---|---|---|");
    for size in [100, 64 << 10] {
        let backends = Backends::start(1);
        let (plain, channel) = runtime.block_on(clients(&backends))?;
        let mut samples = ratio::Samples::default();
        // The first round connects.
        for round in 0..=rounds {
            let of = if round == 0 { &mut ratio::Samples::default() } else { &mut samples };
            of.measure("tonic", CALLS, || calls(&runtime, &plain, size));
            of.measure("channel", CALLS, || calls(&runtime, &channel, size));
        }
        println!(
            "| 1 | {size} B | {:.2} µs | {:.2} µs | {:.2} |",
            samples.median("tonic") / 1e3,
            samples.median("channel") / 1e3,
            samples.ratio("channel", "tonic"),
        );
    }
    Ok(())
}

/// tonic's channel, and ours, to the same servers.
async fn clients(
    backends: &Backends,
) -> Result<(tonic::transport::Channel, xdskit::Channel), Box<dyn Error>> {
    let addresses: Vec<_> = backends.addresses.iter().map(ToString::to_string).collect();
    let server = ControlPlane::start().await;
    server.set(listener("shop").rds("routes"));
    server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("cart")]));
    server.set(cluster("cart"));
    server.set(endpoints("cart").locality("eu", "a", addresses.iter().map(String::as_str)));
    let client = Client::builder(Bootstrap::from_json(&server.bootstrap_json())?).build()?;
    let channel = client.channel("xds:///shop").build()?;
    let plain = Endpoint::from_shared(format!("http://{}", addresses[0]))?.connect_lazy();
    // The configuration stays when the control plane is gone.
    let mut first = Grpc::new(channel.clone());
    first.unary(Request::new(Bytes::new()), PathAndQuery::from_static(ECHO), Raw).await?;
    Ok((plain, channel))
}

fn calls<T>(runtime: &Runtime, channel: &T, size: usize)
where
    T: GrpcService<Body> + Clone,
    T::Error: Into<StdError>,
    T::ResponseBody: http_body::Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as http_body::Body>::Error: Into<StdError> + Send,
{
    let message = Bytes::from(vec![7; size]);
    let call = async |_| {
        let mut grpc = Grpc::new(channel.clone());
        grpc.ready().await.map_err(Into::into).expect("the server runs");
        let request = Request::new(message.clone());
        let response = grpc.unary(request, PathAndQuery::from_static(ECHO), Raw).await;
        assert_eq!(response.expect("the call succeeds").into_inner().len(), size);
    };
    runtime.block_on(stream::iter(0..CALLS).map(call).buffer_unordered(IN_FLIGHT).for_each(async |()| {}));
}

const ECHO: &str = "/bench.Echo/Echo";

/// Servers on a thread of their own.
struct Backends {
    addresses: Vec<SocketAddr>,
}

impl Backends {
    fn start(count: usize) -> Self {
        let (tell, told) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                for _ in 0..count {
                    let incoming = TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
                    tell.send(incoming.local_addr().expect("an address")).expect("it is awaited");
                    tokio::spawn(Server::builder().add_service(Echo).serve_with_incoming(incoming));
                }
                std::future::pending::<()>().await;
            });
        });
        Self { addresses: told.iter().take(count).collect() }
    }
}

#[derive(Clone)]
struct Echo;

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).unary(Self, request).await) })
    }
}

impl NamedService for Echo {
    const NAME: &'static str = "bench.Echo";
}

impl UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        Box::pin(async move { Ok(Response::new(request.into_inner())) })
    }
}

/// A codec of messages as bytes.
#[derive(Debug, Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
