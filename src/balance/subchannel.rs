use std::{collections::BTreeSet, mem, net::SocketAddr, sync::Arc, time::Instant};

use super::{
    backoff::{Attempt, Backoff, BackoffSettings},
    command::{Command, Commands, ConnectionId},
    connectivity::Connectivity,
    identity::Destination,
    stream_queue::{OnFull, StreamQueue},
    streams::Streams,
};

/// One destination of an endpoint, which is an address with its identity: its connections, the attempt at another one, and the delay after a failure (CH3.1).
///
/// ```text
///          connect            on_connected
///   Idle ─────────────▶ Connecting ─────────▶ Idle, one connection more
///    ▲ ▲   scale          │      │
///    │ └── on_timeout ─ Failed ◀ on_failed
///    └──── on_lost ───────┘
/// ```
///
/// With a connection it is ready, whatever becomes of the attempt (CH4.15). There is one attempt, and one delay, for all connections
/// (CH4.12).
///
/// A connection that was made with certificates which have been replaced since is outdated. Outdated connections serve calls until
/// each is replaced, the oldest one first, by a connection that is ready (CH7.7).
#[derive(Debug)]
pub(super) struct Subchannel<H> {
    destination: Destination,
    /// The oldest one first.
    connections: Vec<(ConnectionId, Arc<Streams<H>>)>,
    /// The number of outdated connections, which are the oldest ones.
    outdated: usize,
    /// Before the connections, while there are any.
    queue: Option<Arc<StreamQueue<H>>>,
    /// What the queue knows of further connections.
    growth: Growth,
    state: State,
    backoff: Backoff,
}

/// The attempt at a connection, whether it is the first or a further one.
#[derive(Debug)]
enum State {
    Idle,
    Connecting {
        connection: ConnectionId,
        next_at: Instant,
        /// The outdated connection that it is to replace.
        replaces: Option<ConnectionId>,
        /// Certificates have been replaced since it began.
        is_outdated: bool,
    },
    /// The last attempt failed; the next one may begin at this time.
    Failed {
        until: Instant,
    },
}

/// Whether a further connection may be attempted, and whether there may be several.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Growth {
    can_grow: bool,
    is_strict: bool,
}

/// The connections of a subchannel, of which there is at least one.
#[derive(Debug)]
pub(crate) struct Established<'a, H> {
    pub(super) destination: &'a Destination,
    /// The oldest one first.
    pub(super) connections: &'a [(ConnectionId, Arc<Streams<H>>)],
    pub(super) queue: &'a Arc<StreamQueue<H>>,
}

impl<H> Subchannel<H> {
    pub(super) fn new(destination: Destination, settings: Arc<BackoffSettings>) -> Self {
        Self {
            destination,
            connections: Vec::new(),
            outdated: 0,
            queue: None,
            growth: Growth::default(),
            state: State::Idle,
            backoff: Backoff::new(settings),
        }
    }

    pub(super) fn destination(&self) -> &Destination {
        &self.destination
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.destination.address
    }

    /// Ready with any connection, whatever becomes of the attempt at another one (CH4.15).
    pub(super) fn connectivity(&self) -> Connectivity {
        match self.state {
            _ if !self.connections.is_empty() => Connectivity::Ready,
            State::Idle => Connectivity::Idle,
            State::Connecting { .. } => Connectivity::Connecting,
            State::Failed { .. } => Connectivity::TransientFailure,
        }
    }

    /// The connections that are established or attempted.
    pub(super) fn ids(&self) -> impl Iterator<Item = ConnectionId> {
        let attempted = match self.state {
            State::Connecting { connection, .. } => Some(connection),
            State::Idle | State::Failed { .. } => None,
        };
        self.connections.iter().map(|(connection, _)| *connection).chain(attempted)
    }

    /// Whether a connection is established or attempted here.
    pub(super) fn has(&self, connection: ConnectionId) -> bool {
        self.ids().any(|it| it == connection)
    }

    /// The established connections.
    pub(super) fn ready(&self) -> Option<Established<'_, H>> {
        let queue = self.queue.as_ref()?;
        Some(Established { destination: &self.destination, connections: &self.connections, queue })
    }

    /// When the delay after a failure is over.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Failed { until } => Some(until),
            State::Idle | State::Connecting { .. } => None,
        }
    }

    /// Connects if it is idle.
    pub(super) fn connect(&mut self, now: Instant, random: &mut fastrand::Rng, commands: &mut Commands) {
        if self.connectivity() == Connectivity::Idle {
            self.attempt(None, (now, random), commands);
        }
    }

    fn attempt(
        &mut self,
        replaces: Option<ConnectionId>,
        (now, random): (Instant, &mut fastrand::Rng),
        commands: &mut Commands,
    ) {
        let Attempt { timeout, next_at } = self.backoff.begin(now, random);
        let connection = commands.next_id();
        self.state = State::Connecting { connection, next_at, replaces, is_outdated: false };
        let destination = self.destination.clone();
        commands.push(Command::Connect { connection, destination, timeout, replaces });
    }

    /// Attempts the replacement of an outdated connection (CH7.7), or a further connection if attempts of calls wait for a stream and
    /// there are fewer than the limit (CH4.10). Neither while an attempt is under way, or during a delay. To be called after each
    /// event. A lower limit closes nothing (CH4.9).
    pub(super) fn scale(
        &mut self,
        limit: usize,
        (now, random): (Instant, &mut fastrand::Rng),
        commands: &mut Commands,
    ) {
        let count = self.connections.len();
        let is_idle = matches!(self.state, State::Idle);
        let outdated = self.connections.first().filter(|_| is_idle && self.outdated > 0);
        let replaces = outdated.map(|(connection, _)| *connection);
        let can_grow = count < limit && is_idle && replaces.is_none();
        let growth = Growth { can_grow, is_strict: limit > 1 || count > 1 };
        if self.set_growth(growth) || replaces.is_some() {
            self.attempt(replaces, (now, random), commands);
            self.set_growth(Growth { can_grow: false, ..growth });
        }
    }

    /// Returns true if attempts of calls wait for a further connection.
    fn set_growth(&mut self, growth: Growth) -> bool {
        // Nothing can have come of a queue that could not grow.
        let is_same = mem::replace(&mut self.growth, growth) == growth && !growth.can_grow;
        let Some(queue) = self.queue.as_ref().filter(|_| !is_same) else { return false };
        queue.set_growth(growth.can_grow, growth.is_strict)
    }

    /// The attempt succeeded: the peer's SETTINGS are there (CH3.4). The connection that it replaces is drained.
    pub(super) fn on_connected(
        &mut self,
        streams: Arc<Streams<H>>,
        on_full: &OnFull,
        commands: &mut Commands,
    ) {
        let State::Connecting { connection, replaces, is_outdated, .. } = self.state else { return };
        if let Some((connection, _)) = replaces.and_then(|replaced| self.remove(replaced)) {
            commands.push(Command::Drain { connection });
        }
        // The sole connection leaves its queue behind, which may be that of other channels, too.
        let queue = self.queue.as_ref().filter(|_| !self.connections.is_empty());
        if !queue.is_some_and(|queue| queue.add(connection, &streams)) {
            // It is the only one, or the others are lost, as will be known in a moment.
            (self.queue, self.growth) =
                (Some(StreamQueue::of(connection, &streams, on_full)), Growth::default());
        }
        self.connections.push((connection, streams));
        if is_outdated {
            self.outdated = self.connections.len();
        }
        self.state = State::Idle;
        self.backoff.reset();
    }

    /// Takes a connection out. It was outdated if it is one of the oldest.
    fn remove(&mut self, connection: ConnectionId) -> Option<(ConnectionId, Arc<Streams<H>>)> {
        let place = self.connections.iter().position(|(it, _)| *it == connection)?;
        self.outdated -= usize::from(place < self.outdated);
        Some(self.connections.remove(place))
    }

    /// Certificates with which connections are made have been replaced: the connections are outdated, and so is that of an attempt that
    /// is among the running ones, which may have used those before. A delay after a failure is over, since the failure may have been
    /// theirs (CH7.7).
    pub(super) fn on_rotation(&mut self, running: &BTreeSet<ConnectionId>, now: Instant) {
        self.outdated = self.connections.len();
        match &mut self.state {
            State::Idle => {}
            State::Connecting { connection, is_outdated, .. } => *is_outdated |= running.contains(connection),
            State::Failed { .. } => self.reset_backoff(now),
        }
    }

    /// The attempt failed. The delay is counted from its start (CH3.2), and may be over.
    pub(super) fn on_failed(&mut self) {
        if let State::Connecting { next_at, .. } = self.state {
            self.state = State::Failed { until: next_at };
        }
    }

    /// The connection accepts no new streams any more, or is closed. The attempts of calls that wait take another one (CH4.11). After the
    /// last one, the next attempt waits for nothing (CH3.3), unless a further connection is attempted already, or failed (CH4.16).
    pub(super) fn on_lost(&mut self, lost: ConnectionId) {
        match self.state {
            State::Connecting { connection, .. } if connection == lost => {
                self.state = State::Idle;
                self.backoff.reset();
            }
            State::Idle | State::Connecting { .. } | State::Failed { .. } => {
                if let Some((_, streams)) = self.remove(lost) {
                    streams.close();
                }
            }
        }
        if self.connections.is_empty() {
            (self.queue, self.growth) = (None, Growth::default());
            if matches!(self.state, State::Idle) {
                self.backoff.reset();
            }
        }
    }

    /// The delay after a failure may be over.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        if let State::Failed { until } = self.state
            && until <= now
        {
            self.state = State::Idle;
        }
    }

    /// Ends what there is: an attempt is cancelled, connections drained, a delay forgotten (CH3.17).
    pub(super) fn release(&mut self, commands: &mut Commands) {
        self.stop_growing(commands);
        for (connection, _) in self.connections.drain(..) {
            commands.push(Command::Drain { connection });
        }
        (self.queue, self.outdated) = (None, 0);
    }

    /// Cancels an attempt, and forgets a delay. The connections stay.
    pub(super) fn stop_growing(&mut self, commands: &mut Commands) {
        if let State::Connecting { connection, .. } = self.state {
            commands.push(Command::Cancel { connection });
        }
        self.state = State::Idle;
        self.backoff.reset();
        self.set_growth(Growth { can_grow: false, ..self.growth });
    }

    /// The next delay is the first one, and a delay in progress is over (CH3.3).
    pub(super) fn reset_backoff(&mut self, now: Instant) {
        self.backoff.reset();
        if let State::Failed { until } = &mut self.state {
            *until = now.min(*until);
        }
    }
}

#[cfg(test)]
mod tests;
