//! The watches of an observing client, and the answers that its servers receive (profile `Observe`).

use crate::transport::Transport;
use macro_rules_attribute::apply;
use xdskit::{
    Client, Observed, ResourceSelector,
    client::Validation,
    control_plane::{
        AnyResource,
        session::{AfterNack, Answer, Behavior, Handled},
    },
    error::Code,
    resource::Inspected,
    testing::TestControlPlane,
};

use crate::common::*;

type Seen = Observed<Inspected<Cluster>>;

/// A server with these clusters that sends nothing more of a type after a NACK until a resource of it changes, as
/// Consul does.
async fn server_with(clusters: &[(&str, &str)]) -> TestControlPlane {
    let mut behavior = Behavior::default();
    behavior.after_nack = AfterNack::Silence;
    let server =
        TestControlPlane::start_with(xdskit::control_plane::ControlPlane::builder().behavior(behavior)).await;
    server.update(|tx| {
        for (name, note) in clusters {
            tx.set(cluster(name, note));
        }
    });
    server
}

fn observer_of(transport: Transport, server: &TestControlPlane) -> Client {
    transport.builder_of(server).validation(Validation::Observe).build().unwrap()
}

/// The version, and the note or the reason for its absence.
fn verdict(seen: &Seen) -> Option<Result<&str, String>> {
    let inspected = seen.resource()?;
    Some(inspected.typed().map(|cluster| cluster.note.as_str()).map_err(|invalid| invalid.to_string()))
}

fn nacks(server: &TestControlPlane) -> usize {
    let is_nack = |handled: &Handled| {
        matches!(handled, Handled::Understood { answer: Some(Answer::Rejected { .. }), .. })
    };
    server.requests().iter().filter(|request| is_nack(request.handled())).count()
}

#[apply(streams)]
async fn a_resource_that_grpc_rejects_is_shown_with_the_reason_and_the_server_gets_no_nack(
    transport: Transport,
) {
    let server = server_with(&[("bad", BAD), ("good", "one")]).await;
    let client = observer_of(transport, &server);
    let mut all = client.watch_all::<Inspected<Cluster>>(ResourceSelector::All);
    let members = soon(all.wait_for(|members| members.is_complete())).await.unwrap();
    let verdicts: Vec<_> = members.iter().map(|(name, seen)| (&**name, verdict(seen))).collect();
    let reason = Some(Err("eds_cluster_config.service_name: bad".to_owned()));
    assert_eq!(verdicts, [("bad", reason.clone()), ("good", Some(Ok("one")))]);
    let bytes = members.get("bad").unwrap().resource().unwrap().bytes().clone();
    assert_eq!(bytes, *cluster("bad", BAD).bytes());

    server.set(cluster("good", BAD));
    let became_bad = |members: &xdskit::client::Members<_>| members.get("good").and_then(verdict) == reason;
    soon(all.wait_for(became_bad)).await.unwrap();
    server.set(cluster("bad", "repaired"));
    let is_repaired =
        |members: &xdskit::client::Members<_>| members.get("bad").and_then(verdict) == Some(Ok("repaired"));
    soon(all.wait_for(is_repaired)).await.unwrap();
    assert_eq!(nacks(&server), 0);
}

#[apply(streams)]
async fn both_profiles_in_one_client_have_streams_of_their_own(transport: Transport) {
    let server = server_with(&[("shop", BAD)]).await;
    let client = transport.builder_of(&server).build().unwrap();
    let error = soon(client.watch::<Cluster>("shop").ready()).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    let mut typed = client.watch::<Cluster>("shop");
    let mut observed = client.watch::<Inspected<Cluster>>("shop");
    let seen = soon(observed.ready()).await.unwrap();
    assert!(seen.typed().is_err());
    soon(typed.wait_for(|seen| seen.is_absent())).await.unwrap();
    if !transport.is_polled() {
        assert!(nacks(&server) > 0, "gRPC's rules reject it");
        server.expect_clients(2).await.unwrap();
        drop(observed);
        server.expect_clients(1).await.unwrap();
    }
    // The observing part is started again.
    soon(client.watch::<Inspected<Cluster>>("shop").ready()).await.unwrap();
}

#[apply(streams)]
async fn a_client_that_observes_has_no_typed_watches_and_resolves_nothing(transport: Transport) {
    let server = server_with(&[("shop", "one")]).await;
    let client = observer_of(transport, &server);
    let error = soon(client.watch::<Cluster>("shop").ready()).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.to_string().contains("watch Inspected resources"), "{error}");
    let error = soon(client.watch_all::<Cluster>(ResourceSelector::All).ready()).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    let error = soon(client.resolve("xds:///shop").ready()).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.to_string().contains("Validation::Grpc"), "{error}");
}

#[apply(streams)]
async fn garbage_is_shown_as_undecodable_and_the_stream_goes_on(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(
        AnyResource::new(xdskit::control_plane::type_url::CLUSTER, "shop", &b"\xff\xff"[..])
            .with_name("shop"),
    );
    let client = observer_of(transport, &server);
    let mut shop = client.watch::<Inspected<Cluster>>("shop");
    let error = soon(shop.ready()).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.to_string().contains("not a valid message"), "{error}");
    server.set(cluster("shop", BAD));
    soon(shop.wait_for(|seen| seen.is_present())).await.unwrap();
    if !transport.is_polled() {
        assert_eq!(server.clients(), 1);
        assert!(server.requests().iter().all(|request| request.stream() == 1), "it is one stream");
    }
}

#[apply(streams)]
async fn watches_that_observe_keep_their_client_and_end_with_it(transport: Transport) {
    let server = server_with(&[("shop", BAD)]).await;
    let client = transport.builder_of(&server).build().unwrap();
    let mut kept = client.watch::<Inspected<Cluster>>("shop");
    drop(client);
    soon(kept.ready()).await.unwrap();
    server.set(cluster("shop", "one"));
    soon(kept.wait_for(|seen| verdict(seen) == Some(Ok("one")))).await.unwrap();

    let client = transport.builder_of(&server).build().unwrap();
    let mut ended = client.watch::<Inspected<Cluster>>("shop");
    soon(ended.ready()).await.unwrap();
    soon(client.shutdown()).await;
    assert_eq!(soon(ended.next()).await, None);
    let mut late = client.watch::<Inspected<Cluster>>("shop");
    assert_eq!(soon(late.next()).await, None);
}
