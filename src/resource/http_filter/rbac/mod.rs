//! Which requests may pass (A41).

use prost::Message;
use serde::Serialize;

use super::{
    extension::{HttpFilterExtension, Sides},
    kinds::BuiltIn,
};
use crate::{
    pb::envoy::{
        config::rbac::v3::{self as rules, rbac::Action},
        config::route::v3 as route,
        extensions::filters::http::rbac::v3 as pb,
        r#type::matcher::v3::{PathMatcher, path_matcher::Rule as PathRule},
    },
    resource::{
        Context, Extension, Invalid, Payload,
        matcher::{HeaderMatcher, StringMatcher},
    },
};

mod audit;
mod audit_logger;
mod connection;
mod permission;
mod principal;

pub use audit::{AuditCondition, AuditLoggerConfig, AuditLoggerKind, AuditLogging};
pub use audit_logger::{AuditEvent, AuditLogger, AuditLoggerExtension, CustomAuditLogger};
pub use connection::{ConnectionFacts, TlsFacts};
pub use permission::Permission;
pub use principal::Principal;

/// Settings of [`HttpFilterConfig::Rbac`](crate::resource::http_filter::HttpFilterConfig::Rbac).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rbac {
    /// The rules; `None` allows every request.
    pub rules: Option<RbacRules>,
}

/// The rules of an [`Rbac`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RbacRules {
    /// What happens to a request that a policy fits; the opposite happens to all others.
    pub action: RbacAction,
    /// The policies, sorted by name; the first that fits counts. There may be none.
    pub policies: Box<[Policy]>,
    /// The loggers of the decisions.
    pub audit_logging: AuditLogging,
}

/// What the policies of [`RbacRules`] are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RbacAction {
    /// To let requests pass.
    Allow,
    /// To keep requests out.
    Deny,
}

/// Fits the requests that have one of the permissions and one of the principals; without any of either, none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Policy {
    /// Its name, unique in its rules.
    pub name: Box<str>,
    /// The actions that a request may take.
    pub permissions: Box<[Permission]>,
    /// The origins of a request.
    pub principals: Box<[Principal]>,
}

/// Replaces [`Rbac`] for a part of the routes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RbacPerRoute {
    /// The new settings; `None` lets everything pass there.
    pub rbac: Option<Rbac>,
}

impl Extension for Rbac {
    const TYPE_NAME: &'static str = "envoy.extensions.filters.http.rbac.v3.RBAC";

    fn parse(payload: Payload, cx: &Context<'_>) -> Result<Self, Invalid> {
        Self::parse_message(pb::Rbac::decode(payload.message()?)?, cx)
    }
}

impl HttpFilterExtension for Rbac {
    const SIDES: Sides = Sides::Server;
    type Override = RbacPerRoute;
}

impl BuiltIn for Rbac {
    type Effective = RbacRules;

    fn effective(&self) -> Option<&RbacRules> {
        self.rules.as_ref()
    }

    /// An override without rules disables the filter (H9).
    fn overridden<'a>(&'a self, setting: &'a RbacPerRoute) -> Option<&'a RbacRules> {
        setting.rbac.as_ref()?.rules.as_ref()
    }
}

impl Rbac {
    /// Parses the filter's configuration, which an override has as well.
    fn parse_message(message: pb::Rbac, cx: &Context<'_>) -> Result<Self, Invalid> {
        // Without rules beside it, ignoring it would let every request pass (SV9.17).
        if message.matcher.is_some() {
            return Err(Invalid::field("matcher", "not supported; must not be set"));
        }
        let rules = message.rules.map_or(Ok(None), |rules| RbacRules::parse(rules, cx));
        Ok(Self { rules: rules.map_err(|e| e.at("rules"))? })
    }
}

impl RbacRules {
    /// Rules H3 to H8; `None` for rules that are ignored as a whole.
    fn parse(message: rules::Rbac, cx: &Context<'_>) -> Result<Option<Self>, Invalid> {
        let action = match Action::try_from(message.action) {
            Ok(Action::Allow) => RbacAction::Allow,
            Ok(Action::Deny) => RbacAction::Deny,
            // As if there were no rules (A41-2): their content is ignored.
            Ok(Action::Log) => return Ok(None),
            Err(_) => {
                let reason = format!("{} is no known action", message.action);
                return Err(Invalid::field("action", reason));
            }
        };
        let policies = message.policies.into_iter();
        let policies = policies
            // The map is sorted by name, so that the one that counts of several fitting policies is always the same.
            .map(|(name, policy)| Policy::parse(&name, policy).map_err(|e| e.at_key("policies", &name)))
            .collect::<Result<_, _>>()?;
        let audit_logging = AuditLogging::parse(message.audit_logging_options.unwrap_or_default(), cx)
            .map_err(|e| e.at("audit_logging_options"))?;
        Ok(Some(Self { action, policies, audit_logging }))
    }
}

impl Policy {
    /// Rule H3.
    fn parse(name: &str, message: rules::Policy) -> Result<Self, Invalid> {
        if message.condition.is_some() {
            return Err(Invalid::field("condition", "not supported; must not be set"));
        }
        if message.checked_condition.is_some() {
            return Err(Invalid::field("checked_condition", "not supported; must not be set"));
        }
        Ok(Self {
            name: name.into(),
            permissions: parse_all("permissions", message.permissions, Permission::parse)?,
            principals: parse_all("principals", message.principals, Principal::parse)?,
        })
    }
}

impl Extension for RbacPerRoute {
    const TYPE_NAME: &'static str = "envoy.extensions.filters.http.rbac.v3.RBACPerRoute";

    /// Rule H9.
    fn parse(payload: Payload, cx: &Context<'_>) -> Result<Self, Invalid> {
        let message = pb::RbacPerRoute::decode(payload.message()?)?;
        let rbac = message.rbac.map(|rbac| Rbac::parse_message(rbac, cx)).transpose();
        Ok(Self { rbac: rbac.map_err(|e| e.at("rbac"))? })
    }
}

/// Parses a repeated field.
fn parse_all<M, T>(
    field: &str,
    messages: Vec<M>,
    parse: fn(M) -> Result<T, Invalid>,
) -> Result<Box<[T]>, Invalid> {
    let messages = messages.into_iter().enumerate();
    messages.map(|(i, message)| parse(message).map_err(|e| e.at_index(field, i))).collect()
}

/// Rule H4. The header `host` is the same as `:authority`.
fn header(message: route::HeaderMatcher) -> Result<HeaderMatcher, Invalid> {
    // H4: names of headers are case-insensitive, so that `Grpc-Status` is refused as well.
    let name = message.name.to_ascii_lowercase();
    if name == ":scheme" || name.starts_with("grpc-") {
        return Err(Invalid::field("name", format!("{:?} must not be looked at", message.name)));
    }
    let mut matcher = HeaderMatcher::parse(message)?;
    if name == "host" {
        matcher.name = ":authority".into();
    }
    Ok(matcher)
}

/// Parses the condition on a path.
fn url_path(message: PathMatcher) -> Result<StringMatcher, Invalid> {
    match message.rule {
        Some(PathRule::Path(path)) => StringMatcher::parse(path).map_err(|e| e.at("path")),
        None => Err(Invalid::field("path", "must be set")),
    }
}
