//! The metrics of load reports.

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Meter},
};

use super::Recorder;
use crate::{
    config::ConfigSource,
    lrs::{LoadStreamReport, LoadStreamState},
};

/// The counters of load reports.
/// In the order of `COUNTERS`.
#[derive(Debug)]
pub(super) struct LoadCounters([Counter<u64>; 4]);

/// What was recorded of a stream so far.
/// The values are in the order of `COUNTERS`. Those of a stream only grow, over all connections to its server.
#[derive(Debug, Default)]
pub(crate) struct Recorded([u64; 4]);

impl LoadCounters {
    /// Makes the counters.
    pub(super) fn new(meter: &Meter) -> Self {
        Self(
            COUNTERS.map(|(name, unit, what)| {
                meter.u64_counter(name).with_unit(unit).with_description(what).build()
            }),
        )
    }
}

impl Recorder {
    /// Records what has changed of the stream of load reports to a server.
    pub(crate) fn record_load_reports(&self, report: &LoadStreamReport, recorded: &mut Recorded) {
        let server = ConfigSource::Server(report.server.clone());
        let is_connected = match report.state {
            LoadStreamState::Closed => None,
            LoadStreamState::Connecting | LoadStreamState::BackingOff => Some(false),
            LoadStreamState::Unanswered | LoadStreamState::Reporting => Some(true),
        };
        self.gauges.set_reporting(server.to_string(), is_connected);
        let labels: [KeyValue; 2] = [self.target.clone(), super::server_label(&server)];
        let LoadStreamReport { reports_sent, report_bytes, failures, dropped_residues, .. } = *report;
        let now = [reports_sent, report_bytes, failures, dropped_residues];
        let LoadCounters(counters) = &self.metrics.inner.load_reports;
        for ((counter, now), before) in counters.iter().zip(now).zip(&mut recorded.0) {
            // A counter that was never increased has no series.
            if now > *before {
                counter.add(now - *before, &labels);
                *before = now;
            }
        }
    }
}

/// The name, the unit and the meaning of each counter.
const COUNTERS: [(&str, &str, &str); 4] = [
    ("xdskit.lrs.reports_sent", "{request}", "requests with load reports"),
    ("xdskit.lrs.report_bytes", "By", "bytes of requests with load reports"),
    ("xdskit.lrs.stream_failures", "{failure}", "how often a stream of load reports failed"),
    ("xdskit.lrs.dropped_residues", "{cluster}", "clusters whose last counts were dropped unreported"),
];
