//! A gRPC server that sends each message back. It is written on `h2` itself, so that it costs little beside the client.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::{
    RecvStream,
    server::{Builder, SendResponse},
};
use http::{HeaderMap, HeaderValue, Request, Response, header::CONTENT_TYPE};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

/// The method that is served, as any other.
pub(crate) const METHOD: &str = "/bench.Echo/Echo";

/// The number of open connections of all servers of the process.
pub(crate) static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

/// Serves until the runtime ends.
pub(crate) async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>) {
    while let Ok((socket, _)) = listener.accept().await {
        let tls = tls.clone();
        tokio::spawn(async move {
            CONNECTIONS.fetch_add(1, Ordering::Relaxed);
            // A client that breaks a connection is its own concern.
            let _ = socket.set_nodelay(true);
            match tls {
                None => drop(connection(socket).await),
                Some(tls) => {
                    if let Ok(socket) = tls.accept(socket).await {
                        drop(connection(socket).await);
                    }
                }
            }
            CONNECTIONS.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn connection(socket: impl AsyncRead + AsyncWrite + Unpin) -> Result<(), h2::Error> {
    let mut builder = Builder::new();
    builder
        .initial_window_size(1 << 20)
        .initial_connection_window_size(8 << 20)
        .max_frame_size(64 << 10)
        .max_send_buffer_size(1 << 20);
    let mut connection = builder.handshake::<_, Bytes>(socket).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        tokio::spawn(echo(request, respond));
    }
    Ok(())
}

/// The frames of a request are those of its response.
async fn echo(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let mut body = request.into_body();
    let mut parts = Vec::with_capacity(1);
    while let Some(part) = body.data().await.transpose()? {
        body.flow_control().release_capacity(part.len())?;
        // The end of a request may be an empty frame, of which a client bears few.
        if !part.is_empty() {
            parts.push(part);
        }
    }
    let mut response = Response::new(());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let mut stream = respond.send_response(response, false)?;
    for part in parts {
        stream.send_data(part, false)?;
    }
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream.send_trailers(trailers)
}
