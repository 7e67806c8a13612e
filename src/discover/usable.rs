use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use crate::{
    error::WatchError,
    resolve::{ClusterView, PriorityView, Resolved},
    resource::{Endpoint, Metadata},
};

/// The endpoints of a cluster that requests are sent to.
#[derive(Debug, Default)]
pub(super) struct Usable {
    endpoints: BTreeMap<SocketAddr, Identity>,
}

/// From one set of endpoints to the next one.
#[derive(Debug, Default)]
pub(super) struct Changes<'a> {
    /// Those that are new, or not the same as before.
    pub(super) inserted: Vec<&'a Endpoint>,
    pub(super) removed: Vec<SocketAddr>,
}

/// What a service for an endpoint may be made of, its address aside. Health and weight are no part of it: they come and go.
#[derive(Debug, PartialEq)]
struct Identity {
    additional_addresses: Box<[SocketAddr]>,
    hostname: Option<Box<str>>,
    metadata: Metadata,
}

impl Usable {
    /// Whether there is no endpoint to send requests to.
    pub(super) fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// Takes over what is to be used of a cluster now, and says what is different.
    pub(super) fn update<'a>(&mut self, seen: &'a Resolved, cluster: &str) -> Changes<'a> {
        let priority = match seen {
            Ok(snapshot) => match snapshot.cluster(cluster) {
                // It is held, so nothing is known of it yet.
                None => return Changes::default(),
                Some(cluster) => match cluster.first_usable_priority() {
                    None if may_pass(cluster) => return Changes::default(),
                    priority => priority,
                },
            },
            Err(error) if error.is_transient() => return Changes::default(),
            Err(_) => None,
        };
        self.replace(priority)
    }

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
    fn of(endpoint: &Endpoint) -> Self {
        Self {
            additional_addresses: endpoint.additional_addresses().into(),
            hostname: endpoint.hostname().map(Into::into),
            metadata: endpoint.metadata().clone(),
        }
    }

    fn is_of(&self, endpoint: &Endpoint) -> bool {
        *self.additional_addresses == *endpoint.additional_addresses()
            && self.hostname.as_deref() == endpoint.hostname()
            && self.metadata == *endpoint.metadata()
    }
}

/// Whether a cluster without usable endpoints has none for a reason that may pass, its own or that of a leaf.
fn may_pass(cluster: ClusterView<'_>) -> bool {
    problems(cluster).any(WatchError::is_transient)
}

/// Why nothing can be sent to a cluster: its own reason, and those of its leaves.
pub(super) fn problems(cluster: ClusterView<'_>) -> impl Iterator<Item = &WatchError> {
    cluster.unusable_reason().into_iter().chain(cluster.leaves().filter_map(ClusterView::unusable_reason))
}

#[cfg(test)]
mod tests;
