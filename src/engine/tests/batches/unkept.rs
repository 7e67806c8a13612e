//! Consumers whose resources are not kept: rules AP16 and AP17.

use std::time::Duration;

use super::{NONE, one};
use crate::{
    base::WatchId,
    engine::{
        SelectedBatches, Selection,
        tests::rig::{Full, Part, Rig, delta_response},
    },
    protocol::DisconnectKind,
    resource::{ResourceType, Unkept},
};

/// A consumer with a store of its own, which has these versions already.
fn consume(rig: &mut Rig, names: Selection, versions: &[(&str, &str)]) -> WatchId {
    let (watch_id, ty) = (rig.next_watch_id(), ResourceType::of_unkept::<Part>());
    let versions = versions.iter().map(|(name, version)| ((*name).into(), (*version).into())).collect();
    let erase = crate::observed::erase::<Unkept<Part>>;
    rig.engine.subscribe_batches(watch_id, SelectedBatches { ty, names, erase, versions }, rig.now);
    rig.drain();
    watch_id
}

/// A stream with a consumer of everything that has one resource, of which nothing is kept.
fn holding_one() -> (Rig, WatchId) {
    let mut rig = Rig::delta();
    let consumer = consume(&mut rig, Selection::All, &[]);
    rig.connect(1);
    rig.sent(1);
    assert_eq!(rig.receive_raw(1, one("n1", "a", "1")), ["read", "#1 batch 1: a=1/1 held"]);
    rig.accept(consumer, 1);
    rig.sent(1);
    rig.accept(consumer, 2);
    rig.pass(Duration::from_millis(20));
    (rig, consumer)
}

#[test]
fn ap16_what_is_not_kept_is_compared_by_its_digest() {
    let (mut rig, consumer) = holding_one();
    // The same resource in another version changes nothing for the consumer.
    let same = delta_response::<Part>("n2", &[("a", "2", Some("1"))], &[]);
    assert_eq!(rig.receive_raw(1, same), ["read", "send Part n2"]);
    rig.sent(1);
    let other = delta_response::<Part>("n3", &[("a", "3", Some("2"))], &[]);
    assert_eq!(rig.receive_raw(1, other), ["read", "#1 batch 3: a=3/2 held complete"]);
    // What the consumer rejects is not held: the last good one is, and the versions are those.
    rig.answer(consumer, 3, &["a"]);
    rig.sent(1);
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(5));
    assert_eq!(rig.connect(2), ["read", "send Part {a=2} node"]);
}

#[test]
fn ap16_nothing_of_the_size_of_resources_is_kept() {
    let mut rig = Rig::delta();
    let consumer = consume(&mut rig, Selection::All, &[]);
    rig.connect(1);
    rig.sent(1);
    let long = "x".repeat(100_000);
    let names: Vec<_> = (0..50).map(|n| format!("r{n}")).collect();
    let all: Vec<_> = names.iter().map(|name| (name.as_str(), "1", Some(long.as_str()))).collect();
    rig.receive_raw(1, delta_response::<Part>("n1", &all, &[]));
    rig.accept(consumer, 1);
    rig.accept(consumer, 2);
    let entries: Vec<_> = rig.engine.store.iter().collect();
    assert_eq!(entries.len(), 50);
    for (_, entry) in entries {
        let resource = entry.resource().expect("it is held").clone();
        assert!(!entry.raw().expect("it is held").is_kept(), "its bytes are not kept");
        assert!(ResourceType::of_unkept::<Part>().take_content(&resource).is_none(), "nor is its content");
    }
    assert!(rig.engine.status().resources.iter().all(|report| report.bytes.is_none()));
}

#[test]
fn ap16_a_later_consumer_gets_what_is_not_kept_by_another_request() {
    let mut rig = Rig::delta();
    let first = consume(&mut rig, Selection::One("a".into()), &[]);
    rig.connect(1);
    rig.sent(1);
    rig.receive_raw(1, one("n1", "a", "1"));
    rig.accept(first, 1);
    rig.sent(1);
    rig.accept(first, 2);
    let second = consume(&mut rig, Selection::One("a".into()), &[]);
    let mut outputs = rig.unwatch(first);
    outputs.extend(rig.pass(Duration::from_millis(300)));
    assert_eq!(outputs, ["send Part +a"]);
    rig.sent(1);
    let again = rig.receive_raw(1, one("n2", "a", "1"));
    assert_eq!(again, ["read", "#2 batch 1: a=1/1 held"], "it is not complete before");
    assert_eq!(rig.accept(second, 1).1, ["send Part n2", "#2 batch 2: complete"]);
}

#[test]
fn ap17_a_new_client_asks_for_the_differences_to_the_store() {
    let mut rig = Rig::delta();
    let consumer = consume(&mut rig, Selection::All, &[("a", "1"), ("b", "2"), ("c", "3")]);
    assert_eq!(rig.connect(1), ["read", "send Part {a=1,b=2,c=3} node"]);
    rig.sent(1);
    let changes = delta_response::<Part>("n1", &[("b", "4", Some("4"))], &["c"]);
    let outputs = rig.receive_raw(1, changes);
    assert_eq!(outputs, ["read", "#1 batch 1: b=4/4 -c held"]);
    let (_, outputs) = rig.accept(consumer, 1);
    assert_eq!(outputs[0], "send Part n1");
}

#[test]
fn ap17_versions_of_what_was_pushed_and_of_names_are_sent_as_well() {
    let mut rig = Rig::delta();
    let consumer = consume(&mut rig, Selection::Pushed, &[("p", ""), ("q", "7")]);
    assert_eq!(rig.connect(1), ["read", "send Part +* -* {p=,q=7} node"]);
    rig.sent(1);
    let outputs = rig.receive_raw(1, delta_response::<Part>("n1", &[], &["p"]));
    assert!(outputs.iter().any(|output| output.contains("-p held")), "{outputs:?}");
    rig.unwatch(consumer);
    let mut rig = Rig::delta();
    let consumer = consume(&mut rig, Selection::Nothing, &[("a", "1"), ("z", "9")]);
    rig.engine.subscribe_consumer(consumer, Selection::One("a".into()), rig.now);
    rig.engine.subscribe_consumer(consumer, Selection::One("new".into()), rig.now);
    rig.drain();
    assert_eq!(rig.connect(1), ["read", "send Part +a,new {a=1} node"], "`z` is not subscribed to");
}

#[test]
fn ap17_where_no_versions_can_be_sent_everything_is() {
    // The state of the world has no versions of resources.
    let mut rig = Rig::new();
    consume(&mut rig, Selection::All, &[("a", "1")]);
    assert_eq!(rig.connect(1), ["read", "send Part [] / node"]);
    assert_eq!(rig.engine.resources(), 0);
    // The type was requested on the stream before.
    let (mut rig, _) = holding_one();
    consume(&mut rig, Selection::One("b".into()), &[("b", "1")]);
    rig.watch::<Full>("f");
    assert!(
        !rig.engine.status().resources.iter().any(|report| &*report.name == "b" && report.held.is_some())
    );
    assert_eq!(rig.pass(Duration::ZERO), NONE);
}
