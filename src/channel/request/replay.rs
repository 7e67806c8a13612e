//! The kept parts of requests that may be sent again (CH6.16).

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::BytesMut;

use super::Part;

/// The memory of a channel for requests that may be sent again. It counts the memory in use: messages, and the bookkeeping for
/// them.
#[derive(Debug)]
pub(in crate::channel) struct RetryBuffer {
    /// The limit of one request, in bytes.
    per_call: usize,
    /// The limit of all requests of the channel together, in bytes.
    per_channel: usize,
    /// The memory of all requests.
    used: AtomicUsize,
}

/// The parts of a request that were sent, as long as the buffer has room for them, and how many of them the current attempt has
/// sent again.
pub(super) struct Replay {
    /// The kept parts.
    kept: Kept,
    /// The next part to be sent again; `None` if the attempt has sent all of them.
    next: Option<usize>,
    /// The bytes that are counted in the buffer.
    size: usize,
    buffer: Arc<RetryBuffer>,
}

/// The parts that are kept.
enum Kept {
    /// No part was sent.
    Nothing,
    /// One part, as most requests have, shared with the stream that sends it.
    One(Part),
    /// Several parts.
    Several(Parts),
    /// Parts are missing: the request cannot be sent again.
    Dropped,
}

/// Parts in their order. Small ones are merged: each by itself would take more memory for its place in the list than for its bytes,
/// and may keep a buffer in memory of which it is a small section.
#[derive(Default)]
struct Parts {
    /// Parts that do not grow any more.
    complete: Vec<Part>,
    /// The latest small parts. It never grows beyond its capacity, which is counted.
    open: BytesMut,
}

impl RetryBuffer {
    pub(in crate::channel) fn new(per_call: usize, per_channel: usize) -> Arc<Self> {
        Arc::new(Self { per_call, per_channel, used: AtomicUsize::new(0) })
    }

    /// The memory for all requests.
    #[cfg(test)]
    pub(in crate::channel) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Counts bytes of a request that has `before` bytes already; false if there is no room.
    fn take(&self, bytes: usize, before: usize) -> bool {
        if before + bytes > self.per_call {
            return false;
        }
        // Counted before it is compared, so that two calls cannot both take the last bytes.
        let is_taken = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.per_channel;
        if !is_taken {
            self.release(bytes);
        }
        is_taken
    }

    /// Gives memory back.
    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Replay {
    /// Creates a replay without parts.
    pub(super) fn new(buffer: &Arc<RetryBuffer>) -> Self {
        Self { kept: Kept::Nothing, next: None, size: 0, buffer: buffer.clone() }
    }

    /// Whether all that was sent can be sent again.
    pub(super) fn is_kept(&self) -> bool {
        match self.kept {
            Kept::Nothing | Kept::One(_) | Kept::Several(_) => true,
            Kept::Dropped => false,
        }
    }

    /// Whether the current attempt has not sent again all parts that an earlier one has sent.
    pub(super) fn is_replaying(&self) -> bool {
        self.next.is_some()
    }

    /// Returns the next part to send again; `None` after the last one.
    pub(super) fn next_part(&mut self) -> Option<Part> {
        // `rewind` has closed the chunk that was open, so that the complete parts are all of them.
        let next = self.next?;
        let (part, count) = match &self.kept {
            Kept::One(part) => (Some(part), 1),
            Kept::Several(parts) => (parts.complete.get(next), parts.complete.len()),
            Kept::Nothing | Kept::Dropped => (None, 0),
        };
        let part = part.cloned();
        self.next = Some(next + 1).filter(|next| *next < count);
        part
    }

    /// Begins with the first part again.
    pub(super) fn rewind(&mut self) {
        debug_assert!(self.is_kept(), "the beginning is not there any more");
        self.next = match &mut self.kept {
            Kept::One(_) => Some(0),
            Kept::Several(parts) => {
                parts.close();
                Some(0)
            }
            Kept::Nothing | Kept::Dropped => None,
        };
    }

    /// Drops the kept parts: the request is not sent again.
    pub(super) fn discard(&mut self) {
        (self.kept, self.next) = (Kept::Dropped, None);
        self.release();
    }

    /// Keeps a part that is sent for the first time.
    pub(super) fn keep(&mut self, part: &Part) {
        let is_kept = match mem::replace(&mut self.kept, Kept::Dropped) {
            Kept::Nothing => {
                self.kept = Kept::One(part.clone());
                self.take(part.size())
            }
            Kept::One(first) => {
                // It is counted anew as one of several.
                self.release();
                let mut parts = Parts::default();
                let is_kept = [&first, part].into_iter().all(|part| self.append(part, &mut parts));
                self.kept = Kept::Several(parts);
                is_kept
            }
            Kept::Several(mut parts) => {
                let is_kept = self.append(part, &mut parts);
                self.kept = Kept::Several(parts);
                is_kept
            }
            Kept::Dropped => return,
        };
        if !is_kept {
            self.discard();
        }
    }

    /// Keeps one more part; false if there is no room.
    fn append(&mut self, part: &Part, parts: &mut Parts) -> bool {
        let size = part.size();
        match part {
            Part::Data(data) if size < MERGED => {
                if parts.open.capacity() - parts.open.len() < size {
                    parts.close();
                    // Less than usual if there is no room for more.
                    let capacities = [(2 * parts.last_capacity()).clamp(FIRST_CHUNK, MERGED).max(size), size];
                    let capacity = capacities.into_iter().find(|capacity| self.take(capacity + BOOKKEEPING));
                    let Some(capacity) = capacity else { return false };
                    parts.open = BytesMut::with_capacity(capacity);
                }
                parts.open.extend_from_slice(data);
                true
            }
            Part::Data(_) | Part::Trailers(_) | Part::End => {
                parts.close();
                let is_taken = self.take(size + BOOKKEEPING);
                if is_taken {
                    parts.complete.push(part.clone());
                }
                is_taken
            }
        }
    }

    /// Counts bytes of the request; false if there is no room.
    fn take(&mut self, bytes: usize) -> bool {
        let is_taken = self.buffer.take(bytes, self.size);
        if is_taken {
            self.size += bytes;
        }
        is_taken
    }

    /// Gives all memory of the request back.
    fn release(&mut self) {
        self.buffer.release(mem::take(&mut self.size));
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.release();
    }
}

impl Parts {
    /// Completes the chunk of small parts; later ones get another chunk.
    fn close(&mut self) {
        if !self.open.is_empty() {
            self.complete.push(Part::Data(mem::take(&mut self.open).freeze()));
        }
    }

    /// Returns the length of the last part, if that was a chunk.
    fn last_capacity(&self) -> usize {
        match self.complete.last() {
            Some(Part::Data(data)) => data.len(),
            Some(Part::Trailers(_) | Part::End) | None => 0,
        }
    }
}

impl Part {
    /// Returns the memory of the contents, in bytes.
    fn size(&self) -> usize {
        match self {
            Self::Data(data) => data.len(),
            Self::Trailers(trailers) => {
                let sizes = trailers.iter().map(|(name, value)| name.as_str().len() + value.len());
                sizes.map(|size| size + BOOKKEEPING).sum()
            }
            Self::End => 0,
        }
    }
}

/// Data of fewer bytes are merged, and so are no longer shared with whoever sends them.
const MERGED: usize = 4 << 10;
/// The bytes for the first data that are merged; each further chunk has twice as many, up to [`MERGED`].
const FIRST_CHUNK: usize = 256;
/// The bytes that a part takes beside its contents, at most: its place in a list, which has room for twice as many and is copied when
/// it grows, and the count of references to its contents.
const BOOKKEEPING: usize = 192;

#[cfg(test)]
mod tests;
