//! An embeddable management server: a store of versioned resources, and the server side of the xDS protocol.
//!
//! - [`Store`] contains resources by type and name, with versions; several changes become visible at once.
//! - [`Session`] is the protocol of one stream without its I/O, so that it also runs under a virtual clock;
//!   [`DeltaSession`] is the same for the incremental variant.
//! - [`Loads`] contains the load reports of clients (LRS), and [`session::LoadSession`] is the protocol of their streams.
//! - [`ControlPlane`] serves a store to any number of clients on tonic: over ADS and over the service of each type, in both
//!   variants of the protocol and both versions of the transport, and with the feature `json` by REST.
//!
//! [`resources`] has builders of resources, for servers and tests alike. To test an application, see [`crate::testing`], which adds faults
//! and expectations.

#[deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
pub mod session;
#[deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
pub mod store;

#[cfg(feature = "control-plane")]
mod connection;
#[cfg(feature = "control-plane")]
mod event;
#[cfg(feature = "control-plane")]
mod headers;
#[cfg(feature = "control-plane")]
mod hub;
#[cfg(feature = "control-plane")]
mod incoming;
#[cfg(feature = "control-plane")]
mod load_hub;
#[cfg(feature = "control-plane")]
mod load_reports;
#[cfg(feature = "control-plane")]
mod load_stream;
#[cfg(feature = "control-plane")]
mod message;
#[cfg(feature = "control-plane")]
mod method;
#[cfg(feature = "control-plane")]
pub mod resources;
#[cfg(all(feature = "control-plane", feature = "json"))]
mod rest;
#[cfg(feature = "control-plane")]
mod server;
#[cfg(feature = "control-plane")]
mod server_limits;
#[cfg(all(feature = "control-plane", feature = "tls"))]
mod server_tls;
#[cfg(feature = "control-plane")]
mod service;
#[cfg(feature = "control-plane")]
mod snapshot;
#[cfg(feature = "control-plane")]
mod stream;
#[cfg(feature = "control-plane")]
mod stream_session;
#[cfg(feature = "control-plane")]
mod subscriptions;

#[cfg(all(feature = "control-plane", feature = "tls"))]
pub use self::server_tls::{ServerTls, ServerTlsError};
#[cfg(feature = "control-plane")]
pub use self::{
    event::Event,
    headers::Headers,
    load_hub::LoadFault,
    load_reports::LoadReports,
    message::{Request, Response, Variant},
    server::{ControlPlane, ControlPlaneBuilder, ServerHandle},
    server_limits::ServerLimits,
    service::DiscoveryServices,
    subscriptions::{SubscriptionChange, SubscriptionChanges, Subscriptions},
};
#[doc(no_inline)]
pub use crate::base::type_url;
pub use session::{DeltaSession, LoadReporting, Session};
pub use store::{
    AnyResource, Store, Versions,
    loads::{LoadReport, LoadTotals, Loads},
};
