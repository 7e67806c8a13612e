//! The attempts that wait for a slot, and the order of their turns.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
};

use crate::balance::command::{Command, ConnectionId, LeafIndex};

/// How urgent an attempt is, the most urgent first. The more urgent ones have their turns before all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::balance) enum Urgency {
    /// A call waits for this endpoint.
    Requested,
    /// The cluster has no connection.
    Unserved,
    /// Calls are served by other endpoints of the cluster.
    Ordinary,
    /// The endpoint did not answer the last attempt.
    Silent,
    /// The connection is to replace one that is in use (CH7.7).
    Replacement,
}

/// The attempts of one priority of a cluster, which have turns with those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::balance) struct QueueId {
    /// The place of the cluster among those of the balancer.
    pub(in crate::balance) leaf: LeafIndex,
    pub(in crate::balance) part: QueuePart,
}

/// A part of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::balance) enum QueuePart {
    Priority(usize),
    /// The endpoints to which cookies alone lead.
    SessionEndpoints,
}

/// The attempts that wait for a slot.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The queues of each urgency, the most urgent one first.
    by_urgency: BTreeMap<Urgency, Turns>,
    /// The place of each attempt.
    turns: BTreeMap<ConnectionId, (Urgency, QueueId)>,
}

/// The queues of one urgency.
#[derive(Debug, Default)]
struct Turns {
    queues: BTreeMap<QueueId, Queue>,
    /// The queue that had the last turn.
    last: Option<QueueId>,
}

/// Attempts in the order of their requests, which is that of their ids.
#[derive(Debug, Default)]
struct Queue {
    attempts: BTreeMap<ConnectionId, Command>,
    /// The last turn was that of the oldest attempt.
    is_newest_next: bool,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Adds an attempt to its queue, at the place of its id.
    pub(super) fn insert(
        &mut self,
        connection: ConnectionId,
        command: Command,
        (urgency, queue): (Urgency, QueueId),
    ) {
        self.turns.insert(connection, (urgency, queue));
        let queues = &mut self.by_urgency.entry(urgency).or_default().queues;
        queues.entry(queue).or_default().attempts.insert(connection, command);
    }

    /// Takes an attempt out, with its turn. `None` if it does not wait, as it has begun or was cancelled.
    pub(super) fn remove(&mut self, connection: ConnectionId) -> Option<(Command, (Urgency, QueueId))> {
        let (urgency, queue) = self.turns.remove(&connection)?;
        let queues = &mut self.by_urgency.get_mut(&urgency)?.queues;
        let from = queues.get_mut(&queue)?;
        let command = from.attempts.remove(&connection)?;
        if from.attempts.is_empty() {
            // Only the queue: its urgency keeps the last turn, so that other queues are not passed over.
            queues.remove(&queue);
        }
        Some((command, (urgency, queue)))
    }

    /// An attempt that waits has another urgency from now on.
    pub(super) fn change_urgency(&mut self, connection: ConnectionId, urgency: Urgency) {
        if let Some((command, (_, queue))) = self.remove(connection) {
            self.insert(connection, command, (urgency, queue));
        }
    }

    /// Takes the attempt whose turn it is, of the queues that may begin one.
    pub(super) fn take_next(
        &mut self,
        may_begin: impl Fn(Urgency, QueueId) -> bool,
    ) -> Option<(ConnectionId, Command, (Urgency, QueueId))> {
        let found = self.by_urgency.iter().find_map(|(urgency, turns)| {
            let queue = turns.in_turn().find(|(id, _)| may_begin(*urgency, **id));
            queue.and_then(|(id, queue)| Some((*urgency, *id, queue.next(*urgency)?)))
        });
        let (urgency, id, connection) = found?;
        if let Some(turns) = self.by_urgency.get_mut(&urgency) {
            turns.last = Some(id);
            if let Some(queue) = turns.queues.get_mut(&id) {
                queue.is_newest_next = !queue.is_newest_next;
            }
        }
        let (command, turn) = self.remove(connection)?;
        Some((connection, command, turn))
    }
}

impl Turns {
    /// The queues, beginning after that of the last turn.
    fn in_turn(&self) -> impl Iterator<Item = (&QueueId, &Queue)> {
        let (after, before) = match self.last {
            Some(last) => {
                let after = self.queues.range((Excluded(last), Unbounded));
                (after, Some(self.queues.range(..=last)))
            }
            None => (self.queues.range(..), None),
        };
        after.chain(before.into_iter().flatten())
    }
}

impl Queue {
    /// The oldest attempt and the newest one by turns, so that an endpoint that was added while many others wait does not wait for all
    /// of these; of repeated attempts the oldest one.
    fn next(&self, urgency: Urgency) -> Option<ConnectionId> {
        let takes_newest = match urgency {
            Urgency::Unserved | Urgency::Ordinary => self.is_newest_next,
            Urgency::Requested | Urgency::Silent | Urgency::Replacement => false,
        };
        let next =
            if takes_newest { self.attempts.last_key_value() } else { self.attempts.first_key_value() };
        next.map(|(connection, _)| *connection)
    }
}
