//! Calls of a function at each change of a watch.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_core::Stream;
use tokio::{runtime::Handle, task::AbortHandle};

use crate::background::supervise;

/// The registration of a callback, which ends when this guard is dropped.
///
/// Created by [`Client::on_change`](super::Client::on_change) and
/// [`Client::on_change_all`](super::Client::on_change_all). No call begins after the guard is dropped; a running one
/// is completed. The runtime drops the callback itself soon after. A callback that panics is not called again: its watch ends, with an
/// error in the log, and the client and its other watches go on.
#[must_use = "dropping the guard ends the calls"]
pub struct ChangeGuard {
    /// Set when the calls must end.
    dropped: Arc<AtomicBool>,
    /// The task that makes the calls.
    task: AbortHandle,
}

/// Calls back, in a task of its own, with each state that a watch yields.
///
/// The callback runs between polls of the watch, so that a slow one skips states and delays nobody else.
pub(super) fn call<S, F>(runtime: &Handle, mut watch: S, mut callback: F) -> ChangeGuard
where
    S: Stream + Unpin + Send + 'static,
    S::Item: Send,
    F: FnMut(&S::Item) + Send + 'static,
{
    // An abort ends the task at its next `await`. The flag covers the time between the poll of the watch and the call.
    let dropped = Arc::new(AtomicBool::new(false));
    let is_dropped = dropped.clone();
    let calls = async move {
        while let Some(seen) = poll_fn(|cx| Pin::new(&mut watch).poll_next(cx)).await {
            if is_dropped.load(Ordering::Acquire) {
                return;
            }
            callback(&seen);
        }
    };
    // The end of the calls is that of the watch, for which nobody waits.
    let task = runtime.spawn(supervise("callback of a watch", calls, |_| {}));
    ChangeGuard { dropped, task: task.abort_handle() }
}

impl Drop for ChangeGuard {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Release);
        self.task.abort();
    }
}

impl fmt::Debug for ChangeGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeGuard").finish_non_exhaustive()
    }
}
