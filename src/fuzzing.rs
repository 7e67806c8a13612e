//! What the fuzzer needs of the inside: the engine in a simulated world. No part of the API.

use std::collections::BTreeMap;

pub use crate::engine::simulation::Script;

/// Plays a script; gives how often what happened.
///
/// # Panics
/// When something happens that must not.
pub fn play(script: &Script) -> BTreeMap<&'static str, u64> {
    crate::engine::simulation::play(script)
}
