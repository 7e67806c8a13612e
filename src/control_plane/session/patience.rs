//! Bounded waits for resources whose state is unknown.

use std::time::{Duration, Instant};

/// The time for which the known resources of a response wait for those whose state is unknown.
///
/// A client cannot tell a resource that is known later from one that does not exist: its timer for that runs for 15 s
/// from its request. So each wait ends long before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Patience {
    /// The begin of the wait; `None` without one.
    since: Option<Instant>,
    /// Whether the limit has passed, at the last known time.
    is_over: bool,
    /// Whether a response was sent in spite of unknown resources. Further ones do not wait then.
    has_given_up: bool,
}

impl Patience {
    /// Updates the time while something waits. Returns the end of the wait, unless it has passed.
    pub(super) fn handle_time(&mut self, now: Instant, limit: Duration) -> Option<Instant> {
        let end = *self.since.get_or_insert(now) + limit;
        self.is_over = end <= now;
        (!self.is_over).then_some(end)
    }

    /// Ends the wait, since its reason is gone. The next one is a new one.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Whether a response is due although something is unknown: one was sent before in spite of that, or the time is
    /// over, and there is something to send.
    pub(super) fn gives_up(&mut self, has_something: impl FnOnce() -> bool) -> bool {
        self.has_given_up |= self.is_over && has_something();
        self.has_given_up
    }
}

/// The longest wait of a client that has no resources of the type. It gathers what arrives together.
pub(super) const GATHERING: Duration = Duration::from_millis(250);
/// The longest wait of a client that may have resources, or that requested all of them: it would drop those that are missing
/// from an early response.
pub(super) const HOLDING: Duration = Duration::from_secs(5);
