//! Globs: rules X15 to X19.

use std::time::Duration;

use super::rig::{Full, Part, Rig, any, delta_response, response, stream_to, wrapped};
use crate::{
    config::{ApiType, AuthorityBuilder, Bootstrap, Node, Server},
    engine::{SelectedName, Selection},
    name::ResourceName,
    pb::{
        envoy::service::discovery::v3::{DiscoveryResponse, ResourceError, ResourceName as NameMessage},
        google::rpc::Status,
    },
    protocol::{DisconnectKind, Settings},
};
use prost::Message;

const SHOP: &str = "xdstp://a/test.Full/shop/*";

fn rig() -> Rig {
    with(Server::new("127.0.0.1:1").insecure())
}

fn with(server: crate::config::ServerBuilder) -> Rig {
    let bootstrap = Bootstrap::builder().server(server).authority("a", AuthorityBuilder::default());
    Rig::of(bootstrap.build().unwrap(), Settings::default())
}

/// Watches a glob, and lets its request go.
fn open(names: &[&str]) -> Rig {
    let mut rig = rig();
    for name in names {
        rig.watch_all::<Full>(name);
    }
    rig.connect(1);
    rig.sent(1);
    rig
}

fn full(name: &str, text: &str) -> crate::pb::google::protobuf::Any {
    wrapped::<Full>(&format!("xdstp://a/test.Full/{name}"), Some(text))
}

/// What is published of members, with their names cut short.
fn members(outputs: &[String]) -> Vec<String> {
    let published = outputs.iter().filter(|outputs| outputs.starts_with('#'));
    published.map(|outputs| outputs.replace("xdstp://a/test.Full/", "")).collect()
}

#[test]
fn x15_a_resource_by_the_name_of_a_glob_is_rejected() {
    let mut rig = open(&[SHOP]);
    let outputs = rig.receive(1, &response::<Full>("1", vec![full("shop/*", "x")]));
    assert!(outputs[1].contains("INVALID_ARGUMENT: Full \"xdstp://a/test.Full/shop/*\""), "{outputs:?}");
    assert_eq!(members(&outputs), ["#1 {} complete (INVALID_ARGUMENT)"]);
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(40)), [""; 0], "and that is no sign that there is none");
    let outputs = rig.receive(1, &response::<Full>("2", vec![full("shop/a", "x")]));
    assert_eq!(members(&outputs), ["#1 {shop/a: present 2 x} complete"]);
}

#[test]
fn x15_globs_are_names_among_others() {
    let mut rig = rig();
    assert_eq!(rig.watch_all::<Full>(SHOP).1, ["connect 0.1"]);
    rig.watch_all::<Full>("xdstp://a/test.Full/*?x=y");
    rig.watch_all::<Full>("xdstp://a/test.Full/d/e/e/p/*");
    rig.watch::<Full>("one");
    assert_eq!(
        rig.connect(1)[1],
        format!("send Full [one,xdstp://a/test.Full/*?x=y,xdstp://a/test.Full/d/e/e/p/*,{SHOP}] / node")
    );
    rig.sent(1);
    let resources = vec![
        full("shop/cart", "c"),
        full("top?x=y", "t"),
        full("d/e/e/p/er", "d"),
        any::<Full>("one", "1"),
        full("shop/till", "bad"),
    ];
    let outputs = rig.receive(1, &response::<Full>("1", resources));
    assert_eq!(
        members(&outputs),
        [
            "#4 present 1 1",
            "#2 {top?x=y: present 1 t} complete",
            "#3 {d/e/e/p/er: present 1 d} complete",
            "#1 {shop/cart: present 1 c, shop/till: absent INVALID_ARGUMENT} complete",
        ]
    );
}

#[test]
fn x15_what_is_no_glob_is_refused() {
    let mut rig = rig();
    for (name, code) in [
        ("", "INVALID_ARGUMENT"),
        ("shop/*", "INVALID_ARGUMENT"),
        ("xdstp://a/test.Full/shop", "INVALID_ARGUMENT"),
        ("xdstp://a/test.Part/*", "INVALID_ARGUMENT"),
        ("xdstp://a/test.Full/*#entry=x", "INVALID_ARGUMENT"),
        ("xdstp://b/test.Full/*", "FAILED_PRECONDITION"),
    ] {
        let (watch_id, outputs) = rig.watch_all::<Full>(name);
        assert_eq!(
            outputs,
            [format!("{} {{}} incomplete ({code})", super::rig::describe_watch(watch_id))],
            "{name}"
        );
        assert!(rig.unwatch(watch_id).is_empty());
    }
    let outputs = rig.watch::<Full>(SHOP).1;
    assert!(outputs[0].ends_with("absent INVALID_ARGUMENT"), "watch_all is for globs: {outputs:?}");
    assert_eq!(rig.engine.resources(), 0);
}

#[test]
fn x16_what_a_glob_does_not_match_is_ignored_and_accepted() {
    let mut rig = open(&["xdstp://a/test.Full/foo/*?y=2&x=1"]);
    let others = ["foo/d/e?x=1&y=2", "foo?x=1&y=2", "foo/?x=1&y=2", "bar/a?x=1&y=2"];
    let others = others.into_iter().chain(["foo/a?x=1", "foo/a?x=1&y=2&z=3", "foo/a"]);
    let mut resources: Vec<_> = others.map(|name| full(name, "x")).collect();
    resources.push(wrapped::<Full>("xdstp://b/test.Full/foo/a?x=1&y=2", Some("x")));
    resources.push(wrapped::<Full>("xdstp://a/test.Part/foo/a?x=1&y=2", Some("x")));
    resources.push(wrapped::<Full>("foo/a", Some("x")));
    assert_eq!(
        rig.receive(1, &response::<Full>("1", resources.clone())),
        ["read", "send Full [xdstp://a/test.Full/foo/*?x=1&y=2] 1/n1"]
    );
    assert_eq!(rig.engine.resources(), 1, "the glob alone");
    rig.sent(1);
    resources.push(full("foo/a?y=2&x=1", "m"));
    let outputs = rig.receive(1, &response::<Full>("2", resources));
    assert_eq!(members(&outputs), ["#1 {foo/a?x=1&y=2: present 2 m} complete"]);
}

#[test]
fn x17_a_name_watched_by_itself_and_by_a_glob_reaches_both() {
    let mut rig = open(&[SHOP]);
    rig.receive(1, &response::<Full>("1", vec![full("shop/a", "x"), full("shop/b", "y")]));
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    let (one, outputs) = rig.watch::<Full>("xdstp://a/test.Full/shop/a");
    assert_eq!(members(&outputs), ["#2 present 1 x"], "what is known is seen at once");
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("2", vec![full("shop/a", "z"), full("shop/b", "y")]));
    assert_eq!(
        members(&outputs),
        ["#2 present 2 z", "#1 {shop/a: present 2 z, shop/b: present 1 y} complete"]
    );
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(one);
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("3", vec![full("shop/a", "w"), full("shop/b", "y")]));
    assert_eq!(
        members(&outputs),
        ["#1 {shop/a: present 3 w, shop/b: present 1 y} complete"],
        "still a member"
    );
}

#[test]
fn x17_the_end_of_a_glob_leaves_what_is_watched_by_itself() {
    let mut rig = rig();
    let (all, _) = rig.watch_all::<Full>(SHOP);
    rig.watch::<Full>("xdstp://a/test.Full/shop/a");
    rig.connect(1);
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![full("shop/a", "x"), full("shop/b", "y")]));
    rig.sent(1);
    assert_eq!(rig.engine.resources(), 3);
    rig.pass(Duration::from_millis(20));
    rig.unwatch(all);
    rig.sent(1);
    assert_eq!(rig.engine.resources(), 1, "the member that nobody watches is forgotten, and the glob");
    let outputs = rig.receive(1, &response::<Full>("2", vec![full("shop/a", "z"), full("shop/b", "y")]));
    assert_eq!(members(&outputs), ["#2 present 2 z"]);
    assert_eq!(rig.engine.resources(), 1);
}

#[test]
fn x19_absence_from_a_full_state_is_the_end_of_members() {
    let mut rig = open(&[SHOP, "xdstp://a/test.Full/*"]);
    rig.receive(1, &response::<Full>("1", vec![full("shop/a", "x"), full("shop/b", "y"), full("top", "t")]));
    rig.sent(1);
    let outputs = rig
        .receive(1, &response::<Full>("2", vec![full("shop/b", "y"), full("shop/c", "z"), full("top", "t")]));
    assert_eq!(members(&outputs), ["#1 {shop/b: present 1 y, shop/c: present 2 z} complete"]);
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Full>("3", vec![full("top", "t")]));
    assert_eq!(members(&outputs), ["#1 {} complete"], "empty, which is no error");
    assert_eq!(rig.engine.resources(), 3, "two globs and a member");
}

#[test]
fn x19_members_of_a_type_without_full_state_stay() {
    let mut rig = rig();
    rig.watch_all::<Part>("xdstp://a/test.Part/*");
    rig.connect(1);
    rig.sent(1);
    let part = |name: &str, text| wrapped::<Part>(&format!("xdstp://a/test.Part/{name}"), Some(text));
    rig.receive(1, &response::<Part>("1", vec![part("a", "x"), part("b", "y")]));
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Part>("2", vec![part("b", "z")]));
    let seen = "#1 {xdstp://a/test.Part/a: present 1 x, xdstp://a/test.Part/b: present 2 z} complete";
    assert_eq!(members(&outputs), [seen]);
}

#[test]
fn removals_are_exact_across_a_reconnect() {
    let mut rig = open(&[SHOP]);
    rig.receive(1, &response::<Full>("1", vec![full("shop/a", "x"), full("shop/b", "y")]));
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.connect(2)[1], format!("send Full [{SHOP}] 1/ node"));
    rig.sent(2);
    let outputs = rig.receive(2, &response::<Full>("2", vec![full("shop/b", "y"), full("shop/c", "z")]));
    assert_eq!(members(&outputs), ["#1 {shop/b: present 1 y, shop/c: present 2 z} complete"]);
    assert_eq!(rig.engine.resources(), 3);
}

#[test]
fn a_glob_that_nothing_comes_of_is_complete_and_empty_with_a_warning() {
    let mut rig = open(&[SHOP]);
    let outputs = rig.receive(1, &response::<Full>("1", vec![]));
    assert!(members(&outputs).is_empty(), "it may have been on its way: {outputs:?}");
    rig.sent(1);
    assert_eq!(rig.pass(Duration::from_secs(15)), ["#1 {} complete (NOT_FOUND)"]);
    let outputs = rig.receive(1, &response::<Full>("2", vec![full("shop/a", "x")]));
    assert_eq!(members(&outputs), ["#1 {shop/a: present 2 x} complete"]);
}

#[test]
fn an_unreachable_server_is_a_warning_of_the_glob_and_of_its_members() {
    let mut rig = rig();
    rig.watch_all::<Full>(SHOP);
    assert_eq!(rig.disconnect(1, DisconnectKind::Unreachable), ["#1 {} incomplete (UNAVAILABLE)"]);
    assert_eq!(rig.watch_all::<Full>(SHOP).1.last().unwrap(), "#2 {} incomplete (UNAVAILABLE)");
    rig.pass(Duration::from_secs(2));
    rig.connect(2);
    rig.sent(2);
    let outputs = rig.receive(2, &response::<Full>("1", vec![full("shop/a", "x")]));
    assert_eq!(members(&outputs).last().unwrap(), "#2 {shop/a: present 1 x} complete");
    rig.disconnect(2, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    let outputs = rig.disconnect(3, DisconnectKind::Unreachable);
    assert_eq!(
        members(&outputs).last().unwrap(),
        "#2 {shop/a: present 1 x (UNAVAILABLE)} complete (UNAVAILABLE)"
    );
}

fn error_of(name: &str, code: i32, version: &str) -> DiscoveryResponse {
    let error = ResourceError {
        resource_name: Some(NameMessage { name: name.into(), ..NameMessage::default() }),
        error_detail: Some(Status { code, message: "no".into(), details: vec![] }),
    };
    DiscoveryResponse { resource_errors: vec![error], ..response::<Part>(version, vec![]) }
}

#[test]
fn an_error_of_the_server_may_name_a_glob() {
    let mut rig = rig();
    rig.watch_all::<Part>("xdstp://a/test.Part/*");
    rig.connect(1);
    rig.sent(1);
    let glob = "xdstp://a/test.Part/*";
    let outputs = rig.receive(1, &error_of(glob, 7, "1"));
    assert_eq!(members(&outputs), ["#1 {} complete (PERMISSION_DENIED)"]);
    rig.sent(1);
    let member = wrapped::<Part>("xdstp://a/test.Part/a", Some("x"));
    let outputs = rig.receive(1, &response::<Part>("2", vec![member]));
    let seen = "#1 {xdstp://a/test.Part/a: present 2 x} complete";
    assert_eq!(members(&outputs), [seen]);
    rig.sent(1);
    let outputs = rig.receive(1, &error_of(glob, 7, "3"));
    assert_eq!(members(&outputs), [format!("{seen} (PERMISSION_DENIED)")], "the last good ones stay");
}

#[test]
fn a_server_whose_errors_drop_data_drops_the_members_of_a_glob() {
    let mut rig = with(Server::new("127.0.0.1:1").insecure().features(["fail_on_data_errors"]));
    let glob = "xdstp://a/test.Part/*";
    rig.watch_all::<Part>(glob);
    rig.watch::<Part>("xdstp://a/test.Part/b");
    rig.connect(1);
    rig.sent(1);
    let member = |name: &str| wrapped::<Part>(&format!("xdstp://a/test.Part/{name}"), Some("x"));
    rig.receive(1, &response::<Part>("1", vec![member("a"), member("b")]));
    assert_eq!(rig.engine.resources(), 3);
    rig.sent(1);
    assert_eq!(members(&rig.receive(1, &error_of(glob, 7, "2"))), ["#1 {} complete (PERMISSION_DENIED)"]);
    assert_eq!(rig.engine.resources(), 2, "what is watched by itself stays");
}

#[test]
fn a_glob_resubscribed_before_the_unsubscription_was_sent_shows_its_members() {
    let mut rig = rig();
    let (all, _) = rig.watch_all::<Full>(SHOP);
    rig.connect(1);
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![full("shop/a", "x")]));
    // The answer is on its way still, so the end cannot be sent yet.
    assert!(rig.unwatch(all).is_empty());
    let (again, outputs) = rig.watch_all::<Full>(SHOP);
    assert_eq!(members(&outputs), ["#2 {shop/a: present 1 x} complete"]);
    rig.unwatch(again);
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    assert_eq!(rig.engine.resources(), 0);
    assert!(members(&rig.watch_all::<Full>(SHOP).1).is_empty(), "removed when the server was notified");
}

#[test]
fn members_are_taken_from_the_server_that_counts() {
    let server = |port: u16| Server::new(format!("127.0.0.1:{port}")).insecure();
    let bootstrap = Bootstrap::builder().server(server(1)).server(server(2));
    let bootstrap = bootstrap.authority("a", AuthorityBuilder::default()).build().unwrap();
    let mut rig = Rig::of(bootstrap, Settings::default());
    rig.watch_all::<Full>(SHOP);
    assert_eq!(rig.disconnect(1, DisconnectKind::Unreachable), ["connect 1.1"]);
    rig.connect_to(stream_to(1, 1));
    rig.sent_to(stream_to(1, 1));
    let lower = response::<Full>("1", vec![full("shop/a", "x"), full("shop/b", "y")]).encode_to_vec();
    let outputs = rig.receive_from(stream_to(1, 1), lower);
    assert_eq!(members(&outputs), ["#1 {shop/a: present 1 x, shop/b: present 1 y} complete"]);
    rig.pass(Duration::from_secs(2));
    rig.connect(2);
    rig.sent(2);
    // New members make the client revert to the first server, and unsubscribe from the second one; what it does not send has its time.
    let outputs = rig.receive(2, &response::<Full>("1", vec![full("shop/c", "z")]));
    assert!(outputs.contains(&"disconnect 1.1".to_owned()), "{outputs:?}");
    assert_eq!(members(&outputs).last().unwrap(), "#1 {shop/c: present 1 z} complete");
}

/// The same on the incremental variant.
fn open_delta() -> Rig {
    let server = Server::new("127.0.0.1:1").insecure();
    let bootstrap = Bootstrap::builder().server(server).authority("a", AuthorityBuilder::default());
    let settings = Settings { api_type: ApiType::AggregatedDeltaGrpc, ..Settings::default() };
    let mut rig = Rig::of(bootstrap.build().unwrap(), settings);
    rig.watch_all::<Full>(SHOP);
    assert_eq!(rig.connect(1)[1], format!("send Full +{SHOP} node"));
    rig.sent(1);
    rig
}

fn delta(nonce: &str, resources: &[(&str, &str)], removed: &[&str]) -> Vec<u8> {
    let whole = |name: &&str| format!("xdstp://a/test.Full/{name}");
    let names: Vec<_> = resources.iter().map(|(name, _)| whole(name)).collect();
    let resources: Vec<_> =
        names.iter().zip(resources).map(|(name, (_, text))| (name.as_str(), nonce, Some(*text))).collect();
    let removed: Vec<_> = removed.iter().map(whole).collect();
    let removed: Vec<_> = removed.iter().map(String::as_str).collect();
    delta_response::<Full>(nonce, &resources, &removed)
}

#[test]
fn x18_a_removed_member_is_gone_and_no_other() {
    let mut rig = open_delta();
    let outputs = rig.receive_raw(1, delta("1", &[("shop/a", "x"), ("shop/b", "y")], &[]));
    assert_eq!(members(&outputs), ["#1 {shop/a: present 1 x, shop/b: present 1 y} complete"]);
    rig.sent(1);
    let outputs = rig.receive_raw(1, delta("2", &[("shop/c", "z"), ("other/d", "z")], &["shop/a", "shop/e"]));
    assert_eq!(members(&outputs), ["#1 {shop/b: present 1 y, shop/c: present 2 z} complete"]);
    assert_eq!(rig.engine.resources(), 3);
}

#[test]
fn x18_a_removed_glob_has_no_members() {
    let mut rig = open_delta();
    rig.watch::<Full>("xdstp://a/test.Full/shop/b");
    rig.receive_raw(1, delta("1", &[("shop/a", "x"), ("shop/b", "y")], &[]));
    rig.sent(1);
    let outputs = rig.receive_raw(1, delta("2", &[], &["shop/*"]));
    assert_eq!(
        members(&outputs),
        ["#1 {} complete (NOT_FOUND)"],
        "what is watched by itself is not concerned"
    );
    assert_eq!(rig.engine.resources(), 2);
    rig.sent(1);
    let outputs = rig.receive_raw(1, delta("3", &[("shop/c", "z")], &[]));
    assert_eq!(members(&outputs), ["#1 {shop/c: present 3 z} complete"]);
}

#[test]
fn b2_17_x18_an_unset_resource_by_the_name_of_a_glob_is_its_end() {
    let mut rig = open_delta();
    rig.receive_raw(1, delta("1", &[("shop/a", "x")], &[]));
    rig.sent(1);
    let outputs = rig.receive_raw(1, delta_response::<Full>("2", &[(SHOP, "", None)], &[]));
    assert_eq!(members(&outputs), ["#1 {} complete (NOT_FOUND)"]);
    assert_eq!(rig.engine.resources(), 1);
}

#[test]
fn x18_a_glob_that_there_is_nothing_of_is_known_at_once() {
    let mut rig = open_delta();
    assert_eq!(members(&rig.receive_raw(1, delta("1", &[], &["shop/*"]))), ["#1 {} complete (NOT_FOUND)"]);
    assert!(members(&rig.pass(Duration::from_secs(60))).is_empty());
}

#[test]
fn x18_b2_33_versions_of_members_are_sent_on_a_new_stream() {
    let mut rig = open_delta();
    rig.receive_raw(1, delta("1", &[("shop/a", "x"), ("shop/b", "y")], &[]));
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    let versions = "{xdstp://a/test.Full/shop/a=1,xdstp://a/test.Full/shop/b=1}";
    assert_eq!(rig.connect(2)[1], format!("send Full +{SHOP} {versions} node"));
    rig.sent(2);
    let outputs = rig.receive_raw(2, delta("2", &[("shop/c", "z")], &["shop/a"]));
    assert_eq!(members(&outputs), ["#1 {shop/b: present 1 y, shop/c: present 2 z} complete"]);
    assert!(members(&rig.pass(Duration::from_secs(60))).is_empty(), "nothing is missed");
}

#[test]
fn what_is_held_by_name_is_a_member_that_need_not_be_sent_again() {
    let mut rig = open_delta();
    rig.watch_all::<Full>("xdstp://a/test.Full/*");
    rig.sent(1);
    rig.pass(Duration::from_millis(20));
    rig.watch::<Full>("xdstp://a/test.Full/other/a");
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    rig.receive_raw(1, delta("1", &[("other/a", "x"), ("shop/b", "y"), ("c", "z")], &[]));
    rig.sent(1);
    let (_, outputs) = rig.watch_all::<Full>("xdstp://a/test.Full/other/*");
    assert_eq!(members(&outputs), ["#4 {other/a: present 1 x} incomplete"]);
    rig.pass(Duration::from_millis(20));
    rig.sent(1);
    assert_eq!(members(&rig.pass(Duration::from_secs(15))), ["#4 {other/a: present 1 x} complete"]);
}

#[test]
fn x7_members_are_shown_without_what_was_added_to_the_name_of_the_glob() {
    let bootstrap = Bootstrap::builder()
        .node(Node::new("me"))
        .node_context_params(["id"])
        .client_feature_context_params(["f"])
        .server(Server::new("127.0.0.1:1").insecure())
        .authority("a", AuthorityBuilder::default());
    let mut rig = Rig::of(bootstrap.build().unwrap(), Settings::default());
    rig.watch_all::<Full>(&format!("{SHOP}?z=1"));
    let attributed =
        ResourceName::parse("xdstp://a/test.Full/in").unwrap().with_resource_attribute("vip", "v");
    rig.watch_names::<Full>(Selection::One(SelectedName::Name(Box::new(attributed))));
    let (added, id) = ("xds.client_feature.f=true", "xds.node.id=me");
    assert_eq!(
        rig.connect(1)[1],
        format!(
            "send Full [xdstp://a/test.Full/in?{added}&xds.resource.vip=v,{SHOP}?{added}&{id}&z=1] / node"
        )
    );
    rig.sent(1);
    let resources =
        [format!("shop/a?{added}&{id}&z=1"), "shop/a?z=1".into(), format!("in?{added}&xds.resource.vip=v")];
    let resources = resources.iter().map(|name| full(name, "x")).collect();
    let outputs = rig.receive(1, &response::<Full>("1", resources));
    assert_eq!(members(&outputs), ["#2 present 1 x", "#1 {shop/a?z=1: present 1 x} complete"]);
}
