//! From one server of an authority to the next, and back: A71, with what other clients get wrong.

use std::time::Duration;

use prost::Message;

use super::rig::{Full, Part, Rig, any, response, stream_to};
use crate::{
    config::{AuthorityBuilder, Bootstrap, Server},
    engine::{Output, Settings},
    observed::Observed,
    pb::envoy::service::discovery::v3::DiscoveryResponse,
    protocol::DisconnectKind,
};

const NONE: [&str; 0] = [];

const REFUSED: DisconnectKind = DisconnectKind::Unreachable;

/// A client with these servers for names of the older form.
fn rig(servers: usize) -> Rig {
    let servers = (1..=servers).map(|port| Server::new(format!("127.0.0.1:{port}")).insecure());
    let bootstrap = servers.fold(Bootstrap::builder(), |bootstrap, server| bootstrap.server(server));
    Rig::of(bootstrap.build().unwrap(), Settings::default())
}

/// Connects the stream to a server, and lets a request go.
fn open(rig: &mut Rig, server: u32, attempt: u64) -> Vec<String> {
    let outputs = rig.connect_to(stream_to(server, attempt));
    rig.sent_to(stream_to(server, attempt));
    outputs
}

fn receive(rig: &mut Rig, server: u32, attempt: u64, message: &DiscoveryResponse) -> Vec<String> {
    let outputs = rig.receive_from(stream_to(server, attempt), message.encode_to_vec());
    rig.sent_to(stream_to(server, attempt));
    outputs
}

fn refuse(rig: &mut Rig, server: u32, attempt: u64) -> Vec<String> {
    rig.disconnect_from(stream_to(server, attempt), REFUSED)
}

fn full(version: &str, resources: &[(&str, &str)]) -> DiscoveryResponse {
    response::<Full>(version, resources.iter().map(|(name, text)| any::<Full>(name, text)).collect())
}

fn part(version: &str, resources: &[(&str, &str)]) -> DiscoveryResponse {
    response::<Part>(version, resources.iter().map(|(name, text)| any::<Part>(name, text)).collect())
}

/// A client that watches `a` and `b`, and has them of the fallback, while attempt 2 of the primary is under way.
fn fallen_back() -> Rig {
    let mut rig = rig(2);
    rig.watch::<Full>("a");
    rig.watch::<Full>("b");
    assert_eq!(refuse(&mut rig, 0, 1), ["connect 1.1"]);
    assert_eq!(open(&mut rig, 1, 1), ["read", "send Full [a,b] / node"]);
    let outputs = receive(&mut rig, 1, 1, &full("f1", &[("a", "fa"), ("b", "fb")]));
    assert_eq!(outputs[..2], ["#1 present f1 fa", "#2 present f1 fb"]);
    assert_eq!(rig.pass(Duration::from_millis(1_201)), ["connect 0.2"]);
    rig
}

#[test]
fn a71_3_the_next_server_is_opened_for_uncached_resources_and_everything_is_requested_from_it() {
    let mut rig = rig(2);
    rig.watch::<Full>("a");
    open(&mut rig, 0, 1);
    receive(&mut rig, 0, 1, &full("1", &[("a", "x")]));
    rig.disconnect_from(stream_to(0, 1), DisconnectKind::Closed);
    rig.watch::<Part>("p");
    assert_eq!(rig.pass(Duration::from_secs(2)), ["connect 0.2"], "it ended, which is no failure yet");
    assert_eq!(refuse(&mut rig, 0, 2), ["connect 1.1"]);
    assert_eq!(rig.connect_to(stream_to(1, 1))[1], "send Full [a] / node");
    assert_eq!(rig.sent_to(stream_to(1, 1)), ["send Part [p] /"]);
    rig.sent_to(stream_to(1, 1));
    assert_eq!(receive(&mut rig, 1, 1, &part("7", &[("p", "y")]))[0], "#2 present 7 y");
}

#[test]
fn a71_3_nobody_falls_back_when_everything_is_cached_or_known_not_to_exist() {
    let mut rig = rig(2);
    rig.watch::<Full>("a");
    rig.watch::<Full>("b");
    open(&mut rig, 0, 1);
    receive(&mut rig, 0, 1, &full("1", &[("a", "x")]));
    assert_eq!(rig.pass(Duration::from_secs(15)), ["#2 absent NOT_FOUND"]);
    rig.disconnect_from(stream_to(0, 1), DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    assert_eq!(refuse(&mut rig, 0, 2), ["#1 present 1 x (UNAVAILABLE)"]);
}

#[test]
fn a71_3_a_watch_that_begins_while_the_primary_fails_opens_the_fallback() {
    let mut rig = rig(2);
    rig.watch::<Full>("a");
    open(&mut rig, 0, 1);
    receive(&mut rig, 0, 1, &full("1", &[("a", "x")]));
    rig.disconnect_from(stream_to(0, 1), DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    assert_eq!(refuse(&mut rig, 0, 2), ["#1 present 1 x (UNAVAILABLE)"]);
    let (_, outputs) = rig.watch::<Full>("b");
    assert_eq!(
        outputs,
        ["connect 1.1", "#1 present 1 x"],
        "and it is not known yet whether the server fails"
    );
    assert_eq!(open(&mut rig, 1, 1)[1], "send Full [a,b] / node");
}

#[test]
fn a71_4_an_error_is_published_when_the_last_server_has_failed_with_the_reason_of_each() {
    let mut rig = rig(3);
    rig.watch::<Full>("a");
    assert_eq!(refuse(&mut rig, 0, 1), ["connect 1.1"]);
    assert_eq!(refuse(&mut rig, 1, 1), ["connect 2.1"]);
    assert_eq!(refuse(&mut rig, 2, 1), ["#1 absent UNAVAILABLE"]);
    rig.watch::<Full>("b");
    let reason = rig.last_error();
    for server in ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"] {
        assert!(reason.contains(&format!("cannot connect to xDS server {server}: it broke")), "{reason}");
    }
}

#[test]
fn a71_5_the_first_resource_of_a_higher_server_ends_the_fallback_without_a_gap() {
    let mut rig = fallen_back();
    open(&mut rig, 0, 2);
    let outputs = receive(&mut rig, 0, 2, &full("1", &[("a", "pa"), ("b", "pb")]));
    assert_eq!(
        outputs,
        ["disconnect 1.1", "#1 present 1 pa", "#2 present 1 pb", "read", "send Full [a,b] 1/n1"],
        "the stream of the fallback is closed at once"
    );
    assert_eq!(rig.pass(Duration::from_secs(100)), NONE);
}

#[test]
fn a_response_without_a_subscribed_resource_does_not_end_the_fallback() {
    let mut rig = fallen_back();
    open(&mut rig, 0, 2);
    for response in [full("1", &[]), full("2", &[("other", "x")])] {
        let outputs = receive(&mut rig, 0, 2, &response);
        assert!(
            outputs.iter().all(|outputs| outputs.starts_with("send") || outputs == "read"),
            "{outputs:?}"
        );
    }
    assert_eq!(receive(&mut rig, 1, 1, &full("f2", &[("a", "fa2"), ("b", "fb")]))[0], "#1 present f2 fa2");
}

#[test]
fn a_resource_that_a_higher_server_did_not_send_before_the_fallback_did_is_removed_on_the_revert() {
    let mut rig = rig(2);
    rig.watch::<Full>("*");
    rig.watch::<Part>("p");
    refuse(&mut rig, 0, 1);
    rig.pass(Duration::from_secs(2));
    open(&mut rig, 0, 2);
    rig.sent_to(stream_to(0, 2));
    receive(&mut rig, 0, 2, &full("1", &[]));
    open(&mut rig, 1, 1);
    rig.sent_to(stream_to(1, 1));
    let outputs = receive(&mut rig, 1, 1, &full("f", &[("a", "fa")]));
    assert_eq!(outputs.last().unwrap(), "#1 {a: present f fa} complete");
    let outputs = receive(&mut rig, 0, 2, &part("2", &[("p", "y")]));
    assert!(outputs.contains(&"#1 {} complete".to_owned()), "{outputs:?}");
}

#[test]
fn a_higher_servers_failing_retries_are_silent_while_a_lower_one_serves() {
    let mut rig = fallen_back();
    for attempt in 2..8 {
        assert_eq!(refuse(&mut rig, 0, attempt), NONE, "attempt {attempt}");
        assert_eq!(rig.watch::<Full>("a").1.len(), 1, "what is there, and no warning");
        let outputs = rig.pass(Duration::from_secs(20));
        assert_eq!(outputs, [format!("connect 0.{}", attempt + 1)]);
    }
}

#[test]
fn a_watch_that_begins_during_the_fallback_lives_on_after_the_return() {
    let mut rig = fallen_back();
    assert_eq!(rig.watch::<Full>("c").1, ["send Full [a,b,c] f1/nf1"]);
    rig.sent_to(stream_to(1, 1));
    assert_eq!(open(&mut rig, 0, 2)[1], "send Full [a,b,c] / node", "the request to the primary has it, too");
    receive(&mut rig, 0, 2, &full("1", &[("a", "pa"), ("b", "pb"), ("c", "pc")]));
    assert_eq!(
        receive(&mut rig, 0, 2, &full("2", &[("a", "pa"), ("b", "pb"), ("c", "new")]))[0],
        "#3 present 2 new"
    );
}

#[test]
fn a_timer_of_the_primary_does_not_wipe_what_the_fallback_serves() {
    let mut rig = fallen_back();
    rig.watch::<Full>("c");
    rig.sent_to(stream_to(1, 1));
    open(&mut rig, 0, 2);
    receive(&mut rig, 1, 1, &full("f2", &[("a", "fa"), ("b", "fb"), ("c", "fc")]));
    let outputs = rig.pass(Duration::from_secs(30));
    assert_eq!(outputs, NONE, "the primary is silent");
}

#[test]
fn what_the_primary_has_not_sent_before_it_returned_is_deleted_only_when_it_had_its_time() {
    let mut rig = fallen_back();
    open(&mut rig, 0, 2);
    let outputs = receive(&mut rig, 0, 2, &full("1", &[("a", "pa")]));
    assert_eq!(outputs[..2], ["disconnect 1.1", "#1 present 1 pa"]);
    assert!(!outputs.iter().any(|outputs| outputs.starts_with("#2")), "{outputs:?}");
    assert_eq!(rig.pass(Duration::from_millis(14_999)), NONE);
    assert_eq!(rig.pass(Duration::from_millis(1)), ["#2 absent NOT_FOUND"]);
}

#[test]
fn a_resource_that_the_primary_did_not_send_in_time_is_absent_on_the_revert() {
    let mut rig = rig(2);
    rig.watch::<Part>("p");
    rig.watch::<Part>("q");
    refuse(&mut rig, 0, 1);
    refuse(&mut rig, 1, 1);
    rig.pass(Duration::from_millis(1_201));
    open(&mut rig, 0, 2);
    assert_eq!(refuse(&mut rig, 1, 2), NONE);
    let outputs = rig.pass(Duration::from_secs(15));
    assert_eq!(
        outputs[1..],
        ["#1 absent NOT_FOUND", "#2 absent NOT_FOUND"],
        "the fallback fails, so the primary counts"
    );
    let outputs = receive(&mut rig, 0, 2, &part("1", &[("p", "x")]));
    assert_eq!(outputs[..2], ["disconnect 1.3", "#1 present 1 x"]);
}

#[test]
fn a71_5_an_error_of_the_fallback_is_replaced_by_that_of_the_primary_on_the_revert() {
    let mut rig = rig(2);
    rig.watch::<Full>("a");
    rig.watch::<Full>("b");
    refuse(&mut rig, 0, 1);
    open(&mut rig, 1, 1);
    let outputs = receive(&mut rig, 1, 1, &full("f1", &[("a", "bad"), ("b", "fb")]));
    assert_eq!(outputs[..2], ["#1 absent INVALID_ARGUMENT", "#2 present f1 fb"]);
    rig.pass(Duration::from_millis(1_201));
    open(&mut rig, 0, 2);
    assert_eq!(rig.pass(Duration::from_secs(16)), NONE, "the fallback serves still");
    let outputs = receive(&mut rig, 0, 2, &full("1", &[("b", "pb")]));
    assert!(outputs.contains(&"#1 absent NOT_FOUND".to_owned()), "{outputs:?}");
}

#[test]
fn a_higher_server_returns_also_by_a_resource_that_is_rejected_and_the_last_good_stays() {
    let mut rig = fallen_back();
    open(&mut rig, 0, 2);
    let outputs = receive(&mut rig, 0, 2, &full("1", &[("a", "bad"), ("b", "pb")]));
    assert_eq!(outputs[..3], ["disconnect 1.1", "#1 present f1 fa (INVALID_ARGUMENT)", "#2 present 1 pb"]);
}

#[test]
fn what_a_server_sends_late_of_an_authority_that_has_left_it_is_answered_and_not_believed() {
    let mut rig = shared();
    rig.pass(Duration::from_millis(1_201));
    open(&mut rig, 1, 2);
    // The request that lets the name go is not on its way yet.
    rig.receive_from(stream_to(1, 2), full("p", &[(IN_A, "z")]).encode_to_vec());
    let outputs = receive(&mut rig, 0, 1, &full("3", &[("old", "x"), (IN_A, "late")]));
    assert_eq!(outputs, ["read"], "and the answer follows the request");
    assert_eq!(rig.watch::<Full>(IN_A).1, ["#3 present p z"]);
}

#[test]
fn a_wildcard_falls_back_and_returns_with_what_is_there() {
    let mut rig = rig(2);
    rig.watch::<Full>("*");
    assert_eq!(refuse(&mut rig, 0, 1), ["connect 1.1"]);
    assert_eq!(open(&mut rig, 1, 1)[1], "send Full [] / node");
    let outputs = receive(&mut rig, 1, 1, &full("f", &[("a", "fa"), ("b", "fb")]));
    assert_eq!(outputs[2], "#1 {a: present f fa, b: present f fb} complete");
    rig.pass(Duration::from_millis(1_201));
    open(&mut rig, 0, 2);
    let outputs = receive(&mut rig, 0, 2, &full("1", &[("b", "pb"), ("c", "pc")]));
    assert_eq!(outputs[0], "disconnect 1.1");
    assert_eq!(outputs.last().unwrap(), "#1 {b: present 1 pb, c: present 1 pc} complete");
}

/// A client whose authority `a` has fallen back onto the stream of names of the older form.
fn shared() -> Rig {
    let server = |port: u16| Server::new(format!("127.0.0.1:{port}")).insecure();
    let bootstrap = Bootstrap::builder()
        .server(server(1))
        .authority("a", AuthorityBuilder::default().server(server(2)).server(server(1)))
        .build()
        .unwrap();
    let mut rig = Rig::of(bootstrap, Settings::default());
    rig.watch::<Full>("old");
    rig.watch::<Full>(IN_A);
    open(&mut rig, 0, 1);
    receive(&mut rig, 0, 1, &full("1", &[("old", "x")]));
    let outputs = refuse(&mut rig, 1, 1);
    assert_eq!(outputs, [format!("send Full [old,{IN_A}] 1/n1")], "on the stream that is there");
    rig.sent_to(stream_to(0, 1));
    let outputs = receive(&mut rig, 0, 1, &full("2", &[("old", "x"), (IN_A, "y")]));
    assert_eq!(outputs[0], "#2 present 2 y");
    rig
}

const IN_A: &str = "xdstp://a/test.Full/x";

#[test]
fn an_authority_falls_back_and_returns_by_itself_on_a_stream_that_is_shared() {
    let mut rig = shared();
    rig.pass(Duration::from_millis(1_201));
    open(&mut rig, 1, 2);
    let outputs = receive(&mut rig, 1, 2, &full("p", &[(IN_A, "z")]));
    assert_eq!(outputs[0], "send Full [old] 2/n2", "only its names are unsubscribed there");
    assert_eq!(outputs[1], "#2 present p z");
}

#[test]
fn a95_1_an_authority_may_fall_back_although_everything_is_cached() {
    let server = |port: u16| Server::new(format!("127.0.0.1:{port}")).insecure();
    let authority = AuthorityBuilder::default().server(server(1)).server(server(2));
    let bootstrap = Bootstrap::builder()
        .server(server(9))
        .authority("a", authority.fallback_on_reachability_only())
        .build()
        .unwrap();
    let mut rig = Rig::of(bootstrap, Settings::default());
    rig.watch::<Full>("xdstp://a/test.Full/x");
    open(&mut rig, 0, 1);
    receive(&mut rig, 0, 1, &full("1", &[("xdstp://a/test.Full/x", "y")]));
    rig.disconnect_from(stream_to(0, 1), DisconnectKind::Closed);
    rig.pass(Duration::from_millis(1_201));
    assert_eq!(refuse(&mut rig, 0, 2), ["connect 1.1"]);
}

#[test]
fn without_watches_the_fallback_lingers_and_then_an_authority_begins_at_its_first_server_again() {
    for (pause, expected) in [(29, vec!["connect 0.3", "send Full [a] /nf1"]), (31, vec!["connect 0.3"])] {
        let mut rig = rig(2);
        let (a, _) = rig.watch::<Full>("a");
        refuse(&mut rig, 0, 1);
        open(&mut rig, 1, 1);
        receive(&mut rig, 1, 1, &full("f1", &[("a", "fa")]));
        rig.pass(Duration::from_secs(2));
        assert_eq!(rig.unwatch(a), ["send Full [] f1/nf1"]);
        rig.sent_to(stream_to(1, 1));
        assert_eq!(rig.engine.resources(), 0);
        refuse(&mut rig, 0, 2);
        let outputs = rig.pass(Duration::from_secs(pause));
        assert_eq!(outputs, if pause > 30 { vec!["disconnect 1.1"] } else { vec![] });
        assert_eq!(rig.watch::<Full>("a").1, expected, "after {pause} s");
    }
}

impl Rig {
    /// The reason why the watch that began last has nothing to show.
    fn last_error(&mut self) -> String {
        let watch_id = self.next_watch_id();
        let ty = crate::resource::ResourceType::of::<Full>();
        self.engine.subscribe(watch_id, ty, crate::engine::Selection::One("z".into()), self.now);
        let mut outputs = Vec::new();
        while let Some(output) = self.engine.poll_output() {
            if let Output::Notify { observed, .. } = output
                && let Some(Observed::Absent { reason }) = observed.downcast_ref::<Observed<Full>>()
            {
                outputs.push(reason.to_string());
            }
        }
        outputs.pop().expect("something is absent")
    }
}

#[test]
fn a_wildcard_that_is_watched_again_before_the_fallback_knew_of_its_end_is_complete() {
    let mut rig = rig(2);
    let (watch_id, _) = rig.watch::<Full>("*");
    refuse(&mut rig, 0, 1);
    open(&mut rig, 1, 1);
    assert!(receive(&mut rig, 1, 1, &full("f", &[])).contains(&"#1 {} complete".to_owned()));
    rig.pass(Duration::from_secs(2));
    assert_eq!(open(&mut rig, 0, 2), ["read", "send Full [] / node"]);
    // A request to the fallback is under way, so that the end of the wildcard waits; the primary cannot be notified of it.
    assert!(rig.watch::<Part>("p").1.contains(&"send Part [p] /".to_owned()));
    rig.unwatch(watch_id);
    rig.sent_to(stream_to(0, 2));
    let (_, outputs) = rig.watch::<Full>("*");
    assert!(outputs.contains(&"#3 {} complete".to_owned()), "{outputs:?}");
}

#[test]
fn a_wildcard_is_complete_on_the_revert_to_a_server_that_was_sent_its_version() {
    let mut rig = rig(2);
    rig.watch::<Full>("*");
    rig.watch::<Part>("p");
    refuse(&mut rig, 0, 1);
    open(&mut rig, 1, 1);
    rig.pass(Duration::from_secs(2));
    open(&mut rig, 0, 2);
    // It has no member, so that it may have nothing to send on the next stream.
    receive(&mut rig, 0, 2, &full("1", &[]));
    rig.disconnect_from(stream_to(0, 2), DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    assert_eq!(open(&mut rig, 0, 3), ["read", "send Full [] 1/ node"]);
    rig.sent_to(stream_to(0, 3));
    let outputs = receive(&mut rig, 0, 3, &part("1", &[("p", "x")]));
    assert!(outputs.contains(&"#1 {} complete".to_owned()), "{outputs:?}");
}

/// What the fallback has rejected beside a resource of the primary is not in its version. Found by the simulation of operations: seed 22,619.
#[test]
fn b1_21_no_version_is_claimed_of_which_a_part_was_rejected_beside_the_resource_of_another_server() {
    let mut rig = rig(2);
    rig.watch::<Part>("a");
    open(&mut rig, 0, 1);
    receive(&mut rig, 0, 1, &part("1", &[("a", "x")]));
    rig.watch::<Part>("b");
    rig.pass(Duration::from_millis(20));
    assert!(refuse(&mut rig, 0, 1).contains(&"connect 1.1".to_owned()));
    open(&mut rig, 1, 1);
    receive(&mut rig, 1, 1, &part("f1", &[("a", "bad")]));
    let outputs = receive(&mut rig, 1, 1, &part("f1", &[("b", "y")]));
    assert!(outputs.contains(&"send Part [a,b] f1/nf1".to_owned()), "{outputs:?}");
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.watch::<Part>("c").1, ["send Part [a,b,c] /nf1"]);
}

/// Found by the fuzzer of operations.
#[test]
fn b1_23_what_a_fallback_has_sent_does_not_stay_where_the_wildcard_stands_for_its_name() {
    let mut rig = rig(2);
    rig.watch::<Full>("*");
    rig.watch::<Full>("c");
    open(&mut rig, 0, 1);
    let two = full("1", &[("a", "x"), ("b", "y")]);
    let outputs = receive(&mut rig, 0, 1, &two);
    assert!(outputs.contains(&"send Full [*,c] 1/n1".to_owned()), "{outputs:?}");
    let outputs = rig.pass(Duration::from_secs(15));
    assert!(outputs.contains(&"connect 0.2".to_owned()), "it takes the wildcard for a name: {outputs:?}");
    refuse(&mut rig, 0, 2);
    rig.watch::<Full>("d");
    open(&mut rig, 1, 1);
    receive(&mut rig, 1, 1, &full("f", &[("a", "fa"), ("b", "fb"), ("d", "fd")]));
    let outputs = rig.pass(Duration::from_secs(2));
    assert!(outputs.contains(&"connect 0.3".to_owned()), "{outputs:?}");
    assert_eq!(open(&mut rig, 0, 3), ["read", "send Full [] / node"]);
    rig.watch::<Full>("e");
    rig.sent_to(stream_to(1, 1));
    let all = full("g", &[("a", "fa"), ("b", "fb"), ("d", "fd"), ("e", "fe")]);
    let outputs = receive(&mut rig, 1, 1, &all);
    assert!(outputs.contains(&"#4 present g fe".to_owned()), "{outputs:?}");
    let outputs = receive(&mut rig, 0, 3, &two);
    assert!(outputs.contains(&"disconnect 1.1".to_owned()), "{outputs:?}");
    let outputs = rig.pass(Duration::from_secs(16));
    assert!(outputs.contains(&"#4 absent NOT_FOUND".to_owned()), "{outputs:?}");
}
