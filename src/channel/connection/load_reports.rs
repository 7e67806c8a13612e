//! The load that endpoints report (A51): with responses, and on a stream beside the calls.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, HeaderName, Request, Response, Uri, uri::PathAndQuery};
use http_body::Frame;
use http_body_util::BodyExt as _;
use prost::Message;
use tokio::time::{Instant, sleep_until};
use tonic::{Code, Status, body::Body, client::Grpc, codegen::BoxFuture};
use tower_service::Service;
use tracing::{debug, error};

use super::{super::malformed::MalformedCounters, Handle};
use crate::{
    backoff::Backoff,
    balance::{
        picker::Malformed,
        ready_endpoint::ReadyEndpoint,
        stream_queue::streams::Streams,
        stream_queue::{Connections, Gone},
        weights::LoadReport,
    },
    codec::RawCodec,
    pb::{google::protobuf as google, xds::service::orca::v3::OrcaLoadReportRequest},
};

/// Returns the encoded report in the trailers of a response: the last one if there are several (CH9.7).
///
/// # Errors
/// It is not base64, or longer than [`MAX_LOAD_REPORT`], so that it would delay the call, and all others on its thread.
pub(super) fn in_trailers(trailers: &HeaderMap) -> Result<Option<Vec<u8>>, Malformed> {
    let Some(value) = trailers.get_all(LOAD).iter().next_back() else { return Ok(None) };
    if value.len() > MAX_LOAD_REPORT {
        return Err(Malformed);
    }
    BASE64.decode(value.as_bytes()).map(Some).map_err(|_| Malformed)
}

/// Settings of the stream by which an endpoint reports its load beside the calls.
pub(in crate::channel) struct LoadWatchSettings {
    /// The scheme and authority of the stream's request.
    pub(in crate::channel) origin: Uri,
    /// The longest interval between reports that is requested; an endpoint may report more often.
    pub(in crate::channel) period: Duration,
}

/// Reads the reports of an endpoint on one of its connections, at least once each period, until the oldest one is lost (CH9.8). The stream
/// is opened again after failures, unless the endpoint does not serve it (CH9.9).
///
/// # Cancel safety
/// The stream ends with this.
pub(in crate::channel) async fn watch_load(
    endpoint: Arc<ReadyEndpoint<Handle>>,
    watch: LoadWatchSettings,
    mut backoff: Backoff,
    malformed: Arc<MalformedCounters>,
    on_report: impl Fn(LoadReport),
) {
    let mut random = fastrand::Rng::new();
    loop {
        // Counted from the begin of a stream, as for connections: one that has lasted longer is opened again at once.
        let next = Instant::now() + backoff.next(&mut random);
        let end = read_reports(&endpoint, &watch, |report| {
            backoff.reset();
            match report {
                Ok(Some(report)) => on_report(report),
                Ok(None) => {}
                Err(Malformed) => malformed.on_load_report(),
            }
        });
        let end = end.await;
        if endpoint.connections.oldest().is_closed() {
            return;
        }
        if end.code() == Code::Unimplemented {
            return error!(endpoint = %watch.origin, %end, "the endpoint does not report its load beside the calls");
        }
        debug!(endpoint = %watch.origin, %end, "the stream of load reports ended");
        sleep_until(next).await;
    }
}

/// Reads the reports of one stream, and returns its end. A malformed message resets the backoff as well: the endpoint serves the
/// stream.
async fn read_reports(
    endpoint: &Arc<ReadyEndpoint<Handle>>,
    watch: &LoadWatchSettings,
    mut on_message: impl FnMut(Result<Option<LoadReport>, Malformed>),
) -> Status {
    let report_interval = google::Duration {
        seconds: watch.period.as_secs().try_into().unwrap_or(i64::MAX),
        nanos: watch.period.subsec_nanos().try_into().unwrap_or_default(),
    };
    let request = OrcaLoadReportRequest { report_interval: Some(report_interval) };
    let request = tonic::Request::new(request.encode_to_vec().into());
    let mut client = Grpc::with_origin(OnConnection(endpoint.clone()), watch.origin.clone())
        .max_decoding_message_size(MAX_STREAMED_REPORT);
    let opened = client.server_streaming(request, PathAndQuery::from_static(STREAM), RawCodec).await;
    let mut reports = match opened {
        Ok(response) => response.into_inner(),
        Err(status) => return status,
    };
    loop {
        match reports.message().await {
            Ok(Some(message)) if message.len() > MAX_LOAD_REPORT => on_message(Err(Malformed)),
            Ok(Some(message)) => on_message(LoadReport::decode(&message).map_err(|_| Malformed)),
            Ok(None) => return Status::ok("the endpoint ended it"),
            Err(status) => return status,
        }
    }
}

/// A service for requests that are not calls of the channel: they count as streams alone (CH9.9).
#[derive(Debug)]
struct OnConnection(Arc<ReadyEndpoint<Handle>>);

/// A reserved stream of a connection, released when it is dropped.
#[derive(Debug)]
struct Slot {
    streams: Arc<Streams<Handle>>,
    /// Whether the response has begun.
    has_response: bool,
}

/// The body of a stream of reports.
struct Reports {
    /// The messages of the endpoint.
    stream: RecvStream,
    /// The reserved stream, which is released with the body.
    _slot: Slot,
}

impl Service<Request<Body>> for OnConnection {
    type Response = Response<Reports>;
    type Error = Status;
    type Future = BoxFuture<Response<Reports>, Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let endpoint = self.0.clone();
        Box::pin(async move {
            let mut slot = Slot::new(&endpoint.connections).await?;
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let sent = slot.streams.handle().send(Request::from_parts(parts, ()), false);
            let failed = |error: h2::Error| Status::unavailable(error.to_string());
            let (response, mut stream) = sent.map_err(|_| Status::unavailable("the connection was lost"))?;
            stream.send_data(body, true).map_err(failed)?;
            let response = response.await.map_err(failed)?;
            slot.has_response = true;
            slot.streams.on_response();
            Ok(response.map(|stream| Reports { stream, _slot: slot }))
        })
    }
}

impl http_body::Body for Reports {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let stream = &mut self.stream;
        match stream.poll_data(cx) {
            Poll::Ready(Some(Ok(data))) => {
                // An error means that the stream has ended, which the next poll says.
                let _ = stream.flow_control().release_capacity(data.len());
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
            Poll::Ready(None) => stream
                .poll_trailers(cx)
                .map(|trailers| trailers.map(|headers| headers.map(Frame::trailers)).transpose()),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Slot {
    /// Waits for a stream of any of the connections, as calls do.
    async fn new(connections: &Connections<Handle>) -> Result<Self, Status> {
        let lost = |Gone| Status::unavailable("the connection was lost");
        let streams = match connections.try_reserve() {
            Some(None) => connections.oldest().clone(),
            Some(Some(other)) => other,
            None => connections.queue().wait().map_err(lost)?.await.map_err(lost)?,
        };
        Ok(Self { streams, has_response: false })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.streams.release(self.has_response);
    }
}

/// The longest load report that is decoded, in bytes: encoded in base64 in a trailer, or as a message beside the calls. It has room for
/// hundreds of metrics.
pub(in crate::channel) const MAX_LOAD_REPORT: usize = 16 << 10;
/// The longest message beside the calls that is read, so that its report can be counted as malformed. A longer one ends the stream.
const MAX_STREAMED_REPORT: usize = 64 << 10;
/// Accepts base64 with and without padding: servers leave it out (PROTOCOL-HTTP2.md).
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// The trailer of reports.
const LOAD: HeaderName = HeaderName::from_static("endpoint-load-metrics-bin");
/// The method of the stream.
const STREAM: &str = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";

#[cfg(test)]
mod tests;
