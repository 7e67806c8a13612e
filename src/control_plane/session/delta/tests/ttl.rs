//! Times to live.
#![allow(clippy::disallowed_methods, reason = "the clock that the tests turn begins some time")]

use std::time::Duration;

use super::*;

/// A pair with a clock that the test advances.
struct Clocked {
    pair: Pair,
    now: Instant,
}

impl Clocked {
    fn new() -> Self {
        Self { pair: Pair::default(), now: Instant::now() }
    }

    fn set(&mut self, name: &str, text: &str, ttl: Option<u64>) {
        let resource = AnyResource::new(CDS, name, text.to_owned());
        let resource = match ttl {
            Some(ttl) => resource.with_ttl(Duration::from_secs(ttl)),
            None => resource,
        };
        self.pair.store.update(|tx| {
            tx.set(resource);
        });
    }

    /// Updates the time; returns the seconds until the session's next deadline.
    fn send_due(&mut self) -> Option<u64> {
        let Pair { session, store, .. } = &mut self.pair;
        session.handle_time(self.now, store).map(|at| (at - self.now).as_secs())
    }

    /// Returns all due responses, each of which is acknowledged.
    fn settle(&mut self) -> Vec<String> {
        self.send_due();
        self.pair.settle()
    }

    fn after(&mut self, seconds: u64) -> Vec<String> {
        self.now += Duration::from_secs(seconds);
        self.settle()
    }
}

#[test]
fn b2_16_resources_are_confirmed_three_times_within_their_time_to_live() {
    let mut clocked = Clocked::new();
    assert_eq!(clocked.send_due(), None);
    clocked.set("a", "1", Some(30));
    clocked.set("b", "1", None);
    clocked.set("c", "1", Some(30));
    clocked.pair.change(CDS, &["a", "b"], &[]);
    assert_eq!(clocked.settle(), ["Cluster 3: a@1=1/30 b@2=1"]);
    assert_eq!(clocked.send_due(), Some(10));
    assert_eq!(clocked.after(9), nothing());
    assert_eq!(clocked.after(1), ["Cluster 3: a@1~/30"]);
    assert_eq!(clocked.after(0), nothing(), "once");
    assert_eq!(clocked.after(10), ["Cluster 3: a@1~/30"]);
    clocked.pair.change(CDS, &[], &["a"]);
    assert_eq!(clocked.after(10), nothing());
}

#[test]
fn b1_17_a_time_to_live_that_is_raised_or_cleared_is_a_change() {
    let mut clocked = Clocked::new();
    clocked.set("a", "1", Some(30));
    clocked.pair.change(CDS, &[], &[]);
    assert_eq!(clocked.settle(), ["Cluster 1: a@1=1/30"]);
    clocked.set("a", "1", Some(60));
    assert_eq!(clocked.settle(), ["Cluster 2: a@2=1/60"]);
    assert_eq!(clocked.send_due(), Some(20));
    assert_eq!(clocked.after(20), ["Cluster 2: a@2~/60"]);
    clocked.set("a", "1", None);
    assert_eq!(clocked.settle(), ["Cluster 3: a@3=1"]);
    assert_eq!(clocked.send_due(), None);
}

#[test]
fn a_change_takes_the_place_of_a_heartbeat() {
    let mut clocked = Clocked::new();
    clocked.set("a", "1", Some(30));
    clocked.set("b", "1", Some(30));
    clocked.pair.change(CDS, &["a", "b"], &[]);
    clocked.settle();
    clocked.set("a", "2", Some(30));
    assert_eq!(clocked.after(10), ["Cluster 3: a@3=2/30 b@2~/30"]);
}

#[test]
fn heartbeats_that_are_withheld_too_long_are_whole_resources() {
    let mut clocked = Clocked::new();
    clocked.set("a", "1", Some(30));
    clocked.pair.change(CDS, &["a"], &[]);
    clocked.settle();
    clocked.pair.session.set_held(Held::all());
    assert_eq!(clocked.after(29), nothing());
    clocked.pair.session.set_held(Held::none());
    assert_eq!(clocked.settle(), ["Cluster 1: a@1~/30"]);
    clocked.pair.session.set_held(Held::all());
    assert_eq!(clocked.after(15), nothing());
    assert_eq!(clocked.after(15), nothing());
    clocked.pair.session.set_held(Held::none());
    assert_eq!(clocked.settle(), ["Cluster 1: a@1=1/30"]);
    assert_eq!(clocked.after(10), ["Cluster 1: a@1~/30"]);
}

#[test]
fn heartbeats_wait_for_the_answer_to_a_response() {
    let mut clocked = Clocked::new();
    clocked.set("a", "1", Some(30));
    clocked.pair.change(CDS, &["a"], &[]);
    clocked.send_due();
    clocked.pair.responses();
    clocked.now += Duration::from_secs(10);
    clocked.send_due();
    assert_eq!(clocked.pair.responses(), nothing());
    clocked.pair.answer(CDS, None);
    assert_eq!(clocked.pair.settle(), ["Cluster 1: a@1~/30"]);
}

#[test]
fn what_came_in_a_rejected_response_is_sent_whole_at_the_beat() {
    let mut clocked = Clocked::new();
    clocked.set("a", "1", Some(30));
    clocked.set("b", "1", Some(30));
    clocked.pair.change(CDS, &["a", "b"], &[]);
    clocked.settle();
    clocked.set("a", "bad", Some(30));
    clocked.send_due();
    clocked.pair.responses();
    clocked.pair.answer(CDS, Some("a: bad"));
    assert_eq!(clocked.settle(), nothing());
    assert_eq!(clocked.after(10), ["Cluster 3: a@3=bad/30 b@2~/30"], "which is accepted this time");
    assert_eq!(clocked.after(10), ["Cluster 3: a@3~/30 b@2~/30"]);
}

#[test]
fn what_the_client_holds_is_confirmed_when_it_comes_back() {
    let mut clocked = Clocked::new();
    clocked.set("a", "1", Some(30));
    clocked.set("b", "1", None);
    assert_eq!(clocked.pair.reconnect(CDS, &["a", "b"], &[("a", "1"), ("b", "2")]), ["Cluster 2: a@1~/30"]);
}

#[test]
fn what_it_held_when_it_came_back_is_sent_whole_if_it_may_have_expired_meanwhile() {
    let mut clocked = Clocked::new();
    clocked.set("a", "1", Some(30));
    clocked.set("b", "1", None);
    for (seconds, expected) in [(0, "Cluster 2: a@1~/30"), (1, "Cluster 2: a@1=1/30")] {
        let held = Held::all();
        clocked.pair.session = DeltaSession::default();
        clocked.pair.session.set_held(held);
        let initial_resource_versions = [("a".into(), "1".into()), ("b".into(), "2".into())].into();
        let first = DeltaDiscoveryRequest { initial_resource_versions, ..request(CDS, &["a", "b"], &[]) };
        clocked.pair.handle(first);
        clocked.send_due();
        clocked.pair.session.set_held(Held::none());
        assert_eq!(clocked.after(seconds), [expected]);
    }
}

#[test]
fn a_limit_splits_heartbeats_too() {
    let mut clocked = Clocked::new();
    clocked.pair.session = DeltaSession::new(Settings { max_per_response: Some(2), ..Settings::default() });
    ["a", "b", "c"].iter().for_each(|name| clocked.set(name, "1", Some(30)));
    clocked.pair.change(CDS, &[], &[]);
    clocked.settle();
    assert_eq!(clocked.after(10), ["Cluster 3: a@1~/30 b@2~/30", "Cluster 3: c@3~/30"]);
}

#[test]
fn times_to_live_have_their_own_beats() {
    let mut clocked = Clocked::new();
    clocked.set("a", "1", Some(30));
    clocked.set("b", "1", Some(90));
    clocked.pair.change(CDS, &[], &[]);
    clocked.settle();
    let sent: Vec<_> = (0..4).flat_map(|_| clocked.after(10)).collect();
    let a = "Cluster 2: a@1~/30";
    assert_eq!(sent, [a, a, "Cluster 2: a@1~/30 b@2~/90", a]);
}

#[test]
fn b2_16_heartbeats_may_come_when_the_resource_has_expired_or_was_rejected() {
    for (expired, rejected) in [(false, false), (true, true)] {
        let mut clocked = Clocked::new();
        clocked.pair.session.settings.behavior.heartbeats_after_expiry = expired;
        clocked.pair.session.settings.behavior.heartbeats_after_nack = rejected;
        clocked.set("a", "1", Some(30));
        clocked.pair.change(CDS, &["a"], &[]);
        clocked.send_due();
        clocked.pair.poll();
        clocked.pair.answer(CDS, Some("bad"));
        let expected = if rejected { "Cluster 1: a@1~/30" } else { "Cluster 1: a@1=1/30" };
        assert_eq!(clocked.after(10), [expected]);
        clocked.pair.session.set_held(Held::all());
        clocked.after(40);
        clocked.pair.session.set_held(Held::none());
        let expected = if expired { "Cluster 1: a@1~/30" } else { "Cluster 1: a@1=1/30" };
        assert_eq!(clocked.after(0), [expected]);
    }
}

#[test]
fn b2_16_heartbeats_may_change_the_time_to_live() {
    let mut clocked = Clocked::new();
    clocked.pair.session.settings.behavior.heartbeats_change_ttl = true;
    clocked.set("a", "1", Some(30));
    clocked.pair.exchange(CDS, &["a"], &[]);
    clocked.send_due();
    assert_eq!(clocked.after(10), ["Cluster 1: a@1~/60"]);
    assert_eq!(clocked.after(10), ["Cluster 1: a@1~/30"]);
}
