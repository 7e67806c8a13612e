//! The endpoints of a cluster's configuration, as far as they are used.

use std::{net::SocketAddr, sync::Arc};

use super::identity::{Destination, Identity};
use crate::resource::Locality;

/// The lists of a cluster's endpoints: each priority with its localities.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClusterLists<'a> {
    pub(super) priorities: &'a [Vec<LocalityConfig>],
    /// Whether each locality is a list; otherwise each priority is one.
    pub(super) by_locality: bool,
}

/// The usable endpoints of a locality (CH3.51).
#[derive(Debug, Clone)]
pub(crate) struct LocalityConfig {
    pub(crate) locality: Locality,
    /// Weight of the locality among those of its priority.
    pub(crate) weight: u32,
    pub(crate) endpoints: Vec<EndpointConfig>,
    /// The sum of the weights of all its usable endpoints, of which a subset may be in `endpoints`.
    pub(super) endpoint_weights: u64,
}

impl LocalityConfig {
    /// A locality with all its usable endpoints.
    pub(crate) fn new(locality: Locality, weight: u32, endpoints: Vec<EndpointConfig>) -> Self {
        let endpoint_weights = endpoints.iter().map(|endpoint| u64::from(endpoint.weight)).sum();
        Self { locality, weight, endpoints, endpoint_weights }
    }
}

/// An endpoint.
#[derive(Debug, Clone)]
pub(crate) struct EndpointConfig {
    /// Not empty.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Identity of the connections to any of the addresses.
    pub(crate) identity: Identity,
    /// Weight of the endpoint within its locality.
    pub(crate) weight: u32,
    /// Name of the endpoint, for the authority of requests and the server name of TLS where these are configured to have it.
    pub(crate) hostname: Option<Arc<str>>,
    /// Its key on hash rings, instead of its address (CH3.29); not empty.
    pub(crate) hash_key: Option<Arc<str>>,
}

impl EndpointConfig {
    /// The key that hashes of the endpoint are made of: that of its metadata, or its first address (CH3.29).
    pub(super) fn hash_key(&self) -> Arc<str> {
        match (&self.hash_key, self.addresses.first()) {
            (Some(key), _) => key.clone(),
            (None, Some(address)) => address.to_string().into(),
            (None, None) => "".into(),
        }
    }

    /// Its addresses, each with the identity of its connections.
    pub(crate) fn destinations(&self) -> impl Iterator<Item = Destination> {
        self.addresses.iter().map(|address| Destination::new(*address, self.identity.clone()))
    }
}
