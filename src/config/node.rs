//! The node: what a client tells servers about itself.

use serde_json::{Map, Value};

use super::Locality;
use crate::name::ContextParams;

/// The identity of this client, sent in the first request of each stream.
///
/// The user agent and the client features are those of the library ([`USER_AGENT_NAME`], [`USER_AGENT_VERSION`],
/// [`CLIENT_FEATURES`]) and cannot be configured.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Node {
    /// The unique id of this client. It is part of every error.
    pub id: String,
    /// The service of this client.
    pub cluster: String,
    /// The locality of this client.
    pub locality: Option<Locality>,
    /// Further properties for the management server.
    pub metadata: Map<String, Value>,
}

impl Node {
    /// A node with an id.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }

    /// Sets the service of this client.
    #[must_use]
    pub fn with_cluster(mut self, cluster: impl Into<String>) -> Self {
        self.cluster = cluster.into();
        self
    }

    /// Sets the locality of this client.
    #[must_use]
    pub fn with_locality(mut self, locality: Locality) -> Self {
        self.locality = Some(locality);
        self
    }

    /// Sets one key of the metadata.
    #[must_use]
    pub fn with_metadata(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// The context parameters of this node for those of `keys` that have a value. Keys, such as `cluster`,
    /// `locality.zone` or `metadata.team`, have no prefix `xds.node.`. Metadata values are written as JSON.
    ///
    /// ```
    /// use xdskit::config::Node;
    ///
    /// let node = Node::new("n").with_cluster("shop").with_metadata("team", "a");
    /// let params = node.context_params(&["cluster", "metadata.team", "locality.zone"]);
    /// assert_eq!(params.get("xds.node.cluster"), Some("shop"));
    /// assert_eq!(params.get("xds.node.metadata.team"), Some("\"a\""));
    /// assert_eq!(params.len(), 2);
    /// ```
    pub fn context_params(&self, keys: &[&str]) -> ContextParams {
        keys.iter()
            .filter_map(|key| Some((format!("xds.node.{key}"), self.context_param(key)?)))
            // In protobuf an empty text is the same as none.
            .filter(|(_, value)| !value.is_empty())
            .collect()
    }

    /// Whether [`context_params`](Self::context_params) accepts a key, set or not.
    pub(crate) fn is_context_param(key: &str) -> bool {
        matches!(
            key,
            "id" | "cluster"
                | "user_agent_name"
                | "user_agent_version"
                | "locality.region"
                | "locality.zone"
                | "locality.sub_zone"
        ) || key.strip_prefix("metadata.").is_some_and(|key| !key.is_empty())
    }

    /// The value of a context parameter, if the node has it.
    fn context_param(&self, key: &str) -> Option<String> {
        let locality = self.locality.as_ref();
        match key {
            "id" => Some(self.id.clone()),
            "cluster" => Some(self.cluster.clone()),
            "user_agent_name" => Some(USER_AGENT_NAME.to_owned()),
            "user_agent_version" => Some(USER_AGENT_VERSION.to_owned()),
            "locality.region" => locality.map(|l| l.region().to_owned()),
            "locality.zone" => locality.map(|l| l.zone().to_owned()),
            "locality.sub_zone" => locality.map(|l| l.sub_zone().to_owned()),
            other => self.metadata.get(other.strip_prefix("metadata.")?).map(Value::to_string),
        }
    }
}

// A27-2: servers recognise the implementation by these, and enable behaviour by the features, so that applications cannot set
// them.
/// The `user_agent_name` of the node.
pub const USER_AGENT_NAME: &str = "xdskit";

/// The `user_agent_version` of the node.
pub const USER_AGENT_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The `client_features` of the node. Both spellings of the feature for wrapped resources are in use. The one of collections of
/// endpoints is that of A95.
pub const CLIENT_FEATURES: &[&str] = &[
    "envoy.lb.does_not_support_overprovisioning",
    "xds.config.resource-in-sotw",
    "xds.config.supports-resource-in-sotw",
    "xds.config.supports-resource-ttl",
    "xds.endpoint.supports_lb_endpoint_collection",
];
