//! The endpoints of a cluster, by EDS or DNS.

use std::sync::Arc;

use super::{dns::HostSeen, reference::Reference};
use crate::{
    error::WatchError,
    observed::Observed,
    resource::{Cluster, ClusterKind, ClusterLoadAssignment, cluster::HostPort},
};

/// The source of a cluster's endpoints.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    /// An assignment of this name.
    Eds(Reference),
    /// The addresses of a host.
    Host(HostPort),
}

/// The state of the endpoints at a source.
#[derive(Debug, Clone)]
pub(crate) enum Endpoints {
    /// The endpoints of EDS.
    Eds(Arc<Observed<ClusterLoadAssignment>>),
    /// The addresses of a host.
    Host(HostSeen),
}

impl Endpoints {
    /// The reason why there are none. A host that cannot be looked up has no such reason (F5).
    fn absence(&self) -> Option<&WatchError> {
        match self {
            Self::Eds(seen) => match &**seen {
                Observed::Absent { reason } => Some(reason),
                Observed::Present { .. } | Observed::Pending => None,
            },
            Self::Host(_) => None,
        }
    }

    /// Whether nothing is known because the server cannot be reached.
    ///
    /// Routes wait for such endpoints while others serve, since an outage of the server says nothing of them.
    pub(super) fn is_unreachable(&self) -> bool {
        self.absence().is_some_and(WatchError::is_of_server)
    }

    /// Whether there are none of that name, or none were received.
    ///
    /// As the error may be older than the cluster that leads to the endpoints, the previous configuration serves for the grace.
    pub(super) fn are_lacking(&self) -> bool {
        self.absence().is_some_and(is_lack)
    }

    /// Whether it is known that there are none of that name.
    ///
    /// Only this is a removal: the last endpoints serve for the grace, as a deleted cluster does.
    pub(super) fn is_missing(&self) -> bool {
        self.absence().is_some_and(WatchError::is_not_found)
    }
}

/// Whether an error may be older than the update that leads to the resource. A rejection is not: it is about a resource that
/// was received.
pub(super) fn is_lack(reason: &WatchError) -> bool {
    reason.is_not_found() || reason.is_transient()
}

impl Source {
    /// The source of a cluster's endpoints; `None` for an aggregate.
    pub(super) fn of(cluster: &Cluster) -> Option<Self> {
        match &cluster.kind {
            ClusterKind::Eds { service_name, source } => {
                Some(Self::Eds(Reference { name: service_name.clone(), source: source.clone() }))
            }
            ClusterKind::LogicalDns { address } => Some(Self::Host(address.clone())),
            ClusterKind::Aggregate { .. } => None,
        }
    }
}
