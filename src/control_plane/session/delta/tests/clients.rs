//! What a session owes to clients of any kind: features, limits and waits.
#![allow(clippy::disallowed_methods, reason = "the clock that the tests turn begins some time")]

use std::time::Duration;

use super::*;
use crate::{control_plane::session::Limits, pb::envoy::config::core::v3::Node};

#[test]
fn cp2_times_to_live_are_sent_to_clients_that_announce_them_alone() {
    for (features, expected) in [(&["xds.config.supports-resource-ttl"][..], "/30"), (&[], "")] {
        let mut pair = Pair::default();
        let client_features = features.iter().map(|&name| name.to_owned()).collect();
        let node = Some(Node { client_features, ..Node::default() });
        pair.store.update(|tx| {
            tx.set(AnyResource::new(CDS, "a", "1").with_ttl(Duration::from_secs(30)));
        });
        let first = DeltaDiscoveryRequest { node, ..request(CDS, &["a"], &[]) };
        pair.handle(first);
        let start = Instant::now();
        pair.session.handle_time(start, &pair.store);
        assert_eq!(pair.settle(), [format!("Cluster 1: a@1=1{expected}")]);
        let next = pair.session.handle_time(start + Duration::from_secs(10), &pair.store);
        assert_eq!((pair.settle().len(), next.is_some()), (features.len(), !features.is_empty()));
    }
}

#[test]
fn cp4_the_names_of_a_stream_have_a_limit_and_those_that_are_subscribed_count_once() {
    let limits = Limits { max_names: 3, ..Limits::default() };
    let mut pair =
        Pair { session: DeltaSession::new(Settings { limits, ..Settings::default() }), ..Pair::default() };
    pair.change(CDS, &["a", "b"], &[]);
    pair.change(EDS, &["a"], &[]);
    pair.change(CDS, &["a", "b"], &[]);
    let refused = pair.session.handle_request(request(EDS, &["b"], &[])).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "resource names: 4 on the stream, above the server's limit of 3 (max_names)"
    );
    pair.change(CDS, &[], &["b"]);
    pair.change(EDS, &["b"], &[]);
}

#[test]
fn cp4_initial_versions_have_a_limit_of_their_own() {
    let limits = Limits { max_names: 1, max_initial_versions: 2, ..Limits::default() };
    let with = |count: usize| DeltaDiscoveryRequest {
        initial_resource_versions: (0..count).map(|name| (name.to_string(), "1".to_owned())).collect(),
        ..request(CDS, &[], &[])
    };
    let session = || DeltaSession::new(Settings { limits: limits.clone(), ..Settings::default() });
    session().handle_request(with(2)).unwrap();
    let refused = session().handle_request(with(3)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "initial_resource_versions: 3, above the server's limit of 2 (max_initial_versions)"
    );
}

#[test]
fn cp1_names_wait_for_a_wildcard_no_longer_than_a_third_of_the_clients_timer() {
    let mut pair = Pair { store: Store::new().with_on_demand(true), ..Pair::default() };
    let start = Instant::now();
    pair.set(&[(CDS, "a", "a1")]);
    pair.change(CDS, &["*", "a", "unknown"], &[]);
    let end = pair.session.handle_time(start, &pair.store);
    assert_eq!((pair.responses(), end), (nothing(), Some(start + Duration::from_secs(5))));
    pair.session.handle_time(start + Duration::from_secs(5), &pair.store);
    assert_eq!(pair.settle(), ["Cluster 1: a@1=a1"]);
    pair.store.update(|tx| {
        tx.set(AnyResource::new(CDS, "b", "b1")).set_complete(CDS, "*");
    });
    pair.session.handle_time(start + Duration::from_secs(6), &pair.store);
    assert_eq!(pair.settle(), ["Cluster 2: a@1=a1 b@2=b1"], "all of it, when it is complete");
}
