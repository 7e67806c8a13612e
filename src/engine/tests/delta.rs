//! The incremental variant: rules B2.1 to B2.35. What a server must do is tested at the control plane's session.

use std::time::Duration;

use prost::Message;

use super::rig::{Full, Part, Rig, any, delta_response};
use crate::{
    base::WatchId,
    pb::{
        envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource, ResourceError, ResourceName},
        google::rpc::Status,
    },
    protocol::DisconnectKind,
};

mod aliases;
mod fallback;
mod scale;
mod streams;

const NONE: Vec<String> = Vec::new();

/// One resource with its version, the same text as its own.
fn one(nonce: &str, name: &str, version: &str) -> Vec<u8> {
    delta_response::<Full>(nonce, &[(name, version, Some(version))], &[])
}

fn removed(nonce: &str, names: &[&str]) -> Vec<u8> {
    delta_response::<Full>(nonce, &[], names)
}

/// A stream on which `a` and `b` are requested and held as 1 and 2.
fn holding_two() -> (Rig, Vec<WatchId>) {
    let mut rig = Rig::delta();
    let watches = rig.open::<Full>(&["a", "b"]);
    rig.receive_raw(1, delta_response::<Full>("n", &[("a", "1", Some("x")), ("b", "2", Some("y"))], &[]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    (rig, watches)
}

/// A stream with a wildcard, of which `a` is a member.
fn holding_all() -> (Rig, WatchId) {
    let mut rig = Rig::delta();
    let all = rig.open::<Full>(&["*"])[0];
    rig.receive_raw(1, one("n", "a", "1"));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    (rig, all)
}

/// The stream ends, and the next one is open: returns the first request.
fn reconnect(rig: &mut Rig, attempt: u64) -> Vec<String> {
    rig.disconnect(attempt, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(5));
    rig.connect(attempt + 1)
}

#[test]
fn b2_1_the_first_request_of_a_stream_has_all_names_and_the_versions_of_all_cached_resources() {
    let (mut rig, _) = holding_two();
    rig.watch::<Full>("c");
    rig.watch::<Full>("*");
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    rig.receive_raw(1, one("m", "member", "3"));
    rig.sent(1);
    // Some servers know the older form of the wildcard alone, which an explicit one would be lost on.
    assert_eq!(reconnect(&mut rig, 1), ["read", "send Full {a=1,b=2,member=3} node"]);
    assert_eq!(rig.sent(2), ["send Full +a,b,c"]);
}

#[test]
fn b2_2_versions_are_sent_once_a_stream_and_not_on_the_first() {
    let mut rig = Rig::delta();
    rig.watch::<Full>("a");
    assert_eq!(rig.connect(1), ["read", "send Full +a node"]);
    rig.sent(1);
    rig.receive_raw(1, one("n", "a", "1"));
    rig.sent(1);
    assert_eq!(reconnect(&mut rig, 1), ["read", "send Full +a {a=1} node"]);
    rig.sent(2);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("b").1, ["send Full +b"]);
}

#[test]
fn b2_3_removed_and_never_accepted_resources_have_no_version_to_send() {
    let (mut rig, _) = holding_two();
    rig.receive_raw(1, removed("m", &["b"]));
    rig.sent(1);
    rig.receive_raw(1, delta_response::<Full>("m", &[("a", "9", Some("bad"))], &[]));
    rig.sent(1);
    assert_eq!(reconnect(&mut rig, 1), ["read", "send Full +a,b {a=1} node"], "the accepted one counts");
}

#[test]
fn b2_4_a_first_request_without_names_requests_everything() {
    let mut rig = Rig::delta();
    let (all, _) = rig.watch::<Full>("*");
    assert_eq!(rig.connect(1), ["read", "send Full node"]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    let (a, outputs) = rig.watch::<Full>("a");
    assert_eq!(outputs, ["send Full +a"], "everything, and a");
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(all), ["send Full -*"]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(a), ["send Full -a"], "which leaves nothing");
}

#[test]
fn b2_5_an_answer_without_names_changes_nothing() {
    let (mut rig, _) = holding_two();
    assert_eq!(rig.receive_raw(1, one("m", "a", "3")), ["#1 present 3 3", "read", "send Full m"]);
}

#[test]
fn b2_6_a_wildcard_begins_each_stream_in_its_older_form_and_names_follow() {
    let (mut rig, _) = holding_all();
    assert_eq!(reconnect(&mut rig, 1), ["read", "send Full {a=1} node"]);
    rig.sent(2);
    let (b, _) = rig.watch::<Full>("b");
    rig.pass(Duration::from_millis(20));
    rig.sent(2);
    assert_eq!(reconnect(&mut rig, 2), ["read", "send Full {a=1} node"]);
    assert_eq!(rig.sent(3), ["send Full +b"]);
    rig.sent(3);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(b);
    rig.pass(Duration::from_millis(20));
    rig.sent(3);
    assert_eq!(reconnect(&mut rig, 3), ["read", "send Full {a=1} node"]);
}

#[test]
fn b2_7_a_type_without_interest_sends_nothing_on_a_fresh_stream() {
    let mut rig = Rig::delta();
    let (a, _) = rig.watch::<Full>("a");
    rig.watch::<Part>("p");
    rig.unwatch(a);
    assert_eq!(rig.connect(1), ["read", "send Part +p node"]);
    assert_eq!(rig.sent(1), NONE);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("*").1, ["send Full"], "not without a reason");
}

#[test]
fn b2_8_a_name_unsubscribed_and_resubscribed_before_a_request_is_requested_again() {
    let (mut rig, watches) = holding_two();
    rig.watch::<Full>("c");
    assert_eq!(rig.unwatch(watches[0]), NONE, "the request before is under way");
    assert_eq!(rig.watch::<Full>("a").1, ["#4 present 1 x"], "nothing was lost");
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_millis(20)), ["send Full +a"]);
}

#[test]
fn b2_8_a_name_subscribed_and_unsubscribed_before_a_request_is_not_mentioned() {
    let (mut rig, _) = holding_two();
    rig.watch::<Full>("c");
    let (d, _) = rig.watch::<Full>("d");
    rig.unwatch(d);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_millis(20)), NONE);
}

#[test]
fn b2_9_no_name_is_in_both_lists() {
    let (mut rig, watches) = holding_two();
    rig.watch::<Full>("c");
    rig.unwatch(watches[0]);
    let (again, _) = rig.watch::<Full>("a");
    rig.unwatch(again);
    rig.unwatch(watches[1]);
    rig.watch::<Full>("b");
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_millis(20)), ["send Full +b -a"]);
}

#[test]
fn b2_10_a_nonce_is_in_answers_alone_and_changes_may_ride_on_them() {
    let (mut rig, _) = holding_two();
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("c").1, ["send Full +c"]);
    rig.watch::<Full>("d");
    assert_eq!(rig.receive_raw(1, one("m", "a", "3")), ["#1 present 3 3", "read"]);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.sent(1), ["send Full +d m"]);
    assert_eq!(rig.sent(1), NONE);
}

#[test]
fn b2_12_a_name_twice_rejects_the_whole_response() {
    type Resources = &'static [(&'static str, &'static str, Option<&'static str>)];
    let cases: [(Resources, &[&str]); 3] = [
        (&[("a", "3", Some("z")), ("b", "3", Some("z")), ("a", "4", Some("w"))], &[]),
        (&[("a", "3", Some("z")), ("b", "3", Some("z"))], &["a"]),
        (&[("b", "3", Some("z"))], &["a", "a"]),
    ];
    for (resources, removed) in cases {
        let (mut rig, _) = holding_two();
        let outputs = rig.receive_raw(1, delta_response::<Full>("m", resources, removed));
        let nack = "send Full m INVALID_ARGUMENT: \"a\": the name is in the response twice";
        let warnings = ["#1 present 1 x (INVALID_ARGUMENT)", "#2 present 2 y (INVALID_ARGUMENT)"];
        assert_eq!(outputs[outputs.len() - 2..], ["read", nack], "nothing of it is applied");
        assert!(
            outputs[..outputs.len() - 2].iter().all(|output| warnings.contains(&&**output)),
            "{outputs:?}"
        );
        assert!(outputs.contains(&warnings[1].to_owned()), "{outputs:?}");
    }
}

#[test]
fn b2_13_an_unknown_name_may_be_removed() {
    let (mut rig, _) = holding_two();
    assert_eq!(rig.receive_raw(1, removed("m", &["z", "y"])), ["read", "send Full m"]);
}

#[test]
fn b2_14_a_removed_name_does_not_exist_now_and_may_come_again() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a"]);
    assert_eq!(
        rig.receive_raw(1, removed("m", &["a"])),
        ["#1 absent NOT_FOUND", "read", "send Full m"],
        "no timer is needed"
    );
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(60)), NONE, "and none runs");
    assert_eq!(rig.receive_raw(1, one("o", "a", "1"))[0], "#1 present 1 1", "the subscription stays");
    rig.sent(1);
    assert_eq!(rig.receive_raw(1, removed("p", &["a"]))[0], "#1 absent NOT_FOUND");
}

#[test]
fn b2_14_absence_proves_nothing() {
    let (mut rig, _) = holding_two();
    assert_eq!(rig.receive_raw(1, one("m", "a", "3")), ["#1 present 3 3", "read", "send Full m"]);
    assert_eq!(rig.pass(Duration::from_secs(60)), NONE);
}

#[test]
fn b2_15_errors_of_the_server_are_published() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a"]);
    let response = DeltaDiscoveryResponse {
        nonce: "m".into(),
        type_url: "type.googleapis.com/test.Full".into(),
        resource_errors: vec![ResourceError {
            resource_name: Some(ResourceName { name: "a".into(), ..ResourceName::default() }),
            error_detail: Some(Status { code: 7, message: "not yours".into(), details: vec![] }),
        }],
        ..DeltaDiscoveryResponse::default()
    };
    let outputs = rig.receive_raw(1, response.encode_to_vec());
    assert_eq!(outputs, ["#1 absent PERMISSION_DENIED", "read", "send Full m"]);
}

#[test]
fn b2_16_an_unset_resource_in_the_version_that_is_held_is_a_heartbeat() {
    let (mut rig, _) = holding_two();
    let outputs = rig.receive_raw(1, delta_response::<Full>("m", &[("a", "1", None)], &[]));
    assert_eq!(outputs, ["read", "send Full m"]);
}

#[test]
fn b2_17_an_unset_resource_in_another_version_does_not_exist() {
    let (mut rig, _) = holding_two();
    rig.watch::<Full>("c");
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    let outputs = rig.receive_raw(1, delta_response::<Full>("m", &[("c", "", None), ("a", "7", None)], &[]));
    assert_eq!(outputs, ["#3 absent NOT_FOUND", "#1 absent NOT_FOUND", "read", "send Full m"]);
}

/// One resource with other names.
fn aliased(name: &str, text: Option<&str>, aliases: &[&str]) -> Vec<u8> {
    let resource = Resource {
        name: name.into(),
        version: "1".into(),
        resource: text.map(|text| any::<Full>(name, text)),
        aliases: aliases.iter().map(|alias| (*alias).into()).collect(),
        ..Resource::default()
    };
    let response = DeltaDiscoveryResponse {
        nonce: "m".into(),
        type_url: "type.googleapis.com/test.Full".into(),
        resources: vec![resource],
        ..DeltaDiscoveryResponse::default()
    };
    response.encode_to_vec()
}

#[test]
fn b2_18_an_unset_resource_with_aliases_reports_that_these_were_not_found() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["routes/host", "routes/other"]);
    let outputs = rig.receive_raw(1, aliased("routes/host", None, &["routes/host"]));
    assert_eq!(outputs, ["#1 absent NOT_FOUND", "read", "send Full m"]);
}

#[test]
fn b2_19_a_resource_reaches_watches_of_its_aliases() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["routes/host", "routes/other", "routes/real"]);
    let outputs = rig.receive_raw(1, aliased("routes/real", Some("x"), &["routes/host", "routes/none"]));
    assert_eq!(outputs, ["#3 present 1 x", "#1 present 1 x", "read", "send Full m"]);
}

#[test]
fn b2_20_a_name_unsubscribed_under_a_wildcard_is_kept_until_the_server_removes_it() {
    let (mut rig, _) = holding_all();
    let (a, outputs) = rig.watch::<Full>("a");
    assert_eq!(outputs, ["send Full +a", "#2 present 1 1"]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(a), ["send Full -a"]);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(60)), NONE, "it may be a member");
    assert_eq!(reconnect(&mut rig, 1), ["read", "send Full {a=1} node"], "listed, not subscribed");
    rig.sent(2);
    assert_eq!(rig.receive_raw(2, removed("m", &["a"])), ["read", "send Full m", "#1 {} complete"]);
}

#[test]
fn b2_21_a_name_never_received_is_dropped_at_once() {
    let (mut rig, _) = holding_all();
    let (b, _) = rig.watch::<Full>("b");
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(b);
    rig.sent(1);
    assert_eq!(rig.engine.resources(), 1);
    assert_eq!(reconnect(&mut rig, 1), ["read", "send Full {a=1} node"]);
}

#[test]
fn b2_22_the_end_of_a_wildcard_drops_its_members_and_keeps_names() {
    let (mut rig, all) = holding_all();
    rig.watch::<Full>("b");
    rig.sent(1);
    rig.receive_raw(1, delta_response::<Full>("m", &[("b", "2", Some("y")), ("c", "3", Some("z"))], &[]));
    rig.sent(1);
    assert_eq!(rig.engine.resources(), 3);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(all), ["send Full -*"]);
    rig.sent(1);
    assert_eq!(rig.engine.resources(), 1);
    // GO12: a server that sends a removal for every former member.
    assert_eq!(rig.receive_raw(1, removed("o", &["a", "c"])), ["read", "send Full o"]);
    rig.sent(1);
    assert_eq!(reconnect(&mut rig, 1), ["read", "send Full +b {b=2} node"]);
}

#[test]
fn b2_22_a_removal_because_of_an_ended_wildcard_proves_nothing_of_a_name_requested_since() {
    let (mut rig, all) = holding_all();
    assert_eq!(rig.unwatch(all), ["send Full -*"]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("a").1, ["disconnect 0.1", "connect 0.2"]);
    assert_eq!(rig.receive_raw(1, removed("m", &["a"])), NONE, "it was removed before");
    assert_eq!(rig.connect(2), ["read", "send Full +a node"]);
    rig.sent(2);
    assert_eq!(rig.receive_raw(2, one("o", "a", "1"))[0], "#2 present 1 1");
}

#[test]
fn b2_23_a_member_that_is_requested_by_name_keeps_its_version() {
    let (mut rig, all) = holding_all();
    assert_eq!(rig.watch::<Full>("a").1, ["send Full +a", "#2 present 1 1"]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(all);
    rig.sent(1);
    assert_eq!(reconnect(&mut rig, 1), ["read", "send Full +a {a=1} node"]);
}

#[test]
fn b2_24_without_a_wildcard_an_unsubscribed_name_is_dropped() {
    let (mut rig, watches) = holding_two();
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(watches[0]), ["send Full -a"]);
    rig.sent(1);
    assert_eq!(rig.engine.resources(), 1);
    assert_eq!(reconnect(&mut rig, 1), ["read", "send Full +b {b=2} node"]);
}

#[test]
fn b2_25_versions_are_those_of_resources_and_the_same_again_is_an_update() {
    let (mut rig, _) = holding_two();
    let outputs = rig.receive_raw(1, delta_response::<Full>("m", &[("a", "1", Some("new"))], &[]));
    assert_eq!(outputs[0], "#1 present 1 new");
    rig.sent(1);
    rig.receive_raw(1, removed("o", &["a"]));
    rig.sent(1);
    let outputs = rig.receive_raw(1, delta_response::<Full>("p", &[("a", "1", Some("new"))], &[]));
    assert_eq!(outputs[0], "#1 present 1 new");
}

#[test]
fn b2_27_the_name_of_the_wrapper_counts() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a"]);
    let resource = Resource {
        name: "a".into(),
        version: "1".into(),
        resource: Some(any::<Full>("other", "x")),
        ..Resource::default()
    };
    let response = DeltaDiscoveryResponse {
        nonce: "m".into(),
        type_url: "type.googleapis.com/test.Full".into(),
        resources: vec![resource],
        ..DeltaDiscoveryResponse::default()
    };
    assert_eq!(rig.receive_raw(1, response.encode_to_vec())[0], "#1 present 1 x");
}

#[test]
fn b2_28_an_empty_first_response_reports_that_there_is_nothing() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["*"]);
    assert_eq!(rig.receive_raw(1, removed("m", &[])), ["read", "send Full m", "#1 {} complete"]);
}

#[test]
fn b2_28_a_response_to_a_name_requested_before_does_not_complete_the_wildcard() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a"]);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("*").1, ["send Full +*"]);
    rig.sent(1);
    let outputs = rig.receive_raw(1, one("m", "a", "1"));
    assert_eq!(outputs, ["#1 present 1 1", "read", "send Full m", "#2 {a: present 1 1} incomplete"]);
    rig.sent(1);
    let outputs = rig.receive_raw(1, one("o", "b", "2"));
    assert_eq!(outputs, ["read", "send Full o", "#2 {a: present 1 1, b: present 2 2} complete"]);
}

#[test]
fn b2_29_resources_are_published_in_the_order_of_the_response() {
    let (mut rig, _) = holding_two();
    let response = delta_response::<Full>("m", &[("b", "5", Some("y5")), ("a", "5", Some("x5"))], &[]);
    assert_eq!(rig.receive_raw(1, response), ["#2 present 5 y5", "#1 present 5 x5", "read", "send Full m"]);
}

#[test]
fn b2_30_each_request_has_its_type() {
    let (mut rig, _) = holding_two();
    rig.receive_raw(1, one("m", "a", "3"));
    assert_eq!(rig.sent(1), NONE);
    assert_eq!(rig.watch::<Full>("c").1, ["send Full +c"], "a change");
    rig.sent(1);
    assert_eq!(
        rig.receive_raw(1, removed("o", &["c"])),
        ["#3 absent NOT_FOUND", "read", "send Full o"],
        "an answer"
    );
    rig.sent(1);
    assert_eq!(reconnect(&mut rig, 1), ["read", "send Full +a,b,c {a=3,b=2} node"], "the first one");
}

#[test]
fn b2_31_the_version_of_a_response_is_never_echoed() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a"]);
    let response = DeltaDiscoveryResponse {
        system_version_info: "a text for people".into(),
        nonce: "m".into(),
        type_url: "type.googleapis.com/test.Full".into(),
        ..DeltaDiscoveryResponse::default()
    };
    assert_eq!(rig.receive_raw(1, response.encode_to_vec()), ["read", "send Full m"]);
}

#[test]
fn b2_32_the_node_goes_with_the_first_request_of_each_stream_alone() {
    let mut rig = Rig::delta();
    rig.watch::<Full>("a");
    rig.watch::<Part>("p");
    assert_eq!(rig.connect(1), ["read", "send Full +a node"]);
    assert_eq!(rig.sent(1), ["send Part +p"]);
}
