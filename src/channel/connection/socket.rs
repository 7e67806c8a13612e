//! The byte stream below HTTP/2.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::Instant,
};

/// A TCP connection that notes when bytes were read, if somebody asks for that.
pub(super) struct Socket {
    io: TcpStream,
    reads: Option<Arc<LastRead>>,
}

/// When a connection has last read bytes of its peer.
#[derive(Debug)]
pub(super) struct LastRead {
    start: Instant,
    /// In nanoseconds since the start.
    last: AtomicU64,
}

impl Socket {
    /// Connects, without Nagle's delay. `user_timeout` is the longest time that the system keeps the connection while the peer
    /// acknowledges nothing (A18), where the system has such an option.
    pub(super) async fn connect(address: SocketAddr, user_timeout: Option<Duration>) -> io::Result<Self> {
        let io = TcpStream::connect(address).await?;
        io.set_nodelay(true)?;
        if let Some(timeout) = user_timeout {
            set_user_timeout(&io, timeout)?;
        }
        Ok(Self { io, reads: None })
    }

    /// Notes reads from now on.
    pub(super) fn note_reads(&mut self) -> Arc<LastRead> {
        self.reads.insert(LastRead::new()).clone()
    }

    #[cfg(test)]
    pub(super) fn tcp(&self) -> &TcpStream {
        &self.io
    }
}

impl LastRead {
    fn new() -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), last: AtomicU64::new(0) })
    }

    pub(super) fn at(&self) -> Instant {
        self.start + Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }

    fn note(&self) {
        let elapsed = self.start.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
        self.last.store(elapsed, Ordering::Relaxed);
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        if let Some(reads) = &self.reads
            && buf.filled().len() > before
        {
            reads.note();
        }
        polled
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
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
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "fuchsia", target_os = "cygwin"))]
fn set_user_timeout(io: &TcpStream, timeout: Duration) -> io::Result<()> {
    socket2::SockRef::from(io).set_tcp_user_timeout(Some(timeout))
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "fuchsia", target_os = "cygwin")))]
fn set_user_timeout(_: &TcpStream, _: Duration) -> io::Result<()> {
    Ok(())
}
