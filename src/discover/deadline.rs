use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

/// The deadline of an empty set of endpoints.
#[derive(Debug)]
pub(super) struct Deadline {
    /// The time without endpoints, at least `SHORTEST`.
    limit: Duration,
    /// The time since which there is no endpoint, or at which the deadline last passed; `None` while there is one.
    empty_since: Option<Instant>,
    /// Created by the first poll while the set is empty; dropped with each change of the end.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// A deadline of an empty set, which begins now.
    pub(super) fn new() -> Self {
        Self { limit: DEFAULT, empty_since: Some(Instant::now()), timer: None }
    }

    /// Changes the limit, also for a set that is empty already.
    pub(super) fn set_limit(&mut self, limit: Duration) {
        // A zero duration would expire at each poll.
        self.limit = limit.max(SHORTEST);
        self.timer = None;
    }

    /// Updates whether the set is empty.
    pub(super) fn observe(&mut self, is_empty: bool) {
        match (is_empty, self.empty_since) {
            (true, Some(_)) | (false, None) => {}
            (true, None) => self.empty_since = Some(Instant::now()),
            (false, Some(_)) => (self.empty_since, self.timer) = (None, None),
        }
    }

    /// Ready when the set has been empty for too long, and again after each further period.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        // A deadline beyond the range of the clock is never reached.
        let at = self.empty_since.and_then(|since| since.checked_add(self.limit));
        let Some(at) = at else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        ready!(timer.as_mut().poll(cx));
        (self.empty_since, self.timer) = (Some(Instant::now()), None);
        Poll::Ready(self.limit)
    }
}

/// The default. It exceeds the 15 s after which a resource that no server has sent counts as non-existent: by then
/// the reason is known.
const DEFAULT: Duration = Duration::from_secs(20);

/// The resolution of tokio's timers.
const SHORTEST: Duration = Duration::from_millis(1);
