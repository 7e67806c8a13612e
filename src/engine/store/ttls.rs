//! The expiry of resources with a time to live.
//!
//! Times to live come with resources (B1.17, B2.16), and end by an update, a heartbeat or the drop of the resource. While a
//! response is in progress nothing expires, since it may confirm what is due.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use crate::protocol::EntryId;

/// The expiry of resources: one deadline for any number of them. Setting one takes O(log n).
#[derive(Debug, Default)]
pub(super) struct Ttls {
    /// The expiry of each entry that has one.
    by_entry: BTreeMap<EntryId, Instant>,
    /// All expiries, in the order of time.
    queue: BTreeSet<(Instant, EntryId)>,
}

impl Ttls {
    /// A resource expires then, or never.
    pub(super) fn set(&mut self, id: EntryId, at: Option<Instant>) {
        let before = match at {
            Some(at) => self.by_entry.insert(id, at),
            None => self.by_entry.remove(&id),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.queue.remove(&(before, id));
        }
        self.queue.extend(at.map(|at| (at, id)));
    }

    /// The expiry of a resource, if it has one.
    pub(super) fn get(&self, id: EntryId) -> Option<Instant> {
        self.by_entry.get(&id).copied()
    }

    /// Whether nothing expires.
    pub(super) fn is_empty(&self) -> bool {
        self.by_entry.is_empty()
    }

    /// The earliest expiry.
    pub(super) fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Takes an entry that has expired by now, the earliest first.
    pub(super) fn pop(&mut self, now: Instant) -> Option<EntryId> {
        let (_, id) = *self.queue.first().filter(|(at, _)| *at <= now)?;
        self.set(id, None);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_deadline_for_any_number_of_resources() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut ttls = Ttls::default();
        assert_eq!(ttls.next(), None);
        (0..1000).for_each(|id| ttls.set(EntryId(id), Some(at(100 + u64::from(id)))));
        assert_eq!(ttls.next(), Some(at(100)));
        ttls.set(EntryId(0), Some(at(5000)));
        ttls.set(EntryId(1), None);
        ttls.set(EntryId(2), Some(at(102)));
        assert_eq!(ttls.next(), Some(at(102)));
        assert_eq!(ttls.pop(at(101)), None);
        assert_eq!((ttls.pop(at(103)), ttls.pop(at(103))), (Some(EntryId(2)), Some(EntryId(3))));
        assert_eq!(ttls.pop(at(103)), None);
        assert_eq!((ttls.queue.len(), ttls.by_entry.len()), (997, 997));
    }
}
