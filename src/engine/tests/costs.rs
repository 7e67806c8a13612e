//! What an event costs when there are many resources, servers and sources: nothing for those that it does not concern.

use std::time::Duration;

use prost::Message;

use super::rig::{Full, Rig, any, response, stream_to};
use crate::{
    config::{AuthorityBuilder, Bootstrap, Server},
    engine::Settings,
    protocol::DisconnectKind,
    scans,
};

fn server(port: usize) -> crate::config::ServerBuilder {
    Server::new(format!("127.0.0.1:{port}")).insecure()
}

/// How many places are looked at one by one.
fn scanned(act: impl FnOnce()) -> u64 {
    let before = scans::count();
    act();
    scans::count() - before
}

/// The cost of a watch when so many resources are held, of a server that has a fallback, which is in use or not.
fn cost_of_a_watch(held: usize, falls_back: bool) -> u64 {
    let bootstrap = Bootstrap::builder().server(server(1)).server(server(2)).build().unwrap();
    let mut rig = Rig::of(bootstrap, Settings::default());
    let names: Vec<_> = (0..held).map(|number| format!("r{number}")).collect();
    for name in &names {
        rig.watch::<Full>(name);
    }
    let active = stream_to(u32::from(falls_back), 1);
    if falls_back {
        rig.disconnect_from(stream_to(0, 1), DisconnectKind::Unreachable);
    }
    rig.connect_to(active);
    rig.sent_to(active);
    rig.pass(Duration::from_secs(1));
    rig.sent_to(active);
    let all = names.iter().map(|name| any::<Full>(name, "x")).collect();
    rig.receive_from(active, response::<Full>("1", all).encode_to_vec());
    rig.sent_to(active);
    scanned(|| drop(rig.watch::<Full>("new")))
}

#[test]
fn a_watch_with_a_fallback_configured_costs_the_same_whatever_is_held() {
    for falls_back in [false, true] {
        let cost = cost_of_a_watch(1_000, falls_back);
        assert!(cost < SMALL, "{cost} places for one watch, {falls_back}");
    }
}

/// The cost of a response and of a timer with so many authorities, each with a server of its own.
fn cost_of_events(authorities: usize) -> (u64, u64) {
    let bootstrap = (0..authorities).fold(Bootstrap::builder().server(server(1)), |bootstrap, number| {
        let authority = AuthorityBuilder::default().server(server(2 + number));
        bootstrap.authority(format!("a{number}"), authority)
    });
    let mut rig = Rig::of(bootstrap.build().unwrap(), Settings::default());
    let name = |number: usize| format!("xdstp://a{number}/test.Full/x");
    for number in 0..authorities {
        rig.watch::<Full>(&name(number));
        // The does-not-exist timer of one server alone is due then.
        rig.pass(Duration::from_millis(20));
        rig.connect_to(stream_to(number as u32, 1));
        rig.sent_to(stream_to(number as u32, 1));
    }
    let good = response::<Full>("1", vec![any::<Full>(&name(1), "x")]).encode_to_vec();
    let of_response = scanned(|| drop(rig.receive_from(stream_to(1, 1), good)));
    let (at, _) = rig.engine.poll_timeout().unwrap();
    let of_timer = scanned(|| drop(rig.pass(at - rig.now)));
    (of_response, of_timer)
}

#[test]
fn an_event_of_one_server_looks_at_no_other() {
    let (of_response, of_timer) = cost_of_events(300);
    assert!(of_response < SMALL && of_timer < SMALL, "{of_response}, {of_timer}");
}

/// Less than there is of anything.
const SMALL: u64 = 50;
