//! Everything of a type: rules B1.2 to B1.5.

use std::time::Duration;

use super::rig::{Full, Part, Rig, any, response, wrapped};
use crate::protocol::DisconnectKind;

#[test]
fn b1_2_a_wildcard_alone_is_an_empty_list_on_a_fresh_stream() {
    let mut rig = Rig::new();
    rig.watch::<Full>("*");
    assert_eq!(rig.connect(1), ["read", "send Full [] / node"]);
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("b", "y"), any::<Full>("a", "x")]));
    assert_eq!(outputs, ["read", "send Full [] 1/n1", "#1 {a: present 1 x, b: present 1 y} complete"]);
}

#[test]
fn b1_3_beside_names_the_wildcard_is_explicit_and_stays_so() {
    let mut rig = Rig::new();
    rig.watch::<Full>("*");
    rig.connect(1);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    let (a, outputs) = rig.watch::<Full>("a");
    assert_eq!(outputs, ["send Full [*,a] /"]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(a), ["send Full [*] /"], "an empty list would mean nothing now");
    rig.sent(1);
    // B1.5: on a fresh stream the legacy form again.
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.connect(2), ["read", "send Full [] / node"]);
}

#[test]
fn b1_3_the_end_of_the_wildcard_leaves_the_names() {
    let mut rig = Rig::new();
    let (all, _) = rig.watch::<Full>("*");
    rig.watch::<Full>("a");
    assert_eq!(rig.connect(1)[1], "send Full [] / node");
    assert_eq!(rig.sent(1), [""; 0]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("b", "y"), any::<Full>("a", "x")]));
    rig.sent(1);
    assert_eq!(rig.engine.resources(), 2);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(all), ["send Full [a] 1/n1"]);
    assert_eq!(rig.engine.resources(), 1, "members that were not requested by name are removed");
    assert_eq!(rig.watch::<Full>("a").1, ["#3 present 1 x"]);
}

#[test]
fn b1_24_the_end_of_a_wildcard_that_was_the_only_interest_is_spelled_and_then_sent() {
    let mut rig = Rig::new();
    let (all, _) = rig.watch::<Full>("*");
    rig.watch::<Part>("p");
    rig.connect(1);
    rig.sent(1);
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(all), ["send Full [*] 1/n1"], "an empty list would be the wildcard again");
    assert_eq!(rig.sent(1), ["send Full [] 1/n1"]);
    assert_eq!(rig.engine.resources(), 1, "nothing of it is kept");
    rig.sent(1);
    // What was under way is answered in a way that the server cannot drop.
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "y")]));
    assert_eq!(outputs, ["read", "send Full [*] 2/n2"]);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_millis(20)), ["send Full [] 2/n2"]);
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("3", vec![any::<Full>("a", "z")]));
    assert_eq!(outputs, ["read", "send Full [] 3/n3"]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("a").1, ["send Full [a] /n3"]);
}

/// The next stream of a rig whose server takes `*` for a name.
fn on_the_next_stream(mut rig: Rig, outputs: &[String]) {
    let streams = outputs.iter().filter(|output| output.contains("connect"));
    assert_eq!(streams.collect::<Vec<_>>(), ["disconnect 0.1", "connect 0.2"]);
    assert_eq!(rig.connect(2), ["read", "send Full [] / node"]);
    assert_eq!(rig.sent(2), [""; 0], "the wildcard stands for the names");
    let outputs = rig.receive(2, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    assert_eq!(outputs.last().unwrap(), "#2 {a: present 1 x, b: present 1 y} complete");
    rig.sent(2);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("b").1, ["#3 present 1 y"], "no name is sent");
}

/// Found by the simulation of operations: seed 17,934.
#[test]
fn b1_23_the_time_of_a_name_begins_with_its_request_when_the_wildcard_that_stood_for_it_has_ended() {
    let mut rig = with_star();
    let outputs = rig.pass(Duration::from_secs(15));
    assert_eq!(outputs[..2], ["disconnect 0.1", "connect 0.2"]);
    rig.watch::<Full>("c");
    assert_eq!(rig.connect(2), ["read", "send Full [] / node"]);
    rig.unwatch(crate::base::WatchId::new(2));
    rig.pass(Duration::from_secs(3));
    assert_eq!(rig.sent(2), ["send Full [a,c] /"], "the empty list has left");
    rig.pass(Duration::from_secs(1));
    rig.sent(2);
    rig.receive(2, &response::<Full>("2", vec![any::<Full>("a", "x")]));
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_millis(14_999)), [""; 0]);
    assert_eq!(rig.pass(Duration::from_millis(1)), ["#3 absent NOT_FOUND"]);
}

/// `a` is watched, and then everything, which is sent as `*`.
fn with_star() -> Rig {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("*").1, ["send Full [*,a] /n1"]);
    rig.sent(1);
    rig
}

#[test]
fn b1_23_a_server_that_answers_star_with_the_names_alone_takes_it_for_a_name() {
    let mut rig = with_star();
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    assert_eq!(outputs, ["read", "send Full [*,a] 1/n1", "#2 {a: present 1 x} incomplete"]);
    rig.sent(1);
    let outputs = rig.pass(Duration::from_secs(1));
    on_the_next_stream(rig, &outputs);
}

#[test]
fn b1_23_a_server_that_does_not_answer_star_takes_it_for_a_name() {
    let mut rig = with_star();
    assert_eq!(rig.pass(Duration::from_millis(14_990)), [""; 0]);
    let outputs = rig.pass(Duration::from_millis(10));
    on_the_next_stream(rig, &outputs);
}

#[test]
fn b1_23_a_server_that_has_nothing_by_the_name_star_takes_it_for_a_name() {
    let mut rig = with_star();
    let unset = response::<Full>("1", vec![wrapped::<Full>("*", None)]);
    let outputs = rig.receive(1, &unset);
    assert_eq!(outputs[0], "read");
    on_the_next_stream(rig, &outputs[1..]);
}

#[test]
fn b1_23_a_server_that_sends_a_resource_by_the_name_star_takes_it_for_a_name() {
    let mut rig = with_star();
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("*", "x"), any::<Full>("a", "x")]));
    assert_eq!(outputs[0], "read");
    on_the_next_stream(rig, &outputs[1..]);
}

#[test]
fn b1_23_a_response_that_crossed_the_wildcard_is_no_sign_of_anything() {
    let mut rig = with_star();
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    assert_eq!(outputs.last().unwrap(), "#2 {a: present 1 x, b: present 2 y} complete");
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(40)), [""; 0]);
}

#[test]
fn members_come_change_and_go() {
    let mut rig = Rig::new();
    rig.watch::<Full>("*");
    rig.connect(1);
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    rig.sent(1);
    let outputs =
        rig.receive(1, &response::<Full>("2", vec![any::<Full>("b", "y"), any::<Full>("c", "bad")]));
    assert_eq!(outputs.last().unwrap(), "#1 {b: present 1 y, c: absent INVALID_ARGUMENT} complete");
    rig.sent(1);
    let outputs =
        rig.receive(1, &response::<Full>("3", vec![any::<Full>("b", "bad"), any::<Full>("c", "z")]));
    assert_eq!(outputs.last().unwrap(), "#1 {b: present 2 y (INVALID_ARGUMENT), c: present 3 z} complete");
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("4", vec![]));
    assert_eq!(outputs.last().unwrap(), "#1 {} complete");
    assert_eq!(rig.engine.resources(), 0);
}

#[test]
fn g1_members_keep_their_names_beside_what_is_none() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["*"]);
    let resources =
        vec![any::<Part>("other", "x"), wrapped::<Full>("a", Some("x")), wrapped::<Full>("b", Some("y"))];
    let outputs = rig.receive(1, &response::<Full>("1", resources));
    let all = "#1 {a: present 1 x, b: present 1 y} complete (INVALID_ARGUMENT)";
    assert!(outputs.contains(&all.to_owned()), "{outputs:?}");
}

#[test]
fn a_name_watched_by_itself_and_by_the_wildcard_reaches_both() {
    let mut rig = Rig::new();
    rig.watch::<Full>("*");
    rig.watch::<Full>("a");
    rig.connect(1);
    rig.sent(1);
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    assert_eq!(outputs[0], "#2 present 1 x");
    assert_eq!(outputs.last().unwrap(), "#1 {a: present 1 x, b: present 1 y} complete");
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("b", "y")]));
    assert_eq!(outputs[0], "#2 absent NOT_FOUND");
    assert_eq!(outputs.last().unwrap(), "#1 {b: present 1 y} complete");
}

#[test]
fn an_empty_answer_completes_and_an_unreachable_server_does_not() {
    let mut rig = Rig::new();
    rig.watch::<Full>("*");
    assert_eq!(rig.disconnect(1, DisconnectKind::Unreachable), ["#1 {} incomplete (UNAVAILABLE)"]);
    rig.pass(Duration::from_secs(2));
    rig.connect(2);
    rig.sent(2);
    let outputs = rig.receive(2, &response::<Full>("1", vec![]));
    assert_eq!(outputs.last().unwrap(), "#1 {} complete");
    assert_eq!(rig.watch::<Full>("*").1.last().unwrap(), "#2 {} complete");
}

#[test]
fn a_named_resource_that_becomes_a_member_does_not_notify_watches_of_the_name_again() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.watch::<Full>("*");
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    assert_eq!(outputs, ["read", "send Full [*,a] 2/n2", "#2 {a: present 2 x, b: present 2 y} complete"]);
}

#[test]
fn a_wildcard_resubscribed_before_the_unsubscription_was_sent_shows_its_members_at_once() {
    let legacy = |_: &mut Rig| "";
    let explicit = |rig: &mut Rig| {
        rig.watch::<Full>("z");
        "*,z"
    };
    for names in [legacy as fn(&mut Rig) -> &'static str, explicit] {
        let mut rig = Rig::new();
        let (all, _) = rig.watch::<Full>("*");
        let names = names(&mut rig);
        rig.connect(1);
        rig.sent(1);
        rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
        // The answer is on its way still, so the end cannot be sent yet.
        assert!(rig.unwatch(all).is_empty());
        // What comes meanwhile comes to the wildcard that the server has.
        let second = response::<Full>("2", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]);
        assert_eq!(rig.receive(1, &second), ["read"]);
        let (_, outputs) = rig.watch::<Full>("*");
        assert_eq!(
            outputs.last().unwrap().split_once(' ').unwrap().1,
            "{a: present 1 x, b: present 2 y} complete"
        );
        assert_eq!(rig.sent(1), [format!("send Full [{names}] 2/n2")]);
    }
}

#[test]
fn a_wildcard_resubscribed_after_its_first_response_is_complete() {
    let mut rig = Rig::new();
    let (all, _) = rig.watch::<Full>("*");
    rig.connect(1);
    rig.sent(1);
    // The response is the only one, as nothing changes at the server.
    assert!(rig.unwatch(all).is_empty());
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    let (_, outputs) = rig.watch::<Full>("*");
    assert_eq!(outputs, ["#2 {a: present 1 x} complete"]);
}

#[test]
fn members_of_a_wildcard_are_forgotten_when_its_unsubscription_is_sent_or_the_stream_breaks() {
    for published in [true, false] {
        let mut rig = Rig::new();
        let (all, _) = rig.watch::<Full>("*");
        rig.connect(1);
        rig.sent(1);
        rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
        rig.unwatch(all);
        assert_eq!(rig.engine.resources(), 1);
        if published {
            rig.sent(1);
            rig.pass(Duration::from_millis(20));
        } else {
            rig.disconnect(1, DisconnectKind::Closed);
        }
        assert_eq!(rig.engine.resources(), 0, "published: {published}");
        assert_eq!(rig.watch::<Full>("*").1.iter().filter(|outputs| outputs.starts_with('#')).count(), 0);
    }
}

#[test]
fn a_wildcard_that_could_not_be_ended_is_requested_again_on_a_new_stream() {
    let mut rig = Rig::new();
    let (all, _) = rig.watch::<Full>("*");
    rig.connect(1);
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(all);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("*").1, ["disconnect 0.1", "connect 0.2"]);
    assert_eq!(rig.connect(2), ["read", "send Full [] / node"]);
}

/// The wildcard has ended, which the request cannot express.
fn with_unsaid_end() -> Rig {
    let mut rig = Rig::new();
    let (all, _) = rig.watch::<Full>("*");
    rig.connect(1);
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(all), ["send Full [*] 1/n1"]);
    assert_eq!(rig.sent(1), ["send Full [] 1/n1"]);
    rig.sent(1);
    rig
}

#[test]
fn b1_8_a_wildcard_whose_end_the_server_may_have_dropped_is_requested_again() {
    let mut rig = with_unsaid_end();
    rig.pass(Duration::from_millis(20));
    // A name ends the wildcard, but a response is on its way, so that the server drops the request as outdated.
    let (a, outputs) = rig.watch::<Full>("a");
    assert_eq!(outputs, ["send Full [a] 1/n1"]);
    rig.sent(1);
    rig.watch::<Full>("*");
    rig.unwatch(a);
    // With an empty list in the answer everything would stay as it was for the server.
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("b", "x")]));
    assert_eq!(outputs[..2], ["read", "send Full [a] 2/n2"]);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_millis(20)), ["send Full [*] /n2"]);
}

#[test]
fn b1_8_an_empty_list_that_may_mean_everything_to_the_server_is_no_end_of_the_wildcard() {
    let mut rig = with_unsaid_end();
    rig.pass(Duration::from_millis(20));
    assert_eq!(
        rig.watch::<Full>("*").1,
        ["disconnect 0.1", "connect 0.2"],
        "what named something may be dropped"
    );
}
