//! What is written on a connection, as far as h2 does not show it.

use super::frames::{FramePart, FrameReader, Prefix, RST_STREAM};

/// Counts the frames by which h2 answers those on streams that it has forgotten.
///
/// The h2 crate closes a connection after a number of these during its life. A connection that comes near to that is replaced before.
#[derive(Debug, Default)]
pub(super) struct OutboundFrames {
    reader: FrameReader,
    is_reset: bool,
    code: Prefix<4>,
}

impl OutboundFrames {
    /// Takes the next bytes that are written. Returns the number of streams that were reset with STREAM_CLOSED.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> usize {
        let mut count = 0;
        while let Some(part) = self.reader.next(&mut bytes) {
            match part {
                FramePart::Head(head) => {
                    self.is_reset = head.kind == RST_STREAM;
                    self.code = Prefix::default();
                }
                FramePart::Payload(mut payload) if self.is_reset => {
                    count += usize::from(self.code.take(&mut payload) == Some(STREAM_CLOSED));
                }
                FramePart::Payload(_) => {}
            }
        }
        count
    }
}

const STREAM_CLOSED: [u8; 4] = [0, 0, 0, 5];
