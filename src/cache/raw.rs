//! The bytes of held resources, which share the buffers of their responses as long as that saves memory.
//!
//! Each buffer counts the bytes of it that are held. An entry that replaces or drops its bytes decrements the counter, and sets
//! a flag for all buffers of the table when less than half is left. The end of the next response looks at that flag, and only
//! if it is set at the buffers and the entries of their parts.

use std::{
    hash::{DefaultHasher, Hasher},
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;

use crate::protocol::{EntryId, Span};

/// The bytes that a resource was parsed from.
#[derive(Debug)]
pub(crate) struct Raw {
    /// Where the bytes are.
    stored: Stored,
}

/// The owner of the bytes. All variants have the same small size, since each held resource has one.
#[derive(Debug)]
enum Stored {
    /// A copy, of a resource in a small or mostly unused response.
    Own { bytes: Arc<[u8]>, bare: bool },
    /// The typed value shares a part of them.
    ///
    /// The value holds the allocation anyway, so that this is a second pointer to it and no copy. Boxed, since `Bytes` would
    /// make all variants larger.
    Shared { bytes: Box<Bytes>, bare: bool },
    /// A digest of the bytes, which are not kept; `None` for bytes that were never here.
    Digest(Option<Box<Digest>>),
    /// A range of a large response, counted in it.
    Part { of: Arc<ResponseBuffer>, start: u32, length: u32, bare: bool },
}

/// A large response that resources share parts of: its bytes are not copied as long as most of the response is held.
///
/// When more than half of it is not held any more, the remaining holders copy their parts, so that a few resources do
/// not keep a whole response. A small response is not worth that.
#[derive(Debug)]
pub(crate) struct ResponseBuffer {
    /// The whole response. Kept as it arrived: parts are ranges of it, so that nothing is copied when a response is applied.
    message: Bytes,
    /// The number of its bytes that are held. Atomic since buffers are shared by `Arc`; relaxed, since no other memory depends
    /// on the order of its changes.
    held: AtomicUsize,
    /// Set when some buffer of the same table is sparse. Set by a part that is dropped, which has no access to the table.
    some_is_sparse: Arc<AtomicBool>,
}

/// The responses that resources hold parts of.
#[derive(Debug, Default)]
pub(super) struct ResponseBuffers {
    /// The buffers, each with the entries that hold a part of it. The ids may be those of other entries by now, which then hold
    /// no part of it and are not copied.
    all: Vec<(Arc<ResponseBuffer>, Vec<EntryId>)>,
    /// Shared with the buffers, so that nothing is searched as long as none is sparse.
    some_is_sparse: Arc<AtomicBool>,
}

/// The length and two hashes of the bytes of a resource. Equal bytes are told by them; a server that constructs a collision hides its
/// own change.
#[derive(Debug, PartialEq, Eq)]
struct Digest {
    length: usize,
    hashes: [u64; 2],
}

impl Digest {
    fn of(bytes: &[u8]) -> Self {
        let hashes = [0_u8, 1].map(|seed| {
            // With fixed keys: the core has no randomness.
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(seed);
            hasher.write(bytes);
            hasher.finish()
        });
        Self { length: bytes.len(), hashes }
    }
}

impl Raw {
    /// What remains of bytes that are not kept.
    pub(crate) fn digest(bytes: &[u8]) -> Self {
        Self { stored: Stored::Digest(Some(Box::new(Digest::of(bytes)))) }
    }

    /// Bytes that are not here: all others differ from them.
    pub(crate) fn unknown() -> Self {
        Self { stored: Stored::Digest(None) }
    }

    /// Whether these are the bytes.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        match &self.stored {
            Stored::Digest(digest) => digest.as_ref().is_some_and(|digest| **digest == Digest::of(bytes)),
            Stored::Own { .. } | Stored::Shared { .. } | Stored::Part { .. } => **self == *bytes,
        }
    }

    /// Whether the bytes are here.
    pub(crate) fn is_kept(&self) -> bool {
        !matches!(self.stored, Stored::Digest(_))
    }

    /// Records that it came without a wrapper, so that its name is the one in the bytes.
    ///
    /// Set by the caller and not derived, since a wrapped resource of these bytes may have another name.
    #[must_use]
    pub(crate) fn with_bare(mut self, is_bare: bool) -> Self {
        match &mut self.stored {
            Stored::Own { bare, .. } | Stored::Shared { bare, .. } | Stored::Part { bare, .. } => {
                *bare = is_bare
            }
            // There are no bytes to compare with.
            Stored::Digest(_) => {}
        }
        self
    }

    /// Whether the message came without a wrapper.
    pub(crate) fn is_bare(&self) -> bool {
        match self.stored {
            Stored::Own { bare, .. } | Stored::Shared { bare, .. } | Stored::Part { bare, .. } => bare,
            Stored::Digest(_) => false,
        }
    }

    /// The bytes, shared.
    ///
    /// For the status, which shares the bytes with its reader; comparisons use the slice. A status that is kept keeps a whole
    /// response.
    pub(crate) fn to_bytes(&self) -> Bytes {
        match &self.stored {
            Stored::Own { bytes, .. } => Bytes::from_owner(bytes.clone()),
            Stored::Shared { bytes, .. } => (**bytes).clone(),
            Stored::Digest(_) => Bytes::new(),
            Stored::Part { of, start, length, .. } => {
                of.message.slice(*start as usize..(*start + *length) as usize)
            }
        }
    }

    /// Copies the bytes, if they are part of a response of which most is not held any more.
    pub(super) fn copy_if_sparse(&mut self) {
        if let Stored::Part { of, bare, .. } = &self.stored
            && of.is_sparse()
        {
            self.stored = Stored::Own { bytes: (**self).into(), bare: *bare };
        }
    }
}

impl Deref for Raw {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.stored {
            Stored::Own { bytes, .. } => bytes,
            Stored::Shared { bytes, .. } => bytes,
            Stored::Digest(_) => &[],
            Stored::Part { of, start, length, .. } => &of.message[*start as usize..][..*length as usize],
        }
    }
}

/// A copy, of which nothing is known but that it exists.
impl From<&[u8]> for Raw {
    fn from(bytes: &[u8]) -> Self {
        Self { stored: Stored::Own { bytes: bytes.into(), bare: false } }
    }
}

/// Bytes that are shared with another holder.
impl From<Bytes> for Raw {
    fn from(bytes: Bytes) -> Self {
        Self { stored: Stored::Shared { bytes: Box::new(bytes), bare: false } }
    }
}

impl Drop for Stored {
    // The counter is decremented here and not in `Entry`, since bytes are dropped in many ways: replaced, expired, removed with
    // their entry, or copied.
    fn drop(&mut self) {
        if let Self::Part { of, length, .. } = self {
            of.held.fetch_sub(*length as usize, Ordering::Relaxed);
            if of.is_sparse() {
                of.some_is_sparse.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl ResponseBuffer {
    /// What a resource is parsed from: a part of the message.
    pub(crate) fn part(self: &Arc<Self>, part: Span) -> Raw {
        let Span { start, length } = part;
        self.held.fetch_add(length as usize, Ordering::Relaxed);
        Raw { stored: Stored::Part { of: self.clone(), start, length, bare: false } }
    }

    /// Whether less than half of it is held, so that copies of the held parts need less memory.
    fn is_sparse(&self) -> bool {
        self.held.load(Ordering::Relaxed) < self.message.len() / 2
    }
}

impl ResponseBuffers {
    /// Makes a response one whose parts can be held; `None` when it is too small for that.
    ///
    /// The response is not kept before the response has been applied: [`keep`](Self::keep) then knows how much of it is held. Until then
    /// nothing of it is copied, although nothing of it is held at first.
    pub(super) fn new_buffer(&self, message: &Bytes) -> Option<Arc<ResponseBuffer>> {
        let buffer = || ResponseBuffer {
            message: message.clone(),
            held: AtomicUsize::new(0),
            some_is_sparse: self.some_is_sparse.clone(),
        };
        (message.len() >= SMALLEST).then(|| Arc::new(buffer()))
    }

    /// Keeps a response, and the entries of its parts; returns the entries whose bytes are to be copied now.
    ///
    /// A response of which most was rejected or unchanged is sparse from the beginning.
    pub(super) fn keep(&mut self, buffer: Arc<ResponseBuffer>, parts: Vec<EntryId>) -> Vec<EntryId> {
        if buffer.is_sparse() {
            self.some_is_sparse.store(true, Ordering::Relaxed);
        }
        self.all.push((buffer, parts));
        self.take_sparse()
    }

    /// Forgets the responses that are mostly not held any more; returns the entries that may hold some of the rest.
    ///
    /// Amortized, each part is copied at most once, since it is a copy afterwards.
    pub(super) fn take_sparse(&mut self) -> Vec<EntryId> {
        if !self.some_is_sparse.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        self.all.extract_if(.., |(buffer, _)| buffer.is_sparse()).flat_map(|(_, parts)| parts).collect()
    }
}

/// The size of a response below which parts are copied, in bytes.
const SMALLEST: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Four resources of equal size that fill a response.
    fn response(buffers: &ResponseBuffers) -> (Arc<ResponseBuffer>, Vec<Raw>) {
        let message: Bytes = (0..4_u8).flat_map(|number| [number; SMALLEST / 4]).collect();
        let buffer = buffers.new_buffer(&message).expect("it is large enough");
        let length = (SMALLEST / 4) as u32;
        let parts = (0..4).map(|number| buffer.part(Span { start: number * length, length }));
        let parts = parts.collect();
        (buffer, parts)
    }

    #[test]
    fn a_small_response_has_no_parts() {
        assert!(ResponseBuffers::default().new_buffer(&Bytes::from(vec![0; SMALLEST - 1])).is_none());
    }

    #[test]
    fn parts_are_copied_when_less_than_half_of_a_response_is_held() {
        let mut buffers = ResponseBuffers::default();
        let (buffer, mut parts) = response(&buffers);
        let weak = Arc::downgrade(&buffer);
        assert_eq!(buffers.keep(buffer, vec![EntryId(7)]), []);
        drop(parts.drain(..2));
        assert_eq!(buffers.take_sparse(), [], "half of it");
        parts.remove(0);
        assert_eq!(buffers.take_sparse(), [EntryId(7)]);
        parts[0].copy_if_sparse();
        assert!(weak.upgrade().is_none(), "nothing keeps it");
        assert_eq!(*parts[0], [3; SMALLEST / 4]);
    }

    #[test]
    fn parts_are_copied_at_once_if_less_than_half_of_a_response_was_taken() {
        let mut buffers = ResponseBuffers::default();
        let (buffer, parts) = response(&buffers);
        drop(parts);
        let mut part = buffer.part(Span { start: 5, length: 3 }).with_bare(true);
        assert_eq!(buffers.keep(buffer, vec![EntryId(1)]), [EntryId(1)]);
        part.copy_if_sparse();
        assert!(matches!(part.stored, Stored::Own { bare: true, .. }));
        assert_eq!((&*part, &*part.to_bytes()), (&[0; 3][..], &[0; 3][..]));
    }

    #[test]
    fn parts_of_what_is_held_stay_parts() {
        let buffers = ResponseBuffers::default();
        let (_buffer, mut parts) = response(&buffers);
        parts[1].copy_if_sparse();
        assert!(matches!(parts[1].stored, Stored::Part { .. }));
        assert_eq!(*parts[1].to_bytes(), [1; SMALLEST / 4]);
    }
}
