//! All entries of a client, by their ids.

use std::sync::Arc;

use bytes::Bytes;

use super::{Entry, ResponseBuffer, raw::ResponseBuffers};
use crate::{chunked_slab::ChunkedSlab, protocol::EntryId};

/// All resources of a client, each in a slot of its own.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The entries. In chunks that are never moved: a slab that doubles holds both copies while it does, which was a third of
    /// the peak memory.
    entries: ChunkedSlab<Entry>,
    /// The responses that their bytes are parts of.
    buffers: ResponseBuffers,
}

impl Table {
    /// Adds an entry.
    ///
    /// Ids of removed entries are used again, so that an id that was kept may be that of another entry.
    pub(crate) fn insert(&mut self, entry: Entry) -> EntryId {
        EntryId(self.entries.insert(entry))
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, id: EntryId) -> Option<Entry> {
        self.entries.remove(id.0)
    }

    /// The entry of an id, unless it was removed.
    ///
    /// `None` is a legal answer for ids that outlive a call, such as those in queues.
    pub(crate) fn get(&self, id: EntryId) -> Option<&Entry> {
        self.entries.get(id.0)
    }

    /// The entry of an id, unless it was removed.
    pub(crate) fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.entries.get_mut(id.0)
    }

    /// Makes a response one that resources may be parts of; `None` when it is too small for that.
    pub(crate) fn new_buffer(&self, message: &Bytes) -> Option<Arc<ResponseBuffer>> {
        self.buffers.new_buffer(message)
    }

    /// Keeps a response that entries may have parts of.
    ///
    /// To be called once the response has been applied: before that, nothing of it is held, and it would be taken for sparse.
    pub(crate) fn keep_buffer(&mut self, buffer: Arc<ResponseBuffer>, parts: Vec<EntryId>) {
        let sparse = self.buffers.keep(buffer, parts);
        self.copy_if_sparse(sparse);
    }

    /// Copies the held parts of responses that are mostly not held any more.
    pub(crate) fn copy_sparse(&mut self) {
        let sparse = self.buffers.take_sparse();
        self.copy_if_sparse(sparse);
    }

    /// Gives entries copies of their bytes where their buffer is sparse.
    fn copy_if_sparse(&mut self, entries: Vec<EntryId>) {
        for id in entries {
            // The entry may be gone, or another one by now: one without a sparse part is left as it is.
            if let Some(entry) = self.get_mut(id) {
                entry.copy_if_sparse();
            }
        }
    }

    /// All entries, in a fixed order.
    ///
    /// The iteration costs the whole cache. Tests count its steps, so that no event iterates where an index would do.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (EntryId, &Entry)> {
        self.entries.iter().map(|(id, entry)| {
            #[cfg(test)]
            crate::scans::add_one();
            (EntryId(id), entry)
        })
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
