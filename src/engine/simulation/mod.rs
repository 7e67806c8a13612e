//! The engine in a world of several servers and authorities under one virtual clock, with every fault there is, and a
//! model beside it that contradicts.
//!
//! A [`Script`] says what an application, operators and the network do. [`play`] lets it happen, and checks after each
//! step and whenever the faults have ended for long enough that what must hold does. The same world serves the simulation
//! of many seeds, which makes up scripts, and the fuzzer, which finds them.

mod claims;
mod dialogue;
mod family;
mod keys;
mod known;
mod model;
mod network;
pub(in crate::engine) mod parts;
mod peer;
#[cfg(test)]
mod resolutions;
mod rest;
mod script;
#[cfg(test)]
pub(in crate::engine) mod seeds;
mod setup;
mod talk;
#[cfg(test)]
mod ttl;
mod world;

use std::collections::BTreeMap;

pub(crate) use self::family::Family;
pub use self::script::Script;
use crate::invariant;

/// Plays a script; gives how often what happened.
///
/// # Panics
/// When something happens that must not.
pub(crate) fn play(script: &Script) -> BTreeMap<&'static str, u64> {
    play_with(script, &Family::default())
}

/// Plays a script with servers of which a family says how they may behave.
///
/// # Panics
/// When something happens that must not.
pub(crate) fn play_with(script: &Script, family: &Family) -> BTreeMap<&'static str, u64> {
    let counts = world::World::new(script, family).play(&script.operations);
    // Without debug assertions a broken invariant is counted, and does not panic.
    assert_eq!(invariant::count(), 0, "broken invariants");
    counts
}
