//! Times to live, in both variants of the protocol: rules B1.17 to B1.20, B2.16, B2.25 and B2.26.

mod timed;

use std::time::Duration;

use prost::Message;

use self::timed::*;
use super::rig::{Full, Part, stream_to};
use crate::{
    cache::ResourceState,
    config::{Bootstrap, Server},
    engine::Timer,
    pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource as Wrapper},
    protocol::{DisconnectKind, StreamEvent},
    resource::Resource,
};

#[test]
fn b1_17_a_resource_expires_and_is_still_subscribed_to() {
    in_both(|mut timed| {
        timed.open::<Part>(&["a"]);
        assert_eq!(timed.accept::<Part>(&[whole("a", "1").ttl(30)]), ["#1 present 1 1"]);
        assert_eq!(timed.pass(29), NONE);
        assert_eq!(timed.pass(1), ["#1 absent NOT_FOUND"]);
        assert_eq!(timed.pass(3600), NONE);
        assert_eq!(timed.accept::<Part>(&[whole("a", "2").ttl(30)]), ["#1 present 2 2"]);
        assert_eq!(timed.pass(30), ["#1 absent NOT_FOUND"]);
    });
}

#[test]
fn b2_25_an_expired_resource_comes_back_though_bytes_and_version_are_the_same() {
    in_both(|mut timed| {
        timed.open::<Full>(&["a"]);
        timed.accept::<Full>(&[whole("a", "1").ttl(30)]);
        assert_eq!(timed.pass(30), ["#1 absent NOT_FOUND"]);
        assert_eq!(timed.accept::<Full>(&[whole("a", "1").ttl(30)]), ["#1 present 1 1"]);
    });
}

#[test]
fn the_reason_names_the_server_and_the_resource() {
    in_both(|mut timed| {
        timed.open::<Part>(&["a"]);
        timed.accept::<Part>(&[whole("a", "1").ttl(30)]);
        timed.pass(30);
        let status = timed.rig.engine.status();
        let report = &status.resources[0];
        assert_eq!(report.state, ResourceState::DoesNotExist);
        let error = report.ambient_error.as_ref().expect("a reason").error.to_string();
        assert!(error.contains("TTL expired: xDS server 127.0.0.1:1"), "{error}");
        assert!(error.contains("\"a\""), "{error}");
    });
}

#[test]
fn b1_18_b2_16_a_heartbeat_extends_the_time_to_live_and_notifies_no_watch() {
    in_both(|mut timed| {
        timed.open::<Part>(&["a"]);
        timed.accept::<Part>(&[whole("a", "1").ttl(30)]);
        for _ in 0..5 {
            assert_eq!(timed.pass(20), NONE);
            assert_eq!(timed.accept::<Part>(&[heartbeat("a", "1").ttl(30)]), NONE);
        }
        assert_eq!(timed.until_expiry(), Some(30));
        assert_eq!(timed.accept::<Part>(&[heartbeat("a", "1").ttl(90)]), NONE);
        assert_eq!(timed.pass(89), NONE);
        assert_eq!(timed.pass(1), ["#1 absent NOT_FOUND"]);
    });
}

#[test]
fn b2_16_a_heartbeat_without_a_time_to_live_ends_it() {
    in_both(|mut timed| {
        timed.open::<Part>(&["a"]);
        timed.accept::<Part>(&[whole("a", "1").ttl(30)]);
        assert_eq!(timed.accept::<Part>(&[heartbeat("a", "1")]), NONE);
        assert_eq!(timed.pass(3600), NONE);
        assert_eq!(timed.until_expiry(), None);
    });
}

#[test]
fn b1_17_the_time_to_live_is_that_of_the_last_arrival() {
    in_both(|mut timed| {
        timed.open::<Part>(&["a"]);
        timed.accept::<Part>(&[whole("a", "1").ttl(30)]);
        assert_eq!(timed.accept::<Part>(&[whole("a", "1").ttl(60)]), NONE, "raised");
        assert_eq!(timed.until_expiry(), Some(60));
        assert_eq!(timed.accept::<Part>(&[whole("a", "2").ttl(10)]), ["#1 present 2 2"], "lowered");
        assert_eq!(timed.until_expiry(), Some(10));
        assert_eq!(timed.accept::<Part>(&[whole("a", "2")]), NONE, "cleared");
        assert_eq!(timed.until_expiry(), None);
        timed.accept::<Part>(&[whole("a", "2").ttl(10)]);
        assert_eq!(timed.accept::<Part>(&[whole("a", "3")]), ["#1 present 3 3"], "cleared by another update");
        assert_eq!(timed.until_expiry(), None);
    });
}

#[test]
fn b1_19_heartbeats_of_a_full_state_type_delete_nothing() {
    in_both(|mut timed| {
        timed.open::<Full>(&["a", "b", "*"]);
        timed.accept::<Full>(&[whole("a", "1").ttl(30), whole("b", "1"), whole("c", "1").ttl(30)]);
        let beats = [heartbeat("a", "1").ttl(60), heartbeat("c", "1").ttl(60)];
        assert_eq!(timed.accept::<Full>(&beats), NONE);
        assert_eq!(timed.pass(59), NONE);
        let updates = timed.pass(1);
        assert_eq!(updates[0], "#1 absent NOT_FOUND");
        assert_eq!(updates.last().unwrap(), "#3 {b: present 1 1} complete");
    });
}

#[test]
fn b2_26_a_member_of_the_wildcard_is_forgotten() {
    in_both(|mut timed| {
        timed.open::<Full>(&["*"]);
        let outputs = timed.accept::<Full>(&[whole("a", "1").ttl(30), whole("b", "1")]);
        assert_eq!(outputs, ["#1 {a: present 1 1, b: present 1 1} complete"]);
        assert_eq!(timed.pass(30), ["#1 {b: present 1 1} complete"]);
        assert_eq!(timed.rig.engine.resources(), 1);
        let outputs = timed.accept::<Full>(&[whole("a", "1").ttl(30), whole("b", "1")]);
        assert_eq!(outputs, ["#1 {a: present 1 1, b: present 1 1} complete"]);
    });
}

#[test]
fn b2_26_a_member_of_a_glob_is_forgotten() {
    in_both(|mut timed| {
        timed.open::<Full>(&["xdstp://a/test.Full/shop/*"]);
        let (a, b) = ("xdstp://a/test.Full/shop/a", "xdstp://a/test.Full/shop/b");
        timed.accept::<Full>(&[whole(a, "1").ttl(30), whole(b, "1").ttl(60)]);
        assert_eq!(timed.pass(30), [format!("#1 {{{b}: present 1 1}} complete")]);
        assert_eq!(timed.pass(30), ["#1 {} complete"]);
    });
}

#[test]
fn b1_20_b2_26_no_version_stands_for_what_has_expired() {
    in_both(|mut timed| {
        timed.open::<Full>(&["a", "b"]);
        timed.accept::<Full>(&[whole("a", "1").ttl(30), whole("b", "1")]);
        timed.pass(30);
        let expected = if timed.delta { "send Full +a,b {b=1} node" } else { "send Full [a,b] / node" };
        assert_eq!(timed.reconnect(), expected);
        timed.accept::<Full>(&[whole("a", "1").ttl(300), whole("b", "1")]);
        let expected = if timed.delta { "send Full +a,b {a=1,b=1} node" } else { "send Full [a,b] 1/ node" };
        assert_eq!(timed.reconnect(), expected);
    });
}

#[test]
fn b2_26_a_member_that_has_expired_is_not_among_the_versions() {
    let mut timed = Timed::new(true);
    timed.open::<Full>(&["*"]);
    timed.accept::<Full>(&[whole("a", "1").ttl(30), whole("b", "1")]);
    timed.pass(30);
    assert_eq!(timed.reconnect(), "send Full {b=1} node");
}

#[test]
fn a_resource_expires_while_its_server_is_away() {
    in_both(|mut timed| {
        timed.open::<Part>(&["a"]);
        timed.accept::<Part>(&[whole("a", "1").ttl(30)]);
        timed.disconnect();
        let outputs = timed.rig.pass(Duration::from_secs(30));
        assert_eq!(
            outputs.iter().filter(|outputs| *outputs == "#1 absent NOT_FOUND").count(),
            1,
            "{outputs:?}"
        );
    });
}

#[test]
fn a71_3_a_resource_that_expired_while_its_server_is_away_is_requested_from_the_next_one() {
    for delta in [false, true] {
        let servers = (1..=2).map(|port| Server::new(format!("127.0.0.1:{port}")).insecure());
        let bootstrap = servers.fold(Bootstrap::builder(), |bootstrap, server| bootstrap.server(server));
        let mut timed = Timed::of(delta, bootstrap.build().unwrap());
        timed.open::<Part>(&["a"]);
        timed.accept::<Part>(&[whole("a", "1").ttl(30)]);
        timed.disconnect();
        let mut outputs = timed.rig.pass(Duration::from_secs(2));
        assert!(outputs.contains(&"connect 0.2".to_owned()), "{outputs:?}");
        outputs = timed.rig.disconnect_from(stream_to(0, 2), DisconnectKind::Unreachable);
        assert_eq!(outputs, ["#1 present 1 1 (UNAVAILABLE)"], "what is held needs no other server");
        outputs = timed.rig.pass(Duration::from_secs(29));
        assert!(outputs.contains(&"#1 absent NOT_FOUND".to_owned()), "{outputs:?}");
        assert!(outputs.contains(&"connect 1.1".to_owned()), "{outputs:?}");
        (timed.server, timed.attempt) = (1, 1);
        timed.connect();
        assert_eq!(timed.accept::<Part>(&[whole("a", "2")]), ["#1 present 2 2"]);
    }
}

#[test]
fn a_rejected_update_changes_nothing_of_the_time_to_live() {
    in_both(|mut timed| {
        timed.open::<Part>(&["a"]);
        timed.accept::<Part>(&[whole("a", "1").ttl(30)]);
        timed.pass(20);
        let outputs = timed.respond::<Part>(&[whole("a", "bad").ttl(300)], &[]);
        assert_eq!(published(outputs), ["#1 present 1 1 (INVALID_ARGUMENT)"]);
        assert_eq!(timed.pass(10), ["#1 absent NOT_FOUND"]);
    });
}

#[test]
fn b2_8_a_heartbeat_that_comes_too_late_makes_the_name_requested_again() {
    let mut timed = Timed::new(true);
    timed.open::<Part>(&["a", "b"]);
    timed.accept::<Part>(&[whole("a", "1").ttl(30), whole("b", "1").ttl(90)]);
    timed.pass(30);
    let outputs = timed.respond::<Part>(&[heartbeat("a", "1").ttl(30), heartbeat("b", "1").ttl(90)], &[]);
    assert_eq!(outputs, ["read", "send Part +a nonce2"]);
    assert_eq!(timed.accept::<Part>(&[whole("a", "1").ttl(30)]), ["#1 present 1 1"]);
}

#[test]
fn a_heartbeat_that_comes_too_late_brings_nothing_back() {
    let mut timed = Timed::new(true);
    timed.open::<Part>(&["a"]);
    timed.accept::<Part>(&[whole("a", "1").ttl(30)]);
    timed.pass(30);
    assert_eq!(timed.accept::<Part>(&[heartbeat("a", "1").ttl(30)]), NONE);
    assert_eq!(
        timed.accept::<Part>(&[heartbeat("z", "1").ttl(30)]),
        NONE,
        "nor for a name that was not requested"
    );
    assert_eq!(timed.until_expiry(), None);
}

/// Number 4: in the state of the world no request on the stream makes the server send a resource again.
#[test]
fn b1_20_a_heartbeat_of_what_has_expired_opens_another_stream_without_its_version() {
    let mut timed = Timed::new(false);
    timed.open::<Part>(&["a"]);
    timed.accept::<Part>(&[whole("a", "1").ttl(30)]);
    timed.pass(30);
    let outputs = timed.respond::<Part>(&[heartbeat("a", "1").ttl(30)], &[]);
    assert_eq!(outputs, ["disconnect 0.1", "connect 0.2"]);
    timed.attempt += 1;
    assert_eq!(timed.connect(), ["read", "send Part [a] / node"]);
    // A server that never sends it again is not polled in a loop.
    let outputs = timed.respond::<Part>(&[heartbeat("a", "1").ttl(30)], &[]);
    assert_eq!(outputs, ["read", "send Part [a] /nonce3"], "nor is that version accepted");
    assert_eq!(timed.accept::<Part>(&[whole("a", "1").ttl(30)]), ["#1 present 1 1"]);
}

/// Number 4, for a wildcard: no name can be requested again.
#[test]
fn b1_20_b2_26_a_heartbeat_of_an_expired_member_opens_another_stream_without_its_version() {
    in_both(|mut timed| {
        timed.open::<Full>(&["*"]);
        timed.accept::<Full>(&[whole("a", "1").ttl(30), whole("b", "1")]);
        timed.pass(30);
        let outputs = timed.respond::<Full>(&[heartbeat("a", "1").ttl(30)], &[]);
        assert_eq!(outputs, ["disconnect 0.1", "connect 0.2"]);
        timed.attempt += 1;
        let request = if timed.delta { "send Full {b=1} node" } else { "send Full [] / node" };
        assert_eq!(timed.connect(), ["read", request]);
        let outputs = timed.accept::<Full>(&[whole("a", "1").ttl(30), whole("b", "1")]);
        assert_eq!(outputs, ["#1 {a: present 1 1, b: present 1 1} complete"]);
    });
}

/// Number 4, for a glob: it is requested once more, however many of its members are confirmed.
#[test]
fn b2_26_heartbeats_of_expired_members_of_a_glob_bring_them_back() {
    in_both(|mut timed| {
        timed.open::<Full>(&["xdstp://a/test.Full/shop/*"]);
        let (a, b) = ("xdstp://a/test.Full/shop/a", "xdstp://a/test.Full/shop/b");
        timed.accept::<Full>(&[whole(a, "1").ttl(30), whole(b, "1").ttl(30)]);
        assert_eq!(timed.pass(30).last().map(String::as_str), Some("#1 {} complete"));
        let beats = [heartbeat(a, "1").ttl(30), heartbeat(b, "1").ttl(30)];
        let outputs = timed.respond::<Full>(&beats, &[]);
        if timed.delta {
            assert_eq!(outputs, ["read", "send Full +xdstp://a/test.Full/shop/* nonce2"]);
        } else {
            assert_eq!(outputs, ["disconnect 0.1", "connect 0.2"]);
            timed.attempt += 1;
            assert_eq!(timed.connect(), ["read", "send Full [xdstp://a/test.Full/shop/*] / node"]);
        }
        let outputs = timed.accept::<Full>(&[whole(a, "1").ttl(30), whole(b, "1").ttl(30)]);
        assert_eq!(outputs, [format!("#1 {{{a}: present 1 1, {b}: present 1 1}} complete")]);
    });
}

#[test]
fn a_heartbeat_without_ttl_of_a_name_without_a_subscription_changes_nothing() {
    in_both(|mut timed| {
        timed.open::<Full>(&["*"]);
        timed.accept::<Full>(&[whole("a", "1")]);
        let outputs = timed.respond::<Full>(&[heartbeat("b", "1")], &[]);
        assert!(!outputs.iter().any(|outputs| outputs.starts_with("disconnect")), "{outputs:?}");
    });
}

/// Number 13.
#[test]
fn a_sotw_heartbeat_of_a_rejected_version_neither_accepts_it_nor_confirms_what_is_held() {
    let mut timed = Timed::new(false);
    timed.open::<Part>(&["a"]);
    timed.accept::<Part>(&[whole("a", "1").ttl(30)]);
    timed.respond::<Part>(&[whole("a", "bad").ttl(30)], &[]);
    timed.rig.pass(Duration::from_secs(10));
    let outputs = timed.respond::<Part>(&[heartbeat("a", "bad").ttl(30)], &[]);
    assert_eq!(outputs.last().unwrap(), "send Part [a] 1/nonce3");
    assert_eq!(timed.until_expiry(), Some(20));
}

/// Found by the simulation of times to live: seed 5,432.
#[test]
fn b1_18_heartbeats_of_what_was_accepted_of_a_rejected_response_do_not_accept_its_version() {
    let mut timed = Timed::new(false);
    timed.open::<Part>(&["a", "c"]);
    timed.accept::<Part>(&[whole("a", "1").ttl(30), whole("c", "1").ttl(30)]);
    let outputs = timed.respond::<Part>(&[whole("c", "2").ttl(30), whole("a", "bad").ttl(30)], &[]);
    assert!(outputs.contains(&"#2 present 2 2".to_owned()), "{outputs:?}");
    timed.rig.pass(Duration::from_secs(10));
    let outputs = timed.respond::<Part>(&[heartbeat("c", "2").ttl(30)], &[]);
    assert_eq!(outputs.last().unwrap(), "send Part [a,c] 1/nonce3");
    timed.respond::<Part>(&[heartbeat("c", "2").ttl(30), heartbeat("a", "bad").ttl(30)], &[]);
    assert_eq!(timed.until_expiry(), Some(20), "the held version of a is not confirmed");
}

/// Number 13.
#[test]
fn a_delta_heartbeat_of_a_rejected_version_without_ttl_deletes_nothing() {
    let mut timed = Timed::new(true);
    timed.open::<Part>(&["a"]);
    timed.accept::<Part>(&[whole("a", "1")]);
    timed.respond::<Part>(&[whole("a", "bad")], &[]);
    assert_eq!(timed.accept::<Part>(&[heartbeat("a", "bad")]), NONE);
    assert_eq!(published(timed.respond::<Part>(&[heartbeat("a", "9")], &[])), ["#1 absent NOT_FOUND"]);
}

#[test]
fn b2_16_a_heartbeat_of_another_version_confirms_nothing_and_removes_nothing() {
    let mut timed = Timed::new(true);
    timed.open::<Part>(&["a"]);
    timed.accept::<Part>(&[whole("a", "1").ttl(30)]);
    timed.respond::<Part>(&[whole("a", "bad").ttl(30)], &[]);
    timed.pass(10);
    assert_eq!(timed.accept::<Part>(&[heartbeat("a", "bad").ttl(30)]), NONE);
    assert_eq!(timed.until_expiry(), Some(20));
}

#[test]
fn what_is_deleted_does_not_expire() {
    let mut timed = Timed::new(true);
    timed.open::<Full>(&["a"]);
    timed.accept::<Full>(&[whole("a", "1").ttl(30)]);
    assert_eq!(published(timed.respond::<Full>(&[], &["a"])), ["#1 absent NOT_FOUND"]);
    assert_eq!(timed.until_expiry(), None);

    let mut timed = Timed::new(false);
    timed.open::<Full>(&["a"]);
    timed.accept::<Full>(&[whole("a", "1").ttl(30)]);
    assert_eq!(timed.accept::<Full>(&[]), ["#1 absent NOT_FOUND"]);
    assert_eq!(timed.until_expiry(), None);
}

#[test]
fn an_unsubscribed_resource_does_not_expire() {
    in_both(|mut timed| {
        let (watch_id, _) = timed.rig.watch::<Part>("a");
        timed.open::<Part>(&["b"]);
        timed.accept::<Part>(&[whole("a", "1").ttl(30), whole("b", "1")]);
        timed.rig.unwatch(watch_id);
        timed.rig.pass(Duration::from_millis(20));
        timed.sent();
        assert_eq!(timed.rig.engine.resources(), 1);
        assert_eq!(timed.until_expiry(), None);
    });
}

#[test]
fn resources_expire_also_where_deletions_are_ignored() {
    for delta in [false, true] {
        let server = Server::new("127.0.0.1:1").insecure().features(["ignore_resource_deletion"]);
        let mut timed = Timed::with(delta, server);
        timed.open::<Part>(&["a"]);
        timed.accept::<Part>(&[whole("a", "1").ttl(30)]);
        assert_eq!(timed.pass(30), ["#1 absent NOT_FOUND"]);
    }
}

#[test]
fn b2_12_a_resource_and_its_heartbeat_in_one_response_are_a_duplicate() {
    in_both(|mut timed| {
        timed.open::<Part>(&["a"]);
        timed.accept::<Part>(&[whole("a", "1").ttl(30)]);
        let outputs = timed.respond::<Part>(&[whole("a", "2"), heartbeat("a", "1").ttl(90)], &[]);
        assert!(outputs.iter().any(|outputs| outputs.contains("twice")), "{outputs:?}");
        assert_eq!(timed.until_expiry(), Some(30));
    });
}

#[test]
fn a_time_to_live_that_is_none_is_rejected() {
    in_both(|mut timed| {
        timed.open::<Part>(&["a"]);
        let mut word = whole("a", "1");
        // As a number of 64 bits it is negative.
        word.ttl = Some(Duration::from_secs(u64::MAX));
        let outputs = timed.respond::<Part>(&[word], &[]);
        assert!(outputs.iter().any(|outputs| outputs.contains("ttl out of range")), "{outputs:?}");
    });
}

#[test]
fn a_time_to_live_over_the_end_of_time_never_ends() {
    in_both(|mut timed| {
        timed.open::<Part>(&["a"]);
        assert_eq!(timed.accept::<Part>(&[whole("a", "1").ttl(i64::MAX as u64)]), ["#1 present 1 1"]);
        assert_eq!(timed.pass(1), NONE);
    });
}

#[test]
fn a_response_that_is_being_worked_off_wins_over_the_deadline() {
    let mut timed = Timed::new(true);
    timed.open::<Part>(&["a"]);
    timed.accept::<Part>(&[whole("a", "1").ttl(30)]);
    // Long enough for several steps, with the heartbeat at its end.
    let other = |i: u32| Wrapper { name: format!("{i}"), version: "1".into(), ..Wrapper::default() };
    let resources = (0..50_000).map(other).chain([heartbeat("a", "1").ttl(30).wrapper::<Part>()]).collect();
    let response = DeltaDiscoveryResponse {
        nonce: "n".into(),
        type_url: Part::TYPE_URL.into(),
        resources,
        ..Default::default()
    };
    let message = response.encode_to_vec().into();
    timed.rig.now += Duration::from_secs(29);
    let outputs = timed.rig.input(StreamEvent::Received { stream: stream_to(0, 1), message, at: None });
    assert_eq!(outputs, NONE);
    timed.rig.now += Duration::from_secs(2);
    while let Some((_, Timer::Work)) = timed.rig.engine.poll_timeout() {
        timed.rig.engine.handle_timeout(timed.rig.now);
        assert_eq!(published(timed.rig.drain()), NONE);
    }
    timed.sent();
    assert_eq!(timed.until_expiry(), Some(28));
}
