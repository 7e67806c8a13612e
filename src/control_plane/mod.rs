//! A small, real management server: versioned resources, and the server's half of the xDS protocol.
//!
//! - [`Store`] holds resources by type and name, with versions; several changes become visible at once.
//! - [`Session`] is the protocol of one stream without its I/O, so that it also runs under a virtual clock.

#[deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
pub mod session;
#[deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
pub mod store;

pub use session::Session;
pub use store::{AnyResource, Store};

/// The type URLs of the resources that management servers send most.
pub mod type_url {
    /// Listeners (LDS).
    pub const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
    /// Route configurations (RDS).
    pub const ROUTE_CONFIGURATION: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
    /// Clusters (CDS).
    pub const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    /// Endpoints (EDS).
    pub const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

    /// The wrapper that gives a resource a name and a version of its own.
    pub(crate) const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";
}
