//! Alternatives of globs and lists (X21).

use std::time::Duration;

use prost::Message;

use super::rig::{Full, Rig, redirect, response, stream_to, wrapped};
use crate::{
    config::{AuthorityBuilder, Bootstrap, Server},
    engine::Settings,
    pb::{envoy::service::discovery::v3::DiscoveryResponse, google::protobuf::Any},
    protocol::DisconnectKind,
};

const GLOB: &str = "xdstp://a/test.Full/*#alt=xdstp://b/test.Full/*";
const LIST: &str = "xdstp://a/test.FullCollection/l#alt=xdstp://b/test.Full/*";

/// The authorities `a` and `b`, of servers of their own: 0 and 1, in the order of first use.
fn rig() -> Rig {
    let server = |port: u16| Server::new(format!("127.0.0.1:{port}")).insecure();
    let of = |port| AuthorityBuilder::default().server(server(port));
    let bootstrap = Bootstrap::builder().server(server(3)).authority("a", of(1)).authority("b", of(2));
    Rig::of(bootstrap.build().unwrap(), Settings::default())
}

/// A member of an authority, whose text is its name.
fn member(authority: &str, id: &str) -> Any {
    wrapped::<Full>(&format!("xdstp://{authority}/test.Full/{id}"), Some(id))
}

/// A list with text locators.
fn list(version: &str, texts: &[&str]) -> DiscoveryResponse {
    let field = |value: &[u8]| {
        let mut bytes = vec![0x0a];
        prost::encoding::encode_varint(value.len() as u64, &mut bytes);
        bytes.extend(value);
        bytes
    };
    let value: Vec<u8> = texts.iter().flat_map(|text| field(&field(text.as_bytes()))).collect();
    let type_url = "type.googleapis.com/test.FullCollection";
    let wrapper = crate::pb::envoy::service::discovery::v3::Resource {
        name: "xdstp://a/test.FullCollection/l".into(),
        resource: Some(Any { type_url: type_url.into(), value: value.into() }),
        ..Default::default()
    };
    let resource = Any {
        type_url: "type.googleapis.com/envoy.service.discovery.v3.Resource".into(),
        value: wrapper.encode_to_vec().into(),
    };
    DiscoveryResponse {
        version_info: version.into(),
        nonce: version.into(),
        type_url: type_url.into(),
        resources: vec![resource],
        ..DiscoveryResponse::default()
    }
}

/// What is published to applications, with the names cut short.
fn seen(outputs: Vec<String>) -> Vec<String> {
    let published = outputs.into_iter().filter(|outputs| outputs.starts_with('#'));
    published.map(|outputs| outputs.replace("xdstp://", "").replace("test.Full/", "")).collect()
}

/// A response of one of the servers, with the requests that follow from it.
fn receive(rig: &mut Rig, server: u32, attempt: u64, response: &DiscoveryResponse) -> Vec<String> {
    let mut outputs = rig.receive_from(stream_to(server, attempt), response.encode_to_vec());
    for _ in 0..3 {
        outputs.extend(rig.sent_to(stream_to(server, attempt)));
        outputs.extend(rig.pass(Duration::from_millis(20)));
    }
    seen(outputs)
}

/// The source of a collection is unreachable, and its alternative has one member.
fn with_alternative_in_use(name: &str) -> Rig {
    let mut rig = rig();
    assert_eq!(rig.watch_all::<Full>(name).1, ["connect 0.1"], "the alternative is not requested yet");
    let outputs = rig.disconnect(1, DisconnectKind::Unreachable);
    assert_eq!(outputs, ["connect 1.1"], "no change is published as long as the alternative may come");
    assert_eq!(rig.connect_to(stream_to(1, 1))[1], "send Full [xdstp://b/test.Full/*] / node");
    rig.sent_to(stream_to(1, 1));
    let outputs = receive(&mut rig, 1, 1, &response::<Full>("7", vec![member("b", "m")]));
    assert_eq!(outputs, ["#1 {b/m: present 7 m} complete"]);
    rig
}

/// The first server can be reached again.
fn reconnect(rig: &mut Rig) {
    rig.pass(Duration::from_secs(2));
    rig.connect(2);
    rig.sent(2);
}

#[test]
fn x21_the_alternative_of_a_glob_is_used_while_its_source_is_unreachable() {
    let mut rig = with_alternative_in_use(GLOB);
    reconnect(&mut rig);
    let outputs = receive(&mut rig, 1, 1, &response::<Full>("8", vec![member("b", "m"), member("b", "n")]));
    assert_eq!(outputs, ["#1 {b/m: present 7 m, b/n: present 8 n} complete"], "until it delivers");
    let outputs = receive(&mut rig, 0, 2, &response::<Full>("1", vec![member("a", "x")]));
    assert_eq!(outputs, ["#1 {a/x: present 1 x} complete"]);
    for _ in 0..3 {
        rig.pass(Duration::from_millis(500));
        rig.sent_to(stream_to(1, 1));
    }
    assert_eq!(rig.engine.resources(), 2, "the glob and its member: the alternative is unsubscribed");
    rig.disconnect(2, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    let outputs = seen(rig.disconnect(3, DisconnectKind::Unreachable));
    assert_eq!(outputs, ["#1 {a/x: present 1 x (UNAVAILABLE)} complete (UNAVAILABLE)"], "it is cached");
}

#[test]
fn x21_the_alternative_of_a_list_is_used_until_all_members_of_the_list_are_known() {
    let mut rig = with_alternative_in_use(LIST);
    reconnect(&mut rig);
    let (x, y) = ("xdstp://a/test.Full/x", "xdstp://a/test.Full/y");
    assert!(receive(&mut rig, 0, 2, &list("1", &[x, y])).is_empty(), "no member of it is known");
    assert!(receive(&mut rig, 0, 2, &response::<Full>("1", vec![member("a", "x")])).is_empty());
    let outputs = receive(&mut rig, 0, 2, &response::<Full>("2", vec![member("a", "x"), member("a", "y")]));
    assert_eq!(outputs, ["#1 {a/x: present 1 x, a/y: present 2 y} complete"]);
}

#[test]
fn x21_a_collection_that_does_not_exist_has_no_alternative() {
    for name in [GLOB, LIST] {
        let mut rig = rig();
        rig.watch_all::<Full>(name);
        rig.connect(1);
        rig.sent(1);
        assert_eq!(rig.pass(Duration::from_secs(15)), ["#1 {} complete (NOT_FOUND)"], "{name}");
    }
    let mut rig = with_alternative_in_use(GLOB);
    reconnect(&mut rig);
    assert_eq!(seen(rig.pass(Duration::from_secs(15))), ["#1 {} complete (NOT_FOUND)"]);
}

#[test]
fn x21_when_both_collections_are_unreachable_the_error_has_both() {
    let mut rig = rig();
    rig.watch_all::<Full>(GLOB);
    rig.disconnect(1, DisconnectKind::Unreachable);
    let outputs = rig.disconnect_from(stream_to(1, 1), DisconnectKind::Unreachable);
    assert_eq!(outputs, ["#1 {} incomplete (UNAVAILABLE)"]);
}

#[test]
fn x21_collections_of_unknown_authorities_have_nested_alternatives_at_once() {
    for first in ["test.Full/*", "test.FullCollection/l"] {
        let mut rig = rig();
        let name = format!("xdstp://c/{first}#alt=xdstp://d/test.Full/*%23alt=xdstp://a/test.Full/*");
        let (watch_id, outputs) = rig.watch_all::<Full>(&name);
        assert_eq!(outputs, ["connect 0.1"]);
        rig.connect(1);
        rig.sent(1);
        let outputs = receive(&mut rig, 0, 1, &response::<Full>("1", vec![member("a", "x")]));
        assert_eq!(outputs, ["#1 {a/x: present 1 x} complete"]);
        rig.unwatch(watch_id);
        for _ in 0..3 {
            rig.pass(Duration::from_millis(500));
            rig.sent(1);
        }
        assert_eq!((rig.engine.resources(), rig.engine.delivery.has_watches()), (0, false));
    }
}

#[test]
fn x21_members_of_an_alternative_may_redirect() {
    let mut rig = with_alternative_in_use(GLOB);
    let lead = redirect("xdstp://b/test.Full/m", "old");
    receive(&mut rig, 1, 1, &response::<Full>("8", vec![lead]));
    rig.connect_to(stream_to(2, 1));
    rig.sent_to(stream_to(2, 1));
    let old = super::rig::any::<Full>("old", "o");
    let outputs = receive(&mut rig, 2, 1, &response::<Full>("1", vec![old]));
    assert_eq!(outputs, ["#1 {b/m: present 1 o} complete"]);
}

#[test]
fn x21_an_alternative_of_a_collection_is_a_collection_of_the_type() {
    for alternative in
        ["xdstp://b/test.Full/x", "xdstp://b/test.Part/*", "old", "xdstp://b/test.FullCollection/l%23entry=e"]
    {
        let outputs = rig().watch_all::<Full>(&format!("xdstp://a/test.Full/*#alt={alternative}")).1;
        assert_eq!(outputs, ["#1 {} incomplete (INVALID_ARGUMENT)"], "{alternative}");
    }
}
