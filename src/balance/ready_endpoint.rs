//! An endpoint as picks have it.

use std::{net::SocketAddr, sync::Arc};

use super::{
    breaker::Breaker,
    command::ConnectionId,
    identity::{Destination, Identity},
    load::Load,
    outlier::outcomes::Outcomes,
    stream_queue::Connections,
    weights::EndpointWeight,
};

/// An endpoint with a connection. `H` is what the transport sends requests with.
///
/// The fields that every attempt reads come first, in this order: behind the counters of references, they are in one cache line mostly,
/// which a pick among thousands of endpoints finds in none of the nearer caches.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ReadyEndpoint<H> {
    /// Circuit breaker of the endpoint's cluster.
    pub(super) breaker: Arc<Breaker>,
    /// Counters of outlier detection, if the endpoint's cluster has it.
    pub(super) outcomes: Option<Arc<Outcomes>>,
    /// The connections, of which there is at least one.
    pub(crate) connections: Connections<H>,
    pub(super) load: Load,
    /// Under a policy that has weights by load.
    pub(super) weight: Option<Arc<EndpointWeight>>,
    pub(crate) address: SocketAddr,
    /// The oldest connection, by which the endpoint is known.
    pub(super) connection: ConnectionId,
    /// Identity of the endpoint's connections.
    pub(super) identity: Identity,
    /// The hostname, by which the authority of requests may be rewritten.
    pub(crate) hostname: Option<Arc<str>>,
    /// The label of its locality, if somebody listens.
    pub(super) locality: Option<Arc<str>>,
}

impl<H> ReadyEndpoint<H> {
    /// Identity of the endpoint's connections.
    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What its connections lead to.
    pub(super) fn destination(&self) -> Destination {
        Destination::new(self.address, self.identity.clone())
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl<H: Clone> ReadyEndpoint<H> {
    /// Handle of the oldest connection.
    pub(crate) fn handle(&self) -> H {
        self.connections.oldest().handle().clone()
    }
}
