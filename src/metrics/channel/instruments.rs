//! The instruments with their units, descriptions and buckets.

use std::sync::Arc;

use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

use super::lookup_caches::LookupCaches;
use crate::channel::telemetry::CacheUsage;

/// The instruments that are enabled.
/// A disabled one is `None`: it costs a comparison, and no labels are made for it.
pub(super) struct Instruments {
    /// Attempts that were started.
    pub(super) attempt_started: Option<Counter<u64>>,
    /// The time of each attempt.
    pub(super) attempt_duration: Option<Histogram<f64>>,
    /// Bytes that an attempt has sent, compressed.
    pub(super) attempt_sent: Option<Histogram<u64>>,
    /// Bytes that an attempt has received, compressed.
    pub(super) attempt_received: Option<Histogram<u64>>,
    /// The time of each call, with all of its attempts.
    pub(super) call_duration: Option<Histogram<f64>>,
    /// Retries of each call.
    pub(super) retries: Option<Histogram<u64>>,
    /// Retries of each call that the application cannot notice.
    pub(super) transparent_retries: Option<Histogram<u64>>,
    /// The time for which a call waited between attempts.
    pub(super) retry_delay: Option<Histogram<f64>>,
    /// The time for which a call waited before its first attempt, by reason.
    pub(super) call_delay: Option<Histogram<f64>>,
    /// The time for which an attempt waited before it was sent, by reason.
    pub(super) attempt_delay: Option<Histogram<f64>>,
    /// Updates of weighted round robin with too few weights.
    pub(super) rr_fallback: Option<Counter<u64>>,
    /// Endpoints whose weight is too new to be used.
    pub(super) weight_not_yet_usable: Option<Counter<u64>>,
    /// Endpoints whose weight is too old to be used.
    pub(super) weight_stale: Option<Counter<u64>>,
    /// The weight of each endpoint.
    pub(super) endpoint_weights: Option<Histogram<f64>>,
    /// Endpoints that were ejected.
    pub(super) ejections_enforced: Option<Counter<u64>>,
    /// Endpoints that were outliers, but not ejected.
    pub(super) ejections_unenforced: Option<Counter<u64>>,
    /// Connections that were established.
    pub(super) connections_succeeded: Option<Counter<u64>>,
    /// Connections that were not established.
    pub(super) connections_failed: Option<Counter<u64>>,
    /// Connections that have ended.
    pub(super) disconnections: Option<Counter<u64>>,
    /// The current connections.
    pub(super) open_connections: Option<UpDownCounter<i64>>,
    /// Picks of calls that were sent to a cluster which was looked up.
    pub(super) target_picks: Option<Counter<u64>>,
    /// Picks of calls that were sent to a default target.
    pub(super) default_target_picks: Option<Counter<u64>>,
    /// Calls whose lookup has failed.
    pub(super) failed_picks: Option<Counter<u64>>,
    /// The caches of lookup services, which gauges read; `None` if both gauges are disabled.
    pub(super) lookup_caches: Option<Arc<LookupCaches>>,
}

/// Makes those instruments that are enabled.
struct Maker<'a> {
    /// The provider of instruments.
    meter: &'a Meter,
    /// Whether the instrument of a name is enabled.
    is_enabled: &'a dyn Fn(&str) -> bool,
}

/// What an instrument is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instrument {
    /// The name.
    pub(super) name: &'static str,
    /// The unit, in the notation of UCUM.
    unit: &'static str,
    /// The meaning, for people.
    description: &'static str,
    /// Whether it is enabled unless the application disables it (A79).
    pub(super) is_default: bool,
    /// Bucket boundaries of a histogram; empty for other instruments.
    bounds: &'static [f64],
}

impl Instruments {
    /// Makes the enabled instruments.
    pub(super) fn new(meter: &Meter, is_enabled: &dyn Fn(&str) -> bool) -> Self {
        let make = Maker { meter, is_enabled };
        Self {
            attempt_started: make.counter(&ATTEMPT_STARTED),
            attempt_duration: make.of_values(&ATTEMPT_DURATION),
            attempt_sent: make.of_numbers(&ATTEMPT_SENT),
            attempt_received: make.of_numbers(&ATTEMPT_RECEIVED),
            call_duration: make.of_values(&CALL_DURATION),
            retries: make.of_numbers(&RETRIES),
            transparent_retries: make.of_numbers(&TRANSPARENT_RETRIES),
            retry_delay: make.of_values(&RETRY_DELAY),
            call_delay: make.of_values(&CALL_DELAY),
            attempt_delay: make.of_values(&ATTEMPT_DELAY),
            rr_fallback: make.counter(&RR_FALLBACK),
            weight_not_yet_usable: make.counter(&WEIGHT_NOT_YET_USABLE),
            weight_stale: make.counter(&WEIGHT_STALE),
            endpoint_weights: make.of_values(&ENDPOINT_WEIGHTS),
            ejections_enforced: make.counter(&EJECTIONS_ENFORCED),
            ejections_unenforced: make.counter(&EJECTIONS_UNENFORCED),
            connections_succeeded: make.counter(&CONNECTIONS_SUCCEEDED),
            connections_failed: make.counter(&CONNECTIONS_FAILED),
            disconnections: make.counter(&DISCONNECTIONS),
            open_connections: make.up_down(&OPEN_CONNECTIONS),
            target_picks: make.counter(&TARGET_PICKS),
            default_target_picks: make.counter(&DEFAULT_TARGET_PICKS),
            failed_picks: make.counter(&FAILED_PICKS),
            lookup_caches: make.lookup_caches(),
        }
    }
}

impl Maker<'_> {
    /// An instrument, if it is enabled.
    fn enabled(&self, instrument: &'static Instrument) -> Option<&'static Instrument> {
        (self.is_enabled)(instrument.name).then_some(instrument)
    }

    /// A number that grows.
    fn counter(&self, instrument: &'static Instrument) -> Option<Counter<u64>> {
        let Instrument { name, unit, description, .. } = *self.enabled(instrument)?;
        Some(self.meter.u64_counter(name).with_unit(unit).with_description(description).build())
    }

    /// The caches of lookup services with the gauges that are enabled.
    fn lookup_caches(&self) -> Option<Arc<LookupCaches>> {
        let caches = Arc::new(LookupCaches::default());
        let entries = self.gauge(&CACHE_ENTRIES, &caches, CacheUsage::entries);
        let size = self.gauge(&CACHE_SIZE, &caches, CacheUsage::bytes);
        entries.or(size).map(|()| caches)
    }

    /// A number of each cache that is read when metrics are collected.
    fn gauge(
        &self,
        instrument: &'static Instrument,
        caches: &Arc<LookupCaches>,
        number: fn(&CacheUsage) -> usize,
    ) -> Option<()> {
        let Instrument { name, unit, description, .. } = *self.enabled(instrument)?;
        // A meter keeps callbacks forever.
        let caches = Arc::downgrade(caches);
        let gauge = self.meter.u64_observable_gauge(name).with_unit(unit).with_description(description);
        let gauge = gauge.with_callback(move |observer| {
            for (labels, usage) in caches.upgrade().iter().flat_map(|caches| caches.all()) {
                observer.observe(number(&usage) as u64, &labels);
            }
        });
        gauge.build();
        Some(())
    }

    /// A number that grows and shrinks.
    fn up_down(&self, instrument: &'static Instrument) -> Option<UpDownCounter<i64>> {
        let Instrument { name, unit, description, .. } = *self.enabled(instrument)?;
        Some(self.meter.i64_up_down_counter(name).with_unit(unit).with_description(description).build())
    }

    /// The distribution of whole numbers.
    fn of_numbers(&self, instrument: &'static Instrument) -> Option<Histogram<u64>> {
        let Instrument { name, unit, description, bounds, .. } = *self.enabled(instrument)?;
        let histogram = self.meter.u64_histogram(name).with_unit(unit).with_description(description);
        Some(histogram.with_boundaries(bounds.into()).build())
    }

    /// The distribution of other values.
    fn of_values(&self, instrument: &'static Instrument) -> Option<Histogram<f64>> {
        let Instrument { name, unit, description, bounds, .. } = *self.enabled(instrument)?;
        let histogram = self.meter.f64_histogram(name).with_unit(unit).with_description(description);
        // Weights have the buckets of the SDK.
        let with_bounds = !bounds.is_empty();
        Some(if with_bounds { histogram.with_boundaries(bounds.into()) } else { histogram }.build())
    }
}

impl Instrument {
    /// An instrument without buckets, which is not enabled by default.
    const fn new(name: &'static str, unit: &'static str, description: &'static str) -> Self {
        Self { name, unit, description, is_default: false, bounds: &[] }
    }

    /// Enables it by default.
    const fn on(self) -> Self {
        Self { is_default: true, ..self }
    }

    /// Sets the boundaries of buckets.
    const fn with(self, bounds: &'static [f64]) -> Self {
        Self { bounds, ..self }
    }
}

/// All instruments of channels.
pub(super) static ALL: [&Instrument; 25] = [
    &ATTEMPT_STARTED,
    &ATTEMPT_DURATION,
    &ATTEMPT_SENT,
    &ATTEMPT_RECEIVED,
    &CALL_DURATION,
    &RETRIES,
    &TRANSPARENT_RETRIES,
    &RETRY_DELAY,
    &CALL_DELAY,
    &ATTEMPT_DELAY,
    &RR_FALLBACK,
    &WEIGHT_NOT_YET_USABLE,
    &WEIGHT_STALE,
    &ENDPOINT_WEIGHTS,
    &EJECTIONS_ENFORCED,
    &EJECTIONS_UNENFORCED,
    &CONNECTIONS_SUCCEEDED,
    &CONNECTIONS_FAILED,
    &DISCONNECTIONS,
    &OPEN_CONNECTIONS,
    &TARGET_PICKS,
    &DEFAULT_TARGET_PICKS,
    &FAILED_PICKS,
    &CACHE_ENTRIES,
    &CACHE_SIZE,
];
static ATTEMPT_STARTED: Instrument = Instrument::new(
    "grpc.client.attempt.started",
    "{attempt}",
    "Number of client call attempts started, including those that have not completed.",
)
.on();
static ATTEMPT_DURATION: Instrument = Instrument::new(
    "grpc.client.attempt.duration",
    "s",
    "End-to-end time taken to complete a client call attempt, including the time to pick a subchannel.",
)
.with(&LATENCY)
.on();
static ATTEMPT_SENT: Instrument = Instrument::new(
    "grpc.client.attempt.sent_total_compressed_message_size",
    "By",
    "Compressed message bytes sent per client call attempt.",
)
.with(&SIZE)
.on();
static ATTEMPT_RECEIVED: Instrument = Instrument::new(
    "grpc.client.attempt.rcvd_total_compressed_message_size",
    "By",
    "Compressed message bytes received per client call attempt.",
)
.with(&SIZE)
.on();
static CALL_DURATION: Instrument = Instrument::new(
    "grpc.client.call.duration",
    "s",
    "Time taken by gRPC to complete a call, from the perspective of the application.",
)
.with(&LATENCY)
.on();
static RETRIES: Instrument = Instrument::new(
    "grpc.client.call.retries",
    "{retry}",
    "Number of retries during the client call. If there were no retries, 0 is not reported.",
)
.with(&[1.0, 2.0, 3.0, 4.0, 5.0]);
static TRANSPARENT_RETRIES: Instrument = Instrument::new(
    "grpc.client.call.transparent_retries",
    "{transparent_retry}",
    "Number of transparent retries during the client call. If there were none, 0 is not reported.",
)
.with(&[1.0, 2.0, 3.0, 4.0, 5.0, 10.0]);
static RETRY_DELAY: Instrument = Instrument::new(
    "grpc.client.call.retry_delay",
    "s",
    "Total time of delay while there is no active attempt during the client call.",
)
.with(&LATENCY);
static CALL_DELAY: Instrument = Instrument::new(
    "grpc.client.call.delay.duration",
    "s",
    "EXPERIMENTAL. Time for which a call waited before an attempt was begun, such as for name resolution.",
)
.with(&LATENCY);
static ATTEMPT_DELAY: Instrument = Instrument::new(
    "grpc.client.attempt.delay.duration",
    "s",
    "EXPERIMENTAL. Time for which an attempt waited for a pick or a connection.",
)
.with(&LATENCY);
static RR_FALLBACK: Instrument = Instrument::new(
    "grpc.lb.wrr.rr_fallback",
    "{update}",
    "Number of scheduler updates in which there were not enough endpoints with valid weight, which caused the WRR policy to \
         fall back to RR behavior.",
);
static WEIGHT_NOT_YET_USABLE: Instrument = Instrument::new(
    "grpc.lb.wrr.endpoint_weight_not_yet_usable",
    "{endpoint}",
    "Number of endpoints from each scheduler update that don't yet have usable weight information.",
);
static WEIGHT_STALE: Instrument = Instrument::new(
    "grpc.lb.wrr.endpoint_weight_stale",
    "{endpoint}",
    "Number of endpoints from each scheduler update whose latest weight is older than the expiration period.",
);
static ENDPOINT_WEIGHTS: Instrument = Instrument::new(
    "grpc.lb.wrr.endpoint_weights",
    "{weight}",
    "Weight of each endpoint, recorded on every scheduler update. Endpoints without usable weights are recorded as weight 0.",
);
static EJECTIONS_ENFORCED: Instrument = Instrument::new(
    "grpc.lb.outlier_detection.ejections_enforced",
    "{ejection}",
    "Number of outlier ejections enforced.",
);
static EJECTIONS_UNENFORCED: Instrument = Instrument::new(
    "grpc.lb.outlier_detection.ejections_unenforced",
    "{ejection}",
    "Number of outlier ejections that were not enforced, by the maximum of ejections or the enforcement percentage.",
);
static CONNECTIONS_SUCCEEDED: Instrument = Instrument::new(
    "grpc.subchannel.connection_attempts_succeeded",
    "{attempt}",
    "Number of successful connection attempts.",
);
static CONNECTIONS_FAILED: Instrument = Instrument::new(
    "grpc.subchannel.connection_attempts_failed",
    "{attempt}",
    "Number of failed connection attempts.",
);
static DISCONNECTIONS: Instrument = Instrument::new(
    "grpc.subchannel.disconnections",
    "{disconnection}",
    "Number of times the selected subchannel becomes disconnected.",
);
static OPEN_CONNECTIONS: Instrument =
    Instrument::new("grpc.subchannel.open_connections", "{connection}", "Number of open connections.");
static TARGET_PICKS: Instrument = Instrument::new(
    "grpc.lb.rls.target_picks",
    "{pick}",
    "EXPERIMENTAL. Number of picks for calls that go to a cluster of a lookup response, also if it is the default target.",
);
static DEFAULT_TARGET_PICKS: Instrument = Instrument::new(
    "grpc.lb.rls.default_target_picks",
    "{pick}",
    "EXPERIMENTAL. Number of picks for calls that go to the default target, since there is no lookup response.",
);
static FAILED_PICKS: Instrument = Instrument::new(
    "grpc.lb.rls.failed_picks",
    "{pick}",
    "EXPERIMENTAL. Number of picks that failed because a lookup failed or was throttled, and there is no default target.",
);
static CACHE_ENTRIES: Instrument = Instrument::new(
    "grpc.lb.rls.cache_entries",
    "{entry}",
    "EXPERIMENTAL. Number of entries in the cache of lookups.",
);
static CACHE_SIZE: Instrument =
    Instrument::new("grpc.lb.rls.cache_size", "By", "EXPERIMENTAL. Size of the cache of lookups.");
/// The bounds of times, in seconds (CH9.13).
const LATENCY: [f64; 41] = [
    0.0, 0.00001, 0.00005, 0.0001, 0.0003, 0.0006, 0.0008, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008,
    0.01, 0.013, 0.016, 0.02, 0.025, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4,
    0.5, 0.65, 0.8, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0,
];
/// The bounds of sizes, in bytes (CH9.13).
const SIZE: [f64; 14] = [
    0.0,
    1_024.0,
    2_048.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
    1_073_741_824.0,
    4_294_967_296.0,
];
