//! The byte stream below HTTP/2, with reports that hyper does not give.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    dial::MaybeTlsStream,
    transport::{ConnectionEvents, WeakConnectionEvents},
};

/// The byte stream below HTTP/2. It reports the first read, since the kernel of a frozen server accepts connections but sends
/// nothing on them, and the GOAWAY of the server.
pub(super) struct WatchedIo {
    /// The connection, with TLS or without.
    io: MaybeTlsStream,
    /// `None` after the report of the first read.
    events: Option<ConnectionEvents>,
    /// Reports after the first read; weak, since the byte stream may be dropped long after the stream has ended.
    later_events: WeakConnectionEvents,
    /// The position in the received frames.
    frames: Frames,
}

/// A position in the frames of HTTP/2 (RFC 9113, section 4.1).
#[derive(Debug, Default)]
struct Frames {
    /// The head of the current frame, as far as it was read.
    head: [u8; HEAD],
    /// The number of bytes of the head that were read.
    filled: usize,
    /// The number of bytes of the payload that are still to come.
    payload: usize,
}

impl WatchedIo {
    pub(super) fn new(io: MaybeTlsStream, events: ConnectionEvents) -> Self {
        let later_events = events.downgrade();
        Self { io, events: Some(events), later_events, frames: Frames::default() }
    }

    /// Handles received bytes.
    fn on_read(&mut self, bytes: &[u8]) {
        if let Some(events) = self.events.take() {
            events.alive();
        }
        if self.frames.has_go_away(bytes) {
            self.later_events.going_away();
        }
    }
}

impl Frames {
    /// Skips these bytes; true if a GOAWAY begins among them.
    fn has_go_away(&mut self, mut bytes: &[u8]) -> bool {
        let mut has_go_away = false;
        while !bytes.is_empty() {
            // The payload of a GOAWAY is skipped, too: its reason comes with the end of the connection.
            let skipped = self.payload.min(bytes.len());
            self.payload -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEAD - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == HEAD {
                let [high, middle, low, kind, ..] = self.head;
                self.payload = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.filled = 0;
                has_go_away |= kind == GO_AWAY;
            }
        }
        has_go_away
    }
}

/// The length of the head of a frame.
const HEAD: usize = 9;
/// The type of GOAWAY frames.
const GO_AWAY: u8 = 7;

impl AsyncRead for WatchedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.on_read(&buf.filled()[before..]);
        }
        polled
    }
}

impl AsyncWrite for WatchedIo {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let mut frame = (payload as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, 0, 0, 0, 0, 0]);
        // It looks like the head of a GOAWAY wherever it is read from.
        frame.extend(vec![GO_AWAY; payload]);
        frame
    }

    #[test]
    fn a_go_away_is_found_however_the_bytes_are_cut() {
        let before: Vec<_> = [frame(4, 0), frame(0, 100), frame(6, 8)].concat();
        let bytes = [before.clone(), frame(GO_AWAY, 20)].concat();
        for size in 1..bytes.len() {
            let mut frames = Frames::default();
            let found: Vec<_> = bytes.chunks(size).map(|chunk| frames.has_go_away(chunk)).collect();
            let begin = (before.len() + HEAD).div_ceil(size) - 1;
            assert_eq!(found.iter().position(|found| *found), Some(begin), "{size} bytes at a time");
            assert_eq!(found.iter().filter(|found| **found).count(), 1);
        }
    }
}
