//! Requests of picks for the connections of single endpoints.

use std::{
    hash::{Hash, Hasher},
    net::SocketAddr,
    sync::Arc,
};

/// An endpoint whose connection a pick requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ConnectRequest {
    /// The name of the cluster with the endpoint.
    pub(in crate::balance) leaf: Arc<str>,
    pub(in crate::balance) endpoint: RequestedEndpoint,
}

/// An endpoint of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::balance) enum RequestedEndpoint {
    /// One of a list that connects on demand (CH3.33).
    Listed { list: ListId, index: usize },
    /// One that a cookie names (CH8.11).
    Host(SocketAddr),
}

/// Identity of a list of endpoints, until the next configuration of its cluster: a request that crosses an update is for no endpoint,
/// and the picks that wait for the next picker make it anew.
#[derive(Debug, Clone, Default)]
pub(in crate::balance) struct ListId(Arc<()>);

impl ConnectRequest {
    /// For the endpoint at an index of a list.
    pub(in crate::balance) fn of_list(leaf: &Arc<str>, list: &ListId, index: usize) -> Self {
        Self { leaf: leaf.clone(), endpoint: RequestedEndpoint::Listed { list: list.clone(), index } }
    }

    /// For an endpoint of a cluster that a cookie names.
    pub(in crate::balance) fn of_host(leaf: &Arc<str>, address: SocketAddr) -> Self {
        Self { leaf: leaf.clone(), endpoint: RequestedEndpoint::Host(address) }
    }
}

impl PartialEq for ListId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ListId {}

impl Hash for ListId {
    fn hash<S: Hasher>(&self, state: &mut S) {
        Arc::as_ptr(&self.0).hash(state);
    }
}
