use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use crate::{
    error::WatchError,
    resolve::{ClusterView, PriorityView, Resolved},
    resource::{Endpoint, Metadata},
};

/// The usable endpoints of a cluster.
#[derive(Debug, Default)]
pub(super) struct Usable {
    /// The endpoints by their main address, the key of services.
    endpoints: BTreeMap<SocketAddr, Identity>,
}

/// The changes from one set of endpoints to the next one.
#[derive(Debug, Default)]
pub(super) struct Changes<'a> {
    /// New endpoints, and those with a changed identity.
    pub(super) inserted: Vec<&'a Endpoint>,
    /// The addresses of endpoints that are no longer used.
    pub(super) removed: Vec<SocketAddr>,
}

/// The properties of an endpoint that a service may depend on, apart from its address. Health and weight are
/// excluded: they change often.
#[derive(Debug, PartialEq)]
struct Identity {
    /// Further addresses of the same endpoint.
    additional_addresses: Box<[SocketAddr]>,
    /// The name for the authority of requests, if the endpoint has one.
    hostname: Option<Box<str>>,
    /// All metadata of the endpoint.
    metadata: Metadata,
}

impl Usable {
    /// Whether there are no usable endpoints.
    pub(super) fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// Updates the usable endpoints of a cluster, and returns the changes.
    pub(super) fn update<'a>(&mut self, seen: &'a Resolved, cluster: &str) -> Changes<'a> {
        let priority = match seen {
            Ok(snapshot) => match snapshot.cluster(cluster) {
                // The cluster is subscribed to, so its state is just not known yet.
                None => return Changes::default(),
                Some(cluster) => match cluster.first_usable_priority() {
                    // The endpoints in use stay, as long as the reason may pass by itself.
                    None if may_pass(cluster) => return Changes::default(),
                    priority => priority,
                },
            },
            Err(error) if error.is_transient() => return Changes::default(),
            Err(_) => None,
        };
        self.replace(priority)
    }

    /// Replaces the endpoints by those of a priority; `None` means that there are none.
    fn replace<'a>(&mut self, priority: Option<PriorityView<'a>>) -> Changes<'a> {
        let mut changes = Changes::default();
        let mut gone: BTreeSet<_> = self.endpoints.keys().copied().collect();
        for endpoint in priority.into_iter().flat_map(PriorityView::usable_endpoints) {
            let endpoint = endpoint.endpoint();
            let address = endpoint.address();
            gone.remove(&address);
            if self.endpoints.get(&address).is_none_or(|before| !before.is_of(endpoint)) {
                self.endpoints.insert(address, Identity::of(endpoint));
                changes.inserted.push(endpoint);
            }
        }
        for address in &gone {
            self.endpoints.remove(address);
        }
        changes.removed = gone.into_iter().collect();
        changes
    }
}

impl Identity {
    /// The identity of an endpoint.
    fn of(endpoint: &Endpoint) -> Self {
        Self {
            additional_addresses: endpoint.additional_addresses().into(),
            hostname: endpoint.hostname().map(Into::into),
            metadata: endpoint.metadata().clone(),
        }
    }

    /// Compares with an endpoint, without the copies that `of` makes.
    fn is_of(&self, endpoint: &Endpoint) -> bool {
        *self.additional_addresses == *endpoint.additional_addresses()
            && self.hostname.as_deref() == endpoint.hostname()
            && self.metadata == *endpoint.metadata()
    }
}

/// Whether the absence of usable endpoints has a transient reason, that of the cluster or of a leaf.
fn may_pass(cluster: ClusterView<'_>) -> bool {
    problems(cluster).any(WatchError::is_transient)
}

/// The reasons for which a cluster is unusable: its own, and those of its leaves.
pub(super) fn problems(cluster: ClusterView<'_>) -> impl Iterator<Item = &WatchError> {
    cluster.unusable_reason().into_iter().chain(cluster.leaves().filter_map(ClusterView::unusable_reason))
}

#[cfg(test)]
mod tests;
