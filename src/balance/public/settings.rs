//! What an application sets for a balancer.

use std::{fmt, sync::Arc, time::Duration};

use super::connect_requests::OnRequest;
use crate::balance::{
    identity::{EndpointCredentials, Security},
    settings::BalancerSettings,
};

/// The settings of a [`Balancer`](super::Balancer). What clusters configure themselves, such as their policies, is no setting.
///
/// ```
/// use std::time::Duration;
/// use xdskit::balance::Settings;
///
/// let settings = Settings::new(0x5eed)
///     .with_connect_timeout(Duration::from_secs(5))
///     .with_connect_backoff(Duration::from_millis(100), Duration::from_secs(10));
/// ```
#[derive(Clone)]
pub struct Settings {
    pub(super) core: BalancerSettings,
    pub(super) on_request: OnRequest,
}

impl Settings {
    /// The defaults, with a seed for all draws but those of picks, such as the jitter of delays and the order in which endpoints are
    /// tried. It is to be random: clients with equal seeds prefer the same endpoints.
    pub fn new(seed: u64) -> Self {
        let core = BalancerSettings { max_connections_cap: 1, ..BalancerSettings::with_seed(seed) };
        Self { core, on_request: OnRequest::default() }
    }

    /// Sets the number of attempts to connect that begin at a time: at least 1, 256 by default. An attempt counts until it ends, or for
    /// 500 ms: silent endpoints delay the connections to others no longer than that. What waits has turns between clusters and their
    /// priorities.
    #[must_use]
    pub fn with_max_concurrent_connects(mut self, attempts: usize) -> Self {
        self.core.max_concurrent_connects = attempts.max(1);
        self
    }

    /// Sets the time that an attempt to connect has at least: up to 30 years, 20 s by default. It is the
    /// [timeout](super::Command::Connect) of the command, or the delay to the next attempt if that is longer.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.core.pick_first.backoff.min_connect_timeout = timeout.min(LONGEST);
        self
    }

    /// Sets the first and the longest delay between attempts to connect to an address: 1 ms to 30 years each, 1 s and 120 s by
    /// default. Delays grow by 1.6 and are up to 20 % longer or shorter at random.
    #[must_use]
    pub fn with_connect_backoff(mut self, initial: Duration, max: Duration) -> Self {
        let backoff = Arc::make_mut(&mut self.core.pick_first.backoff.backoff);
        backoff.initial = initial.clamp(SHORTEST, LONGEST);
        backoff.max = max.clamp(SHORTEST, LONGEST);
        self
    }

    /// Sets the largest number of entries of hash rings: 1 to 8,388,608, 4096 by default, as in gRPC. The configuration may ask for
    /// larger ones, which spread requests more evenly and take about 20 bytes an entry.
    #[must_use]
    pub fn with_ring_size_cap(mut self, entries: u32) -> Self {
        self.core.ring_size_cap = entries.clamp(1, 8_388_608);
        self
    }

    /// Sets the largest number of entries that the hash rings of a cluster have together: 65,536 by default, and at least that of
    /// [one ring](Self::with_ring_size_cap).
    #[must_use]
    pub fn with_cluster_ring_entries(mut self, entries: u32) -> Self {
        self.core.cluster_ring_entries = entries;
        self
    }

    /// Connects without TLS, also to clusters that configure it.
    ///
    /// Clusters with TLS have no usable endpoints by default, so that nothing is sent in plaintext by mistake.
    #[must_use]
    pub fn with_insecure_credentials(mut self) -> Self {
        self.core.credentials = EndpointCredentials::Insecure;
        self
    }

    /// Connects to clusters that configure TLS as they configure it: the application executes [`ConnectTarget::tls`], and must fail
    /// the attempt where it cannot.
    ///
    /// [`ConnectTarget::tls`]: super::ConnectTarget::tls
    #[must_use]
    pub fn with_xds_credentials(mut self) -> Self {
        self.core.credentials = EndpointCredentials::Xds { fallback: Security::Plaintext };
        self
    }

    /// Sets a function that is called when a pick has requested a connection, and no earlier request waits for
    /// [`Balancer::poll_command`](super::Balancer::poll_command). It is called by the thread that picks, without a lock, and must not
    /// block; it wakes the task with the balancer. A program that polls commands after its picks does not need it.
    #[must_use]
    pub fn with_on_request(mut self, on_request: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_request = OnRequest::new(on_request);
        self
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("core", &self.core).finish_non_exhaustive()
    }
}

const SHORTEST: Duration = Duration::from_millis(1);
/// 30 years, which can be added to any time.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 86_400);
