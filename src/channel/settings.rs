//! The settings of a channel.

use std::{sync::Arc, time::Duration};

use super::{
    connection::ConnectionSettings, propagator::Propagator, security::SecuritySettings, task::DnsTarget,
    telemetry::ChannelObserver,
};
#[cfg(feature = "metrics")]
use crate::metrics::ChannelMetrics;
use crate::{
    Client,
    balance::{retry::RetrySettings, route_lookup::LookupLimits, settings::BalancerSettings},
    config::{Target, TargetError},
};

/// Settings of a channel.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// Settings of load balancing.
    pub(super) balancer: BalancerSettings,
    /// The time without calls until the channel becomes idle; zero is never.
    pub(super) idle_timeout: Duration,
    /// Whether calls wait for a usable endpoint, unless their requests have a setting of their own.
    pub(super) wait_for_ready: bool,
    /// The largest number of waiting calls.
    pub(super) max_queued: usize,
    /// The bytes that are kept of one request, and of all requests together.
    pub(super) retry_buffer: (usize, usize),
    /// Limits of retries. The throttle is added when the channel is built.
    pub(super) retries: RetrySettings,
    /// The tokens of the throttle, and the ratio that a success gives back.
    pub(super) retry_throttle: Option<(u32, f64)>,
    /// Settings of each connection.
    pub(super) connections: ConnectionSettings,
    /// Whether connections are shared with other channels of the client (CH3.8).
    pub(super) share_connections: bool,
    /// The `:authority` of requests; `None` for the service of the target.
    pub(super) authority: Option<String>,
    /// What precedes the user agent of the library.
    pub(super) user_agent: Option<String>,
    /// The host of the metadata server; `None` for that of the environment.
    pub(super) metadata_server: Option<String>,
    /// Whether the cluster specifier plugins of routes are executed.
    pub(super) executes_plugins: bool,
    /// Limits of these plugins.
    pub(super) lookup_limits: LookupLimits,
    /// The host of the target of a channel to a lookup service, if it is no target of xDS.
    pub(super) dns_target: Option<DnsTarget>,
    /// Settings of TLS.
    pub(super) security: SecuritySettings,
    /// Made when the channel is built, with its target.
    #[cfg(feature = "metrics")]
    pub(super) metrics: Option<ChannelMetrics>,
    /// The largest message that clients of the crate `grpc` receive, in bytes.
    #[cfg(feature = "grpc")]
    pub(super) max_receive_message_size: usize,
    /// Adds the context of traces to the headers of attempts.
    pub(super) propagator: Option<Propagator>,
    /// Records calls and connections; `None` costs nothing.
    pub(super) observer: Option<Arc<dyn ChannelObserver>>,
}

impl Settings {
    /// The default settings, with a random seed of load balancing.
    pub(super) fn new() -> Self {
        let balancer = BalancerSettings::with_seed(fastrand::u64(..));
        Self {
            balancer,
            idle_timeout: Duration::from_secs(30 * 60),
            wait_for_ready: false,
            max_queued: usize::MAX,
            retry_buffer: (256 << 10, 16 << 20),
            retries: RetrySettings::default(),
            retry_throttle: None,
            connections: ConnectionSettings::default(),
            share_connections: false,
            authority: None,
            user_agent: None,
            metadata_server: None,
            executes_plugins: true,
            lookup_limits: LookupLimits::new(),
            dns_target: None,
            security: SecuritySettings::default(),
            #[cfg(feature = "metrics")]
            metrics: None,
            #[cfg(feature = "grpc")]
            max_receive_message_size: 4 << 20,
            propagator: None,
            observer: None,
        }
    }

    /// The service of the target, which the authority is by default.
    ///
    /// # Errors
    /// The target cannot be parsed, or its authority is not in the bootstrap.
    pub(super) fn service(&self, client: &Client, target: &Target) -> Result<String, TargetError> {
        match &self.dns_target {
            // Lookups have the authority of the channel that they are for.
            Some(_) => Ok(String::new()),
            None => client.bootstrap().read_target(target.as_str()).map(|(_, service)| service),
        }
    }

    /// The settings of a channel to the lookup service of a plugin. It has the authority and the security of the channel, so that the
    /// headers in keys go to no server that the channel itself would not trust.
    pub(super) fn for_lookups(&self, authority: &str) -> Self {
        Self {
            authority: Some(authority.to_owned()),
            executes_plugins: false,
            share_connections: false,
            wait_for_ready: false,
            max_queued: usize::MAX,
            retry_throttle: None,
            #[cfg(feature = "metrics")]
            metrics: None,
            propagator: None,
            observer: None,
            ..self.clone()
        }
    }
}
