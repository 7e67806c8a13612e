//! Load reports of tonic servers, as a client of gRPC sees them.

use std::{collections::BTreeMap, convert::Infallible, task::Poll, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::uri::PathAndQuery;
use prost::Message;
use tokio::net::TcpListener;
use tonic::{
    Code, Request, Response, Status,
    body::Body,
    client::Grpc as Client,
    codegen::{BoxFuture, BoxStream, Service},
    metadata::MetadataMap,
    server::{Grpc, NamedService, ServerStreamingService, UnaryService},
    transport::{Channel, Server, server::TcpIncoming},
};
use xdskit::{
    orca::{CallMetrics, CallMetricsLayer, Metric, OpenRcaService, ServerMetrics},
    pb::{
        google::protobuf,
        xds::{data::orca::v3::OrcaLoadReport, service::orca::v3::OrcaLoadReportRequest},
    },
};

use crate::common::{raw::Raw, soon};

const UNARY: &str = "/test.Metered/Unary";
const STREAM: &str = "/test.Metered/Stream";
const FAIL: &str = "/test.Metered/Fail";
const FAIL_LATE: &str = "/test.Metered/FailLate";
const REPORTS: &str = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";
const LOAD: &str = "endpoint-load-metrics-bin";

/// Sets the metric `size` of a call to the length of its message.
#[derive(Debug, Clone)]
struct Metered;

impl NamedService for Metered {
    const NAME: &'static str = "test.Metered";
}

impl Service<http::Request<Body>> for Metered {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            Ok(match path.as_str() {
                STREAM | FAIL_LATE => Grpc::new(Raw).server_streaming(Method(path), request).await,
                _ => Grpc::new(Raw).unary(Method(path), request).await,
            })
        })
    }
}

struct Method(String);

impl UnaryService<Bytes> for Method {
    type Response = Bytes;
    type Future = std::future::Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let size = request.get_ref().len() as f64;
        if let Some(metrics) = request.extensions().get::<CallMetrics>().filter(|_| size > 0.0) {
            metrics.set(Metric::Named("size"), size).unwrap();
        }
        std::future::ready(if self.0 == FAIL {
            Err(Status::data_loss("it fails"))
        } else {
            Ok(Response::new(request.into_inner()))
        })
    }
}

impl ServerStreamingService<Bytes> for Method {
    type Response = Bytes;
    type ResponseStream = BoxStream<Bytes>;
    type Future = std::future::Ready<Result<Response<BoxStream<Bytes>>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let metrics = request.extensions().get::<CallMetrics>().expect("the layer's").clone();
        let fails = self.0 == FAIL_LATE;
        // What is set with the last message is in the trailers.
        let messages = stream::iter(1..=3).map(move |n: u8| {
            metrics.set(Metric::Named("messages"), n.into()).unwrap();
            if fails && n == 3 { Err(Status::aborted("it fails late")) } else { Ok(Bytes::from(vec![n])) }
        });
        std::future::ready(Ok(Response::new(Box::pin(messages))))
    }
}

/// Serves all of it with these metrics; without an out-of-band minimum that a test would wait for.
async fn serve(metrics: &ServerMetrics) -> Channel {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let reports = OpenRcaService::new(metrics.clone()).with_min_interval(Duration::from_millis(1));
    let router = Server::builder()
        .layer(CallMetricsLayer::new(metrics.clone()))
        .add_service(Metered)
        .add_service(reports);
    tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener)));
    Channel::from_shared(uri).unwrap().connect().await.unwrap()
}

async fn client(channel: &Channel) -> Client<Channel> {
    let mut client = Client::new(channel.clone());
    client.ready().await.unwrap();
    client
}

/// The status of a call, and what is in its headers and trailers together.
async fn call(channel: &Channel, path: &'static str, message: &'static str) -> (Code, MetadataMap) {
    let request = Request::new(Bytes::from_static(message.as_bytes()));
    match client(channel).await.unary(request, PathAndQuery::from_static(path), Raw).await {
        Ok(response) => (Code::Ok, response.metadata().clone()),
        Err(status) => (status.code(), status.metadata().clone()),
    }
}

/// The only report.
fn report(metadata: &MetadataMap) -> OrcaLoadReport {
    let values: Vec<_> = metadata.get_all_bin(LOAD).iter().collect();
    let [value] = values[..] else { panic!("{} reports", values.len()) };
    assert!(!value.as_encoded_bytes().ends_with(b"="), "the padding is left out");
    let bytes = STANDARD_NO_PAD.decode(value.as_encoded_bytes()).unwrap();
    OrcaLoadReport::decode(&bytes[..]).unwrap()
}

fn metrics(values: &[(Metric<'_>, f64)]) -> ServerMetrics {
    let metrics = ServerMetrics::new();
    for (metric, value) in values {
        metrics.set(*metric, *value).unwrap();
    }
    metrics
}

fn named(name: &str, value: f64) -> BTreeMap<String, f64> {
    BTreeMap::from([(name.to_owned(), value)])
}

#[tokio::test]
async fn a51_4_responses_and_failures_have_the_metrics_of_the_server_and_of_the_call_once() {
    let metrics = metrics(&[(Metric::CpuUtilization, 0.5), (Metric::RequestsPerSecond, 10.0)]);
    let channel = serve(&metrics).await;
    for (path, expected) in [(UNARY, Code::Ok), (FAIL, Code::DataLoss)] {
        let (code, metadata) = call(&channel, path, "12345").await;
        assert_eq!(code, expected);
        let report = report(&metadata);
        assert_eq!((report.cpu_utilization, report.rps_fractional), (0.5, 10.0), "{path}");
        assert_eq!(report.named_metrics, named("size", 5.0), "{path}");
    }
    metrics.set(Metric::CpuUtilization, 0.75).unwrap();
    let (_, metadata) = call(&channel, UNARY, "").await;
    let report = report(&metadata);
    assert_eq!(report.cpu_utilization, 0.75);
    assert!(report.named_metrics.is_empty(), "what another call has set is not in it");
}

#[tokio::test]
async fn a51_4_streams_have_a_report_at_their_end() {
    let channel = serve(&metrics(&[(Metric::ApplicationUtilization, 0.5)])).await;
    for (path, expected) in [(STREAM, None), (FAIL_LATE, Some(Code::Aborted))] {
        let path = PathAndQuery::from_static(path);
        let request = Request::new(Bytes::new());
        let response = client(&channel).await.server_streaming(request, path, Raw).await.unwrap();
        assert!(response.metadata().get_bin(LOAD).is_none(), "not in the headers");
        let mut messages = response.into_inner();
        let mut status = None;
        while let Some(message) = soon(messages.next()).await {
            status = message.err();
        }
        assert_eq!(status.as_ref().map(Status::code), expected);
        let trailers = match &status {
            Some(status) => status.metadata().clone(),
            None => messages.trailers().await.unwrap().unwrap(),
        };
        let report = report(&trailers);
        assert_eq!((report.application_utilization, report.named_metrics), (0.5, named("messages", 3.0)));
    }
}

#[tokio::test]
async fn a51_4_without_metrics_there_is_no_trailer() {
    let channel = serve(&ServerMetrics::new()).await;
    for path in [UNARY, FAIL] {
        let (_, metadata) = call(&channel, path, "").await;
        assert!(metadata.get_bin(LOAD).is_none());
        let (_, metadata) = call(&channel, path, "1").await;
        assert_eq!(report(&metadata).named_metrics, named("size", 1.0));
    }
    // Methods that no service has are trailers alone, too.
    let (code, metadata) = call(&channel, "/test.Other/Method", "").await;
    assert_eq!((code, metadata.get_bin(LOAD).is_none()), (Code::Unimplemented, true));
}

#[tokio::test]
async fn a51_4_of_two_layers_the_inner_one_reports() {
    let [inner, outer] = [1.0, 2.0].map(|cpu| metrics(&[(Metric::CpuUtilization, cpu)]));
    let mut service = tower::ServiceBuilder::new()
        .layer(CallMetricsLayer::new(outer))
        .layer(CallMetricsLayer::new(inner))
        .service(Metered);
    for path in [UNARY, FAIL] {
        let message = Bytes::from_static(b"\0\0\0\0\x01a");
        let body = Body::new(http_body_util::Full::new(message));
        let request = http::Request::post(path).body(body).unwrap();
        let response = service.call(request).await.unwrap();
        let mut metadata = response.headers().clone();
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
        metadata.extend(body.trailers().cloned().into_iter().flatten());
        let report = report(&MetadataMap::from_headers(metadata));
        assert_eq!((report.cpu_utilization, report.named_metrics), (1.0, named("size", 1.0)));
    }
}

#[tokio::test]
async fn a51_5_the_metrics_of_the_server_are_a_stream_beside_the_calls() {
    let metrics = metrics(&[(Metric::CpuUtilization, 0.5)]);
    let channel = serve(&metrics).await;
    call(&channel, UNARY, "12345").await;
    let report_interval = Some(protobuf::Duration { seconds: 0, nanos: 2_000_000 });
    let request = OrcaLoadReportRequest { report_interval }.encode_to_vec();
    let path = PathAndQuery::from_static(REPORTS);
    let request = Request::new(Bytes::from(request));
    let response = client(&channel).await.server_streaming(request, path, Raw).await.unwrap();
    let mut reports = response.into_inner();
    let mut next = async || {
        let message = soon(reports.message()).await.unwrap().unwrap();
        OrcaLoadReport::decode(message).unwrap()
    };
    let first = next().await;
    assert_eq!((first.cpu_utilization, first.named_metrics.len()), (0.5, 0), "what calls set is not in it");
    metrics.set(Metric::Utilization("disk"), 0.25).unwrap();
    metrics.clear(Metric::CpuUtilization);
    soon(async { while next().await.cpu_utilization != 0.0 {} }).await;
    assert_eq!(next().await.utilization, named("disk", 0.25));
}

#[tokio::test]
async fn a51_5_other_methods_and_invalid_requests_are_refused() {
    let channel = serve(&ServerMetrics::new()).await;
    let (code, _) = call(&channel, "/xds.service.orca.v3.OpenRcaService/Other", "").await;
    assert_eq!(code, Code::Unimplemented);
    let request = Request::new(Bytes::from_static(b"\xff"));
    let path = PathAndQuery::from_static(REPORTS);
    let opened = client(&channel).await.server_streaming(request, path, Raw).await;
    assert_eq!(opened.unwrap_err().code(), Code::InvalidArgument);
}
