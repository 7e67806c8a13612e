//! The connections that a control plane serves, with their limits.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    time::{Instant, Sleep},
};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// A connection of a client, which ends when it has had no streams for some time.
#[derive(Debug)]
pub(super) struct Connection<T = TcpStream> {
    /// The byte stream.
    io: T,
    /// The count of streams, which requests change.
    info: ConnectionInfo,
    /// The time without streams after which the connection is closed.
    idle_timeout: Duration,
    /// The next time to check for idleness.
    check: Pin<Box<Sleep>>,
    /// Counts the connection against the limit.
    _permit: OwnedSemaphorePermit,
}

/// The properties of the connection of a request.
#[derive(Debug, Clone)]
pub(super) struct ConnectionInfo {
    /// The address of the client, where the transport has one.
    peer: Option<SocketAddr>,
    /// Shared with the streams of the connection.
    use_: Arc<Mutex<Use>>,
}

/// The use of a connection.
#[derive(Debug)]
struct Use {
    /// The number of open streams.
    streams: usize,
    /// The time of the last end of a stream, or of the beginning of the connection.
    since: Instant,
}

/// Counts a stream on a connection until it is dropped.
/// Empty on a server of the application, whose connections are not counted.
#[derive(Debug)]
pub(super) struct StreamGuard(Option<ConnectionInfo>);

impl<T> Connection<T> {
    pub(super) fn new(
        io: T,
        peer: Option<SocketAddr>,
        idle_timeout: Duration,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let since = Instant::now();
        let info = ConnectionInfo { peer, use_: Arc::new(Mutex::new(Use { streams: 0, since })) };
        let check = Box::pin(tokio::time::sleep_until(later(since, idle_timeout)));
        Self { io, info, idle_timeout, check, _permit: permit }
    }

    /// Waits until the connection has had no streams for the idle time.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // CP9: one timer for a connection, moved on when it is due, and not at each stream.
            ready!(self.check.as_mut().poll(cx));
            let now = Instant::now();
            // A connection with streams is not idle since any time: look again in an idle time from now.
            let since = self.info.idle_since().unwrap_or(now);
            let end = later(since, self.idle_timeout);
            if end <= now {
                return Poll::Ready(());
            }
            self.check.as_mut().reset(end);
        }
    }
}

impl ConnectionInfo {
    /// Counts a stream on the connection of a request, if it is known.
    pub(super) fn stream_of(extensions: &http::Extensions) -> StreamGuard {
        let info = extensions.get::<Self>().cloned();
        if let Some(info) = &info {
            info.lock().streams += 1;
        }
        StreamGuard(info)
    }

    /// The address of the client of a request, if it is known.
    pub(super) fn peer_of(extensions: &http::Extensions) -> Option<SocketAddr> {
        let own = extensions.get::<Self>().and_then(|info| info.peer);
        own.or_else(|| extensions.get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr))
    }

    /// Returns the time since when there are no streams; `None` if there are some.
    fn idle_since(&self) -> Option<Instant> {
        let now = self.lock();
        (now.streams == 0).then_some(now.since)
    }

    fn lock(&self) -> MutexGuard<'_, Use> {
        // Both fields are numbers, so a panic elsewhere does not corrupt them.
        self.use_.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        if let Some(info) = &self.0 {
            let mut now = info.lock();
            now.streams -= 1;
            now.since = Instant::now();
        }
    }
}

impl<T> Connected for Connection<T> {
    type ConnectInfo = ConnectionInfo;

    fn connect_info(&self) -> ConnectionInfo {
        self.info.clone()
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Connection<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Data first: a connection that has any is in use, even if the idle time has passed by now.
        if let Poll::Ready(read) = Pin::new(&mut self.io).poll_read(cx, buf) {
            return Poll::Ready(read);
        }
        // The end of the input makes the server close a connection without streams.
        self.poll_idle(cx).map(Ok)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Connection<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Returns a later time, some decades later at most.
fn later(since: Instant, time: Duration) -> Instant {
    since + crate::config::bounded(time)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
        sync::Semaphore,
    };

    use super::*;

    const IDLE: Duration = Duration::from_secs(300);

    async fn connection() -> (Connection<DuplexStream>, DuplexStream) {
        let permit = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let (near, far) = tokio::io::duplex(64);
        (Connection::new(near, None, IDLE, permit), far)
    }

    fn stream_on(connection: &Connection<DuplexStream>) -> StreamGuard {
        let mut extensions = http::Extensions::new();
        extensions.insert(connection.connect_info());
        ConnectionInfo::stream_of(&extensions)
    }

    #[tokio::test(start_paused = true)]
    async fn cp9_a_connection_without_streams_ends_after_the_idle_time() {
        let (mut connection, _far) = connection().await;
        let start = Instant::now();
        assert_eq!(connection.read(&mut [0; 8]).await.unwrap(), 0);
        assert_eq!(start.elapsed(), IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn cp9_a_stream_keeps_its_connection_and_bytes_do_not() {
        let (mut connection, mut far) = connection().await;
        let guard = stream_on(&connection);
        let start = Instant::now();
        let release = async {
            tokio::time::sleep(IDLE * 3).await;
            drop(guard);
            tokio::time::sleep(IDLE / 2).await;
            far.write_all(b"ping").await.unwrap();
        };
        let read = async {
            let mut buf = [0; 8];
            assert_eq!(connection.read(&mut buf).await.unwrap(), 4);
            assert_eq!(connection.read(&mut buf).await.unwrap(), 0);
            start.elapsed()
        };
        assert_eq!(tokio::join!(read, release).0, IDLE * 4);
    }
}
