//! The service by which clients receive the load of a server at intervals.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::Pin,
    task::{self, Poll},
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use tokio::time::{Sleep, sleep};
use tonic::{
    Request, Response, Status,
    body::Body,
    codegen::{Body as HttpBody, BoxFuture, Service, StdError, tokio_stream::Stream},
    server::{Grpc, NamedService, ServerStreamingService},
};

use super::metrics::{ServerMetrics, Values};
use crate::{codec::RawCodec, pb::xds::service::orca::v3::OrcaLoadReportRequest};

/// The service of load reports beside the calls, `xds.service.orca.v3.OpenRcaService`, to be added to a tonic server.
///
/// The first report is sent at once, further ones at the interval of the request, but not below
/// [`with_min_interval`](Self::with_min_interval). A stream ends with the client or the server.
#[derive(Debug, Clone)]
pub struct OpenRcaService {
    /// The metrics of the server.
    metrics: ServerMetrics,
    /// The least interval that clients get.
    min_interval: Duration,
}

impl OpenRcaService {
    /// Reports the metrics of a server.
    pub fn new(metrics: ServerMetrics) -> Self {
        Self { metrics, min_interval: MIN_INTERVAL }
    }

    /// Sets the minimum interval of reports, 30 s by default. It is that of requests without an interval, too.
    #[must_use]
    pub fn with_min_interval(mut self, interval: Duration) -> Self {
        self.min_interval = interval;
        self
    }

    /// Begins the reports that a client requests.
    fn open(&self, request: &Bytes) -> Result<Reports, Status> {
        let request = OrcaLoadReportRequest::decode(request.clone())
            .map_err(|error| Status::invalid_argument(format!("not an OrcaLoadReportRequest: {error}")))?;
        // A negative or malformed interval counts as none: the minimum applies (A51-6).
        let requested = request.report_interval.unwrap_or_default();
        let seconds = u64::try_from(requested.seconds).unwrap_or_default();
        let nanos = u32::try_from(requested.nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
        let interval = Duration::new(seconds, nanos.unwrap_or_default()).max(self.min_interval);
        // The first one is due at once.
        Ok(Reports { metrics: self.metrics.clone(), interval, next: None })
    }
}

impl NamedService for OpenRcaService {
    const NAME: &'static str = "xds.service.orca.v3.OpenRcaService";
}

impl<B> Service<http::Request<B>> for OpenRcaService
where
    B: HttpBody + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let service = self.clone();
        match request.uri().path() {
            STREAM => Box::pin(async {
                Ok(Grpc::new(RawCodec).server_streaming(StreamCoreMetrics(service), request).await)
            }),
            path => {
                let reason = format!("{path} is not served");
                Box::pin(async { Ok(Status::unimplemented(reason).into_http()) })
            }
        }
    }
}

/// The method for reports at intervals.
struct StreamCoreMetrics(OpenRcaService);

impl ServerStreamingService<Bytes> for StreamCoreMetrics {
    type Response = Bytes;
    type ResponseStream = Reports;
    type Future = Ready<Result<Response<Reports>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        ready(self.0.open(request.get_ref()).map(Response::new))
    }
}

/// The reports of a stream. Nothing of it is left when it is dropped.
#[derive(Debug)]
struct Reports {
    /// The metrics of the server.
    metrics: ServerMetrics,
    /// The time between reports.
    interval: Duration,
    /// `None` before the first report.
    next: Option<Pin<Box<Sleep>>>,
}

impl Stream for Reports {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(next) = &mut self.next {
            task::ready!(next.as_mut().poll(cx));
        }
        let interval = self.interval;
        // From now, and not from the last deadline: a client that reads slowly does not get several reports at once.
        match &mut self.next {
            // `sleep` limits times that are beyond the clock.
            Some(next) => next.set(sleep(interval)),
            None => self.next = Some(Box::pin(sleep(interval))),
        }
        let report = self.metrics.values().report(&Values::default());
        Poll::Ready(Some(Ok(report.encode_to_vec().into())))
    }
}

/// The path of the only method.
const STREAM: &str = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";
const MIN_INTERVAL: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use prost::Message;
    use tokio::time::Instant;
    use tonic::codegen::tokio_stream::StreamExt;

    use super::{super::Metric, *};
    use crate::pb::{google::protobuf, xds::data::orca::v3::OrcaLoadReport};

    fn request(interval: Option<(i64, i32)>) -> Bytes {
        let report_interval = interval.map(|(seconds, nanos)| protobuf::Duration { seconds, nanos });
        OrcaLoadReportRequest { report_interval }.encode_to_vec().into()
    }

    async fn next(reports: &mut Reports) -> f64 {
        let report = reports.next().await.expect("it never ends").unwrap();
        OrcaLoadReport::decode(report).unwrap().cpu_utilization
    }

    #[tokio::test(start_paused = true)]
    async fn a51_5_the_first_report_is_sent_at_once_and_further_ones_at_the_interval() {
        let metrics = ServerMetrics::new();
        metrics.set(Metric::CpuUtilization, 0.5).unwrap();
        let service = OpenRcaService::new(metrics.clone()).with_min_interval(Duration::from_secs(1));
        let mut reports = service.open(&request(Some((2, 500_000_000)))).unwrap();
        let begin = Instant::now();
        assert_eq!((next(&mut reports).await, begin.elapsed()), (0.5, Duration::ZERO));
        metrics.set(Metric::CpuUtilization, 0.75).unwrap();
        assert_eq!((next(&mut reports).await, begin.elapsed()), (0.75, Duration::from_millis(2500)));
        assert_eq!((next(&mut reports).await, begin.elapsed()), (0.75, Duration::from_secs(5)));
    }

    #[test]
    fn a51_6_the_interval_is_at_least_the_minimum() {
        let service = OpenRcaService::new(ServerMetrics::new());
        let interval = |service: &OpenRcaService, asked| service.open(&request(asked)).unwrap().interval;
        for asked in [None, Some((0, 0)), Some((29, 999_999_999)), Some((-40, 0)), Some((3, -1))] {
            assert_eq!(interval(&service, asked), Duration::from_secs(30), "{asked:?}");
        }
        assert_eq!(interval(&service, Some((30, 1))), Duration::new(30, 1));
        let service = service.with_min_interval(Duration::from_secs(2));
        assert_eq!(interval(&service, Some((1, 0))), Duration::from_secs(2));
        assert_eq!(interval(&service, Some((i64::MAX, 0))), Duration::from_secs(i64::MAX as u64));
        assert!(service.open(&Bytes::from_static(b"\xff")).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a51_6_an_interval_beyond_the_clock_sends_the_first_report() {
        let service = OpenRcaService::new(ServerMetrics::new());
        let mut reports = service.open(&request(Some((i64::MAX, 0)))).unwrap();
        assert_eq!(next(&mut reports).await, 0.0);
    }
}
