//! The bodies of requests and responses.

use std::{
    error::Error,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::{
    error::Code,
    resource::http_filter::{FilterBody, FilterError},
};

/// The body of a request, as the service of a [`Server`](super::Server) gets it.
#[derive(Debug)]
pub struct RequestBody(Received);

#[derive(Debug)]
enum Received {
    /// As the client sends it.
    Incoming(Incoming),
    /// As an HTTP filter of the application passes it on.
    Filtered(Box<Filtered>),
}

struct Filtered(FilterBody);

/// The error of a body: the connection or the stream has ended, or a filter or the service fails it.
pub type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a response.
pub(super) struct ResponseBody<B> {
    body: Sent<B>,
    /// The request counts as active until the body ends.
    _active: Active,
}

/// The source of the body of a response.
pub(super) enum Sent<B> {
    /// The body of the server itself; `None` is empty.
    Whole(Option<Bytes>),
    /// The body of the service.
    Service(Pin<Box<B>>),
    /// The body of an HTTP filter of the application.
    Filtered(FilterBody),
}

/// The requests on a connection that have not ended.
#[derive(Debug, Clone, Default)]
pub(super) struct ActiveRequests(Arc<AtomicUsize>);

/// A request that has not ended.
#[derive(Debug)]
pub(super) struct Active(Arc<AtomicUsize>);

impl ActiveRequests {
    /// Counts a request.
    pub(super) fn begin(&self) -> Active {
        self.0.fetch_add(1, Ordering::Relaxed);
        Active(self.0.clone())
    }

    pub(super) fn is_none(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RequestBody {
    pub(super) fn incoming(body: Incoming) -> Self {
        Self(Received::Incoming(body))
    }

    pub(super) fn filtered(body: FilterBody) -> Self {
        Self(Received::Filtered(Box::new(Filtered(body))))
    }

    /// The body for HTTP filters of the application.
    pub(super) fn into_filter_body(self) -> FilterBody {
        match self.0 {
            Received::Filtered(body) => body.0,
            Received::Incoming(body) => FilterBody::new(Failing(body)),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Received::Incoming(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Received::Filtered(body) => Pin::new(&mut body.0).poll_frame(cx).map_err(message),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Received::Incoming(body) => body.is_end_stream(),
            Received::Filtered(body) => body.0.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Received::Incoming(body) => body.size_hint(),
            Received::Filtered(body) => body.0.size_hint(),
        }
    }
}

impl std::fmt::Debug for Filtered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filtered").finish_non_exhaustive()
    }
}

impl<B> Sent<B> {
    /// A body of the server itself.
    pub(super) fn whole(body: Bytes) -> Self {
        Self::Whole(Some(body).filter(|body| !body.is_empty()))
    }
}

impl<B> ResponseBody<B> {
    pub(super) fn new(body: Sent<B>, active: Active) -> Self {
        Self { body, _active: active }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BodyError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.body {
            Sent::Whole(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            Sent::Service(body) => body.as_mut().poll_frame(cx).map_err(Into::into),
            Sent::Filtered(body) => Pin::new(body).poll_frame(cx).map_err(message),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Sent::Whole(body) => body.is_none(),
            Sent::Service(body) => body.is_end_stream(),
            Sent::Filtered(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Sent::Whole(body) => SizeHint::with_exact(body.as_ref().map_or(0, Bytes::len) as u64),
            Sent::Service(body) => body.size_hint(),
            Sent::Filtered(body) => body.size_hint(),
        }
    }
}

/// A body whose errors are those of filters.
pub(super) struct Failing<B>(pub(super) B);

impl<B> Body for Failing<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    type Data = Bytes;
    type Error = FilterError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FilterError>>> {
        let frame = ready!(Pin::new(&mut self.0).poll_frame(cx));
        let failed = |error: B::Error| FilterError::new(Code::Cancelled, error.into().to_string());
        Poll::Ready(frame.map(|frame| frame.map_err(failed)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

fn message(error: FilterError) -> BodyError {
    error.message().to_owned().into()
}
