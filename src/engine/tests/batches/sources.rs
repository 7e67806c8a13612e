//! Consumers beside the other freedoms of the protocol: streams of one type, globs, times to live, fallback, large and faulty responses.

use std::time::Duration;

use prost::Message;

use super::{super::rig::*, NONE, consuming, one};
use crate::{
    config::{ApiType, AuthorityBuilder, Bootstrap, Server},
    engine::{BatchOutcome, Settings},
    pb::{
        envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource as Wrapper},
        google::protobuf::Duration as Ttl,
    },
    protocol::{DisconnectKind, StreamId},
    resource::Resource,
};

#[test]
fn ap4_on_a_stream_of_one_type_nothing_is_read_while_a_response_is_held() {
    let mut rig = Rig::with(Server::new("127.0.0.1:1").insecure().api_type(ApiType::Grpc));
    let (consumer, _) = rig.consume::<Cds>("*");
    rig.connect(1);
    rig.sent(1);
    let first = response::<Cds>("1", vec![any::<Cds>("a", "x")]);
    assert_eq!(rig.receive(1, &first), ["#1 batch 1: a=1/x held"], "the server has to wait");
    let (_, outputs) = rig.accept(consumer, 1);
    assert_eq!(outputs, ["read", "send Cluster [] 1/n1", "#1 batch 2: complete"]);
}

#[test]
fn ap1_the_members_of_a_glob_are_decided_on_and_others_are_not() {
    let bootstrap = Bootstrap::builder().server(Server::new("127.0.0.1:1").insecure());
    let bootstrap = bootstrap.authority("a", AuthorityBuilder::default()).build().unwrap();
    let mut rig = Rig::of(bootstrap, Settings::default());
    let (consumer, _) = rig.consume::<Part>("xdstp://a/test.Part/shop/*");
    rig.watch::<Part>("xdstp://a/test.Part/other");
    rig.connect(1);
    rig.sent(1);
    let part = |name: &str| wrapped::<Part>(&format!("xdstp://a/test.Part/{name}"), Some("x"));
    let other = rig.receive(1, &response::<Part>("1", vec![part("other")]));
    assert_eq!(other[..2], ["read", "#2 present 1 x"], "no consumer is concerned: {other:?}");
    rig.sent(1);
    let outputs = rig.receive(1, &response::<Part>("2", vec![part("shop/a")]));
    assert_eq!(outputs, ["read", "#1 batch 1: xdstp://a/test.Part/shop/a=2/x held"]);
    assert_eq!(rig.answer(consumer, 1, &["xdstp://a/test.Part/shop/a"]).0, BatchOutcome::Counted);
}

#[test]
fn ap4_no_resource_of_the_type_expires_while_a_response_is_held() {
    let (mut rig, consumer) = consuming();
    let with_ttl = |nonce: &str, names: &[&str]| {
        let resources = names.iter().map(|name| Wrapper {
            name: (*name).into(),
            version: "1".into(),
            resource: Some(any::<Part>(name, "x")),
            ttl: Some(Ttl { seconds: 5, nanos: 0 }),
            ..Wrapper::default()
        });
        let (type_url, nonce) = (Part::TYPE_URL.into(), nonce.into());
        let resources = resources.collect();
        DeltaDiscoveryResponse { type_url, nonce, resources, ..DeltaDiscoveryResponse::default() }
    };
    rig.receive_raw(1, with_ttl("n1", &["a"]).encode_to_vec());
    rig.accept(consumer, 1);
    rig.accept(consumer, 2);
    rig.sent(1);
    // It confirms `a`, and waits for a decision on `b`.
    rig.receive_raw(1, with_ttl("n2", &["a", "b"]).encode_to_vec());
    assert_eq!(rig.pass(Duration::from_secs(10)), NONE);
    assert_eq!(rig.accept(consumer, 3).1, ["send Part n2"]);
    rig.sent(1);
    // The time of both begins with the decision.
    assert_eq!(rig.pass(Duration::from_millis(4_999)), NONE);
    assert_eq!(rig.pass(Duration::from_millis(1)), ["#1 batch 4: -a -b complete"]);
}

#[test]
fn ap7_what_another_server_has_is_decided_on_as_well() {
    let servers = (1..=2).map(|port| Server::new(format!("127.0.0.1:{port}")).insecure());
    let bootstrap = servers.fold(Bootstrap::builder(), |bootstrap, server| bootstrap.server(server));
    let mut rig = Rig::of(bootstrap.build().unwrap(), Settings::default());
    let (consumer, _) = rig.consume::<Full>("*");
    let outputs = rig.disconnect(1, DisconnectKind::Unreachable);
    assert!(outputs.contains(&"connect 1.1".to_owned()), "{outputs:?}");
    let second: StreamId = stream_to(1, 1);
    rig.connect_to(second);
    rig.sent_to(second);
    let lower = response::<Full>("1", vec![any::<Full>("a", "low"), any::<Full>("b", "low")]);
    rig.receive_from(second, lower.encode_to_vec());
    let number = 1;
    assert_eq!(rig.accept(consumer, number).0, BatchOutcome::Counted);
    rig.accept(consumer, number + 1);
    rig.sent_to(second);
    // The first server is back, with something else.
    rig.pass(Duration::from_secs(5));
    rig.connect(2);
    rig.sent(2);
    let outputs = rig.receive(2, &response::<Full>("7", vec![any::<Full>("a", "high")]));
    let batch = outputs.iter().find(|output| output.starts_with("#1 batch")).cloned();
    assert_eq!(batch.as_deref(), Some("#1 batch 3: a=7/high -b held complete"), "{outputs:?}");
    assert_eq!(rig.accept(consumer, number + 2).1, ["send Full [] 7/n7"]);
}

#[test]
fn ap1_a_response_is_proposed_as_a_whole_however_large_it_is() {
    let (mut rig, consumer) = consuming();
    let text = "x".repeat(300);
    let names: Vec<_> = (0..3000).map(|number| format!("r{number}")).collect();
    let resources: Vec<_> = names.iter().map(|name| (name.as_str(), "1", Some(text.as_str()))).collect();
    let outputs = rig.receive_raw(1, delta_response::<Part>("n1", &resources, &[]));
    let batches: Vec<_> = outputs.iter().filter(|output| output.starts_with("#1 batch 1:")).collect();
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].matches("=1/").count(), 3000);
    let before = rig.engine.work_counters();
    assert_eq!(rig.accept(consumer, 1).0, BatchOutcome::Counted);
    let after = rig.engine.work_counters();
    assert_eq!(after.parsed - before.parsed, 3000);
}

#[test]
fn ap2_what_cannot_be_parsed_is_rejected_without_being_shown() {
    let (mut rig, consumer) = consuming();
    let both = delta_response::<Part>("n1", &[("a", "1", Some("bad")), ("b", "1", Some("x"))], &[]);
    assert_eq!(rig.receive_raw(1, both), ["read", "#1 batch 1: b=1/x held"]);
    let (_, outputs) = rig.answer(consumer, 1, &["b"]);
    let nack = "send Part n1 INVALID_ARGUMENT: Part \"a\": text: it is bad; Part \"b\": no";
    assert_eq!(outputs.first().map(String::as_str), Some(nack), "{outputs:?}");
    // A response without anything to decide is answered at once.
    rig.sent(1);
    let outputs = rig.receive_raw(1, one("n2", "a", "bad"));
    assert!(outputs.iter().any(|output| output.starts_with("send Part n2 INVALID_ARGUMENT")), "{outputs:?}");
}

#[test]
fn ap2_a_name_that_occurs_twice_rejects_the_response_without_asking() {
    let (mut rig, _) = consuming();
    let twice = delta_response::<Part>("n1", &[("a", "1", Some("x")), ("a", "2", Some("y"))], &[]);
    let outputs = rig.receive_raw(1, twice);
    assert!(outputs.iter().all(|output| !output.contains("held")), "{outputs:?}");
    assert!(outputs.iter().any(|output| output.starts_with("send Part n1 INVALID_ARGUMENT")), "{outputs:?}");
}
