//! Calls on HTTP/2 connections of their own, in turn, without the layers of a channel: what a channel costs is what it takes
//! beside this. The connections have the settings of the channel's.

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use h2::{
    RecvStream,
    client::{Builder, SendRequest},
};
use http::{Request, Response, Uri};
use http_body::{Body as _, Frame};
use tokio::net::TcpStream;
use tonic::{body::Body, codegen::Service};

/// Connections, of which calls take one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Direct {
    connections: Arc<[SendRequest<Bytes>]>,
    next: Arc<AtomicUsize>,
}

/// The body of a response.
#[derive(Debug)]
pub(crate) struct DirectBody {
    stream: RecvStream,
    is_at_trailers: bool,
}

impl Direct {
    pub(crate) async fn connect(addresses: &[SocketAddr]) -> Self {
        let mut connections = Vec::new();
        for address in addresses {
            let socket = TcpStream::connect(address).await.expect("the server runs");
            socket.set_nodelay(true).expect("it is a TCP socket");
            let mut builder = Builder::new();
            builder
                .enable_push(false)
                .initial_window_size(1 << 20)
                .initial_connection_window_size(4 << 20)
                .max_frame_size(64 << 10);
            let (send, connection) = builder.handshake(socket).await.expect("the server speaks HTTP/2");
            tokio::spawn(connection);
            connections.push(send);
        }
        Self { connections: connections.into(), next: Arc::default() }
    }
}

impl Service<Request<Body>> for Direct {
    type Response = Response<DirectBody>;
    type Error = h2::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<DirectBody>, h2::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let mut send = self.connections[next].clone();
        Box::pin(async move {
            let (mut parts, mut body) = request.into_parts();
            parts.uri = with_authority(parts.uri);
            let (response, mut stream) = send.send_request(Request::from_parts(parts, ()), false)?;
            let mut data = next_data(&mut body).await;
            while let Some(part) = data {
                // The last part ends the stream: a peer takes many empty frames for an attack.
                data = next_data(&mut body).await;
                stream.send_data(part, data.is_none())?;
            }
            Ok(response.await?.map(|stream| DirectBody { stream, is_at_trailers: false }))
        })
    }
}

async fn next_data(body: &mut Body) -> Option<Bytes> {
    let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
    let mut data = frame.expect("it is a message").into_data().expect("it has no trailers");
    Some(data.copy_to_bytes(data.remaining()))
}

fn with_authority(uri: Uri) -> Uri {
    let mut parts = uri.into_parts();
    parts.scheme = Some(http::uri::Scheme::HTTP);
    parts.authority = Some(http::uri::Authority::from_static("shop"));
    Uri::from_parts(parts).expect("it has a path")
}

impl http_body::Body for DirectBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.is_at_trailers {
            match self.stream.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => {
                    self.stream.flow_control().release_capacity(data.len())?;
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => self.is_at_trailers = true,
                Poll::Pending => return Poll::Pending,
            }
        }
        self.stream.poll_trailers(cx).map(|trailers| Some(trailers.transpose()?.map(Frame::trailers)))
    }
}
