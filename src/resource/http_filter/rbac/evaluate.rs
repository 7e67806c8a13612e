//! Which requests rules let pass (A41).

use std::{borrow::Cow, fmt, net::SocketAddr};

use super::{AuditLogger, Permission, Policy, Principal, RbacAction, RbacRules};
use crate::{
    resolve::RequestHeaders,
    resource::matcher::{HeaderMatcher, StringMatcher},
};

/// A request of a server, as far as [`RbacRules`] look at it. It borrows all that it says.
#[derive(Clone, Copy)]
pub struct RbacRequest<'a> {
    path: &'a str,
    source: SocketAddr,
    destination: SocketAddr,
    method: &'a str,
    authority: Option<&'a str>,
    headers: Option<&'a (dyn RequestHeaders + Sync)>,
    peer: Option<PeerNames<'a>>,
}

/// The names in the certificate of a peer that came by TLS; all empty without a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PeerNames<'a> {
    /// The URIs among its alternative names.
    pub uris: &'a [&'a str],
    /// The DNS names among its alternative names.
    pub dns_names: &'a [&'a str],
    /// Its subject, in the form of RFC 2253.
    pub subject: &'a str,
}

/// What [`RbacRules`] say of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct RbacDecision<'a> {
    /// Whether it may pass; otherwise it fails with `PERMISSION_DENIED`.
    pub is_allowed: bool,
    /// The policy that fits it, if one does.
    pub policy: Option<&'a Policy>,
    /// Who is to be told of the decision.
    pub loggers: &'a [AuditLogger],
}

impl RbacRules {
    /// Whether a request may pass, and why.
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use xdskit::resource::http_filter::rbac::{RbacRequest, RbacRules};
    ///
    /// fn may_pass(rules: &RbacRules, path: &str, headers: &[(&str, &str)], from: SocketAddr, to: SocketAddr) -> bool {
    ///     rules.evaluate(&RbacRequest::new(path, from, to).headers(&headers)).is_allowed
    /// }
    /// ```
    pub fn evaluate(&self, request: &RbacRequest<'_>) -> RbacDecision<'_> {
        let policy = self.policies.iter().find(|policy| policy.matches(request));
        let is_allowed = match self.action {
            RbacAction::Allow => policy.is_some(),
            RbacAction::Deny => policy.is_none(),
        };
        let is_told = self.audit_logging.condition.includes(is_allowed);
        let loggers = if is_told { &*self.audit_logging.loggers } else { &[] };
        RbacDecision { is_allowed, policy, loggers }
    }
}

impl Policy {
    /// Whether the policy fits a request.
    pub fn matches(&self, request: &RbacRequest<'_>) -> bool {
        self.permissions.iter().any(|permission| permission.matches(request))
            && self.principals.iter().any(|principal| principal.matches(request))
    }
}

impl Permission {
    /// Whether a request wants this.
    pub fn matches(&self, request: &RbacRequest<'_>) -> bool {
        match self {
            Self::Any => true,
            Self::AndRules(all) => all.iter().all(|rule| rule.matches(request)),
            Self::OrRules(any) => any.iter().any(|rule| rule.matches(request)),
            Self::NotRule(rule) => !rule.matches(request),
            Self::Header(matcher) => request.has_header(matcher),
            Self::UrlPath(matcher) => matcher.matches(request.url_path()),
            Self::DestinationIp(range) => range.contains(request.destination.ip()),
            Self::DestinationPort(port) => *port == u32::from(request.destination.port()),
            Self::Metadata { invert } => *invert,
            Self::RequestedServerName(matcher) => matcher.matches(""),
        }
    }
}

impl Principal {
    /// Whether a request comes from this.
    pub fn matches(&self, request: &RbacRequest<'_>) -> bool {
        match self {
            Self::Any => true,
            Self::AndIds(all) => all.iter().all(|id| id.matches(request)),
            Self::OrIds(any) => any.iter().any(|id| id.matches(request)),
            Self::NotId(id) => !id.matches(request),
            Self::Authenticated { principal_name } => request
                .peer
                .is_some_and(|peer| principal_name.as_ref().is_none_or(|matcher| peer.is_named(matcher))),
            Self::DirectRemoteIp(range) => range.contains(request.source.ip()),
            Self::Header(matcher) => request.has_header(matcher),
            Self::UrlPath(matcher) => matcher.matches(request.url_path()),
            Self::Metadata { invert } => *invert,
        }
    }
}

impl<'a> RbacRequest<'a> {
    /// A request for a path, from the address of a peer to one of the server, by `POST` and not by TLS.
    pub fn new(path: &'a str, source: SocketAddr, destination: SocketAddr) -> Self {
        Self { path, source, destination, method: "POST", authority: None, headers: None, peer: None }
    }

    /// Says the HTTP method, if it is not `POST`, which that of gRPC always is.
    #[must_use]
    pub fn method(mut self, method: &'a str) -> Self {
        self.method = method;
        self
    }

    /// Says what host the request is for; without it, the header `host` does.
    #[must_use]
    pub fn authority(mut self, authority: &'a str) -> Self {
        self.authority = Some(authority);
        self
    }

    /// Gives the request its headers, binary ones in base64 as they are sent. Several values of a header are matched as one
    /// text, joined by commas; `te` counts as absent (A41-3).
    #[must_use]
    pub fn headers(mut self, headers: &'a (impl RequestHeaders + Sync)) -> Self {
        self.headers = Some(headers);
        self
    }

    /// Says that the request came by TLS, and from whom.
    #[must_use]
    pub fn tls(mut self, peer: PeerNames<'a>) -> Self {
        self.peer = Some(peer);
        self
    }

    fn url_path(&self) -> &'a str {
        self.path.split_once('?').map_or(self.path, |(path, _)| path)
    }

    fn has_header(&self, matcher: &HeaderMatcher) -> bool {
        let value = match &*matcher.name {
            ":authority" => {
                self.authority.map(str::as_bytes).map(Cow::Borrowed).or_else(|| self.value("host"))
            }
            ":method" => Some(Cow::Borrowed(self.method.as_bytes())),
            ":path" => Some(Cow::Borrowed(self.path.as_bytes())),
            name if name.eq_ignore_ascii_case("te") => None,
            name => self.value(name),
        };
        matcher.matches_bytes(value.as_deref())
    }

    fn value(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let mut joined: Option<Cow<'a, [u8]>> = None;
        self.headers?.for_each_value(name, &mut |value| match &mut joined {
            None => joined = Some(Cow::Borrowed(value)),
            Some(values) => {
                let values = values.to_mut();
                values.push(b',');
                values.extend_from_slice(value);
            }
        });
        joined
    }
}

impl fmt::Debug for RbacRequest<'_> {
    /// Leaves out the headers: they may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RbacRequest")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("authority", &self.authority)
            .field("source", &self.source)
            .field("destination", &self.destination)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl PeerNames<'_> {
    /// The first kind of names that the certificate has is the one that counts (A41-4).
    fn is_named(&self, matcher: &StringMatcher) -> bool {
        match (self.uris, self.dns_names) {
            ([], []) => matcher.matches(self.subject),
            ([], names) | (names, _) => names.iter().any(|name| matcher.matches(name)),
        }
    }
}
