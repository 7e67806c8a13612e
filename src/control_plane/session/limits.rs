//! The limits of one stream.

use std::collections::BTreeMap;

use super::Misuse;
use crate::pb::envoy::config::core::v3::Node;

/// The limits of what a client requests on one stream. A request above one of them ends the stream, with the limit and the
/// setting in its status.
///
/// ```
/// use xdskit::control_plane::{ControlPlane, session::Limits};
///
/// let mut limits = Limits::default();
/// limits.max_names = 1_000;
/// let control_plane = ControlPlane::builder().limits(limits).build();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum number of subscribed names, of all types together, by default 100,000.
    pub max_names: usize,
    /// The maximum number of initial versions of a type in the incremental variant, by default 1,000,000: a client with a
    /// wildcard sends one for each resource that it has.
    pub max_initial_versions: usize,
    /// The maximum length of a name or a type URL in bytes, by default 4,096.
    pub max_name_length: usize,
    /// The maximum number of resource types, by default 100.
    pub max_types: usize,
    /// The maximum size of the node message in bytes, by default 1 MiB.
    pub max_node_size: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_names: 100_000,
            max_initial_versions: 1_000_000,
            max_name_length: 4_096,
            max_types: 100,
            max_node_size: 1 << 20,
        }
    }
}

impl Limits {
    /// Checks the number of subscribed names, and the names of a request.
    pub(super) fn check_names<'a>(
        &self,
        subscribed: usize,
        mut names: impl Iterator<Item = &'a str>,
    ) -> Result<(), Misuse> {
        let limit = self.max_names;
        if subscribed > limit {
            return Err(Misuse::TooManyNames { names: subscribed, limit });
        }
        names.try_for_each(|name| self.check_name(name))
    }

    /// Checks the initial versions of a request.
    pub(super) fn check_initial_versions(&self, versions: &BTreeMap<String, String>) -> Result<(), Misuse> {
        let limit = self.max_initial_versions;
        if versions.len() > limit {
            return Err(Misuse::TooManyVersions { versions: versions.len(), limit });
        }
        versions.keys().try_for_each(|name| self.check_name(name))
    }

    /// Checks the length of a name or a type URL.
    pub(super) fn check_name(&self, name: &str) -> Result<(), Misuse> {
        let (length, limit) = (name.len(), self.max_name_length);
        if length > limit { Err(Misuse::LongName { length, limit }) } else { Ok(()) }
    }

    /// Checks the number of types.
    pub(super) fn check_types(&self, types: usize) -> Result<(), Misuse> {
        let limit = self.max_types;
        if types > limit { Err(Misuse::TooManyTypes { limit }) } else { Ok(()) }
    }

    /// Checks the size of the node.
    pub(super) fn check_node(&self, node: Option<&Node>) -> Result<(), Misuse> {
        let (size, limit) = (node.map_or(0, prost::Message::encoded_len), self.max_node_size);
        if size > limit { Err(Misuse::LargeNode { size, limit }) } else { Ok(()) }
    }
}
