//! What comes, however odd it is: rules B0.6 to B0.12, B1.10 to B1.19, G1 to G6, TP3.

use prost::Message;

use super::rig::{Full, Part, Rig, any, response, wrapped};
use crate::{
    config::Server,
    pb::{
        envoy::service::discovery::v3::{DiscoveryResponse, ResourceError, ResourceName},
        google::{protobuf::Any, rpc::Status},
    },
};

/// A rig that holds `a` and `b` of a full-state type.
fn holding(server: crate::config::ServerBuilder) -> Rig {
    let mut rig = Rig::with(server);
    rig.open::<Full>(&["a", "b"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    rig.sent(1);
    rig
}

fn server() -> crate::config::ServerBuilder {
    Server::new("127.0.0.1:1").insecure()
}

#[test]
fn b0_7_a_response_of_a_type_without_a_request_is_dropped_and_the_next_one_applied() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    let strange =
        DiscoveryResponse { type_url: "type.googleapis.com/who.Knows".into(), ..Default::default() };
    assert_eq!(rig.receive(1, &strange), ["read"]);
    assert_eq!(rig.receive(1, &response::<Part>("1", vec![any::<Part>("a", "x")])), ["read"]);
    let outputs = rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    assert_eq!(outputs, ["#1 present 1 x", "read", "send Full [a] 1/n1"]);
}

#[test]
fn garbage_bytes_are_reported_and_the_stream_and_everything_good_stay() {
    let mut rig = holding(server());
    for garbage in [vec![0xff], vec![0x12, 200, 1], b"HTTP/1.1 404 Not Found".to_vec()] {
        assert_eq!(rig.receive_raw(1, garbage), ["read"]);
    }
    assert_eq!(rig.receive(1, &DiscoveryResponse::default()), ["read"], "an empty message is of no type");
    assert_eq!(rig.watch::<Full>("a").1, ["#3 present 1 x"]);
}

#[test]
fn a_response_cut_at_any_byte_loses_nothing() {
    let whole =
        response::<Full>("2", vec![any::<Full>("a", "x2"), wrapped::<Full>("b", Some("y2"))]).encode_to_vec();
    for cut in 0..whole.len() {
        let mut rig = holding(server());
        let outputs = rig.receive_raw(1, whole[..cut].to_vec());
        assert!(outputs.contains(&"read".to_owned()), "cut at {cut}: {outputs:?}");
        let lost = outputs.iter().filter(|outputs| outputs.contains("absent"));
        assert_eq!(lost.count(), 0, "cut at {cut}: {outputs:?}");
        rig.sent(1);
        let outputs = rig.receive_raw(1, whole.clone());
        assert!(outputs.contains(&"send Full [a,b] 2/n2".to_owned()), "cut at {cut}: {outputs:?}");
        assert_eq!(rig.watch::<Full>("b").1, ["#3 present 2 y2"], "cut at {cut}");
    }
}

#[test]
fn b0_8_g4_a_resource_of_another_type_rejects_the_response_and_siblings_count() {
    let mut rig = holding(server());
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Part>("a", "z"), any::<Full>("b", "y2")]));
    let reason =
        "of type \"type.googleapis.com/test.Part\" in a response of type \"type.googleapis.com/test.Full\"";
    assert_eq!(
        outputs,
        [
            "#2 present 2 y2",
            "#1 present 1 x (INVALID_ARGUMENT)",
            "read",
            &format!("send Full [a,b] 1/n2 INVALID_ARGUMENT: resources[0]: {reason}")
        ],
        "and what has no name may be what is missing, so nothing counts as deleted"
    );
}

#[test]
fn g1_b1_15_wrapped_and_bare_resources_mix() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a", "b"]);
    let outputs =
        rig.receive(1, &response::<Full>("1", vec![wrapped::<Full>("a", Some("x")), any::<Full>("b", "y")]));
    assert_eq!(outputs, ["#1 present 1 x", "#2 present 1 y", "read", "send Full [a,b] 1/n1"]);
}

#[test]
fn g2_g5_g6_what_has_no_name_rejects_the_response() {
    let undecodable = Any { type_url: "type.googleapis.com/test.Full".into(), value: vec![0x0a, 9].into() };
    let wrapper = Any { value: vec![0x1a, 9].into(), ..wrapped::<Full>("", None) };
    let reasons = [
        (undecodable, "not a valid message: length over the end of the message at byte 2"),
        (wrapper, "not a valid message: length over the end of the message at byte 2"),
        (any::<Full>("", "x"), "name: empty"),
    ];
    for (resource, reason) in reasons {
        let mut rig = holding(server());
        let outputs = rig.receive(1, &response::<Full>("2", vec![resource, any::<Full>("a", "x2")]));
        let nack = format!("send Full [a,b] 1/n2 INVALID_ARGUMENT: resources[0]: {reason}");
        assert_eq!(outputs, ["#1 present 2 x2", "#2 present 1 y (INVALID_ARGUMENT)", "read", &nack]);
    }
}

#[test]
fn a46_1_the_good_resources_of_a_rejected_response_are_used() {
    let mut rig = holding(server());
    let outputs =
        rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "bad"), any::<Full>("b", "y2")]));
    assert_eq!(
        outputs,
        [
            "#1 present 1 x (INVALID_ARGUMENT)",
            "#2 present 2 y2",
            "read",
            "send Full [a,b] 1/n2 INVALID_ARGUMENT: Full \"a\": text: it is bad"
        ]
    );
}

#[test]
fn b1_14_a_name_twice_rejects_the_whole_response() {
    let twice = [
        vec![any::<Full>("a", "x2"), any::<Full>("b", "y2"), any::<Full>("a", "x3")],
        vec![any::<Full>("a", "x2"), wrapped::<Full>("a", Some("x2"))],
        vec![any::<Full>("z", "1"), any::<Full>("y", "1"), any::<Full>("z", "1")],
    ];
    let (a, b) = ("#1 present 1 x (INVALID_ARGUMENT)", "#2 present 1 y (INVALID_ARGUMENT)");
    let warnings = [vec![a, b], vec![a], vec![]];
    for ((resources, name), mut expected) in twice.into_iter().zip(["a", "a", "z"]).zip(warnings) {
        let mut rig = holding(server());
        let outputs = rig.receive(1, &response::<Full>("2", resources));
        let why = format!("INVALID_ARGUMENT: \"{name}\": the name is in the response twice");
        let nack = format!("send Full [a,b] 1/n2 {why}");
        expected.extend(["read", &nack]);
        assert_eq!(outputs, expected, "nothing of it counts");
    }
}

#[test]
fn b0_12_resources_without_a_subscription_are_ignored_and_the_response_accepted() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    let outputs =
        rig.receive(1, &response::<Full>("1", vec![any::<Full>("z", "bad"), any::<Full>("a", "x")]));
    assert_eq!(outputs, ["#1 present 1 x", "read", "send Full [a] 1/n1"]);
    assert_eq!(rig.engine.resources(), 1);
}

#[test]
fn b1_10_absence_of_a_full_state_type_is_deletion() {
    let mut rig = holding(server());
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("b", "y")]));
    assert_eq!(outputs, ["#1 absent NOT_FOUND", "read", "send Full [a,b] 2/n2"]);
    rig.sent(1);
    assert_eq!(
        rig.receive(1, &response::<Full>("3", vec![])),
        ["#2 absent NOT_FOUND", "read", "send Full [a,b] 3/n3"]
    );
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("4", vec![any::<Full>("a", "x")]));
    assert_eq!(outputs, ["#1 present 4 x", "read", "send Full [a,b] 4/n4"], "and it may come again");
}

#[test]
fn b1_11_absence_of_another_type_is_no_deletion() {
    let mut rig = Rig::new();
    rig.open::<Part>(&["a", "b"]);
    rig.receive(1, &response::<Part>("1", vec![any::<Part>("a", "x"), any::<Part>("b", "y")]));
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Part>("2", vec![any::<Part>("b", "y2")]));
    assert_eq!(outputs, ["#2 present 2 y2", "read", "send Part [a,b] 2/n2"]);
}

#[test]
fn b1_13_absence_of_what_was_never_seen_is_left_to_the_timer() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    assert_eq!(rig.receive(1, &response::<Full>("1", vec![])), ["read", "send Full [a] 1/n1"]);
}

#[test]
fn a53_1_a_server_with_ignore_resource_deletion_deletes_nothing() {
    let mut rig = holding(server().features(["ignore_resource_deletion"]));
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("b", "y")]));
    assert_eq!(outputs, ["#1 present 1 x (NOT_FOUND)", "read", "send Full [a,b] 2/n2"]);
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("3", vec![any::<Full>("a", "x"), any::<Full>("b", "y")]));
    assert_eq!(outputs, ["#1 present 3 x", "read", "send Full [a,b] 3/n3"]);
}

#[test]
fn unchanged_resources_are_neither_published_again_nor_parsed() {
    let mut rig = holding(server());
    let parsed = rig.engine.work_counters().parsed;
    // In another order than last time, too.
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("b", "y"), any::<Full>("a", "x")]));
    assert_eq!(outputs, ["read", "send Full [a,b] 2/n2"]);
    assert_eq!(rig.engine.work_counters().parsed, parsed);
}

#[test]
fn b1_18_b1_19_a_heartbeat_deletes_nothing() {
    let mut rig = holding(server());
    let outputs = rig.receive(1, &response::<Full>("1", vec![wrapped::<Full>("a", None)]));
    assert_eq!(outputs, ["read", "send Full [a,b] 1/n1"]);
}

#[test]
fn an_error_in_a_nack_is_cut_at_4_kib_between_characters() {
    let mut rig = Rig::new();
    let name = "ü".repeat(500);
    let names: Vec<_> = (0..20).map(|i| format!("{name}{i}")).collect();
    rig.open::<Full>(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let outputs =
        rig.receive(1, &response::<Full>("1", names.iter().map(|name| any::<Full>(name, "bad")).collect()));
    let (_, error) = outputs.last().unwrap().split_once("INVALID_ARGUMENT: ").unwrap();
    assert!((4000..=4096).contains(&error.len()) && error.ends_with("...(truncated)"), "{}", error.len());
}

fn server_error(name: &str, code: i32) -> ResourceError {
    ResourceError {
        resource_name: Some(ResourceName { name: name.into(), ..Default::default() }),
        error_detail: Some(Status { code, message: "no".into(), details: vec![] }),
    }
}

#[test]
fn a88_7_errors_of_the_server_are_published_and_count_as_mentioned() {
    for code in [5, 14] {
        let mut rig = holding(server());
        rig.pass(std::time::Duration::from_millis(20));
        rig.watch::<Full>("c");
        rig.sent(1);
        let resource_errors =
            vec![server_error("a", code), server_error("c", code), server_error("who", code)];
        let response =
            DiscoveryResponse { resource_errors, ..response::<Full>("2", vec![any::<Full>("b", "y")]) };
        let outputs = rig.receive(1, &response);
        let code = crate::error::Code::from_i32(code);
        assert_eq!(outputs[..2], [format!("#1 present 1 x ({code})"), format!("#3 absent {code}")]);
        assert!(
            outputs[3].starts_with("send Full [a,b,c] 2/n2") && !outputs[3].contains("INVALID"),
            "{outputs:?}"
        );
    }
}

#[test]
fn a88_7_an_error_without_name_or_with_ok_rejects_the_response() {
    for (error, reason) in [
        (server_error("", 5), "resource_errors[0]: resource_name: unset"),
        (server_error("a", 0), "resource_errors[0]: error_detail: must be non-OK"),
    ] {
        let mut rig = Rig::new();
        rig.open::<Full>(&["a"]);
        let response = DiscoveryResponse { resource_errors: vec![error], ..response::<Full>("1", vec![]) };
        let nack = format!("send Full [a] /n1 INVALID_ARGUMENT: {reason}");
        assert_eq!(rig.receive(1, &response), ["#1 absent INVALID_ARGUMENT", "read", &nack]);
    }
}

#[test]
fn what_was_rejected_and_then_deleted_is_not_found() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "bad")]));
    rig.sent(1);
    assert_eq!(rig.receive(1, &response::<Full>("2", vec![]))[0], "#1 absent NOT_FOUND");
}
