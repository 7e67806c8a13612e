//! The bytes of gRPC's messages in a body, without their prefixes (CH9.12).

/// Counts the bytes of messages, as compressed as they are sent. The parts of the body need not be whole messages.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(in crate::channel) struct MessageBytes {
    total: u64,
    /// The rest of the current message.
    left: u32,
    /// How many bytes of the next prefix were read, and the length in them.
    prefix: u8,
    length: u32,
}

impl MessageBytes {
    /// The bytes up to now.
    pub(in crate::channel) fn total(&self) -> u64 {
        self.total
    }

    /// The next part of the body.
    pub(in crate::channel) fn count(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.left == 0 {
                let Some((byte, rest)) = data.split_first() else { return };
                self.read_prefix(*byte);
                data = rest;
                continue;
            }
            let here = data.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            data = &data[here..];
            self.left -= here as u32;
            self.total += here as u64;
        }
    }

    /// A flag, then the length in four bytes.
    fn read_prefix(&mut self, byte: u8) {
        // The first byte is the flag of compression.
        if self.prefix > 0 {
            self.length = (self.length << 8) | u32::from(byte);
        }
        self.prefix += 1;
        if self.prefix == PREFIX {
            *self = Self { total: self.total, left: self.length, ..Self::default() };
        }
    }
}

/// The length of the prefix of a message.
const PREFIX: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ch9_12_sizes_count_messages_without_prefixes_however_the_body_is_cut() {
        let lengths = [0, 1, 300, 0, 70_000];
        let mut body = Vec::new();
        for length in lengths {
            body.push(u8::from(length > 1));
            body.extend((length as u32).to_be_bytes());
            // Its bytes look like prefixes.
            body.extend((0..length).map(|byte| byte as u8));
        }
        for step in [1, 2, 3, 4, 5, 6, 7, 1_000, body.len()] {
            let mut bytes = MessageBytes::default();
            body.chunks(step).for_each(|part| bytes.count(part));
            assert_eq!(bytes.total(), 70_301, "in parts of {step}");
            assert_eq!(bytes, MessageBytes { total: 70_301, ..MessageBytes::default() });
        }
    }

    #[test]
    fn ch9_12_a_message_that_is_cut_off_counts_as_far_as_it_was_sent() {
        let mut bytes = MessageBytes::default();
        bytes.count(&[0, 255, 255, 255, 255, 1, 2, 3]);
        assert_eq!(bytes.total(), 3);
        bytes.count(&[]);
        assert_eq!(bytes.total(), 3);
    }
}
