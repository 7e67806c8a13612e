//! The simulated world of several servers and authorities with scripts from seeds.

use std::collections::BTreeMap;

use super::seeds::with_many_seeds;
use crate::engine::simulation::{Script, play};

#[test]
fn operations_on_several_servers_and_authorities() {
    let mut tally = BTreeMap::new();
    let seeds = with_many_seeds("operations_on_several_servers", 10_000, |seed| {
        for (what, count) in play(&Script::random(seed)) {
            *tally.entry(what).or_insert(0) += count;
        }
    });
    println!("in {seeds} worlds: {tally:?}");
    assert!(seeds < 2_000 || tally.len() == KINDS, "a simulation must get at what it is for: {tally:?}");
    assert!(seeds < 2_000 || tally.values().all(|count| *count > 40), "{tally:?}");
}

/// How many kinds of things happen.
const KINDS: usize = 12;
