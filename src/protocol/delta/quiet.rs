//! The quiet time of a server, after which it is not going to confirm anything.

use std::time::{Duration, Instant};

/// Unconfirmed resources are decided on when the server has been quiet for a while, or has sent other messages for too long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quiet {
    /// The begin of the wait.
    since: Instant,
    /// The time of the server's last message, if there was one.
    last_response: Option<Instant>,
    /// The quiet time passed without a message. That has no effect on what it had sent on earlier streams.
    was_silent: bool,
}

impl Quiet {
    /// The wait begins.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, last_response: None, was_silent: false }
    }

    /// The wait begins after a response.
    pub(super) fn after_response(now: Instant) -> Self {
        Self { last_response: Some(now), ..Self::new(now) }
    }

    /// A response was received. The first one after a long silence may be one of several.
    pub(super) fn on_response(&mut self, now: Instant) {
        if self.was_silent && self.last_response.is_none() {
            self.since = now;
        }
        self.last_response = Some(now);
    }

    /// A response was received that does not decide.
    pub(super) fn on_undecided(&mut self, now: Instant) {
        self.last_response = Some(now);
    }

    /// When the server has been quiet for long enough. One that is never quiet, such as one that repeats rejected resources, has its
    /// time as well.
    pub(super) fn ends_at(self, time: Duration) -> Option<Instant> {
        match self.last_response {
            Some(last_response) => Some((last_response + time).min(self.since + LONGEST_QUIET * time)),
            None => Some(self.since + time).filter(|_| !self.was_silent),
        }
    }

    /// The time has passed: what remains of the wait for a server that has sent nothing at all.
    pub(super) fn after_end(self) -> Option<Self> {
        self.last_response.is_none().then_some(Self { was_silent: true, ..self })
    }
}

/// The number of quiet times after which a server that always sends something has sent everything.
const LONGEST_QUIET: u32 = 4;
