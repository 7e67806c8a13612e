//! How the attempts to each endpoint ended.

use std::sync::atomic::{AtomicU64, Ordering};

/// How the attempts to an endpoint ended, since it was listed.
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

    /// All successes and failures.
    #[cfg(test)]
    pub(in crate::balance) fn current(&self) -> (u64, u64) {
        (self.successes.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }

    /// Ends an interval, and gives what it has counted, by what was taken before it. The two buckets of A50 are the result and the
    /// difference to what is counted from now on: no attempt that ends at the same time is lost, as it may be by an index of the
    /// active bucket. Nothing is written, so that the cache lines of many endpoints are read side by side.
    pub(super) fn take_since(&self, taken: &mut Counts) -> Counts {
        // The two counters are read one after the other: an attempt that ends in between counts in this interval or in the next
        // one.
        let now = Counts {
            successes: self.successes.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        };
        let before = std::mem::replace(taken, now);
        Counts {
            // The difference is right also after a counter has wrapped around.
            successes: now.successes.wrapping_sub(before.successes),
            failures: now.failures.wrapping_sub(before.failures),
        }
    }
}

impl Counts {
    pub(super) fn total(self) -> u64 {
        self.successes + self.failures
    }
}
