//! What happens from one stream to the next, what is answered, and what has no end in the protocol.

use std::time::Duration;

use super::{NONE, holding_all, holding_two, one, reconnect, removed};
use crate::{
    engine::tests::rig::{Full, Part, Rig, delta_response},
    protocol::{DisconnectKind, Settings},
};

#[test]
fn b2_34_a_resource_whose_version_was_sent_is_kept_when_it_is_not_resent() {
    let (mut rig, _) = holding_two();
    reconnect(&mut rig, 1);
    rig.sent(2);
    assert_eq!(rig.receive_raw(2, removed("m", &[])), ["read", "send Full m"]);
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_secs(60)), NONE);
    assert_eq!(rig.receive_raw(2, removed("o", &["b"]))[0], "#2 absent NOT_FOUND");
}

#[test]
fn b2_34_a_resource_whose_version_was_not_sent_is_dropped_when_the_server_was_quiet_for_a_while() {
    let settings = Settings { max_request_size: 64, ..Settings::default() };
    let mut rig = Rig::delta_with(settings);
    rig.open::<Full>(&["*", "named"]);
    let all = [("a", "1", Some("x")), ("b", "1", Some("y")), ("named", "1", Some("z"))];
    rig.receive_raw(1, delta_response::<Full>("m", &all, &[]));
    rig.sent(1);
    assert_eq!(reconnect(&mut rig, 1), ["read", "send Full node"], "no versions: they are too long");
    assert_eq!(rig.sent(2), ["send Full +named"]);
    rig.sent(2);
    rig.pass(Duration::from_secs(10));
    assert_eq!(rig.receive_raw(2, delta_response::<Full>("o", &[("b", "1", Some("y"))], &[])).len(), 2);
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_secs(14)), NONE, "it was not quiet for long enough");
    assert_eq!(rig.pass(Duration::from_secs(1)), ["#2 absent NOT_FOUND", "#1 {b: present 1 y} complete"]);
    assert_eq!(rig.pass(Duration::from_secs(60)), NONE);
}

/// A server that answers each NACK with the same resources again is never quiet, nor is one whose resources change all the time.
#[test]
fn b2_34_a_resource_whose_version_was_not_sent_is_dropped_after_a_minute_of_other_responses() {
    let settings = Settings { max_request_size: 64, ..Settings::default() };
    let mut rig = Rig::delta_with(settings);
    rig.open::<Full>(&["*"]);
    let all = [("a", "1", Some("x")), ("b", "1", Some("y"))];
    rig.receive_raw(1, delta_response::<Full>("m", &all, &[]));
    rig.sent(1);
    assert_eq!(reconnect(&mut rig, 1), ["read", "send Full node"], "no versions: they are too long");
    rig.sent(2);
    let mut given_up = Vec::new();
    for second in (10..100).step_by(10) {
        let version = second.to_string();
        let changed = [("b", &*version, Some(&*version))];
        rig.receive_raw(2, delta_response::<Full>(&version, &changed, &[]));
        rig.sent(2);
        let outputs = rig.pass(Duration::from_secs(10)).into_iter();
        given_up.extend(outputs.filter(|outputs| outputs.starts_with('#')).map(|outputs| (second, outputs)));
    }
    assert_eq!(given_up, [(60, "#1 {b: present 60 60} complete".to_owned())]);
}

/// Resources of servers such as istiod have no versions that could be sent.
#[test]
fn b2_34_a_server_that_sends_nothing_on_a_stream_loses_nothing_that_it_has_sent() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["*", "named"]);
    let all = [("a", "", Some("x")), ("named", "", Some("z"))];
    rig.receive_raw(1, delta_response::<Full>("m", &all, &[]));
    rig.sent(1);
    assert_eq!(reconnect(&mut rig, 1), ["read", "send Full node"]);
    rig.sent(2);
    rig.sent(2);
    let outputs = rig.pass(Duration::from_secs(60));
    assert_eq!(outputs, NONE);
    let outputs = rig.receive_raw(2, delta_response::<Full>("o", &[("named", "", Some("z"))], &[]));
    assert_eq!(outputs, ["read", "send Full o"], "the response may be one of several");
    rig.sent(2);
    let outputs = rig.pass(Duration::from_secs(15));
    assert_eq!(outputs, ["#1 {named: present  z} complete"], "one that sends something has its time");
}

#[test]
fn b2_35_a_server_may_send_all_that_is_subscribed_again_in_spite_of_versions() {
    let (mut rig, _) = holding_two();
    reconnect(&mut rig, 1);
    rig.sent(2);
    let again = [("a", "1", Some("x")), ("b", "2", Some("y"))];
    assert_eq!(rig.receive_raw(2, delta_response::<Full>("m", &again, &[])), ["read", "send Full m"]);
}

#[test]
fn answers_go_out_in_order_and_none_for_another() {
    let (mut rig, _) = holding_two();
    rig.pass(Duration::from_millis(20));
    rig.watch::<Part>("p");
    // Its request is under way.
    rig.receive_raw(1, one("m", "a", "3"));
    rig.receive_raw(1, one("o", "a", "4"));
    rig.receive_raw(1, delta_response::<Full>("q", &[("b", "5", Some("bad"))], &[]));
    assert_eq!(rig.sent(1), ["send Full m"]);
    assert_eq!(rig.sent(1), ["send Full o"]);
    assert_eq!(rig.sent(1), ["send Full q INVALID_ARGUMENT: Full \"b\": text: it is bad"]);
    assert_eq!(rig.sent(1), NONE);
}

#[test]
fn a_repeated_rejection_is_paced_and_keeps_no_other_answer_waiting() {
    let (mut rig, _) = holding_two();
    let bad = |nonce| delta_response::<Full>(nonce, &[("b", "5", Some("bad"))], &[]);
    assert_eq!(rig.receive_raw(1, bad("m")).len(), 3);
    rig.sent(1);
    assert_eq!(rig.receive_raw(1, bad("o")), ["read"], "the same again: the answer waits");
    assert_eq!(
        rig.receive_raw(1, one("q", "a", "6")),
        ["#1 present 6 6", "read", "send Full o INVALID_ARGUMENT: Full \"b\": text: it is bad"]
    );
    assert_eq!(rig.sent(1), ["send Full q"]);
}

#[test]
fn a_long_list_of_names_is_split_over_several_requests() {
    let settings = Settings { max_request_size: 64, ..Settings::default() };
    let mut rig = Rig::delta_with(settings);
    let names: Vec<_> = (0..9).map(|index| format!("a-rather-long-name-{index}")).collect();
    let watches: Vec<_> = names.iter().map(|name| rig.watch::<Full>(name).0).collect();
    let mut outputs = rig.connect(1);
    let mut requested = Vec::new();
    while let Some(request) = outputs.pop().filter(|outputs| outputs != "read") {
        assert!(request.len() < 100, "{request}");
        let names = request.split('+').nth(1).unwrap().trim_end_matches(" node");
        requested.extend(names.split(',').map(ToOwned::to_owned));
        outputs = rig.sent(1);
    }
    assert_eq!(requested, names);
    watches.into_iter().for_each(|watch_id| drop(rig.unwatch(watch_id)));
    let mut outputs = rig.pass(Duration::from_millis(20));
    let mut unsubscribed = 0;
    while let Some(request) = outputs.pop() {
        unsubscribed += request.split(',').count();
        outputs = rig.sent(1);
    }
    assert_eq!(unsubscribed, 9);
    assert_eq!(rig.engine.resources(), 0);
}

/// A stream whose initial versions are complete, so that the server has nothing to send.
fn silent_after_failure() -> Rig {
    let (mut rig, _) = holding_two();
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(5));
    let outputs = rig.disconnect(2, DisconnectKind::Unreachable);
    assert_eq!(outputs, ["#1 present 1 x (UNAVAILABLE)", "#2 present 2 y (UNAVAILABLE)"]);
    rig.pass(Duration::from_secs(5));
    rig.connect(3);
    rig.sent(3);
    rig
}

#[test]
fn a_stream_that_stays_open_without_a_response_ends_the_server_error() {
    let mut rig = silent_after_failure();
    assert_eq!(rig.pass(Duration::from_millis(2_900)), NONE);
    assert_eq!(rig.pass(Duration::from_millis(100)), ["#1 present 1 x", "#2 present 2 y"]);
    assert_eq!(
        rig.disconnect(3, DisconnectKind::Closed),
        NONE,
        "and its end is no error, as no response was due"
    );
}

#[test]
fn a_stream_that_ends_early_or_with_a_response_due_is_a_server_error() {
    let mut rig = silent_after_failure();
    rig.disconnect(3, DisconnectKind::Closed);
    assert_eq!(rig.pass(Duration::from_secs(5)), ["connect 0.4"], "the error remains");
    rig.connect(4);
    assert_eq!(rig.watch::<Full>("c").1, ["#3 absent UNAVAILABLE"]);
    rig.sent(4);
    rig.pass(Duration::from_millis(20));
    rig.sent(4);
    assert_eq!(rig.pass(Duration::from_secs(5)), NONE, "as long as c is not answered");
    assert_eq!(rig.disconnect(4, DisconnectKind::Closed), NONE);
}

#[test]
fn b2_28_a_wildcard_is_complete_when_nothing_follows_an_answer_that_may_be_to_something_else() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a"]);
    rig.pass(Duration::from_millis(20));
    rig.watch::<Full>("*");
    rig.sent(1);
    rig.receive_raw(1, removed("m", &["a"]));
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_millis(14_900)), NONE);
    assert_eq!(rig.pass(Duration::from_millis(100)), ["#2 {} complete"]);
}

/// go-control-plane reads no end of a wildcard in its older form, and takes what it sent for a wildcard to be held after its end.
#[test]
fn b2_4_a_wildcard_that_has_ended_is_requested_again_on_a_new_stream() {
    let (mut rig, all) = holding_all();
    assert_eq!(rig.unwatch(all), ["send Full -*"]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("*").1, ["disconnect 0.1", "connect 0.2"]);
    assert_eq!(rig.connect(2), ["read", "send Full node"]);
}

#[test]
fn b2_4_a_name_is_requested_on_a_new_stream_after_a_wildcard_has_ended() {
    let (mut rig, all) = holding_all();
    rig.unwatch(all);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("a").1, ["disconnect 0.1", "connect 0.2"]);
    assert_eq!(rig.connect(2), ["read", "send Full +a node"]);
    rig.sent(2);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("b").1, ["send Full +b"], "once");
}

/// MS4: a server that knows no `*` has nothing of that name. Without the fix fail the worlds 385, 501 and 743 of `operations` with
/// `LegacyWildcardOnly`.
#[test]
fn b2_4_a_wildcard_that_the_server_takes_for_a_name_begins_on_another_stream() {
    let (mut rig, _) = holding_two();
    let (_, outputs) = rig.watch::<Full>("*");
    assert!(outputs.contains(&"send Full +*".to_owned()), "{outputs:?}");
    rig.sent(1);
    let outputs = rig.receive_raw(1, removed("m", &["*"]));
    let begun = outputs.iter().position(|outputs| outputs == "disconnect 0.1");
    assert!(begun.is_some() && !outputs.iter().any(|outputs| outputs.ends_with("complete")), "{outputs:?}");
    assert_eq!(outputs.last().unwrap(), "connect 0.2");
    assert_eq!(rig.connect(2), ["read", "send Full {a=1,b=2} node"]);
    assert_eq!(rig.sent(2), ["send Full +a,b"]);
    rig.sent(2);
    let outputs = rig.receive_raw(2, one("o", "c", "3"));
    assert!(outputs.iter().any(|outputs| outputs.ends_with("complete")), "{outputs:?}");
}

#[test]
fn b2_4_a_wildcard_that_is_taken_for_a_name_once_more_begins_on_another_stream_later() {
    let (mut rig, _) = holding_two();
    let (all, _) = rig.watch::<Full>("*");
    rig.sent(1);
    rig.receive_raw(1, removed("m", &["*"]));
    // It is not subscribed any more when the other stream begins, and is again later.
    rig.unwatch(all);
    assert_eq!(rig.connect(2), ["read", "send Full +a,b {a=1,b=2} node"]);
    rig.sent(2);
    rig.pass(Duration::from_secs(1));
    let (_, outputs) = rig.watch::<Full>("*");
    assert!(outputs.contains(&"send Full +*".to_owned()), "{outputs:?}");
    rig.sent(2);
    let outputs = rig.receive_raw(2, removed("n", &["*"]));
    assert!(
        !outputs.iter().any(|outputs| outputs.starts_with("disconnect")),
        "two streams in a short time: {outputs:?}"
    );
    rig.sent(2);
    // What is sent by name does not make it complete.
    let outputs = rig.receive_raw(2, one("o", "a", "2"));
    assert!(!outputs.iter().any(|outputs| outputs.ends_with(" complete")), "{outputs:?}");
    rig.sent(2);
    let outputs = rig.pass(Duration::from_secs(15));
    assert!(outputs.contains(&"connect 0.3".to_owned()), "{outputs:?}");
    rig.connect(3);
    rig.sent(3);
    rig.sent(3);
    let outputs = rig.receive_raw(3, one("p", "c", "3"));
    assert!(outputs.iter().any(|outputs| outputs.ends_with(" complete")), "{outputs:?}");
}

/// Each response has a NACK of its own, so that a server that waits for none could fill the memory with those that have to wait.
#[test]
fn b0_18_so_many_nacks_wait_and_no_more() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a"]);
    let is_nack = |outputs: &[String]| outputs.iter().any(|output| output.starts_with("send "));
    let mut at_once = 0;
    for number in 0..1_000 {
        let nonce = format!("n{number}");
        let outputs = rig.receive_raw(1, delta_response::<Full>(&nonce, &[("a", "v", Some("bad"))], &[]));
        at_once += usize::from(is_nack(&outputs));
        rig.sent(1);
    }
    assert_eq!(at_once, 1, "the others repeat it");
    let mut waited = 0;
    for _ in 0..1_000 {
        waited += usize::from(is_nack(&rig.pass(Duration::from_secs(1))));
        rig.sent(1);
    }
    assert_eq!(waited, 256);
}
