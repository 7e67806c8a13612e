//! The interface of audit loggers (A59).

use std::{fmt, sync::Arc, time::Duration};

use serde::{Serialize, Serializer};

use super::ConnectionFacts;
use crate::resource::{Context, Custom, Extension, Invalid, Payload};

/// A logger of the decisions of RBAC (A59).
///
/// It is called after each decision that its condition includes, by the task of the request, which waits for it: a logger that writes
/// to files or networks passes its events to a thread or a task of its own. A panic in it is caught and counted.
pub trait AuditLogger: Send + Sync + 'static {
    /// Logs a decision.
    fn log(&self, event: &AuditEvent<'_>);
}

/// The configuration of a type of audit logger of the application, added with
/// [`Registry::with_audit_logger`](crate::resource::Registry::with_audit_logger).
///
/// ```
/// use std::sync::Arc;
///
/// use serde::Serialize;
/// use xdskit::resource::{
///     Context, Extension, Invalid, Payload, Registry,
///     http_filter::rbac::{AuditEvent, AuditLogger, AuditLoggerExtension},
/// };
///
/// /// Logs decisions by `tracing`.
/// #[derive(Debug, PartialEq, Serialize)]
/// struct Traced;
///
/// impl AuditLogger for Traced {
///     fn log(&self, event: &AuditEvent<'_>) {
///         tracing::info!(method = event.rpc_method, rule = event.matched_rule, allowed = event.authorized, "authorization");
///     }
/// }
///
/// impl Extension for Traced {
///     const TYPE_NAME: &'static str = "example.audit.v1.Traced";
///
///     fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
///         Ok(Self)
///     }
/// }
///
/// impl AuditLoggerExtension for Traced {
///     fn logger(&self) -> Arc<dyn AuditLogger> {
///         Arc::new(Self)
///     }
/// }
///
/// let registry = Registry::new().with_audit_logger::<Traced>();
/// ```
pub trait AuditLoggerExtension: Extension {
    /// Creates the logger, when the configuration is applied. Equal configurations of a listener may share one.
    fn logger(&self) -> Arc<dyn AuditLogger>;
}

/// A decision of RBAC for a request, as audit loggers see it (A59).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AuditEvent<'a> {
    /// The path of the request, without the query: for gRPC `/package.Service/Method`.
    pub rpc_method: &'a str,
    /// The SPIFFE id of the peer's certificate; empty without one.
    pub principal: &'a str,
    /// The name of the HTTP filter.
    pub policy_name: &'a str,
    /// The name of the policy that matched; empty if none did.
    pub matched_rule: &'a str,
    /// Whether the request is allowed by this filter.
    pub authorized: bool,
    /// The time of the decision, since 1970.
    pub time: Duration,
    /// The connection of the request, with its addresses and all names of the peer.
    pub connection: &'a ConnectionFacts,
}

/// The configuration of an audit logger that the application has registered. In JSON an object with its type name as key.
#[derive(Clone)]
pub struct CustomAuditLogger {
    /// The configuration.
    config: Custom,
    /// Creates the logger of the configuration; `None` if it is of another type, which does not occur.
    create: fn(&Custom) -> Option<Arc<dyn AuditLogger>>,
}

impl CustomAuditLogger {
    /// The full name of the message that configures it.
    pub fn type_name(&self) -> &'static str {
        self.config.type_name()
    }

    /// The configuration, if it is of type `T`.
    pub fn get<T: Extension>(&self) -> Option<&T> {
        self.config.get()
    }

    /// Creates the logger.
    #[cfg_attr(not(feature = "rbac"), allow(dead_code, reason = "RBAC has it created"))]
    pub(crate) fn create(&self) -> Option<Arc<dyn AuditLogger>> {
        (self.create)(&self.config)
    }

    /// Parses a configuration of a type that the application has registered.
    pub(in crate::resource) fn parse<T: AuditLoggerExtension>(
        payload: Payload,
        cx: &Context<'_>,
    ) -> Result<Self, Invalid> {
        let config = Custom::parse::<T>(payload, cx)?;
        Ok(Self { config, create: |config| config.get::<T>().map(T::logger) })
    }
}

impl fmt::Debug for CustomAuditLogger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

/// Loggers are equal if their configurations are: these have one type, and the type has one logger.
impl PartialEq for CustomAuditLogger {
    fn eq(&self, other: &Self) -> bool {
        self.config == other.config
    }
}

impl Serialize for CustomAuditLogger {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.config.serialize(to)
    }
}
