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
#[cfg(feature = "tls")]
use tokio_rustls::client::TlsStream;

#[cfg(test)]
use super::super::simulation::{self, Pipe};
use super::{
    super::security::{Peer, Secured, Tls},
    tunnel,
};

/// A connection that notes when bytes were read, if somebody asks for that.
pub(super) struct Socket {
    io: Stream,
    reads: Option<Arc<LastRead>>,
}

/// The stream of bytes to a peer.
enum Stream {
    Plaintext(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Secure),
    /// In the network of a simulation.
    #[cfg(test)]
    Memory(Pipe),
}

/// A stream with TLS.
#[cfg(feature = "tls")]
struct Secure {
    io: Box<TlsStream<TcpStream>>,
    tls: Tls,
    /// Whether the peer has sent anything after the handshake.
    has_read: bool,
}

/// When a connection has last read bytes of its peer.
#[derive(Debug)]
pub(super) struct LastRead {
    start: Instant,
    /// In nanoseconds since the start.
    last: AtomicU64,
}

impl Socket {
    /// Connects, without Nagle's delay: to the endpoint, or to the proxy before it, and then by TLS if the peer has it (CH3.4).
    /// `user_timeout` is the longest time that the system keeps the connection while the peer
    /// acknowledges nothing (A18), where the system has such an option.
    ///
    /// # Errors
    /// A text with the reason.
    pub(super) async fn connect(
        peer: &Peer,
        user_timeout: Option<Duration>,
    ) -> Result<(Self, Option<Secured>), String> {
        let first = peer.proxy.unwrap_or(peer.address);
        #[cfg(test)]
        if let Some(connecting) = simulation::connect(first) {
            let io = connecting.await.map_err(|error| error.to_string())?;
            return Ok((Self::over(Stream::Memory(io)), None));
        }
        let mut io = tcp(first, user_timeout).await.map_err(|error| error.to_string())?;
        if peer.proxy.is_some() {
            tunnel::open(&mut io, peer.address).await?;
        }
        let (io, secured) = match &peer.tls {
            None => (Stream::Plaintext(io), None),
            Some(tls) => {
                let (io, secured) = tls.connect(io).await?;
                (Stream::secured(io, tls), Some(secured))
            }
        };
        Ok((Self::over(io), secured))
    }

    fn over(io: Stream) -> Self {
        Self { io, reads: None }
    }

    /// Notes reads from now on.
    pub(super) fn note_reads(&mut self) -> Arc<LastRead> {
        self.reads.insert(LastRead::new()).clone()
    }

    #[cfg(test)]
    pub(super) fn tcp(&self) -> &TcpStream {
        match &self.io {
            Stream::Plaintext(io) => io,
            #[cfg(feature = "tls")]
            Stream::Tls(it) => it.io.get_ref().0,
            Stream::Memory(_) => panic!("it has no socket"),
        }
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
        let polled = match &mut self.io {
            Stream::Plaintext(io) => Pin::new(io).poll_read(cx, buf),
            #[cfg(feature = "tls")]
            Stream::Tls(it) => it.poll_read(cx, buf),
            #[cfg(test)]
            Stream::Memory(io) => Pin::new(io).poll_read(cx, buf),
        };
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
        match &mut self.io {
            Stream::Plaintext(io) => Pin::new(io).poll_write(cx, buf),
            #[cfg(feature = "tls")]
            Stream::Tls(it) => {
                let polled = Pin::new(&mut it.io).poll_write(cx, buf);
                it.written(polled, cx)
            }
            #[cfg(test)]
            Stream::Memory(io) => Pin::new(io).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Stream::Plaintext(io) => Pin::new(io).poll_flush(cx),
            #[cfg(feature = "tls")]
            Stream::Tls(it) => {
                let polled = Pin::new(&mut it.io).poll_flush(cx);
                it.written(polled, cx)
            }
            #[cfg(test)]
            Stream::Memory(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Stream::Plaintext(io) => Pin::new(io).poll_shutdown(cx),
            #[cfg(feature = "tls")]
            Stream::Tls(it) => {
                let polled = Pin::new(&mut it.io).poll_shutdown(cx);
                it.written(polled, cx)
            }
            #[cfg(test)]
            Stream::Memory(io) => Pin::new(io).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Stream::Plaintext(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            #[cfg(feature = "tls")]
            Stream::Tls(it) => {
                let polled = Pin::new(&mut it.io).poll_write_vectored(cx, bufs);
                it.written(polled, cx)
            }
            #[cfg(test)]
            Stream::Memory(io) => Pin::new(io).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Stream::Plaintext(io) => io.is_write_vectored(),
            #[cfg(feature = "tls")]
            Stream::Tls(it) => it.io.is_write_vectored(),
            #[cfg(test)]
            Stream::Memory(io) => io.is_write_vectored(),
        }
    }
}

impl Stream {
    #[cfg(feature = "tls")]
    fn secured(io: TlsStream<TcpStream>, tls: &Tls) -> Self {
        Self::Tls(Secure { io: Box::new(io), tls: tls.clone(), has_read: false })
    }

    #[cfg(not(feature = "tls"))]
    fn secured(_: TcpStream, tls: &Tls) -> Self {
        match *tls {}
    }
}

#[cfg(feature = "tls")]
impl Secure {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        self.has_read |= buf.filled().len() > before;
        polled.map_err(|error| self.tls.explained(error, self.has_read))
    }

    /// The result of a write. A peer that takes no more bytes may have sent an alert before, such as that it refuses the certificate
    /// of the client.
    fn written<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let Self { io, tls, has_read } = self;
        polled.map_err(|error| match Pin::new(io).poll_read(cx, &mut ReadBuf::new(&mut [0])) {
            Poll::Ready(Err(alert)) => tls.explained(alert, *has_read),
            Poll::Ready(Ok(())) | Poll::Pending => tls.explained(error, *has_read),
        })
    }
}

async fn tcp(address: SocketAddr, user_timeout: Option<Duration>) -> io::Result<TcpStream> {
    let io = TcpStream::connect(address).await?;
    io.set_nodelay(true)?;
    if let Some(timeout) = user_timeout {
        set_user_timeout(&io, timeout)?;
    }
    Ok(io)
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "fuchsia", target_os = "cygwin"))]
fn set_user_timeout(io: &TcpStream, timeout: Duration) -> io::Result<()> {
    socket2::SockRef::from(io).set_tcp_user_timeout(Some(timeout))
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "fuchsia", target_os = "cygwin")))]
fn set_user_timeout(_: &TcpStream, _: Duration) -> io::Result<()> {
    Ok(())
}
