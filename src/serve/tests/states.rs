//! The serving state, and the port.

use std::{sync::Arc, time::Duration};

use crate::{
    error::Code,
    resource::Listener,
    serve::{
        Accept, AcceptError, RejectReason, Settings,
        fixture::{Server, absent, chain, inline, listener, rds, routes, routes_message},
    },
};

fn simple() -> Arc<Listener> {
    listener(vec![chain("a", inline(routes_message("", &[("*", &["/"])])))])
}

fn by_rds(names: &[&str]) -> Arc<Listener> {
    let chains = names
        .iter()
        .zip(1..)
        .map(|(name, net)| crate::serve::fixture::chain_from(name, &format!("10.{net}.0.0/16"), rds(name)));
    listener(chains.collect())
}

const GONE: &str = "NOT_SERVING: NOT_FOUND: T \"the server\": is gone [node id: node]";

#[test]
fn sv3_1_a_server_starts_with_the_first_configuration_or_absence() {
    let mut server = Server::new(Settings::default());
    server.machine.handle_listener(&crate::observed::Observed::Pending, server.now);
    assert_eq!(server.outputs(), [""; 0]);
    assert_eq!(server.no_listener(Code::NotFound), [GONE]);
    assert_eq!(server.listener(&simple()), ["add a as 1", "open", "SERVING"]);
}

#[test]
fn sv3_2_sv7_2_a_server_waits_for_all_routes_or_their_absence() {
    let mut server = Server::new(Settings::default());
    assert_eq!(server.listener(&by_rds(&["r", "s"])), ["watch r", "watch s"]);
    assert_eq!(server.routes(&routes("r", &["/"])), [""; 0]);
    assert_eq!(server.machine.status().waiting_for, ["s".into()]);
    let outputs = server.no_routes("s");
    assert_eq!(
        outputs[..4],
        ["add r as 1", "add s as 2", "open", "errors [\"T \\\"the routes\\\": is gone [node id: node]\"]"]
    );
    assert_eq!(outputs[4..], ["SERVING"]);
}

#[test]
fn sv3_3_sv3_4_the_port_stays_open_while_nothing_is_served() {
    let mut server = Server::new(Settings::default());
    assert!(!server.machine.is_accepting());
    server.listener(&simple());
    assert!(server.machine.is_accepting());
    assert_eq!(server.no_listener(Code::NotFound), ["remove 1", GONE]);
    assert!(server.machine.is_accepting());
    assert_eq!(server.accept(), Accept::Reject(RejectReason::NotServing));
    assert_eq!(server.listener(&simple()), ["add a as 2", "SERVING"]);
    // A socket of the application listens from the start.
    let mut server = Server::handed_over(Settings::default());
    assert_eq!(server.accept(), Accept::Reject(RejectReason::NotServing));
    assert_eq!(server.listener(&simple()), ["add a as 1", "SERVING"]);
}

#[test]
fn sv3_4_a_port_is_released_if_the_application_wants_it() {
    let mut server = Server::new(Settings { release_port: true, ..Settings::default() });
    server.listener(&simple());
    assert_eq!(server.no_listener(Code::NotFound), ["remove 1", "close", GONE]);
    assert!(!server.machine.is_accepting());
    assert_eq!(server.listener(&simple()), ["add a as 2", "open", "SERVING"]);
}

#[test]
fn sv3_5_a_port_in_use_is_opened_again_after_a_second_and_then_each_minute() {
    let mut server = Server::new(Settings::default());
    server.port_is_free = false;
    let reason = "NOT_SERVING: UNAVAILABLE: Listener \"server\": cannot listen on 10.0.0.1:8080: address in use [node \
                  id: node]";
    assert_eq!(server.listener(&simple()), ["add a as 1", "open", reason]);
    assert_eq!(server.accept(), Accept::Reject(RejectReason::NotServing));
    assert_eq!(server.pass(0.9), [""; 0]);
    assert_eq!(server.pass(0.1), ["open"]);
    assert_eq!(server.pass(59.9), [""; 0]);
    server.port_is_free = true;
    assert_eq!(server.pass(0.1), ["open", "SERVING"]);
    // Nothing is opened for a server without a configuration.
    let mut server = Server::new(Settings::default());
    server.port_is_free = false;
    server.listener(&simple());
    assert_eq!(server.no_listener(Code::NotFound), ["remove 1", GONE]);
    assert_eq!(server.pass(1000.0), [""; 0]);
}

#[test]
fn sv3_6_sv11_5_deletion_drains_and_return_serves_again() {
    let mut server = Server::new(Settings::default());
    server.listener(&simple());
    let (one, two) = (server.connect(), server.connect());
    assert_eq!(server.no_listener(Code::NotFound), ["drain 1", "drain 2", GONE]);
    assert_eq!(server.close(one), [""; 0]);
    assert_eq!(server.listener(&simple()), ["add a as 2", "SERVING"]);
    let three = server.connect();
    assert_eq!(server.close(two), ["drained 2", "remove 1"]);
    assert_eq!(server.close(three), [""; 0]);
}

#[test]
fn sv3_9_equal_states_are_silent_and_other_reasons_are_told() {
    let mut server = Server::new(Settings::default());
    assert_eq!(server.no_listener(Code::NotFound), [GONE]);
    assert_eq!(server.no_listener(Code::NotFound), [""; 0]);
    assert_eq!(server.no_listener(Code::Unavailable).len(), 1);
    server.listener(&simple());
    let other = listener(vec![chain("b", inline(routes_message("", &[("*", &["/"])])))]);
    assert_eq!(server.listener(&other), ["add b as 2", "remove 1"]);
}

#[test]
fn sv3_12_errors_of_accept_are_waited_out() {
    let mut server = Server::new(Settings::default());
    server.listener(&simple());
    let fail = |server: &mut Server| {
        server.machine.handle_accept_error(&AcceptError::Transient, server.now);
        assert!(!server.machine.is_accepting());
        let (at, _) = server.machine.poll_timeout().unwrap();
        let pause = at - server.now;
        server.pass(pause.as_secs_f64() + 0.001);
        assert!(server.machine.is_accepting());
        u64::try_from(pause.as_millis()).unwrap()
    };
    let pauses: Vec<_> = (0..10).map(|_| fail(&mut server)).collect();
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    server.connect();
    assert_eq!(fail(&mut server), 5);
    // Any other error is the end of the socket, which is opened again.
    server.machine.handle_accept_error(&AcceptError::Fatal("broken".into()), server.now);
    let outputs = server.outputs();
    assert_eq!(outputs[..2], ["close", "drain 1"]);
    assert!(outputs[2].contains("cannot listen on 10.0.0.1:8080: broken"), "{outputs:?}");
    assert_eq!(server.pass(1.0), ["open", "SERVING"]);
}

#[test]
fn sv6_1_a_newer_listener_replaces_a_pending_one_and_a_deletion_discards_it() {
    let mut server = Server::new(Settings::default());
    server.listener(&simple());
    assert_eq!(server.listener(&by_rds(&["r"])), ["watch r"]);
    let (old, _) = (server.connect(), server.connect());
    assert_eq!(server.listener(&by_rds(&["s"])), ["end r", "watch s"]);
    // What serves is proposed again.
    assert_eq!(server.listener(&simple()), ["end s"]);
    assert_eq!(server.listener(&by_rds(&["t"])), ["watch t"]);
    assert_eq!(server.no_listener(Code::NotFound), ["end t", "drain 1", "drain 2", GONE]);
    assert_eq!(server.routes(&routes("t", &["/"])), [""; 0]);
    server.close(old);
}

#[test]
fn sv7_1_a_watch_of_routes_is_shared_and_kept() {
    let mut server = Server::new(Settings::default());
    server.listener(&by_rds(&["r"]));
    server.routes(&routes("r", &["/"]));
    // The second chain has the routes of the first.
    let chains = vec![chain("x", rds("r")), crate::serve::fixture::chain_from("y", "10.0.0.0/8", rds("r"))];
    let outputs = server.listener(&listener(chains));
    assert_eq!(outputs, ["add x as 2", "add y as 3", "remove 1"]);
    assert_eq!(server.routes(&routes("r", &["/a"])), ["route 2", "route 3"]);
    assert_eq!(server.no_listener(Code::NotFound), ["end r", "remove 2", "remove 3", GONE]);
}

#[test]
fn sv7_11_mistakes_in_routes_are_reported_with_each_change_and_their_end() {
    let mut server = Server::new(Settings::default());
    server.listener(&by_rds(&["r"]));
    server.routes(&routes("r", &["/"]));
    let mut wrong = routes_message("r", &[("*", &["/"])]);
    wrong.virtual_hosts[0].routes[0].action = None;
    let outputs = server.routes(&crate::serve::fixture::parse(&wrong));
    assert_eq!(
        outputs,
        [
            "route 1",
            "errors [\"RouteConfiguration \\\"r\\\", virtual host \\\"host *\\\", route \\\"route /\\\": its action is \
             unknown, where servers need non_forwarding_action\"]"
        ]
    );
    assert_eq!(server.routes(&routes("r", &["/"])), ["route 1", "errors []"]);
}

#[test]
fn sv11_2_sv11_3_a_warning_changes_nothing_and_is_visible() {
    let mut server = Server::new(Settings::default());
    let listener = simple();
    server.listener(&listener);
    server.connect();
    let crate::observed::Observed::Absent { reason } = absent::<Listener>(Code::Unavailable, "x") else {
        panic!()
    };
    let mut stale = crate::serve::fixture::present(&listener);
    if let crate::observed::Observed::Present { warning, .. } = &mut stale {
        *warning = Some(reason.clone());
    }
    server.machine.handle_listener(&stale, server.now);
    assert_eq!(server.outputs(), [""; 0]);
    assert_eq!(server.machine.status().warning, Some(reason));
}

#[test]
fn sv12_3_a_shutdown_drains_and_ends_in_any_state() {
    let mut server = Server::new(Settings::default());
    assert_eq!(server.shut_down(None), ["STOPPING", "STOPPED"]);
    assert_eq!(server.shut_down(Some(Duration::ZERO)), [""; 0]);
    assert_eq!(server.listener(&simple()), [""; 0]);

    let mut server = Server::new(Settings::default());
    server.listener(&by_rds(&["r"]));
    server.routes(&routes("r", &["/"]));
    let Accept::Serve { connection, .. } = server.machine.accept(
        &crate::resource::filter_chain::Connection::new(
            crate::serve::fixture::address(),
            ([10, 1, 0, 1], 1).into(),
        ),
        server.now,
    ) else {
        panic!()
    };
    server.machine.handle_established(connection, server.now);
    assert_eq!(server.shut_down(None), ["close", "STOPPING", "end r", "drain 1"]);
    assert_eq!(server.accept(), Accept::Reject(RejectReason::NotServing));
    // A later one with a limit shortens the time.
    assert_eq!(server.shut_down(Some(Duration::from_secs(5))), [""; 0]);
    assert_eq!(server.pass(4.9), [""; 0]);
    assert_eq!(server.pass(0.1), ["close 1: not drained within the grace period"]);
    assert_eq!(server.close(connection), ["remove 1", "STOPPED"]);

    let mut server = Server::new(Settings::default());
    server.listener(&simple());
    let open = server.connect();
    let Accept::Serve { connection: shaking, .. } = server.accept() else { panic!() };
    server.machine.shut_down_now(server.now);
    let outputs = server.outputs();
    let closed = |id| format!("close {id}: the server is shut down");
    assert_eq!(outputs, ["close", "STOPPING", &*closed(1), &*closed(2)]);
    server.close(open);
    assert_eq!(server.close(shaking), ["remove 1", "STOPPED"]);
}
