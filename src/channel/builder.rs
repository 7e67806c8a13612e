//! The settings of a channel, and how it is built.

mod lookups;
mod source;

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use tokio::{runtime::Handle, sync::mpsc};
#[cfg(feature = "tls")]
use tokio_rustls::rustls::crypto::CryptoProvider;
use tracing::Span;

use self::source::{Source, client};
use super::{
    Channel, Shared,
    call::CallContext,
    error::ChannelError,
    headers::DefaultHeaders,
    propagator::Propagator,
    settings::Settings,
    task::{self, ControlQueue},
    telemetry::Telemetry,
};
#[cfg(feature = "tls")]
use super::{RevocationLists, security::FallbackCredentials};
#[cfg(feature = "metrics")]
use crate::metrics::ChannelMetrics;
use crate::{
    Bootstrap, Client,
    balance::{
        identity::EndpointCredentials, observer::Observer, retry::Throttle, route_lookup::LookupLimits,
    },
    config::{Target, bounded},
};

/// Builds a [`Channel`].
///
/// Durations of more than 30 years are shortened to 30 years, so that `Duration::MAX` means never.
#[derive(Debug)]
#[must_use = "a builder does nothing until the channel is built"]
pub struct ChannelBuilder {
    target: Target,
    /// Set by `bootstrap` or `client`; the later one counts. `None` is the bootstrap of the environment.
    source: Option<Source>,
    settings: Settings,
}

impl ChannelBuilder {
    pub(super) fn new(target: Target) -> Self {
        Self { target, source: None, settings: Settings::new() }
    }

    /// Sets the bootstrap; that of the [environment](Bootstrap::from_env) by default. The channel uses the
    /// [shared client](crate::client::ClientBuilder::shared) of it (A71).
    pub fn bootstrap(mut self, bootstrap: impl Into<Arc<Bootstrap>>) -> Self {
        self.source = Some(Source::Bootstrap(bootstrap.into()));
        self
    }

    /// Sets the client that resolves the target.
    pub fn client(mut self, client: &Client) -> Self {
        self.source = Some(Source::Client(client.clone()));
        self
    }

    /// Sets whether calls wait for a usable endpoint instead of failing with UNAVAILABLE; false by default. A call has its own
    /// setting with the extension [`WaitForReady`](super::WaitForReady).
    pub fn wait_for_ready(mut self, wait: bool) -> Self {
        self.settings.wait_for_ready = wait;
        self
    }

    /// Sets the time without calls after which the channel closes its connections and ends its watches until the next call
    /// (A62): 1 s to 30 years, 30 min by default; zero for never.
    pub fn idle_timeout(mut self, time: Duration) -> Self {
        let shortest = if time.is_zero() { Duration::ZERO } else { Duration::from_secs(1) };
        self.settings.idle_timeout = bounded(time).max(shortest);
        self
    }

    /// Sets the number of calls that may wait for the configuration, for an endpoint, or for a stream of a connection; unlimited
    /// by default. Calls above it fail with RESOURCE_EXHAUSTED.
    pub fn max_queued(mut self, calls: usize) -> Self {
        self.settings.max_queued = calls;
        self
    }

    /// Sets the size of the largest message that clients of the crate `grpc` receive, in bytes; 4 MiB by default. The limit of other
    /// clients is their own. Unstable, as all that needs the feature `grpc`.
    #[cfg(feature = "grpc")]
    pub fn max_receive_message_size(mut self, bytes: usize) -> Self {
        self.settings.max_receive_message_size = bytes;
        self
    }

    /// Sets how much memory is used, in bytes, to keep a request, and all requests of the channel, until the response begins; 256 KiB and
    /// 16 MiB by default. It is that of the messages with the bookkeeping for them. What is kept is sent again if the server did not
    /// process it, and for retries. A request of which more was sent fails then, and so does any request with a body if nothing is kept
    /// (0).
    pub fn retry_buffer(mut self, per_call: usize, per_channel: usize) -> Self {
        self.settings.retry_buffer = (per_call, per_channel);
        self
    }

    /// Sets the limits of route lookup (RLS).
    pub fn lookup_limits(mut self, limits: LookupLimits) -> Self {
        self.settings.lookup_limits = limits;
        self
    }

    /// Sets how many times a call is attempted by a retry policy, the first time included; 5 by default, as in gRPC (A44). 1 disables
    /// retries. Policies with fewer attempts keep theirs, and attempts that a server did not process are not counted.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.settings.retries.max_attempts = attempts.max(1);
        self
    }

    /// Sets a throttle of retries (A6); there is none by default. The channel has `max_tokens` tokens (1 to 1000). A failure that the
    /// retry policy names takes one, a success gives back `token_ratio` (0.001 to 1000, in thousandths), and there are no retries
    /// while half of the tokens or fewer are left.
    pub fn retry_throttle(mut self, max_tokens: u32, token_ratio: f64) -> Self {
        self.settings.retry_throttle = Some((max_tokens, token_ratio));
        self
    }

    /// Sets the number of attempts to connect that begin at a time: at least 1, 256 by default. An attempt counts until it ends, or for
    /// 500 ms: silent endpoints delay the connections to others no longer than that. What waits has turns between clusters and their
    /// priorities.
    pub fn max_concurrent_connects(mut self, attempts: usize) -> Self {
        self.settings.balancer.max_concurrent_connects = attempts.max(1);
        self
    }

    /// Sets the largest number of entries of hash rings: 1 to 8,388,608, 4096 by default, as in gRPC. The configuration may ask for
    /// larger ones, which spread calls more evenly and take about 20 bytes an entry.
    pub fn ring_size_cap(mut self, entries: u32) -> Self {
        self.settings.balancer.ring_size_cap = entries.clamp(1, 8_388_608);
        self
    }

    /// Sets the largest number of entries that the hash rings of a cluster have together: 65,536 by default, and at least
    /// [`ring_size_cap`](Self::ring_size_cap). A cluster with `wrr_locality` has a ring for each locality, and one for each priority that
    /// was used. If these were to have more, the entries are divided in proportion to the endpoints of the rings.
    pub fn cluster_ring_entries(mut self, entries: u32) -> Self {
        self.settings.balancer.cluster_ring_entries = entries;
        self
    }

    /// Sets the largest number of connections to an endpoint that a cluster may configure: at least 1, 10 by default, as in gRPC
    /// (A105). 1 disables further connections. Clusters configure one, unless they have a `per_host_thresholds` with
    /// `max_connections`; a further connection is made when calls wait since the server permits no more streams on the others.
    /// Channels that [share their connections](Self::share_connections) have one to each endpoint.
    pub fn max_connections_cap(mut self, connections: usize) -> Self {
        self.settings.balancer.max_connections_cap = connections.max(1);
        self
    }

    /// Sets the first and the longest delay between attempts to connect to an address: 1 ms to 30 years each, 1 s and 120 s by
    /// default. Delays grow by 1.6 and are up to 20 % longer or shorter at random.
    pub fn connect_backoff(mut self, initial: Duration, max: Duration) -> Self {
        let backoff = Arc::make_mut(&mut self.settings.balancer.pick_first.backoff.backoff);
        backoff.initial = bounded(initial).max(SHORTEST);
        backoff.max = bounded(max).max(SHORTEST);
        self
    }

    /// Sets the time that an attempt to connect has at least: up to 30 years, 20 s by default. An attempt includes the
    /// SETTINGS of the endpoint.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.balancer.pick_first.backoff.min_connect_timeout = bounded(timeout);
        self
    }

    /// Sets how long a connection is silent before it sends a ping (A8): 10 s to 30 years, never by default. Servers end
    /// connections with more pings than they permit; the interval is then doubled for the address.
    pub fn keep_alive_interval(mut self, interval: Duration) -> Self {
        self.settings.connections.keep_alive.interval = Some(bounded(interval).max(Duration::from_secs(10)));
        self
    }

    /// Sets how long the answer to a ping may take: 1 ms to 30 years, 20 s by default. Without one the connection is lost, and its
    /// calls fail with UNAVAILABLE. Connections that send pings also have this time as their `TCP_USER_TIMEOUT`, where the system
    /// has that (A18); at most 24 days.
    pub fn keep_alive_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connections.keep_alive.timeout = bounded(timeout).max(SHORTEST);
        self
    }

    /// Sets whether pings are sent while no call runs on a connection; false by default.
    pub fn keep_alive_while_idle(mut self, enabled: bool) -> Self {
        self.settings.connections.keep_alive.without_calls = enabled;
        self
    }

    /// Sets how long calls may run on a connection that the channel no longer uses, such as that of a removed endpoint: up to 30
    /// years, without a limit by default. Calls that run longer fail with UNAVAILABLE.
    pub fn drain_limit(mut self, limit: Duration) -> Self {
        self.settings.connections.drain_limit = Some(bounded(limit));
        self
    }

    /// Sets the largest header list of a response, and of its trailers: 16 KiB by default, as in gRPC, at least 1 KiB, and 256 MiB at
    /// most. A header list counts the lengths of names and values and 32 bytes for each field (RFC 9113, section 6.5.2). Servers
    /// are told the limit. A call whose response exceeds it fails with RESOURCE_EXHAUSTED; a connection whose server exceeds 32
    /// times the limit, and 512 KiB, is closed.
    pub fn max_header_list_size(mut self, bytes: u32) -> Self {
        self.settings.connections.http2.max_header_list_size = bytes.clamp(1 << 10, 256 << 20);
        self
    }

    /// Sets the largest window of a stream: how many bytes a server may send on it before the application reads them; 16 MiB by
    /// default, as in gRPC, and 64 KiB to 2 GiB. Windows begin with 64 KiB, and grow while applications read what a
    /// connection transfers, by an estimate of its bandwidth-delay product. With 64 KiB they stay as they are.
    pub fn max_stream_window(mut self, bytes: u32) -> Self {
        self.settings.connections.http2.max_stream_window = bytes.clamp((1 << 16) - 1, (1 << 31) - 1);
        self
    }

    /// Sets how many bytes the responses on a connection may hold that the application has not read, above 64 KiB for each; 64 MiB
    /// by default. Windows grow no further with less room. So 1,000 responses that nobody reads hold 128 MiB at most. What one of
    /// them holds never delays another.
    pub fn max_unread(mut self, bytes: usize) -> Self {
        self.settings.connections.http2.max_unread = bytes as u64;
        self
    }

    /// Sets whether the channel shares its connections with the other channels of its client that do, and with its own clusters;
    /// false by default, as in gRPC. Connections to the same address are shared if the channels have the same settings of
    /// keepalive and drain. Limits of connections, such as MAX_CONCURRENT_STREAMS, then hold for all of them together, a
    /// connection is drained when none of them uses it, and there is one to each endpoint, whatever the cluster permits.
    pub fn share_connections(mut self, share: bool) -> Self {
        self.settings.share_connections = share;
        self
    }

    /// Sets the `:authority` of requests that have none of their own; by default, the service of the target.
    pub fn authority(mut self, authority: impl Into<String>) -> Self {
        self.settings.authority = Some(authority.into());
        self
    }

    /// Sets what precedes the library's own user agent in the header `user-agent` of requests, such as `cart/2.1`, as gRPC's
    /// `grpc.primary_user_agent` does; nothing by default. Requests with a `user-agent` of their own keep that.
    ///
    /// The node of the client has the user agent of the library alone (`user_agent_name`, A27), by which management servers tell
    /// implementations of the protocol apart.
    ///
    /// ```no_run
    /// # fn build() -> Result<xdskit::Channel, xdskit::channel::ChannelError> {
    /// xdskit::Channel::builder("xds:///shop").user_agent("cart/2.1").build() // sends `cart/2.1 xdskit/0.1.0`
    /// # }
    /// ```
    pub fn user_agent(mut self, application: impl Into<String>) -> Self {
        self.settings.user_agent = Some(application.into());
        self
    }

    /// Sets the host of Google Cloud's metadata server, such as `127.0.0.1:8080`, from which the HTTP filter `gcp_authn` has its
    /// tokens (A83). By default, it is that in the environment variable `GCE_METADATA_HOST`, or else `metadata.google.internal`.
    /// Without a port it is port 80.
    pub fn gcp_metadata_server(mut self, host: impl Into<String>) -> Self {
        self.settings.metadata_server = Some(host.into());
        self
    }

    /// Adds the context of traces to the headers of each attempt, such as `traceparent` by a propagator of OpenTelemetry (A72).
    ///
    /// The function is called with the span of the attempt, or with the current span of the caller if spans of attempts are disabled, and
    /// with the headers that are about to be sent. It should add headers alone, and not block.
    ///
    /// ```no_run
    /// use tracing::Span;
    /// use xdskit::{Channel, channel::ChannelError};
    ///
    /// fn shop() -> Result<Channel, ChannelError> {
    ///     Channel::builder("xds:///shop").propagate(|span, headers| headers.extend(traceparent(span))).build()
    /// }
    ///
    /// # fn traceparent(_: &Span) -> Option<(http::HeaderName, http::HeaderValue)> { None }
    /// // With tracing-opentelemetry and opentelemetry-http:
    /// // .propagate(|span, headers| get_text_map_propagator(|propagator| {
    /// //     propagator.inject_context(&span.context(), &mut HeaderInjector(headers));
    /// // }))
    /// ```
    pub fn propagate(mut self, inject: impl Fn(&Span, &mut HeaderMap) + Send + Sync + 'static) -> Self {
        self.settings.propagator = Some(Propagator::new(inject));
        self
    }

    /// Records gRPC's metrics of calls, load balancing and connections (A66, A78, A89, A91, A94, A96), with the target as
    /// `grpc.target`. Those of the xDS client are recorded by [`ClientBuilder::metrics`](crate::client::ClientBuilder::metrics).
    #[cfg(feature = "metrics")]
    pub fn metrics(mut self, metrics: &ChannelMetrics) -> Self {
        self.settings.metrics = Some(metrics.clone());
        self
    }

    /// Records what happens in the channel.
    #[cfg(test)]
    pub(super) fn observer(mut self, observer: Arc<dyn super::telemetry::ChannelObserver>) -> Self {
        self.settings.observer = Some(observer);
        self
    }

    /// The first and the longest delay between attempts to connect.
    #[cfg(test)]
    pub(super) fn backoff(&self) -> (Duration, Duration) {
        let backoff = &self.settings.balancer.pick_first.backoff.backoff;
        (backoff.initial, backoff.max)
    }

    /// The steps of a slice of a sweep of outlier detection.
    #[cfg(test)]
    pub(super) fn sweep_slice(mut self, steps: usize) -> Self {
        self.settings.balancer.sweep_slice = steps;
        self
    }

    /// Has all connections in plaintext, and the TLS that clusters configure ignored, as gRPC's insecure credentials do. This is for
    /// tests, and for networks that secure connections by themselves.
    ///
    /// Without a choice between this and `xds_credentials`, clusters without TLS are called in plaintext, and calls to a
    /// cluster with TLS fail with UNAVAILABLE. The later of both settings counts.
    ///
    /// ```no_run
    /// use xdskit::{Bootstrap, Channel};
    ///
    /// fn shop() -> Result<Channel, Box<dyn std::error::Error>> {
    ///     let builder = Channel::builder("xds:///shop").bootstrap(Bootstrap::from_env()?);
    ///     Ok(builder.insecure_credentials().build()?)
    /// }
    /// ```
    pub fn insecure_credentials(mut self) -> Self {
        self.settings.balancer.credentials = EndpointCredentials::Insecure;
        #[cfg(feature = "tls")]
        {
            self.settings.security.xds_credentials = None;
        }
        self
    }

    /// Has connections secured as the clusters configure it (A29), with the fallback for clusters that configure nothing. Without
    /// this setting, calls to a cluster with TLS fail, unless [`insecure_credentials`](Self::insecure_credentials) are set.
    ///
    /// A connection that a cluster secures is never made otherwise: while its certificates cannot be used, or the server has not
    /// the right ones, attempts fail with the reason, and so do calls. Certificates are those of the bootstrap's
    /// `certificate_providers`, or of the system. `docs/channel/security.md` has the details.
    ///
    /// ```no_run
    /// use xdskit::{Bootstrap, Channel, channel::FallbackCredentials};
    ///
    /// fn shop() -> Result<Channel, Box<dyn std::error::Error>> {
    ///     let builder = Channel::builder("xds:///shop").bootstrap(Bootstrap::from_env()?);
    ///     Ok(builder.xds_credentials(FallbackCredentials::Plaintext).build()?)
    /// }
    /// ```
    #[cfg(feature = "tls")]
    pub fn xds_credentials(mut self, fallback: impl Into<FallbackCredentials>) -> Self {
        let fallback = fallback.into();
        self.settings.balancer.credentials = fallback.credentials();
        self.settings.security.xds_credentials = Some(fallback);
        self
    }

    /// Refuses servers whose certificate, or one of its authorities, is revoked by a list (CRL, gRFC A69), on all connections with
    /// TLS. Without this setting, revocation is not checked. It needs [xDS credentials](Self::xds_credentials).
    ///
    /// Certificates whose status is undetermined are refused, unless the lists [fail open](RevocationLists::fail_open). Lists that
    /// change are for new connections, and no session that began before is resumed; connections stay.
    ///
    /// ```no_run
    /// use xdskit::{
    ///     Bootstrap, Channel,
    ///     channel::{FallbackCredentials, RevocationLists},
    /// };
    ///
    /// fn shop() -> Result<Channel, Box<dyn std::error::Error>> {
    ///     let builder = Channel::builder("xds:///shop").bootstrap(Bootstrap::from_env()?);
    ///     let builder = builder.xds_credentials(FallbackCredentials::Plaintext);
    ///     Ok(builder.certificate_revocation(RevocationLists::directory("/etc/pki/crls")).build()?)
    /// }
    /// ```
    #[cfg(feature = "tls")]
    pub fn certificate_revocation(mut self, lists: RevocationLists) -> Self {
        self.settings.security.revocation = Some(lists);
        self
    }

    /// Sets the cryptography of TLS to endpoints; by default that of the channel's client, which has [rules of its
    /// own](crate::client::ClientBuilder::crypto_provider).
    ///
    /// Channels of a client share TLS if they have the same provider, a clone of one `Arc`. Without a [client](Self::client), the provider
    /// is also that of the shared client of the bootstrap, for its management servers.
    #[cfg(feature = "tls")]
    pub fn crypto_provider(mut self, provider: impl Into<Arc<CryptoProvider>>) -> Self {
        self.settings.security.crypto = Some(provider.into());
        self
    }

    /// Sets whether connections are replaced when their certificates are; false by default. By default, certificates that change
    /// are for new connections, and connections stay.
    ///
    /// With this setting, other files of a certificate provider (a client certificate with its key, roots, or a map of trust bundles)
    /// have each connection made again whose cluster uses what changed. The connection before serves calls until the next one is
    /// ready; then new calls go there, and the one before ends with its last call. No call waits for that, and none fails but those
    /// that outlast the [drain limit](Self::drain_limit). If the next connection cannot be made, the one before stays in use, and
    /// further attempts follow with the usual backoff, and at the next change.
    ///
    /// At most 64 connections of a channel are replaced at a time, and only while no endpoint without a connection waits for its turn.
    /// Shared connections are replaced for the channels that have this setting.
    ///
    /// Connections stay for changes of revocation lists, of the system's roots, and of the files of the fallback.
    ///
    /// ```no_run
    /// use xdskit::{Bootstrap, Channel, channel::FallbackCredentials};
    ///
    /// fn shop() -> Result<Channel, Box<dyn std::error::Error>> {
    ///     let builder = Channel::builder("xds:///shop").bootstrap(Bootstrap::from_env()?);
    ///     let builder = builder.xds_credentials(FallbackCredentials::Plaintext);
    ///     Ok(builder.reconnect_on_rotation(true).build()?)
    /// }
    /// ```
    #[cfg(feature = "tls")]
    pub fn reconnect_on_rotation(mut self, reconnect: bool) -> Self {
        self.settings.security.reconnect_on_rotation = reconnect;
        self
    }

    /// Builds the channel. It does no I/O but to read the bootstrap of the environment, if that is used, and does not fail for
    /// reachability.
    ///
    /// # Errors
    /// The target cannot be parsed, its authority is not in the bootstrap, there is neither a bootstrap nor a client and that of the
    /// environment is missing or unusable, a setting is out of its range, TLS is configured and has no
    /// [cryptography](crate::client::ClientBuilder), or there is no current tokio runtime.
    pub fn build(self) -> Result<Channel, ChannelError> {
        // CH1.1: what would need I/O, such as an unreachable server, is an error of calls instead.
        let (channel, task, runtime) = self.with_task()?;
        runtime.spawn(task);
        Ok(channel)
    }

    /// The channel and its task, for a runtime.
    pub(super) fn with_task(
        self,
    ) -> Result<(Channel, impl Future<Output = ()> + Send + use<>, Handle), ChannelError> {
        let Self { target, source, mut settings } = self;
        if settings.share_connections {
            // The calls of all channels wait in one queue before a connection, which is not that of a subchannel.
            settings.balancer.max_connections_cap = 1;
        }
        if let Some((tokens, ratio)) = settings.retry_throttle {
            let throttle = Throttle::new(tokens, ratio);
            let error = |reason| ChannelError::RetryThrottle { target: target.to_string(), reason };
            settings.retries.throttle = Some(throttle.map_err(error)?);
        }
        settings.security.check(&target)?;
        let client = client(&target, source, &settings.security)?;
        settings.security.choose_crypto(&client, &target)?;
        let service = settings.service(&client, &target)?;
        let headers = DefaultHeaders::new(&target, &settings, service)?;
        // Unbounded: senders are calls, which must not wait for the task.
        let (control, receiver) = mpsc::unbounded_channel();
        let node = client.bootstrap().node().id.clone();
        let runtime = client.runtime().clone();
        #[cfg(feature = "metrics")]
        if let Some(metrics) = settings.metrics.take() {
            settings.observer = Some(metrics.recorder(target.as_str()));
        }
        if let Some(observer) = settings.observer.clone() {
            settings.balancer.pick_first.observer = Observer::new(move |event| observer.on_balance(event));
        }
        let lookups = lookups::routers(&client, &settings, headers.authority.as_str(), &control);
        let telemetry = Telemetry::new(settings.observer.clone(), target.as_str().into());
        let calls = CallContext::new(headers, node, &settings, control.clone(), telemetry);
        let calls = Arc::new(calls.with_lookups(lookups));
        let queue = ControlQueue { sender: control.downgrade(), receiver };
        let task = task::run(client.clone(), target.clone(), settings, &calls, queue);
        Ok((Channel { shared: Arc::new(Shared { calls, control, target, client }) }, task, runtime))
    }
}

/// The shortest delay between attempts to connect, and the shortest time for the answer to a ping. Zero would be a loop without a wait.
const SHORTEST: Duration = Duration::from_millis(1);
