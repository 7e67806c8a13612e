//! Authorization of the requests of a server, with or without xDS: a layer for tower services, and the audit logger to the standard
//! output.
//!
//! The policies are those of [`rbac`](crate::rbac). A `SharedRbac` holds the policies in use, which can be replaced while the
//! server runs; with the feature `tower`, an `RbacLayer` decides by it about the requests of any HTTP or gRPC service.

#[cfg(feature = "tls")]
mod certificate;
#[cfg(feature = "tower")]
mod layer;
#[cfg(feature = "tower")]
mod reply;
#[cfg(feature = "tower")]
mod request;
mod shared_rbac;
mod stdout_audit_logger;

#[cfg(feature = "tls")]
pub use self::certificate::names_of_certificate;
#[cfg(feature = "tower")]
pub use self::{
    layer::{RbacFuture, RbacLayer, RbacService},
    reply::RbacBody,
};
pub use self::{shared_rbac::SharedRbac, stdout_audit_logger::StdoutAuditLogger};
