//! The slots of attempts to connect.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use super::waiting::{QueueId, Urgency};
use crate::balance::command::ConnectionId;

/// The attempts that hold a slot.
#[derive(Debug, Default)]
pub(super) struct Slots {
    by_attempt: BTreeMap<ConnectionId, Slot>,
    by_end: BTreeSet<(Instant, ConnectionId)>,
    /// The number of slots of each queue that has any.
    by_queue: BTreeMap<QueueId, usize>,
    /// The number of those that are to replace a connection in use.
    replacing: usize,
}

/// The slot of an attempt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) ends_at: Instant,
    pub(super) queue: QueueId,
    pub(super) urgency: Urgency,
}

impl Slots {
    /// Whether there is a slot for an attempt, of so many.
    pub(super) fn permit(&self, limit: usize, urgency: Urgency, queue: QueueId) -> bool {
        let (held, quarter) = (self.by_attempt.len(), limit / 4);
        // A quarter is left to requested attempts and to queues without a slot, so that silent endpoints of one cluster do not
        // keep others from connecting (CH11.8).
        let is_ordinary = held < limit - quarter;
        let is_permitted = match urgency {
            Urgency::Requested => true,
            Urgency::Unserved | Urgency::Ordinary | Urgency::Silent => {
                is_ordinary || !self.by_queue.contains_key(&queue)
            }
            // Certificates may be replaced for all endpoints at once, and calls wait for none of these.
            // At least one at a time: a limit below 4 must not keep rotations from ending.
            Urgency::Replacement => is_ordinary && self.replacing < quarter.max(1),
        };
        held < limit && is_permitted
    }

    /// Gives a slot to an attempt, which [`permit`](Self::permit) has permitted.
    pub(super) fn hold(&mut self, connection: ConnectionId, slot: Slot) {
        self.by_attempt.insert(connection, slot);
        self.by_end.insert((slot.ends_at, connection));
        *self.by_queue.entry(slot.queue).or_default() += 1;
        self.replacing += usize::from(slot.urgency == Urgency::Replacement);
    }

    /// Frees the slot of an attempt, if it still has one.
    pub(super) fn free(&mut self, connection: ConnectionId) {
        let Some(slot) = self.by_attempt.remove(&connection) else { return };
        self.by_end.remove(&(slot.ends_at, connection));
        self.replacing -= usize::from(slot.urgency == Urgency::Replacement);
        if let Some(held) = self.by_queue.get_mut(&slot.queue) {
            *held -= 1;
            if *held == 0 {
                self.by_queue.remove(&slot.queue);
            }
        }
    }

    /// Frees the slots whose time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((_, connection)) = self.by_end.first().copied().filter(|(at, _)| *at <= now) {
            self.free(connection);
        }
    }

    /// When the next slot is freed at the latest.
    pub(super) fn first_end(&self) -> Option<Instant> {
        self.by_end.first().map(|(at, _)| *at)
    }
}
