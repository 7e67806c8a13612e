//! What outlier detection counts of calls.

use std::{collections::BTreeSet, sync::Arc};

use h2::Reason;

use super::*;
use crate::{
    balance::{
        pick_args::{CallAttributes, PickArgs},
        picker::Pick,
        ready_endpoint::ReadyEndpoint,
    },
    pb::{
        envoy::config::cluster::v3::OutlierDetection,
        google::protobuf::{Duration as Proto, UInt32Value},
    },
    resolve::RouteQuery,
};

impl Mesh {
    /// The endpoint of a pick, which has no stream.
    fn pick(&self) -> Option<Arc<ReadyEndpoint<crate::channel::connection::Handle>>> {
        let (attributes, random) = (&mut CallAttributes::default(), &mut fastrand::Rng::new());
        let mut args = PickArgs { attributes, random, request: &RouteQuery::new("/", 0) };
        let pick = self.channel.shared.calls.published.load().pick(0, &mut args);
        let Pick::Complete(attempt) = pick else { return None };
        Some(attempt.endpoint.clone())
    }

    /// The successes and failures of the only endpoint, if they are counted.
    pub(super) fn outcomes(&self) -> Option<(u64, u64)> {
        self.pick()?.outcomes()
    }

    /// The endpoints that get calls.
    fn used(&self) -> BTreeSet<SocketAddr> {
        (0..20).filter_map(|_| Some(self.pick()?.address)).collect()
    }

    pub(super) async fn counts(&self, successes: u64, failures: u64) {
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

#[tokio::test]
async fn ch3_67_a_sweep_goes_on_over_the_turns_of_the_channel_with_calls_in_between() {
    let (good, bad) = (Peer::start().await, Peer::start().await);
    let (name, addresses) = ("ch3_67_turns", [good.address, bad.address]);
    // In a slice of one step, one endpoint is looked at. No call needs the second priority.
    let mesh = Mesh::with(name, &[&good, &bad], |builder| builder.sweep_slice(1)).await;
    let reserve: Vec<_> = (1..=500).map(|port| format!("127.0.0.9:{port}")).collect();
    let all = assignment(name, &[&good, &bad]);
    mesh.server.set(all.locality("us", "b", reserve.iter().map(String::as_str)).priority(1));
    let one = || Some(UInt32Value { value: 1 });
    let detection = OutlierDetection {
        interval: Some(Proto { seconds: 60, nanos: 0 }),
        failure_percentage_minimum_hosts: one(),
        failure_percentage_request_volume: one(),
        enforcing_failure_percentage: Some(UInt32Value { value: 100 }),
        max_ejection_percent: Some(UInt32Value { value: 100 }),
        ..OutlierDetection::default()
    };
    mesh.server.set(cluster(name).edit(|cluster| cluster.outlier_detection = Some(detection)));
    let _serving = [(good, Code::Ok), (bad, Code::NotFound)].map(|(mut peer, code)| {
        tokio::spawn(async move {
            while let Some(request) = peer.next_request().await {
                request.fail(code, &[]);
            }
        })
    });
    let call = async || drop(soon(mesh.get("/a")).await.unwrap());
    let is_counted =
        || (0..20).all(|_| mesh.pick().and_then(|it| it.outcomes()).is_some_and(|it| it != (0, 0)));
    soon(async {
        while mesh.used() != addresses.into() || !is_counted() {
            // Of two calls, each peer gets one.
            call().await;
            call().await;
        }
    })
    .await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    // The ejection is seen after the last slice.
    let mut calls = 0;
    soon(async {
        while mesh.used() == addresses.into() {
            call().await;
            calls += 1;
        }
    })
    .await;
    assert_eq!(mesh.used(), [addresses[0]].into());
    assert!(calls > 2, "{calls} calls ended while the sweep went on");
}
