//! The execution of the HTTP filters of a request.

use std::{
    future::poll_fn,
    mem,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Poll,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Body;
use http_body_util::Full;
use tower_service::Service;

use super::{
    body::{BodyError, Failing, RequestBody, Sent},
    exchange::Exchange,
    reply,
};
use crate::{
    error::Code,
    filters::{
        Decision, FilterCallbacks, FilterChain, FilterRequest, Handler, LocalReply, MalformedValue,
        OwnedFuture, StreamFilters, Token, TokenError, Waiting,
    },
    resource::http_filter::{FilterBody, FilterError, Next, Proceed, ProceedFuture},
    serve::Refusal,
};

/// A request that its filters handle.
pub(super) struct FilterRun<S> {
    exchange: Exchange<S>,
    filters: StreamFilters,
    callbacks: Arc<dyn FilterCallbacks>,
    random: fastrand::Rng,
}

/// How far a request has come.
struct Passed {
    /// The filters before this index have let the request pass, and see the response.
    filters: usize,
    next: Step,
}

/// What follows for a request.
enum Step {
    /// The request has passed all filters.
    Forward,
    /// The next filter handles the rest.
    Handle,
    /// The next filter has ended it.
    End(Refusal),
}

/// What a request has before it after a filter that handles it.
struct Rest<'a, S> {
    run: &'a mut FilterRun<S>,
    /// The index of the filter that handles it.
    handler: usize,
}

/// The clocks of the filters of a server.
pub(super) struct ServerCallbacks;

impl<S, B> FilterRun<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BodyError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    pub(super) fn new(
        exchange: Exchange<S>,
        chain: Arc<FilterChain>,
        callbacks: Arc<dyn FilterCallbacks>,
    ) -> Self {
        Self { exchange, filters: StreamFilters::new(chain), callbacks, random: fastrand::Rng::new() }
    }

    /// Runs the filters, and then the service unless one of them ends the request.
    pub(super) async fn respond(
        mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Sent<B>>, Refusal> {
        let (mut parts, body) = request.into_parts();
        let Passed { filters, next } = self.pass(0, parts.uri.path(), &mut parts.headers).await;
        let request = Request::from_parts(parts, body);
        let mut result = match next {
            Step::Forward => self
                .exchange
                .forward(request)
                .await
                .map(|response| response.map(|body| Sent::Service(Box::pin(body)))),
            Step::Handle => {
                let request = request.map(RequestBody::into_filter_body);
                self.handle(filters, request).await.map(|response| response.map(Sent::Filtered))
            }
            Step::End(refusal) => Err(refusal),
        };
        self.on_response(0..filters, &mut result);
        result
    }

    /// Passes a request through the filters from an index on, up to one that does not let it pass.
    async fn pass(&mut self, from: usize, path: &str, headers: &mut HeaderMap) -> Passed {
        let callbacks = &self.callbacks;
        for index in from..self.filters.len() {
            if self.filters.chain().handler(index).is_some() {
                return Passed { filters: index, next: Step::Handle };
            }
            let random = &mut self.random;
            let mut request =
                FilterRequest { path, headers, upstream: None, downstream: None, random, callbacks };
            let decision = self.filters.on_request(index, &mut request);
            if let Err(refusal) = execute(decision).await {
                return Passed { filters: index, next: Step::End(refusal) };
            }
        }
        Passed { filters: self.filters.len(), next: Step::Forward }
    }

    /// Passes a request on, from a filter on.
    async fn proceed(&mut self, from: usize, request: Request<FilterBody>) -> Response<FilterBody> {
        let (mut parts, body) = request.into_parts();
        let Passed { filters, next } = self.pass(from, parts.uri.path(), &mut parts.headers).await;
        let request = Request::from_parts(parts, body);
        let mut result = match next {
            Step::Forward => {
                let response = self.exchange.forward(request.map(RequestBody::filtered)).await;
                response.map(|response| response.map(|body| FilterBody::new(Failing(Box::pin(body)))))
            }
            Step::Handle => self.handle(filters, request).await,
            Step::End(refusal) => Err(refusal),
        };
        self.on_response(from..filters, &mut result);
        result.unwrap_or_else(|refusal| {
            let response = reply::response(refusal, self.exchange.is_grpc);
            response.map(|body| FilterBody::new(Full::new(body)))
        })
    }

    /// Calls the filter at an index, which handles the rest of the request.
    async fn handle(
        &mut self,
        index: usize,
        request: Request<FilterBody>,
    ) -> Result<Response<FilterBody>, Refusal> {
        let chain = self.filters.chain().clone();
        let Some(Handler { name, filter }) = chain.handler(index) else {
            return Err(Refusal::of_status(Code::Internal, "an HTTP filter is missing"));
        };
        // SV8.7: a panic fails the request alone.
        let panicked = || {
            tracing::error!(filter = name, "HTTP filter panicked");
            FilterError::new(Code::Internal, "an HTTP filter panicked")
        };
        let mut rest = Rest { run: self, handler: index };
        let future = catch_unwind(AssertUnwindSafe(|| filter.call(request, Next::new(&mut rest))));
        let polled = match future {
            Ok(mut future) => {
                poll_fn(move |cx| {
                    catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)))
                        .unwrap_or_else(|_| Poll::Ready(Err(panicked())))
                })
                .await
            }
            Err(_) => Err(panicked()),
        };
        polled.map_err(|error| Refusal::of_status(error.code(), error.message().to_owned()))
    }

    /// Passes the headers of the response to the filters that the request has passed.
    fn on_response<T>(&mut self, filters: Range<usize>, result: &mut Result<Response<T>, Refusal>) {
        if let Ok(response) = result
            && self.filters.hooks().on_response
        {
            let mut headers = mem::take(response.headers_mut());
            self.filters.on_response(filters, &mut headers);
            *response.headers_mut() = headers;
        }
    }
}

impl<S, B> Proceed for Rest<'_, S>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BodyError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    fn cluster(&self) -> &str {
        // A request to a server goes to none.
        ""
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn add_credential(&mut self, _: HeaderName, _: HeaderValue) {
        // The request is sent nowhere.
    }

    fn run<'a>(&'a mut self, request: Request<FilterBody>) -> ProceedFuture<'a> {
        Box::pin(self.run.proceed(self.handler + 1, request))
    }
}

impl FilterCallbacks for ServerCallbacks {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn since_1970(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
    }

    fn sleep(&self, time: Duration) -> OwnedFuture<()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn spawn(&self, task: OwnedFuture<()>) {
        tokio::spawn(task);
    }

    fn fetch_identity_token(&self, _: Arc<str>) -> OwnedFuture<Result<Token, TokenError>> {
        // The filter for that is one of clients, which the parser refuses on servers.
        Box::pin(std::future::pending())
    }

    fn on_malformed(&self, _: MalformedValue, _: u64) {}
}

/// Executes the decision of a filter.
///
/// # Errors
/// The filter ends the request.
async fn execute(decision: Decision<'_>) -> Result<(), Refusal> {
    let LocalReply { code, message, .. } = match decision {
        Decision::Continue => return Ok(()),
        Decision::Reply(reply) => reply,
        Decision::Wait(Waiting { future, .. }) => match future.await {
            Ok(()) => return Ok(()),
            Err(reply) => reply,
        },
    };
    Err(Refusal::of_status(code, message))
}
