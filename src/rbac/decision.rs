//! Decisions about requests.

/// Whether a request is allowed, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision<'a> {
    /// Whether the request passes. A server denies others with PERMISSION_DENIED or the HTTP status 403.
    pub allowed: bool,
    /// The name of the policy that matched: the first one by name. It is for operators, and none of the peer's business.
    pub matched_policy: Option<&'a str>,
    /// Set if the request is refused whatever the policies are, since these would not see it as the application does. A server
    /// answers with the HTTP status 400, or with INTERNAL.
    pub malformed: Option<MalformedRequest<'a>>,
}

/// Why a request cannot be decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MalformedRequest<'a> {
    /// The value of this header, which a policy matches, is not UTF-8.
    HeaderNotUtf8(&'a str),
    /// A policy matches the path, which frameworks may read in different ways: see
    /// [`RequestFacts::with_strict_path`](super::RequestFacts::with_strict_path).
    AmbiguousPath,
}

impl<'a> Decision<'a> {
    /// A decision by policies.
    pub(super) fn new(allowed: bool, matched_policy: Option<&'a str>) -> Self {
        Self { allowed, matched_policy, malformed: None }
    }

    /// The refusal of a request.
    pub(super) fn refused(malformed: MalformedRequest<'a>) -> Self {
        Self { allowed: false, matched_policy: None, malformed: Some(malformed) }
    }
}
