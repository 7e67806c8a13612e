//! The frames in a stream of bytes (RFC 9113, section 4.1).

/// Finds the frames in bytes that arrive in any parts.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    /// The head of the next frame, as far as it has arrived.
    head: Prefix<HEAD>,
    /// The rest of the current frame's payload.
    remaining: usize,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHead {
    /// The length of the payload.
    pub(super) length: u32,
    /// The type of the frame.
    pub(super) kind: u8,
    /// The flags, whose meaning depends on the type.
    pub(super) flags: u8,
    /// The number of the stream; 0 is the connection.
    pub(super) stream: u32,
}

/// A part of a stream of frames.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FramePart<'a> {
    /// The head of a frame.
    Head(FrameHead),
    /// A part of the payload of the frame whose head came last.
    Payload(&'a [u8]),
}

/// The first bytes of something whose length is known, which may arrive in parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prefix<const N: usize> {
    bytes: [u8; N],
    /// How many of the bytes have arrived.
    length: usize,
}

impl FrameReader {
    /// Creates a reader of frames behind `others` bytes, which are returned as a payload.
    pub(super) fn after(others: usize) -> Self {
        Self { remaining: others, ..Self::default() }
    }

    /// Returns the next part; `None` when the bytes are used up.
    pub(super) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<FramePart<'a>> {
        if self.remaining > 0 {
            let payload = bytes.split_off(..self.remaining.min(bytes.len()))?;
            self.remaining -= payload.len();
            // No bytes are no part: the rest of the payload has yet to arrive.
            return (!payload.is_empty()).then_some(FramePart::Payload(payload));
        }
        let [high, middle, low, kind, flags, stream @ ..] = self.head.take(bytes)?;
        let length = u32::from_be_bytes([0, high, middle, low]);
        self.remaining = length as usize;
        let stream = u32::from_be_bytes(stream) & !RESERVED;
        Some(FramePart::Head(FrameHead { length, kind, flags, stream }))
    }

    /// Takes back the beginning of a head that is not complete, and returns its length: the bytes are to be passed once more.
    pub(super) fn take_back_head(&mut self) -> usize {
        std::mem::take(&mut self.head.length)
    }

    /// Whether the payload of the current frame is complete.
    pub(super) fn is_at_end(&self) -> bool {
        self.remaining == 0
    }
}

impl<const N: usize> Prefix<N> {
    /// Returns the bytes once all of them have arrived; the next call begins with other ones.
    pub(super) fn take(&mut self, bytes: &mut &[u8]) -> Option<[u8; N]> {
        let part = bytes.split_off(..(N - self.length).min(bytes.len()))?;
        self.bytes[self.length..self.length + part.len()].copy_from_slice(part);
        self.length += part.len();
        if self.length < N {
            return None;
        }
        self.length = 0;
        Some(self.bytes)
    }
}

impl<const N: usize> Default for Prefix<N> {
    fn default() -> Self {
        Self { bytes: [0; N], length: 0 }
    }
}

/// The length of a frame's head.
pub(super) const HEAD: usize = 9;
/// Types of frames (RFC 9113, section 6).
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const GO_AWAY: u8 = 7;
/// The reserved bit before the number of a stream.
pub(super) const RESERVED: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ch15_8_frames_are_found_however_the_bytes_are_cut() {
        let bytes = [
            &[0, 0, 3, 0, 1, 0, 0, 0, 1][..],
            b"abc",
            &[0, 0, 0, 4, 1, 0, 0, 0, 0],
            &[0, 0, 1, 7, 0, 0, 0, 0, 0],
            b"x",
        ];
        let bytes = bytes.concat();
        let head = |length, kind, flags| FrameHead { length, kind, flags, stream: u32::from(kind == DATA) };
        let expected = vec![
            (head(3, DATA, 1), b"abc".to_vec()),
            (head(0, SETTINGS, 1), Vec::new()),
            (head(1, GO_AWAY, 0), b"x".to_vec()),
        ];
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let mut reader = FrameReader::default();
                let mut frames: Vec<(FrameHead, Vec<u8>)> = Vec::new();
                for mut part in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                    while let Some(part) = reader.next(&mut part) {
                        match part {
                            FramePart::Head(head) => frames.push((head, Vec::new())),
                            FramePart::Payload(payload) => frames.last_mut().unwrap().1.extend(payload),
                        }
                    }
                }
                assert_eq!(frames, expected, "{first} {second}");
                assert!(reader.is_at_end());
            }
        }
    }
}
