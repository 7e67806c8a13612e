//! Durations in the notation of protobuf.

use std::time::Duration;

/// The maximum duration: 30 years. Longer ones are reduced to it, so that they can be added to any time, and
/// `Duration::MAX` means never.
pub(crate) const LONGEST_DURATION: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// A duration that can be added to any time.
pub(crate) fn bounded(duration: Duration) -> Duration {
    duration.min(LONGEST_DURATION)
}
