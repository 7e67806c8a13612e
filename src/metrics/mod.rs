//! gRPC's metrics of xDS clients (gRFC A78, with the states of A88), by the API of OpenTelemetry.
//!
//! | instrument | kind | labels | meaning |
//! |---|---|---|---|
//! | `grpc.xds_client.connected` | gauge | target, server | 1 when the client has a working stream to the server, else 0 |
//! | `grpc.xds_client.server_failure` | counter | target, server | the number of times that the server became unreachable, or ended a stream without a response |
//! | `grpc.xds_client.resource_updates_valid` | counter | target, server, resource type | resources received and accepted, unchanged ones too |
//! | `grpc.xds_client.resource_updates_invalid` | counter | target, server, resource type | resources received and rejected |
//! | `grpc.xds_client.resources` | gauge | target, authority, cache state, resource type | resources in the cache |
//! | `xdskit.lrs.connected` | gauge | target, server | 1 when the client has a stream of load reports to the server, else 0; none while nothing is reported |
//! | `xdskit.lrs.reports_sent` | counter | target, server | requests with load reports |
//! | `xdskit.lrs.report_bytes` | counter | target, server | their size |
//! | `xdskit.lrs.stream_failures` | counter | target, server | the number of times that a stream of load reports failed |
//! | `xdskit.lrs.dropped_residues` | counter | target, server | clusters whose last counts were dropped, since too many waited for a report |
//!
//! The labels, all with the prefix `grpc.`: `target` is the client's [scope](crate::client::ClientBuilder::scope);
//! `xds.server` the URI of the server; `xds.resource_type` such as `envoy.config.cluster.v3.Cluster`; `xds.authority` the
//! authority of the names, `#old` for old-style ones; `xds.cache_state` one of `requested`, `acked`, `nacked`,
//! `nacked_but_cached`, `does_not_exist`, `does_not_exist_but_cached`, `received_error`, `received_error_but_cached` and
//! `timeout`.
//!
//! `connected` has no value for a server without subscriptions, and `resources` none for a state without resources. Nothing
//! is recorded for a client that has ended. The values of clients with the same scope are added.
//!
//! With the feature `channel`, `ChannelMetrics` has those of channels: calls and attempts (A66), retries (A96), weighted_round_robin
//! (A78), outlier detection (A91), route lookup and connections (A94). `docs/channel/observability.md` lists them.
//!
//! ```no_run
//! use opentelemetry::global;
//! use xdskit::{Client, config::Bootstrap, metrics::Metrics};
//!
//! fn client() -> Result<Client, Box<dyn std::error::Error>> {
//!     let metrics = Metrics::new(&global::meter("xdskit")); // once, for all clients
//!     Ok(Client::builder(Bootstrap::from_env()?).scope("xds:///shop").metrics(&metrics).build()?)
//! }
//! ```

#[cfg(feature = "channel")]
mod channel;
mod gauges;
mod load_reports;

use std::{fmt, sync::Arc};

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Meter},
};

#[cfg(feature = "channel")]
pub use self::channel::{ChannelMetrics, ChannelMetricsBuilder};
pub(crate) use self::load_reports::Recorded;
use self::{
    gauges::{ClientGauges, Gauges},
    load_reports::LoadCounters,
};
use crate::{config::ConfigSource, engine::Metric};

/// The instruments of a meter, for any number of clients.
///
/// Create one for each meter and pass it to all clients, since the callbacks of the gauges cannot be removed from the
/// meter. Clones are handles of the same instruments.
#[derive(Clone)]
pub struct Metrics {
    /// Shared by clones.
    inner: Arc<Inner>,
}

/// The instruments of a provider.
struct Inner {
    /// Failures of servers.
    server_failure: Counter<u64>,
    /// Resources that were valid.
    valid: Counter<u64>,
    /// Resources that were not.
    invalid: Counter<u64>,
    /// Counters of load reports.
    load_reports: LoadCounters,
    /// Current values.
    gauges: Arc<Gauges>,
}

/// The recorder of one client's metrics.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// The instruments.
    metrics: Metrics,
    /// The label of the client.
    target: KeyValue,
    /// The current values of the client.
    gauges: Arc<ClientGauges>,
}

impl Metrics {
    /// Creates the instruments.
    pub fn new(meter: &Meter) -> Self {
        let counter =
            |name, unit, what| meter.u64_counter(name).with_unit(unit).with_description(what).build();
        let inner = Inner {
            server_failure: counter(
                "grpc.xds_client.server_failure",
                "{failure}",
                "how often a management server became unreachable, or ended a stream without a response",
            ),
            valid: counter(
                "grpc.xds_client.resource_updates_valid",
                "{resource}",
                "resources received that were accepted, changed or not",
            ),
            invalid: counter(
                "grpc.xds_client.resource_updates_invalid",
                "{resource}",
                "resources received that were rejected",
            ),
            load_reports: LoadCounters::new(meter),
            gauges: Gauges::new(meter),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The recorder of a client with this scope.
    pub(crate) fn recorder(&self, scope: &str) -> Recorder {
        let target = KeyValue::new("grpc.target", scope.to_owned());
        let gauges = self.inner.gauges.client(target.clone());
        Recorder { metrics: self.clone(), target, gauges }
    }
}

/// Whether they are handles of the same instruments.
impl PartialEq for Metrics {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Recorder {
    /// Records an event of the engine.
    pub(crate) fn record(&self, metric: Metric) {
        let Inner { server_failure, valid: all_valid, invalid: all_invalid, .. } = &*self.metrics.inner;
        match metric {
            Metric::Resources { group, authority, type_url, state, count } => {
                let key = (authority, short(type_url), state.as_str());
                self.gauges.set_resources((key, group.0), count);
            }
            Metric::Connected { stream, source, connected } => {
                self.gauges.set_connected((source.to_string(), stream.0), connected);
            }
            Metric::Failures { source, count } => {
                server_failure.add(count, &[self.target.clone(), server_label(&source)]);
            }
            Metric::Updates { source, type_url, valid, invalid } => {
                let labels = [self.target.clone(), server_label(&source), type_label(short(type_url))];
                for (counter, count) in [(all_valid, valid), (all_invalid, invalid)] {
                    if count > 0 {
                        counter.add(count, &labels);
                    }
                }
            }
        }
    }
}

/// The label of a server.
fn server_label(source: &ConfigSource) -> KeyValue {
    KeyValue::new("grpc.xds.server", source.to_string())
}

/// The label of a resource type.
fn type_label(name: &'static str) -> KeyValue {
    KeyValue::new("grpc.xds.resource_type", name)
}

/// The type's name without its prefix.
fn short(type_url: &'static str) -> &'static str {
    type_url.strip_prefix("type.googleapis.com/").unwrap_or(type_url)
}
