//! Load reports: Envoy reports to this crate's control plane; this crate's client, and a plain one of this file, to the server of
//! `gcp/`.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Streaming, client::Grpc, codegen::http::uri::PathAndQuery, transport::Endpoint};
use xdskit::{
    Client,
    config::{self, Bootstrap},
    control_plane::{LoadReporting, Variant},
    lrs::Outcome,
    pb::{
        envoy::{
            config::{
                core::v3::{Locality, Node},
                endpoint::v3::{ClusterStats, UpstreamLocalityStats, cluster_stats::DroppedRequests},
            },
            service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse},
        },
        google::protobuf,
    },
    testing::TestControlPlane,
};

use crate::{
    envoy::{Envoy, assert_answer, in_both_variants, mesh},
    http::{backend, get},
    library::within,
    peer::{NODE, Peer},
    process::PATIENCE,
    raw::Raw,
    setup::Setup,
};

in_both_variants! {
    lr10_6_it_reports_the_requests_of_the_clusters_that_are_asked_for,
}

async fn lr10_6_it_reports_the_requests_of_the_clusters_that_are_asked_for(variant: Variant) {
    let (blue, green) = (backend("blue").await, backend("green").await);
    let control_plane = mesh(blue, green).await;
    control_plane.ask_reports(LoadReporting::of(["blue"], INTERVAL).with_endpoints());
    let mut envoy = Envoy::start_reporting(control_plane.addr(), variant).await;
    envoy.becomes_ready().await;
    let edge = envoy.listener().await;
    // Envoy counts from the first response on. It reports clusters without requests, too.
    control_plane.expect_load("blue", PATIENCE).await.expect("Envoy reports");
    for _ in 0..5 {
        assert_answer(&get(edge, "/").await, "blue");
    }
    let totals = control_plane.expect_load_totals("blue", |totals| totals.successful == 5).await;
    let totals = totals.expect("Envoy reports them");
    assert_eq!((totals.issued, totals.failed, totals.dropped), (5, 0, 0));
    let zone = totals.localities.values().next().expect("the locality of the endpoint");
    assert_eq!(zone.endpoints.get(&blue).map(|counts| counts.successful), Some(5), "{totals:?}");
    assert_eq!(control_plane.control_plane().load_totals("green").reports, 0);
    assert_nodes(&control_plane);

    // A change reaches the open stream.
    control_plane.ask_reports(LoadReporting::all(INTERVAL));
    control_plane.expect_load("green", PATIENCE).await.expect("Envoy reports all clusters");
    control_plane.expect_load_streams(1).await.expect("on the same stream");
}

/// Envoy repeats its node in each request (LR2.4).
fn assert_nodes(control_plane: &TestControlPlane) {
    let requests = control_plane.load_requests();
    assert!(requests.len() > 2);
    for request in &requests {
        assert_eq!((request.node(), request.stream()), ("envoy", 1));
        assert!(request.message().node.is_some());
        assert!(request.clusters().all(|load| load.interval.is_some_and(|it| !it.is_zero())), "{request:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lr10_6_the_server_in_go_reads_what_a_client_reports() {
    let mut peer = Peer::start(Setup::snapshot_sotw()).await;
    peer.command("loads 500 payments shop").await;
    let mut reporter = Reporter::open(&peer).await;
    let first = loads(&mut peer, 1).await;
    assert_eq!((&first["node"], &first["clusters"]), (&json!("me"), &json!([])));
    let expected = LoadReporting::of(["payments", "shop"], Duration::from_millis(500));
    assert_eq!(reporter.response().await, expected.response());
    peer.command("loads 1000").await;
    assert_eq!(reporter.response().await, LoadReporting::all(Duration::from_secs(1)).response());

    reporter.requests.send(request(None, vec![payments()])).expect("it is open");
    let second = loads(&mut peer, 2).await;
    let expected = json!([{
        "cluster": "payments", "service": "payments-endpoints", "milliseconds": 1250,
        "dropped": 3, "dropped_by_category": {"throttle": 2},
        "localities": [{
            "locality": "eu/eu-a/", "issued": 7, "successful": 4, "failed": 2, "in_progress": 1,
            "metrics": {}, "endpoints": 0,
        }],
    }]);
    assert_eq!((&second["node"], &second["clusters"]), (&json!(""), &expected));
    drop(reporter);
    peer.event("the end of the stream", |event| event["event"] == "loads-closed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lr10_6_the_client_reports_its_calls_to_the_server_in_go() {
    the_client_reports_its_calls(Setup::snapshot_sotw()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lr10_6_the_client_reports_its_calls_to_the_server_in_go_delta() {
    the_client_reports_its_calls(Setup::linear_delta()).await;
}

async fn the_client_reports_its_calls(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    peer.command("report payments").await;
    peer.command("loads 100").await;
    let bootstrap = Bootstrap::from_json(&peer.bootstrap()).expect("the bootstrap is valid");
    let client = setup.client(Client::builder(bootstrap).min_load_report_interval(INTERVAL));
    let payments = client.load_reporter("payments");
    within("the configuration of the cluster", async {
        while payments.stats().is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let zone = payments.locality(&config::Locality::new("eu", "eu-a", ""));
    let long = zone.call_started();
    for outcome in [Outcome::Success, Outcome::Success, Outcome::Success, Outcome::Error] {
        zone.call_started().finish(outcome, None);
    }
    payments.dropped("throttle");
    payments.dropped_uncategorised();
    let first = loads(&mut peer, 1).await;
    assert_eq!((&first["node"], &first["clusters"]), (&json!(NODE), &json!([])));
    let features = first["features"].as_array().expect("it is a list");
    assert!(features.contains(&json!("envoy.lrs.supports_send_all_clusters")), "{features:?}");
    let mut sums = Sums::default();
    sums.until(&mut peer, |sums| sums.issued == 5 && sums.dropped == 2).await;
    assert_eq!((sums.successful, sums.failed, sums.in_progress, sums.throttled), (3, 1, 1, 1));

    // The call that runs is reported on the next stream, and nothing twice.
    peer.command("restart").await;
    let event = peer.event("another stream", |event| event["event"] == "loads" && event["stream"] == 2).await;
    assert_eq!((&event["node"], &event["clusters"]), (&json!(NODE), &json!([])));
    long.finish(Outcome::Success, None);
    sums.until(&mut peer, |sums| sums.in_progress == 0).await;
    let total = (sums.issued, sums.successful, sums.failed, sums.dropped);
    assert_eq!(total, (5, 4, 1, 2));
    assert_eq!(sums.others, 0, "the other clusters do not ask for reports");
}

/// The sums of all reports of the cluster `payments`.
#[derive(Debug, Default)]
struct Sums {
    /// The number of requests that are in the sums.
    requests: usize,
    issued: u64,
    successful: u64,
    failed: u64,
    /// Those of the newest report.
    in_progress: u64,
    dropped: u64,
    throttled: u64,
    /// The number of reports of other clusters.
    others: usize,
}

impl Sums {
    async fn until(&mut self, peer: &mut Peer, is_met: impl Fn(&Self) -> bool) {
        while !is_met(self) {
            self.requests += 1;
            let event = loads(peer, self.requests).await;
            for cluster in event["clusters"].as_array().into_iter().flatten() {
                self.add(cluster);
            }
        }
    }

    fn add(&mut self, cluster: &Value) {
        if cluster["cluster"] != "payments" {
            self.others += 1;
            return;
        }
        assert_eq!(cluster["service"], "payments-endpoints");
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        self.dropped += number(&cluster["dropped"]);
        self.throttled += number(&cluster["dropped_by_category"]["throttle"]);
        self.in_progress = 0;
        for zone in cluster["localities"].as_array().into_iter().flatten() {
            assert_eq!(zone["locality"], "eu/eu-a/");
            self.issued += number(&zone["issued"]);
            self.successful += number(&zone["successful"]);
            self.failed += number(&zone["failed"]);
            self.in_progress += number(&zone["in_progress"]);
        }
    }
}

/// The request of this number on streams of load reports.
async fn loads(peer: &mut Peer, number: usize) -> Value {
    peer.nth_event(number, "a load report", |event| event["event"] == "loads").await
}

fn payments() -> ClusterStats {
    let locality = UpstreamLocalityStats {
        locality: Some(Locality { region: "eu".into(), zone: "eu-a".into(), ..Locality::default() }),
        total_issued_requests: 7,
        total_successful_requests: 4,
        total_error_requests: 2,
        total_requests_in_progress: 1,
        ..UpstreamLocalityStats::default()
    };
    ClusterStats {
        cluster_name: "payments".into(),
        cluster_service_name: "payments-endpoints".into(),
        upstream_locality_stats: vec![locality],
        total_dropped_requests: 3,
        dropped_requests: vec![DroppedRequests { category: "throttle".into(), dropped_count: 2 }],
        load_report_interval: Some(protobuf::Duration { seconds: 1, nanos: 250_000_000 }),
    }
}

/// A stream of load reports.
struct Reporter {
    requests: mpsc::UnboundedSender<Bytes>,
    responses: Streaming<Bytes>,
}

impl Reporter {
    /// Opens one by a request with the node `me`.
    async fn open(peer: &Peer) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{}", peer.addr())).expect("it is a URI");
        let mut grpc = Grpc::new(endpoint.connect().await.expect("a connection"));
        grpc.ready().await.expect("a connection");
        let (requests, outgoing) = mpsc::unbounded_channel();
        // Sent before the headers are there: the server sends these with its first response.
        requests.send(request(Some("me"), Vec::new())).expect("it is open");
        let outgoing = Request::new(UnboundedReceiverStream::new(outgoing));
        let path = PathAndQuery::from_static(STREAM);
        let response = within("the stream", grpc.streaming(outgoing, path, Raw)).await.expect("a stream");
        Self { requests, responses: response.into_inner() }
    }

    async fn response(&mut self) -> LoadStatsResponse {
        let message = within("a response", self.responses.message()).await.expect("a response");
        LoadStatsResponse::decode(message.expect("an open stream")).expect("a LoadStatsResponse")
    }
}

fn request(node: Option<&str>, cluster_stats: Vec<ClusterStats>) -> Bytes {
    let node = node.map(|id| Node { id: id.into(), ..Node::default() });
    LoadStatsRequest { node, cluster_stats }.encode_to_vec().into()
}

const INTERVAL: Duration = Duration::from_millis(100);
const STREAM: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";
