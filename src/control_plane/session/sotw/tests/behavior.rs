//! The freedoms of servers.

#![allow(clippy::disallowed_methods, reason = "the clock that the tests turn begins some time")]

use std::{collections::BTreeSet, time::Duration};

use prost::Message;

use super::*;
use crate::{
    control_plane::{
        Versions,
        session::{AfterNack, Behavior},
    },
    pb::envoy::service::discovery::v3::Resource as Wrapper,
};

fn pair(behavior: Behavior, resources: &[(&str, &str, &str)]) -> Pair {
    let settings = Settings { behavior, ..Settings::default() };
    Pair { session: Session::new(settings), ..Pair::with(resources) }
}

impl Pair {
    /// Opens another stream, with the versions of the last one.
    fn reconnect(&mut self) {
        let settings = self.session.settings.clone();
        self.session = Session::resume(settings, &self.session);
        self.nonces.clear();
    }
}

#[test]
fn names_in_a_nack_may_be_ignored() {
    let behavior = Behavior { ignore_names_in_nack: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(EDS, "a", "a1"), (EDS, "b", "b1")]);
    pair.exchange(EDS, &["a"]);
    pair.reject(EDS, &["a", "b"], "bad");
    assert_eq!(pair.session.subscribed(EDS), ["a"]);
    assert_eq!(pair.exchange(EDS, &["a", "b"]), ["ClusterLoadAssignment 1: b1"]);
}

#[test]
fn the_star_may_be_a_name_like_others() {
    let behavior = Behavior { legacy_wildcard_only: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "a1"), (CDS, "b", "b1")]);
    assert_eq!(pair.exchange(CDS, &["*", "a"]), ["Cluster 1: a1"]);
    pair.reconnect();
    assert_eq!(pair.exchange(CDS, &[]), ["Cluster 1: a1 b1"]);
}

#[test]
fn b0_5_a_wildcard_at_a_known_version_may_be_skipped() {
    let behavior = Behavior { skip_known_versions: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "a1"), (CDS, "b", "b1")]);
    assert_eq!(pair.exchange(CDS, &[]), ["Cluster 1: a1 b1"]);
    assert_eq!(pair.exchange(CDS, &[]), Vec::<String>::new());
    pair.reconnect();
    assert_eq!(pair.exchange(CDS, &[]), Vec::<String>::new());
    pair.set(&[(CDS, "a", "a2")]);
    assert_eq!(pair.responses(), ["Cluster 2: a2 b1"]);
    pair.exchange(CDS, &[]);
    pair.reconnect();
    pair.set(&[(CDS, "a", "a3")]);
    assert_eq!(pair.exchange(CDS, &[]), ["Cluster 3: a3 b1"]);
}

#[test]
fn b0_5_names_are_skipped_only_if_all_of_them_were_accepted_before() {
    let behavior = Behavior { skip_known_versions: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(EDS, "a", "a1"), (EDS, "b", "b1")]);
    pair.exchange(EDS, &["a"]);
    pair.exchange(EDS, &["a"]);
    pair.reconnect();
    assert_eq!(pair.exchange(EDS, &["a", "b"]), ["ClusterLoadAssignment 1: a1 b1"]);
    pair.reconnect();
    assert_eq!(pair.exchange(EDS, &["a", "b"]), ["ClusterLoadAssignment 1: a1 b1"], "no answer came");
    pair.exchange(EDS, &["a", "b"]);
    pair.reconnect();
    assert_eq!(pair.exchange(EDS, &["a", "b"]), Vec::<String>::new());
    pair.reconnect();
    assert_eq!(pair.exchange(EDS, &["b"]), Vec::<String>::new());
    pair.reconnect();
    assert_eq!(pair.exchange(EDS, &["a", "b"]), ["ClusterLoadAssignment 1: a1 b1"], "a was unsubscribed");
    pair.reject(EDS, &["a", "b"], "bad");
    pair.reconnect();
    assert_eq!(pair.exchange(EDS, &["a", "b"]), ["ClusterLoadAssignment 1: a1 b1"]);
}

#[test]
fn what_was_rejected_may_be_sent_again_at_once() {
    for type_url in [CDS, EDS] {
        let behavior = Behavior { after_nack: AfterNack::SameResources, ..Behavior::default() };
        let mut pair = pair(behavior, &[(type_url, "a", "a1"), (type_url, "b", "b1")]);
        let sent = pair.exchange(type_url, &["a", "b"]);
        assert!(sent[0].ends_with("1: a1 b1"), "{sent:?}");
        for _ in 0..3 {
            pair.reject(type_url, &["a", "b"], "bad");
            assert_eq!(pair.responses(), sent);
        }
        assert_eq!(pair.exchange(type_url, &["a", "b"]), Vec::<String>::new());
    }
}

#[test]
fn all_types_may_be_silent_after_a_nack() {
    let behavior = Behavior { after_nack: AfterNack::Silence, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "a1"), (EDS, "a", "a1")]);
    pair.request(EDS, &["a"]);
    pair.exchange(CDS, &["a"]);
    pair.request(EDS, &["a"]);
    pair.reject(CDS, &["a", "b"], "bad");
    assert_eq!(pair.responses(), Vec::<String>::new());
    pair.set(&[(EDS, "a", "a2")]);
    assert_eq!(pair.responses(), ["Cluster 1: a1", "ClusterLoadAssignment 2: a2"]);
    pair.reject(CDS, &["a"], "bad");
    pair.set(&[(CDS, "a", "a2")]);
    assert_eq!(pair.responses(), ["Cluster 2: a2"]);
}

#[test]
fn the_order_of_resources_may_change_from_response_to_response() {
    let behavior = Behavior { shuffle_resources: Some(1), ..Behavior::default() };
    let mut pair = pair(behavior, &[]);
    let mut orders = BTreeSet::new();
    for round in 0..20 {
        pair.set(&[(CDS, "a", "a"), (CDS, "b", "b"), (CDS, "c", &round.to_string())]);
        let [response] = &pair.exchange(CDS, &[])[..] else { panic!("one response") };
        let texts = response.split_once(": ").unwrap().1.split(' ');
        orders.insert(texts.map(|text| if text < "a" { "c" } else { text }).collect::<String>());
    }
    assert!(orders.len() > 3, "{orders:?}");
}

#[test]
fn a_stream_may_end_for_a_type() {
    let behavior = Behavior { unknown_types: BTreeSet::from([EDS.to_owned()]), ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "a1"), (EDS, "a", "a1")]);
    assert_eq!(pair.exchange(CDS, &["a"]), ["Cluster 1: a1"]);
    let request = DiscoveryRequest { type_url: EDS.into(), ..DiscoveryRequest::default() };
    assert_eq!(pair.session.handle_request(request), Err(Misuse::UnknownType));
}

#[test]
fn names_may_be_answered_only_with_the_next_version() {
    let behavior = Behavior { new_names_with_next_version: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(EDS, "a", "a1"), (EDS, "b", "b1")]);
    assert_eq!(pair.exchange(EDS, &["a"]), ["ClusterLoadAssignment 1: a1"]);
    assert_eq!(pair.exchange(EDS, &["a", "b"]), Vec::<String>::new());
    pair.set(&[(EDS, "c", "c1")]);
    assert_eq!(pair.responses(), ["ClusterLoadAssignment 2: b1"]);
}

#[test]
fn resources_may_come_that_were_not_subscribed_to() {
    let behavior = Behavior { unsolicited_resources: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(EDS, "a", "a1"), (EDS, "b", "b1")]);
    assert_eq!(pair.exchange(EDS, &["b"]), ["ClusterLoadAssignment 1: b1 a1"]);
}

#[test]
fn what_was_accepted_may_be_sent_once_more() {
    let behavior = Behavior { send_twice: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(EDS, "a", "a1")]);
    assert_eq!(pair.exchange(EDS, &["a"]), ["ClusterLoadAssignment 1: a1"]);
    assert_eq!(pair.exchange(EDS, &["a"]), ["ClusterLoadAssignment 1: a1"]);
    assert_eq!(pair.exchange(EDS, &["a"]), Vec::<String>::new());
}

#[test]
fn requests_may_be_answered_only_if_they_name_all_resources() {
    let behavior = Behavior { all_names_only: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(EDS, "a", "a1"), (EDS, "b", "b1")]);
    assert_eq!(pair.exchange(EDS, &["a"]), Vec::<String>::new());
    assert_eq!(pair.exchange(EDS, &["a", "b"]), ["ClusterLoadAssignment 1: a1 b1"]);
}

#[test]
fn what_was_rejected_may_be_sent_again_by_a_timer() {
    let behavior = Behavior { after_nack: AfterNack::SameResourcesLater, ..Behavior::default() };
    let mut pair = pair(behavior, &[(EDS, "a", "a1")]);
    let sent = pair.exchange(EDS, &["a"]);
    let start = Instant::now();
    for round in 1..4 {
        pair.reject(EDS, &["a"], "bad");
        let now = start + Duration::from_secs(10) * round;
        assert_eq!(pair.session.handle_time(now, &pair.store), Some(now + Duration::from_secs(5)));
        assert_eq!(pair.responses(), Vec::<String>::new());
        assert_eq!(pair.session.handle_time(now + Duration::from_secs(5), &pair.store), None);
        assert_eq!(pair.responses(), sent);
    }
    assert_eq!(pair.exchange(EDS, &["a"]), Vec::<String>::new());
    assert_eq!(pair.session.handle_time(start + Duration::from_secs(60), &pair.store), None);
}

#[test]
fn an_empty_list_may_be_the_wildcard_after_names() {
    let behavior = Behavior { empty_list_is_wildcard: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "a1"), (CDS, "b", "b1")]);
    assert_eq!(pair.exchange(CDS, &["a"]), ["Cluster 1: a1"]);
    assert_eq!(pair.exchange(CDS, &[]), ["Cluster 1: a1 b1"]);
    assert_eq!(pair.session.subscribed(CDS), ["*"]);
    assert_eq!(pair.exchange(CDS, &["*"]), Vec::<String>::new(), "nothing has changed for the server");
}

#[test]
fn a_wildcard_may_last_as_long_as_the_stream() {
    let behavior = Behavior { keeps_wildcard: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "a1"), (CDS, "b", "b1")]);
    pair.exchange(CDS, &["*", "a"]);
    assert_eq!(pair.exchange(CDS, &["a"]), Vec::<String>::new());
    assert_eq!(pair.session.subscribed(CDS), ["*", "a"]);
    pair.set(&[(CDS, "b", "b2")]);
    assert_eq!(pair.responses(), ["Cluster 2: a1 b2"]);
}

#[test]
fn b0_5_a_version_is_not_taken_for_names_that_were_added_after_it_was_sent() {
    let behavior = Behavior { skip_known_versions: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(EDS, "a", "a1"), (EDS, "b", "b1")]);
    pair.exchange(EDS, &["a"]);
    pair.exchange(EDS, &["a"]);
    pair.reconnect();
    pair.request(EDS, &["a"]);
    pair.request(EDS, &["a", "b"]);
    assert_eq!(pair.responses(), ["ClusterLoadAssignment 1: a1 b1"]);
}

#[test]
fn versions_may_fall_or_be_one_for_all_types() {
    let mut falling = pair(Behavior::default(), &[]);
    falling.store = Store::new().with_versions(Versions::Falling);
    falling.set(&[(CDS, "a", "a1")]);
    assert_eq!(falling.exchange(CDS, &["a"]), [format!("Cluster {}: a1", u64::MAX - 1)]);
    let mut one = pair(Behavior::default(), &[]);
    one.store = Store::new().with_versions(Versions::OneForAll);
    one.set(&[(CDS, "a", "a1"), (EDS, "a", "a1")]);
    assert_eq!(one.exchange(CDS, &["a"]), ["Cluster 2: a1"]);
    one.set(&[(EDS, "a", "a2")]);
    assert_eq!(one.exchange(EDS, &["a"]), ["ClusterLoadAssignment 3: a2"]);
}

#[test]
fn names_that_were_sent_may_be_known_for_as_long_as_the_stream_lasts() {
    let behavior = Behavior { keeps_known_names: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(EDS, "a", "a1"), (EDS, "b", "b1")]);
    assert_eq!(pair.exchange(EDS, &["a", "b"]), ["ClusterLoadAssignment 1: a1 b1"]);
    assert_eq!(pair.exchange(EDS, &["b"]), Vec::<String>::new());
    assert_eq!(pair.exchange(EDS, &["a", "b"]), Vec::<String>::new(), "nothing of it is new");
    pair.exchange(EDS, &["b"]);
    pair.set(&[(EDS, "a", "a2")]);
    assert_eq!(pair.exchange(EDS, &["a", "b"]), ["ClusterLoadAssignment 2: a2 b1"], "the version is another");
    pair.exchange(EDS, &["b"]);
    pair.set(&[(EDS, "a", "a3"), (EDS, "b", "b2")]);
    assert_eq!(pair.responses(), ["ClusterLoadAssignment 3: b2"]);
    assert_eq!(pair.exchange(EDS, &["a", "b"]), Vec::<String>::new(), "the version stands for all names");
    pair.reconnect();
    assert_eq!(pair.exchange(EDS, &["a", "b"]), ["ClusterLoadAssignment 3: a3 b2"]);
}

#[test]
fn a_wildcard_that_is_a_name_may_be_reported_as_unset() {
    let behavior = Behavior { legacy_wildcard_only: true, unset_wildcard: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(CDS, "a", "a1"), (CDS, "b", "b1")]);
    let request = DiscoveryRequest {
        type_url: CDS.into(),
        resource_names: vec!["*".into(), "a".into()],
        ..DiscoveryRequest::default()
    };
    pair.session.handle_request(request).unwrap();
    let response = pair.session.poll_response(&pair.store).unwrap();
    let wrappers = response
        .resources
        .iter()
        .filter(|any| any.type_url.ends_with("/envoy.service.discovery.v3.Resource"));
    let wrappers: Vec<_> = wrappers.map(|any| Wrapper::decode(any.value.clone()).unwrap()).collect();
    assert_eq!(wrappers.len(), 1);
    assert_eq!((wrappers[0].name.as_str(), &wrappers[0].resource), ("*", &None));
}

#[test]
fn another_spelling_may_be_another_name() {
    let name = "xdstp://here/envoy.config.endpoint.v3.ClusterLoadAssignment/a";
    let behavior = Behavior { compares_text: true, ..Behavior::default() };
    let mut pair = pair(behavior, &[(EDS, name, "a1")]);
    assert_eq!(pair.exchange(EDS, &[&name.replace("/a", "/%61")]), Vec::<String>::new());
    assert_eq!(pair.exchange(EDS, &[name]), ["ClusterLoadAssignment 1: a1"]);
}
