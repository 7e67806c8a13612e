//! Load reports to the control plane, from a client that knows nothing but gRPC.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming, transport::Channel};
use xdskit::{
    control_plane::{ControlPlane, Headers, LoadFault, LoadReporting, ServerHandle, type_url::CLUSTER},
    pb::{
        envoy::{
            config::{
                core::v3::{Locality, Node},
                endpoint::v3::{ClusterStats, UpstreamLocalityStats},
            },
            service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse},
        },
        google::protobuf,
    },
    testing::{TestControlPlane, resources::cluster},
};

use super::peer::{Peer, method};
use crate::common::soon;

const V3: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";
const V2: &str = "/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats";
const SECOND: Duration = Duration::from_secs(1);

/// One stream of load reports.
struct Reporter {
    requests: mpsc::UnboundedSender<Bytes>,
    responses: Streaming<Bytes>,
}

impl Reporter {
    async fn open(uri: &str, path: &'static str) -> Result<Self, Status> {
        let channel = Channel::from_shared(uri.to_owned()).unwrap().connect().await.expect("a connection");
        Self::open_on(channel, path).await
    }

    async fn open_on(channel: Channel, path: &'static str) -> Result<Self, Status> {
        let (requests, outgoing) = mpsc::unbounded_channel();
        let responses = soon(method(channel, path, outgoing)).await?;
        Ok(Self { requests, responses })
    }

    /// Opens a stream and introduces a node.
    async fn start(uri: &str, node: &str) -> Self {
        let reporter = Self::open(uri, V3).await.expect("a stream");
        reporter.send(&request(Some(node), &[]));
        reporter
    }

    fn send(&self, request: &LoadStatsRequest) {
        self.requests.send(request.encode_to_vec().into()).expect("an open stream");
    }

    async fn response(&mut self) -> LoadStatsResponse {
        let message = soon(self.responses.message()).await.expect("a response").expect("an open stream");
        LoadStatsResponse::decode(message).expect("a LoadStatsResponse")
    }

    /// The end of the stream, without another response.
    async fn end(&mut self) -> Status {
        match soon(self.responses.message()).await {
            Ok(None) => Status::ok(""),
            Ok(Some(_)) => panic!("a response"),
            Err(status) => status,
        }
    }
}

fn request(node: Option<&str>, clusters: &[(&str, u64)]) -> LoadStatsRequest {
    let node = node.map(|id| Node { id: id.into(), ..Node::default() });
    LoadStatsRequest {
        node,
        cluster_stats: clusters.iter().map(|(name, issued)| stats(name, *issued)).collect(),
    }
}

fn stats(cluster: &str, issued: u64) -> ClusterStats {
    let locality = UpstreamLocalityStats {
        locality: Some(Locality { region: "eu".into(), zone: "a".into(), ..Locality::default() }),
        total_issued_requests: issued,
        total_successful_requests: issued,
        ..UpstreamLocalityStats::default()
    };
    ClusterStats {
        cluster_name: cluster.into(),
        upstream_locality_stats: vec![locality],
        load_report_interval: Some(protobuf::Duration { seconds: 1, nanos: 0 }),
        ..ClusterStats::default()
    }
}

async fn start() -> (ControlPlane, ServerHandle) {
    let control_plane = ControlPlane::new();
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    (control_plane, server)
}

#[tokio::test]
async fn lr10_1_load_reporting_is_not_implemented_until_it_is_asked_for() {
    let (control_plane, server) = start().await;
    for path in [V3, V2] {
        assert_eq!(Reporter::open(&server.uri(), path).await.err().unwrap().code(), Code::Unimplemented);
    }
    control_plane.ask_reports(LoadReporting::all(SECOND));
    let mut reporter = Reporter::start(&server.uri(), "a").await;
    reporter.response().await;
    control_plane.refuse_reports();
    assert_eq!(reporter.end().await.code(), Code::Unimplemented);
    assert_eq!(Reporter::open(&server.uri(), V3).await.err().unwrap().code(), Code::Unimplemented);
}

#[tokio::test]
async fn lr10_1_reports_of_both_versions_come_to_the_port_of_the_discovery_streams() {
    let control_plane = TestControlPlane::start().await;
    control_plane.ask_reports(LoadReporting::all(SECOND));
    control_plane.set(cluster("shop"));
    let mut discovery = Peer::connect(&control_plane.uri()).await;
    discovery.request(CLUSTER, &["shop"]);
    for path in [V3, V2] {
        let mut reporter = Reporter::open(&control_plane.uri(), path).await.unwrap();
        reporter.send(&request(Some("a"), &[]));
        assert_eq!(reporter.response().await, LoadReporting::all(SECOND).response());
        reporter.send(&request(None, &[("shop", 3)]));
        let load = control_plane.expect_load("shop", 10 * SECOND).await.unwrap();
        assert_eq!(load.locality("eu", "a", "").unwrap().requests.issued, 3);
    }
    assert_eq!(discovery.response().await.resources.len(), 1);
    assert_eq!(control_plane.clients(), 1, "streams of load reports are no discovery streams");
}

#[tokio::test]
async fn lr10_2_a_change_is_a_new_response_on_each_stream_that_it_concerns() {
    let (control_plane, server) = start().await;
    control_plane.ask_reports(LoadReporting::all(SECOND));
    let (mut a, mut b) =
        (Reporter::start(&server.uri(), "a").await, Reporter::start(&server.uri(), "b").await);
    for reporter in [&mut a, &mut b] {
        assert_eq!(reporter.response().await, LoadReporting::all(SECOND).response());
    }
    let named = || LoadReporting::of(["shop"], 2 * SECOND).with_endpoints();
    control_plane.ask_reports(named());
    for reporter in [&mut a, &mut b] {
        assert_eq!(reporter.response().await, named().response());
    }
    control_plane.ask_reports_of("b", LoadReporting::all(3 * SECOND));
    assert_eq!(b.response().await, LoadReporting::all(3 * SECOND).response());
    control_plane.ask_reports(LoadReporting::all(4 * SECOND));
    assert_eq!(a.response().await, LoadReporting::all(4 * SECOND).response());
    control_plane.ask_reports_of("b", LoadReporting::all(5 * SECOND));
    assert_eq!(
        b.response().await,
        LoadReporting::all(5 * SECOND).response(),
        "the one before was for others"
    );
}

#[tokio::test]
async fn lr2_4_requests_may_repeat_the_node() {
    let control_plane = TestControlPlane::start().await;
    control_plane.ask_reports(LoadReporting::all(SECOND));
    let reporter = Reporter::start(&control_plane.uri(), "a").await;
    reporter.send(&request(None, &[("shop", 1)]));
    reporter.send(&request(Some("a"), &[("shop", 2)]));
    for issued in [1, 2] {
        let report = control_plane.expect_load_report().await.unwrap();
        assert_eq!((report.node(), report.stream()), ("a", 1));
        assert_eq!(report.cluster("shop").unwrap().localities[0].requests.issued, issued);
    }
    let requests = control_plane.load_requests();
    let nodes: Vec<bool> = requests.iter().map(|request| request.message().node.is_some()).collect();
    assert_eq!(nodes, [true, false, true]);
    let mut without = Reporter::open(&control_plane.uri(), V3).await.unwrap();
    without.send(&request(None, &[("shop", 1)]));
    assert_eq!(without.end().await.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn lr10_3_loads_are_a_stream_of_reports_and_sums() {
    let (control_plane, server) = start().await;
    control_plane.ask_reports(LoadReporting::all(SECOND));
    let (a, b) = (Reporter::start(&server.uri(), "a").await, Reporter::start(&server.uri(), "b").await);
    let before = std::time::Instant::now();
    a.send(&request(None, &[("shop", 1), ("cart", 10)]));
    let mut loads = control_plane.loads();
    let report = soon(loads.next()).await;
    assert_eq!((report.node(), report.clusters().count()), ("a", 2));
    assert!(report.received_at() >= before);
    assert!(loads.try_next().is_none());
    b.send(&request(None, &[("shop", 2)]));
    assert_eq!(soon(loads.next()).await.node(), "b");
    assert_eq!(control_plane.load_totals("shop").issued, 3);
    assert_eq!(control_plane.loads().try_next(), Some(report), "those that were received before are kept");
    control_plane.clear_loads();
    assert_eq!(control_plane.load_totals("shop").issued, 0);
    assert!(control_plane.loads().try_next().is_none());
}

#[tokio::test]
async fn lr10_3_loads_are_expected_in_order_and_by_cluster() {
    let control_plane = TestControlPlane::start().await;
    control_plane.ask_reports(LoadReporting::all(SECOND));
    let reporter = Reporter::start(&control_plane.uri(), "a").await;
    reporter.send(&request(None, &[("shop", 1), ("cart", 10), ("shop", 2)]));
    reporter.send(&request(None, &[("shop", 3)]));
    let issued = async |cluster| {
        let load = control_plane.expect_load(cluster, 10 * SECOND).await.unwrap();
        load.localities[0].requests.issued
    };
    assert_eq!(issued("shop").await, 1);
    assert_eq!(issued("shop").await, 2);
    assert_eq!(issued("cart").await, 10);
    assert_eq!(issued("shop").await, 3);
    let totals = control_plane.expect_load_totals("shop", |totals| totals.issued == 6).await.unwrap();
    assert_eq!((totals.reports, totals.interval), (3, 3 * SECOND));
    let error = control_plane.expect_load("shop", Duration::ZERO).await.unwrap_err().to_string();
    let expected = "no load of the cluster \"shop\" within 0ns: 2 load reports, of the clusters [\"cart\", \"shop\"]; \
                    1 streams of load reports are open";
    assert_eq!(error, expected);
    let control_plane = control_plane.with_timeout(Duration::ZERO);
    let error = control_plane.expect_load_totals("cart", |totals| totals.issued == 7).await.unwrap_err();
    assert!(error.to_string().contains("issued: 10"), "{error}");
}

#[tokio::test]
async fn lr10_4_responses_may_never_come_or_come_late() {
    let control_plane = TestControlPlane::start().await;
    control_plane.ask_reports(LoadReporting::all(SECOND));
    control_plane.set_load_fault(Some(LoadFault::NoResponse));
    let mut reporter = Reporter::start(&control_plane.uri(), "a").await;
    reporter.send(&request(None, &[("shop", 1)]));
    control_plane.expect_load("shop", 10 * SECOND).await.unwrap();
    // What is injected is the first message: nothing was sent before it.
    let injected = LoadStatsResponse { clusters: vec!["injected".into()], ..LoadStatsResponse::default() };
    assert_eq!(control_plane.control_plane().inject_load_response(injected.clone()), 1);
    assert_eq!(reporter.response().await, injected);
    control_plane.set_load_fault(None);
    assert_eq!(reporter.response().await, LoadReporting::all(SECOND).response());

    let delay = Duration::from_millis(30);
    control_plane.set_load_fault(Some(LoadFault::Delay(delay)));
    let asked = std::time::Instant::now();
    control_plane.ask_reports(LoadReporting::all(2 * SECOND));
    assert_eq!(reporter.response().await, LoadReporting::all(2 * SECOND).response());
    assert!(asked.elapsed() >= delay);
}

#[tokio::test]
async fn lr10_4_streams_may_end_before_or_after_the_response() {
    let control_plane = TestControlPlane::start().await;
    control_plane.ask_reports(LoadReporting::all(SECOND));
    control_plane.set_load_fault(Some(LoadFault::EndBeforeResponse(Status::aborted("no"))));
    let mut reporter = Reporter::start(&control_plane.uri(), "a").await;
    assert_eq!(reporter.end().await.code(), Code::Aborted);
    for (status, code) in [(Status::unavailable("no"), Code::Unavailable), (Status::ok(""), Code::Ok)] {
        control_plane.set_load_fault(Some(LoadFault::EndAfterResponse(status)));
        let mut reporter = Reporter::start(&control_plane.uri(), "a").await;
        reporter.response().await;
        assert_eq!(reporter.end().await.code(), code);
    }
    control_plane.set_load_fault(None);
    control_plane.expect_load_streams(0).await.unwrap();
    let mut reporter = Reporter::start(&control_plane.uri(), "a").await;
    reporter.response().await;
    assert_eq!(control_plane.control_plane().disconnect_load_streams(Status::data_loss("no")), 1);
    assert_eq!(reporter.end().await.code(), Code::DataLoss);
}

#[tokio::test]
async fn lr10_4_responses_may_be_no_messages() {
    let control_plane = TestControlPlane::start().await;
    control_plane.ask_reports(LoadReporting::all(SECOND));
    control_plane.set_load_fault(Some(LoadFault::Undecodable));
    let mut reporter = Reporter::start(&control_plane.uri(), "a").await;
    let message = soon(reporter.responses.message()).await.unwrap().unwrap();
    LoadStatsResponse::decode(message).unwrap_err();
    control_plane.set_load_fault(None);
    assert_eq!(control_plane.control_plane().inject_load_raw("garbage"), 1);
    assert_eq!(soon(reporter.responses.message()).await.unwrap().unwrap(), "garbage");
    control_plane.ask_reports(LoadReporting::all(SECOND));
    reporter.response().await;
}

#[tokio::test]
async fn lr10_4_reports_may_stay_unread_and_the_stream_be_reset_with_one_half_written() {
    let control_plane = TestControlPlane::start().await;
    control_plane.set(cluster("shop"));
    control_plane.ask_reports(LoadReporting::all(SECOND));
    let channel = Channel::from_shared(control_plane.uri()).unwrap().connect().await.unwrap();
    let mut reporter = Reporter::open_on(channel.clone(), V3).await.unwrap();
    reporter.send(&request(Some("a"), &[]));
    reporter.response().await;
    control_plane.control_plane().set_load_reading(false);
    // Larger than the window of the stream, so that its end cannot be written.
    let large = request(None, &vec![("shop", 1); 100_000]);
    assert!(large.encoded_len() > 2 << 20, "{}", large.encoded_len());
    reporter.send(&large);
    // Other streams of the connection go on, those of load reports as well as those of discovery.
    let mut other = Reporter::open_on(channel, V3).await.unwrap();
    let injected = LoadStatsResponse { clusters: vec!["injected".into()], ..LoadStatsResponse::default() };
    assert_eq!(control_plane.control_plane().inject_load_response(injected.clone()), 2);
    assert_eq!(other.response().await, injected);
    assert_eq!(reporter.response().await, injected);
    assert_eq!(control_plane.load_requests().len(), 1);

    assert_eq!(control_plane.control_plane().reset_load_streams(), 2);
    let status = reporter.end().await;
    assert_eq!(status.code(), Code::Internal, "{status}");
    assert_eq!(status.metadata().len(), 0, "there are no trailers");
    control_plane.expect_load_streams(0).await.unwrap();
    control_plane.control_plane().set_load_reading(true);
    let mut reporter = Reporter::start(&control_plane.uri(), "a").await;
    reporter.response().await;
    reporter.send(&large);
    control_plane.expect_load_totals("shop", |totals| totals.issued == 100_000).await.unwrap();
}

#[tokio::test]
async fn lr10_4_headers_may_come_with_the_first_response() {
    let (control_plane, server) = start().await;
    control_plane.ask_reports(LoadReporting::all(SECOND));
    control_plane.set_headers(Headers::WithFirstResponse);
    let channel = Channel::from_shared(server.uri()).unwrap().connect().await.unwrap();
    let (requests, outgoing) = mpsc::unbounded_channel();
    let opening = tokio::spawn(method(channel, V3, outgoing));
    soon(async {
        while control_plane.load_streams() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!opening.is_finished());
    requests.send(request(Some("a"), &[]).encode_to_vec().into()).unwrap();
    assert!(soon(opening).await.unwrap().unwrap().message().await.unwrap().is_some());
}

#[tokio::test]
async fn lr10_1_a_client_that_ends_its_stream_gets_its_end() {
    let control_plane = TestControlPlane::start().await;
    control_plane.ask_reports(LoadReporting::all(SECOND));
    let Reporter { requests, mut responses } = Reporter::start(&control_plane.uri(), "a").await;
    assert!(soon(responses.message()).await.unwrap().is_some());
    requests.send(request(None, &[("shop", 1)]).encode_to_vec().into()).unwrap();
    drop(requests);
    assert!(soon(responses.message()).await.unwrap().is_none());
    control_plane.expect_load("shop", 10 * SECOND).await.unwrap();
    control_plane.expect_load_streams(0).await.unwrap();
    let mut reporter = Reporter::start(&control_plane.uri(), "a").await;
    reporter.response().await;
    control_plane.stop().await;
    assert_eq!(reporter.end().await.code(), Code::Unavailable);
    control_plane.restart().await;
    Reporter::start(&control_plane.uri(), "a").await.response().await;
}
