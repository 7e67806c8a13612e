//! Connections: limits, ages, and draining.

use std::{sync::Arc, time::Duration};

use crate::{
    resource::Listener,
    serve::{
        Accept, RejectReason, Settings,
        fixture::{Server, chain, chain_from, inline, listener, rds, routes, routes_message},
    },
};

fn simple(name: &str) -> Arc<Listener> {
    listener(vec![chain(name, inline(routes_message("", &[("*", &["/"])])))])
}

fn serving(settings: Settings) -> Server {
    let mut server = Server::new(settings);
    server.listener(&simple("a"));
    server
}

#[test]
fn sv4_8_sv11_13_a_connection_without_a_chain_is_refused() {
    let mut server = Server::new(Settings::default());
    server.listener(&listener(vec![chain_from("a", "10.0.0.0/8", inline(routes_message("", &[])))]));
    assert_eq!(server.accept(), Accept::Reject(RejectReason::NoChain));
}

#[test]
fn sv5_4_a_handshake_has_a_limit_of_time() {
    let mut server = serving(Settings::default());
    let Accept::Serve { connection, .. } = server.accept() else { panic!() };
    assert_eq!(server.pass(119.0), [""; 0]);
    assert_eq!(server.pass(1.0), ["close 1: the handshake took too long"]);
    // The end of the handshake comes too late.
    server.machine.handle_established(connection, server.now);
    assert_eq!(server.outputs(), [""; 0]);
    assert_eq!(server.close(connection), [""; 0]);
    server.connect();
    assert_eq!(server.pass(10_000.0), [""; 0]);
}

#[test]
fn sv5_14_unfinished_handshakes_are_limited() {
    let mut server = serving(Settings { max_handshakes: 2, ..Settings::default() });
    let open = server.connect();
    let Accept::Serve { connection, .. } = server.accept() else { panic!() };
    assert!(matches!(server.accept(), Accept::Serve { .. }));
    assert_eq!(server.accept(), Accept::Reject(RejectReason::TooManyHandshakes));
    server.machine.handle_established(connection, server.now);
    assert!(matches!(server.accept(), Accept::Serve { .. }));
    server.close(open);
}

#[test]
fn sv6_14_connections_are_limited() {
    let mut server = serving(Settings { max_connections: 2, ..Settings::default() });
    let open = server.connect();
    server.connect();
    assert_eq!(server.accept(), Accept::Reject(RejectReason::TooManyConnections));
    server.close(open);
    assert!(matches!(server.accept(), Accept::Serve { .. }));
}

#[test]
fn sv6_14_old_connections_drain_at_different_ages() {
    let age = Duration::from_secs(100);
    let mut server = serving(Settings { max_connection_age: age, ..Settings::default() });
    for _ in 0..100 {
        server.connect();
    }
    assert_eq!(server.pass(90.0), [""; 0]);
    let early = server.pass(10.0).len();
    assert!((30..70).contains(&early), "{early}");
    assert_eq!(early + server.pass(10.0).len(), 100);
}

#[test]
fn sv6_2_an_update_with_the_same_meaning_swaps_nothing() {
    let mut server = serving(Settings::default());
    server.connect();
    assert_eq!(server.listener(&simple("a")), [""; 0]);
}

#[test]
fn sv6_3_a_swap_drains_each_older_connection_also_of_an_unchanged_chain() {
    let same = || chain_from("same", "10.0.0.0/8", inline(routes_message("", &[("*", &["/"])])));
    let all = |prefix| chain("all", inline(routes_message("", &[("*", &[prefix])])));
    let mut server = Server::new(Settings::default());
    assert_eq!(server.listener(&listener(vec![same(), all("/a")])).len(), 4);
    server.connect();
    // The chain that is the same stays, and its connections drain as well.
    let addresses = crate::resource::filter_chain::Connection::new(
        crate::serve::fixture::address(),
        ([10, 0, 0, 9], 1).into(),
    );
    let Accept::Serve { connection, chain } = server.machine.accept(&addresses, server.now) else { panic!() };
    server.machine.handle_established(connection, server.now);
    assert_eq!(server.listener(&listener(vec![same(), all("/b")])), ["add all as 3", "drain 1", "drain 2"]);
    let Accept::Serve { chain: later, .. } = server.machine.accept(&addresses, server.now) else { panic!() };
    assert_eq!(chain, later);
}

#[test]
fn sv6_3_connections_of_unchanged_chains_may_stay() {
    let same = || chain_from("same", "192.0.2.0/24", inline(routes_message("", &[("*", &["/"])])));
    let all = |prefix| chain("all", inline(routes_message("", &[("*", &[prefix])])));
    let mut server = Server::new(Settings { drain_changed_chains_only: true, ..Settings::default() });
    server.listener(&listener(vec![same(), all("/a")]));
    server.connect();
    assert_eq!(server.listener(&listener(vec![all("/b"), same()])), ["add all as 3", "remove 2"]);
    assert_eq!(server.listener(&listener(vec![all("/b")])), ["drain 1"]);
}

#[test]
fn sv6_5_an_update_of_routes_drains_nothing() {
    let mut server = Server::new(Settings::default());
    server.listener(&listener(vec![chain("a", rds("r"))]));
    server.routes(&routes("r", &["/"]));
    server.connect();
    assert_eq!(server.routes(&routes("r", &["/a"])), ["route 1"]);
}

#[test]
fn sv6_8_a_connection_in_its_handshake_drains_after_it_or_is_closed() {
    let mut server = serving(Settings::default());
    let Accept::Serve { connection: one, .. } = server.accept() else { panic!() };
    let Accept::Serve { .. } = server.accept() else { panic!() };
    assert_eq!(server.listener(&simple("b")), ["add b as 2"]);
    server.machine.handle_established(one, server.now);
    assert_eq!(server.outputs(), ["drain 1"]);
    assert_eq!(server.pass(120.0), ["close 2: the handshake took too long"]);
}

#[test]
fn sv6_9_sv6_10_the_grace_begins_with_the_drain_and_is_not_extended() {
    let mut server = serving(Settings::default());
    let connection = server.connect();
    server.listener(&simple("b"));
    assert_eq!(server.pass(300.0), [""; 0]);
    assert_eq!(server.listener(&simple("c")), ["add c as 3", "remove 2"]);
    assert_eq!(server.pass(299.0), [""; 0]);
    assert_eq!(server.pass(1.0), ["close 1: not drained within the grace period"]);
    assert_eq!(server.close(connection), ["drained 1", "remove 1"]);
    // Without a limit.
    let mut server = serving(Settings { drain_grace: Duration::MAX, ..Settings::default() });
    server.connect();
    assert_eq!(server.listener(&simple("b")), ["add b as 2", "drain 1"]);
    assert_eq!(server.pass(1e6), [""; 0]);
    // At once.
    let mut server = serving(Settings { drain_grace: Duration::ZERO, ..Settings::default() });
    server.connect();
    assert_eq!(server.listener(&simple("b")), ["add b as 2", "drain 1"]);
    assert_eq!(server.pass(0.0), ["close 1: not drained within the grace period"]);
}

#[test]
fn sv6_11_draining_connections_follow_routes_that_are_still_watched() {
    let mut server = Server::new(Settings::default());
    server.listener(&listener(vec![chain("a", rds("r"))]));
    server.routes(&routes("r", &["/"]));
    let connection = server.connect();
    let (a, b) = (chain("b", rds("r")), chain_from("c", "10.0.0.0/8", rds("s")));
    assert_eq!(server.listener(&listener(vec![a, b])), ["watch s"]);
    assert_eq!(server.routes(&routes("s", &["/"])), ["add b as 2", "add c as 3", "drain 1"]);
    assert_eq!(server.routes(&routes("r", &["/a"])), ["route 1", "route 2"]);
    assert_eq!(
        server.listener(&listener(vec![chain("d", rds("s"))])),
        ["add d as 4", "remove 2", "remove 3", "end r"]
    );
    assert_eq!(server.close(connection), ["drained 1", "remove 1"]);
}

#[test]
fn sv6_12_drains_are_spread_over_a_time() {
    let mut server = serving(Settings { drain_spread: Duration::from_secs(40), ..Settings::default() });
    for _ in 0..4 {
        server.connect();
    }
    assert_eq!(server.listener(&simple("b")), ["add b as 2", "drain 1"]);
    assert_eq!(server.machine.status().connections.draining, 4);
    for drained in ["drain 2", "drain 3", "drain 4"] {
        assert_eq!(server.pass(9.9), [""; 0]);
        assert_eq!(server.pass(0.1), [drained]);
    }
    // The grace of each begins with its drain; a shutdown waits for none of them.
    let mut server = serving(Settings { drain_spread: Duration::from_secs(40), ..Settings::default() });
    server.connect();
    server.connect();
    server.listener(&simple("b"));
    assert_eq!(server.shut_down(None), ["close", "STOPPING", "drain 2", "remove 2"]);
}

#[test]
fn sv6_13_connections_and_updates_leave_nothing_behind() {
    let mut server = serving(Settings::default());
    for update in 0..1_000 {
        let connections: Vec<_> = (0..10).map(|_| server.connect()).collect();
        server.listener(&simple(&update.to_string()));
        for connection in connections {
            server.close(connection);
        }
    }
    let status = server.machine.status();
    assert_eq!((status.filter_chains, status.connections), (1, Default::default()));
    assert_eq!(server.machine.poll_timeout(), None);
}
