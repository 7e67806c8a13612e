//! The client features that change what is sent.

use crate::pb::envoy::config::core::v3::Node;

/// The parts of the protocol that a client announces in `client_features` of its node. Without them a response has none
/// of what they stand for, since a client may reject all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Features {
    /// Resources of the state-of-the-world variant may be wrapped in `Resource` messages.
    pub(super) wrapper: bool,
    /// Resources may have times to live, and be confirmed by heartbeats.
    pub(super) ttl: bool,
}

impl Features {
    /// The features of a client; none without a node.
    pub(super) fn of(node: Option<&Node>) -> Self {
        let has = |names: &[&str]| {
            node.is_some_and(|node| node.client_features.iter().any(|name| names.contains(&name.as_str())))
        };
        Self { wrapper: has(&WRAPPER), ttl: has(&[TTL]) }
    }
}

/// A node that announces all features.
#[cfg(test)]
pub(super) fn node_with_features() -> Option<Node> {
    let client_features = [WRAPPER[0], TTL].map(str::to_owned).to_vec();
    Some(Node { client_features, ..Node::default() })
}

/// The name that clients use, and that of the protocol document.
pub(super) const WRAPPER: [&str; 2] = ["xds.config.resource-in-sotw", "xds.config.supports-resource-in-sotw"];
/// The feature of times to live.
pub(super) const TTL: &str = "xds.config.supports-resource-ttl";
