//! The audit loggers of decisions (A59).

use prost::Message;
use serde::Serialize;

use super::audit_logger::CustomAuditLogger;
use crate::{
    pb::envoy::{
        config::rbac::v3::rbac::{
            AuditLoggingOptions,
            audit_logging_options::{AuditCondition as Condition, AuditLoggerConfig as Logger},
        },
        extensions::rbac::audit_loggers::stream::v3::StdoutAuditLog,
    },
    resource::{Context, Invalid, Payload, parts},
};

/// The loggers of the decisions of [`RbacRules`](super::RbacRules), and which decisions are logged.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AuditLogging {
    /// The logged decisions; none by default.
    pub condition: AuditCondition,
    /// The loggers. Optional ones of unknown types are left out.
    pub loggers: Box<[AuditLoggerConfig]>,
}

/// Which decisions are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuditCondition {
    /// No requests.
    None,
    /// Denied requests.
    OnDeny,
    /// Allowed requests.
    OnAllow,
    /// All requests.
    OnDenyAndAllow,
}

/// The configuration of an audit logger.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AuditLoggerConfig {
    /// Its name, for people.
    pub name: Box<str>,
    /// The type of the logger, with its settings.
    #[serde(rename = "config")]
    pub kind: AuditLoggerKind,
}

/// The type of an audit logger; see [`AuditLoggerConfig`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuditLoggerKind {
    /// The standard output, as lines of JSON.
    Stdout,
    /// A logger of the application
    /// ([`Registry::with_audit_logger`](crate::resource::Registry::with_audit_logger)).
    Custom(CustomAuditLogger),
}

impl AuditLogging {
    /// Rule H8.
    pub(super) fn parse(message: AuditLoggingOptions, cx: &Context<'_>) -> Result<Self, Invalid> {
        let condition = match Condition::try_from(message.audit_condition) {
            Ok(Condition::None) => AuditCondition::None,
            Ok(Condition::OnDeny) => AuditCondition::OnDeny,
            Ok(Condition::OnAllow) => AuditCondition::OnAllow,
            Ok(Condition::OnDenyAndAllow) => AuditCondition::OnDenyAndAllow,
            Err(_) => {
                let reason = format!("{} is no known condition", message.audit_condition);
                return Err(Invalid::field("audit_condition", reason));
            }
        };
        let mut loggers = Vec::new();
        for (i, logger) in message.logger_configs.into_iter().enumerate() {
            loggers
                .extend(AuditLoggerConfig::parse(logger, cx).map_err(|e| e.at_index("logger_configs", i))?);
        }
        Ok(Self { condition, loggers: loggers.into() })
    }
}

impl AuditCondition {
    /// Whether a decision is logged, by whether the request is allowed.
    pub fn includes(self, allowed: bool) -> bool {
        match self {
            Self::None => false,
            Self::OnDeny => !allowed,
            Self::OnAllow => allowed,
            Self::OnDenyAndAllow => true,
        }
    }
}

impl AuditLoggerConfig {
    /// `None` for an optional one of an unknown type.
    fn parse(message: Logger, cx: &Context<'_>) -> Result<Option<Self>, Invalid> {
        let at = |e: Invalid| e.at("typed_config").at("audit_logger");
        let extension = message.audit_logger.unwrap_or_default();
        let any = extension.typed_config.ok_or_else(|| at(Invalid::new("must be set")))?;
        let (type_name, payload) = parts::extension(&any).map_err(at)?;
        let kind = match cx.registry.audit_loggers().get(&type_name) {
            Some(parse) => parse(payload, cx).map(AuditLoggerKind::Custom),
            None if type_name == STDOUT => stdout(payload),
            None if message.is_optional => return Ok(None),
            None => Err(Invalid::new(format!("logger type {type_name:?} is not supported"))),
        };
        Ok(Some(Self { name: extension.name.into(), kind: kind.map_err(at)? }))
    }
}

/// Parses the logger to the standard output, which has no settings.
fn stdout(payload: Payload) -> Result<AuditLoggerKind, Invalid> {
    let StdoutAuditLog {} = StdoutAuditLog::decode(payload.message()?)?;
    Ok(AuditLoggerKind::Stdout)
}

/// The logger that every client has (A59).
const STDOUT: &str = "envoy.extensions.rbac.audit_loggers.stream.v3.StdoutAuditLog";
