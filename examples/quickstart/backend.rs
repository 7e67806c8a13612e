//! A server for the calls: it answers each with its name in the header `x-backend`.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    io,
    net::{Ipv4Addr, SocketAddr},
    task::{Context, Poll},
};

use tokio::sync::oneshot;
use tonic::{
    body::Body,
    codegen::{
        Service,
        http::{Request, Response},
    },
    server::NamedService,
    transport::{Server, server::TcpIncoming},
};

/// A running server, which stops when this is dropped: it ends what it has, and accepts nothing more.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

#[derive(Clone)]
struct Answer {
    name: &'static str,
}

impl Backend {
    pub(crate) fn start(name: &'static str) -> io::Result<Self> {
        let incoming = TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = incoming.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::builder().add_service(Answer { name });
        tokio::spawn(server.serve_with_incoming_shutdown(incoming, async {
            let _ = stopped.await;
        }));
        Ok(Self { address, _stop: stop })
    }
}

impl Service<Request<Body>> for Answer {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let response = Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "0")
            .header("x-backend", self.name);
        ready(Ok(response.body(Body::empty()).expect("the headers are valid")))
    }
}

impl NamedService for Answer {
    const NAME: &'static str = "shop.Cart";
}
