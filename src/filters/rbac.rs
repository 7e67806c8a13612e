//! Role-based access control of the requests of servers (A41).

#[cfg(feature = "channel")]
use std::borrow::Cow;
use std::sync::Arc;

use super::chain::{Compiled, Compiling, FilterSite};
#[cfg(feature = "channel")]
use super::{Decision, FilterRequest, LocalReply, StreamFilter};
#[cfg(feature = "channel")]
use crate::{
    error::Code,
    rbac::{MalformedRequest, RequestFacts, is_grpc_content_type},
};
use crate::{rbac::Rbac, resource::http_filter::EffectiveFilter};

/// Denies requests by the policies of a route.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RbacFilter(Arc<Rbac>);

impl RbacFilter {
    pub(super) fn compile<'a>(
        effective: EffectiveFilter<'_>,
        site: &FilterSite<'a, '_>,
        compiling: &mut Compiling<'a>,
    ) -> Compiled<Self> {
        match (effective, &mut compiling.server) {
            (EffectiveFilter::Rbac(rules), Some(filters)) => Compiled::Filter(Self(filters.of(
                &site.filter.name,
                rules,
                site.overrides().next().is_some(),
            ))),
            // A client does not execute it (A41).
            _ => Compiled::Unknown,
        }
    }
}

#[cfg(feature = "channel")]
impl StreamFilter for RbacFilter {
    type State = ();

    // SV9.18: once, at the beginning of the stream.
    fn on_request<'a>(&'a self, _: &'a mut Option<()>, request: &'a mut FilterRequest<'_>) -> Decision<'a> {
        let Some(downstream) = request.downstream else {
            return Decision::Reply(LocalReply::new(Code::Internal, "RBAC without a connection"));
        };
        let mut facts =
            RequestFacts::new(downstream.method, downstream.path_and_query, downstream.connection)
                .with_headers(&*request.headers);
        if let Some(authority) = downstream.authority {
            facts = facts.with_authority(authority);
        }
        let decision = self.0.authorize(&facts, request.callbacks.since_1970());
        match decision.malformed {
            None if decision.allowed => Decision::Continue,
            // The peer does not learn the name of the policy.
            None => Decision::Reply(LocalReply::new(Code::PermissionDenied, DENIED)),
            Some(malformed) => Decision::Reply(refusal(malformed, request)),
        }
    }
}

/// The reply to a request that cannot be decided about (SV9.9, SV9.11): INTERNAL for gRPC, and for others INVALID_ARGUMENT, which is
/// the HTTP status 400.
#[cfg(feature = "channel")]
fn refusal(malformed: MalformedRequest<'_>, request: &FilterRequest<'_>) -> LocalReply {
    let content_type = request.headers.get(http::header::CONTENT_TYPE);
    let is_grpc = content_type.is_some_and(|value| is_grpc_content_type(value.as_bytes()));
    let code = if is_grpc { Code::Internal } else { Code::InvalidArgument };
    let reason: Cow<'static, str> = match malformed {
        MalformedRequest::HeaderNotUtf8(name) => format!("the header {name} is not UTF-8").into(),
        MalformedRequest::AmbiguousPath => "ambiguous path".into(),
    };
    LocalReply::new(code, reason)
}

/// What the peer of a denied request sees.
#[cfg(feature = "channel")]
const DENIED: &str = "Unauthorized request rejected";

#[cfg(test)]
#[cfg(feature = "channel")]
mod tests;
