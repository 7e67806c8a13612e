use super::{ConfigSource, Sources, Template};
use crate::escape::debug_as_message;

/// Where the resources of `xdstp:` names with one authority come from (A47).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Authority {
    pub(super) template: Template,
    pub(super) sources: Sources,
    pub(super) fallback_on_reachability_only: bool,
}

/// The authority of a name is not in the bootstrap, so that nobody can be asked for it.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
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

    /// The sources in the order in which they are tried, for types that have none of their own. Those of the bootstrap if
    /// nothing is said of the authority's.
    pub fn sources(&self) -> &[ConfigSource] {
        self.sources.all()
    }

    /// The sources of one type in the order in which they are tried.
    pub fn sources_of(&self, type_url: &str) -> &[ConfigSource] {
        self.sources.of(type_url)
    }

    /// Whether the next source is used only when one is unreachable, whatever it says about resources (A95).
    pub fn fallback_on_reachability_only(&self) -> bool {
        self.fallback_on_reachability_only
    }
}

debug_as_message!(UnknownAuthority);
