//! What outlier detection counts of calls.

use h2::Reason;

use super::*;
use crate::{
    balance::picker::{Draws, Pick, PickArgs},
    pb::{envoy::config::cluster::v3::OutlierDetection, google::protobuf::Duration as Proto},
    resolve::RouteQuery,
};

impl Mesh {
    /// The successes and failures of the only endpoint, if they are counted. The pick itself has no stream.
    fn outcomes(&self) -> Option<(u64, u64)> {
        let (draws, random) = (&mut Draws::default(), &mut fastrand::Rng::new());
        let mut args = PickArgs { draws, random, request: &RouteQuery::new("/", 0) };
        let pick = self.channel.shared.calls.published.load().pick(0, &mut args);
        let Pick::Complete(attempt) = pick else { return None };
        attempt.endpoint.outcomes()
    }

    async fn counts(&self, successes: u64, failures: u64) {
        until("attempts are counted", || self.outcomes() == Some((successes, failures))).await;
    }
}

#[tokio::test]
async fn ch3_65_attempts_with_a_stream_are_successes_with_ok_and_failures_otherwise() {
    let mut peer = Peer::start().await;
    let name = "ch3_65";
    let mesh = Mesh::start(name, &[&peer]).await;
    let first = mesh.get("/uncounted");
    peer.request().await.respond();
    soon(first).await.unwrap().unwrap();
    assert_eq!(mesh.outcomes(), None);
    let interval = Some(Proto { seconds: 3_600, nanos: 0 });
    let detection = OutlierDetection { interval, ..OutlierDetection::default() };
    mesh.server.set(cluster(name).edit(|cluster| cluster.outlier_detection = Some(detection)));
    mesh.counts(0, 0).await;
    let call = mesh.get("/trailers");
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    mesh.counts(1, 0).await;
    let call = mesh.get("/headers-alone");
    peer.request().await.fail(Code::Ok, &[]);
    soon(call).await.unwrap().unwrap();
    mesh.counts(2, 0).await;
    let call = mesh.get("/status");
    peer.request().await.fail(Code::NotFound, &[]);
    soon(call).await.unwrap().unwrap_err();
    mesh.counts(2, 1).await;
    let call = mesh.get("/cancelled");
    let received = peer.request().await;
    call.abort();
    assert_eq!(received.cancelled().await, Reason::CANCEL);
    mesh.counts(2, 2).await;
    let call = mesh.with_timeout("/late", "100m");
    let received = peer.request().await;
    assert_eq!(soon(call).await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
    drop(received);
    mesh.counts(2, 3).await;
    let call = mesh.get("/reset");
    drop(peer.request().await.begin_response());
    soon(call).await.unwrap().unwrap_err();
    mesh.counts(2, 4).await;
    // It had a stream, and so has its repetition.
    let call = mesh.get("/refused");
    peer.request().await.reset(Reason::REFUSED_STREAM);
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    mesh.counts(3, 5).await;
}
