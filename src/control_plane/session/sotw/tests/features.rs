//! The features that a client announces.
#![allow(clippy::disallowed_methods, reason = "the clock that the tests turn begins some time")]

use std::time::Duration;

use super::*;
use crate::control_plane::session::Settings;

fn with_features(client_features: &[&str]) -> Pair {
    let client_features = client_features.iter().map(|&name| name.to_owned()).collect();
    let mut pair = Pair { node: Some(Node { client_features, ..Node::default() }), ..Pair::default() };
    let resource = |name: &'static str| AnyResource::new(CDS, name, name);
    pair.store.update(|tx| {
        tx.set(resource("plain")).set(resource("timed").with_ttl(Duration::from_secs(30)));
        tx.set(resource("inner").with_name("renamed"));
    });
    pair
}

/// The resources of a response, `NAME` if they are not wrapped, or `[NAME TTL]`, and the names of its errors.
fn shape(response: &DiscoveryResponse) -> String {
    let resources = response.resources.iter().map(|any| {
        if any.type_url != type_url::WRAPPER {
            return String::from_utf8_lossy(&any.value).into_owned();
        }
        let Resource { name, ttl, .. } = Resource::decode(any.value.clone()).unwrap();
        format!("[{name}{}]", ttl.map(|ttl| format!(" {}", ttl.seconds)).unwrap_or_default())
    });
    let errors = response.resource_errors.iter().map(|error| {
        let name = error.resource_name.as_ref().unwrap().name.as_str();
        assert!(error.error_detail.as_ref().unwrap().message.contains("xds.config.resource-in-sotw"));
        format!("!{name}")
    });
    resources.chain(errors).collect::<Vec<_>>().join(" ")
}

#[test]
fn cp2_resources_are_wrapped_for_clients_that_announce_it_in_either_spelling() {
    let ttl = "xds.config.supports-resource-ttl";
    for wrapper in ["xds.config.resource-in-sotw", "xds.config.supports-resource-in-sotw"] {
        for (features, expected) in [
            (&[wrapper, ttl][..], "plain [renamed] [timed 30]"),
            (&[wrapper], "plain [renamed] [timed]"),
            (&[ttl], "plain timed !renamed"),
            (&[], "plain timed !renamed"),
        ] {
            let mut pair = with_features(features);
            pair.request(CDS, &[]);
            assert_eq!(shape(&pair.poll().unwrap()), expected, "{features:?}");
        }
    }
}

#[test]
fn cp2_a_server_that_wraps_everything_does_so_for_clients_that_announce_it_alone() {
    for (features, expected) in [(&["xds.config.resource-in-sotw"][..], "[a]"), (&[], "a")] {
        let mut pair = with_features(features);
        pair.set(&[(EDS, "a", "a")]);
        pair.session = Session::new(Settings { wrap_resources: true, ..Settings::default() });
        pair.request(EDS, &["a"]);
        assert_eq!(shape(&pair.poll().unwrap()), expected);
    }
}

#[test]
fn cp2_a_client_that_announces_no_times_to_live_gets_no_heartbeats() {
    for features in [&["xds.config.resource-in-sotw"][..], &["xds.config.supports-resource-ttl"], &[]] {
        let mut pair = with_features(features);
        pair.request(CDS, &["timed"]);
        let start = Instant::now();
        assert_eq!(pair.session.handle_time(start, &pair.store), None);
        assert_eq!(pair.responses().len(), 1);
        pair.request(CDS, &["timed"]);
        assert_eq!(pair.session.handle_time(start + Duration::from_secs(10), &pair.store), None);
        assert_eq!(pair.responses().len(), 0, "{features:?}");
    }
}

#[test]
fn cp2_the_node_of_the_first_request_decides_for_all_types_of_the_stream() {
    let mut pair = with_features(&["xds.config.resource-in-sotw", "xds.config.supports-resource-ttl"]);
    pair.exchange(EDS, &["x"]);
    pair.node = None;
    pair.request(CDS, &["timed"]);
    assert_eq!(shape(&pair.poll().unwrap()), "[timed 30]");
}
