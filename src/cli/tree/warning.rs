//! The warnings of a tree, about parts that may be stale.

use std::fmt;

use crate::{
    WatchError,
    error::Escaped,
    resolve::{ClusterView, Snapshot},
};

/// A reason why parts of the tree may be stale. When a server is unreachable, all its resources have the same one.
#[derive(Debug, Clone)]
pub struct Warning<'a> {
    /// The error of the first resource.
    pub error: &'a WatchError,
    /// The number of affected resources.
    pub resources: usize,
}

impl<'a> Warning<'a> {
    /// All warnings of a tree. Rejections are never merged, even if they are equal.
    pub fn of(snapshot: &'a Snapshot) -> Vec<Self> {
        let mut seen: Vec<&WatchError> = Vec::new();
        let mut warnings: Vec<Self> = Vec::new();
        for error in snapshot.warnings() {
            // Clusters may share their endpoints.
            if seen.contains(&error) {
                continue;
            }
            seen.push(error);
            match warnings.iter_mut().find(|warning| is_shared(warning.error, error)) {
                Some(warning) => warning.resources += 1,
                None => warnings.push(Self { error, resources: 1 }),
            }
        }
        warnings
    }

    /// Whether it concerns a cluster or its endpoints alone, and not the tree above them.
    pub fn is_local(&self, snapshot: &Snapshot) -> bool {
        snapshot.clusters().any(|cluster| self.is_about(cluster))
    }

    /// Whether it concerns this cluster alone.
    pub fn is_about(&self, cluster: ClusterView<'_>) -> bool {
        self.resources == 1 && [cluster.warning(), cluster.endpoints_error()].contains(&Some(self.error))
    }
}

impl fmt::Display for Warning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, resources } = self;
        match resources - 1 {
            0 => error.fmt(f),
            more => {
                let resources = if more == 1 { "resource" } else { "resources" };
                let (kind, name) = (short_type(error), error.name());
                let (reason, node) = (Escaped(error.reason()), Escaped(error.node_id()));
                write!(f, "{kind} {name:?} and {more} more {resources}: {reason} [node id: {node}]")
            }
        }
    }
}

/// The last part of the type URL, such as `Cluster`.
fn short_type(error: &WatchError) -> &str {
    error.type_url().rsplit(['.', '/']).next().unwrap_or_default()
}

fn is_shared(one: &WatchError, other: &WatchError) -> bool {
    one.is_transient() && other.is_transient() && (one.code(), one.reason()) == (other.code(), other.reason())
}
