//! What the application learns of a request.

use std::{net::SocketAddr, sync::Arc};

use super::acceptor::PeerIdentity;
use crate::serve::{ChainRef, RoutedRequest};

/// The connection, the filter chain and the route of a request. An extension of each request that a [`Server`](super::Server) passes to
/// its service.
///
/// ```
/// use xdskit::server::InboundRequest;
///
/// fn show<B>(request: &http::Request<B>) {
///     if let Some(inbound) = request.extensions().get::<InboundRequest>() {
///         println!("{} by route {:?}", inbound.peer_addr(), inbound.route());
///     }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct InboundRequest {
    connection: Arc<ConnectionInfo>,
    routed: RoutedRequest,
}

/// What all requests on a connection have in common.
#[derive(Debug)]
pub(super) struct ConnectionInfo {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) chain: ChainRef,
    pub(super) identity: PeerIdentity,
}

impl InboundRequest {
    pub(super) fn new(connection: Arc<ConnectionInfo>, routed: RoutedRequest) -> Self {
        Self { connection, routed }
    }

    /// The name of the Listener resource.
    pub fn listener(&self) -> &str {
        self.connection.chain.listener_name()
    }

    /// The name of the filter chain; often empty.
    pub fn filter_chain(&self) -> &str {
        &self.connection.chain.chain().name
    }

    /// The name of the virtual host.
    pub fn virtual_host(&self) -> &str {
        &self.routed.virtual_host().name
    }

    /// The name of the route; often empty.
    pub fn route(&self) -> &str {
        &self.routed.route().name
    }

    /// The local address of the connection.
    pub fn local_addr(&self) -> SocketAddr {
        self.connection.local
    }

    /// The address of the client.
    pub fn peer_addr(&self) -> SocketAddr {
        self.connection.peer
    }

    /// Whether the connection has TLS.
    pub fn is_tls(&self) -> bool {
        self.connection.identity.is_tls
    }

    /// The SPIFFE id in the verified certificate of the client.
    pub fn spiffe_id(&self) -> Option<&str> {
        self.connection.identity.spiffe_id.as_deref()
    }

    /// The subject alternative names in the verified certificate of the client.
    pub fn subject_alt_names(&self) -> &[Box<str>] {
        &self.connection.identity.subject_alt_names
    }
}
