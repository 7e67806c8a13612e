//! The waits of the task of a channel.

use std::{future::pending, sync::Arc};

use tokio::time::{Instant, sleep_until};

use super::target_resolution::TargetResolution;
use crate::{error::WatchError, resolve::Snapshot};

/// Returns the next state of the resolution, if there is one; `None` once its client has ended.
pub(super) async fn next(
    resolution: &mut Option<TargetResolution>,
) -> Option<Result<Arc<Snapshot>, WatchError>> {
    match resolution {
        Some(resolution) => resolution.next().await,
        None => pending().await,
    }
}

/// Waits for a time; for ever without one.
pub(super) async fn until(timeout: Option<Instant>) {
    match timeout {
        // A timer would take the rest of its millisecond.
        Some(at) if at <= Instant::now() => {}
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// Returns the time of the core, which tests can pause.
pub(super) fn now() -> std::time::Instant {
    Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ch11_9_what_is_due_does_not_wait_for_the_end_of_a_millisecond() {
        tokio::time::advance(Duration::from_micros(1_500)).await;
        let at = Instant::now();
        until(Some(at)).await;
        assert_eq!(Instant::now(), at);
        sleep_until(at).await;
        assert!(Instant::now() > at, "a timer does");
    }
}
