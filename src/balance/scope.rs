//! What the handling of an event needs.

use std::time::Instant;

use super::command::Commands;

/// The time and the random numbers of an event, and where the commands that follow from it go.
pub(super) struct Scope<'a> {
    pub(super) now: Instant,
    pub(super) random: &'a mut fastrand::Rng,
    pub(super) commands: &'a mut Commands,
}
