use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{runtime::Handle, task::AbortHandle};

use super::watch::Watch;
use crate::{observed::Observed, resource::Resource};

/// Keeps a callback registered; dropping it ends that.
///
/// Made by [`Client::on_change`](super::Client::on_change). After it is dropped no further call begins; one that is
/// under way runs to its end. The callback itself is dropped by the runtime, soon after.
#[must_use = "dropping the guard ends the calls"]
pub struct ChangeGuard {
    dropped: Arc<AtomicBool>,
    task: AbortHandle,
}

/// Calls back, in a task of its own, for each state that a watch gives.
pub(super) fn call<T, F>(runtime: &Handle, mut watch: Watch<T>, mut callback: F) -> ChangeGuard
where
    T: Resource,
    F: FnMut(&Arc<Observed<T>>) + Send + 'static,
{
    let dropped = Arc::new(AtomicBool::new(false));
    let is_dropped = dropped.clone();
    let task = runtime.spawn(async move {
        while let Some(seen) = watch.next().await {
            if is_dropped.load(Ordering::Acquire) {
                return;
            }
            callback(&seen);
        }
    });
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
