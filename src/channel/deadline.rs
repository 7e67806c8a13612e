//! The deadline of a call, and the end of its channel.

use std::{
    convert::identity,
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

use super::{active::ActiveCalls, status};

/// The time limit of a call, whatever it waits for: its deadline, and the shutdown of its channel where the end of the connection
/// does not imply it.
#[derive(Default)]
pub(super) struct Deadline {
    /// The deadline; `None` without one.
    at: Option<Instant>,
    /// The timer of the deadline.
    timer: Option<Pin<Box<Sleep>>>,
    /// Ready at the end of the shutdown of a channel that shares its connections.
    cancelled: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// The reason why a call ends before its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallEnd {
    /// The deadline has passed.
    DeadlineExceeded,
    /// The channel was shut down.
    ShutDown,
}

impl Deadline {
    /// Creates a deadline without a time, which ends when `cancelled` is ready.
    pub(super) fn new(cancelled: Option<impl Future<Output = ()> + Send + 'static>) -> Self {
        let cancelled =
            cancelled.map(|cancelled| -> Pin<Box<dyn Future<Output = ()> + Send>> { Box::pin(cancelled) });
        Self { at: None, timer: None, cancelled }
    }

    /// Returns the deadline, if the call has one.
    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Sets a deadline, unless there is an earlier one.
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

    /// Waits for the end of the call.
    pub(super) async fn passed(mut self) -> CallEnd {
        poll_fn(|cx| self.poll_end(cx)).await
    }

    /// Returns the end of the channel alone, where the end of the connection does not imply it.
    pub(super) fn into_cancelled(self) -> Option<impl Future<Output = ()> + Send + 'static> {
        self.cancelled
    }

    /// Returns the output of a future.
    ///
    /// # Errors
    /// The call ended before.
    pub(super) async fn watch<T>(&mut self, future: impl Future<Output = T>) -> Result<T, CallEnd> {
        let mut future = pin!(future);
        // The output first: a response that is there at the deadline is delivered.
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll_end(cx).map(Err),
        })
        .await
    }

    /// Returns the output of a future that is not bound to a connection. The shutdown of the channel ends it, too, since the
    /// connection of the call may be one that other channels go on using.
    ///
    /// # Errors
    /// The call ended before, or the shutdown of the channel has begun.
    pub(super) async fn until_shut_down<T>(
        &mut self,
        active: &ActiveCalls,
        future: impl Future<Output = T>,
    ) -> Result<T, CallEnd> {
        let shut_down = active.shut_down_begins();
        let future = async {
            tokio::select! {
                output = future => Ok(output),
                () = shut_down => Err(CallEnd::ShutDown),
            }
        };
        self.watch(future).await.and_then(identity)
    }

    /// Ready when the call ends.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<CallEnd> {
        if let Some(cancelled) = &mut self.cancelled
            && cancelled.as_mut().poll(cx).is_ready()
        {
            // It is not polled again.
            self.cancelled = None;
            return Poll::Ready(CallEnd::ShutDown);
        }
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(cx).map(|()| CallEnd::DeadlineExceeded),
            None => Poll::Pending,
        }
    }
}

impl CallEnd {
    /// Returns the status of a call that has a stream, or waits for one. `reason` is what it waits for.
    pub(super) fn status(self, reason: &str) -> Status {
        match self {
            Self::DeadlineExceeded => status::deadline_exceeded(reason),
            Self::ShutDown => Status::cancelled("channel is shut down"),
        }
    }
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadline").field("at", &self.at).finish_non_exhaustive()
    }
}
