//! Which requests may pass (A41).

use prost::Message;
use serde::Serialize;

use super::{
    HttpFilterConfig, HttpFilterOverride,
    kinds::{HttpFilterExtension, Own, Sides},
};
use crate::{
    pb::envoy::{config::rbac::v3::rbac::Action, extensions::filters::http::rbac::v3 as pb},
    resource::{Context, Extension, Invalid, Payload},
};

/// Settings of [`HttpFilterConfig::Rbac`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rbac {
    /// Who may do what; `None` lets every request pass.
    pub rules: Option<RbacRules>,
}

/// Who may do what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RbacRules {
    /// What happens to a request that a policy fits; the opposite happens to all others.
    pub action: RbacAction,
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

/// Replaces [`Rbac`] for a part of the routes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RbacPerRoute {
    /// The new settings; `None` lets everything pass there (H9).
    pub rbac: Option<Rbac>,
}

impl Extension for Rbac {
    const TYPE_NAME: &'static str = "envoy.extensions.filters.http.rbac.v3.RBAC";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Self::parse_message(&pb::Rbac::decode(payload.message()?)?)
    }
}

impl HttpFilterExtension for Rbac {
    const SIDES: Sides = Sides::Server;
    type Override = RbacPerRoute;
}

impl Own for Rbac {
    fn config(self) -> HttpFilterConfig {
        HttpFilterConfig::Rbac(self)
    }

    fn config_override(setting: RbacPerRoute) -> HttpFilterOverride {
        HttpFilterOverride::Rbac(setting)
    }
}

impl Rbac {
    /// Rule H5.
    fn parse_message(message: &pb::Rbac) -> Result<Self, Invalid> {
        let Some(rules) = &message.rules else { return Ok(Self { rules: None }) };
        let action = match Action::try_from(rules.action) {
            Ok(Action::Allow) => RbacAction::Allow,
            Ok(Action::Deny) => RbacAction::Deny,
            // Ignored as a whole (A41-2).
            Ok(Action::Log) => return Ok(Self { rules: None }),
            Err(_) => {
                let reason = format!("{} is no known action", rules.action);
                return Err(Invalid::field("rules.action", reason));
            }
        };
        Ok(Self { rules: Some(RbacRules { action }) })
    }
}

impl Extension for RbacPerRoute {
    const TYPE_NAME: &'static str = "envoy.extensions.filters.http.rbac.v3.RBACPerRoute";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let message = pb::RbacPerRoute::decode(payload.message()?)?;
        let rbac = message.rbac.as_ref().map(Rbac::parse_message).transpose();
        Ok(Self { rbac: rbac.map_err(|e| e.at("rbac"))? })
    }
}
