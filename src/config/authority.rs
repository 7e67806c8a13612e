//! The servers of the resources of one authority.

use super::{ConfigSource, Sources, Template};
use crate::escape::debug_as_message;

/// The sources of resources whose `xdstp:` names have a given authority (A47).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Authority {
    /// How names of listeners are made of targets.
    pub(super) template: Template,
    /// The servers.
    pub(super) sources: Sources,
    /// Whether only an unreachable server is replaced by the next one.
    pub(super) fallback_on_reachability_only: bool,
}

/// The error for a name with an authority that is not in the bootstrap.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("authority {authority:?} is not found in the bootstrap")]
pub struct UnknownAuthority {
    /// The authority; empty for names with the prefix `xdstp:///`.
    pub authority: String,
}

impl Authority {
    /// The template of listener names for targets such as `xds://authority/service`.
    pub fn client_listener_template(&self) -> &Template {
        &self.template
    }

    /// The sources in order of preference, for types without their own sources. By default those of the bootstrap.
    pub fn sources(&self) -> &[ConfigSource] {
        self.sources.all()
    }

    /// The sources of one type, in order of preference.
    pub fn sources_of(&self, type_url: &str) -> &[ConfigSource] {
        self.sources.of(type_url)
    }

    /// Whether fallback to the next source requires that one is unreachable, so that missing resources do not cause it
    /// (A95).
    pub fn fallback_on_reachability_only(&self) -> bool {
        self.fallback_on_reachability_only
    }
}

debug_as_message!(UnknownAuthority);
