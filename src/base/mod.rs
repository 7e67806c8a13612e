//! The shared basis of all floors above: versions, errors of fields, and type-erased values.

mod addresses;
mod custom;
mod invalid;
pub mod type_url;
mod version;
mod watch_id;

use std::{any::Any, sync::Arc};

pub(crate) use self::custom::Configuration;
pub(crate) use self::watch_id::{ByWatch, WatchId};
pub use self::{addresses::Addresses, custom::Custom, invalid::Invalid, version::Version};

/// A type-erased value: a parsed resource, or the value that a watch publishes.
pub(crate) type Erased = Arc<dyn Any + Send + Sync>;

/// A type with a type URL: every [`Resource`](crate::resource::Resource).
pub trait TypeUrl {
    /// The type URL, such as `type.googleapis.com/envoy.config.cluster.v3.Cluster`.
    fn type_url() -> &'static str;
}
