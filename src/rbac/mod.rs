//! Role-based access control without I/O: whether requests are allowed by the policies of an RBAC filter (A41).
//!
//! ```text
//!   RBAC message ──▶ resource::http_filter::Rbac ──▶ Rbac ──┐
//!                    parsed and validated            compiled├─▶ decide ──▶ Decision ──▶ Auditor ──▶ audit loggers (A59)
//!   request, connection ──▶ RequestFacts ────────────────────┘
//! ```
//!
//! An [`Rbac`] needs no server and no client: it is made of a parsed resource, of the bytes of a message, or with the feature
//! `json` of a text.
//!
//! ```
//! use xdskit::rbac::{ConnectionFacts, Rbac, RequestFacts};
//!
//! # #[cfg(feature = "json")]
//! # fn main() -> Result<(), xdskit::resource::Invalid> {
//! let rbac = Rbac::from_json(
//!     r#"{"rules": {"action": "ALLOW", "policies": {"read": {
//!         "permissions": [{"url_path": {"path": {"prefix": "/shop.Cart/"}}}],
//!         "principals": [{"direct_remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}]
//!     }}}}"#,
//! )?;
//! let connection = ConnectionFacts::new(([10, 0, 0, 1], 80).into(), ([10, 2, 3, 4], 50_123).into());
//! let decision = rbac.decide(&RequestFacts::new("POST", "/shop.Cart/Get", &connection));
//! assert_eq!((decision.allowed, decision.matched_policy), (true, Some("read")));
//! assert!(!rbac.decide(&RequestFacts::new("POST", "/shop.Admin/Drop", &connection)).allowed);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "json"))]
//! # fn main() {}
//! ```
//!
//! The layer for tower services and the logger to the standard output do I/O, and are in `xdskit::authorization`.

mod auditor;
mod compile;
mod decision;
mod engine;
mod facts;
mod header_table;
mod path;
mod path_index;
mod rule;

#[cfg(test)]
#[cfg(feature = "json")]
mod tests;

#[cfg(any(feature = "channel", feature = "tower"))]
pub(crate) use self::facts::is_grpc_content_type;
pub use self::{
    auditor::Auditor,
    decision::{Decision, MalformedRequest},
    engine::Rbac,
    facts::RequestFacts,
};
pub use crate::resource::http_filter::rbac::{
    AuditCondition, AuditEvent, AuditLogger, AuditLoggerExtension, ConnectionFacts, TlsFacts,
};
