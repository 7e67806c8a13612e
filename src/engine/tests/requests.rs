//! Requests: rules B0.1 to B0.7, B1.1 to B1.9.

use std::time::Duration;

use super::rig::{Full, Part, Rig, any, delta_response, response, response_with_nonce};
use crate::protocol::DisconnectKind;

const NONE: Vec<String> = Vec::new();

#[test]
fn b0_1_a_stream_begins_with_a_request_for_the_first_type() {
    let mut rig = Rig::new();
    assert_eq!(rig.watch::<Full>("a").1, ["connect 0.1"]);
    assert_eq!(rig.watch::<Part>("p").1, NONE, "while connecting, interest is only noted");
    assert_eq!(rig.watch::<Full>("b").1, NONE);
    assert_eq!(rig.connect(1), ["read", "send Full [a,b] / node"]);
    assert_eq!(rig.sent(1), ["send Part [p] /"]);
    assert_eq!(rig.sent(1), NONE);
}

#[test]
fn b0_2_the_node_goes_with_the_first_request_of_each_stream_alone() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    assert_eq!(rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]))[2], "send Full [a] 1/n1");
    rig.disconnect(1, DisconnectKind::Closed);
    assert_eq!(rig.pass(Duration::from_secs(2)), ["connect 0.2"]);
    assert_eq!(rig.connect(2), ["read", "send Full [a] 1/ node"]);
}

#[test]
fn b0_4_the_state_of_one_type_never_touches_another() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    rig.watch::<Part>("p");
    rig.sent(1);
    rig.receive(1, &response::<Full>("7", vec![any::<Full>("a", "bad")]));
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Part>("3", vec![any::<Part>("p", "x")]));
    assert_eq!(outputs, ["#2 present 3 x", "read", "send Part [p] 3/n3"]);
}

#[test]
fn b0_5_versions_outlive_streams_and_nonces_do_not() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("5", vec![any::<Full>("a", "x")]));
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.connect(2), ["read", "send Full [a] 5/ node"]);
}

#[test]
fn b0_6_every_response_is_answered_once_and_at_once() {
    let mut rig = Rig::new();
    rig.open::<Part>(&["a"]);
    let outputs = rig.receive(1, &response::<Part>("1", vec![any::<Part>("a", "x")]));
    assert_eq!(outputs, ["#1 present 1 x", "read", "send Part [a] 1/n1"]);
    assert_eq!(rig.sent(1), NONE);
    // B1.11: nothing new, but it has a version.
    assert_eq!(rig.receive(1, &response::<Part>("2", vec![])), ["read", "send Part [a] 2/n2"]);
}

#[test]
fn b1_1_each_request_lists_all_names_sorted() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["b"]);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("c").1, ["send Full [b,c] /"]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("a").1, ["send Full [a,b,c] /"]);
}

#[test]
fn b1_8_an_answer_repeats_the_names_of_the_newest_request() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    rig.pass(Duration::from_millis(20));
    // The request crosses a response, so the server will drop it as outdated.
    assert_eq!(rig.watch::<Full>("b").1, ["send Full [a,b] /"]);
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    assert_eq!(outputs.last().unwrap(), "send Full [a,b] 1/n1");
}

#[test]
fn b1_9_a_nack_carries_the_last_accepted_version_and_the_new_nonce() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "bad")]));
    assert_eq!(
        outputs,
        [
            "#1 absent INVALID_ARGUMENT",
            "read",
            "send Full [a] /n1 INVALID_ARGUMENT: Full \"a\": text: it is bad"
        ]
    );
    rig.sent(1);
    rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("3", vec![any::<Full>("a", "bad")]));
    assert_eq!(
        outputs,
        [
            "#1 present 2 x (INVALID_ARGUMENT)",
            "read",
            "send Full [a] 2/n3 INVALID_ARGUMENT: Full \"a\": text: it is bad"
        ]
    );
}

#[test]
fn a_newer_answer_replaces_an_unwritten_ack_but_never_a_nack() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "1")]));
    // The answer to 1 is not taken yet: the server does not read.
    assert_eq!(
        rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "2")])),
        ["#1 present 2 2", "read"]
    );
    assert_eq!(rig.receive(1, &response::<Full>("3", vec![any::<Full>("a", "bad")])).len(), 2);
    assert_eq!(
        rig.receive(1, &response::<Full>("4", vec![any::<Full>("a", "4")])),
        ["#1 present 4 4", "read"]
    );
    assert_eq!(rig.sent(1), ["send Full [a] 2/n3 INVALID_ARGUMENT: Full \"a\": text: it is bad"]);
    assert_eq!(rig.sent(1), ["send Full [a] 4/n4"]);
    assert_eq!(rig.sent(1), NONE);
}

#[test]
fn an_unwritten_ack_is_not_replaced_by_a_nack_that_has_to_wait() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    let bad = response::<Full>("1", vec![any::<Full>("a", "bad")]);
    rig.receive(1, &bad);
    // The NACK is not taken yet: the server does not read.
    rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "2")]));
    rig.receive(1, &bad);
    assert_eq!(rig.sent(1), ["send Full [a] 2/n2"]);
    assert_eq!(rig.sent(1), NONE, "what is rejected again waits");
    let outputs = rig.pass(Duration::from_secs(1));
    assert_eq!(outputs, ["send Full [a] 2/n1 INVALID_ARGUMENT: Full \"a\": text: it is bad"]);
}

#[test]
fn a28_12_a_second_watch_of_a_name_requests_nothing_and_gets_the_cached_resource() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    assert_eq!(rig.watch::<Full>("a").1, NONE);
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    assert_eq!(outputs[..2], ["#1 present 1 x", "#2 present 1 x"]);
    rig.sent(1);
    assert_eq!(rig.watch::<Full>("a").1, ["#3 present 1 x"]);
}

#[test]
fn a28_14_the_last_watch_of_a_name_unsubscribes_it() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a", "b"]);
    let (second, _) = rig.watch::<Full>("b");
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(second), NONE, "others still watch it");
    assert_eq!(rig.unwatch(watches[1]), ["send Full [a] /"]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(
        rig.unwatch(watches[0]),
        ["send Full [] /"],
        "empty means nothing, since names were sent (B1.3)"
    );
    rig.sent(1);
    assert_eq!(rig.engine.resources(), 0);
}

#[test]
fn a_name_resubscribed_before_the_unsubscription_was_sent_has_its_value_at_once() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(watches[0]), ["send Full [] 1/n1"]);
    assert_eq!(rig.watch::<Full>("a").1, ["#2 present 1 x"]);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_millis(20)), ["send Full [a] 1/n1"], "and requests it again");
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(20)), NONE, "without a false does-not-exist");
}

#[test]
fn a_rejected_name_resubscribed_before_the_unsubscription_was_sent_stays_rejected() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "bad")]));
    // The answer is on its way still, so the end cannot be sent yet.
    assert_eq!(rig.unwatch(watches[0]), NONE);
    assert_eq!(rig.watch::<Full>("a").1, ["#2 absent INVALID_ARGUMENT"]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(20)), NONE, "the server has no more to send");
}

#[test]
fn b1_13_absence_proves_nothing_of_a_name_that_an_ack_unsubscribed() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a", "b", "c"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(watches[2]);
    rig.sent(1);
    // The first comes back before an answer, so that the answer is without it; and so it is without the second.
    rig.watch::<Full>("c");
    rig.unwatch(watches[1]);
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    assert_eq!(outputs, ["read", "send Full [a] 2/n2"]);
    assert_eq!(rig.watch::<Full>("b").1, ["#5 present 2 y"]);
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("3", vec![any::<Full>("a", "x")]));
    assert_eq!(outputs[0], "read", "it is on its way still: {outputs:?}");
}

#[test]
fn b1_5_a_type_that_nobody_wants_any_more_sends_nothing_on_a_fresh_stream() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a"]);
    rig.watch::<Part>("p");
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.unwatch(watches[0]);
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.connect(2), ["read", "send Part [p] / node"]);
    assert_eq!(rig.sent(2), NONE);
}

#[test]
fn a_stream_that_serves_no_name_is_closed_after_30_s() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a"]);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(watches[0]);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(29)), NONE);
    assert_eq!(rig.pass(Duration::from_secs(2)), ["disconnect 0.1"]);
    assert_eq!(rig.watch::<Full>("b").1, ["connect 0.2"]);
    assert!(rig.sent(1).is_empty() && rig.connect(1).is_empty(), "what is late of the old stream is ignored");
}

#[test]
fn responses_without_a_subscription_do_not_keep_the_stream() {
    let mut rig = Rig::new();
    let (a, _) = rig.watch::<Full>("a");
    rig.connect(1);
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(a);
    rig.sent(1);
    for version in ["2", "3"] {
        assert_eq!(rig.pass(Duration::from_secs(12)), NONE);
        let outputs = rig.receive(1, &response::<Full>(version, vec![any::<Full>("a", version)]));
        assert_eq!(outputs, ["read".to_owned(), format!("send Full [] {version}/n{version}")]);
        rig.sent(1);
    }
    assert_eq!(rig.pass(Duration::from_secs(7)), ["disconnect 0.1"], "30 s after the watch ended");
}

#[test]
fn a_watch_within_the_linger_time_uses_the_stream() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a"]);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(watches[0]);
    rig.sent(1);
    rig.pass(Duration::from_secs(29));
    assert_eq!(rig.watch::<Full>("b").1, ["send Full [b] /"]);
    rig.sent(1);
    assert!(!rig.pass(Duration::from_secs(60)).contains(&"disconnect 0.1".to_owned()));
}

/// Found by the simulation of resolutions: seed 38,890 of those with a lost server.
#[test]
fn b1_13_absence_proves_nothing_of_a_name_that_is_resubscribed_and_unsubscribed_again() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a", "b"]);
    let resources = || vec![any::<Full>("a", "x"), any::<Full>("b", "y")];
    rig.receive(1, &response::<Full>("1", resources()));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(watches[0]), ["send Full [b] 1/n1"]);
    rig.sent(1);
    let (again, _) = rig.watch::<Full>("a");
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("2", resources()));
    assert!(outputs.contains(&"send Full [b] 2/n2".to_owned()), "the answer is without it: {outputs:?}");
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    rig.unwatch(again);
    let outputs = rig.receive(1, &response::<Full>("3", vec![any::<Full>("b", "z")]));
    assert_eq!(outputs[0], "#2 present 3 z");
    assert_eq!(rig.watch::<Full>("a").1, ["#4 present 2 x"], "the response was made without it");
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.sent(1), ["send Full [a,b] 3/n3"]);
    rig.sent(1);
    // If it does not come, the server may only take it to be known.
    assert_eq!(rig.pass(Duration::from_secs(16)), ["disconnect 0.1", "connect 0.2"]);
    rig.connect(2);
    rig.sent(2);
    let outputs = rig.receive(2, &response::<Full>("4", vec![any::<Full>("b", "z")]));
    assert!(outputs.contains(&"#4 absent NOT_FOUND".to_owned()), "it does not come: {outputs:?}");
}

/// Found by the simulation of resolutions: seed 42,480 of those with a lost server.
#[test]
fn b1_6_no_version_is_sent_while_the_absence_of_a_name_is_unconfirmed() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a", "b"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(watches[0]);
    rig.sent(1);
    rig.watch::<Full>("a");
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("b", "z")]));
    assert!(!outputs.iter().any(|outputs| outputs.starts_with("#3")), "it may be on its way: {outputs:?}");
    rig.sent(1);
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.connect(2), ["read", "send Full [a,b] / node"], "in version 2 is no a, which is held");
}

#[test]
fn b1_13_absence_right_after_a_name_was_unsubscribed_and_resubscribed_proves_nothing() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a", "b"]);
    let a = || any::<Full>("a", "x");
    rig.receive(1, &response::<Full>("1", vec![a()]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(watches[0]), ["send Full [b] 1/n1"]);
    rig.sent(1);
    rig.watch::<Full>("a");
    let mut receive = |version, resources| {
        let outputs = rig.receive(1, &response::<Full>(version, resources));
        rig.sent(1);
        rig.pass(Duration::from_millis(20));
        rig.sent(1);
        outputs.into_iter().filter(|outputs| outputs.starts_with('#')).collect::<Vec<_>>()
    };
    // Both were on their way when the server received the new subscription.
    assert_eq!(receive("2", vec![a()]), ["#3 present 2 x"]);
    assert_eq!(receive("3", vec![]), NONE);
    assert_eq!(receive("4", vec![a()]), NONE);
    // If it is not there again within the time of a request, nor on another stream, it is gone.
    assert_eq!(receive("5", vec![]), NONE);
    let outputs = rig.pass(Duration::from_secs(16));
    assert_eq!(outputs, ["#2 absent NOT_FOUND", "disconnect 0.1", "connect 0.2"]);
    rig.connect(2);
    rig.sent(2);
    let outputs = rig.receive(2, &response::<Full>("5", vec![]));
    assert!(outputs.contains(&"#3 absent NOT_FOUND".to_owned()), "{outputs:?}");
}

#[test]
fn b1_8_a_name_unsubscribed_and_resubscribed_is_left_out_of_an_ack_between() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a", "b"]);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(watches[0]), ["send Full [b] /"]);
    rig.sent(1);
    assert_eq!(rig.watch::<Full>("a").1, ["send Full [a,b] /"]);
    rig.sent(1);
    // The server has dropped both as outdated, so it would not notice that anything is requested anew.
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("b", "x")]));
    assert_eq!(outputs.last().unwrap(), "send Full [b] 1/n1");
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_millis(20)), ["send Full [a,b] 1/n1"]);
}

#[test]
fn b1_8_an_ack_of_a_repeated_response_proves_no_unsubscription() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a", "b"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("b", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(watches[0]), ["send Full [b] 1/n1"]);
    rig.sent(1);
    // The server has sent 2, which is on its way, so that it drops this as well.
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("b", "x")]));
    assert_eq!(outputs, ["read", "send Full [b] 1/n1"]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("a").1, ["send Full [a,b] 1/n1"]);
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("b", "y")]));
    assert_eq!(outputs.last().unwrap(), "send Full [b] 2/n2");
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_millis(20)), ["send Full [a,b] 2/n2"]);
}

#[test]
fn b1_8_an_ack_of_an_outdated_response_proves_no_unsubscription() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a", "b"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("b", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(watches[0]), ["send Full [b] 1/n1"]);
    // The server has sent 2 and 3 and so has dropped that.
    rig.receive(1, &response::<Full>("2", vec![any::<Full>("b", "y")]));
    rig.receive(1, &response::<Full>("3", vec![any::<Full>("b", "bad")]));
    rig.watch::<Full>("a");
    rig.pass(Duration::from_secs(1));
    let names = |outputs: &[String]| outputs[0].split(' ').take(4).collect::<Vec<_>>().join(" ");
    assert_eq!(names(&rig.sent(1)), "send Full [b] 2/n3");
    // Nor may it have read names from the NACK.
    assert_eq!(rig.sent(1), ["send Full [b] 2/n3"]);
    assert_eq!(rig.sent(1), ["send Full [a,b] 2/n3"]);
}

/// MS1: istiod and Consul read no names from a request with an error.
#[test]
fn a_nack_has_the_names_of_the_last_request_and_a_change_follows_it_at_once() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    rig.pass(Duration::from_millis(20));
    for nonce in ["n1", "n2"] {
        rig.receive(1, &response_with_nonce::<Full>(("1", nonce), vec![any::<Full>("a", "bad")]));
        rig.sent(1);
    }
    let (_, outputs) = rig.watch::<Full>("b");
    assert_eq!(outputs, [r#"send Full [a] /n2 INVALID_ARGUMENT: Full "a": text: it is bad"#]);
    assert_eq!(rig.sent(1), ["send Full [a,b] /n2"]);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(14)), NONE, "the NACK is not written twice");
}

#[test]
fn names_that_crossed_a_rejected_response_are_sent_once_more_behind_its_nack() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("b").1, ["send Full [a,b] 1/n1"]);
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "bad")]));
    assert_eq!(
        outputs.last().unwrap(),
        r#"send Full [a,b] 1/n2 INVALID_ARGUMENT: Full "a": text: it is bad"#
    );
    assert_eq!(rig.sent(1), ["send Full [a,b] 1/n2"]);
    assert_eq!(rig.sent(1), NONE);
    // Long after the change no response can have crossed it.
    rig.receive(1, &response::<Full>("3", vec![any::<Full>("a", "x"), any::<Full>("b", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_secs(20));
    rig.receive(1, &response::<Full>("4", vec![any::<Full>("a", "bad again"), any::<Full>("b", "bad")]));
    assert_eq!(rig.sent(1), NONE);
}

#[test]
fn a_delta_nack_has_no_names_and_a_change_follows_it() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a"]);
    rig.receive_raw(1, delta_response::<Full>("n", &[("a", "1", Some("bad"))], &[]));
    rig.watch::<Full>("b");
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.sent(1), ["send Full +b"]);
    rig.sent(1);
    rig.receive_raw(1, delta_response::<Full>("o", &[("b", "1", Some("bad"))], &[]));
    let (_, outputs) = rig.watch::<Full>("c");
    assert_eq!(outputs, NONE, "the NACK is on its way");
    assert_eq!(rig.sent(1), NONE);
    assert_eq!(rig.pass(Duration::from_millis(20)), ["send Full +c"]);
}
