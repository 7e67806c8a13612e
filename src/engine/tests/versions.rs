//! The version of a type in the first request of a stream (B1.6): one whose resources are held, since servers may
//! skip what they take to be known (go-control-plane does for wildcards).

use std::time::Duration;

use prost::Message;

use super::rig::{Full, Part, Rig, any, response, stream_to};
use crate::{
    config::{Bootstrap, Server},
    engine::Settings,
    pb::{
        envoy::service::discovery::v3::{DiscoveryResponse, ResourceError, ResourceName},
        google::rpc::Status,
    },
    protocol::DisconnectKind,
};

const NONE: [&str; 0] = [];

/// The stream ends, and the next one begins: its first request.
fn reconnect(rig: &mut Rig, attempt: u64) -> String {
    rig.disconnect(attempt, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(5));
    rig.connect(attempt + 1).pop().unwrap()
}

#[test]
fn b1_6_a_version_whose_resources_are_all_cached_is_sent() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a", "b"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "x")]));
    rig.sent(1);
    assert_eq!(reconnect(&mut rig, 1), "send Full [a,b] 1/ node");
}

#[test]
fn b1_6_a_version_is_not_sent_with_a_name_that_it_did_not_bring() {
    let mut rig = Rig::new();
    rig.open::<Part>(&["a"]);
    rig.receive(1, &response::<Part>("1", vec![any::<Part>("a", "x")]));
    rig.sent(1);
    rig.disconnect(1, DisconnectKind::Closed);
    rig.watch::<Part>("b");
    rig.pass(Duration::from_secs(5));
    assert_eq!(rig.connect(2), ["read", "send Part [a,b] / node"]);
}

#[test]
fn b1_6_a_name_that_is_watched_again_after_the_idle_timeout_is_requested_without_a_version() {
    let mut rig = Rig::new();
    let watches = rig.open::<Part>(&["a"]);
    rig.receive(1, &response::<Part>("1", vec![any::<Part>("a", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(watches[0]);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(33)), ["disconnect 0.1"]);
    assert_eq!(rig.watch::<Part>("a").1, ["connect 0.2"]);
    assert_eq!(rig.connect(2), ["read", "send Part [a] / node"]);
}

#[test]
fn b1_6_a_wildcard_that_is_watched_again_after_the_idle_timeout_is_requested_without_a_version() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["*"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(watches[0]);
    rig.sent(1);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(33)), ["disconnect 0.1"]);
    assert_eq!(rig.watch::<Full>("*").1, ["connect 0.2"]);
    assert_eq!(rig.connect(2), ["read", "send Full [] / node"]);
}

#[test]
fn b1_6_a_version_of_named_resources_is_not_sent_with_a_wildcard() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.disconnect(1, DisconnectKind::Closed);
    rig.watch::<Full>("*");
    rig.pass(Duration::from_secs(5));
    assert_eq!(rig.connect(2), ["read", "send Full [] / node"]);
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_secs(1)), ["send Full [*,a] /"]);
}

#[test]
fn b1_6_the_version_of_a_wildcard_is_sent_after_a_reconnect() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["*"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    assert_eq!(reconnect(&mut rig, 1), "send Full [] 1/ node");
}

#[test]
fn b1_6_a_resource_that_a_rejection_has_dropped_is_not_claimed() {
    let server = Server::new("127.0.0.1:1").insecure().features(["fail_on_data_errors"]);
    let mut rig = Rig::with(server);
    rig.open::<Full>(&["*"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "x")]));
    rig.sent(1);
    rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "bad"), any::<Full>("b", "x")]));
    rig.sent(1);
    assert_eq!(reconnect(&mut rig, 1), "send Full [] / node");
}

#[test]
fn b1_6_a_version_in_which_a_cached_resource_has_an_error_of_the_server_is_not_sent() {
    let mut rig = Rig::new();
    rig.open::<Part>(&["a"]);
    rig.receive(1, &response::<Part>("1", vec![any::<Part>("a", "x")]));
    rig.sent(1);
    let error = ResourceError {
        resource_name: Some(ResourceName { name: "a".into(), ..ResourceName::default() }),
        error_detail: Some(Status { code: 13, message: "broken".into(), details: vec![] }),
    };
    let denied = DiscoveryResponse { resource_errors: vec![error], ..response::<Part>("2", vec![]) };
    assert_eq!(rig.receive(1, &denied)[0], "#1 present 1 x (INTERNAL)");
    rig.sent(1);
    assert_eq!(
        reconnect(&mut rig, 1),
        "send Part [a] / node",
        "that the error is over is seen by its being sent"
    );
}

#[test]
fn b1_6_a_version_that_came_after_the_end_of_a_wildcard_is_not_sent_for_the_next_one() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["*", "a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    // The answer is not written yet, so that the end of the wildcard waits.
    rig.unwatch(watches[0]);
    rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "x"), any::<Full>("b", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_secs(1));
    rig.sent(1);
    rig.watch::<Full>("*");
    rig.pass(Duration::from_secs(1));
    rig.sent(1);
    assert_eq!(reconnect(&mut rig, 1), "send Full [] / node");
}

/// The server may have gone back to the accepted version when the next stream begins.
#[test]
fn b1_6_no_version_is_sent_after_a_rejection_whose_good_resources_are_used() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["*"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "x")]));
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "bad")]));
    assert!(outputs.contains(&"#1 {a: present 1 x (INVALID_ARGUMENT)} complete".to_owned()), "{outputs:?}");
    rig.sent(1);
    assert_eq!(reconnect(&mut rig, 1), "send Full [] / node");
}

#[test]
fn a_primary_that_comes_back_is_sent_no_version_so_that_its_response_ends_the_fallback() {
    let servers = (1..=2).map(|port| Server::new(format!("127.0.0.1:{port}")).insecure());
    let bootstrap = servers.fold(Bootstrap::builder(), |bootstrap, server| bootstrap.server(server));
    let mut rig = Rig::of(bootstrap.build().unwrap(), Settings::default());
    rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.disconnect(1, DisconnectKind::Unreachable);
    assert!(rig.watch::<Full>("b").1.contains(&"connect 1.1".to_owned()));
    let fallback = stream_to(1, 1);
    rig.connect_to(fallback);
    rig.sent_to(fallback);
    let both = response::<Full>("f", vec![any::<Full>("a", "f"), any::<Full>("b", "f")]);
    rig.receive_from(fallback, both.encode_to_vec());
    rig.sent_to(fallback);
    assert_eq!(rig.pass(Duration::from_secs(2)), ["connect 0.2"]);
    assert_eq!(rig.connect(2), ["read", "send Full [a,b] / node"]);
    rig.sent(2);
    let outputs = rig.receive(2, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    assert!(outputs.contains(&"disconnect 1.1".to_owned()), "{outputs:?}");
    assert_eq!(rig.pass(Duration::from_secs(1)), NONE);
}

/// Number 12.
#[test]
fn b2_31_the_version_of_a_delta_response_does_not_stand_in_for_that_of_a_resource() {
    use crate::pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource};
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a"]);
    let resource =
        Resource { name: "a".into(), resource: Some(any::<Full>("a", "x")), ..Resource::default() };
    let response = DeltaDiscoveryResponse {
        system_version_info: "7".into(),
        resources: vec![resource],
        nonce: "n".into(),
        type_url: "type.googleapis.com/test.Full".into(),
        ..DeltaDiscoveryResponse::default()
    };
    assert_eq!(rig.receive_raw(1, response.encode_to_vec())[0], "#1 present  x");
    rig.sent(1);
    assert_eq!(reconnect(&mut rig, 1), "send Full +a node");
}

/// go-control-plane takes what it sent for the wildcard to be held, and sends it to a name only at another version.
#[test]
fn b1_6_a_name_is_requested_without_a_version_after_the_wildcard_that_brought_it() {
    let mut rig = Rig::new();
    let (all, _) = rig.watch::<Full>("*");
    rig.connect(1);
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(all);
    rig.sent(1);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("a").1, ["send Full [a] /n1"]);
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("b").1, ["send Full [a,b] 1/n1"], "once");
}

/// go-control-plane sends everything to an empty list of names when something changes, and takes it to be held.
#[test]
fn b1_6_a_name_that_came_before_it_was_subscribed_is_requested_after_the_ack_without_a_version() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(watches[0]), ["send Full [] 1/n1"]);
    let everything = response::<Full>("2", vec![any::<Full>("a", "x"), any::<Full>("b", "x")]);
    assert_eq!(rig.receive(1, &everything), ["read"]);
    assert_eq!(rig.watch::<Full>("b").1, NONE);
    // An ACK that named it would change nothing for the server.
    assert_eq!(rig.sent(1), ["send Full [] 2/n2"]);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_millis(20)), ["send Full [b] /n2"]);
}

#[test]
fn b1_6_a_wildcard_is_requested_without_a_version_that_came_for_names() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(watches[0]);
    // A server that takes the empty list for a wildcard has sent all it has in this version, which is nothing.
    rig.receive(1, &response::<Full>("1", vec![]));
    rig.sent(1);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("*").1, ["send Full [*] /n1"]);
}

#[test]
fn b1_6_a_wildcard_is_requested_without_a_version_after_responses_before_it() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(watches[0]);
    rig.sent(1);
    rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "x"), any::<Full>("b", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Full>("*").1, ["send Full [*] /n2"]);
}

/// go-control-plane up to 0.13.1 keeps the names that it has sent for as long as the stream lasts, and sends those again at
/// another version only.
#[test]
fn b1_21_a_name_that_was_let_go_is_requested_without_a_version_when_it_comes_back() {
    let mut rig = Rig::new();
    let watches = rig.open::<Part>(&["a", "b"]);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    rig.receive(1, &response::<Part>("1", vec![any::<Part>("a", "x"), any::<Part>("b", "y")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(watches[0]), ["send Part [b] 1/n1"]);
    rig.sent(1);
    rig.pass(Duration::from_secs(20));
    assert_eq!(rig.watch::<Part>("c").1, ["send Part [b,c] 1/n1"], "it was never sent");
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Part>("a").1, ["send Part [a,b,c] /n1"]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(
        rig.receive(1, &response::<Part>("1", vec![any::<Part>("c", "z")]))[2],
        "send Part [a,b,c] 1/n1"
    );
    rig.sent(1);
    assert_eq!(rig.watch::<Part>("d").1, ["send Part [a,b,c,d] /n1"], "not as long as it is not held");
    rig.sent(1);
    rig.receive(1, &response::<Part>("1", vec![any::<Part>("a", "x"), any::<Part>("d", "z")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Part>("e").1, ["send Part [a,b,c,d,e] 1/n1"]);
}

/// java-control-plane sends a name when its version changes, although the client has let it go meanwhile.
#[test]
fn b1_21_a_name_that_came_while_it_was_let_go_does_not_ride_on_the_ack() {
    let mut rig = Rig::new();
    let watches = rig.open::<Part>(&["a", "b"]);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    rig.receive(1, &response::<Part>("1", vec![any::<Part>("b", "y")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.unwatch(watches[0]), ["send Part [b] 1/n1"]);
    rig.sent(1);
    assert_eq!(
        rig.receive(1, &response::<Part>("2", vec![any::<Part>("a", "x")])),
        ["read", "send Part [b] 2/n2"]
    );
    rig.watch::<Part>("a");
    let outputs = rig.receive(1, &response::<Part>("3", vec![any::<Part>("b", "z")]));
    assert_eq!(outputs, ["#2 present 3 z", "read"]);
    assert_eq!(rig.sent(1), ["send Part [b] 3/n3"]);
    let mut outputs = rig.sent(1);
    outputs.extend(rig.pass(Duration::from_millis(20)));
    assert_eq!(outputs, ["send Part [a,b] /n3"]);
}

/// A stream on which the server has sent `a` and `b`, and `a` was let go 20 s ago.
fn with_a_let_go() -> Rig {
    let mut rig = Rig::new();
    let watches = rig.open::<Part>(&["a", "b"]);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    rig.receive(1, &response::<Part>("1", vec![any::<Part>("a", "x"), any::<Part>("b", "y")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(watches[0]);
    rig.sent(1);
    rig.pass(Duration::from_secs(20));
    rig
}

/// A server drops a change that a response has crossed, and the ACK of that response would claim the version for the name. Found by
/// the fuzzer of operations.
#[test]
fn b1_21_a_name_whose_change_a_response_has_crossed_does_not_ride_on_the_ack() {
    let mut rig = with_a_let_go();
    assert_eq!(rig.watch::<Part>("a").1, ["send Part [a,b] /n1"]);
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Part>("2", vec![any::<Part>("b", "z")]));
    assert_eq!(outputs, ["#2 present 2 z", "read", "send Part [b] 2/n2"]);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_millis(20)), ["send Part [a,b] /n2"]);
    rig.sent(1);
    // One that always sends something sees the name again all the same.
    for number in 3..20 {
        rig.receive(1, &response::<Part>(&number.to_string(), vec![any::<Part>("b", "z")]));
        rig.sent(1);
        rig.pass(Duration::from_millis(20));
        rig.sent(1);
    }
    let outputs = rig.receive(1, &response::<Part>("20", vec![any::<Part>("b", "z")]));
    assert_eq!(outputs, ["read", "send Part [a,b] 20/n20"]);
}

/// Cilium sends a name again on another stream alone.
#[test]
fn b1_22_a_name_that_was_sent_before_and_is_not_sent_again_is_requested_on_another_stream_once() {
    let mut rig = with_a_let_go();
    rig.watch::<Part>("a");
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(15)), ["disconnect 0.1", "connect 0.2"]);
    assert_eq!(rig.connect(2), ["read", "send Part [a,b] / node"]);
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_secs(20)), ["#3 absent NOT_FOUND"]);
}

/// The answer to a response is without a name that was let go and came back before it, and the next response lacks it.
#[test]
fn b1_22_a_name_that_was_left_out_of_an_ack_and_is_not_sent_again_is_requested_on_another_stream() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a", "b"]);
    let (a, b) = (|| any::<Full>("a", "x"), || any::<Full>("b", "y"));
    rig.receive(1, &response::<Full>("1", vec![a(), b()]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(watches[0]);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.watch::<Full>("a");
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("2", vec![a(), b()]));
    assert_eq!(outputs, ["#3 present 2 x", "read", "send Full [b] 2/n2"]);
    rig.sent(1);
    rig.receive(1, &response::<Full>("3", vec![b()]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.sent(1), NONE, "the server knows it");
    let outputs = rig.pass(Duration::from_secs(16));
    assert_eq!(outputs, ["disconnect 0.1", "connect 0.2"], "what is held is not lost");
    assert_eq!(rig.connect(2), ["read", "send Full [a,b] / node"]);
    rig.sent(2);
    assert_eq!(rig.receive(2, &response::<Full>("3", vec![b()]))[0], "#3 absent NOT_FOUND");
}

/// The wildcard was an empty list, and the server takes the `*` after it for a name: it knows what it has sent.
#[test]
fn b1_22_a_name_in_place_of_a_wildcard_that_is_not_sent_again_is_requested_on_another_stream() {
    let mut rig = Rig::new();
    let everything = rig.open::<Full>(&["*"])[0];
    let a = || any::<Full>("a", "x");
    rig.receive(1, &response::<Full>("1", vec![a()]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    let (missing, _) = rig.watch::<Full>("b");
    rig.sent(1);
    rig.pass(Duration::from_millis(5));
    rig.unwatch(everything);
    rig.unwatch(missing);
    rig.watch::<Full>("a");
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("2", vec![]));
    assert_eq!(outputs, ["read", "send Full [a] 2/n2"], "it has crossed the name");
    rig.sent(1);
    assert_eq!(
        rig.pass(Duration::from_secs(16)),
        ["disconnect 0.1", "connect 0.2"],
        "the name is known, and what is held is not lost"
    );
    assert_eq!(rig.connect(2), ["read", "send Full [a] / node"]);
    rig.sent(2);
    assert_eq!(rig.receive(2, &response::<Full>("2", vec![]))[0], "#3 absent NOT_FOUND");
}

#[test]
fn b1_22_the_same_in_the_incremental_variant() {
    use super::rig::delta_response;
    let mut rig = Rig::delta();
    let watches = rig.open::<Part>(&["a"]);
    rig.watch::<Part>("b");
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    rig.receive_raw(1, delta_response::<Part>("n1", &[("a", "1", Some("x")), ("b", "1", Some("y"))], &[]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(watches[0]);
    rig.sent(1);
    rig.pass(Duration::from_secs(20));
    rig.watch::<Part>("a");
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(15)), ["disconnect 0.1", "connect 0.2"]);
    assert_eq!(rig.connect(2), ["read", "send Part +a,b {b=1} node"]);
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_secs(20)), ["#3 absent NOT_FOUND"]);
}
