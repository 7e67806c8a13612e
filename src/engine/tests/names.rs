//! Names without a server, and names in several spellings.

use std::time::Duration;

use super::rig::{Full, Part, Rig, any, delta_response, response};
use crate::{
    config::{ApiType, AuthorityBuilder, Bootstrap, Server},
    engine::{SelectedName, Selection, Settings},
    name::ResourceName,
    pb::envoy::service::discovery::v3::{self as discovery, DiscoveryResponse, ResourceError},
    protocol::DisconnectKind,
};

fn federated() -> Rig {
    let bootstrap = Bootstrap::builder()
        .server(Server::new("127.0.0.1:1").insecure())
        .authority("here", AuthorityBuilder::default())
        .authority("there", AuthorityBuilder::default().server(Server::new("127.0.0.1:2").insecure()))
        .build()
        .unwrap();
    Rig::of(bootstrap, Settings::default())
}

#[test]
fn names_that_are_wrong_are_refused_at_once() {
    let mut rig = federated();
    for (name, code) in [
        ("", "INVALID_ARGUMENT"),
        ("xdstp://here", "INVALID_ARGUMENT"),
        ("xdstp://here/test.Other/a", "INVALID_ARGUMENT"),
        ("xdstp://here/test.Full/a?x=1&x=2", "INVALID_ARGUMENT"),
        ("xdstp://nowhere/test.Full/a", "FAILED_PRECONDITION"),
    ] {
        let (watch_id, outputs) = rig.watch::<Full>(name);
        assert_eq!(outputs.len(), 1, "{name}: {outputs:?}");
        assert!(outputs[0].ends_with(&format!("absent {code}")), "{name}: {outputs:?}");
        assert!(rig.unwatch(watch_id).is_empty());
    }
    assert_eq!(rig.engine.resources(), 0);
}

#[test]
fn the_wildcard_is_not_the_name_of_a_single_resource() {
    for mut rig in [Rig::new(), Rig::delta()] {
        let outputs = rig.watch_names::<Full>(Selection::One("*".into())).1;
        assert_eq!(outputs, ["#1 absent INVALID_ARGUMENT"]);
        let wildcard = ResourceName::parse("*").unwrap();
        let outputs = rig.watch_names::<Full>(Selection::One(SelectedName::Name(Box::new(wildcard)))).1;
        assert_eq!(outputs, ["#2 absent INVALID_ARGUMENT"]);
        assert_eq!(rig.engine.resources(), 0);
    }
    let bootstrap = Bootstrap::builder().server(Server::new("127.0.0.1:1").insecure()).build().unwrap();
    let mut rig = Rig::of(bootstrap, Settings::default());
    let outputs = rig.watch::<Full>("xdstp:///test.Full/x#alt=xdstp:///test.Full/%2A").1;
    assert!(!outputs.iter().any(|outputs| outputs.contains("send")), "{outputs:?}");
}

#[test]
fn the_end_of_a_watch_of_the_wildcard_as_a_name_ends_no_watch_of_all() {
    let mut rig = Rig::delta();
    rig.watch::<Full>("*");
    rig.connect(1);
    rig.sent(1);
    let (watch_id, outputs) = rig.watch_names::<Full>(Selection::One("*".into()));
    assert_eq!(outputs, ["#2 absent INVALID_ARGUMENT"]);
    rig.unwatch(watch_id);
    rig.pass(Duration::from_millis(20));
    assert!(rig.sent(1).is_empty(), "nothing is unsubscribed");
    let outputs = rig.receive_raw(1, delta_response::<Full>("n1", &[("a", "1", Some("x"))], &[]));
    assert_eq!(outputs.last().unwrap(), "#1 {a: present 1 x} complete");
}

#[test]
fn a46_a_resource_by_the_name_of_the_wildcard_is_rejected_alone() {
    let mut rig = Rig::new();
    rig.watch::<Full>("*");
    rig.connect(1);
    rig.sent(1);
    let sent = |version: &str, names: &[&str]| {
        response::<Full>(version, names.iter().map(|name| any::<Full>(name, "x")).collect())
    };
    let outputs = rig.receive(1, &sent("1", &["a", "*", "b"]));
    assert_eq!(outputs.last().unwrap(), "#1 {a: present 1 x, b: present 1 x} complete");
    assert!(outputs[1].contains("INVALID_ARGUMENT: resources[1].name: `*` is the wildcard"), "{outputs:?}");
    rig.sent(1);
    let outputs = rig.receive(1, &sent("2", &["a", "*"]));
    assert_eq!(outputs.last().unwrap(), "#1 {a: present 1 x} complete", "the absence of others counts");

    let mut rig = Rig::delta();
    rig.watch::<Full>("*");
    rig.connect(1);
    rig.sent(1);
    let both = [("a", "1", Some("x")), ("*", "1", Some("x"))];
    let outputs = rig.receive_raw(1, delta_response::<Full>("n1", &both, &[]));
    assert_eq!(outputs.last().unwrap(), "#1 {a: present 1 x} complete");
    rig.sent(1);
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.connect(2)[1], "send Full {a=1} node", "it is not among the versions that are held");
}

#[test]
fn a47_6_authorities_with_equal_servers_share_a_stream() {
    let mut rig = federated();
    assert_eq!(rig.watch::<Full>("old").1, ["connect 0.1"]);
    assert!(rig.watch::<Full>("xdstp://here/test.Full/a").1.is_empty());
    assert_eq!(rig.watch::<Full>("xdstp://there/test.Full/a").1, ["connect 1.1"]);
    assert_eq!(rig.connect(1)[1], "send Full [old,xdstp://here/test.Full/a] / node");
}

#[test]
fn one_servers_failure_is_seen_by_its_watches_alone() {
    let mut rig = federated();
    rig.watch::<Full>("xdstp://here/test.Full/a");
    rig.watch::<Full>("xdstp://there/test.Full/a");
    assert_eq!(rig.disconnect(1, DisconnectKind::Unreachable), ["#1 absent UNAVAILABLE"]);
}

#[test]
fn x5_x6_names_are_sent_and_matched_in_canonical_form() {
    let mut rig = federated();
    rig.watch::<Full>("xdstp://here/test.Full/a?zz=1&aa=2");
    assert!(rig.watch::<Full>("xdstp://here/test.Full/a?aa=2&zz=1").1.is_empty(), "the same resource");
    assert_eq!(rig.connect(1)[1], "send Full [xdstp://here/test.Full/a?aa=2&zz=1] / node");
    rig.sent(1);
    let outputs =
        rig.receive(1, &response::<Full>("1", vec![any::<Full>("xdstp://here/test.Full/a?zz=1&aa=2", "x")]));
    assert_eq!(outputs[..2], ["#1 present 1 x", "#2 present 1 x"]);
    rig.sent(1);
    let outputs =
        rig.receive(1, &response::<Full>("2", vec![any::<Full>("xdstp://here/test.Full/a?aa=2&zz=1", "x")]));
    assert_eq!(outputs[0], "#1 present 2 x", "the name is part of the bytes, so they differ");
}

#[test]
fn x5_an_error_without_a_code_is_that_of_a_name_in_another_spelling() {
    let mut rig = federated();
    rig.watch::<Full>("xdstp://here/test.Full/a?zz=1&aa=2");
    rig.connect(1);
    rig.sent(1);
    let name = "xdstp://here/test.Full/a?zz=1&aa=2".to_owned();
    let error = ResourceError {
        resource_name: Some(discovery::ResourceName { name, ..discovery::ResourceName::default() }),
        error_detail: None,
    };
    let denied = DiscoveryResponse { resource_errors: vec![error], ..response::<Full>("1", vec![]) };
    assert_eq!(rig.receive(1, &denied)[0], "#1 absent INVALID_ARGUMENT");
}

#[test]
fn x2_a_name_is_requested_as_it_was_written() {
    let mut rig = federated();
    let (first, _) = rig.watch::<Full>("xdstp://here/test.Full/shop:8000?b=%3A&a=1");
    assert!(
        rig.watch::<Full>("xdstp://here/test.Full/shop%3A8000?a=1&b=:").1.is_empty(),
        "the same resource"
    );
    rig.watch::<Full>("xdstp://here/test.Full/cart%3a80");
    let names = "xdstp://here/test.Full/cart%3a80,xdstp://here/test.Full/shop:8000?a=1&b=%3A";
    assert_eq!(rig.connect(1)[1], format!("send Full [{names}] / node"));
    rig.sent(1);
    let sent = |name: &str| any::<Full>(&format!("xdstp://here/test.Full/{name}"), "x");
    let outputs = rig.receive(1, &response::<Full>("1", vec![sent("shop%3a8000?b=:&a=1"), sent("cart:80")]));
    assert_eq!(outputs[..3], ["#1 present 1 x", "#2 present 1 x", "#3 present 1 x"], "compared decoded");
    rig.sent(1);
    rig.unwatch(first);
    rig.pass(Duration::from_millis(20));
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    assert_eq!(
        rig.connect(2)[1],
        format!("send Full [{names}] 1/ node"),
        "the spelling of the first watch stays"
    );
}

#[test]
fn x2_incremental_requests_have_names_as_they_were_written() {
    let bootstrap = Bootstrap::builder()
        .server(Server::new("127.0.0.1:1").insecure().api_type(ApiType::AggregatedDeltaGrpc))
        .authority("here", AuthorityBuilder::default());
    let mut rig = Rig::of(bootstrap.build().unwrap(), Settings::default());
    let (watch_id, _) = rig.watch::<Full>("xdstp://here/test.Full/a%3A1");
    rig.watch_all::<Full>("xdstp://here/test.Full/*");
    let names = "+xdstp://here/test.Full/*,xdstp://here/test.Full/a%3A1";
    let outputs = rig.connect(1);
    assert!(outputs[1].contains("xdstp://here/test.Full/a%3A1"), "{outputs:?} {names}");
    rig.sent(1);
    let (named, member) = ("xdstp://here/test.Full/a:1", "xdstp://here/test.Full/b%3a1");
    let sent = [(named, "1", Some("x")), (member, "1", Some("y"))];
    rig.receive_raw(1, delta_response::<Full>("n1", &sent, &[]));
    rig.sent(1);
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    let outputs = rig.connect(2);
    let versions = "{xdstp://here/test.Full/a%3A1=1,xdstp://here/test.Full/b%3a1=1}";
    assert!(outputs[1].contains(versions), "versions have the names that the server knows: {outputs:?}");
    rig.sent(2);
    rig.unwatch(watch_id);
    let outputs = rig.pass(Duration::from_millis(20));
    assert!(outputs.iter().any(|output| output.contains("-xdstp://here/test.Full/a%3A1")), "{outputs:?}");
}

#[test]
fn x22_a_name_is_of_the_type_that_is_watched() {
    let mut rig = federated();
    let outputs = rig.watch::<Full>("xdstp://here/test.Part/a").1;
    assert_eq!(outputs, ["#1 absent INVALID_ARGUMENT"]);
    let (_, outputs) = rig.watch::<Part>("xdstp://here/test.Part/a");
    assert_eq!(outputs, ["connect 0.1"]);
}

#[test]
fn x23_names_that_mean_the_same_share_what_is_held() {
    let mut rig = federated();
    rig.watch::<Full>("xdstp://here/test.Full/a%2Fb?x=1&y=2");
    rig.connect(1);
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("xdstp://here/test.Full/a/b?y=2&x=1", "x")]));
    let (_, outputs) = rig.watch::<Full>("xdstp://here/test.Full/a/b?y=%32&x=1");
    assert_eq!(outputs, ["#2 present 1 x"], "nothing is sent for it");
    assert_eq!(rig.engine.resources(), 1);
}

#[test]
fn a_type_without_a_service_of_its_own_is_refused_where_each_has_one() {
    let server = Server::new("127.0.0.1:1").insecure().api_type(ApiType::DeltaGrpc);
    let mut rig = Rig::with(server);
    assert_eq!(rig.watch::<Full>("a").1, ["#1 absent UNIMPLEMENTED"]);
    assert_eq!(rig.watch::<Full>("*").1.len(), 1);
}
