//! Resources that a server sends without a request for them: rules AP10 to AP14.

use std::time::Duration;

use super::{NONE, one};
use crate::{
    base::WatchId,
    engine::{
        Selection, Settings,
        tests::rig::{Full, Part, Rig, any, delta_response, response},
    },
    protocol::DisconnectKind,
};

/// A stream of the incremental variant with one consumer of what is pushed.
fn pushed() -> (Rig, WatchId) {
    let mut rig = Rig::delta();
    let (consumer, _) = rig.consume::<Part>("pushed");
    rig.connect(1);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    (rig, consumer)
}

/// What is left of a response when its consumer accepts it.
fn accept_all(rig: &mut Rig, consumer: WatchId, number: u64) -> Vec<String> {
    let (_, outputs) = rig.accept(consumer, number);
    rig.sent(1);
    outputs
}

#[test]
fn ap10_what_is_pushed_begins_with_a_subscription_to_nothing() {
    let mut rig = Rig::delta();
    rig.consume::<Part>("pushed");
    assert_eq!(rig.connect(1), ["read", "send Part +* -* node"]);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(100)), NONE, "nothing is due");
}

#[test]
fn ap10_beside_names_nothing_else_is_requested() {
    let mut rig = Rig::delta();
    rig.consume::<Part>("pushed");
    rig.watch::<Part>("a");
    assert_eq!(rig.connect(1), ["read", "send Part +a node"]);
    rig.sent(1);
    let both = delta_response::<Part>("n1", &[("a", "1", Some("1")), ("p", "2", Some("2"))], &[]);
    assert_eq!(rig.receive_raw(1, both), ["read", "#1 batch 1: p=2/2 held"], "`a` was asked for by another");
    assert_eq!(rig.accept(WatchId::new(1), 1).1, ["#2 present 1 1", "send Part n1"]);
}

#[test]
fn ap10_in_the_state_of_the_world_the_answers_to_names_alone_have_more() {
    let mut rig = Rig::new();
    let (consumer, outputs) = rig.consume::<Full>("pushed");
    assert_eq!(outputs, NONE, "there is no request for nothing");
    rig.watch::<Full>("a");
    assert_eq!(rig.connect(1), ["read", "send Full [a] / node"]);
    rig.sent(1);
    let both = response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("p", "y")]);
    assert_eq!(rig.receive(1, &both), ["read", "#1 batch 1: p=1/y held"]);
    rig.accept(consumer, 1);
    rig.sent(1);
    // A response of a full-state type without it is its removal.
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "x")]));
    assert_eq!(outputs, ["read", "#1 batch 2: -p held"]);
}

#[test]
fn ap11_a_pushed_resource_changes_and_goes_as_the_server_sends_it() {
    let (mut rig, consumer) = pushed();
    let (_, watch) = rig.watch_names::<Part>(Selection::Pushed);
    assert_eq!(watch, NONE);
    assert_eq!(rig.receive_raw(1, one("n1", "p", "1")), ["read", "#1 batch 1: p=1/1 held"]);
    assert_eq!(accept_all(&mut rig, consumer, 1), ["send Part n1", "#2 {p: present 1 1} incomplete"]);
    assert_eq!(rig.receive_raw(1, one("n2", "p", "2")), ["read", "#1 batch 2: p=2/2 held"]);
    accept_all(&mut rig, consumer, 2);
    // Of what was never sent, a removal has no effect.
    let removals = delta_response::<Part>("n3", &[], &["p", "never"]);
    assert_eq!(rig.receive_raw(1, removals), ["read", "#1 batch 3: -p held"]);
    assert_eq!(accept_all(&mut rig, consumer, 3), ["send Part n3", "#2 {} incomplete"]);
    assert_eq!(rig.engine.resources(), 0);
}

#[test]
fn ap12_the_next_stream_has_the_versions_of_pushed_resources_and_their_names_without_one() {
    let (mut rig, consumer) = pushed();
    let both = delta_response::<Part>("n1", &[("p", "", Some("1")), ("q", "7", Some("2"))], &[]);
    rig.receive_raw(1, both);
    accept_all(&mut rig, consumer, 1);
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(5));
    assert_eq!(rig.connect(2), ["read", "send Part +* -* {p=,q=7} node"]);
    rig.sent(2);
    // A server that has nothing to add sends nothing, and one that lacks it removes it.
    assert_eq!(rig.pass(Duration::from_secs(100)), NONE);
    let removal = delta_response::<Part>("m1", &[], &["p"]);
    assert_eq!(rig.receive_raw(2, removal), ["read", "#1 batch 2: -p held"]);
}

#[test]
fn ap13_a_pushed_resource_goes_with_its_last_subscription_by_name() {
    let (mut rig, consumer) = pushed();
    rig.receive_raw(1, one("n1", "p", "1"));
    accept_all(&mut rig, consumer, 1);
    let (watch, outputs) = rig.watch::<Part>("p");
    assert_eq!(outputs, ["send Part +p", "#2 present 1 1"]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(watch), ["send Part -p", "#1 batch 2: -p"]);
    rig.sent(1);
    assert_eq!(rig.engine.resources(), 0);
    rig.accept(consumer, 2);
    // Pushed again, it is there again.
    assert_eq!(rig.receive_raw(1, one("n2", "p", "2")), ["read", "#1 batch 3: p=2/2 held"]);
}

#[test]
fn ap13_a_name_that_was_never_requested_on_the_stream_takes_nothing_with_it() {
    let (mut rig, consumer) = pushed();
    rig.receive_raw(1, one("n1", "p", "1"));
    accept_all(&mut rig, consumer, 1);
    rig.disconnect(1, DisconnectKind::Closed);
    let (watch, _) = rig.watch::<Part>("p");
    assert_eq!(rig.unwatch(watch), NONE);
    assert_eq!(rig.engine.resources(), 1);
}

#[test]
fn ap13_the_end_of_the_wildcard_ends_what_was_sent_for_it() {
    let (mut rig, consumer) = pushed();
    let (all, outputs) = rig.watch::<Part>("*");
    assert_eq!(outputs, ["send Part +*"]);
    rig.sent(1);
    rig.receive_raw(1, one("n1", "p", "1"));
    accept_all(&mut rig, consumer, 1);
    rig.accept(consumer, 2);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(all), ["send Part -*", "#1 batch 3: -p"]);
    rig.sent(1);
    rig.accept(consumer, 3);
    assert_eq!(rig.receive_raw(1, one("n2", "p", "1")), ["read", "#1 batch 4: p=1/1 held"]);
}

#[test]
fn ap13_with_the_consumer_what_was_pushed_is_forgotten_and_nothing_is_requested_for_it() {
    let (mut rig, consumer) = pushed();
    rig.watch::<Full>("f");
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    rig.receive_raw(1, one("n1", "p", "1"));
    accept_all(&mut rig, consumer, 1);
    assert_eq!(rig.unwatch(consumer), NONE);
    assert_eq!(rig.engine.status().resources.iter().filter(|known| &*known.name == "p").count(), 0);
    assert_eq!(
        rig.receive_raw(1, one("n2", "q", "1")),
        ["read", "send Part n2"],
        "it is ignored, and answered"
    );
}

#[test]
fn ap14_pushes_beyond_the_limit_are_rejected_and_the_others_stay() {
    let settings = Settings { max_pushed_resources: 2, ..Settings::default() };
    let mut rig = Rig::delta_with(settings);
    let (consumer, _) = rig.consume::<Part>("pushed");
    rig.watch::<Full>("f");
    rig.connect(1);
    rig.sent(1);
    rig.sent(1);
    let long = "n".repeat(4097);
    let many =
        [("p", "1", Some("1")), (&*long, "1", Some("1")), ("q", "2", Some("2")), ("r", "3", Some("3"))];
    let outputs = rig.receive_raw(1, delta_response::<Part>("n1", &many, &[]));
    assert_eq!(outputs, ["read", "#1 batch 1: p=1/1 q=2/2 held"]);
    let outputs = accept_all(&mut rig, consumer, 1);
    assert_eq!(outputs.len(), 1, "{outputs:?}");
    assert!(
        outputs[0].contains(
            "resources[1]: the name of a resource that was not requested is longer than 4096 bytes"
        )
    );
    assert!(
        outputs[0].contains("resources[3]: more than 2 resources of the type were sent without a request")
    );
    assert_eq!(rig.engine.resources(), 3, "two, and the name of the other type");
    // The neighbour goes on.
    let other = delta_response::<Full>("m1", &[("f", "1", Some("x"))], &[]);
    assert_eq!(rig.receive_raw(1, other), ["#2 present 1 x", "read", "send Full m1"]);
    rig.sent(1);
    // Room is made by a removal.
    rig.receive_raw(1, delta_response::<Part>("n2", &[], &["p"]));
    accept_all(&mut rig, consumer, 2);
    assert_eq!(rig.receive_raw(1, one("n3", "r", "4")), ["read", "#1 batch 3: r=4/4 held"]);
}
