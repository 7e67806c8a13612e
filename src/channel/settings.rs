//! The settings of a channel.

use std::{sync::Arc, time::Duration};

use super::{
    connection::ConnectionSettings, propagator::Propagator, security::SecuritySettings,
    telemetry::ChannelObserver,
};
use crate::balance::{retry::RetrySettings, settings::BalancerSettings};
#[cfg(feature = "metrics")]
use crate::metrics::ChannelMetrics;

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
            security: SecuritySettings::default(),
            #[cfg(feature = "metrics")]
            metrics: None,
            #[cfg(feature = "grpc")]
            max_receive_message_size: 4 << 20,
            propagator: None,
            observer: None,
        }
    }
}
