//! The simulated world of several servers and authorities with scripts from seeds.

use std::collections::BTreeMap;

use crate::engine::simulation::{
    Family, Script, play, play_with,
    seeds::{family, with_many_seeds},
};

#[test]
fn operations_on_several_servers_and_authorities() {
    let mut counts = BTreeMap::new();
    let family = family();
    let seeds = with_many_seeds("operations_on_several_servers", 10_000, |seed| {
        for (what, count) in play_with(&Script::random(seed), &family) {
            *counts.entry(what).or_insert(0) += count;
        }
    });
    println!("in {seeds} worlds: {counts:?}");
    assert!(seeds < 2_000 || counts.len() == KINDS, "a simulation must get at what it is for: {counts:?}");
    assert!(seeds < 2_000 || counts.values().all(|count| *count > 40), "{counts:?}");
}

/// Worlds that failed once, with the freedoms of their servers and the rules that were checked; docs/FUZZING.md has what they found.
#[test]
fn operations_that_failed_once() {
    const KNOWN: &str =
        "IgnoreNamesInNack,ResendKnownVersions,ShuffleResources,SkipKnownVersions,NackNames,NackRate";
    const ALL: &str = "ResendAfterNack,SilenceAfterNack,HeartbeatsAfterExpiry,AnswerAtOnce,Claims";
    const STREAMS: &str = "UnknownType,EndsCleanly,LegacyWildcardOnly";
    const SENT: &str = "EmptyVersions,NewNamesWithNextVersion,UnsolicitedResources,SendTwice,SplitResponses,\
                        AllNamesOnly,EndsOverLimit";
    const LATEST: &str = "FallingVersions,OneVersionForAll,RepeatedVersions,ConstantNonces,ResendAfterNackLater,\
                          UnsolicitedRemovals,EmptyListIsWildcard,KeepsWildcard";
    const NAMES: &str = "SharedNames,HeartbeatsAfterNack,HeartbeatsChangeTtl,KeepsKnownNames,UnsetWildcard,ComparesText,Requests";
    let worlds: [(&[&str], &[u64]); 13] = [
        (&["IgnoreNamesInNack,ResendKnownVersions,ShuffleResources,NackNames,NackRate"], &[10_644, 45_217]),
        (&[KNOWN, "AnswerAtOnce"], &[3_763]),
        (&[KNOWN, "AnswerAtOnce,Claims"], &[3_151]),
        (&[KNOWN, ALL], &[1_117, 6_122, 7_390, 9_173, 9_847, 22_111, 48_611, 54_710, 60_659, 78_288, 94_837]),
        (&[KNOWN, ALL, STREAMS], &[1_909, 16_145, 15_694, 23_199, 57_543]),
        (&[KNOWN, ALL, "EndsCleanly,LegacyWildcardOnly"], &[26_437, 33_407]),
        (&[KNOWN, ALL, STREAMS, SENT], &[22_459, 33_848, 73_178, 76_749, 174_344]),
        (&["EmptyListIsWildcard,NackNames,NackRate,AnswerAtOnce,Claims"], &[2_074]),
        (
            &[KNOWN, ALL, STREAMS, SENT, LATEST],
            &[8_212, 51_571, 53_608, 72_553, 89_080, 130_936, 140_405, 265_254, 295_746, 322_873, 367_745],
        ),
        (&[KNOWN, ALL, STREAMS, SENT, LATEST, "SharedNames"], &[6_792, 30_949, 35_292, 35_442, 43_343]),
        (
            &[KNOWN, ALL, STREAMS, SENT, LATEST, "SharedNames,HeartbeatsAfterNack"],
            &[123_679, 545_907, 549_275, 617_624, 625_271, 729_834, 853_123, 969_502],
        ),
        (
            &[KNOWN, ALL, STREAMS, SENT, LATEST, "SharedNames,HeartbeatsAfterNack,HeartbeatsChangeTtl"],
            &[24_939, 29_676, 30_580, 39_940, 47_465, 66_236, 89_460],
        ),
        (
            &[KNOWN, ALL, STREAMS, SENT, LATEST, NAMES],
            &[
                129, 777, 788, 898, 1_160, 1_370, 1_517, 1_645, 1_869, 4_716, 4_848, 17_934, 22_619, 30_881,
                36_871, 40_869, 43_498, 53_968, 69_721, 74_712, 74_960, 78_539, 78_768,
            ],
        ),
    ];
    for (names, seeds) in worlds {
        let family = Family::of(&names.join(",")).expect("these are names of freedoms and rules");
        for seed in seeds {
            println!("world {seed} with {names:?}");
            play_with(&Script::random(*seed), &family);
        }
    }
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
fn a_server_that_goes_on_sending_is_left_when_nothing_is_subscribed() {
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

/// And a fourth one.
#[test]
fn b1_8_an_answer_to_what_a_server_repeats_proves_nothing() {
    let operations = [
        [0x2a, 0xf7, 0xca, 0x32, 0x03, 0x00],
        [0x10, 0x77, 0xd6, 0x60, 0xdb, 0x9f],
        [0xb9, 0xa3, 0x89, 0x23, 0x05, 0x70],
        [0x85, 0x8f, 0x97, 0xff, 0x05, 0x36],
        [0x06, 0xc3, 0x19, 0x1b, 0x7c, 0x03],
        [0xe6, 0xa0, 0xec, 0x1e, 0xb1, 0xa7],
        [0x52, 0x00, 0x00, 0xde, 0x21, 0xe8],
        [0x5d, 0xae, 0xc0, 0xa2, 0x89, 0x23],
        [0x05, 0x70, 0x85, 0xba, 0xcb, 0x50],
    ];
    play(&Script::of(0x11ff_ffff_ffff_ffff, operations.as_flattened()));
}

/// And a fifth one.
#[test]
fn a_member_missing_from_the_complete_set_of_a_higher_server_is_removed_on_the_revert() {
    let operations = [
        [0x00, 0x2a, 0x1d, 0x0e, 0xc4, 0x73],
        [0x8a, 0x74, 0x2f, 0x72, 0x55, 0x76],
        [0x1d, 0x0e, 0xc4, 0x73, 0x8a, 0xfd],
        [0x8d, 0xec, 0x03, 0xbc, 0x00, 0x00],
        [0x00, 0x00, 0x00, 0xf2, 0x73, 0x36],
        [0x76, 0x93, 0x72, 0xec, 0xd7, 0xc4],
        [0x3e, 0x8a, 0x9e, 0x18, 0x79, 0x93],
        [0x18, 0x79, 0x93, 0x88, 0xa5, 0x50],
    ];
    play(&Script::of(0x8900_0000_0000_0000, operations.as_flattened()));
}

/// And a sixth one.
#[test]
fn a_wildcard_whose_first_response_comes_while_nothing_watches_it_is_complete_for_the_next_watch() {
    let operations = [
        [0x3f, 0x9f, 0x00, 0x00, 0x3f, 0x8d],
        [0x52, 0xc8, 0x40, 0x3f, 0x72, 0x3f],
        [0x9f, 0x00, 0x00, 0x3f, 0x32, 0xff],
        [0xff, 0x00, 0x00, 0x3f, 0x9f, 0x00],
        [0x00, 0x3f, 0x8d, 0x52, 0xc8, 0x40],
        [0x3f, 0x72, 0x3f, 0x9f, 0x00, 0x00],
        [0x00, 0x0a, 0x3f, 0x3f, 0x00, 0x00],
    ];
    play(&Script::of(0x0000_ffff_8e3f_3f3f, &operations.as_flattened()[..40]));
}

/// And a seventh one.
#[test]
fn a_change_that_crosses_the_wildcard_does_not_make_a_server_know_it() {
    let operations = [
        [0x72, 0x2a, 0x3f, 0x3f, 0x3f, 0x72],
        [0x3f, 0x72, 0xe4, 0x9f, 0x00, 0x34],
        [0x3f, 0x00, 0x00, 0x0a, 0x40, 0xff],
        [0xff, 0xff, 0x3d, 0x3f, 0x3f, 0x00],
        [0x00, 0x0a, 0x72, 0x2a, 0x3f, 0x3f],
        [0x3f, 0x72, 0x3f, 0x9f, 0x00, 0x34],
        [0x3f, 0x00, 0x00, 0x0a, 0x72, 0x74],
        [0x79, 0x70, 0x65, 0x2e, 0x67, 0x6f],
        [0x6f, 0x67, 0x6c, 0x65, 0x61, 0x70],
        [0x69, 0x73, 0x2e, 0x63, 0x6f, 0x6d],
        [0x2f, 0x74, 0x65, 0x73, 0x74, 0x2e],
        [0x50, 0x61, 0x72, 0x74, 0x30, 0x40],
        [0xff, 0xff, 0xff, 0x3d, 0x3f, 0x3f],
    ];
    play(&Script::of(0x15003d0a0000053f, &operations.as_flattened()[..78]));
}

/// How many kinds of things happen.
const KINDS: usize = 12;
