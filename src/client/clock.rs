//! The clock of clients.

use std::time::Instant;

use tokio::time;

/// The current time of the runtime: tokio's clock, which tests pause.
pub(super) fn now() -> Instant {
    time::Instant::now().into_std()
}
