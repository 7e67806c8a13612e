use std::time::{Duration, Instant};

/// The answer to the empty list that begins a stream with a wildcard, as far as names beside the wildcard depend on it (B1.23, B1.26).
#[derive(Debug, Default)]
pub(super) struct EmptyList {
    /// The names wait until then for the response, which may have their resources.
    names_wait_until: Option<Instant>,
    /// The wildcard was sent as `*` before any response.
    is_spelled_early: bool,
    /// The last response is the first one, and the wildcard was sent as `*` before it.
    is_crossed: bool,
}

impl EmptyList {
    /// The empty list was written, and names follow.
    pub(super) fn on_written(&mut self, now: Instant) {
        self.names_wait_until = Some(now + WAIT);
    }

    /// It has left, and the time of the names begins.
    pub(super) fn on_sent(&mut self, now: Instant) {
        if let Some(until) = &mut self.names_wait_until {
            *until = now + WAIT;
        }
    }

    /// The wildcard was sent as `*` while no response had come, though one was due.
    pub(super) fn on_spelled_unanswered(&mut self) {
        self.is_spelled_early = true;
    }

    pub(super) fn on_response(&mut self) {
        self.names_wait_until = None;
        self.is_crossed = std::mem::take(&mut self.is_spelled_early);
    }

    /// The time at which names that are `due` may be written.
    pub(super) fn due(&self, due: Instant) -> Instant {
        self.names_wait_until.map_or(due, |until| until.max(due))
    }

    /// Whether the last response may be the answer to the empty list, although the wildcard was sent as `*` since.
    pub(super) fn is_crossed(&self) -> bool {
        self.is_crossed
    }
}

/// For how long the response to a wildcard is waited for before names are requested beside it.
const WAIT: Duration = Duration::from_secs(1);
