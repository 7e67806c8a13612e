use std::{collections::BTreeMap, sync::Arc};

use crate::base::Version;

/// What the client keeps of the resources that a consumer of batches has in a store of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// The resources, and the bytes that they were parsed from: they can be watched as well, and consumers that begin later get them.
    #[default]
    Resources,
    /// The names and versions, and digests of the bytes, by which changes are recognized. The type has one consumer at a time and no
    /// watches: another one is refused with `FAILED_PRECONDITION`, and so is a consumer of one of the protocol's own types. What a
    /// consumer needs that another one has had before it is requested again.
    Nothing,
}

/// The options of a consumer of batches, for [`Client::batches_with`](super::Client::batches_with).
///
/// ```
/// use xdskit::client::{BatchOptions, Keep};
///
/// // What the program has in its own store, from before its restart.
/// let stored = [("web-1", "7"), ("web-2", "4")];
/// let options = BatchOptions::new().with_keep(Keep::Nothing).with_versions(stored);
/// ```
#[derive(Debug, Clone, Default)]
pub struct BatchOptions {
    pub(super) keep: Keep,
    pub(super) versions: BTreeMap<Arc<str>, Version>,
}

impl BatchOptions {
    /// The defaults: the client keeps the resources, and the consumer has nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what the client keeps of the resources.
    #[must_use]
    pub fn with_keep(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }

    /// Sets the names and [versions](super::Added::version) of the resources that the consumer has in its store, so that the server sends
    /// the differences alone (`initial_resource_versions`): what has changed is in the first batches, and so is what was removed.
    ///
    /// It has an effect with [`Keep::Nothing`], in the incremental variant, before the type is requested on a stream. Otherwise the server
    /// sends everything. Versions of names that are not selected have no effect before they are subscribed to; those of the members of
    /// an `xdstp://` collection have none.
    #[must_use]
    pub fn with_versions<N: Into<Arc<str>>, V: AsRef<str>>(
        mut self,
        versions: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let versions =
            versions.into_iter().map(|(name, version)| (name.into(), Version::from(version.as_ref())));
        self.versions = versions.collect();
        self
    }
}
