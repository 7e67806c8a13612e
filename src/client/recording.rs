//! What a client records, and the recorders that get it.
//!
//! The driver reads the changes of the engine's counters after each call, and passes them on. No lock of the client is held
//! meanwhile, and a panic of a recorder ends its calls and nothing else.

use std::{
    collections::BTreeMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use tracing::error;

use super::recorder::{Counter, Gauge, Histogram, Labels, Recorder, Series};
#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use crate::{
    background::panic_message,
    config::ConfigSource,
    engine::{Engine, Metric},
    lrs::{LoadStreamReport, LoadStreamState},
    protocol::Messages,
};

/// The recorders of a builder. Two are equal if their recorders are the same objects.
#[derive(Clone, Default)]
pub(super) struct Recorders {
    #[cfg(feature = "metrics")]
    pub(super) metrics: Option<Metrics>,
    pub(super) others: Vec<Arc<dyn Recorder>>,
}

/// The recorders of a running client. Its end removes the values of gauges.
pub(super) struct Recording {
    /// The recorders that have not panicked.
    recorders: Vec<Arc<dyn Recorder>>,
    /// Whether the counters of the engine are read, whatever became of the recorders since: they would grow unread.
    is_reading: bool,
    /// The scope of the client.
    target: Box<str>,
    /// The values of gauges by their labels, of each stream or group of servers with these.
    gauges: BTreeMap<Series, BTreeMap<u32, u64>>,
    /// The responses that were applied by the last call of the engine, whose outputs are not executed yet.
    applied: Vec<Applied>,
    /// The values of load reports that were recorded last, in the order of the streams: counters only grow.
    load_reports: Vec<[u64; 4]>,
}

/// A response that was applied.
#[derive(Debug)]
struct Applied {
    server: String,
    type_url: &'static str,
    arrived_at: Instant,
    is_accepted: bool,
}

impl Recorders {
    /// Begins the recording of a client with this scope.
    pub(super) fn begin(&self, scope: &str) -> Recording {
        let recorders = self.others.clone();
        #[cfg(feature = "metrics")]
        let recorders = {
            let metrics =
                self.metrics.as_ref().map(|metrics| Arc::new(metrics.recorder()) as Arc<dyn Recorder>);
            recorders.into_iter().chain(metrics).collect()
        };
        Recording::new(recorders, scope)
    }
}

impl PartialEq for Recorders {
    fn eq(&self, other: &Self) -> bool {
        #[cfg(feature = "metrics")]
        if self.metrics != other.metrics {
            return false;
        }
        let mut pairs = self.others.iter().zip(&other.others);
        self.others.len() == other.others.len() && pairs.all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

impl fmt::Debug for Recorders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorders").field("others", &self.others.len()).finish_non_exhaustive()
    }
}

impl Recording {
    fn new(recorders: Vec<Arc<dyn Recorder>>, scope: &str) -> Self {
        Self {
            is_reading: !recorders.is_empty(),
            recorders,
            target: scope.into(),
            gauges: BTreeMap::new(),
            applied: Vec::new(),
            load_reports: Vec::new(),
        }
    }

    /// Whether there is anything to record for.
    pub(super) fn is_reading(&self) -> bool {
        self.is_reading
    }

    /// Records what the engine has counted since the last call. Without a recorder nothing is read.
    pub(super) fn record(&mut self, engine: &mut Engine) {
        if self.is_reading {
            while let Some(metric) = engine.poll_metric() {
                self.record_metric(metric);
            }
        }
    }

    /// Records how long the responses took that were applied by the last call of the engine: its outputs are executed now.
    pub(super) fn record_applied(&mut self, now: Instant) {
        for Applied { server, type_url, arrived_at, is_accepted } in std::mem::take(&mut self.applied) {
            let outcome = if is_accepted { "accepted" } else { "rejected" };
            let duration = now.saturating_duration_since(arrived_at).as_secs_f64();
            let Self { recorders, target, .. } = self;
            let values = [&**target, &server, short(type_url), outcome];
            let labels = Labels::new(Histogram::ApplyDuration.instrument(), &values);
            call(recorders, |recorder| recorder.record(Histogram::ApplyDuration, &labels, duration));
        }
    }

    /// Records what has changed of the streams of load reports.
    pub(super) fn record_load_reports(&mut self, reports: &[LoadStreamReport]) {
        self.load_reports.resize(reports.len(), [0; 4]);
        for (report, index) in reports.iter().zip(0..) {
            let server = ConfigSource::Server(report.server.clone()).to_string();
            let is_connected = match report.state {
                LoadStreamState::Closed => None,
                LoadStreamState::Connecting | LoadStreamState::BackingOff => Some(0),
                LoadStreamState::Unanswered | LoadStreamState::Reporting => Some(1),
            };
            self.set(Gauge::LoadReportConnected, &[&server], index, is_connected);
            let LoadStreamReport { reports_sent, report_bytes, failures, dropped_residues, .. } = *report;
            let now = [reports_sent, report_bytes, failures, dropped_residues];
            let before = std::mem::replace(&mut self.load_reports[index as usize], now);
            for ((counter, now), before) in LOAD_COUNTERS.into_iter().zip(now).zip(before) {
                self.add(counter, &[&server], now.saturating_sub(before));
            }
        }
    }

    fn record_metric(&mut self, metric: Metric) {
        match metric {
            Metric::Resources { group, authority, type_url, state, count } => {
                let authority = authority.as_deref().unwrap_or(OLD_STYLE);
                let values = [authority, state.as_str(), short(type_url)];
                self.set(Gauge::Resources, &values, group.0, Some(count).filter(|count| *count > 0));
            }
            Metric::Connected { stream, source, connected } => {
                self.set(Gauge::Connected, &[&source.to_string()], stream.0, connected.map(u64::from));
            }
            Metric::Failures { source, count } => {
                self.add(Counter::ServerFailures, &[&source.to_string()], count);
            }
            Metric::Updates { source, type_url, valid, invalid } => {
                let values = [&source.to_string(), short(type_url)];
                self.add(Counter::ValidUpdates, &values, valid);
                self.add(Counter::InvalidUpdates, &values, invalid);
            }
            Metric::Requests { source, type_url, kind, messages: Messages { count, bytes } } => {
                let values = [&source.to_string(), short(type_url), kind.as_str()];
                self.add(Counter::Requests, &values, count);
                self.add(Counter::RequestBytes, &values, bytes);
            }
            Metric::Responses { source, type_url, messages: Messages { count, bytes } } => {
                let (server, type_name) = (source.to_string(), type_url.map_or(OTHER, short));
                let values = [server.as_str(), type_name];
                self.add(Counter::Responses, &values, count);
                self.add(Counter::ResponseBytes, &values, bytes);
            }
            Metric::StreamEnds { source, end, count } => {
                self.add(Counter::StreamEnds, &[&source.to_string(), end.as_str()], count);
            }
            Metric::Applied { source, type_url, arrived_at, is_accepted } => {
                let server = source.to_string();
                self.applied.push(Applied { server, type_url, arrived_at, is_accepted });
            }
        }
    }

    /// Adds to a counter, whose labels are the target and these. A counter that was never increased has no series.
    fn add(&mut self, counter: Counter, values: &[&str], count: u64) {
        if count > 0 {
            let Self { recorders, target, .. } = self;
            let values: Vec<_> = std::iter::once(&**target).chain(values.iter().copied()).collect();
            let labels = Labels::new(counter.instrument(), &values);
            call(recorders, |recorder| recorder.add(counter, &labels, count));
        }
    }

    /// Sets the value of one of the streams or groups that have the same labels: the target and these.
    fn set(&mut self, gauge: Gauge, values: &[&str], part: u32, value: Option<u64>) {
        let key = (gauge, values.iter().copied().map(Box::from).collect());
        let parts = self.gauges.entry(key.clone()).or_default();
        let before = gauge.combined(parts.values().copied());
        match value {
            Some(value) => drop(parts.insert(part, value)),
            None => drop(parts.remove(&part)),
        }
        let now = gauge.combined(parts.values().copied());
        if now.is_none() {
            self.gauges.remove(&key);
        }
        if now != before {
            self.show(gauge, values, now);
        }
    }

    /// Passes a gauge to the recorders.
    fn show(&mut self, gauge: Gauge, values: &[&str], value: Option<u64>) {
        let Self { recorders, target, .. } = self;
        let values: Vec<_> = std::iter::once(&**target).chain(values.iter().copied()).collect();
        let labels = Labels::new(gauge.instrument(), &values);
        call(recorders, |recorder| recorder.set(gauge, &labels, value));
    }
}

/// A client that has ended has no values.
impl Drop for Recording {
    fn drop(&mut self) {
        for ((gauge, values), _) in std::mem::take(&mut self.gauges) {
            let values: Vec<_> = values.iter().map(|value| &**value).collect();
            self.show(gauge, &values, None);
        }
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("recorders", &self.recorders.len()).finish_non_exhaustive()
    }
}

/// Calls all recorders. One that panics is removed: its own state may be broken.
fn call(recorders: &mut Vec<Arc<dyn Recorder>>, call: impl Fn(&dyn Recorder)) {
    recorders.retain(|recorder| {
        let called = catch_unwind(AssertUnwindSafe(|| call(&**recorder)));
        if let Err(panic) = &called {
            error!(reason = panic_message(&**panic), "recorder panicked and is not called again");
        }
        called.is_ok()
    });
}

/// The type's name without its prefix.
fn short(type_url: &'static str) -> &'static str {
    type_url.strip_prefix("type.googleapis.com/").unwrap_or(type_url)
}

/// The counters of a stream of load reports, in the order of `Recording::load_reports`.
const LOAD_COUNTERS: [Counter; 4] = [
    Counter::LoadReports,
    Counter::LoadReportBytes,
    Counter::LoadReportFailures,
    Counter::DroppedLoadResidues,
];

/// The authority of old-style names (A78).
const OLD_STYLE: &str = "#old";

/// The resource type of what is of no requested type.
const OTHER: &str = "#other";
