//! What the task of a channel has of its connections.

use tokio::{sync::oneshot, task::AbortHandle};

use crate::channel::shared_connections::Lease;

/// An attempt to connect.
pub(super) enum Attempt {
    Own(AbortHandle),
    Shared(Lease),
}

/// What drains a connection when it is dropped.
pub(super) enum Established {
    Own(#[expect(dead_code, reason = "its end is what counts")] oneshot::Sender<()>),
    Shared(#[expect(dead_code, reason = "its end is what counts")] Lease),
}

/// Reads the reports of load beside the calls until it is dropped.
pub(super) struct LoadWatch(AbortHandle);

impl LoadWatch {
    pub(super) fn new(reading: AbortHandle) -> Self {
        Self(reading)
    }
}

impl Drop for LoadWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}
