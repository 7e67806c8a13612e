//! Waits of the application until calls use the latest configuration.

use tokio::sync::oneshot;

/// The waits of [`Channel::wait_until_applied`](crate::Channel::wait_until_applied) for the task of the channel.
#[derive(Debug, Default)]
pub(super) struct LatestWaits {
    waits: Vec<oneshot::Sender<()>>,
}

impl LatestWaits {
    /// Adds a wait. What it waits for must be in the core already.
    pub(super) fn add(&mut self, done: oneshot::Sender<()>) {
        self.waits.push(done);
    }

    /// Ends all waits, unless something older is still in use. To be called when the state of the core was published.
    pub(super) fn end_unless(&mut self, is_older_used: impl FnOnce() -> bool) {
        if !self.waits.is_empty() && !is_older_used() {
            for done in self.waits.drain(..) {
                // An error means that the wait was given up.
                let _ = done.send(());
            }
        }
    }
}
