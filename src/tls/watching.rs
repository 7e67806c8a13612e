//! Tasks that keep files up to date for as long as somebody needs them.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Instant,
};

use tokio::task::AbortHandle;

/// A slot for at most one task.
#[derive(Default)]
pub(super) struct Watch(Mutex<Weak<Watching>>);

/// The task that keeps files up to date. It is aborted when the last clone is dropped.
pub(super) struct Watching {
    /// The handle by which the task is aborted.
    task: AbortHandle,
}

impl Watch {
    /// Calls `refresh` whenever it is due, while the result is held. To be called within a runtime.
    pub(super) fn start<F>(&self, refresh: impl Fn() -> F + Send + 'static) -> Arc<Watching>
    where
        F: Future<Output = Option<Instant>> + Send,
    {
        let mut watching = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A task that has ended, since its runtime has, is replaced: the client may be used from another runtime.
        if let Some(running) = watching.upgrade().filter(|running| !running.task.is_finished()) {
            return running;
        }
        let task = tokio::spawn(async move {
            loop {
                // Without a time, the runtime ends.
                let Some(due) = refresh().await else { return };
                tokio::time::sleep_until(due.into()).await;
            }
        });
        let started = Arc::new(Watching { task: task.abort_handle() });
        *watching = Arc::downgrade(&started);
        started
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
    }
}
