//! The decisions of an RBAC filter.

use std::time::Duration;

use bytes::Bytes;

use super::{
    Auditor, Decision, RequestFacts, compile::Policies, decision::MalformedRequest, path, rule::View,
};
use crate::resource::{
    Context, Extension, Invalid, Payload,
    http_filter::{
        Rbac as RbacConfig, RbacRules,
        rbac::{RbacAction, RbacPerRoute},
    },
};

/// The compiled policies of an RBAC filter (A41), and what audits their decisions (A59).
///
/// Regular expressions are compiled with the resource, and policies for exact paths are found by an index, so that a decision takes
/// time in proportion to the policies that can match the path. It allocates only if policies match headers.
#[derive(Debug, Clone, PartialEq)]
pub struct Rbac {
    /// `None` allows every request.
    rules: Option<Rules>,
    auditor: Option<Auditor>,
}

/// The rules of an RBAC filter.
#[derive(Debug, Clone, PartialEq)]
struct Rules {
    action: RbacAction,
    policies: Policies,
}

impl Rbac {
    /// Compiles the configuration of a filter. One without rules allows every request.
    pub fn new(config: &RbacConfig) -> Self {
        config.rules.as_ref().map_or(Self { rules: None, auditor: None }, Self::from_rules)
    }

    /// Compiles the override of a filter for a part of the routes, which replaces its configuration there.
    pub fn from_override(config: &RbacPerRoute) -> Self {
        config.rbac.as_ref().map_or(Self { rules: None, auditor: None }, Self::new)
    }

    /// Compiles rules.
    pub fn from_rules(rules: &RbacRules) -> Self {
        let rules = Rules { action: rules.action, policies: Policies::new(&rules.policies) };
        Self { rules: Some(rules), auditor: None }
    }

    /// Parses and compiles a message `envoy.extensions.filters.http.rbac.v3.RBAC`.
    ///
    /// # Errors
    /// The message is invalid by the rules of gRPC, which `docs/spec/VALIDATION.md` lists.
    pub fn from_protobuf(message: impl Into<Bytes>) -> Result<Self, Invalid> {
        let config = RbacConfig::parse(Payload::Message(message.into()), &Context::new())?;
        Ok(Self::new(&config))
    }

    /// Parses and compiles the canonical JSON of a message `envoy.extensions.filters.http.rbac.v3.RBAC`.
    ///
    /// # Errors
    /// The text is no such JSON, has an unknown field, or is invalid by the rules of gRPC, as for
    /// [`from_protobuf`](Self::from_protobuf).
    #[cfg(feature = "json")]
    pub fn from_json(text: &str) -> Result<Self, Invalid> {
        let read = crate::format::decode_json(RbacConfig::TYPE_NAME, text.as_bytes());
        let read = read.map_err(|e| Invalid::new(e.to_string()))?;
        // A policy in which a field was overlooked would be another one.
        match read.warnings.into_iter().next() {
            Some(warning) => Err(Invalid::new(warning)),
            None => Self::from_protobuf(read.message),
        }
    }

    /// Sets what audits the decisions of [`authorize`](Self::authorize).
    #[must_use]
    pub fn with_auditor(mut self, auditor: Auditor) -> Self {
        self.auditor = Some(auditor);
        self
    }

    /// What audits the decisions, if anything does.
    pub fn auditor(&self) -> Option<&Auditor> {
        self.auditor.as_ref()
    }

    /// Decides about a request, and has the decision audited. `time` is that of the decision, since 1970.
    pub fn authorize<'r>(&'r self, request: &RequestFacts<'_>, time: Duration) -> Decision<'r> {
        let decision = self.decide(request);
        if let (Some(auditor), Some(_)) = (&self.auditor, &self.rules) {
            auditor.audit(request, &decision, time);
        }
        decision
    }

    /// Decides about a request, without an audit.
    pub fn decide<'r>(&'r self, request: &RequestFacts<'_>) -> Decision<'r> {
        match &self.rules {
            Some(rules) => rules.decide(request),
            None => Decision::new(true, None),
        }
    }

    /// Whether a policy depends on addresses or on TLS, so that requests without facts about their connections cannot be decided.
    pub fn reads_connection(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.policies.reads.connection)
    }
}

impl Rules {
    fn decide(&self, request: &RequestFacts<'_>) -> Decision<'_> {
        let Policies { policies, index, headers, reads } = &self.policies;
        // SV9.11.
        if request.strict_path && reads.path && path::is_ambiguous(request.path) && !request.is_grpc() {
            return Decision::refused(MalformedRequest::AmbiguousPath);
        }
        let headers = match headers.read(request) {
            Ok(headers) => headers,
            Err(malformed) => return Decision::refused(malformed),
        };
        let url_path = request.url_path();
        let view = View { url_path, headers, connection: request.connection };
        // SV9.1: the first policy by name.
        let matched = index
            .candidates(url_path)
            .filter_map(|candidate| policies.get(candidate))
            .find(|policy| policy.permissions.matches(&view) && policy.principals.matches(&view));
        let allowed = match self.action {
            RbacAction::Allow => matched.is_some(),
            RbacAction::Deny => matched.is_none(),
        };
        Decision::new(allowed, matched.map(|policy| &*policy.name))
    }
}
