//! What the task of a channel waits for.

use std::{future::pending, sync::Arc};

use tokio::time::{Instant, sleep_until};

use crate::{client::Resolution, error::WatchError, resolve::Snapshot};

/// The next state of the resolution, if there is one.
pub(super) async fn next(resolution: &mut Option<Resolution>) -> Result<Arc<Snapshot>, WatchError> {
    let Some(resolution) = resolution else { return pending().await };
    match resolution.next().await {
        Some(resolved) => resolved,
        // The client was shut down: this is the last state.
        None => pending().await,
    }
}

pub(super) async fn until(timeout: Option<Instant>) {
    match timeout {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// The core's time, which tests can pause.
pub(super) fn now() -> std::time::Instant {
    Instant::now().into_std()
}
