//! A server under random updates, connections, failures of the port and shutdowns, in virtual time.
//!
//! A seed chooses what happens. Peers are slow or silent in their handshakes, end their connections late or never when they drain, or
//! vanish. Listeners and route configurations come, change, and are absent in any order. A neighbour has a connection and
//! makes requests all the time: whatever the others do, it is accepted whenever the server serves, its requests find the
//! latest routes, and its connection is never closed. After each step the [model](model::Model) is compared with the machine.
//! At the end the server is shut down, and nothing is left.

mod model;
mod peers;
mod world;

use std::collections::BTreeMap;

use self::world::World;

#[test]
fn sv13_1_simulation_of_serving() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = number("XDSKIT_SIMULATION_SEEDS").unwrap_or(1_000);
    let seeds = number("XDSKIT_SIMULATION_SEED").map_or(0..count, |seed| seed..seed + 1);
    let worlds = seeds.end - seeds.start;
    let mut outcomes = BTreeMap::new();
    for seed in seeds {
        let run = || World::new(seed).play();
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
            Ok(some) => {
                some.into_iter().for_each(|(name, count)| *outcomes.entry(name).or_insert(0) += count)
            }
            Err(panic) => {
                eprintln!("seed {seed} fails: XDSKIT_SIMULATION_SEED={seed} repeats it");
                std::panic::resume_unwind(panic);
            }
        }
    }
    // Each must be met often, or the checks of it show nothing.
    let is_rare = |name: &&&str| outcomes.get(**name) < Some(&(worlds / 50));
    let rare: Vec<_> = OUTCOMES.iter().filter(is_rare).collect();
    assert!(worlds < 1_000 || rare.is_empty(), "{rare:?} are rare: {outcomes:?}");
}

/// What happens in the worlds.
const OUTCOMES: [&str; 16] = [
    "served",
    "rejected: not serving",
    "rejected: no filter chain matches",
    "rejected: too many connections",
    "rejected: too many unfinished handshakes",
    "swapped with older connections",
    "pending",
    "drained",
    "closed: the handshake took too long",
    "closed: not drained within the grace period",
    "closed: the server is shut down",
    "routed",
    "refused",
    "port failed",
    "accept failed",
    "batch drained",
];
