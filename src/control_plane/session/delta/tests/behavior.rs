//! The freedoms of servers.

#![allow(clippy::disallowed_methods, reason = "the clock that the tests turn begins some time")]

use std::{collections::BTreeSet, time::Duration};

use super::*;
use crate::control_plane::session::{AfterNack, Behavior};

fn pair(behavior: Behavior, resources: &[(&str, &str, &str)]) -> Pair {
    let settings = Settings { behavior, ..Settings::default() };
    Pair { session: DeltaSession::new(settings), ..Pair::with(resources) }
}

impl Pair {
    /// A NACK that also changes the subscription.
    fn reject_and_subscribe(&mut self, type_url: &str, subscribe: &[&str]) -> Handled {
        let status = Status { code: 3, message: "bad".into(), details: Vec::new() };
        let request = DeltaDiscoveryRequest {
            response_nonce: self.nonces.remove(type_url).expect("a response on its way"),
            error_detail: Some(status),
            ..request(type_url, subscribe, &[])
        };
        self.handle(request)
    }
}

#[test]
fn names_in_a_nack_may_be_ignored() {
    let behavior = Behavior { ignore_names_in_nack: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "1"), (CDS, "b", "1")]);
    pair.change(CDS, &["a"], &[]);
    pair.poll();
    pair.reject_and_subscribe(CDS, &["b"]);
    assert_eq!(pair.session.subscribed(CDS), ["a"]);
    assert_eq!(pair.exchange(CDS, &["b"], &[]), ["Cluster 1: b@1=1"]);
}

#[test]
fn the_star_may_be_a_name_like_others() {
    let behavior = Behavior { legacy_wildcard_only: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "1"), (CDS, "b", "1")]);
    assert_eq!(pair.exchange(CDS, &["*", "a"], &[]), ["Cluster 1: a@1=1 -*"]);
    assert_eq!(pair.reconnect(CDS, &[], &[]), ["Cluster 1: a@1=1 b@1=1"]);
    pair.answer(CDS, None);
    pair.change(CDS, &[], &["*"]);
    pair.set(&[(CDS, "c", "1")]);
    assert_eq!(pair.settle(), ["Cluster 2: c@2=1"], "it goes on");
}

#[test]
fn b2_4_a_first_request_that_only_unsubscribes_is_no_wildcard() {
    let mut pair = Pair::with(&[(CDS, "a", "1")]);
    assert_eq!(pair.exchange(CDS, &[], &["b"]), nothing());
    assert_eq!(pair.session.subscribed(CDS), Vec::<&str>::new());
    assert_eq!(pair.exchange(CDS, &["a"], &[]), ["Cluster 1: a@1=1"]);
}

#[test]
fn what_was_rejected_may_be_sent_again_at_once() {
    let behavior = Behavior { after_nack: AfterNack::SameResources, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "1"), (CDS, "b", "1")]);
    pair.change(CDS, &["a", "b"], &[]);
    let sent = pair.responses();
    assert_eq!(sent, ["Cluster 1: a@1=1 b@1=1"]);
    for _ in 0..3 {
        pair.answer(CDS, Some("bad"));
        assert_eq!(pair.responses(), sent);
    }
    pair.answer(CDS, None);
    assert_eq!(pair.responses(), nothing());
}

#[test]
fn all_types_may_be_silent_after_a_nack() {
    let behavior = Behavior { after_nack: AfterNack::Silence, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "1"), (EDS, "a", "1")]);
    pair.change(CDS, &["a"], &[]);
    pair.change(EDS, &["a"], &[]);
    pair.responses();
    pair.set(&[(EDS, "a", "2")]);
    assert_eq!(pair.responses(), nothing(), "it waits for the answer");
    pair.answer(EDS, None);
    pair.answer(CDS, Some("bad"));
    assert_eq!(pair.responses(), nothing());
    pair.change(CDS, &["b"], &[]);
    assert_eq!(pair.settle(), ["Cluster 1: -b", "ClusterLoadAssignment 2: a@2=2"]);
}

#[test]
fn a_stream_may_end_for_a_type() {
    let behavior = Behavior { unknown_types: BTreeSet::from([EDS.to_owned()]), ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "1"), (EDS, "a", "1")]);
    assert_eq!(pair.exchange(CDS, &["a"], &[]), ["Cluster 1: a@1=1"]);
    let handled = pair.session.handle_request(request(EDS, &["a"], &[]));
    assert_eq!(handled, Err(Misuse::UnknownType));
}

#[test]
fn versions_of_resources_may_be_empty() {
    let behavior = Behavior { empty_resource_versions: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "1")]);
    assert_eq!(pair.exchange(CDS, &["a"], &[]), ["Cluster 1: a@=1"]);
    assert_eq!(pair.reconnect(CDS, &["a"], &[]), ["Cluster 1: a@=1"]);
}

#[test]
fn resources_may_come_that_were_not_subscribed_to() {
    let behavior = Behavior { unsolicited_resources: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "1"), (CDS, "b", "1")]);
    assert_eq!(pair.exchange(CDS, &["b"], &[]), ["Cluster 1: b@1=1 a@1=1"]);
    assert_eq!(pair.settle(), nothing());
}

#[test]
fn what_was_accepted_may_be_sent_once_more() {
    let behavior = Behavior { send_twice: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "1")]);
    pair.change(CDS, &["a"], &[]);
    assert_eq!(pair.settle(), ["Cluster 1: a@1=1", "Cluster 1: a@1=1"]);
}

#[test]
fn what_was_rejected_may_be_sent_again_by_a_timer() {
    let behavior = Behavior { after_nack: AfterNack::SameResourcesLater, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "1"), (CDS, "b", "1")]);
    pair.change(CDS, &["a"], &[]);
    let sent = pair.responses();
    let now = Instant::now();
    pair.answer(CDS, Some("bad"));
    assert_eq!(pair.session.handle_time(now, &pair.store), Some(now + Duration::from_secs(5)));
    assert_eq!(pair.exchange(CDS, &["b"], &[]), ["Cluster 1: b@1=1"], "other resources do not wait");
    assert_eq!(pair.session.handle_time(now + Duration::from_secs(5), &pair.store), None);
    assert_eq!(pair.responses(), sent);
}

#[test]
fn removals_may_come_of_what_was_not_subscribed_to() {
    let behavior = Behavior { unsolicited_removals: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "1"), (CDS, "b", "1")]);
    pair.exchange(CDS, &["a"], &[]);
    pair.remove(CDS, "b");
    assert_eq!(pair.settle(), ["Cluster 2: -b"]);
}

#[test]
fn a_wildcard_may_last_as_long_as_the_stream() {
    let behavior = Behavior { keeps_wildcard: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "1")]);
    pair.exchange(CDS, &["*"], &[]);
    assert_eq!(pair.exchange(CDS, &[], &["*"]), nothing());
    pair.set(&[(CDS, "b", "1")]);
    assert_eq!(pair.settle(), ["Cluster 2: b@2=1"]);
}

#[test]
fn nonces_may_be_the_same() {
    let behavior = Behavior { constant_nonces: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "1"), (EDS, "a", "1")]);
    pair.change(CDS, &["a"], &[]);
    pair.change(EDS, &["a"], &[]);
    let nonces: Vec<_> = std::iter::from_fn(|| pair.poll()).map(|response| response.nonce).collect();
    assert_eq!(nonces, ["constant", "constant"]);
    pair.answer(CDS, None);
    assert!(!pair.session.is_awaiting(CDS) && pair.session.is_awaiting(EDS));
}
