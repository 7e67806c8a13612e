//! The clock of clients, and the seeds of their randomness.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    time::Instant,
};

use tokio::time;

/// The current time of the runtime: tokio's clock, which tests pause.
pub(super) fn now() -> Instant {
    time::Instant::now().into_std()
}

/// A seed. The standard library seeds its hash maps from the system's random source.
pub(super) fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
