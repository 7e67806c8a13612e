//! What a management server learns of the calls of a channel (CH9.1 to CH9.6).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::{retries::policy, *};
use crate::{
    control_plane::LoadReporting,
    pb::{
        envoy::config::{
            cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds},
            core::v3::{ConfigSource, Metadata, SelfConfigSource, config_source::ConfigSourceSpecifier},
            route::v3::route::Action,
        },
        google::protobuf::{self, UInt32Value, value::Kind},
    },
    testing::resources::ClusterBuilder,
};

/// A cluster whose load is reported to its server.
fn reported(name: &str) -> ClusterBuilder {
    cluster(name).edit(|cluster| {
        let specifier = ConfigSourceSpecifier::Self_(SelfConfigSource::default());
        cluster.lrs_server =
            Some(ConfigSource { config_source_specifier: Some(specifier), ..ConfigSource::default() });
    })
}

/// A mesh whose cluster is reported each second.
async fn mesh(name: &str, peers: &[&Peer]) -> Mesh {
    let mesh = Mesh::with(name, peers, |builder| builder).await;
    mesh.server.ask_reports(LoadReporting::all(Duration::from_secs(1)));
    mesh.server.set(reported(name));
    mesh
}

/// What a backend has counted.
#[derive(Debug, Default)]
struct Counts {
    issued: AtomicU64,
    failed: AtomicU64,
}

/// Answers all requests of a peer: every seventh fails.
fn serve(mut peer: Peer, counts: Arc<Counts>) -> JoinHandle<()> {
    tokio::spawn(async move {
        while let Some(request) = peer.next_request().await {
            let number = counts.issued.fetch_add(1, Ordering::Relaxed);
            if number.is_multiple_of(7) {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                request.fail(Code::Unavailable, &[]);
            } else {
                request.respond();
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ch9_1_ch9_3_ch9_4_reports_equal_the_counts_of_the_backends() {
    let name = "ch9_1_exact";
    let (one, other) = (Peer::start().await, Peer::start().await);
    let mesh = mesh(name, &[&one]).await;
    let other_address = other.address.to_string();
    let all = assignment(name, &[&one]).locality("us", "b", [other_address.as_str()]);
    mesh.server.set(all.drop_percent("throttle", 10));
    let route = route::prefix("").cluster(name).edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        action.retry_policy = Some(policy("unavailable", 2));
    });
    mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
    let counts: [Arc<Counts>; 2] = Default::default();
    let _serving = [serve(one, counts[0].clone()), serve(other, counts[1].clone())];
    let mut dropped = 0;
    for round in 0..4 {
        let workers: Vec<_> = (0..10).map(|_| tokio::spawn(calls(mesh.channel.clone(), 250))).collect();
        for worker in workers {
            dropped += worker.await.unwrap();
        }
        // The stream ends just after a report, so that none is under way.
        if round < 3 {
            mesh.server.expect_load(name, Duration::from_secs(20)).await.unwrap();
            mesh.server.control_plane().disconnect_load_streams(Status::unavailable("restart"));
        }
    }
    let sum = |of: fn(&Counts) -> &AtomicU64| counts.iter().map(|it| of(it).load(Ordering::Relaxed)).sum();
    let (issued, failed): (u64, u64) = (sum(|it| &it.issued), sum(|it| &it.failed));
    assert!(issued > 9_000 && failed > 1_000 && dropped > 500, "{issued} {failed} {dropped}");
    let all = |totals: &crate::control_plane::LoadTotals| totals.issued >= issued && totals.in_progress == 0;
    let totals = mesh.server.expect_load_totals(name, all).await.unwrap();
    assert_eq!((totals.issued, totals.failed, totals.successful), (issued, failed, issued - failed));
    assert_eq!((totals.dropped, totals.dropped_by_category["throttle"]), (dropped, dropped));
    for (locality, counts) in totals.localities.values().zip(&counts) {
        assert_eq!(locality.issued, counts.issued.load(Ordering::Relaxed), "each in its locality");
    }
}

/// Makes calls; returns how many were dropped.
async fn calls(mut channel: Channel, number: usize) -> u64 {
    let mut dropped = 0;
    for _ in 0..number {
        let request = Request::post("/a").body(Given::default()).unwrap();
        let call = channel.call(request);
        let ended = finish(async { call.await.unwrap_or_else(|error| match error {}) }).await;
        dropped += u64::from(ended.is_err_and(|status| status.message().contains("overload category")));
    }
    dropped
}

#[tokio::test]
async fn ch9_2_attempts_count_from_their_stream_to_their_end() {
    let name = "ch9_2_stream";
    let mut peer = Peer::start().await;
    let mesh = mesh(name, &[&peer]).await;
    let call = mesh.get("/a");
    let request = peer.request().await;
    let load = mesh.server.expect_load(name, Duration::from_secs(20)).await.unwrap();
    let counts = &load.localities[0].requests;
    assert_eq!((counts.issued, counts.in_progress, load.localities[0].locality.region()), (1, 1, "eu"));
    assert_eq!(load.service, None, "the resource has none");
    request.respond();
    soon(call).await.unwrap().unwrap();
    let ended = |totals: &crate::control_plane::LoadTotals| totals.successful == 1;
    let totals = mesh.server.expect_load_totals(name, ended).await.unwrap();
    assert_eq!((totals.issued, totals.failed, totals.in_progress), (1, 0, 0));
}

#[tokio::test]
async fn lr9_5_lr3_7_a_channel_reports_each_endpoint_with_its_latest_metadata() {
    let name = "lr9_5_endpoints";
    let (mut peer, other) = (Peer::start().await, Peer::start().await);
    let mesh = mesh(name, &[&peer]).await;
    mesh.server.ask_reports(LoadReporting::all(Duration::from_secs(1)).with_endpoints());
    for version in ["one", "other"] {
        let fields = json!({ "version": version });
        mesh.server.set(assignment(name, &[&peer]).locality("us", "b", [&*other.address.to_string()]).edit(
            |assignment| {
                // All calls go to the first one.
                assignment.endpoints[1].priority = 1;
                assignment.endpoints[0].lb_endpoints[0].metadata = Some(with_version(version));
            },
        ));
        soon(async {
            loop {
                let call = mesh.get("/a");
                peer.request().await.respond();
                call.await.unwrap().unwrap();
                let load = mesh.server.expect_load(name, Duration::from_secs(20)).await.unwrap();
                let [locality] = &load.localities[..] else { panic!("not one locality: {load:?}") };
                let [endpoint] = &locality.endpoints[..] else { continue };
                assert_eq!((endpoint.address, endpoint.requests), (Some(peer.address), locality.requests));
                // The endpoints may be known later than the load is counted.
                if Some(&endpoint.metadata) == fields.as_object() {
                    return;
                }
            }
        })
        .await;
    }
}

fn with_version(version: &str) -> Metadata {
    let version = protobuf::Value { kind: Some(Kind::StringValue(version.to_owned())) };
    let object = protobuf::Struct { fields: [("version".to_owned(), version)].into() };
    Metadata { filter_metadata: [("envoy.lb".to_owned(), object)].into(), ..Metadata::default() }
}

#[tokio::test]
async fn ch9_4_the_circuit_breaker_drops_without_a_category_and_for_the_leaf() {
    let name = "ch9_4_leaf";
    let mut peer = Peer::start().await;
    let mesh = mesh(name, &[&peer]).await;
    let limit = UInt32Value { value: 1 };
    mesh.server.set(reported(name).edit(|cluster| {
        let thresholds = vec![Thresholds { max_requests: Some(limit), ..Thresholds::default() }];
        cluster.circuit_breakers = Some(CircuitBreakers { thresholds, ..CircuitBreakers::default() });
    }));
    mesh.server.set(cluster("ch9_4_aggregate").aggregate([name]));
    let route = route::prefix("").cluster("ch9_4_aggregate");
    mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
    let held = mesh.get("/a");
    let request = peer.request().await;
    // The limit may not be known yet.
    soon(async {
        loop {
            match tokio::time::timeout(Duration::from_millis(50), mesh.get("/b")).await {
                Ok(ended) => return ended.unwrap().unwrap_err(),
                Err(_) => peer.request().await.respond(),
            }
        }
    })
    .await;
    request.respond();
    soon(held).await.unwrap().unwrap();
    let dropped = |totals: &crate::control_plane::LoadTotals| totals.dropped > 0 && totals.in_progress == 0;
    let totals = mesh.server.expect_load_totals(name, dropped).await.unwrap();
    assert_eq!((totals.dropped, totals.dropped_by_category.len()), (1, 0));
    assert_eq!(mesh.server.control_plane().load_totals("ch9_4_aggregate").reports, 0);
}

#[tokio::test]
async fn ch9_5_the_metrics_of_the_cluster_are_summed_of_failed_attempts_too() {
    let name = "ch9_5_metrics";
    let mut peer = Peer::start().await;
    let mesh = mesh(name, &[&peer]).await;
    let with = |names: &[&str]| {
        let names = names.iter().map(ToString::to_string).collect();
        reported(name).edit(|cluster| cluster.lrs_report_endpoint_metrics = names)
    };
    mesh.server.set(with(&["named_metrics.*"]));
    // named_metrics {"a": 0.5}
    let report = "QgwKAWERAAAAAAAA4D8=";
    let is_summed = soon(async {
        loop {
            let call = mesh.get("/a");
            peer.request().await.fail(Code::Internal, &[("endpoint-load-metrics-bin", report)]);
            soon(call).await.unwrap().unwrap_err();
            if mesh
                .server
                .control_plane()
                .load_totals(name)
                .localities
                .values()
                .any(|it| !it.metrics.is_empty())
            {
                return true;
            }
        }
    });
    assert!(is_summed.await);
    let totals = mesh.server.expect_load_totals(name, |totals| totals.in_progress == 0).await.unwrap();
    let locality = totals.localities.values().next().unwrap();
    let sum = &locality.metrics["named_metrics.a"];
    assert_eq!(sum.sum, sum.count as f64 / 2.0);
    assert!(sum.count > 0 && sum.count <= locality.failed);
    assert_eq!(locality.successful, 0);
}

#[tokio::test]
async fn ch9_6_the_shutdown_of_a_channel_ends_its_handles() {
    let name = "ch9_6_end";
    let mut peer = Peer::start().await;
    let mesh = mesh(name, &[&peer]).await;
    let call = mesh.get("/a");
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    mesh.server.expect_load_streams(1).await.unwrap();
    soon(mesh.channel.shutdown(Duration::ZERO)).await;
    mesh.server.expect_load_streams(0).await.unwrap();
    let totals = mesh.server.control_plane().load_totals(name);
    assert!(totals.issued <= 1 && totals.in_progress == 0, "{totals:?}");
}

#[tokio::test]
async fn ch9_1_a_cluster_that_does_not_ask_opens_no_stream() {
    let name = "ch9_1_silent";
    let mut peer = Peer::start().await;
    let mesh = Mesh::start(name, &[&peer]).await;
    mesh.server.ask_reports(LoadReporting::all(Duration::from_secs(1)));
    let call = mesh.get("/a");
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    assert_eq!(mesh.client.status().await.load_reports, []);
    assert_eq!(mesh.server.control_plane().load_streams(), 0);
}
