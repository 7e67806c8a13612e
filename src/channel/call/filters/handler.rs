//! Filters that handle the rest of a call, such as those of applications (CH5.2): each is called with what follows it.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tonic::{Status, body::Body};

use super::{FilterRun, Passed, Step, TrailerFilters};
use crate::{
    channel::{
        ChannelBody,
        deadline::{CallEnd, Deadline},
        headers, status,
    },
    filters::{Handler, Upstream},
    resource::http_filter::{FilterBody, FilterError, Next, Proceed, ProceedFuture},
};

/// A call that a filter handles.
pub(super) struct HandledCall<'a, 'c> {
    /// The call with its filters.
    run: FilterRun<'a, 'c>,
    /// Whether the request has passed all filters, for the end of the call by a shutdown.
    is_forwarded: Arc<AtomicBool>,
}

/// What a call has before it after a filter that handles it.
struct Rest<'b, 'a, 'c> {
    call: &'b mut HandledCall<'a, 'c>,
    /// The index of the filter that handles it.
    handler: usize,
}

/// A body of an application's filter, which may panic.
struct Caught(FilterBody);

impl<'a, 'c> HandledCall<'a, 'c> {
    pub(super) fn new(run: FilterRun<'a, 'c>) -> Self {
        Self { run, is_forwarded: Arc::default() }
    }

    /// Has the filter at an index respond, the first one of the chain that handles calls.
    pub(super) async fn respond(
        mut self,
        handler: usize,
        request: Request<Body>,
    ) -> Result<Response<ChannelBody>, Status> {
        let mut result = self.handle(handler, request.map(FilterBody::new)).await;
        self.run.on_response(0..handler, &mut result);
        let response = result?;
        let FilterRun { call, mut filters, routed } = self.run;
        // The deadline of the call went with the response of the endpoint, whose body the filter may have replaced.
        let mut deadline = Deadline::new(Some(call.context.active.cancelled()));
        if let Some(at) = call.deadline.at() {
            deadline.limit(at);
        }
        // If a filter has answered, its body is the call.
        let active = routed.map(|routed| routed.active);
        let mut telemetry = call.telemetry.take(false);
        if let Some(code) = status::in_headers(response.headers()) {
            telemetry.end(code);
        }
        let trailers = TrailerFilters::new(&mut filters, 0..handler);
        Ok(response.map(|body| {
            ChannelBody::filtered(Box::pin(Caught(body)), deadline, active, telemetry).with_filters(trailers)
        }))
    }

    /// Passes a request on, from a filter on.
    async fn proceed(
        &mut self,
        from: usize,
        request: Request<FilterBody>,
    ) -> Result<Response<FilterBody>, Status> {
        let (mut parts, body) = request.into_parts();
        let Passed { filters, next } = self.run.pass(from, parts.uri.path(), &mut parts.headers).await;
        let request = Request::from_parts(parts, body);
        let mut result = match next {
            Step::Forward => self.forward(request).await,
            Step::Handle => self.handle(filters, request).await,
            Step::End(status) => Err(status),
        };
        self.run.on_response(from..filters, &mut result);
        let trailers = TrailerFilters::new(&mut self.run.filters, from..filters);
        result.map(|response| response.map(|body| TrailerFilters::wrap(trailers, body)))
    }

    /// Calls the filter at an index, which handles the rest of the call.
    async fn handle(
        &mut self,
        index: usize,
        request: Request<FilterBody>,
    ) -> Result<Response<FilterBody>, Status> {
        let chain = self.run.filters.chain().clone();
        let Some(Handler { name, filter }) = chain.handler(index) else { return self.forward(request).await };
        // The call does not wait for an endpoint meanwhile, so that it is none of the calls that are queued.
        self.run.call.leave_queue();
        // Made before the filter runs, which borrows all of the call.
        let mut end = self.end();
        let end = {
            let mut rest = Rest { call: self, handler: index };
            let future = catch_unwind(AssertUnwindSafe(|| filter.call(request, Next::new(&mut rest))));
            let mut future = future.map_err(|_| panicked(name))?;
            let polled = poll_fn(|cx| {
                catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)))
                    .map_or_else(|_| Poll::Ready(Err(panicked(name))), |sent| sent.map_err(Into::into))
            });
            match end.watch(polled).await {
                Ok(response) => return response,
                Err(end) => end,
            }
        };
        if end == CallEnd::ShutDown && self.is_forwarded.load(Ordering::Acquire) {
            return Err(end.status(""));
        }
        Err(self.run.call.ended(end, &format!("HTTP filter {name:?} has not finished")))
    }

    /// The end of the call for a filter: at its deadline, or as the channel is shut down, with the grace of calls that were sent.
    fn end(&self) -> Deadline {
        let call = &*self.run.call;
        let (active, is_forwarded) = (call.context.active.clone(), self.is_forwarded.clone());
        let mut end = Deadline::new(Some(async move {
            active.shut_down_begins().await;
            if is_forwarded.load(Ordering::Acquire) {
                active.cancelled().await;
            }
        }));
        if let Some(at) = call.deadline.at() {
            end.limit(at);
        }
        end
    }

    /// Sends a request that has passed all filters.
    async fn forward(&mut self, request: Request<FilterBody>) -> Result<Response<FilterBody>, Status> {
        let (mut parts, body) = request.into_parts();
        let call = &mut *self.run.call;
        if let Some(timeout) = headers::timeout(&parts.headers)? {
            call.limit(timeout)?;
        }
        headers::prepare(&mut parts.headers, &call.context.user_agent);
        let at = call.deadline.at();
        self.is_forwarded.store(true, Ordering::Release);
        let body = Body::new(Caught(body).map_err(Status::from));
        let response = self.run.forward(&mut Request::from_parts(parts, body)).await;
        // The deadline of the call has gone with the body of the response.
        if let Some(at) = at {
            self.run.call.deadline.limit(at);
        }
        Ok(response?.map(FilterBody::new))
    }
}

impl Proceed for Rest<'_, '_, '_> {
    fn cluster(&self) -> &str {
        self.call.run.routed.as_ref().map_or("", |routed| routed.cluster())
    }

    fn deadline(&self) -> Option<std::time::Instant> {
        self.call.run.call.deadline.at().map(tokio::time::Instant::into_std)
    }

    fn add_credential(&mut self, name: HeaderName, value: HeaderValue) {
        self.call.run.filters.add_credential(self.handler, name, value);
    }

    fn run<'a>(&'a mut self, request: Request<FilterBody>) -> ProceedFuture<'a> {
        let next = self.handler + 1;
        Box::pin(async move { self.call.proceed(next, request).await.unwrap_or_else(Status::into_http) })
    }
}

impl HttpBody for Caught {
    type Data = Bytes;
    type Error = FilterError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FilterError>>> {
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.0).poll_frame(cx)));
        polled.unwrap_or_else(|_| {
            // A body is in any state after its panic, so that it is not polled again.
            self.0 = FilterBody::empty();
            let error = FilterError::new(crate::error::Code::Internal, "an HTTP filter panicked in a body");
            Poll::Ready(Some(Err(error)))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Keeps the code and the message.
impl From<Status> for FilterError {
    fn from(status: Status) -> Self {
        Self::new(status::core_code(status.code()), status.message())
    }
}

/// Keeps the code and the message.
impl From<FilterError> for Status {
    fn from(error: FilterError) -> Self {
        Self::new(tonic::Code::from(error.code() as i32), error.message())
    }
}

/// Returns the status of a call whose filter has panicked.
fn panicked(name: &str) -> Status {
    Status::internal(format!("HTTP filter {name:?} panicked in a call"))
}
