//! The interface of a compiled filter: its hooks, and what they see of a stream and of the side that runs them.
//!
//! The hooks of a stream are called in this order:
//!
//! ```text
//!                    once for the stream                 for each attempt of a client
//!   request ──▶ on_request, in order ────────────▶ credentials ──▶ request of the attempt
//!                                                                          │
//!   response ◀── on_trailers, on_response, ◀──────── on_attempt_response ◀─┘
//!                in reverse order
//! ```
//!
//! A filter sees the response only if its `on_request` has let the request pass. A hook that does not wait allocates nothing: it
//! returns its decision. A filter that waits returns a future ([`Decision::Wait`]), which may borrow the request and the filter's
//! state. A filter that needs the bodies handles the rest of the stream itself, as those of applications do
//! ([`StreamFilter::handler`]).

use std::{
    borrow::Cow,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::token::{Token, TokenError};
use crate::{
    error::Code,
    resource::{
        Cluster,
        http_filter::{CallFilter, rbac::ConnectionFacts},
    },
};

/// A filter with its effective configuration for a route, which all its streams share.
///
/// Each hook has the slot of the filter in the state of the stream, which is empty until the filter fills it.
pub(crate) trait StreamFilter: Send + Sync {
    /// What the filter keeps for a stream; `()` for nothing, which takes no slot.
    type State: Send + 'static;

    /// What the filter does with streams beside the hooks for requests and attempts, which are called for every filter.
    fn hooks(&self) -> Hooks {
        Hooks::default()
    }

    /// Handles the headers of the request.
    fn on_request<'a>(
        &'a self,
        _state: &'a mut Option<Self::State>,
        _request: &'a mut FilterRequest<'_>,
    ) -> Decision<'a> {
        Decision::Continue
    }

    /// Whether the filter adds credentials to the request, which are sent on private connections alone.
    fn has_credentials(&self, _state: Option<&Self::State>) -> bool {
        false
    }

    /// Adds credentials to the headers of an attempt. Its endpoint is picked, and its connection is private.
    fn credentials<'a>(
        &'a self,
        _state: &'a mut Option<Self::State>,
        _attempt: FilterAttempt<'a>,
    ) -> Decision<'a> {
        Decision::Continue
    }

    /// Handles the headers of the response of an endpoint to an attempt, before it is decided whether another attempt follows.
    fn on_attempt_response(&self, _state: &mut Option<Self::State>, _response: &mut AttemptResponse<'_>) {}

    /// Handles the headers of the response. Those of a response without messages are its trailers as well.
    fn on_response(&self, _state: &mut Option<Self::State>, _headers: &mut HeaderMap) {}

    /// Handles the trailers of the response, after its messages.
    fn on_trailers(&self, _state: &mut Option<Self::State>, _trailers: &mut HeaderMap) {}

    /// What handles the request and all that follows, instead of `on_request`.
    fn handler(&self) -> Option<Handler<'_>> {
        None
    }

    /// Handles that the handler adds a credential.
    fn add_credential(&self, _state: &mut Option<Self::State>, _name: HeaderName, _value: HeaderValue) {}
}

/// The abilities of a filter, or of all filters of a chain together: streams skip what no filter of their chain does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hooks {
    /// Whether the filter may change the request.
    pub(crate) changes_request: bool,
    /// Whether [`StreamFilter::on_response`] has an effect.
    pub(crate) on_response: bool,
    /// Whether [`StreamFilter::on_trailers`] has an effect.
    pub(crate) on_trailers: bool,
    /// Whether the filter is a [handler](StreamFilter::handler).
    pub(crate) handler: bool,
}

/// What follows a hook.
#[must_use]
pub(crate) enum Decision<'a> {
    /// The stream goes on.
    Continue,
    /// The stream ends.
    Reply(LocalReply),
    /// The stream waits, and then goes on or ends.
    Wait(Waiting<'a>),
}

/// A filter that waits.
pub(crate) struct Waiting<'a> {
    /// Dropped if the stream ends before.
    pub(crate) future: Pin<Box<dyn Future<Output = Result<(), LocalReply>> + Send + 'a>>,
    /// The status of the stream if it ends before.
    pub(crate) reason: &'static str,
}

/// The end of a stream by a filter: its status, without messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalReply {
    /// The status of the stream, which may be OK.
    pub(crate) code: Code,
    pub(crate) message: Cow<'static, str>,
    /// Whether the configuration is at fault, so that the message names the node.
    pub(crate) is_misconfigured: bool,
}

/// What handles the rest of a stream.
pub(crate) struct Handler<'a> {
    /// The name of the filter in the listener.
    pub(crate) name: &'a str,
    pub(crate) filter: &'a dyn CallFilter,
}

/// The request of a stream, as filters see it.
pub(crate) struct FilterRequest<'a> {
    /// The path, without the query.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a mut HeaderMap,
    /// Where the request goes; `None` on a server.
    pub(crate) upstream: Option<&'a mut (dyn Upstream + 'a)>,
    /// Where the request comes from; `None` on a client.
    #[cfg_attr(not(feature = "rbac"), allow(dead_code, reason = "RBAC reads it"))]
    pub(crate) downstream: Option<&'a Downstream<'a>>,
    pub(crate) random: &'a mut fastrand::Rng,
    /// The clocks and the I/O of the side that runs the filters.
    pub(crate) callbacks: &'a Arc<dyn FilterCallbacks>,
}

/// An attempt to send the request, as filters see it.
pub(crate) struct FilterAttempt<'a> {
    /// The headers with credentials, which replace those of the request of these names.
    pub(crate) headers: &'a mut HeaderMap,
    pub(crate) callbacks: &'a Arc<dyn FilterCallbacks>,
}

/// The response to an attempt, as filters see it.
pub(crate) struct AttemptResponse<'a> {
    pub(crate) headers: &'a mut HeaderMap,
    /// The name of the cluster.
    pub(crate) cluster: &'a str,
    /// All addresses of the endpoint, as session cookies have them; `None` unless a filter has [set](Upstream::override_host) the
    /// endpoint of the stream.
    pub(crate) endpoint: Option<&'a str>,
}

/// Where a server has the request of a stream from.
#[allow(dead_code, reason = "servers are to construct it for RBAC")]
pub(crate) struct Downstream<'a> {
    pub(crate) method: &'a str,
    /// The path as it was received, with the query.
    pub(crate) path_and_query: &'a str,
    /// `:authority`, or else the header `host`.
    pub(crate) authority: Option<&'a str>,
    pub(crate) connection: &'a ConnectionFacts,
}

/// Where a client sends the request of a stream.
pub(crate) trait Upstream: Send {
    /// The name of the cluster, as the filters so far have left it.
    fn cluster(&self) -> &str;
    /// The configuration of the cluster, if there is one.
    fn cluster_resource(&self) -> Option<Arc<Cluster>>;
    /// Replaces the cluster by another one of the route, if one has such a name.
    fn select_cluster(&mut self, is_selected: &dyn Fn(&str) -> bool);
    /// Has the picks of the stream prefer the endpoints with these addresses, the first one most; `None` leaves those of earlier
    /// filters. The filters see the picked endpoint with each [response](AttemptResponse::endpoint).
    fn override_host(&mut self, addresses: Option<&[SocketAddr]>);
}

/// The clocks and the I/O that filters need, of the side that runs them.
pub(crate) trait FilterCallbacks: Send + Sync {
    /// Returns the time of the monotonic clock.
    fn now(&self) -> Instant;
    /// Returns the time of the wall clock, since 1970.
    fn since_1970(&self) -> Duration;
    /// Returns a future that is ready after a time.
    fn sleep(&self, time: Duration) -> OwnedFuture<()>;
    /// Runs a task beside the streams. The task is dropped at the end of the runtime.
    fn spawn(&self, task: OwnedFuture<()>);
    /// Fetches an identity token for an audience.
    fn fetch_identity_token(&self, audience: Arc<str>) -> OwnedFuture<Result<Token, TokenError>>;
    /// Counts values of requests that a filter ignores.
    fn on_malformed(&self, value: MalformedValue, count: u64);
}

/// A future that borrows nothing.
pub(crate) type OwnedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The values of requests that filters read, and ignore if they are malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MalformedValue {
    /// A header that controls faults.
    FaultHeader,
    /// The cookie of a session.
    SessionCookie,
}

impl Hooks {
    /// Adds the hooks of another filter of the chain.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            changes_request: self.changes_request | other.changes_request,
            on_response: self.on_response | other.on_response,
            on_trailers: self.on_trailers | other.on_trailers,
            handler: self.handler | other.handler,
        }
    }
}

impl<'a> Decision<'a> {
    /// Waits for a future. `reason` is the status of the stream if it ends before.
    pub(super) fn wait(
        reason: &'static str,
        future: impl Future<Output = Result<(), LocalReply>> + Send + 'a,
    ) -> Self {
        Self::Wait(Waiting { future: Box::pin(future), reason })
    }
}

impl LocalReply {
    /// A status, as the application sees it.
    pub(super) fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), is_misconfigured: false }
    }

    /// The status UNAVAILABLE of a stream that the configuration does not permit.
    pub(super) fn misconfigured(reason: String) -> Self {
        Self { code: Code::Unavailable, message: reason.into(), is_misconfigured: true }
    }
}
