//! The layer of a server by which handlers report the load of a call.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    body::{CallReport, ReportingBody, insert_report},
    metrics::{CallMetrics, ServerMetrics},
};

/// Reports the load with each response of a gRPC server, as the trailer `endpoint-load-metrics-bin`: the metrics of the server, and those
/// that the method sets for the call in [`CallMetrics`], which is in the extensions of the request.
///
/// Each response of gRPC has the trailer once, also one that consists of trailers alone, unless no metric is set.
#[derive(Debug, Clone, Default)]
pub struct CallMetricsLayer {
    /// The metrics of the server as a whole.
    server: ServerMetrics,
}

/// A service whose responses have load reports; see [`CallMetricsLayer`].
#[derive(Debug, Clone)]
pub struct CallMetricsService<S> {
    /// The service that handles calls.
    inner: S,
    /// The metrics of the server as a whole.
    server: ServerMetrics,
}

pin_project! {
    /// The future of a response with a load report; see [`CallMetricsLayer`].
    #[derive(Debug)]
    pub struct ReportingFuture<F> {
        #[pin]
        response: F,
        metrics: Option<CallReport>,
    }
}

impl CallMetricsLayer {
    /// Reports the metrics of a server, and those of calls. With [`ServerMetrics::default`], it reports those of calls alone.
    pub fn new(server: ServerMetrics) -> Self {
        Self { server }
    }
}

impl<S> Layer<S> for CallMetricsLayer {
    type Service = CallMetricsService<S>;

    fn layer(&self, inner: S) -> CallMetricsService<S> {
        CallMetricsService { inner, server: self.server.clone() }
    }
}

impl<S, B, R> Service<Request<B>> for CallMetricsService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<ReportingBody<R>>;
    type Error = S::Error;
    type Future = ReportingFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // A layer outside of this one may have put them there. Both report the same metrics then, and the inner one does it (A51-4).
        let call = request.extensions_mut().get_or_insert_default::<CallMetrics>().clone();
        let metrics = Some(CallReport { server: self.server.clone(), call });
        ReportingFuture { response: self.inner.call(request), metrics }
    }
}

/// So that tonic routes to the service by its name.
impl<S: tonic::server::NamedService> tonic::server::NamedService for CallMetricsService<S> {
    const NAME: &'static str = S::NAME;
}

impl<F, R, E> Future for ReportingFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<ReportingBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = ready!(this.response.poll(cx))?;
        let mut metrics = this.metrics.take();
        // The headers of a response without messages are its trailers.
        if response.headers().contains_key(STATUS)
            && let Some(metrics) = metrics.take()
        {
            insert_report(response.headers_mut(), &metrics);
        }
        Poll::Ready(Ok(response.map(|body| ReportingBody::new(body, metrics))))
    }
}

const STATUS: &str = "grpc-status";
