//! Resolutions against the server's session under one virtual clock: random meshes and changes of them, torn and late
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
    world::{Habits, World},
};
use super::{network::Weather, seeds::with_seeds_and};

/// Anything may happen: resources are missing, bad and deleted, streams break, names are never answered.
#[test]
fn walks_through_everything() {
    let mut tally = BTreeMap::new();
    let seeds = with_seeds_and(
        &[4_618, 6_701, 7_243, 11_357, 20_327, 34_157, 34_963],
        "walks_through_everything",
        |seed| {
            for (kind, count) in World::new(seed, Habits::wild()).run() {
                *tally.entry(kind).or_insert(0) += count;
            }
        },
    );
    println!("published in {seeds} worlds: {tally:?}");
    assert!(seeds < 2_000 || tally.len() == KINDS, "a simulation must get at what it is for: {tally:?}");
    assert!(seeds < 2_000 || tally.values().all(|count| *count > 1_000), "{tally:?}");
}

/// Every state of the mesh is valid, and types arrive in any order, but less than the grace apart.
#[test]
fn a_valid_change_takes_nothing_from_who_is_served() {
    with_seeds_and(
        &[4_483, 5_711, 14_064, 21_286, 24_502, 55_415, 63_227, 83_399],
        "a_valid_change_takes_nothing",
        |seed| drop(World::new(seed, Habits::torn()).run()),
    );
}

/// Every state of the mesh is valid, but the server cannot be reached at times; the grace is longer than that.
#[test]
fn a_lost_server_takes_nothing_from_who_is_served() {
    with_seeds_and(
        &[7_142, 7_455, 14_128, 33_997, 37_309, 38_890, 42_480, 45_722, 50_578, 51_920, 64_922],
        "a_lost_server_takes_nothing",
        |seed| drop(World::new(seed, Habits::lonely()).run()),
    );
}

impl Habits {
    fn wild() -> Self {
        Self {
            rules: Rules { sound: false, faults: true },
            weather: Weather::FOUL,
            longest_hold: Duration::from_secs(30),
            grace: Duration::from_secs(1),
        }
    }

    fn torn() -> Self {
        Self {
            rules: Rules { sound: true, faults: false },
            weather: Weather { delay: Duration::from_millis(10), ..Weather::FINE },
            // With what else delays a response, it stays within the grace.
            longest_hold: Duration::from_millis(700),
            grace: Duration::from_secs(1),
        }
    }

    fn lonely() -> Self {
        Self {
            rules: Rules { sound: true, faults: true },
            weather: Weather::FOUL,
            // A server that is silent for longer says thereby that a name does not exist.
            longest_hold: Duration::from_secs(4),
            grace: Duration::from_secs(1_000),
        }
    }
}

/// How many kinds of things resolutions publish.
const KINDS: usize = 11;
