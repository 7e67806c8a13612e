//! What is counted: A78, A88. That the counters are those of the cache is checked after each step of all tests.

use std::time::Duration;

use super::rig::{Full, Part, Rig, any, response};
use crate::{
    config::{AuthorityBuilder, Bootstrap, Node, Server},
    engine::{Metric, Settings},
    error::short_type,
    protocol::DisconnectKind,
};

#[test]
fn a78_2_resources_are_counted_by_state() {
    let mut rig = Rig::with(Server::new("127.0.0.1:1").insecure().features(["ignore_resource_deletion"]));
    rig.open::<Full>(&["a", "b"]);
    assert_eq!(counted(&mut rig, "resources"), ["Full #old requested 2"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x"), any::<Full>("b", "bad")]));
    rig.sent(1);
    let counts = ["Full #old requested 0", "Full #old acked 1", "Full #old nacked 1"];
    assert_eq!(counted(&mut rig, "resources"), counts);
    rig.receive(1, &response::<Full>("2", vec![any::<Full>("a", "bad"), any::<Full>("b", "x")]));
    rig.sent(1);
    let counts = ["Full #old acked 1", "Full #old nacked 0", "Full #old nacked_but_cached 1"];
    assert_eq!(counted(&mut rig, "resources"), counts);
    rig.receive(1, &response::<Full>("3", vec![any::<Full>("b", "x")]));
    let counts = ["Full #old does_not_exist_but_cached 1", "Full #old nacked_but_cached 0"];
    assert_eq!(counted(&mut rig, "resources"), counts);
    assert_eq!(counted(&mut rig, ""), [""; 0], "each change is reported once");
}

#[test]
fn a78_2_unsubscribed_resources_are_not_counted() {
    let mut rig = Rig::new();
    let watches = rig.open::<Full>(&["a"]);
    rig.receive(1, &response::<Full>("1", vec![any::<Full>("a", "x")]));
    rig.sent(1);
    assert_eq!(counted(&mut rig, "resources"), ["Full #old requested 0", "Full #old acked 1"]);
    rig.unwatch(watches[0]);
    rig.pass(Duration::from_secs(1));
    rig.sent(1);
    assert_eq!(counted(&mut rig, "resources"), ["Full #old acked 0"]);
}

#[test]
fn a78_1_resources_are_counted_by_authority() {
    let server = || Server::new("127.0.0.1:1").insecure();
    let bootstrap = Bootstrap::builder().node(Node::new("n")).server(server());
    let bootstrap =
        bootstrap.authority("shop", AuthorityBuilder::default().server(server())).build().unwrap();
    let mut rig = Rig::of(bootstrap, Settings::default());
    rig.watch::<Full>("a");
    rig.watch::<Full>("xdstp://shop/test.Full/a");
    assert_eq!(counted(&mut rig, "resources"), ["Full #old requested 1", "Full shop requested 1"]);
}

#[test]
fn a78_2_updates_are_counted_also_unchanged_ones_and_only_those_of_subscribed_resources() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a", "b", "c"]);
    let resources = vec![any::<Full>("a", "x"), any::<Full>("b", "bad"), any::<Full>("unknown", "x")];
    rig.receive(1, &response::<Full>("1", resources.clone()));
    rig.sent(1);
    assert_eq!(counted(&mut rig, "updates"), ["127.0.0.1:1 Full 1 valid 1 invalid"]);
    rig.receive(1, &response::<Full>("2", resources));
    assert_eq!(counted(&mut rig, "updates"), ["127.0.0.1:1 Full 1 valid 1 invalid"]);
    rig.receive(1, &response::<Full>("3", vec![]));
    assert_eq!(counted(&mut rig, "updates"), [""; 0]);
}

#[test]
fn a_response_with_a_name_twice_is_no_valid_update() {
    let mut rig = Rig::new();
    rig.open::<Part>(&["a"]);
    rig.receive(1, &response::<Part>("1", vec![any::<Part>("a", "x"), any::<Part>("a", "y")]));
    assert_eq!(counted(&mut rig, "updates"), ["127.0.0.1:1 Part 0 valid 1 invalid"]);
}

#[test]
fn a78_2_connected_from_the_first_attempt_until_a_failure_and_again_with_a_response() {
    let mut rig = Rig::new();
    let (watch_id, _) = rig.watch::<Full>("a");
    assert_eq!(counted(&mut rig, "server"), ["connected 127.0.0.1:1 true"]);
    rig.disconnect(1, DisconnectKind::Unreachable);
    assert_eq!(counted(&mut rig, "server"), ["connected 127.0.0.1:1 false", "failures 127.0.0.1:1 1"]);
    rig.pass(Duration::from_secs(2));
    rig.disconnect(2, DisconnectKind::Unreachable);
    assert_eq!(counted(&mut rig, "server"), [""; 0], "it was failing already");
    rig.pass(Duration::from_secs(4));
    rig.connect(3);
    rig.sent(3);
    assert_eq!(counted(&mut rig, "server"), [""; 0], "a connection is not enough");
    rig.receive(3, &response::<Full>("1", vec![]));
    rig.sent(3);
    assert_eq!(counted(&mut rig, "server"), ["connected 127.0.0.1:1 true"]);
    rig.disconnect(3, DisconnectKind::Closed);
    assert_eq!(
        counted(&mut rig, "server"),
        [""; 0],
        "the end of a stream that gave a response is no failure"
    );
    rig.unwatch(watch_id);
    rig.pass(Duration::from_secs(60));
    assert_eq!(counted(&mut rig, "server"), ["connected 127.0.0.1:1 no subscriptions"]);
}

#[test]
fn counts_that_are_not_read_are_merged() {
    let mut rig = Rig::new();
    rig.open::<Full>(&["a"]);
    for version in 1..100 {
        rig.receive(1, &response::<Full>(&version.to_string(), vec![any::<Full>("a", "x")]));
        rig.sent(1);
    }
    assert_eq!(counted(&mut rig, "updates"), ["127.0.0.1:1 Full 99 valid 0 invalid"]);
}

/// What was counted since the last time, in words: of `resources`, of `updates`, of a `server`, or anything.
fn counted(rig: &mut Rig, what: &str) -> Vec<String> {
    let describe = |metric| match metric {
        Metric::Resources { authority, type_url, state, count, .. } => {
            let authority = authority.as_deref().unwrap_or("#old");
            ("resources", format!("{} {authority} {} {count}", short_type(type_url), state.as_str()))
        }
        Metric::Updates { source, type_url, valid, invalid } => {
            ("updates", format!("{} {} {valid} valid {invalid} invalid", source, short_type(type_url)))
        }
        Metric::Connected { source, connected, .. } => {
            let connected = connected.map_or("no subscriptions".into(), |connected| connected.to_string());
            ("server", format!("connected {} {connected}", source))
        }
        Metric::Failures { source, count } => ("server", format!("failures {} {count}", source)),
        other @ (Metric::Requests { .. }
        | Metric::Responses { .. }
        | Metric::StreamEnds { .. }
        | Metric::Applied { .. }) => ("traffic", format!("{other:?}")),
    };
    let all = std::iter::from_fn(|| rig.engine.poll_metric()).map(describe);
    all.filter(|(kind, _)| what.is_empty() || *kind == what).map(|(_, text)| text).collect()
}
