//! The length-prefixed messages of gRPC's protocol: a flag of compression, the length in four bytes, and the message.

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use grpc::core::SendMessage;
use http::HeaderValue;
use tonic::Status;

/// A message with its prefix.
pub(super) struct Encoded {
    /// The prefix, and a small message behind it.
    head: Bytes,
    /// A large message, which is not copied.
    rest: Bytes,
}

/// Encodes a message without compression.
///
/// # Errors
/// The reason why it cannot be sent.
pub(super) fn encode(message: &dyn SendMessage) -> Result<Encoded, String> {
    let mut message = message.encode().map_err(|error| format!("the message cannot be encoded: {error}"))?;
    let size = message.remaining();
    let length = u32::try_from(size).map_err(|_| format!("the message has {size} bytes, 4 GiB or more"))?;
    let is_copied = size <= COPIED;
    let mut head = BytesMut::with_capacity(PREFIX + if is_copied { size } else { 0 });
    head.put_u8(0);
    head.put_u32(length);
    let rest = if is_copied {
        head.put(&mut *message);
        Bytes::new()
    } else {
        message.copy_to_bytes(size)
    };
    Ok(Encoded { head: head.freeze(), rest })
}

impl Encoded {
    /// Splits off the first part.
    pub(super) fn split(self) -> (Bytes, Option<Self>) {
        let Self { head, rest } = self;
        let rest = (!rest.is_empty()).then(|| Self { head: rest, rest: Bytes::new() });
        (head, rest)
    }
}

/// The received bytes of a response, read message by message.
pub(super) struct ReceivedMessages {
    buffer: Chunks,
    /// The length of the next message, once its prefix was read.
    length: Option<usize>,
    /// The largest message, in bytes.
    limit: usize,
    /// The header `grpc-encoding`, for errors.
    encoding: Option<HeaderValue>,
}

impl ReceivedMessages {
    /// The messages of a response whose body has not been read. `limit` is the size of the largest one, in bytes.
    pub(super) fn new(limit: usize, encoding: Option<HeaderValue>) -> Self {
        Self { buffer: Chunks::default(), length: None, limit, encoding }
    }

    /// Adds data of the body.
    pub(super) fn push(&mut self, data: Bytes) {
        self.buffer.push(data);
    }

    /// Whether the data end within a message.
    pub(super) fn is_incomplete(&self) -> bool {
        self.length.is_some() || self.buffer.has_remaining()
    }

    /// Decodes the next message with a function, if it is complete.
    ///
    /// # Errors
    /// The message is too large, compressed or malformed.
    pub(super) fn decode_next(
        &mut self,
        decode: impl FnOnce(&mut dyn Buf) -> Result<(), String>,
    ) -> Result<bool, Status> {
        let length = match self.length {
            Some(length) => length,
            None if self.buffer.remaining() < PREFIX => return Ok(false),
            None => self.read_prefix()?,
        };
        self.length = Some(length);
        if self.buffer.remaining() < length {
            return Ok(false);
        }
        self.length = None;
        let mut message = (&mut self.buffer).take(length);
        decode(&mut message).map_err(|error| {
            Status::internal(format!("the message of {length} bytes cannot be decoded: {error}"))
        })?;
        // A decoder may leave bytes unread.
        let rest = message.remaining();
        message.advance(rest);
        Ok(true)
    }

    /// Reads the flag and the length of a message.
    fn read_prefix(&mut self) -> Result<usize, Status> {
        let (flag, length) = (self.buffer.get_u8(), self.buffer.get_u32());
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if flag != 0 {
            let encoding = self.encoding.as_ref().map(|value| String::from_utf8_lossy(value.as_bytes()));
            return Err(Status::internal(format!(
                "the response has a compressed message (flag {flag}, grpc-encoding {:?}), which the request did not accept",
                encoding.as_deref().unwrap_or("identity")
            )));
        }
        if length > self.limit {
            let limit = self.limit;
            return Err(Status::resource_exhausted(format!(
                "the response has a message of {length} bytes, max_receive_message_size is {limit}"
            )));
        }
        Ok(length)
    }
}

/// Received bytes. Large parts stay as they came, small ones are merged: each may keep a whole buffer in memory.
#[derive(Default)]
struct Chunks {
    /// The first bytes; empty only if there are none.
    front: Bytes,
    /// The parts behind them.
    more: VecDeque<Bytes>,
    /// The last small parts.
    merged: BytesMut,
    /// The bytes behind `front`.
    behind: usize,
}

impl Chunks {
    /// Appends bytes.
    fn push(&mut self, data: Bytes) {
        if self.front.is_empty() {
            self.front = data;
            return;
        }
        self.behind += data.len();
        if data.len() < MERGED {
            self.merged.extend_from_slice(&data);
            return;
        }
        if !self.merged.is_empty() {
            self.more.push_back(self.merged.split().freeze());
        }
        self.more.push_back(data);
    }

    /// Replaces the front, all of which was read.
    fn pop(&mut self) {
        self.front = self.more.pop_front().unwrap_or_else(|| self.merged.split().freeze());
        self.behind -= self.front.len();
    }
}

impl Buf for Chunks {
    fn remaining(&self) -> usize {
        self.front.len() + self.behind
    }

    fn chunk(&self) -> &[u8] {
        &self.front
    }

    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let here = count.min(self.front.len());
            self.front.advance(here);
            count -= here;
            if self.front.is_empty() {
                // The contract of `Buf`: there is not less than the count.
                assert!(count == 0 || self.behind > 0, "advanced beyond the end");
                self.pop();
            }
        }
    }

    fn copy_to_bytes(&mut self, length: usize) -> Bytes {
        // Without a copy if the first part has all of it.
        if length < self.front.len() {
            return self.front.split_to(length);
        }
        if length == self.front.len() {
            let front = std::mem::take(&mut self.front);
            self.pop();
            return front;
        }
        let mut copied = BytesMut::with_capacity(length);
        copied.put(self.take(length));
        copied.freeze()
    }
}

/// The length of the prefix of a message, in bytes.
const PREFIX: usize = 5;
/// Messages up to this size, in bytes, are copied behind their prefix, to be one frame; larger ones are parts of their own.
const COPIED: usize = 4 << 10;
/// Received parts of fewer bytes are merged.
const MERGED: usize = 4 << 10;

#[cfg(test)]
mod tests;
