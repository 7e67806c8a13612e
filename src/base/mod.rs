//! The shared basis of all floors above: versions, errors of fields, and type-erased values.

mod addresses;
#[cfg(any(feature = "client", feature = "json"))]
mod base64;
mod custom;
mod invalid;
pub mod type_url;
mod version;
mod watch_id;

use std::{any::Any, sync::Arc};

#[cfg(any(feature = "client", feature = "json"))]
pub(crate) use self::base64::decode_base64;
pub(crate) use self::custom::Configuration;
pub(crate) use self::watch_id::{ByWatch, WatchId};
pub use self::{addresses::Addresses, custom::Custom, invalid::Invalid, version::Version};

/// A type-erased value: a parsed resource, or the value that a watch publishes.
///
/// The cache, the engine and the slots of watches have no type parameter because of it. The type is restored at the ends, by
/// the parser of the type URL and by the watch.
pub(crate) type Erased = Arc<dyn Any + Send + Sync>;

/// A type with a type URL: every [`Resource`](crate::resource::Resource).
pub trait TypeUrl {
    /// The type URL, such as `type.googleapis.com/envoy.config.cluster.v3.Cluster`.
    fn type_url() -> &'static str;
}
