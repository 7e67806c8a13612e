//! Which attempts to connect begin, and when (CH11.8).

mod shortage;
mod slots;
mod waiting;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

pub(super) use self::waiting::{QueueId, QueuePart, Urgency};
use self::{
    shortage::Shortage,
    slots::{Slot, Slots},
    waiting::Waiting,
};
use super::{
    command::{Command, ConnectionId},
    connect_error::ConnectFailure,
};

/// The attempts to connect, of which a limited number begins at a time.
///
/// An attempt holds a slot until it ends, or for [`SLOT_TIME`] if it does not: an endpoint without an answer keeps no other one from
/// being connected for longer. What waits for a slot has its turn by its [`Urgency`], then in turns between clusters and their
/// priorities. A quarter of the slots is for attempts that calls have requested, and for priorities that have no slot.
///
/// While file descriptors are lacking, each cluster attempts one connection a second, and clusters without any connection go first.
#[derive(Debug, Default)]
pub(super) struct Connects {
    /// Commands other than those to connect, the oldest one first.
    outgoing: VecDeque<Command>,
    waiting: Waiting,
    slots: Slots,
    /// The attempts that have begun and not ended, with and without a slot.
    running: BTreeMap<ConnectionId, Running>,
    shortage: Shortage,
    /// Connections in use, by those of attempts that are to replace them and wait.
    replaced: BTreeMap<ConnectionId, ConnectionId>,
}

/// An attempt that has begun.
#[derive(Debug)]
struct Running {
    queue: QueueId,
    urgency: Urgency,
    /// When the attempt loses its slot, unless it has ended.
    slot_ends_at: Instant,
}

impl Connects {
    /// An attempt is to begin as soon as it has a slot.
    pub(super) fn add(&mut self, connection: ConnectionId, command: Command, turn: (Urgency, QueueId)) {
        if let Command::Connect { purpose, .. } = &command
            && let Some(replaced) = purpose.replaces()
        {
            self.replaced.insert(replaced, connection);
        }
        self.waiting.insert(connection, command, turn);
    }

    /// A command that is none to connect.
    pub(super) fn pass(&mut self, command: Command) {
        // Many connections may be lost at once, and one resolution serves all of them (CH1.27).
        if !matches!(command, Command::RequestReresolution) || !self.outgoing.contains(&command) {
            self.outgoing.push_back(command);
        }
    }

    /// An attempt is no longer needed.
    pub(super) fn cancel(&mut self, connection: ConnectionId) {
        if self.running.remove(&connection).is_some() {
            self.slots.free(connection);
            self.outgoing.push_back(Command::Cancel { connection });
        } else if self.waiting.remove(connection).is_some() {
            // The connector does not know the attempt yet, so no command is needed.
            self.replaced.retain(|_, attempt| *attempt != connection);
        }
    }

    /// The next command for the connector.
    pub(super) fn poll(&mut self, limit: usize, now: Instant) -> Option<Command> {
        // Before attempts: cancelled ones free the descriptors that these need.
        if let Some(command) = self.outgoing.pop_front() {
            return Some(command);
        }
        // An attempt goes on without its slot, for which the next ones need not wait (CH11.8).
        self.slots.expire(now);
        self.shortage.expire(now);
        let (slots, shortage) = (&self.slots, &self.shortage);
        let may_begin = |urgency: Urgency, queue: QueueId| {
            slots.permit(limit, urgency, queue) && shortage.permits(urgency, queue.leaf, now)
        };
        let (connection, command, (urgency, queue)) = self.waiting.take_next(may_begin)?;
        if let Command::Connect { purpose, .. } = &command
            && let Some(replaced) = purpose.replaces()
        {
            // The urgency of an attempt matters only until it begins.
            self.replaced.remove(&replaced);
        }
        let slot_ends_at = now + SLOT_TIME;
        self.slots.hold(connection, Slot { ends_at: slot_ends_at, queue, urgency });
        self.shortage.on_begin(queue.leaf, now);
        self.running.insert(connection, Running { queue, urgency, slot_ends_at });
        Some(command)
    }

    /// When [`poll`](Self::poll) may have another command, although nothing has happened.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        // While no attempt waits, the end of a slot must not wake an idle channel (CH11.11).
        let ends = [self.slots.first_end(), self.shortage.poll_timeout()];
        ends.into_iter().flatten().min().filter(|_| !self.waiting.is_empty())
    }

    /// An attempt succeeded.
    pub(super) fn on_connected(&mut self, connection: ConnectionId) {
        if let Some(running) = self.end(connection) {
            self.shortage.on_connected(running.queue.leaf);
        }
    }

    /// An attempt failed. Returns the cause, which is [`ConnectFailure::Silent`] if it had lost its slot before.
    pub(super) fn on_failed(
        &mut self,
        connection: ConnectionId,
        cause: ConnectFailure,
        now: Instant,
    ) -> ConnectFailure {
        let Some(Running { queue, urgency, slot_ends_at }) = self.end(connection) else { return cause };
        match cause {
            ConnectFailure::NoDescriptor => self.shortage.on_failed(urgency, queue.leaf, now),
            ConnectFailure::Refused if slot_ends_at <= now => return ConnectFailure::Silent,
            ConnectFailure::Refused | ConnectFailure::Silent => {}
        }
        cause
    }

    /// A connection was lost: calls may wait for the attempt to replace it.
    pub(super) fn on_lost(&mut self, lost: ConnectionId) {
        // An attempt that had succeeded and was lost before that was reported may still have its slot.
        self.end(lost);
        if let Some(attempt) = self.replaced.remove(&lost) {
            self.waiting.change_urgency(attempt, Urgency::Ordinary);
        }
    }

    /// The attempts that have begun.
    pub(super) fn running(&self) -> BTreeSet<ConnectionId> {
        self.running.keys().copied().collect()
    }

    /// Ends an attempt and frees its slot. `None` for established connections, and for attempts that have not begun.
    fn end(&mut self, connection: ConnectionId) -> Option<Running> {
        self.slots.free(connection);
        self.running.remove(&connection)
    }
}

/// The longest time for which an attempt holds its slot. Most connections are made in less, and of those that take longer not many
/// begin at once.
pub(super) const SLOT_TIME: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
