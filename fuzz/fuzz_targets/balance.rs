//! Operations on the load balancing of a channel: whatever is configured, connected, lost and picked, the model of `xdskit`'s
//! `balance::simulation` holds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use xdskit::fuzzing::play_balancing;

fuzz_target!(|input: (u64, Vec<u8>)| {
    let (seed, mut script) = input;
    script.truncate(LONGEST);
    play_balancing(seed, &script);
});

/// Some hundred operations; a world in which more happens takes long.
const LONGEST: usize = 1_000;
