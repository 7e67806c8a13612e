//! Frames that an endpoint sends on a stream after its own RST_STREAM.
//!
//! A server that ends a call may have frames of it in a queue: grpc-java sends DATA after the RST_STREAM of a call whose deadline has
//! passed there. RFC 9113, section 5.1, leaves it to the receiver whether that is an error of the stream or of the connection. The h2
//! crate closes the connection if the application has not read the end of the stream yet, and with it all other calls. Such frames are
//! therefore changed, before the crate has them, into what it ignores.

use std::collections::BTreeSet;

use super::frames::{DATA, FrameHead, HEAD, HEADERS, RST_STREAM};

/// Streams on which further frames are late.
#[derive(Debug, Default)]
pub(super) struct LateFrames {
    /// The streams that the endpoint has reset, the newest [`MAX_REMEMBERED`].
    reset: BTreeSet<u32>,
}

/// A change of a late frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The type becomes one that every receiver ignores, with the payload.
    Ignored,
    /// The flag END_STREAM is removed, and nothing else: a header list has to be decoded, since it changes the state of
    /// compression.
    WithoutEnd,
}

impl LateFrames {
    /// Whether any frame can be late.
    pub(super) fn is_possible(&self) -> bool {
        !self.reset.is_empty()
    }

    /// Returns the change of the frame with this head; `None` if it is not late.
    pub(super) fn look(&mut self, head: FrameHead) -> Option<Change> {
        // The reset itself has to reach h2, also when it is repeated.
        if head.kind == RST_STREAM {
            self.remember(head.stream);
            return None;
        }
        match head.kind {
            DATA if self.reset.contains(&head.stream) => Some(Change::Ignored),
            HEADERS if self.reset.contains(&head.stream) => Some(Change::WithoutEnd),
            _ => None,
        }
    }

    /// Remembers a stream that the endpoint has reset.
    fn remember(&mut self, stream: u32) {
        self.reset.insert(stream);
        if self.reset.len() > MAX_REMEMBERED {
            // What was reset that long before has left the h2 crate, which has an answer to later frames.
            self.reset.pop_first();
        }
    }
}

impl Change {
    /// Changes the bytes of a head.
    pub(super) fn apply(self, [_, _, _, kind, flags, ..]: &mut [u8; HEAD]) {
        match self {
            Self::Ignored => *kind = UNASSIGNED,
            Self::WithoutEnd => *flags &= !END_STREAM,
        }
    }
}

/// The number of streams that are remembered.
const MAX_REMEMBERED: usize = 1 << 10;
/// A type of frames that nothing defines, and that every receiver ignores (RFC 9113, section 5.5).
const UNASSIGNED: u8 = 0xff;
/// The flag of HEADERS that ends a stream.
const END_STREAM: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn look(late: &mut LateFrames, kind: u8, stream: u32) -> Option<Change> {
        late.look(FrameHead { length: 4, kind, flags: END_STREAM, stream })
    }

    #[test]
    fn ch15_8_frames_after_a_reset_of_the_endpoint_are_changed() {
        let mut late = LateFrames::default();
        assert_eq!(look(&mut late, DATA, 1), None);
        assert!(!late.is_possible());
        assert_eq!(look(&mut late, RST_STREAM, 1), None);
        assert!(late.is_possible());
        assert_eq!(look(&mut late, DATA, 3), None, "another stream");
        assert_eq!(look(&mut late, DATA, 1), Some(Change::Ignored));
        assert_eq!(look(&mut late, HEADERS, 1), Some(Change::WithoutEnd));
        let mut head = [0, 0, 4, DATA, END_STREAM, 0, 0, 0, 1];
        Change::Ignored.apply(&mut head);
        assert_eq!(head, [0, 0, 4, UNASSIGNED, END_STREAM, 0, 0, 0, 1]);
        let mut head = [0, 0, 4, HEADERS, 5, 0, 0, 0, 1];
        Change::WithoutEnd.apply(&mut head);
        assert_eq!(head, [0, 0, 4, HEADERS, 4, 0, 0, 0, 1]);
    }

    #[test]
    fn ch15_8_the_streams_that_an_endpoint_has_reset_are_bounded() {
        let mut late = LateFrames::default();
        for stream in 0..2 * MAX_REMEMBERED as u32 {
            look(&mut late, RST_STREAM, stream);
        }
        assert_eq!(late.reset.len(), MAX_REMEMBERED);
        assert_eq!(look(&mut late, DATA, 255), None, "the oldest are forgotten");
        assert_eq!(look(&mut late, DATA, 2 * MAX_REMEMBERED as u32 - 1), Some(Change::Ignored));
    }
}
