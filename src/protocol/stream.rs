use std::time::{Duration, Instant};

use super::{
    id::{ServerId, StreamId},
    stream_event::{Disconnect, DisconnectKind},
    variant::Written,
};
use crate::backoff::Backoff;

/// The stream to one server, and the pauses between streams.
///
/// ```text
///            connect            on_connected          idle stream timeout
///   Closed ──────────▶ Connecting ──────────▶ Open ───────────────────────────▶ Closed
///     ▲                    │                    │
///     │ delay over,        │ on_disconnected    │ on_disconnected
///     │ no subscriptions   ▼                    ▼
///     └─────────────── BackingOff ◀─────────────┘
///                          │ delay over: connect
/// ```
#[derive(Debug)]
pub(crate) struct Stream {
    server: ServerId,
    /// The number of the last attempt; 0 before the first one.
    attempt: u64,
    state: State,
    /// The pauses between attempts, reset by a healthy stream.
    backoff: Backoff,
    /// The interval of keepalive pings, which doubles when the server finds them too many.
    keepalive: Duration,
}

/// The state of the current attempt, if there is one.
#[derive(Debug)]
enum State {
    /// No attempt, and none that waits.
    Closed,
    /// Bytes may be read before the connection is reported as up.
    Connecting {
        alive: bool,
    },
    Open(Open),
    BackingOff {
        until: Instant,
        /// Whether no connection was established: only then another stream shows that a retry is worthwhile.
        unreachable: bool,
    },
}

/// The state of the stream to a management server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// The server has no subscriptions.
    Idle,
    /// A connection is being made.
    Connecting,
    /// There is a stream. A polled server counts as connected until a poll fails.
    Connected,
    /// The last stream ended, or was not established, or the last poll failed; the next attempt waits for its time.
    BackingOff,
}

/// The state of an open stream.
#[derive(Debug, Default)]
pub(crate) struct Open {
    /// When it was opened.
    since: Option<Instant>,
    /// The node is part of the first request alone (B0.2).
    pub(crate) node_sent: bool,
    /// The request that the transport has not taken yet.
    pub(crate) pending: Option<Written>,
    /// Since when the server has no subscriptions.
    pub(crate) idle_since: Option<Instant>,
    /// Set once a response was received, so that the end of the stream is no failure (A57-2).
    answered: bool,
    /// Set once bytes were read from the connection: it is not one that a frozen server has left in the kernel's backlog.
    alive: bool,
    /// The time at which the server announced the end of the connection (GOAWAY).
    going_away_since: Option<Instant>,
    /// The time until which the stream has to hold to be healthy without a response: a server that knows the held versions
    /// may have nothing to send.
    holds_at: Option<Instant>,
    /// Set when the stream has held until then.
    held: bool,
    /// Set when the stream is healthy: it was answered, or has held while nothing was due.
    good: bool,
}

/// The consequence of the end of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A server error for all watches of its resources.
    Failure,
    /// No error: the server was healthy, and only ended the stream.
    Silent,
}

/// The state that a server has left behind at the end of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    /// A request without an answer.
    pub(crate) owes: bool,
    /// Streams end because of some type that is requested.
    pub(crate) is_suspicious: bool,
}

impl Stream {
    /// No attempt yet: the first one is made without a pause.
    pub(crate) fn new(server: ServerId, keepalive: Duration) -> Self {
        Self { server, attempt: 0, state: State::Closed, backoff: Backoff::default(), keepalive }
    }

    /// The server's slot was used by another one before, which had this number of streams.
    pub(crate) fn count_from(&mut self, attempts: u64) {
        self.attempt = attempts;
    }

    /// The last attempt.
    pub(crate) fn id(&self) -> StreamId {
        StreamId { server: self.server, attempt: self.attempt }
    }

    pub(crate) fn keepalive(&self) -> Duration {
        self.keepalive
    }

    /// Whether an event of a stream concerns the current one.
    pub(crate) fn is_current(&self, stream: StreamId) -> bool {
        stream == self.id()
            && match self.state {
                State::Connecting { .. } | State::Open(_) => true,
                State::Closed | State::BackingOff { .. } => false,
            }
    }

    /// When the open stream was opened; `None` without one.
    pub(crate) fn open_since(&self) -> Option<Instant> {
        self.as_open()?.since
    }

    /// The open stream, to change its state.
    pub(crate) fn open(&mut self) -> Option<&mut Open> {
        match &mut self.state {
            State::Open(open) => Some(open),
            State::Closed | State::Connecting { .. } | State::BackingOff { .. } => None,
        }
    }

    /// The open stream; `None` also while it is being opened.
    pub(crate) fn as_open(&self) -> Option<&Open> {
        match &self.state {
            State::Open(open) => Some(open),
            State::Closed | State::Connecting { .. } | State::BackingOff { .. } => None,
        }
    }

    /// The state as operators see it.
    pub(crate) fn connection(&self) -> ConnectionState {
        match self.state {
            State::Closed => ConnectionState::Idle,
            State::Connecting { .. } => ConnectionState::Connecting,
            State::Open(_) => ConnectionState::Connected,
            State::BackingOff { .. } => ConnectionState::BackingOff,
        }
    }

    /// The end of the pause, if there is one.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        match self.state {
            State::BackingOff { until, .. } => Some(until),
            State::Closed | State::Connecting { .. } | State::Open(_) => None,
        }
    }

    /// There are subscriptions: begins an attempt, unless one is under way or has to wait.
    pub(crate) fn connect(&mut self) -> Option<StreamId> {
        match self.state {
            State::Closed => {
                self.attempt += 1;
                self.state = State::Connecting { alive: false };
                Some(self.id())
            }
            State::Connecting { .. } | State::Open(_) | State::BackingOff { .. } => None,
        }
    }

    /// Requests can be written. The connection may have been alive before it was reported as up.
    pub(crate) fn on_connected(&mut self, now: Instant) {
        let alive = matches!(self.state, State::Connecting { alive: true });
        let holds_at = Some(now + SILENCE);
        self.state = State::Open(Open { alive, holds_at, since: Some(now), ..Open::default() });
    }

    /// Bytes were read from the connection.
    pub(crate) fn on_alive(&mut self) {
        match &mut self.state {
            State::Connecting { alive } | State::Open(Open { alive, .. }) => *alive = true,
            State::Closed | State::BackingOff { .. } => {}
        }
    }

    /// The server has announced the end of the connection.
    pub(crate) fn on_going_away(&mut self, now: Instant) {
        if let Some(open) = self.open() {
            open.going_away_since.get_or_insert(now);
        }
    }

    /// When the server announced the end of the connection, if it has sent no response on the stream: it may have forgotten it.
    pub(crate) fn unanswered_going_away_since(&self) -> Option<Instant> {
        self.as_open().filter(|open| !open.answered)?.going_away_since
    }

    /// Why the open stream has nobody who serves it, as far as can be detected.
    pub(crate) fn unserved(&self) -> Option<(DisconnectKind, &'static str)> {
        match self.as_open()?.alive {
            // The kernel of a frozen server accepts connections.
            false => {
                Some((DisconnectKind::Unreachable, "the server accepted the connection but has sent nothing"))
            }
            true => self.unanswered_going_away_since().map(|_| (DisconnectKind::Closed, FORGOTTEN)),
        }
    }

    /// The time after which the stream is healthy without a response. A server without any bytes so far may be a frozen
    /// one, whose kernel accepts connections.
    pub(crate) fn holds_at(&self) -> Option<Instant> {
        self.as_open().filter(|open| open.alive).and_then(|open| open.holds_at)
    }

    /// The stream has held. Whether that makes it healthy is still open while something is due from the server.
    pub(crate) fn on_held(&mut self) {
        if let Some(open) = self.open() {
            (open.holds_at, open.held) = (None, true);
        }
    }

    /// Whether it would be healthy if nothing were due from the server, and is not yet.
    pub(crate) fn may_be_good(&self) -> bool {
        self.as_open().is_some_and(|open| open.held && !open.good)
    }

    /// The stream counts as healthy, since nothing is due from the server.
    pub(crate) fn on_good(&mut self) {
        if let Some(open) = self.open() {
            open.good = true;
        }
    }

    /// A response was received: true for the first one of the stream.
    pub(crate) fn on_response(&mut self) -> bool {
        let Some(open) = self.open() else { return false };
        (open.alive, open.holds_at, open.good) = (true, None, true);
        !std::mem::replace(&mut open.answered, true)
    }

    /// A request had no usable answer, on a stream that goes on. The next answer is as good as a stream's first.
    pub(crate) fn on_failed(&mut self) {
        if let Some(open) = self.open() {
            // Polls have no stream whose end would reset these.
            (open.answered, open.held, open.good, open.holds_at) = (false, false, false, None);
        }
    }

    /// Whether a response was received on the open stream.
    pub(crate) fn has_answered(&self) -> bool {
        self.as_open().is_some_and(|open| open.answered)
    }

    /// The stream ended: waits before the next attempt. It was healthy if it gave a response, or held while nothing
    /// was due; `Left` is the state that the server has left behind.
    pub(crate) fn on_disconnected(
        &mut self,
        reason: &Disconnect,
        left: Left,
        now: Instant,
        random: &mut fastrand::Rng,
    ) -> End {
        let held = self.as_open().is_some_and(|open| open.held);
        // A server that knows the held versions may have nothing to send, however healthy it is.
        let answered = self.has_answered() || (held && !left.owes);
        let unreachable = reason.kind == DisconnectKind::Unreachable;
        // A stream that ended because of the client, or of one type, ends again however healthy it was.
        let is_ours = matches!(reason.kind, DisconnectKind::TooLarge { .. });
        if answered && !is_ours && !left.is_suspicious {
            self.backoff.reset();
        }
        self.state = State::BackingOff { until: now + self.backoff.next(random), unreachable };
        match reason.kind {
            DisconnectKind::TooManyPings => {
                // As gRPC does; without that, the server would close each connection for the same reason.
                self.keepalive = (self.keepalive * 2).min(LONGEST_KEEPALIVE.max(self.keepalive));
                End::Silent
            }
            // A message that is too large for this stream is too large for the next: its watches would never be notified.
            DisconnectKind::TooLarge { .. } => End::Failure,
            DisconnectKind::Closed | DisconnectKind::Failed(_) if answered => End::Silent,
            DisconnectKind::Closed
            | DisconnectKind::Failed(_)
            | DisconnectKind::Unreachable
            | DisconnectKind::Unusable
            | DisconnectKind::Credentials => End::Failure,
        }
    }

    /// Ends the pause, since another stream shows that the server is reachable. The next pause is no shorter for that.
    pub(crate) fn hasten(&mut self, now: Instant) {
        // A stream that the server accepted and then ended keeps its pause: that the server can be reached was known before.
        if let State::BackingOff { until, unreachable: true } = &mut self.state {
            *until = now.min(*until);
        }
    }

    /// The pause is over.
    pub(crate) fn on_paused_enough(&mut self) {
        self.state = State::Closed;
    }

    /// There are no subscriptions any more.
    pub(crate) fn close(&mut self) {
        self.state = State::Closed;
    }
}

/// Why a stream is given up on a connection whose end was announced.
const FORGOTTEN: &str =
    "the server announced the end of the connection (GOAWAY), and has sent no response on the stream";

/// The time for which a stream without a response has to hold to be healthy.
const SILENCE: Duration = Duration::from_secs(3);

/// The longest interval of keepalive pings to a server that found them too many.
const LONGEST_KEEPALIVE: Duration = Duration::from_secs(300);
