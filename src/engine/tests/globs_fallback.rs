//! Globs from one server to the next and back, and what is known of them before they are requested.

use std::time::Duration;

use prost::Message;

use super::rig::{Full, Part, Rig, delta_response, response, stream_to, wrapped};
use crate::{
    config::{ApiType, AuthorityBuilder, Bootstrap, Server},
    pb::{
        envoy::service::discovery::v3::{DeltaDiscoveryResponse, ResourceError, ResourceName as NameMessage},
        google::rpc::Status,
    },
    protocol::{DisconnectKind, Settings},
};

const SHOP: &str = "xdstp://a/test.Full/shop/*";
const CART: &str = "xdstp://a/test.Full/shop/cart";
const TILL: &str = "xdstp://a/test.Full/shop/till";

/// A client of two servers.
fn rig(api_type: ApiType) -> Rig {
    let server = |port: u16| Server::new(format!("127.0.0.1:{port}")).insecure();
    let bootstrap = Bootstrap::builder().server(server(1)).server(server(2));
    let bootstrap = bootstrap.authority("a", AuthorityBuilder::default()).build().unwrap();
    Rig::of(bootstrap, Settings { api_type, ..Settings::default() })
}

/// What is published, with names cut short.
fn published(outputs: &[String]) -> Vec<String> {
    let published = outputs.iter().filter(|outputs| outputs.starts_with('#'));
    published.map(|outputs| outputs.replace("xdstp://a/test.Full/shop/", "")).collect()
}

fn delta(nonce: &str, names: &[&str]) -> Vec<u8> {
    let resources: Vec<_> = names.iter().map(|name| (*name, nonce, Some("x"))).collect();
    delta_response::<Full>(nonce, &resources, &[])
}

/// The stream to the first server ends, and it cannot be reached any more.
fn lose_first(rig: &mut Rig) -> Vec<String> {
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    rig.disconnect(2, DisconnectKind::Unreachable)
}

#[test]
fn members_are_members_also_at_the_server_that_is_fallen_back_to() {
    let mut rig = rig(ApiType::AggregatedGrpc);
    rig.watch_all::<Full>(SHOP);
    rig.connect(1);
    rig.sent(1);
    rig.receive(1, &response::<Full>("1", vec![wrapped::<Full>(CART, Some("x"))]));
    let outputs = lose_first(&mut rig);
    assert_eq!(published(&outputs), ["#1 {cart: present 1 x (UNAVAILABLE)} complete (UNAVAILABLE)"]);
    let (_, outputs) = rig.watch::<Part>("xdstp://a/test.Part/p");
    assert!(outputs.contains(&"connect 1.1".to_owned()), "{outputs:?}");
    assert_eq!(
        published(&outputs),
        ["#1 {cart: present 1 x} complete"],
        "the error is cleared for members, too"
    );
    rig.connect_to(stream_to(1, 1));
    rig.sent_to(stream_to(1, 1));
    let other = response::<Full>("2", vec![wrapped::<Full>(TILL, Some("y"))]).encode_to_vec();
    let outputs = rig.receive_from(stream_to(1, 1), other);
    assert_eq!(
        published(&outputs).last().unwrap(),
        "#1 {till: present 2 y} complete",
        "and may be missing there"
    );
}

#[test]
fn the_state_of_a_glob_is_published_when_it_was_requested_from_its_servers() {
    let mut rig = rig(ApiType::AggregatedDeltaGrpc);
    rig.watch::<Full>(CART);
    rig.connect(1);
    rig.sent(1);
    rig.receive_raw(1, delta("1", &[CART]));
    assert_eq!(published(&lose_first(&mut rig)), ["#1 present 1 x (UNAVAILABLE)"]);
    let (_, outputs) = rig.watch_all::<Full>(SHOP);
    let published = published(&outputs);
    assert!(published.contains(&"#2 {cart: present 1 x} incomplete".to_owned()), "{published:?}");
    assert!(
        !published.iter().any(|published| published.contains("UNAVAILABLE")),
        "another server gets requests: {published:?}"
    );
}

#[test]
fn who_comes_later_sees_the_members_that_are_known() {
    let mut rig = rig(ApiType::AggregatedDeltaGrpc);
    rig.watch::<Full>(CART);
    rig.connect(1);
    rig.sent(1);
    rig.receive_raw(1, delta("1", &[CART]));
    let (_, outputs) = rig.watch_all::<Full>(SHOP);
    assert_eq!(published(&outputs), ["#2 {cart: present 1 x} incomplete"]);
    let (_, outputs) = rig.watch_all::<Full>(SHOP);
    assert!(published(&outputs).contains(&"#3 {cart: present 1 x} incomplete".to_owned()), "{outputs:?}");
}

#[test]
fn a_member_that_the_fallback_had_sent_by_name_may_be_missing_at_the_first_server() {
    let mut rig = rig(ApiType::AggregatedDeltaGrpc);
    let (one, _) = rig.watch::<Full>(CART);
    rig.disconnect(1, DisconnectKind::Unreachable);
    rig.connect_to(stream_to(1, 1));
    rig.sent_to(stream_to(1, 1));
    rig.receive_from(stream_to(1, 1), delta("1", &[CART]));
    rig.sent_to(stream_to(1, 1));
    let (_, outputs) = rig.watch_all::<Full>(SHOP);
    assert_eq!(published(&outputs), ["#2 {cart: present 1 x} incomplete"]);
    rig.unwatch(one);
    rig.pass(Duration::from_secs(2));
    rig.connect(2);
    rig.sent(2);
    let mut seen = published(&rig.receive_raw(2, delta("2", &[TILL])));
    rig.sent(2);
    seen.extend(published(&rig.pass(Duration::from_secs(60))));
    assert_eq!(seen.last().unwrap(), "#2 {till: present 2 x} complete");
}

#[test]
fn after_an_error_of_a_glob_its_members_are_requested_again() {
    let mut rig = rig(ApiType::AggregatedDeltaGrpc);
    rig.watch_all::<Full>(SHOP);
    rig.connect(1);
    rig.sent(1);
    rig.receive_raw(1, delta("1", &[CART]));
    rig.sent(1);
    let error = ResourceError {
        resource_name: Some(NameMessage { name: SHOP.into(), ..NameMessage::default() }),
        error_detail: Some(Status { code: 7, message: "no".into(), details: vec![] }),
    };
    let type_url = "type.googleapis.com/test.Full".to_owned();
    let denied = DeltaDiscoveryResponse {
        nonce: "2".into(),
        type_url,
        resource_errors: vec![error],
        ..DeltaDiscoveryResponse::default()
    };
    let outputs = rig.receive_raw(1, denied.encode_to_vec());
    assert_eq!(published(&outputs), ["#1 {cart: present 1 x} complete (PERMISSION_DENIED)"]);
    rig.disconnect(1, DisconnectKind::Closed);
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.connect(2)[1], format!("send Full +{SHOP} node"), "no version, so that it is sent");
    rig.sent(2);
    let outputs = rig.receive_raw(2, delta("1", &[CART]));
    assert_eq!(published(&outputs), ["#1 {cart: present 1 x} complete"]);
}
