//! The time for which known resources wait for unknown ones, in a store that is filled on demand.
#![allow(clippy::disallowed_methods, reason = "the clock that the tests turn begins some time")]

use std::time::Duration;

use super::*;

/// A pair with a store on demand, and a clock that the test advances.
struct Waiting {
    pair: Pair,
    now: Instant,
}

impl Waiting {
    fn new() -> Self {
        let store = Store::new().with_on_demand(true);
        Self { pair: Pair { store, ..Pair::default() }, now: Instant::now() }
    }

    /// Returns the responses after some milliseconds, and the time until the session's next deadline.
    fn after(&mut self, millis: u64) -> (Vec<String>, Option<u64>) {
        self.now += Duration::from_millis(millis);
        let Pair { session, store, .. } = &mut self.pair;
        let next = session.handle_time(self.now, store);
        (self.pair.responses(), next.map(|at| (at - self.now).as_millis() as u64))
    }
}

#[test]
fn cp1_a_missing_name_in_the_first_request_delays_the_others_for_a_fraction_of_a_second() {
    for of_type in [LDS, CDS] {
        let short = of_type.rsplit('.').next().unwrap();
        let mut waiting = Waiting::new();
        waiting.pair.set(&[(of_type, "a", "a1")]);
        waiting.pair.request(of_type, &["a", "missing"]);
        assert_eq!(waiting.after(0), (vec![], Some(250)));
        assert_eq!(waiting.after(249), (vec![], Some(1)));
        assert_eq!(waiting.after(1), (vec![format!("{short} 1: a1")], None));
        waiting.pair.request(of_type, &["a", "missing"]);
        waiting.pair.set(&[(of_type, "missing", "m1")]);
        assert_eq!(waiting.after(20_000), (vec![format!("{short} 2: a1 m1")], None));
        waiting.pair.request(of_type, &["a", "missing"]);
        waiting.pair.remove(of_type, "a");
        assert_eq!(waiting.after(0).0, [format!("{short} 3: m1")]);
    }
}

#[test]
fn cp1_resources_that_arrive_together_are_sent_together() {
    let mut waiting = Waiting::new();
    waiting.pair.set(&[(CDS, "a", "a1")]);
    waiting.pair.request(CDS, &["a", "b"]);
    assert_eq!(waiting.after(0).0, [""; 0]);
    waiting.pair.set(&[(CDS, "b", "b1")]);
    assert_eq!(waiting.after(30), (vec!["Cluster 2: a1 b1".into()], None));
}

#[test]
fn cp1_nothing_is_sent_while_nothing_is_known() {
    let mut waiting = Waiting::new();
    waiting.pair.request(CDS, &["a", "b"]);
    waiting.after(0);
    assert_eq!(waiting.after(60_000), (vec![], None), "it would delete both at a client that has them");
    waiting.pair.set(&[(CDS, "a", "a1")]);
    assert_eq!(waiting.after(0).0, ["Cluster 1: a1"], "it has waited long enough");
}

#[test]
fn cp1_a_client_that_may_hold_the_missing_name_waits_for_longer() {
    let mut waiting = Waiting::new();
    waiting.pair.set(&[(CDS, "a", "a1")]);
    waiting.pair.versions.insert(CDS.into(), "of another server".into());
    waiting.pair.request(CDS, &["a", "b"]);
    assert_eq!(waiting.after(0), (vec![], Some(5_000)));
    assert_eq!(waiting.after(4_999).0, [""; 0]);
    assert_eq!(waiting.after(1).0, ["Cluster 1: a1"], "long before the timer of the client ends");
}

#[test]
fn cp1_names_wait_for_a_wildcard_no_longer_than_a_third_of_the_clients_timer() {
    for (of_type, short) in [(CDS, "Cluster"), (EDS, "ClusterLoadAssignment")] {
        let mut waiting = Waiting::new();
        waiting.pair.set(&[(of_type, "a", "a1")]);
        waiting.pair.request(of_type, &["*"]);
        waiting.after(0);
        assert_eq!(waiting.after(60_000).0, [""; 0], "all resources are either complete or unknown");
        let mut waiting = Waiting::new();
        waiting.pair.set(&[(of_type, "a", "a1")]);
        waiting.pair.request(of_type, &["*", "a"]);
        assert_eq!(waiting.after(0), (vec![], Some(5_000)));
        assert_eq!(waiting.after(5_000).0, [format!("{short} 1: a1")]);
        waiting.pair.request(of_type, &["*", "a"]);
        waiting.pair.store.update(|tx| {
            tx.set(AnyResource::new(of_type, "b", "b1")).set_complete(of_type, "*");
        });
        // Listeners and clusters are sent completely each time, the others once.
        assert_eq!(waiting.after(0).0, [format!("{short} 2: a1 b1")]);
    }
}

#[test]
fn cp1_seen_and_unseen_names_in_any_order_never_outlast_the_timer_of_a_client() {
    // The names of a request each: known, known to be missing, and unknown.
    let names = ["known", "absent", "unknown"];
    let sets = (1..8u32).map(|set| {
        let chosen = names.iter().enumerate().filter(|(at, _)| set & (1 << at) != 0);
        chosen.map(|(_, name)| *name).collect::<Vec<_>>()
    });
    let sets: Vec<_> = sets.collect();
    for of_type in [LDS, CDS, EDS, RDS] {
        for first in &sets {
            for second in &sets {
                let mut waiting = Waiting::new();
                waiting.pair.set(&[(of_type, "known", "k1")]);
                waiting.pair.store.update(|tx| {
                    tx.set_absent(of_type, "absent");
                });
                let mut is_sent = false;
                for names in [first, second] {
                    waiting.pair.request(of_type, names);
                    let mut responses = waiting.after(0).0;
                    responses.extend(waiting.after(250).0);
                    is_sent |= responses.iter().any(|response| response.ends_with(": k1"));
                    let is_due = names.contains(&"known");
                    assert!(!is_due || is_sent, "{of_type} {first:?} {second:?}: {responses:?}");
                }
            }
        }
    }
}

#[test]
fn cp1_a_member_of_a_glob_ends_the_wait_like_a_name() {
    let (glob, member) =
        ("xdstp://auth/envoy.config.cluster.v3.Cluster/*", "xdstp://auth/envoy.config.cluster.v3.Cluster/a");
    let mut waiting = Waiting::new();
    waiting.pair.request(CDS, &[glob, "missing"]);
    waiting.after(0);
    assert_eq!(waiting.after(10_000).0, [""; 0]);
    waiting.pair.set(&[(EDS, "other", "o1"), (CDS, "other", "o1")]);
    assert_eq!(waiting.after(0).0, [""; 0], "it is not subscribed");
    waiting.pair.set(&[(CDS, member, "m1")]);
    assert_eq!(waiting.after(0).0, ["Cluster 2: m1"]);
    waiting.pair.request(CDS, &[glob]);
    waiting.pair.remove(CDS, member);
    assert_eq!(waiting.after(0).0, ["Cluster 3: "]);
}

#[test]
fn cp1_a_name_that_is_let_go_is_not_waited_for_and_an_error_ends_a_wait() {
    let mut waiting = Waiting::new();
    waiting.pair.set(&[(CDS, "a", "a1")]);
    waiting.pair.request(CDS, &["a", "b", "c"]);
    assert_eq!(waiting.after(0).0, [""; 0]);
    waiting.pair.store.update(|tx| {
        tx.set_error(CDS, "b", 7, "no");
    });
    waiting.pair.request(CDS, &["a", "b"]);
    assert_eq!(waiting.after(0).0, ["Cluster 2: a1"]);
}
