//! The warnings of a tree, about parts that may be stale.

use std::fmt;

use xdskit::{
    WatchError,
    error::MergedError,
    resolve::{ClusterView, Snapshot},
};

/// A reason why parts of the tree may be stale. When a server is unreachable, all its resources have the same one.
#[derive(Debug, Clone)]
pub(crate) struct Warning<'a>(MergedError<'a>);

impl<'a> Warning<'a> {
    /// All warnings of a tree. Rejections are never merged, even if they are equal.
    pub(crate) fn of(snapshot: &'a Snapshot) -> Vec<Self> {
        MergedError::of(snapshot.warnings()).into_iter().map(Self).collect()
    }

    /// The error of the first resource.
    pub(crate) fn error(&self) -> &'a WatchError {
        self.0.error()
    }

    /// Whether it concerns a cluster or its endpoints alone, and not the tree above them.
    pub(crate) fn is_local(&self, snapshot: &Snapshot) -> bool {
        snapshot.clusters().any(|cluster| self.is_about(cluster))
    }

    /// Whether it concerns this cluster alone.
    pub(crate) fn is_about(&self, cluster: ClusterView<'_>) -> bool {
        self.0.resources() == 1
            && [cluster.warning(), cluster.endpoints_error()].contains(&Some(self.error()))
    }
}

impl fmt::Display for Warning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
