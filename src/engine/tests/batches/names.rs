//! Names that a consumer adds and removes: rule AP15.

use std::time::Duration;

use super::{NONE, one};
use crate::{
    base::WatchId,
    engine::{
        Selection,
        tests::rig::{Part, Rig, delta_response},
    },
    protocol::DisconnectKind,
};

/// A consumer subscribes to one more name.
fn subscribe(rig: &mut Rig, consumer: WatchId, name: &str) -> Vec<String> {
    rig.engine.subscribe_consumer(consumer, Selection::One(name.into()), rig.now);
    rig.drain()
}

/// A consumer unsubscribes from a name.
fn unsubscribe(rig: &mut Rig, consumer: WatchId, name: &str) -> Vec<String> {
    rig.engine.unsubscribe_consumer(consumer, &Selection::One(name.into()), rig.now);
    rig.drain()
}

#[test]
fn ap15_a_consumer_begins_with_nothing_and_subscribes_to_names() {
    let mut rig = Rig::delta();
    let (consumer, outputs) = rig.consume::<Part>("");
    assert_eq!(outputs, NONE);
    subscribe(&mut rig, consumer, "a");
    assert_eq!(subscribe(&mut rig, consumer, "a"), NONE, "it is subscribed");
    assert_eq!(rig.connect(1), ["read", "send Part +a node"]);
    rig.sent(1);
    assert_eq!(rig.receive_raw(1, one("n1", "a", "1")), ["read", "#1 batch 1: a=1/1 held"]);
    assert_eq!(rig.accept(consumer, 1).1, ["send Part n1", "#1 batch 2: complete"]);
    rig.sent(1);
    rig.accept(consumer, 2);
    rig.pass(Duration::from_millis(20));
    assert_eq!(subscribe(&mut rig, consumer, "b"), ["send Part +b"]);
    rig.sent(1);
    assert_eq!(rig.receive_raw(1, one("n2", "b", "2")), ["read", "#1 batch 3: b=2/2 held"]);
    assert_eq!(rig.accept(consumer, 3).1, ["send Part n2", "#1 batch 4: complete"]);
    rig.sent(1);
    rig.accept(consumer, 4);
    rig.pass(Duration::from_millis(20));
    assert_eq!(unsubscribe(&mut rig, consumer, "a"), ["send Part -a", "#1 batch 5: -a complete"]);
    rig.sent(1);
    assert_eq!(unsubscribe(&mut rig, consumer, "a"), NONE, "it has ended");
    rig.accept(consumer, 5);
    assert_eq!(rig.engine.batches.census(), [1, 1, 0, 1]);
    // With the consumer all of its subscriptions end.
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(consumer), ["send Part -b"]);
    rig.sent(1);
    assert_eq!(rig.engine.batches.census(), [0; 4]);
    assert_eq!(rig.engine.resources(), 0);
}

#[test]
fn ap15_a_subscribed_name_that_does_not_exist_is_shown_once() {
    let mut rig = Rig::delta();
    let (consumer, _) = rig.consume::<Part>("");
    subscribe(&mut rig, consumer, "a");
    subscribe(&mut rig, consumer, "b");
    rig.connect(1);
    rig.sent(1);
    let outputs = rig.receive_raw(1, delta_response::<Part>("n1", &[("a", "1", Some("1"))], &["b"]));
    assert_eq!(outputs, ["read", "#1 batch 1: a=1/1 held"]);
    let (_, outputs) = rig.accept(consumer, 1);
    assert_eq!(outputs, ["send Part n1", "#1 batch 2: !b NOT_FOUND complete (NOT_FOUND)"]);
    rig.sent(1);
    rig.accept(consumer, 2);
    assert_eq!(
        rig.receive_raw(1, one("n2", "b", "2")),
        ["read", "#1 batch 3: b=2/2 held complete (NOT_FOUND)"]
    );
    assert_eq!(rig.accept(consumer, 3).1, ["send Part n2", "#1 batch 4: complete"]);
}

#[test]
fn ap15_a_resource_of_two_subscriptions_stays_with_the_last_of_them() {
    let mut rig = Rig::delta();
    let (consumer, _) = rig.consume::<Part>("*");
    rig.connect(1);
    rig.sent(1);
    rig.receive_raw(1, one("n1", "a", "1"));
    rig.accept(consumer, 1);
    rig.sent(1);
    rig.accept(consumer, 2);
    rig.pass(Duration::from_millis(20));
    assert_eq!(subscribe(&mut rig, consumer, "a"), ["send Part +a"]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(unsubscribe(&mut rig, consumer, "a"), ["send Part -a"], "the wildcard has it");
}

#[test]
fn ap15_names_come_and_go_while_a_batch_is_out_and_without_a_connection() {
    let mut rig = Rig::delta();
    let (consumer, _) = rig.consume::<Part>("");
    subscribe(&mut rig, consumer, "a");
    rig.connect(1);
    rig.sent(1);
    rig.receive_raw(1, one("n1", "a", "1"));
    // It is unsubscribed while the response waits for the consumer, which rejects it.
    rig.pass(Duration::from_millis(20));
    assert_eq!(unsubscribe(&mut rig, consumer, "a"), ["send Part -a"]);
    rig.sent(1);
    subscribe(&mut rig, consumer, "b");
    let (_, outputs) = rig.answer(consumer, 1, &["a"]);
    assert!(outputs[0].contains("\"a\": no"), "{outputs:?}");
    rig.disconnect(1, DisconnectKind::Closed);
    subscribe(&mut rig, consumer, "c");
    unsubscribe(&mut rig, consumer, "b");
    rig.pass(Duration::from_secs(5));
    assert_eq!(rig.connect(2), ["read", "send Part +c node"]);
    assert_eq!(rig.engine.resources(), 1);
}
