use std::sync::Arc;

use crate::resource::config_source::ResourceConfigSource;

/// A resource that another one names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reference {
    pub(crate) name: Arc<str>,
    /// Where it is to be had, if not where its name comes from.
    pub(crate) source: Option<Arc<ResourceConfigSource>>,
}

impl<N: Into<Arc<str>>> From<N> for Reference {
    fn from(name: N) -> Self {
        Self { name: name.into(), source: None }
    }
}
