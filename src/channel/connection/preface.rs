//! The first bytes of a connection, with another value in their SETTINGS.

use std::borrow::Cow;

use super::outbound::PREFACE;

/// Rewrites SETTINGS_MAX_HEADER_LIST_SIZE in the SETTINGS frame after the connection preface.
///
/// The h2 crate announces the size at which it resets streams, and closes connections at 4 times that. Servers are to know the
/// smaller size of which a call alone is failed, with the name of the limit.
#[derive(Debug, Default)]
pub(super) struct Preface {
    /// The value to announce; `None` once the SETTINGS are written.
    size: Option<[u8; 4]>,
    /// The bytes that were written so far, as they were written.
    written: Vec<u8>,
}

impl Preface {
    /// Creates a preface that announces this size.
    pub(super) fn announcing(size: u32) -> Self {
        Self { size: Some(size.to_be_bytes()), written: Vec::new() }
    }

    /// Whether the rest is written as it is.
    pub(super) fn is_written(&self) -> bool {
        self.size.is_none()
    }

    /// Returns the bytes to write in place of these.
    pub(super) fn changed<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(size) = &self.size else { return bytes.into() };
        let mut all = [&self.written, bytes].concat();
        // The identifier comes before the value, so that no byte of the value is written before it is found.
        let Some(at) = parameter(&all) else { return bytes.into() };
        // A part of the value may be there already.
        let known = self.written.len();
        for (place, byte) in (at..).zip(size) {
            if let Some(target) = all.get_mut(place).filter(|_| place >= known) {
                *target = *byte;
            }
        }
        all.split_off(known).into()
    }

    /// Handles that these bytes were written.
    pub(super) fn on_written(&mut self, bytes: &[u8]) {
        if self.is_written() {
            return;
        }
        self.written.extend_from_slice(bytes);
        // A length that is not known yet counts as longer than anything, in a sum that does not overflow.
        if self.written.len()
            >= PREFACE + FRAME_HEAD + settings_length(&self.written).unwrap_or(usize::MAX >> 1)
        {
            *self = Self::default();
        }
    }
}

/// Returns the position of the value of SETTINGS_MAX_HEADER_LIST_SIZE.
fn parameter(bytes: &[u8]) -> Option<usize> {
    let begin = PREFACE + FRAME_HEAD;
    let end = begin + settings_length(bytes)?;
    (begin..end).step_by(6).find(|at| bytes.get(*at..at + 2) == Some(&[0, 6])).map(|at| at + 2)
}

/// The length of the SETTINGS frame.
fn settings_length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.get(PREFACE..PREFACE + FRAME_HEAD)?;
    // The highest of the three bytes of the length is 0: these are the few parameters of this side.
    Some(usize::from(head[1]) << 8 | usize::from(head[2]))
}

/// The length of the head of a frame.
const FRAME_HEAD: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    /// The preface with two parameters and a frame behind it.
    fn written() -> Vec<u8> {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend([0, 0, 12, 4, 0, 0, 0, 0, 0]);
        bytes.extend([0, 4, 0, 0, 255, 255]);
        bytes.extend([0, 6, 0, 1, 0, 0]);
        bytes.extend([0, 6, 0, 1, 0, 0]);
        bytes
    }

    #[test]
    fn ch15_9_the_announced_header_list_size_is_the_configured_one_however_the_bytes_are_cut() {
        let all = written();
        let mut expected = all.clone();
        expected[41..45].copy_from_slice(&16_384_u32.to_be_bytes());
        for first in 0..all.len() {
            for second in first..all.len() {
                let mut preface = Preface::announcing(16_384);
                let mut sent = Vec::new();
                for part in [&all[..first], &all[first..second], &all[second..]] {
                    let changed = preface.changed(part).into_owned();
                    preface.on_written(&changed);
                    sent.extend(changed);
                }
                assert_eq!(sent, expected, "{first} {second}");
                assert!(preface.is_written() && preface.written.is_empty());
            }
        }
    }
}
