//! The clock of clients.

use std::time::Instant;

use tokio::time;

/// The current time of the runtime.
pub(super) fn now() -> Instant {
    time::Instant::now().into_std()
}
