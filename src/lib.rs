//! xDS for applications that are not proxies.

mod observed;
mod wire;

#[deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
pub mod config;
#[cfg(any(test, feature = "control-plane"))]
pub mod control_plane;
pub mod error;
#[deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)]
pub mod name;
pub mod pb;
pub mod resource;

pub use error::WatchError;
pub use observed::Observed;
pub use resource::Resource;
