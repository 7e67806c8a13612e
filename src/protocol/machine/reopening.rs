//! Requests that are repeated on another stream, because they have no effect on the current one.

use std::time::{Duration, Instant};

use crate::protocol::TypeId;

/// The schedule of reopening a stream because of resources that the server considers held, or for a name: at most once in
/// the does-not-exist time. A need before that waits for its end.
#[derive(Debug, Default)]
pub(super) struct Reopening {
    /// The time of the last reopening.
    last: Option<Instant>,
    /// The needs before the end of the does-not-exist time, merged into one.
    waiting: Option<PendingReopen>,
}

/// The needs that wait for another stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingReopen {
    /// When the stream may be opened.
    at: Instant,
    /// The reason of the first of them, for the log.
    pub(super) why: &'static str,
    /// The type of the wildcard that it is for, and is not needed without; `None` if it is for something else, or for several.
    pub(super) wildcard: Option<TypeId>,
}

impl Reopening {
    /// The time of reopening; nothing waits after that.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.map(|waiting| waiting.at)
    }

    /// The stream has ended, and the next one is another stream for all needs.
    pub(super) fn on_stream_gone(&mut self) {
        self.waiting = None;
    }

    /// Schedules another stream for as soon as it may be opened: behind everything that is due at the same time, so that one
    /// stream serves all of it.
    pub(super) fn plan(&mut self, why: &'static str, pause: Duration, now: Instant) {
        let at = self.last.map_or(now, |last| (last + pause).max(now));
        let waiting = self.waiting.get_or_insert(PendingReopen { at, why, wildcard: None });
        // A name needs the stream, whatever becomes of the wildcard.
        waiting.wildcard = None;
    }

    /// Whether another stream may be opened now; otherwise that waits.
    pub(super) fn begin(&mut self, why: Why, pause: Duration, now: Instant) -> bool {
        let Why { text: why, wildcard } = why;
        let at = self.last.map_or(now, |last| last + pause);
        if at > now {
            let waiting = self.waiting.get_or_insert(PendingReopen { at, why, wildcard });
            // Of needs for different wildcards, or for a name as well, one may remain when the other has ended.
            waiting.wildcard = waiting.wildcard.filter(|_| waiting.wildcard == wildcard);
            return false;
        }
        (self.last, self.waiting) = (Some(now), None);
        true
    }

    /// Takes the need whose wait has ended.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<PendingReopen> {
        self.waiting.take_if(|waiting| waiting.at <= now)
    }

    /// The stream is opened anew for a need that has waited.
    pub(super) fn on_reopened(&mut self, now: Instant) {
        self.last = Some(now);
    }
}

/// The reason for another stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Why {
    /// The reason in the log.
    pub(super) text: &'static str,
    /// The type of the wildcard that the stream is for; `None` if it is for names.
    pub(super) wildcard: Option<TypeId>,
}
