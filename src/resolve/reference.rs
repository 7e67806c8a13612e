//! The names of resources, with what belongs to them.

use std::sync::Arc;

use crate::{
    error::Subject,
    resource::{Resource, config_source::ResourceConfigSource},
};

/// The type and the name of the resource of an error.
///
/// Errors of resolutions are about the resource that has to be changed, and not about the target.
#[derive(Debug, Clone)]
pub(super) struct ResourceId {
    /// The type.
    type_url: &'static str,
    /// The name.
    name: Arc<str>,
}

impl ResourceId {
    /// The id of a resource of a type.
    pub(super) fn of<T: Resource>(name: Arc<str>) -> Self {
        Self { type_url: T::TYPE_URL, name }
    }

    /// The resource that an error is about.
    pub(super) fn subject(self, node_id: &Arc<str>) -> Subject {
        Subject { type_url: self.type_url, name: self.name, node: node_id.clone() }
    }
}

/// A resource that another one names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reference {
    /// The name.
    pub(crate) name: Arc<str>,
    /// Its source, if its name came with one. Two references of one name and different sources are two watches.
    pub(crate) source: Option<Arc<ResourceConfigSource>>,
}

impl<N: Into<Arc<str>>> From<N> for Reference {
    fn from(name: N) -> Self {
        Self { name: name.into(), source: None }
    }
}
