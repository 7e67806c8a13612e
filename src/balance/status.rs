//! What the clusters of a channel are doing, as values for operators.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use serde::{Serialize, Serializer};

use super::{connectivity::Connectivity, identity::Security};
use crate::resource::{
    HealthStatus, Locality,
    tls::{ProviderInstance, Roots},
};

/// A cluster that routes name, or that the application has subscribed to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// The name.
    pub name: Arc<str>,
    /// The state that calls see.
    pub state: Connectivity,
    /// The clusters with its endpoints, the preferred one first: the leaves of an aggregate, or the cluster itself. Empty if it
    /// cannot be used.
    pub leaves: Vec<Arc<str>>,
    /// The leaf whose endpoints get the calls, or that they wait for.
    pub active_leaf: Option<Arc<str>>,
    /// Why the cluster cannot be used.
    pub error: Option<Arc<str>>,
}

/// A cluster with endpoints of its own that is in use: a leaf.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LeafStatus {
    /// The name.
    pub name: Arc<str>,
    /// The state of the priority in use.
    pub state: Connectivity,
    /// The load balancing policy, such as `round_robin`.
    pub policy: &'static str,
    /// The calls that the circuit breaker counts, of all channels of the process.
    pub requests: u32,
    /// The limit of the circuit breaker.
    pub max_requests: u32,
    /// The priorities, the preferred one first.
    pub priorities: Vec<PriorityStatus>,
    /// The endpoints that calls are not sent to by the configuration: unhealthy and draining ones, and those outside of the subset.
    pub unused: Vec<UnusedEndpoint>,
}

/// A priority of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PriorityStatus {
    /// The state; `None` if the priority is not needed, and was never connected.
    pub state: Option<Connectivity>,
    /// Whether it gets the calls, or they wait for it.
    pub is_active: bool,
    /// The newest error of a connection.
    pub error: Option<Arc<str>>,
    /// Its localities.
    pub localities: Vec<LocalityStatus>,
}

/// A locality of a priority.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LocalityStatus {
    /// Its name.
    pub locality: Locality,
    /// Its weight among the localities of the priority.
    pub weight: u32,
    /// Its usable endpoints.
    pub endpoints: Vec<EndpointStatus>,
}

/// An endpoint that calls may be sent to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EndpointStatus {
    /// The addresses, the main one first.
    pub addresses: Vec<SocketAddr>,
    /// The name.
    pub hostname: Option<Arc<str>>,
    /// The health that the management server has reported.
    pub health: Option<HealthStatus>,
    /// The state that calls see: a transient failure while it is ejected.
    pub state: Connectivity,
    /// The weight in the configuration.
    pub weight: u32,
    /// The weight by the load that it has reported, if the policy uses that and it counts now.
    pub load_weight: Option<f64>,
    /// The streams of calls under way on its connections, also those of other channels that share a connection.
    pub calls: u64,
    /// Its connections, the oldest one first.
    pub connections: Vec<ConnectionStatus>,
    /// How much longer outlier detection has it ejected at least, in seconds in JSON.
    #[serde(serialize_with = "seconds")]
    pub ejected_for: Option<Duration>,
    /// The error of the last attempt to connect, while it is not connected.
    pub error: Option<Arc<str>>,
}

/// A connection of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// The address it is connected to.
    pub address: SocketAddr,
    /// The number of the connection among those of its channel.
    pub id: u64,
    /// The address of this side; `None` if it is not known.
    pub local_address: Option<SocketAddr>,
    /// The streams under way.
    pub calls: u64,
    /// The streams that were begun so far.
    pub streams_begun: u64,
    /// The streams that the server has ended with a status so far, whatever the status.
    pub streams_completed: u64,
    /// The number of streams that the server permits.
    pub max_calls: u64,
    /// What secures it.
    pub security: ConnectionSecurity,
    /// The result of the handshake of TLS; `None` in plain text.
    pub tls: Option<TlsStatus>,
}

/// The result of a handshake of TLS.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TlsStatus {
    /// The cipher suite, by its name in the registry of IANA.
    pub cipher_suite: Option<&'static str>,
    /// The DER encoding of the certificate that this side offers, the leaf of its chain. Not in JSON.
    #[serde(skip)]
    pub local_certificate: Option<Arc<[u8]>>,
    /// The DER encoding of the peer's certificate, the leaf of its chain. Not in JSON.
    #[serde(skip)]
    pub peer_certificate: Arc<[u8]>,
}

/// The part of the status of a connection that its transport knows.
#[derive(Debug, Default)]
pub(crate) struct TransportFacts {
    pub(crate) local: Option<SocketAddr>,
    pub(crate) streams_begun: u64,
    pub(crate) streams_completed: u64,
    pub(crate) tls: Option<TlsStatus>,
}

/// The handle of a connection, whose status is shown.
pub(crate) trait ConnectionFacts {
    /// What the transport knows.
    fn facts(&self) -> TransportFacts;
}

/// The handles of connections in tests are numbers.
#[cfg(test)]
impl ConnectionFacts for u16 {
    fn facts(&self) -> TransportFacts {
        TransportFacts::default()
    }
}

/// What secures a connection of a channel. Its [`Display`](std::fmt::Display) form is for operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "source", rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum ConnectionSecurity {
    /// No security: the connection is in plain text.
    Plaintext,
    /// TLS of the channel, for clusters that configure none.
    #[non_exhaustive]
    Fallback {
        /// The server's SPIFFE id, or else the first name of its certificate, at most 256 characters.
        peer: Option<Arc<str>>,
    },
    /// TLS as the cluster configures it.
    #[non_exhaustive]
    Cluster {
        /// The certificate provider instance that has the roots; those of the system without it.
        roots: Option<Arc<str>>,
        /// The certificate provider instance that has the client's certificate, if one is offered.
        identity: Option<Arc<str>>,
        /// The server name (SNI), if one is sent.
        server_name: Option<Arc<str>>,
        /// The server's SPIFFE id, or else the first name of its certificate, at most 256 characters.
        peer: Option<Arc<str>>,
    },
}

impl ConnectionSecurity {
    /// Describes the security of a connection, with what the peer has proved to be.
    pub(super) fn of(security: &Security, peer: Option<Arc<str>>) -> Self {
        match security {
            Security::Plaintext => Self::Plaintext,
            Security::Fallback => Self::Fallback { peer },
            Security::Cluster { tls, hostname } => {
                let config = tls.config();
                let name = |instance: &ProviderInstance| (&*instance.instance_name).into();
                let roots = match &config.roots {
                    Roots::Provider(instance) => Some(name(instance)),
                    Roots::System => None,
                };
                let server_name = config.server_name(hostname.as_deref()).map(Into::into);
                let identity = config.identity.as_ref().map(name);
                Self::Cluster { roots, identity, server_name, peer }
            }
        }
    }
}

/// Certificates are shown by their sizes.
impl fmt::Debug for TlsStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStatus")
            .field("cipher_suite", &self.cipher_suite)
            .field("local_certificate", &self.local_certificate.as_ref().map(|der| der.len()))
            .field("peer_certificate", &self.peer_certificate.len())
            .finish()
    }
}

/// An endpoint that gets no calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnusedEndpoint {
    /// The main address.
    pub address: SocketAddr,
    /// The health that the management server has reported.
    pub health: HealthStatus,
}

fn seconds<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_secs_f64()).serialize(to)
}
