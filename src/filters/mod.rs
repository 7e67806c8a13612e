//! HTTP filters without I/O: what they do with the requests and responses of streams (A39).
//!
//! A [`FilterChain`] is compiled for each route and cluster when the configuration changes. The shell runs its filters in their
//! order, once for each call and before any attempt, and their hooks for the response in the reverse order.
//!
//! A filter is a file of this folder with its decisions, the function `compile` and an `impl StreamFilter`, and a line of
//! `filters!` below. What filters need of the outside, such as clocks and requests of their own, is in `FilterCallbacks`, which
//! the shell implements. `Upstream` is the part of a client alone.

mod chain;
mod custom;
mod dispatch;
mod fault;
mod gcp_authn;
mod header_mutation;
mod instances;
mod made_filter;
#[cfg(feature = "rbac")]
mod rbac;
mod session;
#[cfg(feature = "rbac")]
mod shared_rbacs;
#[cfg(feature = "channel")]
mod stream;
#[cfg(feature = "channel")]
mod stream_filter;
mod token;
#[cfg(feature = "channel")]
mod visible;

#[cfg(feature = "channel")]
use http::{HeaderMap, HeaderName, HeaderValue};

#[cfg(feature = "channel")]
#[allow(unused_imports, reason = "servers have requests with it")]
pub(crate) use self::stream_filter::Downstream;
pub(crate) use self::{
    chain::{ChainCompiler, FilterChain},
    instances::Instances,
};
use self::{
    chain::{Compiled, Compiling, FilterSite},
    dispatch::filters,
};
#[cfg(feature = "channel")]
pub(crate) use self::{
    stream::StreamFilters,
    stream_filter::{
        AttemptResponse, Decision, FilterAttempt, FilterCallbacks, FilterRequest, Handler, Hooks, LocalReply,
        MalformedValue, OwnedFuture, StreamFilter, Upstream, Waiting,
    },
    token::{Token, TokenError},
    visible::{Visible, is_hidden},
};

#[cfg(all(test, feature = "channel"))]
pub(crate) use self::fault::running_faults;
use crate::resource::http_filter::EffectiveFilter;

filters! {
    /// Delays and aborts requests (A33).
    Fault(fault::FaultFilter),
    /// Keeps sessions by a cookie (A55).
    Session(session::SessionFilter),
    /// Adds identity tokens (A83).
    GcpAuthn(gcp_authn::GcpAuthnFilter),
    /// Changes headers of requests and responses.
    HeaderMutation(header_mutation::HeaderMutationFilter),
    /// Allows or denies requests (A41), on servers.
    #[cfg(feature = "rbac")]
    Rbac(rbac::RbacFilter),
    /// A filter of the application.
    Custom(custom::CustomCallFilter),
}

#[cfg(test)]
mod tests;
