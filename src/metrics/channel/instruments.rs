//! The instruments with their units, descriptions and buckets.

use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

/// The instruments that are enabled.
pub(super) struct Instruments {
    pub(super) attempt_started: Option<Counter<u64>>,
    pub(super) attempt_duration: Option<Histogram<f64>>,
    pub(super) attempt_sent: Option<Histogram<u64>>,
    pub(super) attempt_received: Option<Histogram<u64>>,
    pub(super) call_duration: Option<Histogram<f64>>,
    pub(super) retries: Option<Histogram<u64>>,
    pub(super) transparent_retries: Option<Histogram<u64>>,
    pub(super) retry_delay: Option<Histogram<f64>>,
    pub(super) rr_fallback: Option<Counter<u64>>,
    pub(super) weight_not_yet_usable: Option<Counter<u64>>,
    pub(super) weight_stale: Option<Counter<u64>>,
    pub(super) endpoint_weights: Option<Histogram<f64>>,
    pub(super) ejections_enforced: Option<Counter<u64>>,
    pub(super) ejections_unenforced: Option<Counter<u64>>,
    pub(super) connections_succeeded: Option<Counter<u64>>,
    pub(super) connections_failed: Option<Counter<u64>>,
    pub(super) disconnections: Option<Counter<u64>>,
    pub(super) open_connections: Option<UpDownCounter<i64>>,
}

/// What an instrument is.
#[derive(Debug)]
pub(super) struct Instrument {
    pub(super) name: &'static str,
    unit: &'static str,
    description: &'static str,
    /// Whether it is enabled unless the application disables it (A79).
    pub(super) is_default: bool,
    /// Those of a histogram.
    bounds: &'static [f64],
}

impl Instruments {
    pub(super) fn new(meter: &Meter, is_enabled: &dyn Fn(&str) -> bool) -> Self {
        let enabled = |it: &'static Instrument| is_enabled(it.name).then_some(it);
        let counter = |it| {
            enabled(it).map(|it| {
                meter.u64_counter(it.name).with_unit(it.unit).with_description(it.description).build()
            })
        };
        let of_numbers = |it| {
            enabled(it).map(|it| {
                let histogram = meter.u64_histogram(it.name).with_unit(it.unit);
                histogram.with_description(it.description).with_boundaries(it.bounds.into()).build()
            })
        };
        let of_values = |it| {
            enabled(it).map(|it| {
                let histogram = meter.f64_histogram(it.name).with_unit(it.unit);
                let histogram = histogram.with_description(it.description);
                if it.bounds.is_empty() { histogram } else { histogram.with_boundaries(it.bounds.into()) }
                    .build()
            })
        };
        let up_down = |it| {
            enabled(it).map(|it| {
                let counter = meter.i64_up_down_counter(it.name).with_unit(it.unit);
                counter.with_description(it.description).build()
            })
        };
        let [
            started,
            duration,
            sent,
            received,
            call,
            retries,
            transparent,
            delay,
            fallback,
            not_yet_usable,
            stale,
            weights,
            enforced,
            unenforced,
            succeeded,
            failed,
            disconnections,
            open,
        ] = &NAMES;
        Self {
            attempt_started: counter(started),
            attempt_duration: of_values(duration),
            attempt_sent: of_numbers(sent),
            attempt_received: of_numbers(received),
            call_duration: of_values(call),
            retries: of_numbers(retries),
            transparent_retries: of_numbers(transparent),
            retry_delay: of_values(delay),
            rr_fallback: counter(fallback),
            weight_not_yet_usable: counter(not_yet_usable),
            weight_stale: counter(stale),
            endpoint_weights: of_values(weights),
            ejections_enforced: counter(enforced),
            ejections_unenforced: counter(unenforced),
            connections_succeeded: counter(succeeded),
            connections_failed: counter(failed),
            disconnections: counter(disconnections),
            open_connections: up_down(open),
        }
    }
}

impl Instrument {
    const fn new(name: &'static str, unit: &'static str, description: &'static str) -> Self {
        Self { name, unit, description, is_default: false, bounds: &[] }
    }

    const fn on(self) -> Self {
        Self { is_default: true, ..self }
    }

    const fn with(self, bounds: &'static [f64]) -> Self {
        Self { bounds, ..self }
    }
}

/// All instruments of channels, in the order of [`Instruments`].
pub(super) static NAMES: [Instrument; 18] = [
    Instrument::new(
        "grpc.client.attempt.started",
        "{attempt}",
        "Number of client call attempts started, including those that have not completed.",
    )
    .on(),
    Instrument::new(
        "grpc.client.attempt.duration",
        "s",
        "End-to-end time taken to complete a client call attempt, including the time to pick a subchannel.",
    )
    .with(&LATENCY)
    .on(),
    Instrument::new(
        "grpc.client.attempt.sent_total_compressed_message_size",
        "By",
        "Compressed message bytes sent per client call attempt.",
    )
    .with(&SIZE)
    .on(),
    Instrument::new(
        "grpc.client.attempt.rcvd_total_compressed_message_size",
        "By",
        "Compressed message bytes received per client call attempt.",
    )
    .with(&SIZE)
    .on(),
    Instrument::new(
        "grpc.client.call.duration",
        "s",
        "Time taken by gRPC to complete a call, from the perspective of the application.",
    )
    .with(&LATENCY)
    .on(),
    Instrument::new(
        "grpc.client.call.retries",
        "{retry}",
        "Number of retries during the client call. If there were no retries, 0 is not reported.",
    )
    .with(&[1.0, 2.0, 3.0, 4.0, 5.0]),
    Instrument::new(
        "grpc.client.call.transparent_retries",
        "{transparent_retry}",
        "Number of transparent retries during the client call. If there were none, 0 is not reported.",
    )
    .with(&[1.0, 2.0, 3.0, 4.0, 5.0, 10.0]),
    Instrument::new(
        "grpc.client.call.retry_delay",
        "s",
        "Total time of delay while there is no active attempt during the client call.",
    )
    .with(&LATENCY),
    Instrument::new(
        "grpc.lb.wrr.rr_fallback",
        "{update}",
        "Number of scheduler updates in which there were not enough endpoints with valid weight, which caused the WRR policy to \
         fall back to RR behavior.",
    ),
    Instrument::new(
        "grpc.lb.wrr.endpoint_weight_not_yet_usable",
        "{endpoint}",
        "Number of endpoints from each scheduler update that don't yet have usable weight information.",
    ),
    Instrument::new(
        "grpc.lb.wrr.endpoint_weight_stale",
        "{endpoint}",
        "Number of endpoints from each scheduler update whose latest weight is older than the expiration period.",
    ),
    Instrument::new(
        "grpc.lb.wrr.endpoint_weights",
        "{weight}",
        "Weight of each endpoint, recorded on every scheduler update. Endpoints without usable weights are recorded as weight 0.",
    ),
    Instrument::new(
        "grpc.lb.outlier_detection.ejections_enforced",
        "{ejection}",
        "Number of outlier ejections enforced.",
    ),
    Instrument::new(
        "grpc.lb.outlier_detection.ejections_unenforced",
        "{ejection}",
        "Number of outlier ejections that were not enforced, by the maximum of ejections or the enforcement percentage.",
    ),
    Instrument::new(
        "grpc.subchannel.connection_attempts_succeeded",
        "{attempt}",
        "Number of successful connection attempts.",
    ),
    Instrument::new(
        "grpc.subchannel.connection_attempts_failed",
        "{attempt}",
        "Number of failed connection attempts.",
    ),
    Instrument::new(
        "grpc.subchannel.disconnections",
        "{disconnection}",
        "Number of times the selected subchannel becomes disconnected.",
    ),
    Instrument::new("grpc.subchannel.open_connections", "{connection}", "Number of open connections."),
];

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
