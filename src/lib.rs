//! xDS for applications that are not proxies.

#![cfg_attr(not(feature = "client"), allow(dead_code, reason = "the client is what drives the engine"))]

#[cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)
)]
mod cache;
#[cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)
)]
mod engine;
mod observed;
#[cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)
)]
mod protocol;
mod wire;

pub mod bootstrap;
#[cfg(feature = "client")]
#[allow(clippy::disallowed_methods, reason = "the shell has a runtime and a clock")]
pub mod client;
#[deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
pub mod config;
#[cfg(any(test, feature = "control-plane"))]
pub mod control_plane;
pub mod error;
#[deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
pub mod name;
pub mod pb;
pub mod resource;
#[cfg(feature = "test-util")]
pub mod testing;
#[cfg(feature = "client")]
#[allow(clippy::disallowed_methods, reason = "the shell has a runtime and a clock")]
pub mod transport;

#[cfg(feature = "client")]
pub use client::Client;
pub use error::WatchError;
pub use observed::Observed;
pub use resource::Resource;
