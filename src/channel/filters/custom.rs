//! HTTP filters of applications (CH5.2): each is called with the rest of its call.

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

use super::{
    super::{
        ChannelBody,
        call::{Call, Routed},
        deadline::{CallEnd, Deadline},
        headers, status,
    },
    credentials::Credential,
};
use crate::{
    filters::{CustomCallFilter, Filter},
    resource::http_filter::{FilterBody, FilterError, Next, Proceed, ProceedFuture},
};

/// The filters that a call has before it, and what it is sent with after them.
struct Rest<'a, 'c> {
    call: &'a mut Call<'c>,
    filters: &'a [Filter],
    /// `None` once the request is sent.
    routed: &'a mut Option<Routed>,
    /// Whether the request has passed all filters, for the end of the call by a shutdown.
    is_forwarded: &'a Arc<AtomicBool>,
}

/// A body of an application's filter, which may panic.
struct Caught(FilterBody);

/// Runs filters of which the first is one of the application.
pub(super) async fn run(
    call: &mut Call<'_>,
    filters: &[Filter],
    routed: Routed,
    request: Request<Body>,
) -> Result<Response<ChannelBody>, Status> {
    let (mut routed, is_forwarded) = (Some(routed), Arc::default());
    call.is_filtered = true;
    let mut rest = Rest { call, filters, routed: &mut routed, is_forwarded: &is_forwarded };
    let response = rest.proceed(request.map(FilterBody::new)).await?;
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
    Ok(response.map(|body| ChannelBody::filtered(Box::pin(Caught(body)), deadline, active, telemetry)))
}

impl Rest<'_, '_> {
    async fn proceed(&mut self, request: Request<FilterBody>) -> Result<Response<FilterBody>, Status> {
        let (built_in, rest) = super::until_custom(self.filters);
        if let Some(routed) = self.routed {
            self.call.filter(built_in, routed, (request.uri().path(), request.headers())).await?;
        }
        match rest.split_first() {
            Some((Filter::Custom(filter), rest)) => self.call_filter(filter, rest, request).await,
            Some((Filter::Fault(_) | Filter::Session(_) | Filter::GcpAuthn(_), _)) | None => {
                self.forward(request).await
            }
        }
    }

    async fn call_filter(
        &mut self,
        filter: &CustomCallFilter,
        rest: &[Filter],
        request: Request<FilterBody>,
    ) -> Result<Response<FilterBody>, Status> {
        let name = filter.name();
        let Some(it) = filter.filter() else { return Err(panicked(name, "when it was made")) };
        // It does not wait for an endpoint meanwhile, so it is none of the calls that are queued.
        self.call.queued = None;
        let mut end = self.end();
        let (routed, is_forwarded) = (&mut *self.routed, self.is_forwarded);
        let end = {
            let mut next = Rest { call: self.call, filters: rest, routed, is_forwarded };
            let future = catch_unwind(AssertUnwindSafe(|| it.call(request, Next::new(&mut next))));
            let mut future = future.map_err(|_| panicked(name, "in a call"))?;
            let polled = poll_fn(|cx| {
                catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))).map_or_else(
                    |_| Poll::Ready(Err(panicked(name, "in a call"))),
                    |sent| sent.map_err(Into::into),
                )
            });
            match end.watch(polled).await {
                Ok(response) => return response,
                Err(end) => end,
            }
        };
        if end == CallEnd::ShutDown && self.is_forwarded.load(Ordering::Acquire) {
            return Err(end.status(""));
        }
        Err(self.call.ended(end, &format!("HTTP filter {name:?} has not finished")))
    }

    /// The end of the call for a filter: at its deadline, or as the channel is shut down, with the grace of calls that were sent.
    fn end(&self) -> Deadline {
        let (active, is_forwarded) = (self.call.context.active.clone(), self.is_forwarded.clone());
        let mut end = Deadline::new(Some(async move {
            active.shut_down_begins().await;
            if is_forwarded.load(Ordering::Acquire) {
                active.cancelled().await;
            }
        }));
        if let Some(at) = self.call.deadline.at() {
            end.limit(at);
        }
        end
    }

    /// The request has passed all filters.
    async fn forward(&mut self, request: Request<FilterBody>) -> Result<Response<FilterBody>, Status> {
        // `Next` is used up by the first request.
        let Some(routed) = self.routed.take() else { return Err(Status::internal("sent twice by a filter")) };
        let (mut parts, body) = request.into_parts();
        if let Some(timeout) = headers::timeout(&parts.headers)? {
            self.call.limit(timeout)?;
        }
        headers::prepare(&mut parts.headers);
        let at = self.call.deadline.at();
        self.is_forwarded.store(true, Ordering::Release);
        let body = Body::new(Caught(body).map_err(Status::from));
        let mut request = Request::from_parts(parts, body);
        let response = self.call.forward(routed, &mut request).await;
        // The deadline of the call has gone with the body of the response.
        if let Some(at) = at {
            self.call.deadline.limit(at);
        }
        Ok(response?.map(FilterBody::new))
    }
}

impl Proceed for Rest<'_, '_> {
    fn cluster(&self) -> &str {
        self.routed.as_ref().map_or("", |routed| routed.clusters.cluster().name())
    }

    fn deadline(&self) -> Option<std::time::Instant> {
        self.call.deadline.at().map(tokio::time::Instant::into_std)
    }

    fn add_credential(&mut self, name: HeaderName, mut value: HeaderValue) {
        value.set_sensitive(true);
        self.call.credentials.push(Credential::Header(name, value));
    }

    fn run<'a>(&'a mut self, request: Request<FilterBody>) -> ProceedFuture<'a> {
        Box::pin(async move { self.proceed(request).await.unwrap_or_else(Status::into_http) })
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

fn panicked(name: &str, when: &str) -> Status {
    Status::internal(format!("HTTP filter {name:?} panicked {when}"))
}
