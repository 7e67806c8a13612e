//! Redirects (X20) and alternatives (X21).

use std::time::Duration;

use super::rig::{Full, Rig, any, redirect, response, stream_to, wrapped};
use crate::{
    config::{AuthorityBuilder, Bootstrap, Server},
    engine::{Settings, collections::MAX_ALTERNATIVES},
    name::encoding,
    observed::ErasedObserved,
    pb::google::protobuf::Any,
    protocol::DisconnectKind,
};
use prost::Message;

/// The authorities `a` and `b`, of servers of their own: 0 and 1, in the order of first use.
fn rig() -> Rig {
    let server = |port: u16| Server::new(format!("127.0.0.1:{port}")).insecure();
    let of = |port| AuthorityBuilder::default().server(server(port));
    let bootstrap = Bootstrap::builder().server(server(1)).authority("a", of(1)).authority("b", of(2));
    Rig::of(bootstrap.build().unwrap(), Settings::default())
}

fn a(name: &str) -> String {
    format!("xdstp://a/test.Full/{name}")
}

fn b(name: &str) -> String {
    format!("xdstp://b/test.Full/{name}")
}

fn full(name: &str, text: &str) -> Any {
    wrapped::<Full>(&a(name), Some(text))
}

/// A redirect within the authority `a`.
fn lead(name: &str, target: &str) -> Any {
    redirect(&a(name), &a(target))
}

/// Watches names of `a`, and lets the requests go.
fn open(names: &[&str]) -> Rig {
    let mut rig = rig();
    for name in names {
        rig.watch::<Full>(&a(name));
    }
    rig.connect(1);
    rig.sent(1);
    rig
}

/// A response comes, and all is written that is to be written then.
fn receive(rig: &mut Rig, version: &str, resources: Vec<Any>) -> Vec<String> {
    let outputs = rig.receive(1, &response::<Full>(version, resources));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    seen(outputs)
}

/// What is published to applications.
fn seen(outputs: Vec<String>) -> Vec<String> {
    outputs.into_iter().filter(|outputs| outputs.starts_with('#')).collect()
}

#[test]
fn x20_a_redirect_is_followed_and_shown_under_the_requested_name() {
    let mut rig = open(&["x"]);
    let outputs = rig.receive(1, &response::<Full>("1", vec![lead("x", "y")]));
    assert_eq!(outputs, ["read", &format!("send Full [{}] 1/n1", a("x"))], "nothing is seen of it yet");
    assert_eq!(rig.sent(1), [format!("send Full [{},{}] 1/n1", a("x"), a("y"))]);
    rig.sent(1);
    assert_eq!(receive(&mut rig, "2", vec![lead("x", "y"), full("y", "1")]), ["#1 present 2 1"]);
    assert_eq!(receive(&mut rig, "3", vec![lead("x", "y"), full("y", "2")]), ["#1 present 3 2"]);
    assert!(receive(&mut rig, "4", vec![lead("x", "y"), full("y", "2")]).is_empty(), "nothing has changed");
    assert_eq!(rig.watch::<Full>(&a("x")).1, ["#2 present 4 2"], "who joins sees it at once");
}

#[test]
fn x20_an_error_of_the_target_is_an_error_of_the_requested_name() {
    let mut rig = open(&["x"]);
    receive(&mut rig, "1", vec![lead("x", "y")]);
    assert_eq!(seen(rig.pass(Duration::from_secs(15))), ["#1 absent NOT_FOUND"]);
    assert_eq!(receive(&mut rig, "2", vec![lead("x", "y"), full("y", "1")]), ["#1 present 2 1"]);
    assert_eq!(
        receive(&mut rig, "3", vec![lead("x", "y"), full("y", "bad")]),
        ["#1 present 2 1 (INVALID_ARGUMENT)"]
    );
    assert_eq!(receive(&mut rig, "4", vec![lead("x", "y")]), ["#1 absent NOT_FOUND"]);
}

#[test]
fn x20_a_changed_target_is_followed_and_the_old_one_unsubscribed() {
    let mut rig = open(&["x"]);
    receive(&mut rig, "1", vec![lead("x", "y")]);
    receive(&mut rig, "2", vec![lead("x", "y"), full("y", "1")]);
    let outputs = receive(&mut rig, "3", vec![lead("x", "z"), full("y", "1")]);
    assert!(outputs.is_empty(), "the old one is seen until something is known of the new one: {outputs:?}");
    assert_eq!(receive(&mut rig, "4", vec![lead("x", "z"), full("z", "2")]), ["#1 present 4 2"]);
    assert_eq!(rig.engine.resources(), 2);
    assert_eq!(receive(&mut rig, "5", vec![full("x", "3")]), ["#1 present 5 3"], "it leads nowhere any more");
    assert_eq!(rig.engine.resources(), 1);
}

#[test]
fn x20_the_target_goes_with_the_watch() {
    let mut rig = rig();
    let (watch_id, _) = rig.watch::<Full>(&a("x"));
    rig.connect(1);
    rig.sent(1);
    receive(&mut rig, "1", vec![lead("x", "y")]);
    receive(&mut rig, "2", vec![lead("x", "y"), full("y", "1")]);
    rig.unwatch(watch_id);
    for _ in 0..3 {
        rig.pass(Duration::from_millis(500));
        rig.sent(1);
    }
    assert_eq!(rig.engine.resources(), 0);
}

#[test]
fn x20_a_redirect_may_lead_to_another_authority() {
    let mut rig = open(&["x"]);
    let outputs = rig.receive(1, &response::<Full>("1", vec![redirect(&a("x"), &b("y"))]));
    assert!(outputs.contains(&"connect 1.1".to_owned()), "{outputs:?}");
    let outputs = rig.disconnect_from(stream_to(1, 1), DisconnectKind::Unreachable);
    assert_eq!(seen(outputs), ["#1 absent UNAVAILABLE"]);
    rig.pass(Duration::from_secs(2));
    rig.connect_to(stream_to(1, 2));
    rig.sent_to(stream_to(1, 2));
    let theirs = response::<Full>("7", vec![wrapped::<Full>(&b("y"), Some("1"))]).encode_to_vec();
    assert_eq!(seen(rig.receive_from(stream_to(1, 2), theirs)), ["#1 present 7 1"]);
}

#[test]
fn x20_a_redirect_may_lead_to_an_old_style_name() {
    let mut rig = open(&["x"]);
    let outputs = rig.receive(1, &response::<Full>("1", vec![redirect(&a("x"), "old|80")]));
    // The servers are the same, and so is the stream.
    assert_eq!(rig.sent(1), [format!("send Full [old|80,{}] 1/n1", a("x"))], "{outputs:?}");
    rig.sent(1);
    let outputs = receive(&mut rig, "2", vec![redirect(&a("x"), "old|80"), any::<Full>("old|80", "1")]);
    assert_eq!(outputs, ["#1 present 2 1"]);
}

#[test]
fn x20_an_old_style_name_may_redirect_and_is_requested_from_the_servers_without_an_authority() {
    let mut rig = rig();
    rig.watch::<Full>(&b("x"));
    rig.connect(1);
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("1", vec![redirect(&b("x"), "old")]));
    assert!(outputs.contains(&"connect 1.1".to_owned()), "that of `b` is another one: {outputs:?}");
    assert_eq!(rig.connect_to(stream_to(1, 1))[1], "send Full [old] / node");
    rig.sent_to(stream_to(1, 1));
    let theirs = |version, resources| response::<Full>(version, resources).encode_to_vec();
    rig.receive_from(stream_to(1, 1), theirs("1", vec![redirect("old", "older")]));
    rig.sent_to(stream_to(1, 1));
    let both = vec![redirect("old", "older"), any::<Full>("older", "1")];
    assert_eq!(seen(rig.receive_from(stream_to(1, 1), theirs("2", both))), ["#1 present 2 1"]);
}

#[test]
fn x20_rings_and_chains_of_old_style_names_are_errors() {
    let mut rig = rig();
    rig.watch::<Full>("0");
    rig.connect(1);
    rig.sent(1);
    let to = |from: usize, to: usize| redirect(&from.to_string(), &to.to_string());
    assert_eq!(receive(&mut rig, "1", vec![to(0, 0)]), ["#1 absent INVALID_ARGUMENT"]);
    assert!(receive(&mut rig, "2", vec![to(0, 1)]).is_empty());
    assert_eq!(receive(&mut rig, "3", vec![to(0, 1), to(1, 0)]), ["#1 absent INVALID_ARGUMENT"]);
    let mut leads = vec![to(0, 1)];
    receive(&mut rig, "4", leads.clone());
    for n in 1..16 {
        leads.push(to(n, n + 1));
        receive(&mut rig, &format!("5.{n}"), leads.clone());
    }
    let whole = leads.iter().cloned().chain([any::<Full>("16", "1")]).collect();
    assert_eq!(receive(&mut rig, "6", whole), ["#1 present 6 1"]);
    leads.push(to(16, 17));
    assert_eq!(receive(&mut rig, "7", leads), ["#1 absent INVALID_ARGUMENT"]);
    assert_eq!(rig.engine.resources(), 17, "the last one is not requested");
}

#[test]
fn x20_rings_are_errors_until_they_are_open() {
    let mut rig = open(&["x"]);
    assert_eq!(receive(&mut rig, "1", vec![lead("x", "x")]), ["#1 absent INVALID_ARGUMENT"]);
    assert!(receive(&mut rig, "2", vec![lead("x", "y")]).is_empty());
    let outputs = receive(&mut rig, "3", vec![lead("x", "y"), lead("y", "x")]);
    assert_eq!(outputs, ["#1 absent INVALID_ARGUMENT"]);
    receive(&mut rig, "4", vec![lead("x", "z"), lead("y", "x")]);
    rig.watch::<Full>(&a("y"));
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    let outputs = receive(&mut rig, "5", vec![lead("x", "z"), lead("y", "x"), full("z", "1")]);
    assert_eq!(outputs, ["#1 present 5 1", "#2 present 5 1"]);
}

#[test]
fn x20_sixteen_redirects_are_followed_and_no_more() {
    let mut rig = open(&["0"]);
    let name = |n: usize| n.to_string();
    let mut leads = Vec::new();
    for n in 0..16 {
        leads.push(lead(&name(n), &name(n + 1)));
        assert!(receive(&mut rig, &name(n), leads.clone()).is_empty());
    }
    let whole = leads.iter().cloned().chain([full("16", "1")]).collect();
    assert_eq!(receive(&mut rig, "20", whole), ["#1 present 20 1"]);
    leads.push(lead("16", "17"));
    assert_eq!(receive(&mut rig, "21", leads), ["#1 absent INVALID_ARGUMENT"]);
    assert_eq!(rig.engine.resources(), 17, "the last one is not requested");
    rig.watch::<Full>(&a("16"));
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    assert_eq!(rig.engine.resources(), 18, "who watches it by itself is led on");
}

#[test]
fn x20_x22_a_redirect_to_another_type_is_rejected_with_the_last_good_kept() {
    let mut rig = open(&["x"]);
    receive(&mut rig, "1", vec![full("x", "1")]);
    let bad = redirect(&a("x"), "xdstp://a/test.Part/x");
    let outputs = rig.receive(1, &response::<Full>("2", vec![bad]));
    assert_eq!(outputs[0], "#1 present 1 1 (INVALID_ARGUMENT)");
    assert!(
        outputs[2].contains("redirect: leads to a resource of type test.Part, not of test.Full"),
        "{outputs:?}"
    );
}

#[test]
fn x20_a_redirect_without_a_wrapper_has_no_name() {
    let mut rig = open(&["x"]);
    let bare = Any { type_url: "type.googleapis.com/xds.core.v3.ResourceLocator".into(), ..Any::default() };
    let outputs = rig.receive(1, &response::<Full>("1", vec![bare]));
    assert!(outputs[2].contains("INVALID_ARGUMENT: resources[0]"), "{outputs:?}");
}

#[test]
fn x20_members_of_globs_may_redirect() {
    let mut rig = rig();
    rig.watch_all::<Full>(&a("*"));
    rig.connect(1);
    rig.sent(1);
    receive(&mut rig, "1", vec![lead("x", "sub/y")]);
    let outputs = receive(&mut rig, "2", vec![lead("x", "sub/y"), full("sub/y", "1")]);
    assert_eq!(outputs, [format!("#1 {{{}: present 2 1}} complete", a("x"))]);
    assert_eq!(receive(&mut rig, "3", vec![]), ["#1 {} complete"]);
    assert_eq!(rig.engine.resources(), 1);
}

/// A name with an alternative.
fn either() -> (Rig, Vec<String>) {
    let mut rig = rig();
    let outputs = rig.watch::<Full>(&format!("{}#alt={}", a("x"), b("y"))).1;
    (rig, outputs)
}

/// What the server of the alternative sends.
fn alternative(rig: &mut Rig, version: &str, text: &str) -> Vec<String> {
    let response = response::<Full>(version, vec![wrapped::<Full>(&b("y"), Some(text))]);
    seen(rig.receive_from(stream_to(1, 1), response.encode_to_vec()))
}

#[test]
fn x21_the_alternative_is_used_while_the_source_is_unreachable_and_nothing_is_cached() {
    let (mut rig, outputs) = either();
    assert_eq!(outputs, ["connect 0.1"], "the alternative is not requested yet");
    let outputs = rig.disconnect(1, DisconnectKind::Unreachable);
    assert_eq!(outputs, ["connect 1.1"], "no change is published as long as the alternative may come");
    assert_eq!(rig.connect_to(stream_to(1, 1))[1], format!("send Full [{}] / node", b("y")));
    rig.sent_to(stream_to(1, 1));
    assert_eq!(alternative(&mut rig, "7", "1"), ["#1 present 7 1"]);
    rig.pass(Duration::from_secs(2));
    rig.connect(2);
    rig.sent(2);
    assert_eq!(alternative(&mut rig, "8", "2"), ["#1 present 8 2"], "until it delivers");
    rig.sent_to(stream_to(1, 1));
    rig.pass(Duration::from_millis(20));
    let outputs = rig.receive(2, &response::<Full>("1", vec![full("x", "own")]));
    assert_eq!(seen(outputs), ["#1 present 1 own"]);
    for _ in 0..3 {
        rig.pass(Duration::from_millis(500));
        rig.sent_to(stream_to(1, 1));
    }
    assert_eq!(rig.engine.resources(), 1, "the alternative is unsubscribed");
    rig.sent(2);
    rig.disconnect(2, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    let outputs = rig.disconnect(3, DisconnectKind::Unreachable);
    assert_eq!(outputs, ["#1 present 1 own (UNAVAILABLE)"], "what is cached is better than an alternative");
}

#[test]
fn x21_an_alternative_may_be_an_old_style_name() {
    let mut rig = rig();
    assert_eq!(rig.watch::<Full>(&format!("{}#alt=old", b("x"))).1, ["connect 0.1"]);
    assert_eq!(rig.disconnect(1, DisconnectKind::Unreachable), ["connect 1.1"]);
    assert_eq!(rig.connect_to(stream_to(1, 1))[1], "send Full [old] / node");
    rig.sent_to(stream_to(1, 1));
    let theirs = response::<Full>("7", vec![any::<Full>("old", "1")]).encode_to_vec();
    assert_eq!(seen(rig.receive_from(stream_to(1, 1), theirs)), ["#1 present 7 1"]);
}

#[test]
fn x21_what_does_not_exist_has_no_alternative() {
    let (mut rig, _) = either();
    rig.connect(1);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(15)), ["#1 absent NOT_FOUND"]);
}

#[test]
fn x21_the_source_wins_also_by_saying_that_there_is_none() {
    let (mut rig, _) = either();
    rig.disconnect(1, DisconnectKind::Unreachable);
    rig.connect_to(stream_to(1, 1));
    rig.sent_to(stream_to(1, 1));
    alternative(&mut rig, "7", "1");
    rig.pass(Duration::from_secs(2));
    rig.connect(2);
    rig.sent(2);
    assert_eq!(seen(rig.pass(Duration::from_secs(15))), ["#1 absent NOT_FOUND"]);
}

#[test]
fn x21_when_both_are_unreachable_the_error_has_both() {
    let (mut rig, _) = either();
    rig.disconnect(1, DisconnectKind::Unreachable);
    let outputs = rig.disconnect_from(stream_to(1, 1), DisconnectKind::Unreachable);
    assert_eq!(outputs, ["#1 absent UNAVAILABLE"]);
}

#[test]
fn x21_an_authority_that_nobody_knows_has_its_alternative_at_once() {
    let mut rig = rig();
    let outputs = rig.watch::<Full>(&format!("xdstp://c/test.Full/x#alt={}", a("y"))).1;
    assert_eq!(outputs, ["connect 0.1"]);
    rig.connect(1);
    rig.sent(1);
    assert_eq!(receive(&mut rig, "1", vec![full("y", "1")]), ["#1 present 1 1"]);
}

#[test]
fn x21_alternatives_may_have_alternatives_and_lead_back() {
    let mut rig = rig();
    let nested = format!("xdstp://c/test.Full/x#alt={}%23alt={}", b("y"), a("z"));
    assert_eq!(rig.watch::<Full>(&nested).1, ["connect 0.1"]);
    let outputs = rig.disconnect(1, DisconnectKind::Unreachable);
    assert_eq!(outputs, ["connect 1.1"]);
    rig.connect_to(stream_to(1, 1));
    rig.sent_to(stream_to(1, 1));
    let response =
        response::<Full>("1", vec![redirect(&a("z"), &format!("xdstp://c/test.Full/v#alt={}", a("z")))]);
    let outputs = rig.receive_from(stream_to(1, 1), response.encode_to_vec());
    assert_eq!(seen(outputs), ["#1 absent FAILED_PRECONDITION"], "the ring is not closed");
}

#[test]
fn x21_an_alternative_of_another_type_is_refused() {
    let mut rig = rig();
    let outputs = rig.watch::<Full>(&format!("{}#alt=xdstp://b/test.Part/y", a("x"))).1;
    assert_eq!(outputs, ["#1 absent INVALID_ARGUMENT"]);
}

/// A name with its alternatives, each of which is that of the one before.
fn with_alternatives(names: &[String]) -> String {
    let (last, others) = names.split_last().unwrap();
    others.iter().rev().fold(last.clone(), |alt, name| {
        let mut text = format!("{name}#alt=");
        encoding::encode_into(&mut text, &alt, encoding::DIRECTIVE);
        text
    })
}

/// 44 resources of 12 KB, four on each of eleven levels: each redirects to the four of the next level, one as the alternative of the
/// other, and those of the last level to an authority that is unknown.
fn lattice() -> (String, Vec<Any>) {
    let level = |level: usize| (0..4).map(move |place| a(&format!("{}{level}.{place}", "x".repeat(2_300))));
    let target = |below: usize| match below {
        11 => "xdstp://unknown/test.Full/x".to_owned(),
        below => with_alternatives(&level(below).collect::<Vec<_>>()),
    };
    let leads = (0..11).flat_map(|at| level(at).map(move |name| redirect(&name, &target(at + 1))));
    (level(0).next().unwrap(), leads.collect())
}

#[test]
fn x20_x21_redirects_with_alternatives_cost_no_more_than_there_are_and_their_errors_stay_short() {
    let (first, leads) = lattice();
    let size = leads.iter().map(|any| any.value.len()).max().unwrap();
    assert!((11_000..13_000).contains(&size) && leads.len() == 44, "{size}");
    let mut rig = rig();
    let (watch_id, _) = rig.watch::<Full>(&first);
    rig.connect(1);
    rig.sent(1);
    for version in 0..100 {
        receive(&mut rig, &version.to_string(), leads.clone());
    }
    let looks = rig.engine.indirections.looks();
    assert!(looks <= 100_000, "{looks}");
    assert_eq!(rig.engine.indirections.alternatives_in_use(), MAX_ALTERNATIVES);
    let Some(ErasedObserved::Absent { reason }) =
        rig.engine.indirections.look(&rig.engine.store, &rig.engine.delivery, watch_id)
    else {
        panic!("nothing is published")
    };
    assert!(reason.reason().len() <= 4096, "{}", reason.reason().len());
    assert!(reason.reason().contains("64 alternatives are in use"), "{reason}");
    assert!(reason.reason().ends_with("authority \"unknown\" is not found in the bootstrap"), "{reason}");
}
