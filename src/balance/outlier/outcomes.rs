//! How the attempts to each endpoint ended.

use std::sync::atomic::{AtomicU64, Ordering};

/// How the attempts to an endpoint ended in the current interval.
///
/// Calls count without a lock. A whole cache line, so that those of two endpoints do not slow each other down (CH11.6).
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Outcomes {
    successes: AtomicU64,
    failures: AtomicU64,
}

/// How many attempts ended in each way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) successes: u64,
    pub(super) failures: u64,
}

impl Outcomes {
    pub(in crate::balance) fn on_success(&self) {
        self.successes.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::balance) fn on_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// The successes and failures of the current interval.
    #[cfg(test)]
    pub(in crate::balance) fn current(&self) -> (u64, u64) {
        (self.successes.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }

    /// Ends the interval, and gives what it has counted. The two buckets of A50 are these and the result: an exchange loses no
    /// attempt that ends at the same time, which an index of the active bucket does.
    pub(super) fn take(&self) -> Counts {
        Counts { successes: take(&self.successes), failures: take(&self.failures) }
    }
}

impl Counts {
    pub(super) fn total(self) -> u64 {
        self.successes + self.failures
    }
}

/// Most endpoints of a large cluster have counted nothing, whose cache lines are left alone.
fn take(counter: &AtomicU64) -> u64 {
    if counter.load(Ordering::Relaxed) == 0 { 0 } else { counter.swap(0, Ordering::Relaxed) }
}
