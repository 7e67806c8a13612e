//! The servers: a gRPC service without code generated from a `.proto` file, whose messages are plain text.

use std::{
    convert::Infallible,
    error::Error,
    io,
    net::{Ipv4Addr, SocketAddr},
    task::{Context, Poll},
};

use tokio::{sync::oneshot, task::JoinHandle};
use tonic::{
    Request, Response, Status,
    body::Body,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::{self, BoxFuture, http},
    server::{Grpc, NamedService, UnaryService},
    transport::{self, Server, server::TcpIncoming},
};

/// The method: it responds with the name of the server.
pub(crate) const GREET: &str = "/example.Greeter/Greet";

/// A server with the method.
pub(crate) struct Greeter {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinHandle<Result<(), transport::Error>>,
}

impl Greeter {
    pub(crate) async fn start(name: &'static str) -> io::Result<Self> {
        let incoming = TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = incoming.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let router = Server::builder().add_service(Service { name });
        let server = tokio::spawn(router.serve_with_incoming_shutdown(incoming, async {
            let _ = stopped.await;
        }));
        Ok(Self { address, stop, server })
    }

    /// Accepts no new connections, completes all running calls, and ends.
    pub(crate) async fn shut_down(self) -> Result<(), Box<dyn Error>> {
        let _ = self.stop.send(());
        Ok(self.server.await??)
    }
}

#[derive(Debug, Clone)]
struct Service {
    name: &'static str,
}

impl codegen::Service<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = self.clone();
        Box::pin(async move {
            if request.uri().path() != GREET {
                return Ok(Status::unimplemented("there is one method only").into_http());
            }
            Ok(Grpc::new(Texts).unary(method, request).await)
        })
    }
}

impl NamedService for Service {
    const NAME: &'static str = "example.Greeter";
}

impl UnaryService<String> for Service {
    type Response = String;
    type Future = BoxFuture<Response<String>, Status>;

    fn call(&mut self, _: Request<String>) -> Self::Future {
        let name = self.name.to_owned();
        Box::pin(async move { Ok(Response::new(name)) })
    }
}

/// A codec of messages as text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Texts;

impl Codec for Texts {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Texts {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, text: String, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put(into, text.as_bytes());
        Ok(())
    }
}

impl Decoder for Texts {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let mut bytes = vec![0; bytes::Buf::remaining(from)];
        bytes::Buf::copy_to_slice(from, &mut bytes);
        String::from_utf8(bytes).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
