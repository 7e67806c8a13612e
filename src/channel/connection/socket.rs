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

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[cfg(test)]
use super::super::simulation;
use super::{
    super::security::{Peer, Secured, Tls},
    frames::HEAD,
    inbound::{Inbound, InboundFrames},
    outbound::{Outbound, OutboundFrames},
    preface::Preface,
};
use crate::{
    balance::connect_error::ConnectError,
    dial::{self, MaybeTlsStream, SocketOptions},
};

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

/// The stream of bytes to a peer, whose errors of TLS are explained.
struct Stream {
    io: MaybeTlsStream,
    /// `None` in plaintext.
    tls: Option<Tls>,
    /// Whether the peer has sent anything after the handshake of TLS.
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
        #[cfg(test)]
        if let Some(connecting) = simulation::connect(peer.proxy.unwrap_or(peer.address)) {
            let pipe = connecting.await.map_err(|error| ConnectError::of_io(&error))?;
            let io = MaybeTlsStream::Plaintext(dial::Socket::Memory(Box::new(pipe)));
            return Ok((Self::over(Stream { io, tls: None, has_read: false }), None));
        }
        let options = SocketOptions { user_timeout, ..SocketOptions::default() };
        let dialed = match peer.proxy {
            None => dial::open_tcp(peer.address, options).await,
            Some(proxy) => dial::open_tunnel(proxy, peer.address, options).await,
        };
        let io = dialed.map_err(|error| ConnectError::of_io(&error))?;
        let (io, secured) = match &peer.tls {
            None => (MaybeTlsStream::Plaintext(io), None),
            Some(tls) => {
                let (io, secured) = tls.connect(io).await?;
                (io, Some(secured))
            }
        };
        Ok((Self::over(Stream { io, tls: peer.tls.clone(), has_read: false }), secured))
    }

    /// Creates a socket over a stream.
    fn over(io: Stream) -> Self {
        let frames = InboundFrames::new(Inbound::new());
        let (written, preface) = (OutboundFrames::new(), Preface::default());
        let (held, followed) = (Vec::new(), VecDeque::new());
        Self { io, frames, held, followed, written, notes_reads: false, preface }
    }

    /// The address of this side; `None` if it has none, or if it is not known any more.
    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.io.io.local_address()
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
            // What was held back is passed on in front of what follows it.
            let kept = mem::take(held);
            buf.put_slice(&kept);
            let start = buf.filled().len();
            match io.poll_read(cx, buf) {
                Poll::Ready(Ok(())) if buf.filled().len() > start => {}
                Poll::Ready(Ok(())) => {
                    // At the end of the input no head is completed any more, so that all bytes go to h2 as they are.
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
    pub(super) fn tcp(&self) -> &tokio::net::TcpStream {
        self.io.io.socket().and_then(dial::Socket::tcp).expect("a socket of the system")
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
        self.io.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.preface.is_written() {
            // The preface is changed in one piece of memory, so that only the first buffer is written.
            let first = bufs.iter().find(|buf| !buf.is_empty());
            return self.poll_write(cx, first.map_or(&[], |buf| buf));
        }
        let written = ready!(self.io.poll_write_vectored(cx, bufs))?;
        self.on_written(bufs, written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.io.is_write_vectored()
    }
}

impl Stream {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        self.has_read |= buf.filled().len() > before;
        polled.map_err(|error| match &self.tls {
            Some(tls) => tls.explained(error, self.has_read),
            None => error,
        })
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        self.written(polled, cx)
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.written(polled, cx)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(cx);
        self.written(polled, cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_shutdown(cx);
        self.written(polled, cx)
    }

    /// Explains an error of a write: a peer that takes no more bytes may have sent an alert before, such as that it refuses the
    /// certificate of the client.
    fn written<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let Self { io, tls: Some(tls), has_read } = self else { return polled };
        // The byte that this may take is of no use to anybody: the connection is broken.
        polled.map_err(|error| match Pin::new(io).poll_read(cx, &mut ReadBuf::new(&mut [0])) {
            Poll::Ready(Err(alert)) => tls.explained(alert, *has_read),
            Poll::Ready(Ok(())) | Poll::Pending => tls.explained(error, *has_read),
        })
    }
}

#[cfg(test)]
mod tests;
