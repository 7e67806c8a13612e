//! Removals by a server that is not the one that serves, and what is held of another one.

use std::time::Duration;

use super::{NONE, one, removed};
use crate::{
    config::{ApiType, AuthorityBuilder, Bootstrap, Server},
    engine::{
        Selection,
        tests::rig::{Full, Part, Rig, delta_response, stream_to},
    },
    protocol::{DisconnectKind, Settings},
};

/// A client of two servers, the second of which is the fallback of the first.
fn two_servers() -> Rig {
    let servers = [1, 2].map(|port| Server::new(format!("127.0.0.1:{port}")).insecure());
    let bootstrap =
        servers.into_iter().fold(Bootstrap::builder(), |bootstrap, server| bootstrap.server(server));
    let settings = Settings { api_type: ApiType::AggregatedDeltaGrpc, ..Settings::default() };
    Rig::of(bootstrap.build().unwrap(), settings)
}

/// A client that watches `a` and `b`, and has them of the second server, while they are requested from the first one again.
fn fallen_back() -> Rig {
    let mut rig = two_servers();
    rig.watch::<Full>("a");
    rig.watch::<Full>("b");
    rig.disconnect(1, DisconnectKind::Unreachable);
    rig.connect_to(stream_to(1, 1));
    rig.sent_to(stream_to(1, 1));
    let both = delta_response::<Full>("n", &[("a", "f", Some("fa")), ("b", "f", Some("fb"))], &[]);
    assert_eq!(rig.receive_from(stream_to(1, 1), both)[..2], ["#1 present f fa", "#2 present f fb"]);
    rig.sent_to(stream_to(1, 1));
    rig.pass(Duration::from_millis(1_201));
    rig
}

#[test]
fn b2_1_a_server_is_not_sent_the_versions_of_another() {
    let mut rig = fallen_back();
    assert_eq!(rig.connect(2), ["read", "send Full +a,b node"]);
}

#[test]
fn what_a_higher_server_has_removed_is_absent_when_it_serves_and_had_its_time() {
    let mut rig = fallen_back();
    rig.connect(2);
    rig.sent(2);
    assert_eq!(rig.receive_raw(2, removed("m", &["b"])), ["read", "send Full m"], "the lower one serves");
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_secs(2)), NONE);
    let outputs = rig.receive_raw(2, one("o", "a", "p"));
    assert_eq!(outputs, ["disconnect 1.1", "#1 present p p", "read", "send Full o"]);
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_millis(14_999)), NONE);
    assert_eq!(rig.pass(Duration::from_millis(1)), ["#2 absent NOT_FOUND"]);
}

#[test]
fn a57_5_what_a_fallback_sent_while_the_first_server_was_away_has_its_time_from_the_request() {
    let mut rig = two_servers();
    rig.watch::<Part>("p");
    rig.watch_names::<Full>(Selection::All);
    rig.watch::<Full>("b");
    rig.disconnect(1, DisconnectKind::Unreachable);
    rig.connect_to(stream_to(1, 1));
    rig.sent_to(stream_to(1, 1));
    rig.sent_to(stream_to(1, 1));
    rig.receive_from(stream_to(1, 1), delta_response::<Full>("n", &[("b", "f", Some("fb"))], &[]));
    rig.sent_to(stream_to(1, 1));
    rig.pass(Duration::from_secs(1_200));
    assert_eq!(rig.connect(2), ["read", "send Part +p node"]);
    let other = delta_response::<Part>("o", &[("p", "p", Some("pp"))], &[]);
    assert_eq!(rig.receive_raw(2, other), ["disconnect 1.1", "#1 present p pp", "read"]);
    assert_eq!(rig.sent(2), ["send Part o"]);
    rig.pass(Duration::from_secs(10));
    assert_eq!(rig.sent(2), ["send Full"]);
    assert_eq!(rig.sent(2), ["send Full +b"]);
    rig.sent(2);
    assert_eq!(rig.pass(Duration::from_millis(14_999)), NONE);
    assert_eq!(rig.pass(Duration::from_millis(1)), ["#3 absent NOT_FOUND", "#2 {} complete"]);
}

#[test]
fn a_server_that_was_sent_versions_before_the_fallback_gets_the_request_again() {
    let mut rig = two_servers();
    rig.watch::<Full>("a");
    rig.connect(1);
    rig.sent(1);
    rig.receive_raw(1, one("n", "a", "1"));
    rig.sent(1);
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_millis(1_201));
    rig.disconnect(2, DisconnectKind::Unreachable);
    rig.pass(Duration::from_millis(2_000));
    assert_eq!(rig.connect(3), ["read", "send Full +a {a=1} node"]);
    rig.sent(3);
    assert_eq!(rig.watch::<Full>("b").1[..3], ["send Full +b", "disconnect 0.3", "connect 0.4"]);
    assert_eq!(rig.connect(4), ["read", "send Full +a,b node"]);
}

/// MS4: Consul knows no `*`. Found by the simulation of operations: seed 984 with `LegacyWildcardOnly`.
#[test]
fn b2_4_a_fallback_gets_the_wildcard_before_names_on_an_open_stream() {
    let servers = [1, 2].map(|port| Server::new(format!("127.0.0.1:{port}")).insecure());
    let authority = AuthorityBuilder::default().server(servers[1].clone());
    let bootstrap =
        servers.into_iter().fold(Bootstrap::builder(), |bootstrap, server| bootstrap.server(server));
    let settings = Settings { api_type: ApiType::AggregatedDeltaGrpc, ..Settings::default() };
    let mut rig = Rig::of(bootstrap.authority("b", authority).build().unwrap(), settings);
    rig.watch::<Part>("xdstp://b/test.Part/p");
    rig.connect(1);
    rig.sent(1);
    rig.watch::<Full>("a");
    rig.watch_names::<Full>(Selection::All);
    let outputs = rig.disconnect_from(stream_to(1, 1), DisconnectKind::Unreachable);
    assert_eq!(outputs, ["send Full"]);
    assert_eq!(rig.sent(1), NONE);
    assert_eq!(rig.pass(Duration::from_millis(20)), ["send Full +a"]);
}
