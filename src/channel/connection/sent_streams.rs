//! Which requests a connection has sent (CH6.12).
//!
//! A stream of `h2` may wait for its turn, and when the connection is lost, its error is that of one that was sent. What was given
//! to the socket is the only evidence, so the heads of frames are read there.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

/// The streams whose HEADERS were written. HTTP/2 has a client begin its streams in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct SentStreams {
    highest: AtomicU32,
}

/// Reads the heads of frames among the bytes that a client writes.
#[derive(Debug)]
pub(super) struct FrameHeads {
    sent: Arc<SentStreams>,
    /// The bytes that are left of the preface, or of the payload of a frame.
    skipped: usize,
    /// The beginning of a head.
    head: [u8; HEAD],
    read: usize,
}

impl SentStreams {
    /// Whether the request on a stream was written, or a part of it.
    pub(super) fn contains(&self, stream: u32) -> bool {
        stream <= self.highest.load(Ordering::Acquire)
    }
}

impl FrameHeads {
    /// Before the preface.
    pub(super) fn new() -> Self {
        Self { sent: Arc::default(), skipped: PREFACE, head: [0; HEAD], read: 0 }
    }

    /// The streams that were begun.
    pub(super) fn sent(&self) -> &Arc<SentStreams> {
        &self.sent
    }

    /// These bytes were written, after all others.
    pub(super) fn on_written(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.skipped.min(bytes.len());
            self.skipped -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEAD - self.read).min(bytes.len());
            self.head[self.read..self.read + taken].copy_from_slice(&bytes[..taken]);
            self.read += taken;
            bytes = &bytes[taken..];
            if self.read == HEAD {
                self.read = 0;
                self.on_head();
            }
        }
    }

    fn on_head(&mut self) {
        let [a, b, c, kind, _, stream @ ..] = self.head;
        self.skipped = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        if kind == HEADERS {
            // The connection is written to by one task. Trailers have the number of an earlier stream.
            self.sent.highest.fetch_max(u32::from_be_bytes(stream), Ordering::Release);
        }
    }
}

/// The length of the client's connection preface (RFC 9113, section 3.4).
const PREFACE: usize = 24;
/// The length of a frame's head.
const HEAD: usize = 9;
/// The type of frames with headers.
const HEADERS: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, stream: u32, length: usize) -> Vec<u8> {
        let length_bytes = u32::try_from(length).unwrap().to_be_bytes();
        let mut frame = length_bytes[1..].to_vec();
        frame.extend([kind, 0]);
        frame.extend(stream.to_be_bytes());
        // The payload looks like HEADERS of another stream.
        frame.extend([0, 0, 0, HEADERS, 0, 0, 0, 0, 99].into_iter().cycle().take(length));
        frame
    }

    #[test]
    fn ch6_12_streams_are_sent_with_their_headers_however_the_bytes_are_divided() {
        let mut written = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let mut ends = Vec::new();
        for (kind, stream, length) in [
            (4, 0, 12),
            (HEADERS, 1, 70),
            (0, 1, 70_000),
            (HEADERS, 5, 0),
            (HEADERS, 1, 30),
            (9, 7, 3),
            (HEADERS, 9, 1),
        ] {
            let start = written.len();
            written.extend(frame(kind, stream, length));
            if kind == HEADERS && stream != 1 || start < 100 && stream == 1 {
                ends.push((start + HEAD, stream));
            }
        }
        for step in [1, 7, 9, 1_000, written.len()] {
            let mut heads = FrameHeads::new();
            let mut done = 0;
            for chunk in written.chunks(step) {
                heads.on_written(chunk);
                done += chunk.len();
                let highest = ends.iter().filter(|(end, _)| *end <= done).map(|(_, stream)| *stream).max();
                let is_sent = |stream| heads.sent().contains(stream);
                assert!(highest.is_none_or(is_sent), "{highest:?} after {done} bytes");
                assert!(!is_sent(highest.unwrap_or(0) + 1), "after {done} bytes");
            }
            assert!(heads.sent().contains(9) && !heads.sent().contains(11));
        }
    }
}
