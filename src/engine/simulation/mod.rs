//! The engine in a world of several servers and authorities under one virtual clock, with every fault there is, and a
//! reference model beside it.
//!
//! A [`Script`] has the operations of an application, operators and the network. [`play`] executes it, and checks after each
//! step and whenever the faults have ended for long enough that what must hold does. The same world serves the simulation
//! of many seeds, which generates scripts, and the fuzzer, which finds them.

#[cfg(test)]
mod batches;
mod claims;
mod convergence;
mod family;
mod history;
mod keys;
mod model;
mod network;
pub(in crate::engine) mod parts;
mod request_rules;
#[cfg(test)]
mod resolutions;
mod script;
#[cfg(test)]
pub(in crate::engine) mod seeds;
mod server;
mod session;
mod setup;
mod stream_rules;
#[cfg(test)]
mod ttl;
mod world;

use std::collections::BTreeMap;

pub(crate) use self::family::Family;
pub use self::script::Script;
use crate::invariant;

/// Plays a script; returns the number of events of each kind.
///
/// # Panics
/// When an invariant is violated.
pub(crate) fn play(script: &Script) -> BTreeMap<&'static str, u64> {
    play_with(script, &Family::default())
}

/// Plays a script with servers of a family.
///
/// # Panics
/// When an invariant is violated.
pub(crate) fn play_with(script: &Script, family: &Family) -> BTreeMap<&'static str, u64> {
    let counts = world::World::new(script, family).play(&script.operations);
    // Without debug assertions a broken invariant is counted, and does not panic.
    assert_eq!(invariant::count(), 0, "broken invariants");
    counts
}
