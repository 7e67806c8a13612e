//! The simulated world of several servers and authorities with scripts from seeds, and with inputs of the fuzzer that failed once.

use std::collections::BTreeMap;

use crate::engine::simulation::{
    Family, Script, play, play_with,
    seeds::{family, with_many_seeds},
};

#[test]
fn operations_on_several_servers_and_authorities() {
    let mut counts = BTreeMap::new();
    let family = family();
    let seeds = with_many_seeds("operations_on_several_servers", 500, |seed| {
        for (what, count) in play_with(&Script::random(seed), &family) {
            *counts.entry(what).or_insert(0) += count;
        }
    });
    println!("in {seeds} worlds: {counts:?}");
    assert!(seeds < 500 || counts.len() == KINDS, "a simulation must get at what it is for: {counts:?}");
    // The rarest one is met once in a hundred worlds.
    assert!(seeds < 500 || counts.values().all(|count| *count > seeds / 250), "{counts:?}");
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

#[test]
fn a_wildcard_is_complete_although_the_server_dropped_the_request_that_ended_it() {
    play_input(
        "e900000000000000429090909051f36c466e27ec560c00ee5e4f26d24b001ae69a4e2a7ba97441824a64262d61a65f8e5786",
    );
}

#[test]
fn a_server_that_goes_on_sending_is_left_when_nothing_is_subscribed() {
    play_input("040000000000000025b41758585858e9e9e9e96986e9e9e9e9e9e9e9e9e9e9e9e9e96986e9e9e9e9e9e9e9e9");
}

#[test]
fn a57_5_what_a_fallback_sent_has_its_time_from_the_request_although_it_was_missed_before() {
    play_input("0500000000ce5c6c41a25c479d8e7fa8b7e1fb149e366f3e3c1c162000002097");
}

#[test]
fn b1_8_an_answer_to_what_a_server_repeats_proves_nothing() {
    play_input(
        "ffffffffffffff112af7ca3203001077d660db9fb9a389230570858f97ff053606c3191b7c03e6a0ec1eb1a7520000de21e8\
         5daec0a28923057085bacb50",
    );
}

#[test]
fn a_member_missing_from_the_complete_set_of_a_higher_server_is_removed_on_the_revert() {
    play_input(
        "0000000000000089002a1d0ec4738a742f7255761d0ec4738afd8dec03bc0000000000f27336769372ecd7c43e8a9e187993\
         18799388a550",
    );
}

#[test]
fn a_wildcard_whose_first_response_comes_while_nothing_watches_it_is_complete_for_the_next_watch() {
    play_input(
        "3f3f3f8effff00003f9f00003f8d52c8403f723f9f00003f32ffff00003f9f00003f8d52c8403f723f9f0000000a3f3f",
    );
}

#[test]
fn a_change_that_crosses_the_wildcard_does_not_make_a_server_know_it() {
    play_input(
        "3f0500000a3d0015722a3f3f3f723f72e49f00343f00000a40ffffff3d3f3f00000a722a3f3f3f723f9f00343f00000a7274\
         7970652e676f6f676c65617069732e636f6d2f746573742e506172743040ffffff3d3f3f",
    );
}

#[test]
fn what_is_named_in_place_of_an_unproven_wildcard_stays() {
    play_input(
        "72320e0e261a0000410500000024747970652e7479706572320e0e2635000a14140100004100003000008745002800067f00\
         00992100081d4d4daf259e7f2a3f303f7285007272081d4d4daf259e7f2a3f303f72852a00323f00000a2955555555555555\
         55280300081d4d4daf259e7f2a3f303f72852a00323f00000a29555555555555555528030000000000ffffffffffffffffff\
         ffffffffffffffffffffffffffffffffffff00801dffffff0eff87",
    );
}

#[test]
fn what_a_fallback_has_sent_does_not_stay_where_the_wildcard_stands_for_its_name() {
    play_input(
        "3f74696d6564203f3f6e6e85092700723f95959d959595c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2\
         c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c23f2a3f303f72852a800000000000001e1e1e561e1e1e150000001e151e1e\
         b00a4141412941842a3f3b3f2a5d40723f0042030606410642067560000900002604000015f1f1f1f1f1f1f1f10f0e0e0eff\
         ffffffffffffffffffffff0e0e0e0e84f1f1f1f1f1f1f1f1f1f1f1f1f10000003f",
    );
}

#[test]
fn names_of_a_nack_are_not_repeated_behind_an_ack_that_has_them() {
    play_input("3f74696d6564203f3f6e6e85092700723f956464646472336464004564646474723364640145646478736401");
}

#[test]
fn what_is_no_resource_of_the_type_is_rejected_although_its_name_is_being_unsubscribed() {
    play_input(
        "9fff0000f70000000000630000000041bc7970652e676f6f676c655b706973590000002f746573742e462d6c0100fa0100fa\
         6ce800411a32330132094a741adddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd\
         dddddddddddddddddddddd78647374703a2f2fdddddddddddddddddddddddddddddddddddddddddddddddddd78647374703a\
         2f2f612f746573742e46756c6c2f7232dddddddddddddd013f3f723372dddddddddddddddddddddddddddddddddddddddddd\
         dddddddddddddddd333fff00f700fffffdffffff000000771a010000000000000000000000000000000000ff000000000000\
         00000000000000000000000000003f3f723372333f37434100721b08",
    );
}

/// How many kinds of things happen.
const KINDS: usize = 14;

#[test]
fn a_name_that_was_sent_before_is_requested_without_a_version_although_a_response_crossed_its_request() {
    play_input(
        "0ae1cbfe6e34ff4824a6f2daa624a6f2a6f2daa6ff0e007864730000000a2f612f74742e506172742f72313f000000000000\
         fffb3f723f3f32003abb9b9b777777777777777777747970652e676f6f676c65617069732e636f6d2f746573742e50617274\
         f0f0f0f0f0f0f00ae1f0f0f0f0f0f0f0f0f0f0f0f0bb9b9b777777777777777777747970652e676f6f676c65617069732e63\
         6f6d2f746573742e50617274f0f0f0f0f0f0f00ae1f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0cb7274\
         2f72313f000000000000fffb3f723f3f32003abb9b9b777777777777777777777777f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0\
         f0f0f0f0f0cb72742f72313f000000000000fffb3f723f3f32003abb9b9b777777777777777777777777f0f0f0f0f0f0f0f0\
         f0f0f0f0f0f0f0f0f0f0f0f0f0f0cbfe6ef034",
    );
}

#[test]
fn a_rejected_name_that_was_left_out_of_a_repetition_does_not_ride_on_the_ack_behind_it() {
    play_input(
        "3b0a051a0578343b3b3b3b093b003b3b3b3b3b3b3b3bfe7f003b3b320000003b3b3b3b3b3b3b5b3b7ffe00000000ff010000\
         3b3b3bfec99a3b3b3b3b3b3b7ffe00000000ff0200000a051a0578343b3b3b3b093b003b3b3b3b3b3b3b3bfe7f003b3b3200\
         00003b3b3b3b3b3b3b5b3b7ffe00000000ff0100003b3b3bfec99a3b3b3b3b3b3b7ffe00000000ff02000000010000000a05\
         1a0578333b3b32000000ff2300010000000a051a0578333b3b32000000ff",
    );
}

#[test]
fn a_removal_is_not_found_after_a_fallback_whose_timer_is_a_transient_error_has_missed_the_resource() {
    play_input(
        "2142720e00040072d5320a8f0000241d22a72f00001a57575757f1f3f3f3f3f3f38000000000000001f3f3f3f3f3f3f3f33f\
         3f3f3f0a2222222222ff10f3f3f3f3f3f3f3f3f3f3f3f3f3f325f3f3f364",
    );
}

#[test]
fn a_change_that_crosses_star_and_has_its_names_is_no_proof_that_the_server_knows_the_wildcard() {
    play_input(
        "000000fe00ff2d403feff0f0f0f0f0f0f07f7f7f7ff0ff2d000100000000000003f0f0f02ff0f0f0f00000ffffff2d020000\
         00f0f0f0f0f0f0f1f0f000ff2d003fefffffff2d02000000f0f04531f0f0f0f0f0f0f0f0f0f0f0f0f0f032747970652e676f\
         6f6172743600676c6501000000617069732e636f6d2f746573742e50617274360000f0f0244531f094949494949494949494\
         949494f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f032747970652e676f6f617274360067\
         6c65010000006134ff4824010aa6f2daf0c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8\
         c8c8c8c8c8c8c8c8c8c8c894949494949494949494949494f0f0f0f0f0f0f0f0f0f0f0a6190a3c9aca028f0500000164ffff\
         ffffffff328adb9b583478647374703a01000000000000000000000000ff4824010aa6f2daa6190a3c9aca028f0500000164\
         ffffffffffff328a7069732e636f6d2f746573742e50617274360000f0f0244531f0c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8\
         c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c8c894949494949494949494949494f0f0f0f0f0f0f0f0f0\
         f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0ff2d02000000f0f04531f0f0f0f0f047f0f0f0f0f0f0f0ff2d02000000f0f0\
         4531f0f0f0f0f047f0f0f0f0f0f0f0f034747970652e676f01006c65fd000000617069732e636f0a02723012057330207274\
         360000f0f02445f0f0f0ffc99a3bf0",
    );
}

#[test]
fn nacks_of_delta_that_wait_are_not_written_with_one_that_comes_later() {
    play_input(
        "3f3b3572722a3a000000063f72403f3f3f32003a9f3f7272e6e6e60800e6e6e6e6e6e6d0edea34e6e6e6e6e6e6e6e6e6e6e6\
         e6e6e6e6e6e6e6e6e6e6e6e63f72403f44e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e60800e6e6e6e6e63f72403f44e6e6e6e6e6\
         e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e63fe6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e63f72403f44e6e6e6e6e6\
         e6e6e6e6e6e6e6e6e6e6e60800e6e6e6e6e63f72403f44e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e63f72403f44\
         e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e63f72403f44e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e60800e69ae6e6e6e63f72\
         403f44e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e60800e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e63b0800e6e6e6e6e6e6\
         d0edea3472403f44e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e63f72403f44e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e60800\
         e6e6e6e6e63f72403f44e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e608009fff0000f7000000000000e6e6e6e6e6e6e6e6e6e6e6\
         e6e6e6e6e678647374703a2f2f622f746573742e506172742f7231e6e6e6e6e6000000007f22a72f45004000e6e6e6e6e6e6\
         e6e6e6e6e6e6e6e6e60800e6e6e6e6e6e6d0edea34e6",
    );
}

#[test]
fn operations_at_a_server_that_compares_versions_of_names_that_it_knows() {
    play_input(
        "720a0ecb261a007e0a2c3372333ef90a753373338d66363f3f3f783f3f3f78647374703a2f2f612f746573742e00001d1da5e2e2e2ffffff\
         2904ef000000000072727272727272727272727272462f1f17727272727272727272defe2f7465733d2e4672727272727272720000",
    );
}

#[test]
fn a_name_that_the_wildcard_has_brought_is_sent_again_by_a_server_that_takes_star_for_a_name() {
    play_input(
        "0ac2a67e00a65c3f3f3b9aca012a3f3f2a723f9f1b0000000000001b1b3f2b3f3f04d572c127140a2a723f9f3f2b3f3f722a\
         871b03ca9a3b1b1b1b3f2b3f6060606060606060606060606060606060606060606060606060606060606060606060606060\
         60606060606060606060606060606060606060606060606060606060606060606060606060603f2a9f2a3f3f722a873f3f3f\
         722a871b1b0000000000001b1b3f2b3f3f2a723f9f3f",
    );
}

#[test]
fn a_name_in_place_of_an_empty_list_behind_a_nack_claims_no_version() {
    play_input(
        "9fff0000002d00000000fff668000000026dfffff5e6e6e6e60800e6e6e6e6e6e6e6e6e6e6e6e62a06003a2f3f0072403f3f\
         3f34003a9f3f72722af13a493f72403f44e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e60800e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6\
         e6e6e6e6e6e6e6e6e6e6e6e6e6e6d0edea348000722af13a545454545454545454545454545454545454540a050000003131\
         3028311a313131d4315454545454545454545454545454313131050000003735050000002531313131323232545454545454\
         5454545454545454545454545454545454545454545454545454545443545454313131050000003735050000002531313131\
         323232545454545454545454540000003735050000002531313131c13232545454545454545454545454545454545454ff7f\
         2a0a2a5454545454545454313131050000003735050000002531313132313232545454545454545454545454545453545454\
         545432313232545454545454545454545454545454545454545454545454545454545454545454540a050000003131302831\
         1a313131d4315454545454545454545454545454313131050000003735050000002531313131323232545454545454545454\
         5454545454545454545454545454545454545454545454545443545454313131050000003735050000002531313131323232\
         545454545454545454540000003735050000002531313131c13232545454545454545454545454545454545454ff7f2a0a2a\
         5454545454545454313131050000003735050000002531e6e6e6e640e6e6e6e6e6e6e6e6e6e6e6e6e6e63f72403f44e6e6e6\
         e6e6e6e6e6e6e6e6e6e6e6e6e60800e6e6e6e6e6e6e6e6e6e6e6e6e640240000f70e00000000e8e8e8e80000000000000a",
    );
}

/// Plays an input of the fuzzer of operations: the seed in eight bytes, the lowest first, and the operations.
fn play_input(hexadecimal: &str) {
    let digits: Vec<u8> =
        hexadecimal.chars().map(|digit| digit.to_digit(16).expect("a digit") as u8).collect();
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    let (seed, operations) = bytes.split_first_chunk().expect("a seed");
    play(&Script::of(u64::from_le_bytes(*seed), operations));
}
