//! What every floor above uses: versions, errors of fields, and values of a type that only the ends know.

mod addresses;
mod invalid;
pub mod type_url;
mod version;

use std::{any::Any, sync::Arc};

pub use self::{addresses::Addresses, invalid::Invalid, version::Version};

/// A value whose type only the ends know: the parsed resource, or what a watch publishes.
pub(crate) type Erased = Arc<dyn Any + Send + Sync>;

/// A type with a type URL: every [`Resource`](crate::resource::Resource).
pub trait TypeUrl {
    /// The type URL, such as `type.googleapis.com/envoy.config.cluster.v3.Cluster`.
    fn type_url() -> &'static str;
}
