//! The settings of the engine.
//!
//! What belongs to one server is in the bootstrap, and goes before these settings. All durations are limited to what can be
//! added to any time ([`Settings::bounded`]), so that the engine adds them without checks.

use std::{path::Path, sync::Arc, time::Duration};

use super::InitialResources;
use crate::{
    config::bounded,
    lrs::LoadSettings,
    protocol,
    resource::{Registry, matcher::RegexLimits},
};

/// The settings of the engine, with the defaults of a client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// The settings of streams and requests.
    pub(crate) protocol: protocol::Settings,
    /// The policy for resources that a server deletes; `None` for that of the server's features.
    pub(crate) on_deletion: Option<OnDeletion>,
    /// The least time between two lookups of a host, and the time after which one is repeated whose answer has no TTL.
    pub(crate) dns_refresh: Duration,
    /// The time for which a resolution keeps a cluster that its server has deleted, while the routes still lead to it.
    pub(crate) deletion_grace: Duration,
    /// Whether config sources that come with resources are followed.
    pub(crate) follow_config_sources: bool,
    /// The directory of the files that such sources may name; any without it.
    pub(crate) config_source_root: Option<Arc<Path>>,
    /// The extensions that the application handles.
    pub(crate) registry: Arc<Registry>,
    /// The limits of regular expressions in resources.
    pub(crate) regex_limits: RegexLimits,
    /// The time for which a response waits for the consumers of batches.
    pub(crate) batch_timeout: Duration,
    /// The number of resources of a type that a server may send without a request for them.
    pub(crate) max_pushed_resources: usize,
    /// The settings of load reports.
    pub(crate) load_reports: LoadSettings,
    /// The resources that serve until a server has answered.
    pub(crate) initial_resources: InitialResources,
}

/// The policy for a resource in use that its server has deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDeletion {
    /// Keep the last known good one, with a warning (A88's default).
    Keep,
    /// Drop it, as the protocol document demands.
    Drop,
}

impl Settings {
    /// Limits the durations, so that adding one to a time cannot overflow.
    pub(crate) fn bounded(self) -> Self {
        Self {
            protocol: self.protocol.bounded(),
            dns_refresh: bounded(self.dns_refresh),
            deletion_grace: bounded(self.deletion_grace),
            batch_timeout: bounded(self.batch_timeout),
            ..self
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            protocol: protocol::Settings::default(),
            on_deletion: None,
            dns_refresh: Duration::from_secs(30),
            deletion_grace: Duration::from_secs(1),
            follow_config_sources: false,
            config_source_root: None,
            registry: Arc::default(),
            regex_limits: RegexLimits::default(),
            batch_timeout: Duration::from_secs(20),
            max_pushed_resources: 100_000,
            load_reports: LoadSettings::default(),
            initial_resources: InitialResources::default(),
        }
    }
}

impl From<protocol::Settings> for Settings {
    fn from(protocol: protocol::Settings) -> Self {
        Self { protocol, ..Self::default() }
    }
}
