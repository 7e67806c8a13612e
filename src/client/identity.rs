//! The identity of a client.

use std::sync::Arc;

#[cfg(feature = "csds")]
use bytes::Bytes;

use crate::config::Node;

/// The names by which a client is known to servers and operators.
#[derive(Debug)]
pub(super) struct Identity {
    /// The id of the node.
    pub(super) node_id: Arc<str>,
    /// The name of the client for the status service.
    pub(super) scope: Arc<str>,
    /// The encoded node.
    #[cfg(feature = "csds")]
    pub(super) node: Bytes,
}

impl Identity {
    pub(super) fn new(node: &Node, scope: &str) -> Self {
        Self {
            node_id: node.id.as_str().into(),
            scope: scope.into(),
            #[cfg(feature = "csds")]
            node: crate::protocol::encode_node(node),
        }
    }
}
