//! The byte stream below HTTP/2.

use std::{
    collections::VecDeque,
    io, mem,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
#[cfg(feature = "tls")]
use tokio_rustls::client::TlsStream;

#[cfg(test)]
use super::super::simulation::{self, Pipe};
use super::{
    super::security::{Peer, Secured, Tls},
    frames::HEAD,
    inbound::{Inbound, InboundFrames},
    outbound::{Outbound, OutboundFrames},
    preface::Preface,
    tunnel,
};
use crate::balance::connect_error::ConnectError;

/// A connection whose frames are followed as they arrive.
pub(super) struct Socket {
    /// The bytes of the connection.
    io: Stream,
    /// Follows the received frames.
    frames: InboundFrames,
    /// The beginning of a frame's head that was read, and not passed on yet.
    held: Vec<u8>,
    /// Bytes whose frames have been followed, and for which the reader had no room yet.
    followed: VecDeque<u8>,
    /// Follows the written frames.
    written: OutboundFrames,
    /// Whether the times of reads are recorded, for keepalive.
    notes_reads: bool,
    /// Rewrites the first SETTINGS.
    preface: Preface,
}

/// The stream of bytes to a peer.
enum Stream {
    /// A connection in plaintext.
    Plaintext(TcpStream),
    /// A connection with TLS.
    #[cfg(feature = "tls")]
    Tls(Secure),
    /// In the network of a simulation.
    #[cfg(test)]
    Memory(Pipe),
}

/// A stream with TLS.
#[cfg(feature = "tls")]
struct Secure {
    /// Boxed, since it is much larger than a socket.
    io: Box<TlsStream<TcpStream>>,
    /// Explains errors.
    tls: Tls,
    /// Whether the peer has sent anything after the handshake.
    has_read: bool,
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
    ) -> Result<(Self, Option<Secured>), ConnectError> {
        let first = peer.proxy.unwrap_or(peer.address);
        #[cfg(test)]
        if let Some(connecting) = simulation::connect(first) {
            let io = connecting.await.map_err(|error| ConnectError::of_io(&error))?;
            return Ok((Self::over(Stream::Memory(io)), None));
        }
        let mut io = tcp(first, user_timeout).await.map_err(|error| ConnectError::of_io(&error))?;
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

    /// Creates a socket over a stream.
    fn over(io: Stream) -> Self {
        let frames = InboundFrames::new(Inbound::new());
        let (written, preface) = (OutboundFrames::new(), Preface::default());
        let (held, followed) = (Vec::new(), VecDeque::new());
        Self { io, frames, held, followed, written, notes_reads: false, preface }
    }

    /// Records the time of each read from now on.
    pub(super) fn note_reads(&mut self) {
        self.notes_reads = true;
    }

    /// Sets the header list size that the first SETTINGS announce, whatever h2 writes.
    pub(super) fn announce_header_list_size(&mut self, size: u32) {
        self.preface = Preface::announcing(size);
    }

    /// Follows the frames in the first `written` bytes.
    fn on_written(&mut self, bufs: &[io::IoSlice<'_>], mut written: usize) {
        for buf in bufs {
            let part = &buf[..written.min(buf.len())];
            written -= part.len();
            self.written.write(part);
        }
    }

    /// The counts of what arrives.
    pub(super) fn inbound(&self) -> &Arc<Inbound> {
        self.frames.counts()
    }

    /// The counts of what is written.
    pub(super) fn outbound(&self) -> &Arc<Outbound> {
        self.written.counts()
    }

    /// Reads with room for the head of a frame, and follows the frames. What is held is the beginning of a head.
    fn poll_frames(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { io, frames, held, notes_reads, .. } = self;
        let before = buf.filled().len();
        loop {
            let kept = mem::take(held);
            buf.put_slice(&kept);
            let start = buf.filled().len();
            match io.poll_read(cx, buf) {
                Poll::Ready(Ok(())) if buf.filled().len() > start => {}
                Poll::Ready(Ok(())) => {
                    frames.read_all(&buf.filled()[before..]);
                    return Poll::Ready(Ok(()));
                }
                interrupted @ (Poll::Pending | Poll::Ready(Err(_))) => {
                    buf.set_filled(before);
                    *held = kept;
                    return interrupted;
                }
            }
            if *notes_reads {
                frames.counts().on_read();
            }
            let read = &mut buf.filled_mut()[before..];
            let left = read.len() - frames.read(read);
            held.extend_from_slice(&read[left..]);
            buf.set_filled(before + left);
            // Without a byte it would be the end.
            if left > 0 {
                return Poll::Ready(Ok(()));
            }
        }
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

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.frames.counts().needs_compaction() {
            // The driver merges what has arrived, and goes on.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.followed.is_empty() {
            if buf.remaining() >= HEAD {
                return self.poll_frames(cx, buf);
            }
            // A head is complete before any of it is passed on, since it may have to be changed.
            let mut bytes = [0; HEAD];
            let mut head = ReadBuf::new(&mut bytes);
            ready!(self.poll_frames(cx, &mut head))?;
            self.followed.extend(head.filled());
        }
        let count = self.followed.len().min(buf.remaining());
        self.followed.drain(..count).for_each(|byte| buf.put_slice(&[byte]));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let Self { io, preface, .. } = &mut *self;
        if preface.is_written() {
            let written = ready!(io.poll_write(cx, buf))?;
            self.on_written(&[io::IoSlice::new(buf)], written);
            return Poll::Ready(Ok(written));
        }
        let part = preface.changed(buf);
        let written = ready!(io.poll_write(cx, &part))?;
        preface.on_written(&part[..written]);
        self.written.write(&part[..written]);
        Poll::Ready(Ok(written))
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
        if !self.preface.is_written() {
            let first = bufs.iter().find(|buf| !buf.is_empty());
            return self.poll_write(cx, first.map_or(&[], |buf| buf));
        }
        let written = ready!(self.io.poll_write_vectored(cx, bufs))?;
        self.on_written(bufs, written);
        Poll::Ready(Ok(written))
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
    /// Reads bytes.
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plaintext(io) => Pin::new(io).poll_read(cx, buf),
            #[cfg(feature = "tls")]
            Self::Tls(it) => it.poll_read(cx, buf),
            #[cfg(test)]
            Self::Memory(io) => Pin::new(io).poll_read(cx, buf),
        }
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plaintext(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            #[cfg(feature = "tls")]
            Self::Tls(it) => {
                let polled = Pin::new(&mut it.io).poll_write_vectored(cx, bufs);
                it.written(polled, cx)
            }
            #[cfg(test)]
            Self::Memory(io) => Pin::new(io).poll_write_vectored(cx, bufs),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plaintext(io) => Pin::new(io).poll_write(cx, buf),
            #[cfg(feature = "tls")]
            Self::Tls(it) => {
                let polled = Pin::new(&mut it.io).poll_write(cx, buf);
                it.written(polled, cx)
            }
            #[cfg(test)]
            Self::Memory(io) => Pin::new(io).poll_write(cx, buf),
        }
    }

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
    /// Reads bytes, and explains errors of TLS.
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        self.has_read |= buf.filled().len() > before;
        polled.map_err(|error| self.tls.explained(error, self.has_read))
    }

    /// Explains an error of a write: a peer that takes no more bytes may have sent an alert before, such as that it refuses the
    /// certificate of the client.
    fn written<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let Self { io, tls, has_read } = self;
        polled.map_err(|error| match Pin::new(io).poll_read(cx, &mut ReadBuf::new(&mut [0])) {
            Poll::Ready(Err(alert)) => tls.explained(alert, *has_read),
            Poll::Ready(Ok(())) | Poll::Pending => tls.explained(error, *has_read),
        })
    }
}

/// Connects to an address.
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
    socket2::SockRef::from(io).set_tcp_user_timeout(Some(timeout.min(LONGEST_USER_TIMEOUT)))
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "fuchsia", target_os = "cygwin")))]
fn set_user_timeout(_: &TcpStream, _: Duration) -> io::Result<()> {
    Ok(())
}

/// The system takes the time as a signed number of milliseconds, and refuses a longer one with `EINVAL`.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "fuchsia", target_os = "cygwin"))]
const LONGEST_USER_TIMEOUT: Duration = Duration::from_millis(i32::MAX as u64);

#[cfg(test)]
mod tests;
