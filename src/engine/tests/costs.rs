//! What an event costs when there are many resources, servers and sources: nothing for those that it does not concern.

use std::time::Duration;

use prost::Message;

use super::rig::{Full, Rig, any, response, stream_to};
use crate::{
    config::{AuthorityBuilder, Bootstrap, Server},
    protocol::Settings,
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
