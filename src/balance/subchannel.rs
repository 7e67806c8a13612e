use std::{net::SocketAddr, sync::Arc, time::Instant};

use super::{
    backoff::{Attempt, Backoff, BackoffSettings},
    command::{Command, Commands, ConnectionId},
    connectivity::Connectivity,
};

/// One address of an endpoint: at most one connection, and the delay after a failure (CH3.1).
///
/// ```text
///          connect            on_connected
///   Idle ───────────▶ Connecting ───────────▶ Ready
///    ▲ ▲                │      │                │
///    │ └── on_timeout ─ Failed ◀ on_failed      │
///    └───────────────────────── on_lost ────────┘
/// ```
#[derive(Debug)]
pub(super) struct Subchannel<H> {
    address: SocketAddr,
    state: State<H>,
    backoff: Backoff,
}

#[derive(Debug)]
enum State<H> {
    Idle,
    Connecting {
        connection: ConnectionId,
        next_at: Instant,
    },
    Ready {
        connection: ConnectionId,
        handle: H,
    },
    /// The last attempt failed; the next one may begin at this time.
    Failed {
        until: Instant,
    },
}

impl<H> Subchannel<H> {
    pub(super) fn new(address: SocketAddr, settings: Arc<BackoffSettings>) -> Self {
        Self { address, state: State::Idle, backoff: Backoff::new(settings) }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn connectivity(&self) -> Connectivity {
        match self.state {
            State::Idle => Connectivity::Idle,
            State::Connecting { .. } => Connectivity::Connecting,
            State::Ready { .. } => Connectivity::Ready,
            State::Failed { .. } => Connectivity::TransientFailure,
        }
    }

    /// The connection that is attempted or established.
    pub(super) fn connection(&self) -> Option<ConnectionId> {
        match self.state {
            State::Connecting { connection, .. } | State::Ready { connection, .. } => Some(connection),
            State::Idle | State::Failed { .. } => None,
        }
    }

    /// The established connection, and what requests are sent with on it.
    pub(super) fn ready(&self) -> Option<(ConnectionId, &H)> {
        match &self.state {
            State::Ready { connection, handle } => Some((*connection, handle)),
            State::Idle | State::Connecting { .. } | State::Failed { .. } => None,
        }
    }

    /// When the delay after a failure is over.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Failed { until } => Some(until),
            State::Idle | State::Connecting { .. } | State::Ready { .. } => None,
        }
    }

    /// Connects if it is idle.
    pub(super) fn connect(&mut self, now: Instant, random: &mut fastrand::Rng, commands: &mut Commands) {
        if !matches!(self.state, State::Idle) {
            return;
        }
        let Attempt { timeout, next_at } = self.backoff.begin(now, random);
        let connection = commands.next_id();
        self.state = State::Connecting { connection, next_at };
        commands.push(Command::Connect { connection, address: self.address, timeout });
    }

    /// The attempt succeeded: the peer's SETTINGS are there (CH3.4).
    pub(super) fn on_connected(&mut self, handle: H) {
        if let State::Connecting { connection, .. } = self.state {
            self.state = State::Ready { connection, handle };
            self.backoff.reset();
        }
    }

    /// The attempt failed. The delay is counted from its start (CH3.2), and may be over.
    pub(super) fn on_failed(&mut self) {
        if let State::Connecting { next_at, .. } = self.state {
            self.state = State::Failed { until: next_at };
        }
    }

    /// The connection accepts no new streams any more, or is closed. The next attempt waits for nothing (CH3.3).
    pub(super) fn on_lost(&mut self) {
        if self.connection().is_some() {
            self.state = State::Idle;
            self.backoff.reset();
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

    /// Ends what there is: an attempt is cancelled, a connection drained, a delay forgotten (CH3.17).
    pub(super) fn release(&mut self, commands: &mut Commands) {
        match self.state {
            State::Connecting { connection, .. } => commands.push(Command::Cancel { connection }),
            State::Ready { connection, .. } => commands.push(Command::Drain { connection }),
            State::Idle | State::Failed { .. } => {}
        }
        self.state = State::Idle;
        self.backoff.reset();
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
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ch3_1_a_subchannel_connects_when_asked_and_is_idle_again_after_backoff_and_loss() {
        let (start, mut random) = (Arc::new(()), fastrand::Rng::with_seed(1));
        let mut commands = Commands::default();
        let now = Instant::now();
        let mut it = Subchannel::new(([127, 0, 0, 1], 1).into(), Arc::default());
        assert_eq!(it.connectivity(), Connectivity::Idle);
        it.on_connected(start.clone());
        assert_eq!(it.connectivity(), Connectivity::Idle, "it was not asked to connect");
        it.connect(now, &mut random, &mut commands);
        it.connect(now, &mut random, &mut commands);
        assert_eq!(it.connectivity(), Connectivity::Connecting);
        it.on_failed();
        let until = it.poll_timeout().unwrap();
        assert_eq!(it.connectivity(), Connectivity::TransientFailure);
        it.connect(now, &mut random, &mut commands);
        it.on_timeout(until - Duration::from_nanos(1));
        assert_eq!(it.connectivity(), Connectivity::TransientFailure, "it is in backoff");
        it.on_timeout(until);
        assert_eq!(it.connectivity(), Connectivity::Idle);
        it.connect(until, &mut random, &mut commands);
        it.on_connected(start.clone());
        assert_eq!((it.connectivity(), it.ready().is_some()), (Connectivity::Ready, true));
        it.on_lost();
        assert_eq!((it.connectivity(), it.ready().is_none()), (Connectivity::Idle, true));
        assert_eq!(Arc::strong_count(&start), 1, "the handle went with the connection");
        let connects =
            std::iter::from_fn(|| commands.poll()).filter(|it| matches!(it, Command::Connect { .. }));
        assert_eq!(connects.count(), 2);
    }
}
