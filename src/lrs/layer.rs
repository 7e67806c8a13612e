//! Counting of the calls of tower services (LR9.6).

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{HeaderMap, Request, Response, header::CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{EndpointReporter, LocalityReporter, OrcaLoadReport, Outcome, ReportedCall};
use crate::error::Code;

/// Counts the calls of a service for load reports: each begins when the service is called, and ends with the body of its response.
///
/// A gRPC response, by its content type, has the outcome of its status, in headers or trailers; another one that of its HTTP status.
/// The call has failed if the service fails, or if the response is dropped before its end. The metrics of the backend are read from the
/// trailers.
///
/// ```
/// use tower::{ServiceBuilder, service_fn};
/// use xdskit::lrs::{LoadReportLayer, LocalityReporter};
///
/// fn count(zone: LocalityReporter) {
///     let endpoint = service_fn(|_: http::Request<()>| async { Ok::<_, std::io::Error>(http::Response::new(())) });
///     let counted = ServiceBuilder::new().layer(LoadReportLayer::from(zone)).service(endpoint);
/// }
/// ```
#[derive(Debug, Clone)]
pub struct LoadReportLayer {
    reporter: Reporter,
}

/// A service whose calls are counted; see [`LoadReportLayer`].
#[derive(Debug, Clone)]
pub struct LoadReportService<S> {
    inner: S,
    reporter: Reporter,
}

/// The handle that counts.
#[derive(Debug, Clone)]
enum Reporter {
    /// Counts for the locality alone.
    Locality(LocalityReporter),
    /// Counts for the endpoint, and so for its locality.
    Endpoint(EndpointReporter),
}

pin_project! {
    /// The future of a response that is counted; see [`LoadReportLayer`].
    #[derive(Debug)]
    pub struct LoadReportFuture<F> {
        #[pin]
        response: F,
        call: Option<ReportedCall>,
    }
}

pin_project! {
    /// The body of a response that is counted; see [`LoadReportLayer`].
    #[derive(Debug)]
    pub struct LoadReportBody<B> {
        #[pin]
        body: B,
        call: Option<ReportedCall>,
        // The outcome without trailers.
        outcome: Outcome,
        is_grpc: bool,
    }
}

impl From<LocalityReporter> for LoadReportLayer {
    fn from(reporter: LocalityReporter) -> Self {
        Self { reporter: Reporter::Locality(reporter) }
    }
}

impl From<EndpointReporter> for LoadReportLayer {
    fn from(reporter: EndpointReporter) -> Self {
        Self { reporter: Reporter::Endpoint(reporter) }
    }
}

impl<S> Layer<S> for LoadReportLayer {
    type Service = LoadReportService<S>;

    fn layer(&self, inner: S) -> LoadReportService<S> {
        LoadReportService { inner, reporter: self.reporter.clone() }
    }
}

impl<S, B, R> Service<Request<B>> for LoadReportService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    type Response = Response<LoadReportBody<R>>;
    type Error = S::Error;
    type Future = LoadReportFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let call = match &self.reporter {
            Reporter::Locality(reporter) => reporter.call_started(),
            Reporter::Endpoint(reporter) => reporter.call_started(),
        };
        LoadReportFuture { response: self.inner.call(request), call: Some(call) }
    }
}

impl<F, R, E> Future for LoadReportFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<LoadReportBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // An error leaves the call in the future: it has failed when the future is dropped.
        let response = ready!(this.response.poll(cx))?;
        Poll::Ready(Ok(LoadReportBody::of(response, this.call.take())))
    }
}

impl<B: Body> LoadReportBody<B> {
    /// Wraps the body of a response; a response that ends with its headers ends the call.
    fn of(response: Response<B>, call: Option<ReportedCall>) -> Response<Self> {
        let (head, body) = response.into_parts();
        let is_grpc = head
            .headers
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
        let outcome = match is_grpc {
            // Without a status it has not ended well.
            true => of_trailers(&head.headers).unwrap_or(Outcome::Error),
            false => Outcome::of_http(head.status.as_u16()),
        };
        let mut call = call;
        if body.is_end_stream() {
            end(&mut call, outcome, &head.headers);
        }
        Response::from_parts(head, Self { body, call, outcome, is_grpc })
    }
}

impl<B: Body> Body for LoadReportBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        let none = HeaderMap::new();
        match &frame {
            Some(Ok(frame)) => match frame.trailers_ref() {
                Some(trailers) => {
                    // A response of plain HTTP may have any trailers; only gRPC's have a meaning here.
                    let of_grpc = of_trailers(trailers).filter(|_| *this.is_grpc);
                    end(this.call, of_grpc.unwrap_or(*this.outcome), trailers);
                }
                // The end is not asked for then.
                None if this.body.is_end_stream() => end(this.call, *this.outcome, &none),
                None => {}
            },
            Some(Err(_)) => end(this.call, Outcome::Error, &none),
            None => end(this.call, *this.outcome, &none),
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

/// Ends a call unless it has ended before. Metrics are decoded only if they are reported.
fn end(call: &mut Option<ReportedCall>, outcome: Outcome, trailers: &HeaderMap) {
    if let Some(call) = call.take() {
        let metrics = if call.wants_metrics() { OrcaLoadReport::from_trailer(trailers) } else { None };
        call.finish(outcome, metrics.as_ref());
    }
}

/// Returns the outcome by `grpc-status`; `None` if it is missing or malformed.
fn of_trailers(trailers: &HeaderMap) -> Option<Outcome> {
    let code = trailers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    Some(Outcome::of_grpc(Code::from_i32(code)))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bytes::Bytes;

    use super::*;
    use crate::{config::Locality, lrs::tests::rig::Rig, resource::cluster::ReportedMetrics};

    /// Frames, one after the other.
    #[derive(Default)]
    struct Frames(VecDeque<Result<Frame<Bytes>, ()>>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = ();

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, ()>>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    /// The counts after a call with this response, and its body read to its end, or not.
    fn counts(response: Result<Response<Frames>, ()>, reads: bool) -> (u64, u64, u64) {
        let mut rig = Rig::new();
        let metrics = ReportedMetrics { cpu_utilization: true, ..ReportedMetrics::default() };
        let shop = rig.loads.reporter("shop");
        rig.set_metrics("shop", (0, None), &metrics);
        let mut response = Some(response);
        let inner = tower::service_fn(move |_: Request<()>| std::future::ready(response.take().unwrap()));
        let zone = shop.locality(&Locality::default());
        let mut service = LoadReportLayer::from(zone).layer(inner);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut call = Box::pin(service.call(Request::new(())));
        if let Poll::Ready(Ok(response)) = call.as_mut().poll(&mut cx)
            && reads
        {
            let mut body = Box::pin(response.into_body());
            while let Poll::Ready(Some(Ok(_))) = body.as_mut().poll_frame(&mut cx) {}
        }
        drop(call);
        let stats = shop.stats().unwrap().localities[&Locality::default()].clone();
        assert_eq!((stats.issued, stats.in_progress), (1, 0));
        (stats.succeeded, stats.failed, stats.metrics.get("cpu_utilization").map_or(0, |sum| sum.count))
    }

    fn grpc(frames: impl IntoIterator<Item = Result<Frame<Bytes>, ()>>) -> Response<Frames> {
        let body = Frames(frames.into_iter().collect());
        Response::builder().header(CONTENT_TYPE, "application/grpc+proto").body(body).unwrap()
    }

    fn trailers(status: &str) -> Result<Frame<Bytes>, ()> {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", status.parse().unwrap());
        trailers.insert("endpoint-load-metrics-bin", "CQAAAAAAAPA/".parse().unwrap());
        Ok(Frame::trailers(trailers))
    }

    #[test]
    fn lr9_6_grpc_responses_have_the_outcome_of_their_trailers() {
        let data = || Ok(Frame::data(Bytes::from_static(b"x")));
        assert_eq!(counts(Ok(grpc([data(), trailers("0")])), true), (1, 0, 1));
        assert_eq!(counts(Ok(grpc([trailers("14")])), true), (0, 1, 1));
        assert_eq!(counts(Ok(grpc([data()])), true), (0, 1, 0), "no status");
        assert_eq!(counts(Ok(grpc([data(), Err(())])), true), (0, 1, 0));
        assert_eq!(counts(Ok(grpc([data(), trailers("0")])), false), (0, 1, 0), "LR5.5");
    }

    #[test]
    fn lr9_6_other_responses_have_the_outcome_of_their_status() {
        let with = |status| Response::builder().status(status).body(Frames::default()).unwrap();
        assert_eq!(counts(Ok(with(404)), true), (1, 0, 0));
        assert_eq!(counts(Ok(with(503)), true), (0, 1, 0));
        assert_eq!(counts(Ok(with(200)), false), (0, 1, 0));
        assert_eq!(counts(Err(()), true), (0, 1, 0));
    }

    #[test]
    fn lr9_6_a_status_in_headers_is_that_of_the_call() {
        let mut response = grpc([]);
        response.headers_mut().insert("grpc-status", "0".parse().unwrap());
        assert_eq!(counts(Ok(response), true), (1, 0, 0));
    }
}
