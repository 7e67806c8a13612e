//! The audit of decisions (A59).

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{AuditEvent, AuditLogger, Decision, RequestFacts, TlsFacts};
use crate::resource::http_filter::rbac::{AuditCondition, AuditLoggerKind, AuditLogging};

/// Has decisions logged by the audit loggers of an RBAC filter. Clones share their loggers and their count of panics.
#[derive(Clone)]
pub struct Auditor(Arc<Inner>);

struct Inner {
    /// The name of the filter.
    policy_name: Box<str>,
    condition: AuditCondition,
    loggers: Box<[Arc<dyn AuditLogger>]>,
    /// The configuration of the loggers; `None` for loggers of code.
    config: Option<AuditLogging>,
    panics: AtomicU64,
}

impl Auditor {
    /// Has decisions logged by these loggers, in their order. `policy_name` is the name of the policies in the
    /// [events](AuditEvent::policy_name).
    pub fn new(
        policy_name: &str,
        condition: AuditCondition,
        loggers: impl IntoIterator<Item = Arc<dyn AuditLogger>>,
    ) -> Self {
        Self::of(policy_name, condition, loggers.into_iter().collect(), None)
    }

    /// Creates the loggers of a configuration; `None` if nothing is logged. `stdout` is the logger to the standard output.
    // SV10.6: loggers are created when the configuration is applied.
    pub fn from_config(
        policy_name: &str,
        config: &AuditLogging,
        stdout: &Arc<dyn AuditLogger>,
    ) -> Option<Self> {
        if config.condition == AuditCondition::None || config.loggers.is_empty() {
            return None;
        }
        let mut panics = 0;
        let mut loggers = Vec::new();
        for logger in &config.loggers {
            match &logger.kind {
                AuditLoggerKind::Stdout => loggers.push(stdout.clone()),
                AuditLoggerKind::Custom(custom) => match catch_unwind(AssertUnwindSafe(|| custom.create())) {
                    Ok(created) => loggers.extend(created),
                    Err(_) => {
                        tracing::error!(
                            filter = policy_name,
                            logger = &*logger.name,
                            "audit logger panicked when it was created"
                        );
                        panics += 1;
                    }
                },
            }
        }
        let auditor = Self::of(policy_name, config.condition, loggers.into(), Some(config.clone()));
        auditor.0.panics.store(panics, Ordering::Relaxed);
        Some(auditor)
    }

    fn of(
        policy_name: &str,
        condition: AuditCondition,
        loggers: Box<[Arc<dyn AuditLogger>]>,
        config: Option<AuditLogging>,
    ) -> Self {
        let (policy_name, panics) = (policy_name.into(), AtomicU64::new(0));
        Self(Arc::new(Inner { policy_name, condition, loggers, config, panics }))
    }

    /// Has a decision logged, if the condition includes it. `time` is that of the decision, since 1970.
    pub fn audit(&self, request: &RequestFacts<'_>, decision: &Decision<'_>, time: Duration) {
        // SV10.1: the condition is about the decision, and not about the action.
        if !self.0.condition.includes(decision.allowed) {
            return;
        }
        let event = AuditEvent {
            rpc_method: request.url_path(),
            principal: request.connection.tls().and_then(TlsFacts::spiffe_id).unwrap_or_default(),
            policy_name: &self.0.policy_name,
            matched_rule: decision.matched_policy.unwrap_or_default(),
            authorized: decision.allowed,
            time,
            connection: request.connection,
        };
        for logger in &self.0.loggers {
            if catch_unwind(AssertUnwindSafe(|| logger.log(&event))).is_err() {
                self.0.panics.fetch_add(1, Ordering::Relaxed);
                tracing::error!(filter = &*self.0.policy_name, "audit logger panicked");
            }
        }
    }

    /// The number of panics of loggers, those when they were created included. Each has lost an event of one logger, or all of
    /// them.
    pub fn panics(&self) -> u64 {
        self.0.panics.load(Ordering::Relaxed)
    }
}

/// Auditors are equal if they log the same decisions by equally configured loggers, or by the same ones.
impl PartialEq for Auditor {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&*self.0, &*other.0);
        let is_configured = a.config.is_some() && a.config == b.config && a.policy_name == b.policy_name;
        Arc::ptr_eq(&self.0, &other.0) || is_configured
    }
}

impl fmt::Debug for Auditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auditor")
            .field("policy_name", &self.0.policy_name)
            .field("condition", &self.0.condition)
            .field("loggers", &self.0.loggers.len())
            .field("panics", &self.panics())
            .finish_non_exhaustive()
    }
}
