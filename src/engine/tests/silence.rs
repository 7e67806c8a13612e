//! Servers that accept connections or streams and do not answer: frozen ones, those that do not know a type, and those that have
//! nothing for a wildcard.

use std::time::Duration;

use prost::Message;

use super::rig::{Full, Part, Rig, any, delta_response, response, stream, stream_to};
use crate::{
    config::{AuthorityBuilder, Bootstrap, Server},
    engine::Settings,
    error::Code,
    protocol::{DisconnectKind, StreamEvent},
};

const NONE: [&str; 0] = [];

const BROKEN: DisconnectKind = DisconnectKind::Failed(Code::Unavailable);

/// A client with a fallback that has `a`, and whose connection to the first server broke.
fn broken() -> Rig {
    let mut rig = fallback_rig();
    rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    assert_eq!(rig.disconnect(1, BROKEN), NONE);
    assert_eq!(rig.pass(Duration::from_secs(5)), ["connect 0.2"]);
    rig
}

/// A client with a fallback.
fn fallback_rig() -> Rig {
    let servers = (1..=2).map(|port| Server::new(format!("127.0.0.1:{port}")).insecure());
    let bootstrap = servers.fold(Bootstrap::builder(), |bootstrap, server| bootstrap.server(server));
    Rig::of(bootstrap.build().unwrap(), Settings::default())
}

/// MS2: the kernel of a frozen server accepts connections.
#[test]
fn a57_a_stream_of_which_nothing_was_read_is_a_failure_when_it_ends() {
    let mut rig = broken();
    rig.connect_to_silence(stream(2));
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_secs(40)), NONE, "everything is held");
    assert_eq!(rig.disconnect(2, BROKEN), ["#1 present 1 x (UNAVAILABLE)"]);
}

#[test]
fn a57_a_stream_on_which_nothing_is_due_is_a_good_one_once_something_was_read() {
    let mut rig = broken();
    rig.connect(2);
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_secs(40)), NONE);
    assert_eq!(rig.disconnect(2, BROKEN), NONE);
}

#[test]
fn a57_a_stream_is_a_good_one_as_soon_as_nothing_is_due_any_more() {
    let mut rig = Rig::delta();
    rig.watch::<Full>("a");
    rig.connect(1);
    rig.sent(1);
    rig.receive_raw(1, delta_response::<Full>("1", &[("a", "1", Some("x"))], &[]));
    rig.sent(1);
    rig.disconnect(1, DisconnectKind::Unreachable);
    let (other, _) = rig.watch::<Full>("b");
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.connect(2), ["read", "send Full +a,b {a=1} node"]);
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_secs(10)), NONE, "an answer for b is due");
    assert_eq!(
        rig.unwatch(other)[0],
        "#1 present 1 x",
        "a is known to the server, which has nothing to send"
    );
}

#[test]
fn a57_5_a_frozen_server_is_left_for_the_fallback_and_proves_nothing_of_what_exists() {
    let mut rig = broken();
    rig.connect_to_silence(stream(2));
    rig.sent(2);
    rig.watch::<Full>("b");
    rig.pass(Duration::from_millis(20));
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_secs(15)), ["connect 1.1", "disconnect 0.2"]);
    let outputs = rig.connect_to(stream_to(1, 1));
    assert_eq!(outputs, ["read", "send Full [a,b] / node"]);
}

/// The keepalive ends the stream on which a type was first requested, and the one that the kernel accepted after it.
#[test]
fn a57_5_a_frozen_server_is_left_for_the_fallback_with_a_type_that_it_never_answered() {
    let mut rig = fallback_rig();
    rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.watch::<Part>("p");
    rig.sent(1);
    assert_eq!(rig.disconnect(1, BROKEN), NONE);
    assert_eq!(rig.pass(Duration::from_secs(3)), ["connect 0.2"]);
    rig.connect_to_silence(stream(2));
    rig.sent(2);
    rig.sent(2);
    assert_eq!(rig.disconnect(2, BROKEN), ["connect 1.1"]);
}

#[test]
fn a57_5_without_a_fallback_a_frozen_server_is_unavailable() {
    let mut rig = Rig::new();
    rig.watch::<Full>("a");
    rig.connect_to_silence(stream(1));
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(15)), ["#1 absent UNAVAILABLE", "disconnect 0.1"]);
}

/// It may answer PINGs for ever.
#[test]
fn a_server_that_announces_the_end_of_the_connection_and_never_answers_is_left_after_the_does_not_exist_time()
{
    let mut rig = fallback_rig();
    rig.watch::<Full>("a");
    rig.connect(1);
    rig.sent(1);
    rig.pass(Duration::from_secs(3));
    assert_eq!(rig.input(StreamEvent::GoingAway { stream: stream(1) }), NONE);
    let outputs = rig.pass(Duration::from_secs(12));
    assert_eq!(outputs, ["connect 1.1", "disconnect 0.1"], "the silence proves nothing of a");
}

#[test]
fn a_server_that_has_nothing_new_and_announces_the_end_of_the_connection_is_left_without_an_error() {
    let mut rig = broken();
    rig.connect(2);
    rig.sent(2);
    rig.pass(Duration::from_secs(40));
    rig.input(StreamEvent::GoingAway { stream: stream(2) });
    rig.pass(Duration::from_secs(3));
    rig.input(StreamEvent::GoingAway { stream: stream(2) });
    assert_eq!(rig.pass(Duration::from_millis(11_999)), NONE, "the first announcement counts");
    assert_eq!(rig.pass(Duration::from_millis(1)), ["disconnect 0.2"]);
    assert_eq!(rig.pass(Duration::from_secs(2)), ["connect 0.3"]);
}

#[test]
fn a_server_that_has_answered_and_announces_the_end_of_the_connection_ends_it_itself() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    rig.input(StreamEvent::GoingAway { stream: stream(1) });
    assert_eq!(rig.pass(Duration::from_secs(100)), NONE);
}

/// Number 20.
#[test]
fn streams_that_end_by_a_message_over_the_limit_are_made_ever_more_rarely() {
    let mut rig = Rig::new();
    rig.watch::<Full>("a");
    let mut attempts = 0;
    let until = rig.now + Duration::from_secs(60);
    while rig.now < until {
        attempts += 1;
        rig.connect(attempts);
        rig.sent(attempts);
        rig.receive(attempts, &response::<Full>("1", vec![any::<Full>("a", "x")]));
        rig.disconnect(attempts, DisconnectKind::TooLarge { limit: 1 });
        let (at, _) = rig.engine.poll_timeout().unwrap();
        rig.pass(at - rig.now);
    }
    assert!(attempts < 12, "{attempts} streams in a minute");
}

/// Half a minute of a server that ends the stream when a `Part` is requested, and answers the first request for a `Full` if it
/// has one. Begins with what is `outputs` on a stream; gives what was seen, and how many streams there were.
fn without_part(
    rig: &mut Rig,
    (mut outputs, mut attempt): (Vec<String>, u64),
    full: Option<&str>,
) -> (Vec<String>, u64) {
    let mut seen = vec![];
    let until = rig.now + Duration::from_secs(30);
    while rig.now < until {
        let request = outputs.iter().find(|outputs| outputs.starts_with("send")).cloned();
        seen.extend(outputs.drain(..).filter(|outputs| outputs.starts_with('#')));
        outputs = match request {
            Some(request) if request.starts_with("send Part") => {
                let mut outputs = rig.disconnect(attempt, DisconnectKind::Failed(Code::Unimplemented));
                while !outputs.iter().any(|outputs| outputs.starts_with("connect 0")) {
                    let (at, _) = rig.engine.poll_timeout().unwrap();
                    outputs.extend(rig.pass(at.saturating_duration_since(rig.now)));
                }
                attempt += 1;
                outputs.extend(rig.connect(attempt));
                outputs
            }
            Some(request) if request.contains(" / ") || request.ends_with(" /") => {
                let mut outputs = rig.sent(attempt);
                let response = full.map(|name| response::<Full>("1", vec![any::<Full>(name, "x")]));
                outputs.extend(response.into_iter().flat_map(|response| rig.receive(attempt, &response)));
                outputs
            }
            Some(_) => rig.sent(attempt),
            None => rig.pass(Duration::from_millis(100)),
        };
    }
    (seen, attempt)
}

/// MS3: a server that ends the stream when the type that is requested first is requested.
#[test]
fn a_type_for_which_the_server_ends_the_stream_is_held_back_so_that_others_are_served() {
    let mut rig = Rig::new();
    rig.watch::<Part>("unknown");
    rig.watch::<Full>("a");
    let outputs = rig.connect(1);
    let (seen, attempt) = without_part(&mut rig, (outputs, 1), Some("a"));
    assert!(seen.contains(&"#2 present 1 x".to_owned()), "{seen:?}");
    assert!(attempt < 8, "{attempt} streams in half a minute");
    assert_eq!(rig.watch::<Part>("other").1, ["#3 absent UNAVAILABLE"], "of a type that is held back");
    assert!(seen.iter().any(|seen| seen == "#1 absent UNAVAILABLE"), "{seen:?}");
}

/// Found by the simulation of operations: seed 58 with `UnknownType`.
#[test]
fn a_type_is_held_back_by_a_server_that_has_nothing_new_of_the_others() {
    let mut rig = Rig::delta();
    rig.open::<Full>(&["a"]);
    rig.receive_raw(1, delta_response::<Full>("n", &[("a", "1", Some("x"))], &[]));
    rig.sent(1);
    let (_, outputs) = rig.watch::<Part>("unknown");
    let (seen, attempt) = without_part(&mut rig, (outputs, 1), None);
    assert!(attempt < 8, "{attempt} streams in half a minute");
    let warned = seen.iter().rposition(|seen| seen.contains("#1 present 1 x (UNAVAILABLE)"));
    let fine = seen.iter().rposition(|seen| seen == "#1 present 1 x");
    assert!(fine > warned, "{seen:?}");
}

#[test]
fn a_wildcard_of_a_type_that_is_held_back_has_a_warning_at_once() {
    let mut rig = Rig::new();
    rig.watch::<Part>("unknown");
    rig.watch::<Full>("a");
    let outputs = rig.connect(1);
    without_part(&mut rig, (outputs, 1), Some("a"));
    assert_eq!(rig.watch::<Part>("*").1, ["#3 {} incomplete (UNAVAILABLE)"]);
}

/// Found by the simulation of operations: seed 124 with `UnknownType`.
#[test]
fn a_type_that_the_primary_holds_back_is_an_error_with_its_return() {
    let servers = [1, 2].map(|port| Server::new(format!("127.0.0.1:{port}")).insecure());
    let bootstrap =
        servers.into_iter().fold(Bootstrap::builder(), |bootstrap, server| bootstrap.server(server));
    let mut rig = Rig::of(bootstrap.build().unwrap(), Settings::default());
    rig.watch::<Part>("unknown");
    rig.watch::<Full>("a");
    let outputs = rig.connect(1);
    let (_, attempt) = without_part(&mut rig, (outputs, 1), Some("a"));
    rig.disconnect(attempt, BROKEN);
    rig.pass(Duration::from_secs(2));
    rig.disconnect(attempt + 1, DisconnectKind::Unreachable);
    rig.watch::<Full>("b");
    assert_eq!(rig.watch::<Part>("x").1, NONE);
    rig.pass(Duration::from_secs(5));
    rig.connect(attempt + 2);
    rig.sent(attempt + 2);
    let outputs = rig.receive(attempt + 2, &response::<Full>("2", vec![any::<Full>("b", "x")]));
    assert!(outputs.contains(&"#4 absent UNAVAILABLE".to_owned()), "{outputs:?}");
}

/// Found by the simulation of operations: seed 1 with `UnknownType`.
#[test]
fn a_type_that_is_held_back_at_a_fallback_is_an_error_that_is_published_once() {
    let servers = [1, 2].map(|port| Server::new(format!("127.0.0.1:{port}")).insecure());
    let authority = AuthorityBuilder::default().server(servers[1].clone());
    let bootstrap =
        servers.into_iter().fold(Bootstrap::builder(), |bootstrap, server| bootstrap.server(server));
    let mut rig = Rig::of(bootstrap.authority("b", authority).build().unwrap(), Settings::default());
    rig.watch::<Part>("xdstp://b/test.Part/unknown");
    rig.watch::<Full>("xdstp://b/test.Full/a");
    let outputs = rig.connect(1);
    without_part(&mut rig, (outputs, 1), Some("xdstp://b/test.Full/a"));
    let primary = |attempt| stream_to(1, attempt);
    rig.watch::<Full>("a");
    rig.connect_to(primary(1));
    rig.sent_to(primary(1));
    rig.receive_from(primary(1), response::<Full>("1", vec![any::<Full>("a", "x")]).encode_to_vec());
    rig.disconnect_from(primary(1), BROKEN);
    rig.pass(Duration::from_secs(2));
    rig.disconnect_from(primary(2), DisconnectKind::Unreachable);
    let outputs = ["#4 absent UNAVAILABLE", "send Full [a,xdstp://b/test.Full/a] 1/", "#3 present 1 x"];
    assert_eq!(rig.watch::<Part>("x").1, outputs);
}

/// MS5: the wildcard that has an empty answer.
#[test]
fn a_wildcard_that_is_answered_without_members_is_complete_and_empty_at_once() {
    for delta in [false, true] {
        let mut rig = if delta { Rig::delta() } else { Rig::new() };
        rig.open::<Full>(&["*"]);
        let outputs = match delta {
            true => rig.receive_raw(1, delta_response::<Full>("n", &[], &[])),
            false => rig.receive(1, &response::<Full>("1", vec![])),
        };
        assert_eq!(outputs.last().unwrap(), "#1 {} complete");
    }
}

/// MS5: the wildcard that has no answer.
#[test]
fn a_wildcard_that_is_not_answered_has_a_warning_until_it_is() {
    for delta in [false, true] {
        let mut rig = if delta { Rig::delta() } else { Rig::new() };
        rig.open::<Full>(&["*"]);
        assert_eq!(rig.pass(Duration::from_millis(14_999)), NONE);
        assert_eq!(rig.pass(Duration::from_millis(1)), ["#1 {} incomplete (UNAVAILABLE)"]);
        assert_eq!(rig.pass(Duration::from_secs(600)), NONE);
        let (joined, outputs) = rig.watch::<Full>("*");
        assert_eq!(
            outputs.last().unwrap(),
            "#2 {} incomplete (UNAVAILABLE)",
            "a watch that joins is notified as well"
        );
        rig.unwatch(joined);
        let outputs = match delta {
            true => rig.receive_raw(1, delta_response::<Full>("n", &[("a", "1", Some("x"))], &[])),
            false => rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")])),
        };
        assert_eq!(outputs.last().unwrap(), "#1 {a: present 1 x} complete");
    }
}

#[test]
fn a_wildcard_that_the_first_server_did_not_answer_has_that_warning_with_the_return_of_the_server() {
    let mut rig = fallback_rig();
    rig.watch::<Full>("*");
    assert_eq!(rig.disconnect(1, DisconnectKind::Unreachable)[0], "connect 1.1");
    let fallback = |attempt| stream_to(1, attempt);
    rig.disconnect_from(fallback(1), DisconnectKind::Unreachable);
    rig.pass(Duration::from_secs(2));
    rig.connect(2);
    rig.sent(2);
    rig.pass(Duration::from_secs(30));
    rig.watch::<Part>("x");
    rig.sent(2);
    let outputs = rig.receive(2, &response::<Part>("1", vec![any::<Part>("x", "x")]));
    assert_eq!(
        outputs.iter().rfind(|outputs| outputs.starts_with("#1")).unwrap(),
        "#1 {} incomplete (UNAVAILABLE)"
    );
}
