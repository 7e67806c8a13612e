//! Times to live.
#![allow(clippy::disallowed_methods, reason = "the clock that the tests turn begins some time")]

use std::time::Duration;

use super::*;

/// A pair with a clock that the test advances, and a client that accepts everything.
struct Clocked {
    pair: Pair,
    now: Instant,
    names: BTreeMap<&'static str, Vec<&'static str>>,
}

impl Clocked {
    fn new() -> Self {
        Self { pair: Pair::default(), now: Instant::now(), names: BTreeMap::new() }
    }

    fn set(&mut self, type_url: &str, name: &str, text: &str, ttl: Option<u64>) {
        let resource = AnyResource::new(type_url, name, text.to_owned());
        let resource = match ttl {
            Some(ttl) => resource.with_ttl(Duration::from_secs(ttl)),
            None => resource,
        };
        self.pair.store.update(|tx| {
            tx.set(resource);
        });
    }

    fn subscribe(&mut self, type_url: &'static str, names: &[&'static str]) -> Vec<String> {
        self.names.insert(type_url, names.to_vec());
        self.pair.request(type_url, names);
        self.settle()
    }

    /// Returns all due responses, each of which is acknowledged.
    fn settle(&mut self) -> Vec<String> {
        self.send_due();
        let mut sent = Vec::new();
        while let Some(response) = self.pair.poll() {
            sent.push(text(&response));
            let names = self.names[&*response.type_url].clone();
            self.pair.request(&response.type_url, &names);
        }
        sent
    }

    /// Updates the time; returns the seconds until the session's next deadline.
    fn send_due(&mut self) -> Option<u64> {
        let Pair { session, store, .. } = &mut self.pair;
        session.handle_time(self.now, store).map(|at| (at - self.now).as_secs())
    }

    fn after(&mut self, seconds: u64) -> Vec<String> {
        self.now += Duration::from_secs(seconds);
        self.settle()
    }
}

/// `TYPE VERSION: BYTES... NAME@VERSION=BYTES/TTL... NAME@VERSION~TTL...`, with `~` for a heartbeat.
fn text(response: &DiscoveryResponse) -> String {
    let short = response.type_url.rsplit('.').next().unwrap();
    let resources = response.resources.iter().map(|any| {
        if any.type_url != type_url::WRAPPER {
            return format!(" {}", String::from_utf8_lossy(&any.value));
        }
        let wrapper = Resource::decode(any.value.clone()).unwrap();
        let body = wrapper.resource.map(|any| format!("={}", String::from_utf8_lossy(&any.value)));
        let ttl = wrapper.ttl.map(|ttl| format!("/{}", ttl.seconds)).unwrap_or_default();
        format!(" {}@{}{}{ttl}", wrapper.name, wrapper.version, body.unwrap_or("~".into()))
    });
    format!("{short} {}:{}", response.version_info, resources.collect::<String>())
}

#[test]
fn b1_15_only_resources_with_a_time_to_live_are_wrapped() {
    let mut clocked = Clocked::new();
    clocked.set(CDS, "a", "1", Some(30));
    clocked.set(CDS, "b", "1", None);
    assert_eq!(clocked.subscribe(CDS, &[]), ["Cluster 2: a@1=1/30 1"]);
}

#[test]
fn b1_18_heartbeats_have_the_version_that_the_client_has() {
    let mut clocked = Clocked::new();
    assert_eq!(clocked.send_due(), None);
    clocked.set(EDS, "a", "1", Some(30));
    clocked.set(EDS, "b", "1", None);
    clocked.set(EDS, "c", "1", Some(30));
    assert_eq!(clocked.subscribe(EDS, &["a", "b"]), ["ClusterLoadAssignment 3: a@1=1/30 1"]);
    assert_eq!(clocked.send_due(), Some(10));
    assert_eq!(clocked.after(10), ["ClusterLoadAssignment 3: a@1~/30"]);
    clocked.set(EDS, "c", "2", Some(30));
    assert_eq!(clocked.after(9), Vec::<String>::new(), "it was not requested");
    assert_eq!(clocked.after(1), ["ClusterLoadAssignment 3: a@1~/30"]);
    assert_eq!(clocked.after(0), Vec::<String>::new(), "once");
}

#[test]
fn b1_19_heartbeats_of_full_state_types_hold_nothing_else() {
    let mut clocked = Clocked::new();
    clocked.set(CDS, "a", "1", Some(30));
    clocked.set(CDS, "b", "1", None);
    clocked.subscribe(CDS, &[]);
    assert_eq!(clocked.after(10), ["Cluster 2: a@1~/30"]);
    clocked.set(CDS, "b", "2", None);
    assert_eq!(clocked.after(10), ["Cluster 3: a@1=1/30 2"], "which confirms it, too");
    assert_eq!(clocked.after(0), Vec::<String>::new());
    assert_eq!(clocked.after(10), ["Cluster 3: a@1~/30"]);
}

#[test]
fn b1_17_a_time_to_live_that_is_raised_or_cleared_is_a_change() {
    let mut clocked = Clocked::new();
    clocked.set(CDS, "a", "1", Some(30));
    clocked.subscribe(CDS, &[]);
    clocked.set(CDS, "a", "1", Some(60));
    assert_eq!(clocked.settle(), ["Cluster 2: a@2=1/60"]);
    assert_eq!(clocked.send_due(), Some(20));
    clocked.set(CDS, "a", "1", None);
    assert_eq!(clocked.settle(), ["Cluster 3: 1"]);
    assert_eq!(clocked.send_due(), None);
}

#[test]
fn heartbeats_that_are_withheld_too_long_are_whole_resources() {
    for (type_url, expected) in [(CDS, "Cluster 2: a@1=1/30 1"), (EDS, "ClusterLoadAssignment 2: a@1=1/30")] {
        let mut clocked = Clocked::new();
        clocked.set(type_url, "a", "1", Some(30));
        clocked.set(type_url, "b", "1", None);
        clocked.subscribe(type_url, &["a", "b"]);
        clocked.pair.session.set_held(Held::all());
        assert_eq!(clocked.after(30), Vec::<String>::new());
        clocked.pair.session.set_held(Held::none());
        assert_eq!(clocked.settle(), [expected]);
        assert_eq!(clocked.after(10).len(), 1);
    }
}

#[test]
fn after_a_rejection_whole_resources_are_sent_at_the_beat() {
    let mut clocked = Clocked::new();
    clocked.set(CDS, "a", "1", Some(30));
    clocked.set(CDS, "b", "1", None);
    clocked.subscribe(CDS, &[]);
    clocked.set(CDS, "b", "bad", None);
    clocked.send_due();
    clocked.pair.poll().unwrap();
    clocked.pair.reject(CDS, &[], "b: bad");
    assert_eq!(clocked.settle(), Vec::<String>::new());
    assert_eq!(clocked.after(10), ["Cluster 3: a@1=1/30 bad"]);
    assert_eq!(clocked.after(10), ["Cluster 3: a@1~/30"], "it was accepted");
}

#[test]
fn b1_18_heartbeats_may_come_when_the_resource_has_expired() {
    for blind in [false, true] {
        let mut clocked = Clocked::new();
        clocked.pair.session.settings.behavior.heartbeats_after_expiry = blind;
        clocked.set(CDS, "a", "1", Some(30));
        clocked.subscribe(CDS, &[]);
        clocked.pair.session.set_held(Held::all());
        assert_eq!(clocked.after(40), Vec::<String>::new());
        clocked.pair.session.set_held(Held::none());
        let expected = if blind { "Cluster 1: a@1~/30" } else { "Cluster 1: a@1=1/30" };
        assert_eq!(clocked.after(0), [expected]);
    }
}

#[test]
fn b1_18_heartbeats_may_come_for_what_was_rejected() {
    for blind in [false, true] {
        let mut clocked = Clocked::new();
        clocked.pair.session.settings.behavior.heartbeats_after_nack = blind;
        clocked.set(CDS, "a", "1", Some(30));
        clocked.pair.request(CDS, &[]);
        clocked.send_due();
        clocked.pair.poll();
        clocked.pair.reject(CDS, &[], "bad");
        clocked.names.insert(CDS, Vec::new());
        let expected = if blind { "Cluster 1: a@1~/30" } else { "Cluster 1: a@1=1/30" };
        assert_eq!(clocked.after(10), [expected]);
    }
}

#[test]
fn b1_18_heartbeats_may_change_the_time_to_live() {
    let mut clocked = Clocked::new();
    clocked.pair.session.settings.behavior.heartbeats_change_ttl = true;
    clocked.set(CDS, "a", "1", Some(30));
    clocked.subscribe(CDS, &[]);
    assert_eq!(clocked.after(10), ["Cluster 1: a@1~/60"]);
    assert_eq!(clocked.after(10), ["Cluster 1: a@1~/30"]);
}
