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

/// And a third finding.
#[test]
fn a57_5_what_a_fallback_sent_has_its_time_from_the_request_although_it_was_missed_before() {
    let operations = [
        [0x41, 0xa2, 0x5c, 0x47, 0x9d, 0x8e],
        [0x7f, 0xa8, 0xb7, 0xe1, 0xfb, 0x14],
        [0x9e, 0x36, 0x6f, 0x3e, 0x3c, 0x1c],
        [0x16, 0x20, 0x00, 0x00, 0x20, 0x97],
    ];
    play(&Script::of(0x6c5c_ce00_0000_0005, operations.as_flattened()));
}

/// How many kinds of things happen.
const KINDS: usize = 12;
