//! Names beside the wildcard that began a stream as an empty list: rules B1.23 and B1.26.

use std::time::Duration;

use super::rig::{Full, Rig, any, response};

/// The stream of a rig with the wildcard and some names, whose server has `a` and `b`. Gives the answer of the first response.
fn behind_the_empty_list(names: &[&str]) -> (Rig, String) {
    let mut rig = Rig::new();
    rig.watch::<Full>("*");
    for name in names {
        rig.watch::<Full>(name);
    }
    assert_eq!(rig.connect(1), ["read", "send Full [] / node"]);
    assert_eq!(rig.sent(1), [""; 0], "the response may have the names");
    rig.pass(Duration::from_millis(990));
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    assert_eq!(outputs.last().unwrap(), "#1 {a: present 1 x, b: present 1 y} complete");
    let answer = outputs.into_iter().find(|output| output.starts_with("send"));
    rig.sent(1);
    (rig, answer.expect("the response is answered"))
}

#[test]
fn b1_26_names_that_the_empty_list_has_brought_are_not_sent() {
    let (mut rig, answer) = behind_the_empty_list(&["a"]);
    assert_eq!(answer, "send Full [] 1/n1");
    assert_eq!(rig.pass(Duration::from_secs(60)), [""; 0]);
    let (b, outputs) = rig.watch::<Full>("b");
    assert_eq!(outputs, ["#3 present 1 y"]);
    assert_eq!(rig.unwatch(b), [""; 0]);
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("b", "z")]));
    assert!(outputs.contains(&"#2 absent NOT_FOUND".to_owned()), "{outputs:?}");
    assert!(outputs.contains(&"send Full [] 2/n2".to_owned()), "{outputs:?}");
    assert_eq!(outputs.last().unwrap(), "#1 {b: present 2 z} complete");
}

#[test]
fn b1_26_names_that_the_empty_list_has_not_brought_follow_its_response() {
    let (mut rig, answer) = behind_the_empty_list(&["a", "c"]);
    assert_eq!(answer, "send Full [*,a,c] 1/n1");
    let all = vec![any::<Full>("a", "x"), any::<Full>("b", "y"), any::<Full>("c", "z")];
    rig.pass(Duration::from_secs(1));
    let outputs = rig.receive(1, &response::<Full>("2", all));
    assert!(outputs.contains(&"#3 present 2 z".to_owned()), "{outputs:?}");
    assert!(
        !outputs.iter().any(|output| output.contains("connect")),
        "no change has crossed it: {outputs:?}"
    );
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(60)), [""; 0], "the server knows the wildcard");
}

#[test]
fn b1_26_names_do_not_wait_longer_than_a_second_for_the_response_to_the_empty_list() {
    let mut rig = Rig::new();
    rig.watch::<Full>("a");
    rig.watch::<Full>("*");
    rig.connect(1);
    rig.pass(Duration::from_secs(5));
    assert_eq!(rig.sent(1), [""; 0], "the time begins when the request was sent");
    assert_eq!(rig.pass(Duration::from_millis(990)), [""; 0]);
    assert_eq!(rig.pass(Duration::from_millis(10)), ["send Full [*,a] /"]);
}

/// Found by the simulation of one server: seed 721.
#[test]
fn b1_26_a_name_that_the_wildcard_has_is_watched_again_without_any_request() {
    let (mut rig, _) = behind_the_empty_list(&[]);
    let (a, _) = rig.watch::<Full>("a");
    rig.unwatch(a);
    rig.watch::<Full>("a");
    let both = vec![any::<Full>("a", "x"), any::<Full>("b", "z")];
    let outputs = rig.receive(1, &response::<Full>("2", both));
    assert!(outputs.contains(&"send Full [] 2/n2".to_owned()), "the wildcard stays: {outputs:?}");
}

/// go-control-plane in ADS mode does not answer a request that names one resource of several, of which `*` is none for it.
#[test]
fn b1_23_a_server_that_is_silent_about_names_beside_star_gets_another_stream() {
    let (mut rig, _) = behind_the_empty_list(&["c"]);
    let outputs = rig.pass(Duration::from_millis(15_000));
    let streams = outputs.iter().filter(|output| output.contains("connect"));
    assert_eq!(streams.collect::<Vec<_>>(), ["disconnect 0.1", "connect 0.2"]);
    assert_eq!(rig.connect(2), ["read", "send Full [] / node"]);
    assert_eq!(rig.sent(2), [""; 0]);
    let all = vec![any::<Full>("a", "x"), any::<Full>("b", "z")];
    let outputs = rig.receive(2, &response::<Full>("2", all));
    assert!(outputs.contains(&"send Full [] 2/n2".to_owned()), "no name is sent: {outputs:?}");
    assert_eq!(outputs.last().unwrap(), "#1 {a: present 1 x, b: present 2 z} complete");
}

/// Found by the simulation of operations: seed 30,881.
#[test]
fn b1_23_what_the_wildcard_has_brought_is_not_deleted_by_a_narrow_response_that_crossed_its_name() {
    let (mut rig, _) = behind_the_empty_list(&["c"]);
    rig.pass(Duration::from_millis(20));
    let (_, outputs) = rig.watch::<Full>("a");
    assert_eq!(outputs, ["send Full [*,a,c] 1/n1", "#3 present 1 x"]);
    let outputs = rig.receive(1, &response::<Full>("2", vec![]));
    assert!(!outputs.iter().any(|output| output.starts_with("#3")), "{outputs:?}");
}

#[test]
fn b1_23_the_response_to_an_empty_list_that_crossed_star_is_no_answer_to_it() {
    let mut rig = Rig::new();
    rig.watch::<Full>("*");
    rig.watch::<Full>("c");
    rig.connect(1);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(1)), ["send Full [*,c] /"]);
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    rig.sent(1);
    let outputs = rig.pass(Duration::from_secs(15));
    assert!(outputs.contains(&"disconnect 0.1".to_owned()), "{outputs:?}");
}

/// Found by the simulation of operations: seed 74,712. go-control-plane answers a NACK with the same response.
#[test]
fn b1_23_a_response_of_the_version_before_star_is_no_answer_to_it() {
    let (mut rig, _) = behind_the_empty_list(&["c"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    rig.sent(1);
    let outputs = rig.pass(Duration::from_secs(15));
    assert!(outputs.contains(&"disconnect 0.1".to_owned()), "it may have been made before: {outputs:?}");
}

/// Found by the fuzzer of operations: at a server that takes `*` for a name.
#[test]
fn b1_23_what_is_named_in_place_of_an_unproven_wildcard_is_not_deleted_by_a_response_that_crosses_it() {
    let mut rig = Rig::new();
    let (all, _) = rig.watch::<Full>("*");
    rig.watch::<Full>("c");
    rig.connect(1);
    rig.sent(1);
    rig.pass(Duration::from_millis(990));
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    rig.sent(1);
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![]));
    rig.sent(1);
    rig.watch::<Full>("a");
    rig.unwatch(all);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("1", vec![]));
    assert!(!outputs.iter().any(|output| output.contains("absent")), "{outputs:?}");
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    assert!(!outputs.iter().any(|output| output.contains("absent")), "{outputs:?}");
}

/// Found by the fuzzer of operations: the server takes `*` for a name, and has neither.
#[test]
fn b1_23_a_change_that_crosses_star_is_no_answer_to_it_unless_it_has_the_names() {
    for (name, is_answer) in [("c", true), ("d", false)] {
        let (mut rig, _) = behind_the_empty_list(&["c"]);
        rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "z"), any::<Full>(name, "z")]));
        rig.sent(1);
        let outputs = rig.pass(Duration::from_secs(40));
        assert_eq!(outputs.iter().any(|output| output.contains("connect")), !is_answer, "{outputs:?}");
    }
}

/// Found by the fuzzer of operations: the server takes `*` for a name, and a resource is created while its name is requested.
#[test]
fn b1_23_a_change_that_crosses_star_and_has_its_names_is_followed_by_another_stream_once() {
    let (mut rig, _) = behind_the_empty_list(&["c"]);
    let all = || vec![any::<Full>("a", "x"), any::<Full>("b", "y"), any::<Full>("c", "z")];
    let outputs = rig.receive(1, &response::<Full>("2", all()));
    assert!(outputs.contains(&"#2 present 2 z".to_owned()), "{outputs:?}");
    assert!(outputs.contains(&"connect 0.2".to_owned()), "{outputs:?}");
    assert_eq!(rig.connect(2), ["read", "send Full [] / node"]);
    rig.sent(2);
    let outputs = rig.receive(2, &response::<Full>("2", all()));
    assert!(outputs.contains(&"send Full [] 2/n2".to_owned()), "no name is needed: {outputs:?}");
    rig.sent(2);
    // A name that comes by its request alone.
    assert_eq!(rig.watch::<Full>("d").1, ["send Full [*,c,d] 2/n2"]);
    rig.sent(2);
    let mut more = all();
    more.push(any::<Full>("d", "z"));
    let outputs = rig.receive(2, &response::<Full>("3", more));
    assert!(outputs.contains(&"#3 present 3 z".to_owned()), "{outputs:?}");
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_secs(60)), [""; 0], "the server is trusted");
}

#[test]
fn b1_23_a_response_of_another_version_with_more_than_the_names_answers_star() {
    let (mut rig, _) = behind_the_empty_list(&["c"]);
    rig.pass(Duration::from_secs(1));
    rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "x"), any::<Full>("b", "z")]));
    rig.sent(1);
    let outputs = rig.pass(Duration::from_secs(40));
    assert!(!outputs.iter().any(|output| output.contains("connect")), "{outputs:?}");
}

/// Found by the simulation of operations: seed 78,768.
#[test]
fn b1_23_the_time_of_a_silent_wildcard_does_not_begin_anew_when_names_are_added() {
    let mut rig = Rig::new();
    rig.watch::<Full>("*");
    rig.connect(1);
    rig.sent(1);
    rig.pass(Duration::from_secs(14));
    assert_eq!(rig.watch::<Full>("c").1, ["send Full [*,c] /"]);
    rig.sent(1);
    let outputs = rig.pass(Duration::from_secs(1));
    assert!(
        outputs.contains(&"disconnect 0.1".to_owned()),
        "its time began with the empty list: {outputs:?}"
    );
}

/// A response to the names alone would delete all others.
#[test]
fn b1_23_what_the_empty_list_has_brought_stays_when_the_names_behind_it_bring_less() {
    let (mut rig, _) = behind_the_empty_list(&["a", "c"]);
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "x")]));
    assert!(!outputs.iter().any(|output| output.contains("absent") || output.contains("{}")), "{outputs:?}");
    rig.sent(1);
    let outputs = rig.pass(Duration::from_secs(1));
    assert_eq!(outputs, ["disconnect 0.1", "connect 0.2"]);
    assert_eq!(rig.connect(2), ["read", "send Full [] / node"]);
    rig.sent(2);
    let outputs = rig.receive(2, &response::<Full>("3", vec![any::<Full>("a", "x")]));
    assert_eq!(outputs.last().unwrap(), "#1 {a: present 1 x} complete", "that was said of everything");
}

/// Found by the simulation of operations: seed 129.
#[test]
fn b1_23_a_server_that_answers_neither_names_nor_star_behind_them_gets_another_stream() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["c"]);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("*").1, ["send Full [*,c] /"]);
    rig.sent(1);
    let outputs = rig.pass(Duration::from_secs(15));
    assert!(outputs.contains(&"disconnect 0.1".to_owned()), "an empty list may be answered: {outputs:?}");
    assert_eq!(rig.connect(2), ["read", "send Full [] / node"]);
}
