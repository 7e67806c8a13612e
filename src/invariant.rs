//! Violated invariants of the core: defects of this crate, which must not take an application down.

use std::sync::atomic::{AtomicU64, Ordering};

use tracing::error;

/// Reports a violated invariant. With debug assertions, as in tests and simulations, it panics; otherwise it is
/// logged and counted, and the caller continues without the missing value.
#[track_caller]
pub(crate) fn broken(invariant: &'static str) {
    BROKEN.fetch_add(1, Ordering::Relaxed);
    error!(invariant, "broken invariant");
    debug_assert!(false, "broken invariant: {invariant}");
}

/// The number of violations in this process, for simulations and fuzz targets without debug assertions.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn count() -> u64 {
    BROKEN.load(Ordering::Relaxed)
}

static BROKEN: AtomicU64 = AtomicU64::new(0);
