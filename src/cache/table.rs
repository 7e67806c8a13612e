use std::sync::Arc;

use bytes::Bytes;

use super::{Entry, ResponseBuffer, raw::ResponseBuffers};
use crate::{chunked_slab::ChunkedSlab, protocol::EntryId};

/// All resources of a client, each in a slot of its own.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: ChunkedSlab<Entry>,
    origins: ResponseBuffers,
}

impl Table {
    pub(crate) fn insert(&mut self, entry: Entry) -> EntryId {
        EntryId(self.entries.insert(entry))
    }

    pub(crate) fn remove(&mut self, id: EntryId) -> Option<Entry> {
        self.entries.remove(id.0)
    }

    pub(crate) fn get(&self, id: EntryId) -> Option<&Entry> {
        self.entries.get(id.0)
    }

    pub(crate) fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.entries.get_mut(id.0)
    }

    /// Makes a response one that resources may be parts of; `None` when it is too small for that.
    pub(crate) fn begin_origin(&self, message: &Bytes) -> Option<Arc<ResponseBuffer>> {
        self.origins.begin(message)
    }

    /// Keeps a response that entries may have parts of.
    pub(crate) fn keep_origin(&mut self, origin: Arc<ResponseBuffer>, parts: Vec<EntryId>) {
        let sparse = self.origins.keep(origin, parts);
        self.settle_raw(sparse);
    }

    /// Copies the held parts of responses that are mostly not held any more.
    pub(crate) fn settle_origins(&mut self) {
        let sparse = self.origins.take_sparse();
        self.settle_raw(sparse);
    }

    fn settle_raw(&mut self, entries: Vec<EntryId>) {
        for id in entries {
            if let Some(entry) = self.get_mut(id) {
                entry.settle_raw();
            }
        }
    }

    /// All entries, in a fixed order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (EntryId, &Entry)> {
        self.entries.iter().map(|(id, entry)| {
            #[cfg(test)]
            crate::scans::note();
            (EntryId(id), entry)
        })
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
