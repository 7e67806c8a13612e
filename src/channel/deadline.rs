//! The end of a call's time.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

use super::status;

/// When a call ends, whatever it waits for: at its deadline, or when its channel is shut down, if the end of its connection does
/// not say so.
#[derive(Default)]
pub(super) struct Deadline {
    at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    cancelled: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// Why a call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    Time,
    ShutDown,
}

impl Deadline {
    /// Without a limit, until this is ready.
    pub(super) fn new(cancelled: Option<impl Future<Output = ()> + Send + 'static>) -> Self {
        let cancelled =
            cancelled.map(|cancelled| -> Pin<Box<dyn Future<Output = ()> + Send>> { Box::pin(cancelled) });
        Self { at: None, timer: None, cancelled }
    }

    /// The time of the call, if it is limited.
    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// The call ends at this time at the latest.
    pub(super) fn limit(&mut self, at: Instant) {
        if self.at.is_some_and(|before| before <= at) {
            return;
        }
        self.at = Some(at);
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(at),
            None => self.timer = Some(Box::pin(sleep_until(at))),
        }
    }

    /// Whether anything ends the call.
    pub(super) fn is_limited(&self) -> bool {
        self.at.is_some() || self.cancelled.is_some()
    }

    /// Waits for the end of the call's time.
    pub(super) async fn passed(mut self) -> Over {
        poll_fn(|cx| self.poll_over(cx)).await
    }

    /// The end of the channel, without the time of the call, if the end of the connection does not show it.
    pub(super) fn into_cancelled(self) -> Option<impl Future<Output = ()> + Send + 'static> {
        self.cancelled
    }

    /// What a future gives.
    ///
    /// # Errors
    /// The call ends before.
    pub(super) async fn watch<T>(&mut self, future: impl Future<Output = T>) -> Result<T, Over> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll_over(cx).map(Err),
        })
        .await
    }

    /// Ready when the call ends.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        if let Some(cancelled) = &mut self.cancelled
            && cancelled.as_mut().poll(cx).is_ready()
        {
            // It is not polled again.
            self.cancelled = None;
            return Poll::Ready(Over::ShutDown);
        }
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(cx).map(|()| Over::Time),
            None => Poll::Pending,
        }
    }
}

impl Over {
    /// The status of a call that has a stream, or waits for one. The reason is what it waits for.
    pub(super) fn status(self, reason: &str) -> Status {
        match self {
            Self::Time => status::deadline_exceeded(reason),
            Self::ShutDown => Status::cancelled("channel is shut down"),
        }
    }
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadline").field("at", &self.at).finish_non_exhaustive()
    }
}
