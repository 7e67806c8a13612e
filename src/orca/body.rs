//! A response body that adds the load of a call to its trailers.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use prost::Message;
use tonic::metadata::BinaryMetadataValue;

use super::metrics::{CallMetrics, ServerMetrics};

pin_project! {
    /// The body of a response, with a load report in its trailers; see [`CallMetricsLayer`](super::CallMetricsLayer).
    #[derive(Debug)]
    pub struct ReportingBody<B> {
        #[pin]
        body: B,
        // `None` if the report was written.
        metrics: Option<CallReport>,
    }
}

/// What the report of a call is made of, when its trailers are there.
#[derive(Debug)]
pub(super) struct CallReport {
    /// The metrics of the server as a whole.
    pub(super) server: ServerMetrics,
    /// The metrics of the call, which take precedence.
    pub(super) call: CallMetrics,
}

impl<B> ReportingBody<B> {
    /// Wraps a body; without metrics it is unchanged.
    pub(super) fn new(body: B, metrics: Option<CallReport>) -> Self {
        Self { body, metrics }
    }
}

impl<B: Body> Body for ReportingBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let mut frame = ready!(this.body.poll_frame(cx));
        // A body that ends without trailers has no place for a report.
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
            && let Some(metrics) = this.metrics.take()
        {
            insert_report(trailers, &metrics);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Adds the report to trailers, unless it is empty, or a layer inside of this one has added its own.
pub(super) fn insert_report(trailers: &mut HeaderMap, metrics: &CallReport) {
    // The values of this moment: handlers set metrics while they respond.
    let report = metrics.server.values().report(&metrics.call.values()).encode_to_vec();
    if report.is_empty() || trailers.contains_key(LOAD) {
        return;
    }
    let report = BinaryMetadataValue::from_bytes(&report);
    match HeaderValue::from_bytes(report.as_encoded_bytes()) {
        Ok(value) => drop(trailers.insert(LOAD, value)),
        Err(_) => debug_assert!(false, "base64 is valid in headers"),
    }
}

const LOAD: HeaderName = HeaderName::from_static("endpoint-load-metrics-bin");
