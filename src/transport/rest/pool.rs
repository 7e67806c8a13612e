//! Connections to polled servers, shared by the types of a server.

use std::{
    error::Error,
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll},
    time::Duration,
};

use futures_core::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tonic::codegen::Service;

use super::outgoing::Outgoing;
use crate::{
    config::Server,
    dial::{self, Alpn, MaybeTlsStream, SocketOptions},
    transport::{
        ConnectRequest, Disconnect, DisconnectKind,
        socket::{CredentialSources, Loader, Secured, explain},
    },
};

/// The pools of all polled servers.
#[derive(Debug)]
pub(super) struct Pools {
    credentials: Arc<CredentialSources>,
    /// Weak: a pool ends with its last type.
    list: Mutex<Vec<Weak<Pool>>>,
}

impl Pools {
    pub(super) fn new(credentials: CredentialSources) -> Self {
        Self { credentials: Arc::new(credentials), list: Mutex::default() }
    }

    /// Returns the pool of a server. It lives as long as it is in use, with the keepalive of its first user.
    pub(super) fn of(&self, ConnectRequest { server, keepalive, .. }: &ConnectRequest) -> Arc<Pool> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|pool| pool.strong_count() > 0);
        if let Some(pool) = list.iter().filter_map(Weak::upgrade).find(|pool| pool.dialer.server == *server) {
            return pool;
        }
        let credentials = self.credentials.clone();
        let dialer = Dialer { server: server.clone(), credentials, keepalive: *keepalive };
        let pool = Arc::new(Pool { client: Mutex::new(dialer.client()), dialer });
        list.push(Arc::downgrade(&pool));
        pool
    }
}

/// The connections to a server.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) dialer: Dialer,
    /// The HTTP client, which owns the connections.
    client: Mutex<Client<Dialer, Outgoing>>,
}

impl Pool {
    /// Returns the client for one request.
    pub(super) fn client(&self) -> Client<Dialer, Outgoing> {
        self.lock().clone()
    }

    /// Drops all connections; running requests on them continue.
    pub(super) fn renew(&self) {
        *self.lock() = self.dialer.client();
    }

    /// Locks the client for a moment.
    fn lock(&self) -> MutexGuard<'_, Client<Dialer, Outgoing>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The parameters for connecting to a server, for all types.
#[derive(Debug, Clone)]
pub(super) struct Dialer {
    pub(super) server: Arc<Server>,
    credentials: Arc<CredentialSources>,
    /// How long a connection is idle before the system probes the server: between polls there are no pings.
    keepalive: Duration,
}

impl Dialer {
    /// The loader of the credentials of a connection or of a request.
    pub(super) fn loader(&self) -> Loader<'_> {
        self.credentials.of(&self.server)
    }

    /// Creates a client without connections.
    fn client(&self) -> Client<Self, Outgoing> {
        Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .build(self.clone())
    }

    /// Connects with credentials that are loaded for this connection.
    async fn connect(self) -> Result<Socket, Disconnect> {
        let channel = &self.server.channel_credentials;
        let unreachable =
            |why: &(dyn Error + 'static)| Disconnect::new(DisconnectKind::Unreachable, explain(why, channel));
        let credentials = self.loader().load(Alpn::Http2OrHttp1).await?;
        let options = SocketOptions { keepalive: Some(self.keepalive), ..SocketOptions::default() };
        let (io, host) = dial::open(self.server.uri.address(), options).await.map_err(|e| unreachable(&e))?;
        let Secured { io, selected_http2 } =
            credentials.secure(io, &host).await.map_err(|e| unreachable(&*e))?;
        Ok(Socket { io: TokioIo::new(io), selected_http2 })
    }
}

impl Service<Uri> for Dialer {
    type Response = Socket;
    type Error = Unconnected;
    type Future = BoxFuture<'static, Result<Socket, Unconnected>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unconnected>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connect = self.clone().connect();
        Box::pin(async { connect.await.map_err(Unconnected) })
    }
}

/// The reason why there is no connection, found in the source chain of an error.
#[derive(Debug)]
pub(super) struct Unconnected(pub(super) Disconnect);

impl fmt::Display for Unconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl Error for Unconnected {}

/// A connection in the form that hyper requires.
pub(super) struct Socket {
    io: TokioIo<MaybeTlsStream>,
    /// Whether TLS has negotiated HTTP/2.
    selected_http2: bool,
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        match self.selected_http2 {
            true => Connected::new().negotiated_h2(),
            false => Connected::new(),
        }
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, into)
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bytes)
    }
}
