use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

/// The time that a set of endpoints may be empty.
#[derive(Debug)]
pub(super) struct Deadline {
    limit: Duration,
    /// Since when there is no endpoint, or when the deadline has passed the last time; `None` while there is one.
    empty_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    pub(super) fn new() -> Self {
        Self { limit: DEFAULT, empty_since: Some(Instant::now()), timer: None }
    }

    pub(super) fn set_limit(&mut self, limit: Duration) {
        // One without any length would be over again whenever it is looked at.
        self.limit = limit.max(SHORTEST);
        self.timer = None;
    }

    /// Takes note of whether the set is empty now.
    pub(super) fn observe(&mut self, is_empty: bool) {
        match (is_empty, self.empty_since) {
            (true, Some(_)) | (false, None) => {}
            (true, None) => self.empty_since = Some(Instant::now()),
            (false, Some(_)) => (self.empty_since, self.timer) = (None, None),
        }
    }

    /// Ready when the set has been empty for too long, and again after the same time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        // One that is further away than time can tell is never reached.
        let at = self.empty_since.and_then(|since| since.checked_add(self.limit));
        let Some(at) = at else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        ready!(timer.as_mut().poll(cx));
        (self.empty_since, self.timer) = (Some(Instant::now()), None);
        Poll::Ready(self.limit)
    }
}

/// Longer than the 15 s after which a resource that no server has sent counts as non-existent: by then the reason is known.
const DEFAULT: Duration = Duration::from_secs(20);

/// The resolution of tokio's timers.
const SHORTEST: Duration = Duration::from_millis(1);
