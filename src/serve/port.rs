//! The listening socket: when it is opened, closed, and tried again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::Timer;

/// The listening socket of a server.
///
/// ```text
///  Closed ──open──▶ Opening ──opened──▶ Listening ──close──▶ Closed
///                    ▲   └──failed──▶ Failed ◀──fatal error──┘
///                    └────after a delay───┘
/// ```
#[derive(Debug)]
pub(super) struct Port {
    state: PortState,
    /// Failures to open it since the last success.
    failures: u32,
    /// Errors of `accept` since the last accepted connection.
    accept_errors: u32,
}

#[derive(Debug)]
enum PortState {
    /// The socket does not listen; it may be bound.
    Closed,
    /// The owner opens it.
    Opening,
    /// Connections arrive. After an error they are accepted again at a time.
    Listening { paused_until: Option<Instant> },
    /// The port could not be opened, and is tried again at a time.
    Failed { error: Arc<str>, retry_at: Instant },
}

impl Port {
    /// A socket that is bound, or one that listens already.
    pub(super) fn new(is_listening: bool) -> Self {
        let state = match is_listening {
            true => PortState::Listening { paused_until: None },
            false => PortState::Closed,
        };
        Self { state, failures: 0, accept_errors: 0 }
    }

    /// Whether connections arrive.
    pub(super) fn is_listening(&self) -> bool {
        matches!(self.state, PortState::Listening { .. })
    }

    /// Whether connections are accepted: they arrive, and there is no pause after an error.
    pub(super) fn is_accepting(&self) -> bool {
        matches!(self.state, PortState::Listening { paused_until: None })
    }

    /// The error because of which it does not listen.
    pub(super) fn error(&self) -> Option<&Arc<str>> {
        match &self.state {
            PortState::Failed { error, .. } => Some(error),
            PortState::Closed | PortState::Opening | PortState::Listening { .. } => None,
        }
    }

    /// Opens the socket; returns whether the owner has to do that now.
    pub(super) fn open(&mut self) -> bool {
        let is_closed = matches!(self.state, PortState::Closed);
        if is_closed {
            self.state = PortState::Opening;
        }
        is_closed
    }

    /// Closes the socket; returns whether the owner has one.
    pub(super) fn close(&mut self) -> bool {
        let had_socket = matches!(self.state, PortState::Opening | PortState::Listening { .. });
        self.state = PortState::Closed;
        had_socket
    }

    /// Ends the attempts to open a socket that could not be opened.
    pub(super) fn stop_retrying(&mut self) {
        if matches!(self.state, PortState::Failed { .. }) {
            self.state = PortState::Closed;
        }
    }

    /// Handles that the socket listens; `false` if it was closed meanwhile.
    pub(super) fn handle_opened(&mut self) -> bool {
        let was_opening = matches!(self.state, PortState::Opening);
        if was_opening {
            *self = Self::new(true);
        }
        was_opening
    }

    /// Handles that the socket cannot listen, or is broken.
    pub(super) fn handle_failed(&mut self, error: &str, now: Instant) {
        if matches!(self.state, PortState::Opening | PortState::Listening { .. }) {
            // SV3.5: what holds the port is often an older process that is about to end.
            let delay = if self.failures == 0 { FIRST_RETRY } else { RETRY };
            self.failures = self.failures.saturating_add(1);
            self.state = PortState::Failed { error: error.into(), retry_at: now + delay };
        }
    }

    /// Handles an error of `accept` after which the socket is still good.
    pub(super) fn handle_transient_error(&mut self, now: Instant) {
        if self.is_listening() {
            // SV3.12
            let delay = FIRST_PAUSE.saturating_mul(1 << self.accept_errors.min(PAUSE_DOUBLINGS));
            self.accept_errors = self.accept_errors.saturating_add(1);
            self.state = PortState::Listening { paused_until: Some(now + delay.min(LAST_PAUSE)) };
        }
    }

    /// Handles that a connection was accepted.
    pub(super) fn handle_accepted(&mut self) {
        self.accept_errors = 0;
    }

    /// Handles the time; returns whether the owner has to open the socket.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        match self.state {
            PortState::Listening { paused_until: Some(at) } if at <= now => {
                self.state = PortState::Listening { paused_until: None };
                false
            }
            PortState::Failed { retry_at, .. } if retry_at <= now => {
                self.state = PortState::Opening;
                true
            }
            PortState::Closed
            | PortState::Opening
            | PortState::Listening { .. }
            | PortState::Failed { .. } => false,
        }
    }

    /// The next deadline.
    pub(super) fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        match self.state {
            PortState::Listening { paused_until } => paused_until.map(|at| (at, Timer::Accept)),
            PortState::Failed { retry_at, .. } => Some((retry_at, Timer::Open)),
            PortState::Closed | PortState::Opening => None,
        }
    }
}

/// The delay before a socket is opened again for the first time.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The delay before it is opened again later.
const RETRY: Duration = Duration::from_secs(60);

/// The pause after an error of `accept`, which doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// The longest pause after an error of `accept`.
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// The number of doublings after which the pause is the longest.
const PAUSE_DOUBLINGS: u32 = 8;
