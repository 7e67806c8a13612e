use std::time::{Duration, Instant};

use super::{
    backoff::Backoff,
    id::{ServerId, StreamId},
    input::{Disconnect, DisconnectKind},
    variant::Written,
};

/// The stream to one server, and the pauses between streams.
///
/// ```text
///            connect            on_connected          idle for the linger time
///   Closed ──────────▶ Connecting ──────────▶ Open ───────────────────────────▶ Closed
///     ▲                    │                    │
///     │ delay over,        │ on_disconnected    │ on_disconnected
///     │ nothing wanted     ▼                    ▼
///     └─────────────── BackingOff ◀─────────────┘
///                          │ delay over: connect
/// ```
#[derive(Debug)]
pub(crate) struct Stream {
    server: ServerId,
    attempt: u64,
    state: State,
    backoff: Backoff,
    keepalive: Duration,
}

#[derive(Debug)]
enum State {
    Closed,
    Connecting,
    Open(Open),
    BackingOff { until: Instant, unreachable: bool },
}

/// How the stream to a management server fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// Nothing is wanted of the server.
    Idle,
    /// A connection is being made.
    Connecting,
    /// There is a stream. A server that is polled counts as connected until a poll fails.
    Connected,
    /// The last stream ended, or did not come about, or the last poll failed; the next attempt waits for its time.
    BackingOff,
}

/// What is known of an open stream.
#[derive(Debug, Default)]
pub(crate) struct Open {
    /// The node is part of the first request alone (B0.2).
    pub(crate) node_sent: bool,
    /// The request that the transport has not taken yet.
    pub(crate) pending: Option<Written>,
    /// Since when nothing is wanted of the server.
    pub(crate) idle_since: Option<Instant>,
    /// A response came, so the end of the stream is no failure (A57-2).
    answered: bool,
    /// Until when it has to hold to be a good one without a response: a server that knows what the client holds may have
    /// nothing to say.
    holds_at: Option<Instant>,
}

/// What the end of a stream means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// An error of the server for everybody who watches something of it.
    Failure,
    /// Nothing to tell.
    Silent,
}

impl Stream {
    pub(crate) fn new(server: ServerId, keepalive: Duration, now: Instant) -> Self {
        Self { server, attempt: 0, state: State::Closed, backoff: Backoff::for_connections(now), keepalive }
    }

    pub(crate) fn id(&self) -> StreamId {
        StreamId { server: self.server, attempt: self.attempt }
    }

    pub(crate) fn keepalive(&self) -> Duration {
        self.keepalive
    }

    /// Whether what is reported of a stream concerns the current one.
    pub(crate) fn is_current(&self, stream: StreamId) -> bool {
        stream == self.id()
            && match self.state {
                State::Connecting | State::Open(_) => true,
                State::Closed | State::BackingOff { .. } => false,
            }
    }

    pub(crate) fn open(&mut self) -> Option<&mut Open> {
        match &mut self.state {
            State::Open(open) => Some(open),
            State::Closed | State::Connecting | State::BackingOff { .. } => None,
        }
    }

    pub(crate) fn as_open(&self) -> Option<&Open> {
        match &self.state {
            State::Open(open) => Some(open),
            State::Closed | State::Connecting | State::BackingOff { .. } => None,
        }
    }

    pub(crate) fn connection(&self) -> ConnectionState {
        match self.state {
            State::Closed => ConnectionState::Idle,
            State::Connecting => ConnectionState::Connecting,
            State::Open(_) => ConnectionState::Connected,
            State::BackingOff { .. } => ConnectionState::BackingOff,
        }
    }

    /// When the pause is over, if there is one.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        match self.state {
            State::BackingOff { until, .. } => Some(until),
            State::Closed | State::Connecting | State::Open(_) => None,
        }
    }

    /// Something is wanted: begins an attempt, unless one is under way or has to wait.
    pub(crate) fn connect(&mut self) -> Option<StreamId> {
        match self.state {
            State::Closed => {
                self.attempt += 1;
                self.state = State::Connecting;
                Some(self.id())
            }
            State::Connecting | State::Open(_) | State::BackingOff { .. } => None,
        }
    }

    pub(crate) fn on_connected(&mut self, now: Instant) {
        self.state = State::Open(Open { holds_at: Some(now + SILENCE), ..Open::default() });
    }

    /// When the stream has held for so long that it need not give a response to be a good one.
    pub(crate) fn holds_at(&self) -> Option<Instant> {
        self.as_open().and_then(|open| open.holds_at)
    }

    /// It has.
    pub(crate) fn on_held(&mut self) {
        self.backoff.reset();
        if let Some(open) = self.open() {
            open.holds_at = None;
        }
    }

    /// A response came: true for the first one of the stream.
    pub(crate) fn on_response(&mut self) -> bool {
        self.on_held();
        self.open().is_some_and(|open| !std::mem::replace(&mut open.answered, true))
    }

    /// A question had no answer that could be used, on a stream that goes on. The next answer is as good as a stream's first.
    pub(crate) fn on_failed(&mut self) {
        if let Some(open) = self.open() {
            (open.answered, open.holds_at) = (false, None);
        }
    }

    /// Whether a response came on the stream that is open.
    pub(crate) fn has_answered(&self) -> bool {
        self.as_open().is_some_and(|open| open.answered)
    }

    /// The stream ended: waits before the next attempt. `owes` says whether the server has left a question without an answer.
    pub(crate) fn on_disconnected(
        &mut self,
        (reason, owes): (&Disconnect, bool),
        now: Instant,
        random: &mut fastrand::Rng,
    ) -> End {
        let held = self.as_open().is_some_and(|open| open.holds_at.is_none());
        let answered = self.has_answered() || (held && !owes);
        let unreachable = reason.kind == DisconnectKind::Unreachable;
        self.state = State::BackingOff { until: now + self.backoff.next(random), unreachable };
        match reason.kind {
            DisconnectKind::TooManyPings => {
                self.keepalive = (self.keepalive * 2).min(LONGEST_KEEPALIVE.max(self.keepalive));
                End::Silent
            }
            // What one message broke, the next stream's will break again: its watchers would never hear of it.
            DisconnectKind::TooLarge { .. } => End::Failure,
            DisconnectKind::Closed | DisconnectKind::Failed(_) if answered => End::Silent,
            DisconnectKind::Closed
            | DisconnectKind::Failed(_)
            | DisconnectKind::Unreachable
            | DisconnectKind::Unusable
            | DisconnectKind::Credentials => End::Failure,
        }
    }

    /// The server can be reached, as another stream shows: a pause since it could not be is over at once. The next one is no
    /// shorter for that.
    pub(crate) fn hasten(&mut self, now: Instant) {
        if let State::BackingOff { until, unreachable: true } = &mut self.state {
            *until = now.min(*until);
        }
    }

    /// The pause is over.
    pub(crate) fn on_paused_enough(&mut self) {
        self.state = State::Closed;
    }

    /// Nothing is wanted any more.
    pub(crate) fn close(&mut self) {
        self.state = State::Closed;
    }
}

/// How long a stream has to hold without a response to be a good one.
const SILENCE: Duration = Duration::from_secs(3);

/// The longest interval of keepalive pings to a server that found them too many.
const LONGEST_KEEPALIVE: Duration = Duration::from_secs(300);
