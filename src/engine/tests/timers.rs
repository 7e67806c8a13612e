//! The does-not-exist timers (A57-5, A57-6, A88-5), and the pace of answers to a server that repeats itself.

use std::time::Duration;

use super::rig::{Full, Part, Rig, any, delta_response, response, response_with_nonce};
use crate::{
    config::Server,
    engine::{Output, Timer},
    observed::Observed,
    pb::envoy::{config::core::v3::ControlPlane, service::discovery::v3::DiscoveryResponse},
    protocol::{self, DisconnectKind},
};

const NONE: Vec<String> = Vec::new();

#[test]
fn a57_5_the_timer_runs_from_the_request_that_was_written() {
    let mut rig = Rig::new();
    rig.watch::<Full>("a");
    assert_eq!(rig.pass(Duration::from_secs(100)), NONE, "not while there is no connection");
    rig.connect(1);
    assert_eq!(rig.pass(Duration::from_secs(100)), NONE, "not while the request is not taken");
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_millis(14_999)), NONE);
    assert_eq!(rig.pass(Duration::from_millis(1)), ["#1 absent NOT_FOUND"]);
    // It may come any time later (B0.22).
    assert_eq!(rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]))[0], "#1 present 1 x");
}

#[test]
fn a88_5_a_server_that_is_suspected_instead_has_30_s() {
    let server = Server::new("127.0.0.1:1").insecure().features(["resource_timer_is_transient_error"]);
    let mut rig = Rig::with(server);
    rig.open::<Full>(&["a"]);
    assert_eq!(rig.pass(Duration::from_secs(29)), NONE);
    assert_eq!(rig.pass(Duration::from_secs(1)), ["#1 absent UNAVAILABLE"]);
}

#[test]
fn a57_6_a_broken_stream_stops_the_timer_and_the_next_starts_it_for_what_is_missing() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a", "b"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.pass(Duration::from_secs(10));
    rig.disconnect(1, DisconnectKind::Closed);
    assert_eq!(rig.pass(Duration::from_secs(30)), ["connect 0.2"], "no timer while there is no stream");
    rig.connect(2);
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_secs(16)), ["#2 absent NOT_FOUND"], "and none for what is held");
}

#[test]
fn a57_6_what_timed_out_has_its_time_again_on_the_next_stream() {
    let server = Server::new("127.0.0.1:1").insecure().features(["resource_timer_is_transient_error"]);
    let mut rig = Rig::with(server);
    rig.open::<Full>(&["a"]);
    assert_eq!(rig.pass(Duration::from_secs(30)), ["#1 absent UNAVAILABLE"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("other", "x")]));
    rig.sent(1);
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    rig.connect(2);
    rig.sent(2);
    rig.pass(Duration::from_secs(10));
    let timer = rig.engine.poll_timeout();
    assert_eq!(
        timer,
        Some((rig.now + Duration::from_secs(20), Timer::Server(protocol::Timer::DoesNotExist)))
    );
    assert_eq!(rig.pass(Duration::from_secs(21)), NONE, "and an equal state is not published again");
}

#[test]
fn the_timer_of_a_name_that_came_or_went_does_nothing() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a", "b", "c"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "bad")]));
    rig.sent(1);
    rig.unwatch(watches[1]);
    let outputs = rig.pass(Duration::from_secs(16));
    assert_eq!(outputs, ["send Full [a,c] /n1", "#3 absent NOT_FOUND"], "one was rejected, one unwatched");
}

#[test]
fn a_name_that_is_watched_again_has_a_timer_of_its_own() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a", "b"]);
    rig.pass(Duration::from_secs(10));
    rig.unwatch(watches[0]);
    rig.sent(1);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.watch::<Full>("a").1, ["send Full [a,b] /"]);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(14)), ["#2 absent NOT_FOUND"]);
    assert_eq!(rig.pass(Duration::from_secs(1)), ["#3 absent NOT_FOUND"]);
}

#[test]
fn a_name_resubscribed_before_the_unsubscription_was_sent_has_the_whole_does_not_exist_timeout() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a", "b"]);
    rig.pass(Duration::from_secs(10));
    rig.unwatch(watches[1]);
    rig.watch::<Full>("b");
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(14)), ["#1 absent NOT_FOUND"]);
    assert_eq!(rig.pass(Duration::from_secs(1)), ["#3 absent NOT_FOUND"]);
}

#[test]
fn b1_13_what_is_missing_again_has_the_whole_time_whatever_it_had_before() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a", "b"]);
    rig.pass(Duration::from_secs(14));
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("b", "x")]));
    rig.sent(1);
    rig.unwatch(watches[1]);
    rig.watch::<Full>("b");
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    rig.receive(1, &response::<Full>("2", vec![]));
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(14)), ["#1 absent NOT_FOUND"]);
    // The server may only take it to be known.
    assert_eq!(rig.pass(Duration::from_secs(1)), ["disconnect 0.1", "connect 0.2"]);
    rig.connect(2);
    rig.sent(2);
    assert_eq!(rig.receive(2, &response::<Full>("2", vec![]))[0], "#3 absent NOT_FOUND");
}

#[test]
fn a_response_that_is_being_worked_off_wins_over_the_timer() {
    let mut rig = Rig::new();
    let names: Vec<_> = (0..40_000).map(|i| format!("r{i:05}")).collect();
    for name in &names {
        rig.watch::<Part>(name);
    }
    rig.connect(1);
    rig.sent(1);
    rig.pass(Duration::from_millis(14_999));
    let resources = names.iter().map(|name| any::<Part>(name, "x")).collect();
    let message = prost::Message::encode_to_vec(&response::<Part>("1", resources)).into();
    let input = protocol::StreamEvent::Received { stream: super::rig::stream(1), message, at: None };
    rig.engine.handle_input(input, rig.now);
    assert!(rig.drain().len() < names.len(), "it takes several steps");
    let outputs = rig.pass(Duration::from_secs(1));
    assert!(!outputs.iter().any(|outputs| outputs.contains("absent")), "nothing that came is given up");
    assert_eq!(outputs.last().map(|outputs| outputs.starts_with("send Part [r00000,")), Some(true));
}

/// What is wrong with resources that are given up in a while, as an operator reads it.
fn reasons(rig: &mut Rig, time: Duration) -> Vec<String> {
    rig.now += time;
    rig.engine.handle_timeout(rig.now);
    let outputs = std::iter::from_fn(|| rig.engine.poll_output());
    let reason = |output| {
        let Output::Notify { observed, .. } = output else { return None };
        let part = observed.downcast_ref::<Observed<Part>>().and_then(|seen| seen.error().cloned());
        part.or_else(|| observed.downcast_ref::<Observed<Full>>()?.error().cloned())
    };
    outputs.filter_map(reason).map(|error| format!("{}: {}", error.code(), error.reason())).collect()
}

const IN_TIME: &str = "NOT_FOUND: does not exist: xDS server 127.0.0.1:1 did not send it in time";
const USUAL: &str = "; is the name correct and visible to this node?";

#[test]
fn a_type_without_any_response_hints_at_servers_that_want_all_names() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a", "b"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    let (p, _) = rig.watch::<Part>("p");
    rig.sent(1);
    let outputs = reasons(&mut rig, Duration::from_secs(15));
    assert_eq!(outputs.len(), 2);
    assert_eq!(outputs[0], format!("{IN_TIME}{USUAL}"), "each response has all of its type");
    assert!(
        outputs[1]
            .starts_with(&format!("{IN_TIME}, nor any other resource of the type; is the name correct"))
    );
    let hint = "only to requests that name all resources of a type, as go-control-plane does in ADS mode";
    assert!(
        outputs[1].contains(hint) && outputs[1].contains("api_type AGGREGATED_DELTA_GRPC"),
        "{outputs:?}"
    );

    // It answers when there is nothing else, and no more when there is.
    rig.receive(1, &response::<Part>("1", vec![any::<Part>("p", "x")]));
    rig.sent(1);
    rig.pass(Duration::from_secs(1));
    rig.watch::<Part>("q");
    rig.sent(1);
    let outputs = reasons(&mut rig, Duration::from_secs(15));
    assert!(outputs.len() == 1 && outputs[0].contains(hint), "{outputs:?}");
    rig.unwatch(p);
}

#[test]
fn a_type_with_a_response_has_the_usual_hint_and_so_has_the_incremental_variant() {
    let mut rig = Rig::new();
    rig.open::<Part>(&["p", "q"]);
    rig.pass(Duration::from_millis(1));
    rig.receive(1, &response::<Part>("1", vec![any::<Part>("p", "x")]));
    rig.sent(1);
    // Timers may be late, too.
    assert_eq!(reasons(&mut rig, Duration::from_secs(20)), [format!("{IN_TIME}{USUAL}")]);
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a"]);
    rig.watch::<Part>("p");
    rig.sent(1);
    rig.receive_raw(1, delta_response::<Full>("1", &[("a", "1", Some("x"))], &[]));
    assert_eq!(reasons(&mut rig, Duration::from_secs(15)), [format!("{IN_TIME}{USUAL}")]);
}

/// istiod and others say who they are; go-control-plane does not.
#[test]
fn a_server_that_identifies_itself_is_not_suspected_to_want_all_names() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    let control_plane = ControlPlane { identifier: "istiod".to_owned() };
    let identified = DiscoveryResponse {
        control_plane: Some(control_plane),
        ..response::<Full>("1", vec![any::<Full>("a", "x")])
    };
    rig.receive(1, &identified);
    rig.sent(1);
    rig.watch::<Part>("p");
    rig.sent(1);
    assert_eq!(reasons(&mut rig, Duration::from_secs(15)), [format!("{IN_TIME}{USUAL}")]);
}

#[test]
fn one_deadline_serves_any_number_of_timers() {
    let mut rig = Rig::new();
    for i in 0..5_000 {
        rig.watch::<Part>(&format!("p{i}"));
    }
    rig.connect(1);
    rig.sent(1);
    let outputs = rig.pass(Duration::from_secs(15));
    assert_eq!(outputs.len(), 5_000);
    assert!(outputs.iter().all(|outputs| outputs.ends_with("absent NOT_FOUND")));
    assert_eq!(rig.engine.poll_timeout(), None, "and nothing is left to wait for");
}

#[test]
fn a_response_that_repeats_a_rejected_one_is_answered_with_growing_delays() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    let mut delays = Vec::new();
    let resources = [any::<Full>("a", "bad"), any::<Full>("c", "bad"), any::<Full>("d", "good")];
    for number in 0..12 {
        let nonce = format!("n{number}");
        // A server that iterates over a map sends them in another order each time.
        let mut resources = resources.to_vec();
        resources.rotate_left(number % 3);
        let outputs = rig.receive(1, &response_with_nonce::<Full>(("1", &nonce), resources));
        let requested = rig.now;
        let nack =
            |outputs: &[String]| outputs.iter().any(|outputs| outputs.contains(&format!("/{nonce} INVALID")));
        if !nack(&outputs) {
            let (due, _) = rig.engine.poll_timeout().unwrap();
            assert!(nack(&rig.pass(due - requested)));
        }
        delays.push((rig.now - requested).as_secs_f64());
        rig.sent(1);
    }
    assert_eq!(delays[0], 0.0, "the first at once");
    assert!(delays[1] > 0.1 && delays[11] > 7.0 && delays[11] <= 12.0, "{delays:?}");
    // Something else is answered at once.
    assert_eq!(rig.receive(1, &response::<Full>("x", vec![any::<Full>("a", "good")])).len(), 3);
}

#[test]
fn genuine_pushes_of_a_rejected_resource_are_answered_at_once() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    for version in 0..10 {
        let outputs = rig.receive(1, &response::<Full>(&version.to_string(), vec![any::<Full>("a", "bad")]));
        assert!(outputs.last().unwrap().contains("INVALID"), "{outputs:?}");
        rig.sent(1);
    }
    let outputs = rig.receive(1, &response::<Full>("11", vec![any::<Full>("a", "bad")]));
    assert_eq!(outputs, ["read"], "the burst is over");
    assert_eq!(rig.pass(Duration::from_secs(1)).len(), 1);
}

#[test]
fn an_acceptable_response_is_answered_at_once_while_a_nack_is_held_back() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    for nonce in ["n1", "n2"] {
        rig.receive(1, &response_with_nonce::<Full>(("1", nonce), vec![any::<Full>("a", "bad")]));
        rig.sent(1);
    }
    let outputs = rig.receive(1, &response::<Full>("3", vec![any::<Full>("a", "good")]));
    assert!(outputs[2].contains("/n2 INVALID"), "each response has its answer, in order: {outputs:?}");
    assert_eq!(rig.sent(1), ["send Full [a] 3/n3"]);
}

/// A server that waits for no answer could fill the memory with NACKs that have to wait.
#[test]
fn of_nacks_that_have_to_wait_the_newest_is_written_at_the_time_of_the_first() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    let push = |rig: &mut Rig, version: u32| {
        let bad = response::<Full>(&version.to_string(), vec![any::<Full>("a", "bad")]);
        let outputs = rig.receive(1, &bad);
        rig.sent(1);
        outputs
    };
    for version in 0..10 {
        assert!(push(&mut rig, version).last().unwrap().contains("INVALID"), "at once");
    }
    for version in 10..1_000 {
        assert_eq!(push(&mut rig, version), ["read"], "the burst is over");
    }
    let outputs = rig.pass(Duration::from_secs(1));
    assert_eq!(outputs.len(), 1);
    assert!(outputs[0].contains("/n999 INVALID"), "{outputs:?}");
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(60)), NONE, "none is left");
    assert!(
        push(&mut rig, 1_000).last().unwrap().contains("INVALID"),
        "those left out take nothing of the rate"
    );
}

#[test]
fn a_name_unsubscribed_and_resubscribed_before_a_request_has_a_does_not_exist_timer() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a", "b"]);
    rig.unwatch(watches[0]);
    rig.watch::<Full>("a");
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    let outputs = rig.pass(Duration::from_secs(16));
    assert_eq!(outputs, ["#2 absent NOT_FOUND", "#3 absent NOT_FOUND"]);
}
