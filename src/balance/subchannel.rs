use std::{collections::BTreeSet, mem, net::SocketAddr, sync::Arc, time::Instant};

use super::{
    backoff::{Attempt, ConnectBackoff, ConnectSettings},
    command::{Commands, ConnectionId, Purpose},
    connect_error::ConnectFailure,
    connectivity::Connectivity,
    identity::Destination,
    scope::Scope,
    stream_queue::streams::Streams,
    stream_queue::{OnFull, StreamQueue},
};

/// One destination of an endpoint, which is an address with its identity: its connections, the attempt at another one, and the delay after a failure (CH3.1).
///
/// ```text
///          connect            on_connected
///   Idle ─────────────▶ Connecting ─────────▶ Idle, one connection more
///    ▲ ▲   scale          │      │
///    │ └── on_timeout ─ Failed ◀ on_failed
///    └──── on_lost ───────┤  ▲
///                         ▼  │ connect
///                       Delayed
/// ```
///
/// A connection proves itself by a complete call, or by living for as long as the delay after its attempt. One that is lost before is
/// replaced once without waiting; the loss of the next one makes the subchannel wait for the end of the delay, and the delays grow until a
/// connection has proved itself (CH3.3). Otherwise an endpoint that accepts connections and closes them would be connected to again and
/// again without a pause.
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
    /// The trial of each connection, in the order of the connections.
    trials: Vec<Trial>,
    /// The number of outdated connections, which are the oldest ones.
    outdated: usize,
    /// Before the connections, while there are any.
    queue: Option<Arc<StreamQueue<H>>>,
    /// What the queue knows of further connections.
    growth: Growth,
    /// The attempt at another connection, and the delay after it.
    state: State,
    /// The delays between attempts, which all connections share.
    backoff: ConnectBackoff,
    /// A connection was lost before it had proved itself, and none has proved itself since.
    has_lost_unproven: bool,
    /// The endpoint did not answer the last attempt.
    was_silent: bool,
}

/// The attempt at a connection, whether it is the first or a further one.
#[derive(Debug)]
enum State {
    Idle,
    /// There is no connection, and no attempt succeeds before this time: one that is requested fails at once.
    Delayed {
        until: Instant,
    },
    Connecting {
        connection: ConnectionId,
        attempt: Attempt,
        /// Whether the attempt began after the loss of a connection that had not proved itself.
        follows_loss: bool,
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

/// What a connection has to do to prove itself, beside carrying a complete call.
#[derive(Debug, Clone, Copy)]
struct Trial {
    /// The time until which the connection has to live.
    ends_at: Instant,
    /// The begin of the next attempt, unless the connection proves itself.
    next_at: Instant,
    /// Its attempt began after the loss of a connection that had not proved itself.
    follows_loss: bool,
    /// Whether the connection has reset the backoff, which happens once.
    has_reset: bool,
}

/// Whether a further connection may be attempted, and whether there may be several.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Growth {
    /// Whether a further connection may be attempted now.
    can_grow: bool,
    /// Whether there may be several connections, so that none takes streams above its limit.
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
    pub(super) fn new(destination: Destination, settings: ConnectSettings) -> Self {
        Self {
            destination,
            connections: Vec::new(),
            trials: Vec::new(),
            outdated: 0,
            queue: None,
            growth: Growth::default(),
            state: State::Idle,
            backoff: ConnectBackoff::new(settings),
            has_lost_unproven: false,
            was_silent: false,
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
            State::Idle | State::Delayed { .. } => Connectivity::Idle,
            State::Connecting { .. } => Connectivity::Connecting,
            State::Failed { .. } => Connectivity::TransientFailure,
        }
    }

    /// The connections that are established or attempted.
    pub(super) fn ids(&self) -> impl Iterator<Item = ConnectionId> {
        let attempted = match self.state {
            State::Connecting { connection, .. } => Some(connection),
            State::Idle | State::Delayed { .. } | State::Failed { .. } => None,
        };
        self.connections.iter().map(|(connection, _)| *connection).chain(attempted)
    }

    /// Whether a connection is established or attempted here.
    pub(super) fn has(&self, connection: ConnectionId) -> bool {
        self.ids().any(|id| id == connection)
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
            State::Idle | State::Delayed { .. } | State::Connecting { .. } => None,
        }
    }

    /// Whether the next attempt has to wait, as connections were lost that had not proved themselves.
    pub(super) fn is_delayed(&self) -> bool {
        match self.state {
            State::Delayed { .. } => true,
            State::Failed { .. } => self.has_lost_unproven,
            State::Idle | State::Connecting { .. } => false,
        }
    }

    /// Connects if it is idle. If that has to wait, it is as if an attempt had failed.
    pub(super) fn connect(&mut self, scope: &mut Scope<'_>) {
        match self.state {
            _ if !self.connections.is_empty() => {}
            State::Delayed { until } if until > scope.now => self.state = State::Failed { until },
            State::Idle | State::Delayed { .. } => {
                let purpose = Purpose::First { was_silent: self.was_silent };
                self.attempt(purpose, scope);
            }
            State::Connecting { .. } | State::Failed { .. } => {}
        }
    }

    fn attempt(&mut self, purpose: Purpose, scope: &mut Scope<'_>) {
        self.end_trials(scope.now);
        let attempt = self.backoff.begin(scope.now, scope.random);
        let (connection, replaces) = (scope.commands.next_id(), purpose.replaces());
        let follows_loss = self.has_lost_unproven;
        self.state = State::Connecting { connection, attempt, follows_loss, replaces, is_outdated: false };
        let (destination, timeout) = (self.destination.clone(), attempt.timeout);
        scope.connect(connection, destination, timeout, purpose);
    }

    /// Attempts the replacement of an outdated connection (CH7.7), or a further connection if attempts of calls wait for a stream and
    /// there are fewer than the limit (CH4.10). Neither while an attempt is under way, or during a delay. To be called after each
    /// event. A lower limit closes nothing (CH4.9).
    pub(super) fn scale(&mut self, limit: usize, scope: &mut Scope<'_>) {
        let count = self.connections.len();
        let is_idle = matches!(self.state, State::Idle);
        let outdated = self.connections.first().filter(|_| is_idle && self.outdated > 0);
        let replaces = outdated.map(|(connection, _)| *connection);
        let can_grow = count < limit && is_idle && replaces.is_none();
        // Several connections may also be left over from a higher limit.
        let growth = Growth { can_grow, is_strict: limit > 1 || count > 1 };
        if self.set_growth(growth) || replaces.is_some() {
            let purpose = replaces.map_or(Purpose::Further, Purpose::Replace);
            self.attempt(purpose, scope);
            // One attempt at a time: attempts of calls that wait request no other one until it ends (CH4.12).
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
        now: Instant,
        on_full: &OnFull,
        commands: &mut Commands,
    ) {
        let State::Connecting { connection, attempt, follows_loss, replaces, is_outdated } = self.state
        else {
            return;
        };
        if let Some(replaced) = replaces
            && self.remove(replaced).is_some()
        {
            commands.drain(replaced);
        }
        // The sole connection leaves its queue behind, which may be that of other channels, too.
        let queue = self.queue.as_ref().filter(|_| !self.connections.is_empty());
        if !queue.is_some_and(|queue| queue.add(connection, &streams)) {
            // It is the only one, or the others are lost, as will be known in a moment.
            (self.queue, self.growth) =
                (Some(StreamQueue::of(connection, &streams, on_full)), Growth::default());
        }
        self.connections.push((connection, streams));
        self.trials.push(Trial::new(attempt, follows_loss, now));
        if is_outdated {
            self.outdated = self.connections.len();
        }
        (self.state, self.was_silent) = (State::Idle, false);
    }

    /// Takes a connection out. It was outdated if it is one of the oldest.
    fn remove(&mut self, connection: ConnectionId) -> Option<(Arc<Streams<H>>, Trial)> {
        let index = self.connections.iter().position(|(known, _)| *known == connection)?;
        self.outdated -= usize::from(index < self.outdated);
        Some((self.connections.remove(index).1, self.trials.remove(index)))
    }

    /// Certificates with which connections are made have been replaced: the connections are outdated, and so is that of an attempt that
    /// is among the running ones, which may have used those before. A delay after a failure is over, since the failure may have been
    /// theirs (CH7.7).
    pub(super) fn on_rotation(&mut self, running: &BTreeSet<ConnectionId>, now: Instant) {
        self.outdated = self.connections.len();
        match &mut self.state {
            State::Idle => {}
            State::Connecting { connection, is_outdated, .. } => *is_outdated |= running.contains(connection),
            State::Delayed { .. } | State::Failed { .. } => self.reset_backoff(now),
        }
    }

    /// The attempt failed. The delay is counted from its start (CH3.2), and may be over. It does not grow if the failure was not the
    /// endpoint's.
    pub(super) fn on_failed(&mut self, cause: ConnectFailure) {
        let State::Connecting { attempt, .. } = self.state else { return };
        self.state = State::Failed { until: attempt.next_at };
        match cause {
            ConnectFailure::Refused => self.was_silent = false,
            ConnectFailure::Silent => self.was_silent = true,
            ConnectFailure::NoDescriptor => self.backoff.repeat(),
        }
    }

    /// The connection accepts no new streams any more, or is closed. The attempts of calls that wait take another one (CH4.11). After the
    /// last one, the next attempt waits for nothing if the connection had proved itself, and once if it had not (CH3.3), unless a further
    /// connection is attempted already, or failed (CH4.16).
    pub(super) fn on_lost(&mut self, lost: ConnectionId, now: Instant) {
        match self.state {
            // It had succeeded, unseen.
            State::Connecting { connection, attempt, follows_loss, .. } if connection == lost => {
                self.state = State::Idle;
                self.on_unproven_lost(Trial::new(attempt, follows_loss, now));
            }
            State::Idle | State::Delayed { .. } | State::Connecting { .. } | State::Failed { .. } => {
                if let Some((streams, trial)) = self.remove(lost) {
                    // Attempts of calls that wait take another connection now, or learn that there is none.
                    streams.close();
                    match trial.is_passed(&streams, now) {
                        true => {
                            self.backoff.reset();
                            self.has_lost_unproven = false;
                        }
                        false => self.on_unproven_lost(trial),
                    }
                }
            }
        }
        if self.connections.is_empty() {
            (self.queue, self.growth) = (None, Growth::default());
        }
    }

    /// Connections that have proved themselves reset the backoff, before an attempt at a further one.
    fn end_trials(&mut self, now: Instant) {
        for ((_, streams), trial) in self.connections.iter().zip(&mut self.trials) {
            if !trial.has_reset && trial.is_passed(streams, now) {
                trial.has_reset = true;
                self.backoff.reset();
                self.has_lost_unproven = false;
            }
        }
    }

    /// A connection was lost before it had proved itself. If it followed the loss of another such one, the next attempt waits.
    fn on_unproven_lost(&mut self, trial: Trial) {
        self.has_lost_unproven = true;
        // An attempt under way, or the delay after one, goes on instead (CH4.16).
        if trial.follows_loss && matches!(self.state, State::Idle) {
            let until = trial.next_at;
            self.state = match self.connections.is_empty() {
                true => State::Delayed { until },
                false => State::Failed { until },
            };
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
            commands.drain(connection);
        }
        self.trials.clear();
        // Without connections the delay matters only to the next request for one.
        if let State::Failed { until } = self.state {
            self.state = State::Delayed { until };
        }
        (self.queue, self.outdated) = (None, 0);
    }

    /// Cancels an attempt, and forgets a delay, unless connections were lost that had not proved themselves: endpoints with several such
    /// addresses would be connected to without a pause otherwise. The connections stay.
    pub(super) fn stop_growing(&mut self, commands: &mut Commands) {
        let until = match self.state {
            State::Idle => None,
            State::Connecting { connection, attempt, .. } => {
                commands.cancel(connection);
                Some(attempt.next_at)
            }
            State::Delayed { until } | State::Failed { until } => Some(until),
        };
        self.state = match until.filter(|_| self.has_lost_unproven) {
            Some(until) if self.connections.is_empty() => State::Delayed { until },
            Some(until) => State::Failed { until },
            None => State::Idle,
        };
        if !self.has_lost_unproven {
            self.backoff.reset();
        }
        self.set_growth(Growth { can_grow: false, ..self.growth });
    }

    /// The next delay is the first one, and a delay in progress is over (CH3.3).
    pub(super) fn reset_backoff(&mut self, now: Instant) {
        self.backoff.reset();
        self.has_lost_unproven = false;
        match &mut self.state {
            State::Failed { until } => *until = now.min(*until),
            State::Delayed { .. } => self.state = State::Idle,
            State::Idle | State::Connecting { .. } => {}
        }
    }
}

impl Trial {
    /// The trial of a connection that has just been established.
    fn new(Attempt { delay, next_at, .. }: Attempt, follows_loss: bool, now: Instant) -> Self {
        Self { ends_at: now + delay, next_at, follows_loss, has_reset: false }
    }

    /// Whether the connection has proved itself.
    fn is_passed<H>(&self, streams: &Streams<H>, now: Instant) -> bool {
        streams.has_completed_call() || self.ends_at <= now
    }
}

#[cfg(test)]
mod tests;
