//! The accepted connections of a control plane.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::Instant,
};
use tokio_stream::Stream;
use tonic::transport::server::TcpIncoming;

#[cfg(feature = "tls")]
use super::server_tls::ServerTls;
use super::{connection::Connection, server_limits::ServerLimits};

/// The connections that clients open, up to their limit, and after their handshakes.
pub(super) struct Incoming {
    /// The connections of the listener.
    tcp: TcpIncoming,
    /// The TLS of connections, if they have any.
    tls: Option<ServerTls>,
    /// The limits of the server.
    limits: ServerLimits,
    /// A permit for each connection, up to the limit.
    permits: Arc<Semaphore>,
    /// Refused connections, for the log.
    refused: Refused,
    /// TLS handshakes in progress. A slow one delays neither another one nor the acceptance of connections.
    handshakes: JoinSet<Option<Connection<Socket>>>,
}

/// A connection, with TLS or without it.
pub(super) type Socket = Box<dyn Io>;

/// A byte stream of any kind.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// TLS without the feature for it.
#[cfg(not(feature = "tls"))]
pub(super) enum ServerTls {}

impl Incoming {
    pub(super) fn new(listener: TcpListener, tls: Option<ServerTls>, limits: ServerLimits) -> Self {
        Self {
            tcp: TcpIncoming::from(listener).with_nodelay(Some(true)),
            tls,
            permits: Arc::new(Semaphore::new(limits.max_connections.min(Semaphore::MAX_PERMITS))),
            limits,
            refused: Refused::default(),
            handshakes: JoinSet::new(),
        }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection<Socket>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            match this.handshakes.poll_join_next(cx) {
                Poll::Ready(Some(Ok(Some(connection)))) => return Poll::Ready(Some(Ok(connection))),
                // It has failed, which was logged.
                Poll::Ready(Some(Ok(None) | Err(_))) => continue,
                Poll::Ready(None) | Poll::Pending => {}
            }
            let accepted = ready!(Pin::new(&mut this.tcp).poll_next(cx));
            let Some(accepted) = accepted else { return Poll::Ready(None) };
            let socket = match accepted {
                Ok(socket) => socket,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            // The limit is checked before the handshake, which would cost far more than the refusal.
            let Ok(permit) = this.permits.clone().try_acquire_owned() else {
                this.refused.report(this.limits.max_connections);
                continue;
            };
            let (peer, idle_timeout) = (socket.peer_addr().ok(), this.limits.idle_timeout);
            // The permit goes with the connection, also through its handshake.
            let connection = move |socket: Socket, permit: OwnedSemaphorePermit| {
                Connection::new(socket, peer, idle_timeout, permit)
            };
            match &this.tls {
                None => return Poll::Ready(Some(Ok(connection(Box::new(socket), permit)))),
                #[cfg(feature = "tls")]
                Some(tls) => {
                    let handshake = tls.accept(socket);
                    this.handshakes.spawn(async move {
                        let accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await;
                        let reason = match accepted {
                            Ok(Ok(secured)) => return Some(connection(Box::new(secured), permit)),
                            Ok(Err(error)) => error.to_string(),
                            Err(_) => "it takes too long".to_owned(),
                        };
                        tracing::debug!(?peer, reason, "TLS handshake with a client failed");
                        None
                    });
                }
                #[cfg(not(feature = "tls"))]
                Some(tls) => match *tls {},
            }
        }
    }
}

/// The connections that were refused since the last warning.
#[derive(Debug, Default)]
struct Refused {
    /// The number of refused connections that no warning has counted yet.
    count: u64,
    /// The time of the last warning.
    warned: Option<Instant>,
}

impl Refused {
    /// Counts a connection, and warns at most once a second.
    fn report(&mut self, max_connections: usize) {
        self.count += 1;
        let now = Instant::now();
        if self.warned.is_none_or(|at| now.duration_since(at) >= WARNING_INTERVAL) {
            let connections = std::mem::take(&mut self.count);
            tracing::warn!(connections, max_connections, "refused connections above the limit");
            self.warned = Some(now);
        }
    }
}

/// The shortest time between warnings, so that many refused connections do not fill the log.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);
/// The longest time of a TLS handshake.
#[cfg(feature = "tls")]
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
