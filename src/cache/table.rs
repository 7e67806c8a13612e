use super::Entry;
use crate::{chunked::Chunked, protocol::EntryId};

/// All resources of a client, in places of their own.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Chunked<Entry>,
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
