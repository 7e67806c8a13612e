//! One connection: its handshake, its requests, and its end.

use std::{future::Future, net::SocketAddr, pin::Pin, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{net::TcpStream, sync::watch, time::sleep};
use tower_service::Service;
use tracing::{debug, trace};

use super::{
    acceptor::Secured,
    body::{ActiveRequests, BodyError, RequestBody},
    chain::ServedChain,
    filter_run::ServerCallbacks,
    info::ConnectionInfo,
    preface::{self, Version},
    request::Requests,
    settings::{
        DRAIN_ACK_TIMEOUT, HttpSettings, MAX_ERROR_RESETS, MAX_HEADERS, MAX_SEND_BUFFER, MIN_HTTP1_BUFFER,
    },
};

/// An accepted connection.
pub(super) struct Accepted {
    pub(super) stream: TcpStream,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) chain: Arc<ServedChain>,
    pub(super) orders: watch::Receiver<Order>,
    /// Called when the handshake is complete.
    pub(super) established: Box<dyn FnOnce() + Send>,
}

/// What a connection is ordered to do; later ones replace earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Serve,
    /// No more requests are taken.
    Drain,
    /// The connection is closed with all that is on it.
    Close,
}

/// The handling of accepted connections, with the service of the application.
pub(super) type ServeConnection =
    Arc<dyn Fn(Accepted) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Returns what handles connections with a service.
pub(super) fn serve_with<S, B>(service: S, settings: HttpSettings) -> ServeConnection
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Into<BodyError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    let settings = Arc::new(settings);
    Arc::new(move |accepted| Box::pin(serve(accepted, service.clone(), settings.clone())))
}

/// Serves a connection to its end.
async fn serve<S, B>(accepted: Accepted, service: S, settings: Arc<HttpSettings>)
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BodyError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    let Accepted { stream, local, peer, chain, mut orders, established } = accepted;
    let handshake = async {
        let Secured { io, peer } = chain.acceptor.accept(stream).await?;
        let (version, io) = preface::version(io).await.map_err(|error| error.to_string())?;
        Ok::<_, String>((version, io, peer))
    };
    let (version, io, identity) = tokio::select! {
        secured = handshake => match secured {
            Ok(secured) => secured,
            Err(reason) => return debug!(%peer, reason, "handshake failed"),
        },
        // The owner has closed the connection, or is gone.
        _ = orders.wait_for(|order| *order == Order::Close) => return,
    };
    established();
    let config = chain.config.clone();
    let connection = Arc::new(ConnectionInfo { local, peer, chain: config, identity });
    let active = ActiveRequests::default();
    let callbacks = Arc::new(ServerCallbacks);
    let requests = Requests { service, chain, connection, active: active.clone(), callbacks };
    let result = match version {
        Version::Http2 => {
            let connection = http2(&settings).serve_connection(TokioIo::new(io), requests);
            drive(connection, http2::Connection::graceful_shutdown, orders, active).await
        }
        Version::Http1 if settings.http1 => {
            let connection = http1(&settings).serve_connection(TokioIo::new(io), requests);
            drive(connection, http1::Connection::graceful_shutdown, orders, active).await
        }
        Version::Http1 => return debug!(%peer, "HTTP/1.1 is not served"),
    };
    if let Err(error) = result {
        trace!(%peer, %error, "connection ended");
    }
}

/// Drives a connection until it ends, or is ordered to be closed.
async fn drive<C: Future<Output = hyper::Result<()>>>(
    connection: C,
    drain: impl Fn(Pin<&mut C>),
    mut orders: watch::Receiver<Order>,
    active: ActiveRequests,
) -> hyper::Result<()> {
    let mut connection = std::pin::pin!(connection);
    let mut is_draining = false;
    loop {
        // It may have changed before.
        match *orders.borrow_and_update() {
            Order::Serve => {}
            Order::Drain if is_draining => {}
            Order::Drain => {
                is_draining = true;
                drain(connection.as_mut());
            }
            Order::Close => return Ok(()),
        }
        tokio::select! {
            result = connection.as_mut() => return result,
            changed = orders.changed() => if changed.is_err() {
                return Ok(());
            },
            // SV6.6: a client that does not acknowledge the end of an idle connection is not waited for.
            () = sleep(DRAIN_ACK_TIMEOUT), if is_draining => if active.is_none() {
                return Ok(());
            },
        }
    }
}

fn http2(settings: &HttpSettings) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(settings.max_concurrent_streams)
        .max_header_list_size(settings.max_header_list_size)
        .initial_connection_window_size(settings.connection_window)
        .initial_stream_window_size(settings.stream_window)
        .max_pending_accept_reset_streams(settings.max_pending_resets)
        .max_local_error_reset_streams(MAX_ERROR_RESETS)
        .max_send_buf_size(MAX_SEND_BUFFER)
        .keep_alive_interval(settings.keep_alive_interval)
        .keep_alive_timeout(settings.keep_alive_timeout);
    builder
}

fn http1(settings: &HttpSettings) -> http1::Builder {
    let mut builder = http1::Builder::new();
    let buffer = usize::try_from(settings.max_header_list_size).unwrap_or(usize::MAX);
    builder
        .timer(TokioTimer::new())
        .max_headers(MAX_HEADERS)
        .max_buf_size(buffer.max(MIN_HTTP1_BUFFER))
        .header_read_timeout(settings.header_read_timeout);
    builder
}
