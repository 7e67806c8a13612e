//! The recorder of one client by OpenTelemetry.

use std::sync::Arc;

use opentelemetry::KeyValue;

use super::{Metrics, gauges::ClientGauges};
use crate::client::recorder::{Counter, Gauge, Histogram, Labels, Recorder};

/// Records the metrics of one client. Its gauges end with it.
#[derive(Debug)]
pub(super) struct ClientRecorder {
    /// The instruments.
    pub(super) metrics: Metrics,
    /// The current values of the client.
    pub(super) gauges: Arc<ClientGauges>,
}

impl Recorder for ClientRecorder {
    fn add(&self, counter: Counter, labels: &Labels<'_>, count: u64) {
        if let Some(instrument) = self.metrics.inner.counters.get(&counter) {
            instrument.add(count, &key_values(labels));
        }
    }

    fn set(&self, gauge: Gauge, labels: &Labels<'_>, value: Option<u64>) {
        self.gauges.set(gauge, labels.values(), value);
    }

    fn record(&self, histogram: Histogram, labels: &Labels<'_>, value: f64) {
        if let Some(instrument) = self.metrics.inner.histograms.get(&histogram) {
            instrument.record(value, &key_values(labels));
        }
    }
}

fn key_values(labels: &Labels<'_>) -> Vec<KeyValue> {
    labels.iter().map(|(key, value)| KeyValue::new(key, value.to_owned())).collect()
}
