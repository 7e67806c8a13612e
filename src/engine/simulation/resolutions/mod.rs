//! Resolutions against a simulated server under one virtual clock: random meshes and changes of them, torn and late
//! updates, and faults, all from a seed.
//!
//! What is published is checked against the [`model`]; when the faults have ended, against the [rules](naive) applied to
//! what the server has ([`quiet`]).

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "each place looks for one kind of specification among ten"
)]

mod mesh;
mod model;
mod naive;
mod picture;
mod quiet;
mod spec;
mod world;

use std::{collections::BTreeMap, time::Duration};

use self::{
    model::Rules,
    world::{World, WorldConfig},
};
use super::{seeds::with_seeds, setup::NetworkConditions};

/// Anything may happen: resources are missing, bad and deleted, streams break, names are never answered.
#[test]
fn resolutions_of_anything() {
    let mut counts = BTreeMap::new();
    let seeds = with_seeds("resolutions_of_anything", |seed| {
        for (kind, count) in World::new(seed, WorldConfig::wild()).run() {
            *counts.entry(kind).or_insert(0) += count;
        }
    });
    println!("published in {seeds} worlds: {counts:?}");
    assert!(seeds < 500 || counts.len() == KINDS, "a simulation must get at what it is for: {counts:?}");
    assert!(seeds < 500 || counts.values().all(|count| *count > 250), "{counts:?}");
}

/// Every state of the mesh is valid, and types arrive in any order, but less than the grace apart.
#[test]
fn a_valid_change_takes_nothing_from_who_is_served() {
    with_seeds("a_valid_change_takes_nothing", |seed| drop(World::new(seed, WorldConfig::torn()).run()));
}

/// Every state of the mesh is valid, but the server cannot be reached at times; the grace is longer than that.
#[test]
fn a_lost_server_takes_nothing_from_who_is_served() {
    with_seeds("a_lost_server_takes_nothing", |seed| drop(World::new(seed, WorldConfig::lonely()).run()));
}

impl WorldConfig {
    fn wild() -> Self {
        Self {
            rules: Rules { sound: false, faults: true },
            conditions: NetworkConditions::WORSE,
            longest_hold: Duration::from_secs(30),
            grace: Duration::from_secs(1),
        }
    }

    fn torn() -> Self {
        Self {
            rules: Rules { sound: true, faults: false },
            conditions: NetworkConditions::calm(Duration::from_millis(10)),
            // With what else delays a response, it stays within the grace.
            longest_hold: Duration::from_millis(700),
            grace: Duration::from_secs(1),
        }
    }

    fn lonely() -> Self {
        Self {
            rules: Rules { sound: true, faults: true },
            conditions: NetworkConditions::WORSE,
            // A longer silence of a server means that a name does not exist.
            longest_hold: Duration::from_secs(4),
            grace: Duration::from_secs(1_000),
        }
    }
}

/// How many kinds of things resolutions publish.
const KINDS: usize = 11;
