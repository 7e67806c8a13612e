//! Batches on real connections: consumers that accept, reject, keep, drop and panic, and a watch of another type beside them.

use std::{sync::Arc, time::Duration};

use crate::transport::Transport;
use macro_rules_attribute::apply;
use xdskit::{
    Client, ResourceSelector,
    client::{Batch, BatchLimits, BatchOutcome, Batches},
    control_plane::AnyResource,
    error::Code,
    resource::{Cluster, Prost, Resource},
    testing::{TestControlPlane, resources::cluster},
};

use crate::common::soon;

#[derive(Clone, PartialEq, prost::Message)]
struct Text {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    text: String,
}

impl prost::Name for Text {
    const NAME: &'static str = "Text";
    const PACKAGE: &'static str = "test";
}

const TEXT: &str = Prost::<Text>::TYPE_URL;

fn text(name: &str, text: &str) -> AnyResource {
    AnyResource::encode(TEXT, name, &Text { name: name.into(), text: text.into() })
}

/// The names and texts of a batch.
fn added(batch: &Batch<Prost<Text>>) -> Vec<(String, String)> {
    batch.added.iter().map(|added| (added.name.to_string(), added.resource.text.clone())).collect()
}

/// The next batch with something in it.
async fn next(batches: &mut Batches<Prost<Text>>) -> Batch<Prost<Text>> {
    loop {
        let batch = soon(batches.next()).await.unwrap();
        if !batch.added.is_empty() || !batch.removed.is_empty() {
            return batch;
        }
    }
}

async fn start(transport: Transport, limits: BatchLimits) -> (TestControlPlane, Client) {
    let server = TestControlPlane::start().await;
    server.set(text("a", "1"));
    server.set(cluster("shop"));
    let client = transport.builder_of(&server).batch_limits(limits).build().unwrap();
    (server, client)
}

#[apply(aggregated)]
async fn a_server_is_answered_when_the_consumer_has_decided(transport: Transport) {
    let (server, client) = start(transport, BatchLimits::default()).await;
    let mut batches = client.batches::<Prost<Text>>(ResourceSelector::All);
    let batch = next(&mut batches).await;
    assert_eq!(added(&batch), [("a".to_owned(), "1".to_owned())]);
    assert!(batch.awaits_answer() && !batch.is_complete());

    // Another type of the stream is received and answered meanwhile.
    soon(client.watch::<Cluster>("shop").ready()).await.unwrap();
    server.expect_ack(Cluster::TYPE_URL).await.unwrap();
    assert_eq!(server.requests().of(TEXT).len(), 1, "nothing of the type is answered");
    assert_eq!(batch.accept().await, BatchOutcome::Counted);
    server.expect_ack(TEXT).await.unwrap();
    let complete = soon(batches.next()).await.unwrap();
    assert!(complete.is_complete() && complete.added.is_empty() && !complete.awaits_answer());
    assert_eq!(complete.accept().await, BatchOutcome::NothingToAnswer);

    server.update(|tx| {
        tx.set(text("a", "2"));
        tx.set(text("b", "3"));
    });
    let batch = next(&mut batches).await;
    assert_eq!(batch.added.len(), 2);
    assert_eq!(batch.reject([("a", "the store is full")]).await, BatchOutcome::Counted);
    let nack = server.expect_nack(TEXT).await.unwrap();
    assert!(nack.message.contains("\"a\": the store is full"), "{}", nack.message);
    let kept = client.watch::<Prost<Text>>("a").wait_for(|seen| seen.error().is_some()).await.unwrap();
    assert_eq!(kept.resource().unwrap().text, "1");
    assert_eq!(kept.error().unwrap().code(), Code::InvalidArgument);
    client.shutdown().await;
    assert!(soon(batches.next()).await.is_none());
}

#[apply(aggregated)]
async fn a_consumer_that_panics_or_ends_accepts(transport: Transport) {
    let (server, client) = start(transport, BatchLimits::default()).await;
    let mut batches = client.batches::<Prost<Text>>(ResourceSelector::All);
    let task = tokio::spawn(async move {
        let batch = next(&mut batches).await;
        assert!(batch.added.is_empty(), "a defect of the application");
    });
    assert!(soon(task).await.unwrap_err().is_panic());
    server.expect_ack(TEXT).await.unwrap();

    // One that never reads ends with what waits for it.
    let batches = client.batches::<Prost<Text>>(ResourceSelector::All);
    server.set(text("a", "2"));
    let mut watch = client.watch::<Prost<Text>>("a");
    drop(batches);
    soon(watch.wait_for(|seen| seen.resource().is_some_and(|text| text.text == "2"))).await.unwrap();
}

#[apply(aggregated)]
async fn a_consumer_that_keeps_its_batch_is_too_late(transport: Transport) {
    let limits = BatchLimits { timeout: Duration::from_millis(200), ..BatchLimits::default() };
    let (server, client) = start(transport, limits).await;
    let mut batches = client.batches::<Prost<Text>>(ResourceSelector::All);
    let batch = next(&mut batches).await;
    server.expect_ack(TEXT).await.unwrap();
    assert_eq!(batch.reject([("a", "no")]).await, BatchOutcome::TooLate);
}

#[tokio::test]
async fn consumers_of_equal_names_get_batches_of_their_own() {
    let (server, client) = start(Transport::Delta, BatchLimits::default()).await;
    let mut first = client.batches::<Prost<Text>>(ResourceSelector::All);
    let mut second = client.batches::<Prost<Text>>(ResourceSelector::All);
    let (one, other) = (next(&mut first).await, next(&mut second).await);
    drop(one);
    assert_eq!(server.requests().of(TEXT).len(), 1, "the other one has not decided");
    other.accept_with_warnings([(Arc::from("a"), "it is old")]);
    server.expect_ack(TEXT).await.unwrap();
}

#[apply(aggregated)]
async fn a_consumer_of_one_name_decides_on_that_alone(transport: Transport) {
    let (server, client) = start(transport, BatchLimits::default()).await;
    server.set(text("b", "1"));
    let mut batches = client.batches::<Prost<Text>>("a");
    let batch = next(&mut batches).await;
    assert_eq!(added(&batch), [("a".to_owned(), "1".to_owned())]);
    assert_eq!(batch.accept().await, BatchOutcome::Counted);
    let mut refused = client.batches::<Prost<Text>>("");
    let batch = soon(refused.next()).await.unwrap();
    assert_eq!(batch.warning().unwrap().code(), Code::InvalidArgument);
}
