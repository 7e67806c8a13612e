//! xDS for applications that are not proxies.

mod observed;
mod wire;

#[cfg(any(test, feature = "control-plane"))]
pub mod control_plane;
pub mod error;
pub mod pb;
pub mod resource;

pub use error::WatchError;
pub use observed::Observed;
pub use resource::Resource;
