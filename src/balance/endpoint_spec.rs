//! What an endpoint of a cluster is configured as, and where it is listed.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use super::{
    identity::{Destination, Identity},
    locality_config::EndpointConfig,
};

/// What makes an endpoint the same in two configurations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EndpointKey {
    /// The set of its addresses (CH3.24), sorted, and the identity of its connections (CH7.20).
    Endpoint { addresses: Vec<SocketAddr>, identity: Identity },
    /// All endpoints of a priority, or of one of its localities, under pick_first.
    All { priority: usize, locality: Option<String> },
}

/// Where an endpoint is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListPosition {
    pub(super) priority: usize,
    /// The list of the priority: that of a locality, or of all together.
    pub(super) list: usize,
    /// The index of the endpoint in the list.
    pub(super) index: usize,
}

/// How an endpoint is configured.
#[derive(Debug)]
pub(super) struct EndpointSpec {
    /// The key by which an endpoint of the configuration before is found.
    pub(super) key: EndpointKey,
    /// The addresses in their order, each with the identity of its connections.
    pub(super) destinations: Vec<Destination>,
    pub(super) hostname: Hostname,
    /// A lost connection is replaced at once (CH3.26); otherwise the next pick requests it (CH3.22).
    pub(super) reconnects: bool,
}

/// The hostname of an endpoint, by which the authority of requests may be rewritten (CH2.24).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hostname {
    /// Hostname of a single endpoint, if it has one.
    Of(Option<Arc<str>>),
    /// Hostnames of all endpoints under pick_first that have one.
    Each(Arc<BTreeMap<Destination, Arc<str>>>),
}

impl Hostname {
    /// The hostname of the endpoint with a destination; `None` if it has none.
    pub(super) fn of(&self, destination: &Destination) -> Option<Arc<str>> {
        match self {
            Self::Of(hostname) => hostname.clone(),
            Self::Each(each) => each.get(destination).cloned(),
        }
    }
}

impl EndpointSpec {
    /// An endpoint with a connection of its own.
    pub(super) fn of(endpoint: &EndpointConfig) -> Self {
        Self {
            key: EndpointKey::of(endpoint.addresses.clone(), endpoint.identity.clone()),
            destinations: endpoint.destinations().collect(),
            hostname: Hostname::Of(endpoint.hostname.clone()),
            reconnects: true,
        }
    }
}

impl EndpointKey {
    /// EndpointKey of an endpoint with connections of its own.
    pub(super) fn of(mut addresses: Vec<SocketAddr>, identity: Identity) -> Self {
        // Sorted, so that another order of the addresses is the same endpoint (CH3.24).
        addresses.sort_unstable();
        Self::Endpoint { addresses, identity }
    }
}
