//! A cluster in a snapshot.
//!
//! An entry is immutable and shared by all snapshots between two changes of its cluster. It is the only part of a cluster that
//! views read: the state of the graph behind it is private to the resolver.

use std::sync::Arc;

use super::endpoints::Endpoints;
use crate::{
    error::{Blame, Code, Subject, WatchError},
    resource::{Cluster, ClusterLoadAssignment, Resource},
};

/// The state of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct ClusterEntry {
    /// The name.
    pub(crate) name: Arc<str>,
    /// `None` if there is no such cluster; `error` is the reason.
    pub(crate) config: Option<Arc<Cluster>>,
    /// The reason why nothing can be sent to it, as far as the cluster itself is the reason. Missing endpoints are no such
    /// reason, so that an aggregate falls back to other leaves.
    pub(crate) error: Option<WatchError>,
    /// The reason why `config` may be stale.
    pub(crate) warning: Option<WatchError>,
    /// An aggregate, or a cluster with unknown endpoints, has none.
    pub(crate) endpoints: Option<Arc<ClusterLoadAssignment>>,
    /// The reason why `endpoints` are missing, or may be stale. That of DNS is blamed on the network.
    pub(crate) endpoints_error: Option<WatchError>,
    /// The clusters that an aggregate's requests are sent to, the preferred ones first. Empty for other clusters. Each of them
    /// has an entry in the same snapshot.
    pub(crate) leaves: Arc<[Arc<str>]>,
}

impl ClusterEntry {
    /// A cluster with nothing but the reason of its absence.
    ///
    /// `config` is there for an aggregate that cannot serve: its configuration is still shown, and known to be one of an
    /// aggregate.
    pub(super) fn failed(name: &Arc<str>, config: Option<Arc<Cluster>>, error: WatchError) -> Self {
        Self { config, error: Some(error), ..Self::empty(name) }
    }

    /// A cluster with endpoints of its own.
    pub(super) fn with_endpoints(
        name: &Arc<str>,
        config: &Arc<Cluster>,
        warning: Option<WatchError>,
        endpoints: &Endpoints,
        node_id: &Arc<str>,
    ) -> Self {
        let (endpoints, endpoints_error) = match endpoints {
            Endpoints::Eds(seen) => (seen.resource().cloned(), seen.error().cloned()),
            Endpoints::Host(seen) => {
                let endpoints_error = seen.error().map(|why| {
                    let about =
                        Subject { type_url: Cluster::TYPE_URL, name: name.clone(), node: node_id.clone() };
                    WatchError::new(Code::Unavailable, Blame::Network, about, why)
                });
                (seen.assignment().cloned(), endpoints_error)
            }
        };
        Self { config: Some(config.clone()), warning, endpoints, endpoints_error, ..Self::empty(name) }
    }

    /// Returns the entry with these endpoints, unless it has others.
    ///
    /// These are endpoints that were removed and serve for the grace, beside the error of their removal.
    pub(super) fn or_endpoints(self, endpoints: Option<Arc<ClusterLoadAssignment>>) -> Self {
        Self { endpoints: self.endpoints.or(endpoints), ..self }
    }

    /// An aggregate.
    pub(super) fn with_leaves(
        name: &Arc<str>,
        config: &Arc<Cluster>,
        warning: Option<WatchError>,
        leaves: Vec<Arc<str>>,
    ) -> Self {
        Self { config: Some(config.clone()), warning, leaves: leaves.into(), ..Self::empty(name) }
    }

    /// Whether another entry is the same.
    ///
    /// An entry that is the same is not replaced, so that a snapshot which would show nothing else is not published.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        // Resources that are equal byte by byte are the same allocation, since the cache does not parse them again.
        fn same<T>(ours: Option<&Arc<T>>, theirs: Option<&Arc<T>>) -> bool {
            ours.map(Arc::as_ptr) == theirs.map(Arc::as_ptr)
        }
        same(self.config.as_ref(), other.config.as_ref())
            && same(self.endpoints.as_ref(), other.endpoints.as_ref())
            && self.error == other.error
            && self.warning == other.warning
            && self.endpoints_error == other.endpoints_error
            && self.leaves == other.leaves
    }

    /// An entry of which nothing is known.
    fn empty(name: &Arc<str>) -> Self {
        Self {
            name: name.clone(),
            config: None,
            error: None,
            warning: None,
            endpoints: None,
            endpoints_error: None,
            leaves: Arc::default(),
        }
    }
}

/// Resources are compared by their addresses.
impl PartialEq for ClusterEntry {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other)
    }
}

impl Eq for ClusterEntry {}
