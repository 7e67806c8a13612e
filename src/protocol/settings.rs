use std::{path::Path, sync::Arc, time::Duration};

use crate::{
    config::{ApiType, Polling, bounded},
    resource::Registry,
};

/// The settings of the protocol, with the defaults of a client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// The variant of the protocol for servers whose bootstrap entry names none.
    pub(crate) api_type: ApiType,
    /// The polling of servers whose bootstrap entry does not configure it.
    pub(crate) polling: Polling,
    /// The maximum size of a request in bytes, as far as names allow.
    pub(crate) max_request_size: usize,
    /// The does-not-exist time: a resource that was not sent within it counts as non-existent (A57-5).
    pub(crate) resource_timeout: Duration,
    /// The time for which a stream without subscriptions is kept.
    pub(crate) idle_stream_timeout: Duration,
    /// The interval of HTTP/2 keepalive pings, before a server reports that they are too many.
    pub(crate) keepalive: Duration,
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
    /// The same with durations that can be added to any time.
    pub(crate) fn bounded(self) -> Self {
        Self {
            polling: self.polling.bounded(),
            resource_timeout: bounded(self.resource_timeout),
            idle_stream_timeout: bounded(self.idle_stream_timeout),
            keepalive: bounded(self.keepalive),
            dns_refresh: bounded(self.dns_refresh),
            deletion_grace: bounded(self.deletion_grace),
            ..self
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            api_type: ApiType::AggregatedGrpc,
            polling: Polling::default(),
            max_request_size: 3 << 20,
            resource_timeout: Duration::from_secs(15),
            idle_stream_timeout: Duration::from_secs(30),
            keepalive: Duration::from_secs(30),
            on_deletion: None,
            dns_refresh: Duration::from_secs(30),
            deletion_grace: Duration::from_secs(1),
            follow_config_sources: false,
            config_source_root: None,
            registry: Arc::default(),
        }
    }
}
