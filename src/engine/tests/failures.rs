//! Streams that do not come about or end: A57, and the decisions on connectivity.

use std::time::Duration;

use super::rig::{Full, Part, Rig, any, response};
use crate::{error::Code, protocol::DisconnectKind};

const NONE: Vec<String> = Vec::new();

/// A rig that holds `a` and waits for `b`.
fn holding() -> Rig {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a", "b"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig
}

#[test]
fn a57_1_no_connection_is_an_error_for_every_watch_and_for_who_joins() {
    let mut rig = Rig::new();
    rig.watch::<Full>("a");
    assert_eq!(rig.disconnect(1, DisconnectKind::Unreachable), ["#1 absent UNAVAILABLE"]);
    assert_eq!(rig.watch::<Full>("b").1, ["#2 absent UNAVAILABLE"]);
    assert_eq!(rig.pass(Duration::from_secs(2)), ["connect 0.2"]);
    assert_eq!(rig.disconnect(2, DisconnectKind::Unreachable), NONE, "the same error is published once");
    rig.pass(Duration::from_secs(3));
    assert_eq!(rig.disconnect(3, DisconnectKind::Closed), ["#1 absent UNAVAILABLE", "#2 absent UNAVAILABLE"]);
}

#[test]
fn a57_2_the_end_of_a_stream_that_gave_a_response_is_no_error() {
    for kind in [DisconnectKind::Closed, DisconnectKind::Failed(Code::Unavailable)] {
        let mut rig = holding();
        assert_eq!(rig.disconnect(1, kind), NONE);
        assert_eq!(rig.pass(Duration::from_millis(799)), NONE, "no stampede on a restarted server");
        assert_eq!(rig.pass(Duration::from_millis(402)), ["connect 0.2"]);
    }
}

#[test]
fn a_stream_without_a_response_is_an_error_and_the_first_response_clears_it_everywhere() {
    let mut rig = holding();
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    rig.connect(2);
    rig.sent(2);
    let outputs = rig.disconnect(2, DisconnectKind::Failed(Code::Unavailable));
    assert_eq!(outputs, ["#1 present 1 x (UNAVAILABLE)", "#2 absent UNAVAILABLE"]);
    assert_eq!(rig.watch::<Full>("a").1, ["#3 present 1 x (UNAVAILABLE)"]);
    rig.watch::<Part>("p");
    rig.pass(Duration::from_secs(2));
    rig.connect(3);
    rig.sent(3);
    rig.sent(3);
    // Of another type, and nothing new: the server is there again.
    let outputs = rig.receive(3, &response::<Part>("1", vec![]));
    assert_eq!(outputs[..2], ["#1 present 1 x", "#3 present 1 x"]);
}

#[test]
fn backoff_grows_without_responses_and_is_reset_by_one() {
    let mut rig = Rig::new();
    rig.watch::<Full>("a");
    let mut expected: f64 = 1.0;
    for attempt in 1..=12 {
        rig.disconnect(attempt, DisconnectKind::Unreachable);
        let since = rig.now;
        let (due, _) = rig.engine.poll_timeout().unwrap();
        let delay = (due - since).as_secs_f64();
        assert!((expected * 0.79..=expected * 1.21).contains(&delay), "{delay} after attempt {attempt}");
        assert_eq!(rig.pass(due - since), [format!("connect 0.{}", attempt + 1)]);
        expected = (expected * 1.6).min(120.0);
    }
    rig.connect(13);
    rig.sent(13);
    rig.receive(13, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.disconnect(13, DisconnectKind::Closed);
    assert_eq!(rig.pass(Duration::from_millis(1_201)), ["connect 0.14"]);
}

#[test]
fn a_message_over_the_limit_is_an_error_with_the_limit_and_its_setting_also_after_a_response() {
    let mut rig = holding();
    let outputs = rig.disconnect(1, DisconnectKind::TooLarge { limit: 1000 });
    assert_eq!(outputs, ["#1 present 1 x (RESOURCE_EXHAUSTED)", "#2 absent RESOURCE_EXHAUSTED"]);
    let failure = rig.engine.authorities.server(crate::protocol::ServerId(0)).failure.as_ref().unwrap();
    let text = format!("{failure:?}");
    assert!(text.contains("limit of 1000 bytes") && text.contains("max_message_size"), "{text}");
}

#[test]
fn too_many_pings_double_the_interval_and_are_no_error() {
    let mut rig = Rig::new();
    rig.watch::<Full>("a");
    let keepalive = |rig: &Rig| {
        rig.engine.authorities.server(crate::protocol::ServerId(0)).machine.stream().keepalive().as_secs()
    };
    for (attempt, seconds) in [(1, 60), (2, 120), (3, 240), (4, 300), (5, 300)] {
        rig.connect(attempt);
        assert_eq!(rig.disconnect(attempt, DisconnectKind::TooManyPings), NONE);
        assert_eq!(keepalive(&rig), seconds);
        rig.pass(Duration::from_secs(60));
    }
}

#[test]
fn the_state_of_a_resource_is_shown_rather_than_the_server_error() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a", "b"]);
    rig.pass(Duration::from_secs(15));
    assert_eq!(rig.disconnect(1, DisconnectKind::Closed), NONE, "still known not to exist");
}

#[test]
fn interest_changes_are_taken_while_there_is_no_stream() {
    let mut rig = Rig::new();
    let (a, _) = rig.watch::<Full>("a");
    rig.disconnect(1, DisconnectKind::Unreachable);
    assert_eq!(rig.unwatch(a), NONE);
    assert_eq!(rig.engine.resources(), 0);
    assert_eq!(rig.pass(Duration::from_secs(100)), NONE, "without subscriptions there is no connection");
    assert_eq!(rig.watch::<Full>("b").1, ["connect 0.2"], "and the failure is forgotten");
}

#[test]
fn a_response_in_work_when_its_stream_ends_still_counts() {
    let mut rig = Rig::new();
    let names: Vec<_> = (0..40_000).map(|i| format!("r{i:05}")).collect();
    for name in &names {
        rig.watch::<Part>(name);
    }
    rig.connect(1);
    rig.sent(1);
    let resources = names.iter().map(|name| any::<Part>(name, "x")).collect();
    let message = prost::Message::encode_to_vec(&response::<Part>("1", resources)).into();
    rig.engine.handle_input(
        crate::protocol::StreamEvent::Received { stream: super::rig::stream(1), message, at: None },
        rig.now,
    );
    rig.drain();
    rig.disconnect(1, DisconnectKind::Closed);
    let outputs = rig.pass(Duration::from_secs(2));
    assert_eq!(outputs.iter().filter(|outputs| outputs.contains("present 1 x")).count(), names.len());
    assert!(rig.connect(2)[1].contains("] 1/ node"), "and so does its version");
}

#[test]
fn the_same_failure_after_a_recovery_is_published_once_to_watches_that_still_wait() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    assert_eq!(rig.disconnect(1, DisconnectKind::Closed), ["#1 absent UNAVAILABLE"]);
    rig.pass(Duration::from_secs(2));
    rig.connect(2);
    rig.sent(2);
    rig.receive(2, &response::<Full>("1", vec![]));
    rig.sent(2);
    rig.disconnect(2, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    rig.connect(3);
    assert_eq!(rig.disconnect(3, DisconnectKind::Closed), NONE);
}
