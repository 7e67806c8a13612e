//! Invariants of the core that do not hold: a defect of this crate, which must not take an application down.

use std::sync::atomic::{AtomicU64, Ordering};

use tracing::error;

/// Notes that an invariant does not hold. It panics where debug assertions are on, as in tests and simulations; elsewhere it is
/// logged and counted, and the caller goes on without what is missing.
#[track_caller]
pub(crate) fn broken(invariant: &'static str) {
    BROKEN.fetch_add(1, Ordering::Relaxed);
    error!(invariant, "broken invariant");
    debug_assert!(false, "broken invariant: {invariant}");
}

/// How many were broken in this process, for simulations and fuzz targets that run without debug assertions.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn count() -> u64 {
    BROKEN.load(Ordering::Relaxed)
}

static BROKEN: AtomicU64 = AtomicU64::new(0);
