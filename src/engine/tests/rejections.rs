//! Rejections that no single resource is the cause of (B0.23), and their rate (B0.24).

use std::time::Duration;

use prost::Message;

use super::rig::{Full, Part, Rig, any, delta_response, response, wrapped};
use crate::{
    pb::{
        envoy::service::discovery::v3::{
            DeltaDiscoveryResponse, DiscoveryResponse, Resource, ResourceError, ResourceName,
        },
        google::rpc::Status,
    },
    protocol::DisconnectKind,
};

const NONE: [&str; 0] = [];

/// Longer than the does-not-exist time.
const LONG: Duration = Duration::from_secs(40);

fn waiting<T: crate::resource::Resource>(names: &[&str]) -> Rig {
    let mut rig = Rig::new();
    rig.open::<T>(names);
    // The other names follow in a request of their own.
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    rig
}

/// A response with a name twice.
fn twice(version: &str, names: &[&str]) -> DiscoveryResponse {
    let resources = names.iter().chain(&names[..1]).map(|name| any::<Full>(name, "x"));
    response::<Full>(version, resources.collect())
}

#[test]
fn b0_23_a_name_twice_is_the_error_of_every_subscribed_name_in_the_response() {
    let mut rig = waiting::<Full>(&["a", "b", "c"]);
    let outputs = rig.receive(1, &twice("1", &["a", "b", "z"]));
    let nack = "send Full [a,b,c] /n1 INVALID_ARGUMENT: \"a\": the name is in the response twice";
    assert_eq!(outputs, ["#1 absent INVALID_ARGUMENT", "#2 absent INVALID_ARGUMENT", "read", nack]);
    rig.sent(1);
    assert_eq!(rig.pass(LONG), ["#3 absent NOT_FOUND"], "only what was in no response");
    let good = response::<Full>("2", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]);
    assert_eq!(rig.receive(1, &good)[..2], ["#1 present 2 x", "#2 present 2 y"]);
}

#[test]
fn b0_23_what_is_held_stays_with_a_warning_when_a_name_comes_twice() {
    let mut rig = waiting::<Full>(&["a", "b"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    rig.sent(1);
    let outputs = rig.receive(1, &twice("2", &["a", "b"]));
    assert_eq!(outputs[..2], ["#1 present 1 x (INVALID_ARGUMENT)", "#2 present 1 y (INVALID_ARGUMENT)"]);
    rig.sent(1);
    let again = response::<Full>("3", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]);
    assert_eq!(rig.receive(1, &again)[..2], ["#1 present 3 x", "#2 present 3 y"]);
}

#[test]
fn b0_23_a_name_twice_in_delta_is_the_error_of_every_subscribed_name_in_the_response() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a"]);
    rig.watch::<Full>("b");
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    let twice = delta_response::<Full>("n1", &[("a", "1", Some("x")), ("b", "1", Some("y"))], &["b"]);
    let outputs = rig.receive_raw(1, twice);
    assert_eq!(outputs[..2], ["#1 absent INVALID_ARGUMENT", "#2 absent INVALID_ARGUMENT"]);
    rig.sent(1);
    assert_eq!(rig.pass(LONG), NONE, "it was no answer that they do not exist");
}

#[test]
fn b0_23_something_without_a_name_is_the_error_of_the_names_that_wait() {
    let unnamed: [fn() -> DiscoveryResponse; 3] = [
        || response::<Part>("1", vec![any::<Full>("a", "x")]),
        || {
            let error = ResourceError {
                resource_name: None,
                error_detail: Some(Status { code: 13, message: "broken".into(), details: vec![] }),
            };
            DiscoveryResponse { resource_errors: vec![error], ..response::<Part>("1", vec![]) }
        },
        || response::<Part>("1", vec![any::<Part>("", "x")]),
    ];
    for unnamed in unnamed {
        let mut rig = waiting::<Part>(&["a", "b"]);
        rig.receive(1, &response::<Part>("0", vec![any::<Part>("b", "y")]));
        rig.sent(1);
        let outputs = rig.receive(1, &unnamed());
        assert_eq!(outputs[..2], ["#1 absent INVALID_ARGUMENT", "read"], "{outputs:?}");
        rig.sent(1);
        assert_eq!(rig.pass(LONG), NONE);
        let outputs = rig.receive(1, &response::<Part>("2", vec![any::<Part>("a", "x")]));
        assert_eq!(outputs[0], "#1 present 2 x");
    }
}

#[test]
fn b0_23_an_error_of_a_name_without_a_code_is_the_error_of_that_name() {
    let mut rig = waiting::<Part>(&["a", "b"]);
    let error = ResourceError {
        resource_name: Some(ResourceName { name: "a".into(), ..ResourceName::default() }),
        error_detail: None,
    };
    let denied = DiscoveryResponse { resource_errors: vec![error], ..response::<Part>("1", vec![]) };
    assert_eq!(rig.receive(1, &denied)[..2], ["#1 absent INVALID_ARGUMENT", "read"]);
    rig.sent(1);
    assert_eq!(rig.pass(LONG), ["#2 absent NOT_FOUND"]);
}

#[test]
fn b0_23_a_name_in_a_wrapper_tells_which_resource_is_rejected() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a", "b"]);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    let wrong = Resource { name: "a".into(), resource: Some(any::<Part>("a", "x")), ..Resource::default() };
    let response = DeltaDiscoveryResponse {
        resources: vec![wrong],
        nonce: "n1".into(),
        type_url: "type.googleapis.com/test.Full".into(),
        ..DeltaDiscoveryResponse::default()
    };
    let outputs = rig.receive_raw(1, response.encode_to_vec());
    let reason =
        "of type \"type.googleapis.com/test.Part\" in a response of type \"type.googleapis.com/test.Full\"";
    let nack = format!("send Full n1 INVALID_ARGUMENT: Full \"a\": {reason}");
    assert_eq!(outputs, ["#1 absent INVALID_ARGUMENT", "read", &nack]);
    rig.sent(1);
    assert_eq!(rig.pass(LONG), ["#2 absent NOT_FOUND"]);
}

#[test]
fn b0_23_what_is_held_of_a_full_state_type_may_be_what_has_no_name() {
    let mut rig = waiting::<Full>(&["a", "b"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "z"), any::<Full>("", "y")]));
    assert_eq!(outputs[..2], ["#1 present 2 z", "#2 present 1 y (INVALID_ARGUMENT)"]);
}

#[test]
fn b0_23_the_does_not_exist_time_decides_when_an_accepted_response_follows() {
    let mut rig = waiting::<Full>(&["a", "b"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("b", "y"), any::<Full>("", "x")]));
    rig.sent(1);
    assert_eq!(rig.receive(1, &response::<Full>("2", vec![any::<Full>("b", "y")]))[0], "read");
    rig.sent(1);
    assert_eq!(rig.pass(LONG), ["#1 absent NOT_FOUND"]);
}

#[test]
fn b0_23_a_complete_response_after_the_does_not_exist_time_shows_that_there_is_none() {
    let mut rig = waiting::<Full>(&["a", "b"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("b", "y"), any::<Full>("", "x")]));
    rig.sent(1);
    assert_eq!(rig.pass(LONG), NONE, "the last word of the server is a rejected response");
    rig.receive(1, &response::<Full>("2", vec![any::<Full>("b", "y")]));
    rig.sent(1);
    assert_eq!(rig.pass(LONG), ["#1 absent NOT_FOUND"]);
}

#[test]
fn b0_23_a_complete_response_after_one_without_a_type_shows_that_there_is_none() {
    let mut rig = waiting::<Full>(&["a"]);
    rig.receive_raw(1, vec![0x0a]);
    assert_eq!(rig.pass(LONG), ["#1 absent INVALID_ARGUMENT"], "it may have been in that response");
    let outputs = rig.receive(1, &response::<Full>("1", vec![]));
    assert_eq!(outputs, ["#1 absent NOT_FOUND", "read", "send Full [a] 1/n1"]);
}

#[test]
fn b0_23_a_removal_that_its_request_may_have_crossed_is_not_explained_by_an_older_unreadable_response() {
    let mut rig = Rig::delta();
    let (a, _) = rig.watch::<Full>("a");
    rig.watch::<Full>("b");
    rig.connect(1);
    rig.sent(1);
    rig.receive_raw(1, delta_response::<Full>("n1", &[("b", "1", Some("x"))], &[]));
    rig.sent(1);
    rig.receive_raw(1, vec![0x0a]);
    rig.unwatch(a);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    rig.watch::<Full>("a");
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    let outputs = rig.receive_raw(1, delta_response::<Full>("n2", &[], &["a"]));
    assert_eq!(outputs.last().unwrap(), "send Full n2", "it may be older than the request");
    rig.sent(1);
    assert_eq!(rig.pass(LONG), ["#3 absent NOT_FOUND"]);
}

#[test]
fn b0_23_a_wildcard_is_not_answered_by_what_cannot_be_read() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["*"]);
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Part>("a", "x")]));
    assert_eq!(outputs.last().unwrap(), "#1 {} incomplete (INVALID_ARGUMENT)");
    rig.sent(1);
    assert_eq!(rig.pass(LONG), NONE, "that is no sign that the server has none");
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "x")]));
    assert_eq!(outputs.last().unwrap(), "#1 {a: present 2 x} complete");
    rig.sent(1);
    let outputs = rig.receive(1, &twice("3", &["a", "b"]));
    assert_eq!(outputs.last().unwrap(), "#1 {a: present 2 x (INVALID_ARGUMENT)} complete (INVALID_ARGUMENT)");
}

#[test]
fn b0_23_a_wildcard_of_delta_is_not_answered_by_what_cannot_be_read() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["*"]);
    let broken = Resource { resource: Some(any::<Full>("", "x")), ..Resource::default() };
    let response = DeltaDiscoveryResponse {
        resources: vec![broken],
        nonce: "n1".into(),
        type_url: "type.googleapis.com/test.Full".into(),
        ..DeltaDiscoveryResponse::default()
    };
    let outputs = rig.receive_raw(1, response.encode_to_vec());
    assert_eq!(outputs.last().unwrap(), "#1 {} incomplete (INVALID_ARGUMENT)");
    rig.sent(1);
    assert_eq!(rig.pass(LONG), NONE);
    let outputs = rig.receive_raw(1, delta_response::<Full>("n2", &[("a", "1", Some("x"))], &[]));
    assert_eq!(outputs.last().unwrap(), "#1 {a: present 1 x} complete");
}

#[test]
fn b0_23_bytes_that_are_no_response_are_the_reason_when_nothing_else_comes() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["*"]);
    rig.watch::<Part>("p");
    rig.sent(1);
    assert_eq!(rig.receive_raw(1, vec![0xff]), ["read"]);
    let outputs = rig.pass(LONG);
    assert!(outputs.contains(&"#1 {} incomplete (INVALID_ARGUMENT)".to_owned()), "{outputs:?}");
    assert!(outputs.contains(&"#2 absent INVALID_ARGUMENT".to_owned()), "{outputs:?}");
}

/// The version that was accepted last still stands for what is held.
#[test]
fn b1_6_a_rejection_of_which_nothing_is_used_leaves_the_version_of_the_next_stream() {
    for rejected in [twice("2", &["a", "b"]), {
        response::<Full>("2", vec![any::<Full>("a", "bad"), any::<Full>("b", "y")])
    }] {
        let mut rig = waiting::<Full>(&["a", "b"]);
        rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
        rig.sent(1);
        rig.receive(1, &rejected);
        rig.sent(1);
        rig.disconnect(1, DisconnectKind::Closed);
        rig.pass(Duration::from_secs(5));
        assert_eq!(rig.connect(2).pop().unwrap(), "send Full [a,b] 1/ node");
    }
}

#[test]
fn b1_18_a_heartbeat_of_a_version_that_was_never_sent_changes_nothing() {
    let mut rig = waiting::<Full>(&["a"]);
    let lasting = |name: &str, text: Option<&str>| {
        let mut wrapper = Resource::decode(wrapped::<Full>(name, text).value).unwrap();
        wrapper.ttl = Some(crate::pb::google::protobuf::Duration { seconds: 10, nanos: 0 });
        crate::pb::google::protobuf::Any {
            value: wrapper.encode_to_vec().into(),
            ..wrapped::<Full>(name, text)
        }
    };
    rig.receive(1, &response::<Full>("1", vec![lasting("a", Some("x"))]));
    rig.sent(1);
    rig.pass(Duration::from_secs(6));
    let outputs = rig.receive(1, &response::<Full>("7", vec![lasting("a", None)]));
    assert_eq!(outputs, ["read", "send Full [a] 1/n7"], "it does not become the accepted version");
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(5)), ["#1 absent NOT_FOUND"], "its time is not extended");
}

#[test]
fn b0_24_nacks_are_ten_at_once_and_one_a_second_whatever_differs() {
    let mut rig = waiting::<Full>(&["a"]);
    let mut nacks = 0;
    let mut count = |outputs: &[String]| {
        nacks += outputs.iter().filter(|output| output.contains("INVALID_ARGUMENT: ")).count();
    };
    for number in 0..600 {
        let bad = vec![any::<Full>("a", "bad"), any::<Full>(&format!("z{number}"), "x")];
        count(&rig.receive(1, &response::<Full>(&number.to_string(), bad)));
        count(&rig.sent(1));
        count(&rig.pass(Duration::from_millis(10)));
        count(&rig.sent(1));
    }
    assert!((15..=17).contains(&nacks), "{nacks} NACKs in 6 s");
}

#[test]
fn b0_24_an_ack_does_not_wait_for_a_nack_that_is_held_back() {
    let mut rig = waiting::<Full>(&["a"]);
    let (mut nacks, mut acks) = (0, 0);
    for number in 0..40 {
        let text = if number % 2 == 0 { "bad" } else { "x" };
        let outputs = rig.receive(1, &response::<Full>(&number.to_string(), vec![any::<Full>("a", text)]));
        nacks += outputs.iter().filter(|output| output.contains("INVALID_ARGUMENT: ")).count();
        acks += outputs.iter().filter(|output| output.ends_with(&format!(" {number}/n{number}"))).count();
        rig.sent(1);
    }
    assert_eq!((nacks, acks), (10, 20));
}

#[test]
fn b0_24_nacks_of_delta_are_ten_at_once_and_one_a_second() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a"]);
    let (mut nacks, mut acks) = (0, 0);
    let mut count = |outputs: &[String]| {
        nacks += outputs.iter().filter(|output| output.contains("INVALID_ARGUMENT: ")).count();
        acks += outputs
            .iter()
            .filter(|output| output.starts_with("send Full n") && !output.contains(':'))
            .count();
    };
    for number in 0..600 {
        let text = if number % 100 == 99 { "x" } else { "bad" };
        let (nonce, version) = (format!("n{number}"), number.to_string());
        count(&rig.receive_raw(1, delta_response::<Full>(&nonce, &[("a", &version, Some(text))], &[])));
        count(&rig.sent(1));
        count(&rig.pass(Duration::from_millis(10)));
        count(&rig.sent(1));
    }
    assert!((15..=17).contains(&nacks), "{nacks} NACKs in 6 s");
    assert_eq!(acks, 6, "ACKs are written at once");
}

/// Found by the fuzzer of operations.
#[test]
fn b0_24_nacks_of_delta_that_wait_are_not_written_with_one_that_comes_later() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a"]);
    let mut nacks = 0;
    let mut count = |outputs: &[String]| {
        nacks += outputs.iter().filter(|output| output.contains("INVALID_ARGUMENT: ")).count();
    };
    for number in 0..40 {
        let (nonce, version) = (format!("n{number}"), number.to_string());
        count(&rig.receive_raw(1, delta_response::<Full>(&nonce, &[("a", &version, Some("bad"))], &[])));
        count(&rig.sent(1));
    }
    for tenth in 0..110 {
        if tenth == 105 {
            count(&rig.receive_raw(1, delta_response::<Full>("n40", &[("a", "40", Some("bad"))], &[])));
        }
        count(&rig.pass(Duration::from_millis(100)));
        count(&rig.sent(1));
    }
    assert!((20..=21).contains(&nacks), "{nacks} NACKs in 11 s");
}
