//! The limits of a stream.

use super::*;
use crate::control_plane::session::{Limits, Settings};

fn limited(limits: Limits) -> Session {
    Session::new(Settings { limits, ..Settings::default() })
}

fn names(type_url: &str, names: &[&str]) -> DiscoveryRequest {
    let resource_names = names.iter().map(|&name| name.to_owned()).collect();
    DiscoveryRequest { type_url: type_url.into(), resource_names, ..DiscoveryRequest::default() }
}

#[test]
fn cp4_the_names_of_a_stream_have_a_limit_for_all_types_together() {
    let mut session = limited(Limits { max_names: 3, ..Limits::default() });
    session.handle_request(names(CDS, &["a", "b"])).unwrap();
    session.handle_request(names(EDS, &["a"])).unwrap();
    let refused = session.handle_request(names(EDS, &["a", "b"])).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "resource names: 4 on the stream, above the server's limit of 3 (max_names)"
    );
    assert_eq!(session.subscribed(EDS), ["a"], "the session is unchanged");
    session.handle_request(names(CDS, &["a"])).unwrap();
    session.handle_request(names(EDS, &["a", "b"])).unwrap();
}

#[test]
fn cp5_a_name_and_a_type_have_a_longest_length() {
    let limits = Limits { max_name_length: 40, ..Limits::default() };
    let (longest, too_long) = ("n".repeat(40), "n".repeat(41));
    for (type_url, name) in [("T", longest.as_str()), (&longest, "a")] {
        limited(limits.clone()).handle_request(names(type_url, &[name])).unwrap();
    }
    for (type_url, name) in [("T", too_long.as_str()), (&too_long, "a")] {
        let refused = limited(limits.clone()).handle_request(names(type_url, &[name])).unwrap_err();
        assert!(refused.to_string().contains("41 bytes is above the server's limit of 40 (max_name_length)"));
    }
}

#[test]
fn cp6_the_types_of_a_stream_have_a_limit() {
    let mut session = limited(Limits::default());
    for number in 0..100 {
        session.handle_request(names(&format!("T{number}"), &["a"])).unwrap();
    }
    let refused = session.handle_request(names("T100", &["a"])).unwrap_err();
    assert!(refused.to_string().contains("limit of 100 (max_types)"), "{refused}");
    session.handle_request(names("T99", &["b"])).unwrap();
}

#[test]
fn cp7_the_node_has_a_largest_size() {
    let of_size = |id: usize| DiscoveryRequest {
        node: Some(Node { id: "i".repeat(id), ..Node::default() }),
        ..names(CDS, &["a"])
    };
    let limits = Limits { max_node_size: 1_000, ..Limits::default() };
    limited(limits.clone()).handle_request(of_size(997)).unwrap();
    let refused = limited(limits).handle_request(of_size(998)).unwrap_err();
    assert_eq!(refused.to_string(), "node: 1001 bytes, above the server's limit of 1000 (max_node_size)");
}
