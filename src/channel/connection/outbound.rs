//! Written frames, as far as h2 does not report them.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use super::{
    frames::{FrameHead, FramePart, FrameReader, HEADERS, Prefix, RST_STREAM},
    http2::REPLACE_AFTER_RESETS,
};

/// Counts of what was written on a connection. The socket writes them.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    /// The last stream whose HEADERS were written. HTTP/2 has a client begin its streams in the order of their numbers.
    last_begun: AtomicU32,
    /// The number of frames on forgotten streams that h2 has answered.
    answered_forgotten: AtomicUsize,
    /// The number of streams that the peer has ended with a status.
    completed: AtomicU64,
}

/// Follows the written frames.
#[derive(Debug)]
pub(super) struct OutboundFrames {
    /// The counts, shared with the driver and with calls.
    counts: Arc<Outbound>,
    /// Finds the frames.
    reader: FrameReader,
    /// Whether the current frame is RST_STREAM.
    is_reset: bool,
    /// The code of the current RST_STREAM.
    code: Prefix<4>,
}

impl Outbound {
    /// Whether the request on a stream was written, or a part of it. A stream of h2 may wait for its turn, and when the connection is
    /// lost, its error is that of one that was sent (CH6.12).
    pub(super) fn has_begun(&self, stream: u32) -> bool {
        stream <= self.last_begun.load(Ordering::Acquire)
    }

    /// The number of streams that were begun so far: a client has the odd numbers (RFC 9113, section 5.1.1).
    pub(super) fn begun_streams(&self) -> u64 {
        self.last_begun.load(Ordering::Acquire).div_ceil(2).into()
    }

    /// The number of streams that the peer has ended with a status so far.
    pub(super) fn completed_streams(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Counts a stream that the peer has ended with a status.
    pub(super) fn on_completed(&self) {
        self.completed.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the connection is to be replaced. The h2 crate closes one after a number of frames on streams that it has forgotten.
    pub(super) fn is_worn_out(&self) -> bool {
        self.answered_forgotten.load(Ordering::Relaxed) >= REPLACE_AFTER_RESETS
    }

    /// Counts responses to frames on forgotten streams.
    pub(super) fn on_answered_forgotten(&self, frames: usize) {
        self.answered_forgotten.fetch_add(frames, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn answered_forgotten(&self) -> usize {
        self.answered_forgotten.load(Ordering::Relaxed)
    }
}

impl OutboundFrames {
    /// Creates a follower of a connection, which begins with the connection preface.
    pub(super) fn new() -> Self {
        let reader = FrameReader::after(PREFACE);
        Self { counts: Arc::default(), reader, is_reset: false, code: Prefix::default() }
    }

    pub(super) fn counts(&self) -> &Arc<Outbound> {
        &self.counts
    }

    /// Takes the next bytes that were written.
    pub(super) fn write(&mut self, mut bytes: &[u8]) {
        while let Some(part) = self.reader.next(&mut bytes) {
            match part {
                FramePart::Head(head) => self.begin_frame(head),
                FramePart::Payload(mut payload) if self.is_reset => {
                    // With this code h2 answers frames on streams that it has forgotten, and nothing else.
                    if self.code.take(&mut payload) == Some(STREAM_CLOSED) {
                        self.counts.on_answered_forgotten(1);
                    }
                }
                FramePart::Payload(_) => {}
            }
        }
    }

    /// Handles the head of a frame.
    fn begin_frame(&mut self, head: FrameHead) {
        self.is_reset = head.kind == RST_STREAM;
        self.code = Prefix::default();
        if head.kind == HEADERS {
            // One task writes to the connection. Trailers have the number of an earlier stream.
            self.counts.last_begun.fetch_max(head.stream, Ordering::Release);
        }
    }
}

/// The length of the client's connection preface (RFC 9113, section 3.4).
pub(super) const PREFACE: usize = 24;
/// The error code STREAM_CLOSED.
const STREAM_CLOSED: [u8; 4] = [0, 0, 0, 5];

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
                ends.push((start + 9, stream));
            }
        }
        for step in [1, 7, 9, 1_000, written.len()] {
            let mut heads = OutboundFrames::new();
            let mut done = 0;
            for chunk in written.chunks(step) {
                heads.write(chunk);
                done += chunk.len();
                let highest = ends.iter().filter(|(end, _)| *end <= done).map(|(_, stream)| *stream).max();
                let is_sent = |stream| heads.counts().has_begun(stream);
                assert!(highest.is_none_or(is_sent), "{highest:?} after {done} bytes");
                assert!(!is_sent(highest.unwrap_or(0) + 1), "after {done} bytes");
            }
            assert!(heads.counts().has_begun(9) && !heads.counts().has_begun(11));
        }
    }
}
