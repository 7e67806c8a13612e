//! gRPC's metrics of xDS clients (gRFC A78, with the states of A88), by the API of OpenTelemetry.
//!
//! | instrument | kind | labels | meaning |
//! |---|---|---|---|
//! | `grpc.xds_client.connected` | gauge | target, server | 1 when the client has a working stream to the server, else 0 |
//! | `grpc.xds_client.server_failure` | counter | target, server | the number of times that the server became unreachable, or ended a stream without a response |
//! | `grpc.xds_client.resource_updates_valid` | counter | target, server, resource type | resources received and accepted, unchanged ones too |
//! | `grpc.xds_client.resource_updates_invalid` | counter | target, server, resource type | resources received and rejected |
//! | `grpc.xds_client.resources` | gauge | target, authority, cache state, resource type | resources in the cache |
//! | `xdskit.client.requests` | counter | target, server, resource type, request kind | requests handed to the transport |
//! | `xdskit.client.request_bytes` | counter | target, server, resource type, request kind | their size as protobuf, uncompressed |
//! | `xdskit.client.responses` | counter | target, server, resource type | messages received |
//! | `xdskit.client.response_bytes` | counter | target, server, resource type | their size as protobuf, uncompressed |
//! | `xdskit.client.stream_ends` | counter | target, server, stream end | ends of streams, and failed attempts to open one |
//! | `xdskit.client.apply_duration` | histogram | target, server, resource type, response outcome | seconds from the arrival of a response to the publication of what it has changed |
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
//! With the prefix `xdskit.`: `request.kind` is `subscription`, `ack` or `nack`; `stream.end` one of `cancelled_by_client`,
//! `closed_by_server`, `unreachable`, `message_too_large`, `too_many_pings`, `credentials`, `unusable`, or the name of the gRPC status
//! that ended the stream; `response.outcome` `accepted` or `rejected`. Responses of no requested type have the type `#other`, so that a
//! server cannot add series.
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
mod recorder;

use std::{collections::BTreeMap, fmt, sync::Arc};

use opentelemetry::metrics::{Counter, Histogram, Meter};

#[cfg(feature = "channel")]
pub use self::channel::{ChannelMetrics, ChannelMetricsBuilder};
use self::{gauges::Gauges, recorder::ClientRecorder};
use crate::client::recorder::{self as instruments, Recorder};

/// The instruments of a meter, for any number of clients.
///
/// Create one for each meter and pass it to all clients, since the callbacks of the gauges cannot be removed from the
/// meter. Clones are handles of the same instruments. Other metrics libraries implement
/// [`Recorder`].
#[derive(Clone)]
pub struct Metrics {
    /// Shared by clones.
    inner: Arc<Inner>,
}

/// The instruments of a provider.
struct Inner {
    counters: BTreeMap<instruments::Counter, Counter<u64>>,
    histograms: BTreeMap<instruments::Histogram, Histogram<f64>>,
    /// Current values.
    gauges: Arc<Gauges>,
}

impl Metrics {
    /// Creates the instruments.
    pub fn new(meter: &Meter) -> Self {
        let counters = instruments::Counter::ALL.iter().map(|counter| {
            let instrument = counter.instrument();
            let built = meter.u64_counter(instrument.name).with_unit(instrument.unit);
            (*counter, built.with_description(instrument.description).build())
        });
        let histograms = instruments::Histogram::ALL.iter().map(|histogram| {
            let instrument = histogram.instrument();
            let built = meter.f64_histogram(instrument.name).with_unit(instrument.unit);
            let built = built.with_description(instrument.description);
            (*histogram, built.with_boundaries(histogram.boundaries().into()).build())
        });
        let (counters, histograms) = (counters.collect(), histograms.collect());
        Self { inner: Arc::new(Inner { counters, histograms, gauges: Gauges::new(meter) }) }
    }

    /// The recorder of one client.
    pub(crate) fn recorder(&self) -> impl Recorder {
        ClientRecorder { metrics: self.clone(), gauges: self.inner.gauges.client() }
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
