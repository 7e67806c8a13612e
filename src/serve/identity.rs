//! What a listening socket is known by.

use std::{net::SocketAddr, sync::Arc};

/// The names of a listening socket.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// The name of the Listener resource.
    pub(crate) name: Arc<str>,
    /// The bound address.
    pub(crate) address: SocketAddr,
    /// The id of the node.
    pub(crate) node: Arc<str>,
    /// Whether the socket listens already, since the application has handed it over.
    pub(crate) is_listening: bool,
}
