//! HTTP filters of applications that channels execute (CH5.2, CH5.5).

use std::{
    any::Any,
    convert::Infallible,
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};

use super::extension::HttpFilterExtension;
use crate::{base::Custom, error::Code, escape::debug_as_message};

/// The configuration of an HTTP filter of an application, which channels execute.
///
/// [`Registry::with_client_filter`](crate::resource::Registry::with_client_filter) adds it before the client is built, as the client
/// rejects listeners whose filters it does not know. A filter handles each call once, above its retries, in the order of the
/// listener. It may change the request and its body, delay the call, fail it, answer it, and change the response.
///
/// ```
/// use std::sync::{
///     Arc,
///     atomic::{AtomicU64, Ordering},
/// };
///
/// use http::Request;
/// use serde::Serialize;
/// use xdskit::{
///     error::Code,
///     resource::{Context, Extension, Invalid, Payload, Registry, http_filter::*},
/// };
///
/// /// Numbers the requests, and refuses those above a limit.
/// #[derive(Debug, PartialEq, Serialize)]
/// struct Quota {
///     limit: u64,
/// }
///
/// impl Extension for Quota {
///     const TYPE_NAME: &'static str = "example.filters.v1.Quota";
///
///     fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
///         let Payload::Struct(settings) = payload else {
///             return Err(Invalid::new("must be a TypedStruct"));
///         };
///         let limit = settings.get("limit").and_then(|limit| limit.as_u64());
///         Ok(Self { limit: limit.ok_or(Invalid::field("limit", "must be a number"))? })
///     }
/// }
///
/// impl HttpFilterExtension for Quota {
///     const SIDES: Sides = Sides::Client;
///     type Override = Self;
/// }
///
/// impl ClientFilter for Quota {
///     /// The number of requests up to now, on all routes.
///     type State = AtomicU64;
///
///     fn state(&self, _name: &str) -> AtomicU64 {
///         AtomicU64::new(0)
///     }
///
///     fn call_filter(&self, setting: Option<&Self>, state: &Arc<AtomicU64>) -> Box<dyn CallFilter> {
///         let limit = setting.unwrap_or(self).limit;
///         Box::new(QuotaOfRoute { limit, count: state.clone() })
///     }
/// }
///
/// struct QuotaOfRoute {
///     limit: u64,
///     count: Arc<AtomicU64>,
/// }
///
/// impl CallFilter for QuotaOfRoute {
///     fn call<'a>(&'a self, mut request: Request<FilterBody>, next: Next<'a>) -> FilterFuture<'a> {
///         Box::pin(async move {
///             let number = self.count.fetch_add(1, Ordering::Relaxed);
///             if number >= self.limit {
///                 return Err(FilterError::new(Code::ResourceExhausted, "the quota is used up"));
///             }
///             request.headers_mut().insert("x-request-number", number.into());
///             let mut response = next.run(request).await;
///             response.headers_mut().insert("x-quota-left", (self.limit - number - 1).into());
///             Ok(response)
///         })
///     }
/// }
///
/// let registry = Registry::new().with_client_filter::<Quota>();
/// ```
pub trait ClientFilter: HttpFilterExtension {
    /// What an instance of the filter keeps from call to call; `()` for nothing.
    ///
    /// An instance is that of a channel and a name in its listener. Its state is shared by all routes and outlives updates of the
    /// listener and the routes, as long as the listener has a filter of this type with this name. It ends when the channel becomes
    /// idle (A83-2).
    type State: Send + Sync + 'static;

    /// Makes the state of the instance with this name. If it panics, calls fail with INTERNAL until the next configuration.
    fn state(&self, name: &str) -> Self::State;

    /// Makes the filter for the calls on some routes, where this configuration has this override, which is the most specific one
    /// (A39-6). It is called when the configuration changes, and not for each call. If it panics, calls fail with INTERNAL
    /// until the next configuration.
    fn call_filter(&self, setting: Option<&Self::Override>, state: &Arc<Self::State>) -> Box<dyn CallFilter>;
}

/// Handles the calls on some routes. Made by [`ClientFilter::call_filter`].
pub trait CallFilter: Send + Sync {
    /// Handles a call: [`Next::run`] passes the request on, and without it the filter answers the call itself.
    ///
    /// The route and the cluster are chosen already, and do not change with the request. The call ends at its deadline, when the
    /// application drops it, and when the channel is shut down: the future is dropped then. A header `grpc-timeout` that the filter
    /// changes limits the call as that of the application does. If the future panics, the call fails with INTERNAL.
    fn call<'a>(&'a self, request: Request<FilterBody>, next: Next<'a>) -> FilterFuture<'a>;
}

/// The future of [`CallFilter::call`]. An error is the status of the call.
pub type FilterFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Response<FilterBody>, FilterError>> + Send + 'a>>;

/// The rest of a call: the filters after the current one, and then the attempts to send the request.
pub struct Next<'a> {
    /// The call.
    call: &'a mut (dyn Proceed + 'a),
}

/// The body of a request or of a response, as filters see it.
///
/// A filter that changes a body wraps it in one of its own, such as those of `http_body_util`. Each data frame of a request may be kept
/// for a retry; what a filter does to a body happens once.
pub struct FilterBody {
    /// `None` is the end.
    body: Option<Pin<Box<dyn Body<Data = Bytes, Error = FilterError> + Send>>>,
}

/// The status of a call that a filter has fail, or of a body that cannot be read.
#[derive(Clone, PartialEq, Eq)]
pub struct FilterError {
    /// The status of the call.
    code: Code,
    /// The message of the status.
    message: String,
}

/// What channels do after a filter.
pub(crate) trait Proceed: Send {
    /// The cluster that the call goes to.
    fn cluster(&self) -> &str;
    /// The deadline of the call.
    fn deadline(&self) -> Option<Instant>;
    /// Adds a header that no log shows.
    fn add_credential(&mut self, name: HeaderName, value: HeaderValue);
    /// Runs the rest of the call.
    fn run<'a>(&'a mut self, request: Request<FilterBody>) -> ProceedFuture<'a>;
}

/// The response to the rest of a call.
pub(crate) type ProceedFuture<'a> = Pin<Box<dyn Future<Output = Response<FilterBody>> + Send + 'a>>;

/// How filters of a type are executed.
#[derive(Clone, Copy)]
pub(crate) struct Execution {
    /// Makes the state that the calls of a channel share; `None` for a configuration of another type.
    state: fn(&Custom, &str) -> Option<FilterState>,
    /// Makes the filter of a call.
    call_filter: MakeCallFilter,
}

/// Makes the filter of a call of the configuration, its override and the state.
type MakeCallFilter = fn(&Custom, Option<&Custom>, &FilterState) -> Option<Box<dyn CallFilter>>;

/// The [`ClientFilter::State`] of an instance.
pub(crate) type FilterState = Arc<dyn Any + Send + Sync>;

impl<'a> Next<'a> {
    /// The rest of a call.
    pub(crate) fn new(call: &'a mut (dyn Proceed + 'a)) -> Self {
        Self { call }
    }

    /// The name of the cluster that the route has chosen for the call.
    pub fn cluster(&self) -> &str {
        self.call.cluster()
    }

    /// When the call ends at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        self.call.deadline()
    }

    /// Has a header with a credential sent with the request, such as `authorization`. It replaces the application's own of this
    /// name. It is sent on connections with TLS alone: on any other, the call fails with UNAUTHENTICATED.
    pub fn add_credential(&mut self, name: HeaderName, value: HeaderValue) {
        self.call.add_credential(name, value);
    }

    /// Passes the request on, and waits for the beginning of its response. A failure is a response, too, with `grpc-status` in its
    /// headers and no body. A response that succeeds so far has its status in the trailers.
    ///
    /// # Cancel safety
    /// Dropping the future cancels what was sent of the request.
    pub async fn run(self, request: Request<FilterBody>) -> Response<FilterBody> {
        self.call.run(request).await
    }
}

impl FilterBody {
    /// A body without data or trailers.
    pub const fn empty() -> Self {
        Self { body: None }
    }

    /// Any body. The errors of `http_body_util`'s whole bodies convert; those of others are mapped to a [`FilterError`] first.
    pub fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<FilterError>,
    {
        // The inner pin lets `Converted` poll a body that is not `Unpin` without unsafe code.
        Self { body: Some(Box::pin(Converted(Box::pin(body)))) }
    }
}

impl FilterError {
    /// A status, which the application sees as it is.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The code of the status.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The message of the status.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl Execution {
    /// The functions of a filter type.
    pub(crate) fn of<T: ClientFilter>() -> Self {
        Self {
            state: |config, name| Some(Arc::new(config.get::<T>()?.state(name))),
            call_filter: |config, setting, state| {
                let state = state.clone().downcast::<T::State>().ok()?;
                // An override of another type is none.
                Some(config.get::<T>()?.call_filter(setting.and_then(Custom::get), &state))
            },
        }
    }

    /// `None` cannot be: the configuration is of the type that this is of.
    pub(crate) fn state(self, config: &Custom, name: &str) -> Option<FilterState> {
        (self.state)(config, name)
    }

    /// `None` cannot be: the state is that of the same type.
    pub(crate) fn call_filter(
        self,
        config: &Custom,
        setting: Option<&Custom>,
        state: &FilterState,
    ) -> Option<Box<dyn CallFilter>> {
        (self.call_filter)(config, setting, state)
    }
}

/// A body with another type of errors.
struct Converted<B>(Pin<Box<B>>);

impl<B> Body for Converted<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<FilterError>,
{
    type Data = Bytes;
    type Error = FilterError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FilterError>>> {
        self.0.as_mut().poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl Body for FilterBody {
    type Data = Bytes;
    type Error = FilterError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FilterError>>> {
        match &mut self.body {
            Some(body) => body.as_mut().poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), |body| body.size_hint())
    }
}

impl Default for FilterBody {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<Infallible> for FilterError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl Error for FilterError {}

debug_as_message!(FilterError);

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)
    }
}

impl fmt::Debug for FilterBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilterBody").field("is_end_stream", &self.is_end_stream()).finish()
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("cluster", &self.cluster()).finish_non_exhaustive()
    }
}
