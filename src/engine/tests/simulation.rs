//! The simulated world of one server of the state of the world with scripts from seeds.
//!
//! After each step the invariants of the model hold; when the faults end, client and server agree within the bound of the
//! backoff.

use std::collections::BTreeMap;

use crate::engine::simulation::{
    Family, Script, play_with,
    seeds::{family, with_seeds},
};

#[test]
fn simulation_of_many_seeds() {
    let mut counts = BTreeMap::new();
    let family = family();
    let seeds = with_seeds("simulation::simulation_of_many_seeds", |seed| {
        for (what, count) in play_with(&Script::of_one_server(seed), &family) {
            *counts.entry(what).or_insert(0) += count;
        }
    });
    println!("in {seeds} worlds: {counts:?}");
    let is_reached = KINDS.iter().all(|what| counts.get(what).is_some_and(|count| *count > 40));
    assert!(seeds < 2_000 || is_reached, "a simulation must get at what it is for: {counts:?}");
}

/// Worlds that failed once; docs/FUZZING.md has what they found.
#[test]
fn worlds_of_one_server_that_failed_once() {
    // They had no initial resources.
    let names: Vec<_> = Family::names().filter(|name| name != "InitialResources").collect();
    let family = Family::of(&names.join(",")).expect("these are names of freedoms and rules");
    for seed in [16_657, 16_660, 37_494, 46_737, 47_109, 65_611] {
        println!("world {seed}");
        play_with(&Script::of_one_server(seed), &family);
    }
}

/// What happens in the worlds of one server.
const KINDS: [&str; 8] =
    ["accepted", "rejected", "present", "absent", "members", "deleted", "timed out", "server error"];
