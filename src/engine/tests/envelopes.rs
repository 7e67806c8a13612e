//! How resources come in responses: rules G1 to G10, in both variants of the protocol.

use prost::Message;

use super::rig::{Full, Part, Rig, any, in_delta, response, wrapped};
use crate::{
    config::{AuthorityBuilder, Bootstrap, Server},
    engine::Settings,
    pb::{
        envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource},
        google::protobuf::Any,
    },
};

const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";
const FULL: &str = "type.googleapis.com/test.Full";

/// The outputs of a rig that watches `a` and `b`, for the resources of one response.
fn outputs_of(resources: Vec<Any>) -> Vec<String> {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a", "b"]);
    rig.receive(1, &response::<Full>("1", resources))
}

/// The same in the incremental variant.
fn outputs_of_delta(resources: Vec<Resource>) -> Vec<String> {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a", "b"]);
    let response = DeltaDiscoveryResponse {
        nonce: "n1".into(),
        type_url: FULL.into(),
        resources,
        ..DeltaDiscoveryResponse::default()
    };
    rig.receive_raw(1, response.encode_to_vec())
}

fn boxed(wrapper: &Resource) -> Any {
    Any { type_url: WRAPPER.into(), value: wrapper.encode_to_vec().into() }
}

fn holder(name: &str, resource: Any) -> Resource {
    Resource { name: name.into(), version: "1".into(), resource: Some(resource), ..Resource::default() }
}

fn accepted(watches: &[&str]) -> Vec<String> {
    let rest = ["read", "send Full [a,b] 1/n1"];
    watches.iter().chain(&rest).map(|&outputs| outputs.to_owned()).collect()
}

/// The outputs if the first resource is invalid, and the second is `b`.
fn rejected(reason: &str) -> Vec<String> {
    let nack = format!("send Full [a,b] /n1 INVALID_ARGUMENT: {reason}");
    let a = "#1 absent INVALID_ARGUMENT".to_owned();
    ["#2 present 1 y".to_owned(), a, "read".to_owned(), nack].into()
}

/// The same if the name `a` of the first resource is known.
fn rejected_by_name(reason: &str) -> Vec<String> {
    let mut outputs = rejected(&format!("Full \"a\": {reason}"));
    outputs.swap(0, 1);
    outputs
}

#[test]
fn g1_g2_g3_g4_accepts_resources_wrapped_and_bare() {
    let all = accepted(&["#1 present 1 x", "#2 present 1 y"]);
    assert_eq!(outputs_of(vec![wrapped::<Full>("a", Some("x")), any::<Full>("b", "y")]), all);
    // A wrapper need not repeat the name that is in the resource.
    let nameless = boxed(&holder("", any::<Full>("a", "x")));
    assert_eq!(outputs_of(vec![nameless, any::<Full>("b", "y")]), all);
    let outputs =
        outputs_of_delta(vec![holder("a", any::<Full>("a", "x")), holder("b", any::<Full>("b", "y"))]);
    assert_eq!(outputs, ["#1 present 1 x", "#2 present 1 y", "read", "send Full n1"]);
}

#[test]
fn g1_g4_rejects_a_wrapper_in_a_wrapper() {
    let twice = boxed(&holder("a", wrapped::<Full>("a", Some("x"))));
    let reason = format!("of type {WRAPPER:?} in a response of type {FULL:?}");
    assert_eq!(outputs_of(vec![twice, any::<Full>("b", "y")]), rejected_by_name(&reason));
}

#[test]
fn g2_rejects_a_wrapper_that_is_no_message() {
    let broken = Any { type_url: WRAPPER.into(), value: vec![0x1a, 9].into() };
    let reason = "resources[0]: not a valid message: length over the end of the message at byte 2";
    assert_eq!(outputs_of(vec![broken, any::<Full>("b", "y")]), rejected(reason));
}

#[test]
fn g3_accepts_a_wrapper_with_a_name_and_nothing_in_it_as_a_heartbeat() {
    // Times to live are supported, so an unset resource confirms what is held, and rejects nothing.
    let outputs = outputs_of(vec![wrapped::<Full>("a", None), any::<Full>("b", "y")]);
    assert_eq!(outputs, accepted(&["#2 present 1 y"]));
}

#[test]
fn g3_rejects_a_wrapper_with_neither_a_name_nor_a_resource() {
    assert_eq!(
        outputs_of(vec![wrapped::<Full>("", None), any::<Full>("b", "y")]),
        rejected("resources[0]: name: empty")
    );
}

#[test]
fn g4_rejects_a_resource_of_another_type() {
    let reason = format!("of type \"type.googleapis.com/test.Part\" in a response of type {FULL:?}");
    let outputs = outputs_of(vec![any::<Part>("a", "x"), any::<Full>("b", "y")]);
    assert_eq!(outputs, rejected(&format!("resources[0]: {reason}")));
    let wrapped = boxed(&holder("a", any::<Part>("a", "x")));
    assert_eq!(outputs_of(vec![wrapped, any::<Full>("b", "y")]), rejected_by_name(&reason));
    let outputs =
        outputs_of_delta(vec![holder("a", any::<Part>("a", "x")), holder("b", any::<Full>("b", "y"))]);
    let nack = format!("send Full n1 INVALID_ARGUMENT: Full \"a\": {reason}");
    assert_eq!(outputs, ["#1 absent INVALID_ARGUMENT", "#2 present 1 y", "read", &nack]);
}

#[test]
fn g5_rejects_a_resource_that_is_no_message() {
    let broken = Any { type_url: FULL.into(), value: vec![0x0a, 9].into() };
    let reason = "not a valid message: length over the end of the message at byte 2";
    let nameless = rejected(&format!("resources[0]: {reason}"));
    assert_eq!(outputs_of(vec![broken.clone(), any::<Full>("b", "y")]), nameless);
    // The name in a wrapper determines the watchers to notify.
    let outputs = outputs_of(vec![boxed(&holder("a", broken)), any::<Full>("b", "y")]);
    let reason = "length over the end of the message at byte 2";
    let nack = format!("send Full [a,b] /n1 INVALID_ARGUMENT: Full \"a\": {reason}");
    assert_eq!(outputs, ["#1 absent INVALID_ARGUMENT", "#2 present 1 y", "read", &nack]);
}

#[test]
fn g5_g6_accepts_a_message_with_a_name() {
    assert_eq!(outputs_of(vec![any::<Full>("a", "x")]), accepted(&["#1 present 1 x"]));
}

#[test]
fn g6_rejects_an_empty_name() {
    let reason = "resources[0]: name: empty";
    assert_eq!(outputs_of(vec![any::<Full>("", "x"), any::<Full>("b", "y")]), rejected(reason));
    assert_eq!(outputs_of(vec![wrapped::<Full>("", Some("x")), any::<Full>("b", "y")]), rejected(reason));
}

#[test]
fn g8_accepts_names_that_differ_and_a_name_in_two_responses() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a", "A"]);
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("A", "y")]));
    assert_eq!(outputs, ["#1 present 1 x", "#2 present 1 y", "read", "send Full [A,a] 1/n1"]);
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "x2"), any::<Full>("A", "y")]));
    assert_eq!(outputs, ["#1 present 2 x2", "read", "send Full [A,a] 2/n2"]);
}

#[test]
fn g8_rejects_the_whole_response_for_a_name_that_is_in_it_twice() {
    // Others let the last one win; decided here is that nothing of such a response can be trusted.
    let reason = "INVALID_ARGUMENT: \"a\": the name is in the response twice";
    let outputs = outputs_of(vec![any::<Full>("a", "x"), any::<Full>("b", "y"), any::<Full>("a", "z")]);
    let (a, b) = ("#1 absent INVALID_ARGUMENT", "#2 absent INVALID_ARGUMENT");
    assert_eq!(outputs, [a, b, "read", &format!("send Full [a,b] /n1 {reason}")]);
    let outputs =
        outputs_of_delta(vec![holder("a", any::<Full>("a", "x")), holder("a", any::<Full>("a", "x"))]);
    assert_eq!(outputs, [a, "read", &format!("send Full n1 {reason}")]);
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a", "b"]);
    let both = in_delta(&response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]), &["a"]);
    assert_eq!(rig.receive_raw(1, both), [a, b, "read", &format!("send Full n1 {reason}")]);
}

#[test]
fn g9_accepts_fields_that_are_not_known() {
    // Field 2000 of the resource, of its wrapper and of the response.
    let unknown = [0x82, 0x7d, 2, b'h', b'i'];
    let with_more = |any: Any| Any { value: [&any.value[..], &unknown].concat().into(), ..any };
    let resource = with_more(any::<Full>("a", "x"));
    let wrapper = with_more(boxed(&holder("a", resource)));
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    let response = response::<Full>("1", vec![wrapper]).encode_to_vec();
    let outputs = rig.receive_raw(1, [&response[..], &unknown].concat());
    assert_eq!(outputs, ["#1 present 1 x", "read", "send Full [a] 1/n1"]);
}

fn federated(name: &str) -> Rig {
    let bootstrap = Bootstrap::builder()
        .server(Server::new("127.0.0.1:1").insecure())
        .authority("here", AuthorityBuilder::default())
        .build();
    let mut rig = Rig::of(bootstrap.unwrap(), Settings::default());
    rig.open::<Full>(&[name]);
    rig
}

#[test]
fn g10_accepts_names_in_any_spelling() {
    for spelled in ["xdstp://here/test.Full/a?y=2&x=1", "xdstp://here/test.Full/%61?x=1&y=2"] {
        let mut rig = federated("xdstp://here/test.Full/a?x=1&y=2");
        let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>(spelled, "x")]));
        assert_eq!(outputs[0], "#1 present 1 x", "{spelled}");
    }
}

#[test]
fn g10_ignores_names_that_mean_something_else() {
    for other in ["xdstp://here/test.Full/a?x=1&y=3", "xdstp://here/test.Full/A?x=1&y=2"] {
        let mut rig = federated("xdstp://here/test.Full/a?x=1&y=2");
        let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>(other, "x")]));
        assert_eq!(outputs, ["read", "send Full [xdstp://here/test.Full/a?x=1&y=2] 1/n1"], "{other}");
    }
}

#[test]
fn g10_rejects_names_that_mean_nothing() {
    let name = "xdstp://here/test.Full/a?x=1&y=2";
    for (other, reason) in [
        ("xdstp://here/test.Full/a?x=1&x=1&y=2", "key \"x\" occurs twice"),
        ("xdstp://here", "resource name \"xdstp://here\""),
    ] {
        let mut rig = federated(name);
        let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>(other, "x")]));
        let nack = format!("send Full [{name}] /n1 INVALID_ARGUMENT: resources[0]: name: resource name ");
        assert!(
            outputs.len() == 3 && outputs[2].starts_with(&nack) && outputs[2].contains(reason),
            "{outputs:?}"
        );
    }
}
