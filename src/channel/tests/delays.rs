//! What calls wait for before they are sent: A121.

use std::sync::Arc;

use super::{
    telemetry::{Notes, observed},
    *,
};
use crate::channel::WaitForReady;

/// The delays that have ended, without their durations.
fn kinds(notes: &Notes) -> Vec<String> {
    notes.delays().into_iter().map(|(kind, _)| kind).collect()
}

#[tokio::test]
async fn a121_a_call_waits_for_routes_and_its_attempt_for_a_connection() {
    let mut peer = Peer::start().await;
    peer.open(false);
    let mut mesh = Mesh::start("a121_routes", &[&peer]).await;
    let notes = Arc::<Notes>::default();
    let late = mesh.client.channel("xds:///a121").observer(Arc::new(notes.clone()));
    mesh.channel = late.build().unwrap();
    let call = mesh.get("/a");
    mesh.waits(1).await;
    let second = Duration::from_secs(1);
    tokio::time::pause();
    tokio::time::advance(second).await;
    tokio::time::resume();
    mesh.server.set(listener("a121").rds("routes"));
    mesh.picks(1).await;
    let [(kind, duration)] = &*notes.delays() else { panic!("the wait for routes is over") };
    assert_eq!(kind, "/a Call resolving");
    assert!(*duration >= second, "{duration:?}");
    peer.open(true);
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    assert_eq!(kinds(&notes), ["/a Attempt 0:connecting"]);
    let call = mesh.get("/at-once");
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    assert_eq!(kinds(&notes), [""; 0], "nothing was waited for");
}

#[tokio::test]
async fn a121_a_delay_ends_with_the_call_that_waits() {
    let peer = Peer::start().await;
    peer.open(false);
    let (mesh, notes) = observed("a121_ends", &[&peer]).await;
    soon(mesh.with_timeout("/late", "100m")).await.unwrap().unwrap_err();
    assert_eq!(kinds(&notes).last().unwrap(), "/late Attempt 0:connecting");
    let dropped = mesh.get("/dropped");
    mesh.picks(1).await;
    assert_eq!(kinds(&notes), [""; 0], "it still waits");
    dropped.abort();
    until("it is let go", || mesh.channel.shared.calls.published.waiting_for_pickers() == 0).await;
    assert_eq!(kinds(&notes), ["/dropped Attempt 0:connecting"]);
}

#[tokio::test]
async fn a121_a_call_that_waits_for_ready_has_the_delay_of_a_failing_picker() {
    let mut peer = Peer::start().await;
    peer.refuse(true);
    let (mesh, notes) = observed("a121_failing", &[&peer]).await;
    soon(mesh.get("/fails")).await.unwrap().unwrap_err();
    notes.delays();
    let mut request = Request::post("/waits").body(Given::default()).unwrap();
    request.extensions_mut().insert(WaitForReady(true));
    let mut channel = mesh.channel.clone();
    let call = tokio::spawn(async move { channel.call(request).await });
    mesh.picks(1).await;
    peer.refuse(false);
    peer.request().await.respond();
    drop(soon(call).await.unwrap());
    let kinds = kinds(&notes);
    assert_eq!(kinds[0], "/waits Attempt picker_failing_with_wait_for_ready", "{kinds:?}");
    assert!(kinds[1..].iter().all(|kind| kind == "/waits Attempt 0:connecting"), "{kinds:?}");
}

#[tokio::test]
async fn a121_the_priority_that_is_connected_is_a_part_of_the_type() {
    let (refusing, silent) = (Peer::start().await, Peer::start().await);
    refusing.refuse(true);
    silent.open(false);
    let (mesh, notes) = observed("a121_priority", &[]).await;
    let [first, second] = [&refusing, &silent].map(|peer| peer.address.to_string());
    let both = endpoints("a121_priority").locality("eu", "a", [&*first]).priority(0);
    mesh.server.set(both.locality("eu", "b", [&*second]).priority(1));
    soon(mesh.with_timeout("/a", "500m")).await.unwrap().unwrap_err();
    let kinds = kinds(&notes);
    assert_eq!(kinds.last().unwrap(), "/a Attempt 1:connecting", "{kinds:?}");
}

#[tokio::test]
async fn a121_the_position_in_an_aggregate_precedes_the_priority() {
    let (refusing, silent) = (Peer::start().await, Peer::start().await);
    refusing.refuse(true);
    silent.open(false);
    let (mesh, notes) = observed("a121_aggregate", &[]).await;
    mesh.server.set(cluster("a121_aggregate").aggregate(["a121_first", "a121_second"]));
    for (name, peer) in [("a121_first", &refusing), ("a121_second", &silent)] {
        mesh.server.set(cluster(name));
        mesh.server.set(assignment(name, &[peer]));
    }
    soon(mesh.channel.wait_until_applied(Duration::from_secs(20))).await.unwrap();
    soon(mesh.with_timeout("/a", "500m")).await.unwrap().unwrap_err();
    let kinds = kinds(&notes);
    assert_eq!(kinds.last().unwrap(), "/a Attempt 1:0:connecting", "{kinds:?}");
}
