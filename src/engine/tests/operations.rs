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

/// What the fuzzer found.
#[test]
fn a_wildcard_is_complete_although_the_server_dropped_the_request_that_ended_it() {
    let operations = [
        [0x42, 0x90, 0x90, 0x90, 0x90, 0x51],
        [0xf3, 0x6c, 0x46, 0x6e, 0x27, 0xec],
        [0x56, 0x0c, 0x00, 0xee, 0x5e, 0x4f],
        [0x26, 0xd2, 0x4b, 0x00, 0x1a, 0xe6],
        [0x9a, 0x4e, 0x2a, 0x7b, 0xa9, 0x74],
        [0x41, 0x82, 0x4a, 0x64, 0x26, 0x2d],
        [0x61, 0xa6, 0x5f, 0x8e, 0x57, 0x86],
    ];
    play(&Script::of(0xe9, operations.as_flattened()));
}

/// What the fuzzer found, too.
#[test]
fn a_server_that_goes_on_sending_is_left_when_nothing_is_wanted() {
    let operations = [
        [0x25, 0xb4, 0x17, 0x58, 0x58, 0x58],
        [0x58, 0xe9, 0xe9, 0xe9, 0xe9, 0x69],
        [0x86, 0xe9, 0xe9, 0xe9, 0xe9, 0xe9],
        [0xe9, 0xe9, 0xe9, 0xe9, 0xe9, 0xe9],
        [0xe9, 0xe9, 0x69, 0x86, 0xe9, 0xe9],
        [0xe9, 0xe9, 0xe9, 0xe9, 0xe9, 0xe9],
    ];
    play(&Script::of(4, operations.as_flattened()));
}

/// How many kinds of things happen.
const KINDS: usize = 12;
