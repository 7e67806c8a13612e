use std::sync::Arc;

use super::{Server, Template};

/// Where the resources of `xdstp:` names with one authority come from (A47).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Authority {
    pub(super) template: Template,
    pub(super) sources: Vec<ConfigSource>,
    pub(super) fallback_on_reachability_only: bool,
}

/// A source of resources.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigSource {
    /// The aggregated stream of a management server.
    Ads(Arc<Server>),
}

/// The authority of a name is not in the bootstrap, so that nobody can be asked for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("authority {authority:?} is not found in the bootstrap")]
pub struct UnknownAuthority {
    /// The authority; empty for names that start with `xdstp:///`.
    pub authority: String,
}

impl Authority {
    /// Makes the name of a listener from a target such as `xds://authority/service`.
    pub fn client_listener_template(&self) -> &Template {
        &self.template
    }

    /// The sources in the order in which they are tried; never empty. Those of the bootstrap if the authority has none
    /// of its own.
    pub fn sources(&self) -> &[ConfigSource] {
        &self.sources
    }

    /// Whether the next source is used only when one is unreachable, whatever it says about resources (A95).
    pub fn fallback_on_reachability_only(&self) -> bool {
        self.fallback_on_reachability_only
    }
}

impl ConfigSource {
    /// The management server.
    pub fn server(&self) -> &Arc<Server> {
        match self {
            Self::Ads(server) => server,
        }
    }
}
