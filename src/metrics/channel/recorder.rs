//! The recorder of one channel: labels are made of texts that exist already, so that recording allocates nothing itself.

use std::sync::Arc;

use opentelemetry::{KeyValue, StringValue, Value, metrics::Histogram};

use super::{
    BACKEND_SERVICE, CUSTOM, ChannelMetrics, DISCONNECT_ERROR, LOCALITY, OptionalLabels, SECURITY_LEVEL,
};
use crate::{
    balance::{
        observer::{Observation, PickLabels},
        weights::WeightState,
    },
    channel::telemetry::{AttemptSummary, CallLabels, CallSummary, ChannelObserver, SubchannelEvent},
};

/// Records the metrics of a channel.
#[derive(Debug)]
pub(super) struct ChannelRecorder {
    metrics: ChannelMetrics,
    target: KeyValue,
    none: Arc<str>,
}

/// Up to so many labels, without an allocation.
#[derive(Clone)]
struct Labels {
    all: [KeyValue; MOST],
    count: usize,
}

impl ChannelRecorder {
    pub(super) fn new(metrics: ChannelMetrics, target: &str) -> Self {
        let target = KeyValue::new("grpc.target", Arc::<str>::from(target));
        Self { metrics, target, none: "".into() }
    }

    fn optional(&self) -> OptionalLabels {
        self.metrics.inner.labels
    }

    /// The labels of all instruments of a call.
    fn of_call(&self, call: &CallLabels) -> Labels {
        let mut labels = Labels::new(&self.target);
        labels.add("grpc.method", call.method.clone());
        if self.optional().custom {
            labels.add(CUSTOM, self.text(call.custom.as_ref()));
        }
        labels
    }

    /// The target, and the labels of a pick.
    fn of_pick(&self, labels: &mut Labels, pick: &PickLabels) {
        if self.optional().locality {
            labels.add(LOCALITY, self.text(pick.locality.as_ref()));
        }
        if self.optional().backend_service {
            labels.add(BACKEND_SERVICE, self.text(pick.backend_service.as_ref()));
        }
    }

    fn text(&self, text: Option<&Arc<str>>) -> Arc<str> {
        text.unwrap_or(&self.none).clone()
    }

    fn on_scheduler(&self, pick: &PickLabels, weights: &[WeightState]) {
        let instruments = &self.metrics.inner.instruments;
        let mut labels = Labels::new(&self.target);
        self.of_pick(&mut labels, pick);
        let labels = labels.all();
        let count = |state: WeightState| weights.iter().filter(|it| **it == state).count() as u64;
        if let Some(counter) = &instruments.rr_fallback
            && WeightState::are_too_few(weights)
        {
            counter.add(1, labels);
        }
        if let Some(counter) = &instruments.weight_not_yet_usable {
            counter.add(count(WeightState::NotYetUsable), labels);
        }
        if let Some(counter) = &instruments.weight_stale {
            counter.add(count(WeightState::Stale), labels);
        }
        if let Some(histogram) = &instruments.endpoint_weights {
            weights.iter().for_each(|it| histogram.record(it.usable().unwrap_or(0.0), labels));
        }
    }
}

impl ChannelObserver for ChannelRecorder {
    fn method(&self, path: &str) -> Arc<str> {
        self.metrics.inner.methods.label(path)
    }

    fn has_pick_labels(&self) -> bool {
        self.optional().locality || self.optional().backend_service
    }

    fn on_attempt_started(&self, call: &CallLabels) {
        if let Some(counter) = &self.metrics.inner.instruments.attempt_started {
            counter.add(1, self.of_call(call).all());
        }
    }

    fn on_attempt_ended(&self, call: &CallLabels, attempt: &AttemptSummary<'_>) {
        let instruments = &self.metrics.inner.instruments;
        let mut labels = self.of_call(call);
        labels.add(STATUS, attempt.code.as_str());
        self.of_pick(&mut labels, attempt.labels);
        let labels = labels.all();
        if let Some(histogram) = &instruments.attempt_duration {
            histogram.record(attempt.duration.as_secs_f64(), labels);
        }
        record(instruments.attempt_sent.as_ref(), attempt.sent, labels);
        record(instruments.attempt_received.as_ref(), attempt.received, labels);
    }

    fn on_call_ended(&self, call: &CallLabels, summary: &CallSummary) {
        let instruments = &self.metrics.inner.instruments;
        let mut labels = self.of_call(call);
        let (retries, delay) = (summary.retries, summary.retries.delay);
        // Zeros are not recorded (CH9.19).
        if retries.retries > 0 {
            record(instruments.retries.as_ref(), retries.retries.into(), labels.all());
        }
        if retries.transparent > 0 {
            record(instruments.transparent_retries.as_ref(), retries.transparent.into(), labels.all());
        }
        if let Some(histogram) = instruments.retry_delay.as_ref().filter(|_| !delay.is_zero()) {
            histogram.record(delay.as_secs_f64(), labels.all());
        }
        if let Some(histogram) = &instruments.call_duration {
            labels.add(STATUS, summary.code.as_str());
            histogram.record(summary.duration.as_secs_f64(), labels.all());
        }
    }

    fn on_subchannel(&self, pick: &PickLabels, event: SubchannelEvent) {
        let instruments = &self.metrics.inner.instruments;
        let mut labels = Labels::new(&self.target);
        self.of_pick(&mut labels, pick);
        let open = |level: &'static str, change, mut labels: Labels| {
            if self.optional().security_level {
                labels.add(SECURITY_LEVEL, level);
            }
            if let Some(counter) = &instruments.open_connections {
                counter.add(change, labels.all());
            }
        };
        match event {
            SubchannelEvent::Connected(level) => {
                if let Some(counter) = &instruments.connections_succeeded {
                    counter.add(1, labels.all());
                }
                open(level.as_str(), 1, labels);
            }
            SubchannelEvent::ConnectionFailed => {
                if let Some(counter) = &instruments.connections_failed {
                    counter.add(1, labels.all());
                }
            }
            SubchannelEvent::Disconnected(level, reason) => {
                open(level.as_str(), -1, labels.clone());
                if self.optional().disconnect_error {
                    labels.add(DISCONNECT_ERROR, reason);
                }
                if let Some(counter) = &instruments.disconnections {
                    counter.add(1, labels.all());
                }
            }
        }
    }

    fn on_balance(&self, observation: Observation<'_>) {
        let instruments = &self.metrics.inner.instruments;
        let mut labels = Labels::new(&self.target);
        match observation {
            Observation::Scheduler { cluster, locality, weights } => {
                let locality = locality.filter(|_| self.optional().locality);
                let locality = locality.map(|it| it.to_string().into());
                let pick = PickLabels { backend_service: Some(cluster.clone()), locality };
                self.on_scheduler(&pick, weights);
            }
            Observation::Ejected { method } => {
                if let Some(counter) = &instruments.ejections_enforced {
                    labels.add(DETECTION_METHOD, method);
                    counter.add(1, labels.all());
                }
            }
            Observation::NotEjected { method, reason } => {
                if let Some(counter) = &instruments.ejections_unenforced {
                    labels.add(DETECTION_METHOD, method);
                    labels.add(UNENFORCED_REASON, reason);
                    counter.add(1, labels.all());
                }
            }
        }
    }
}

impl Labels {
    fn new(target: &KeyValue) -> Self {
        let none = || KeyValue::new("", false);
        Self { all: [target.clone(), none(), none(), none(), none(), none()], count: 1 }
    }

    fn add(&mut self, name: &'static str, value: impl Into<StringValue>) {
        debug_assert!(self.count < MOST, "{name} is one label too many");
        if let Some(label) = self.all.get_mut(self.count) {
            *label = KeyValue::new(name, Value::String(value.into()));
            self.count += 1;
        }
    }

    fn all(&self) -> &[KeyValue] {
        &self.all[..self.count]
    }
}

fn record(histogram: Option<&Histogram<u64>>, value: u64, labels: &[KeyValue]) {
    if let Some(histogram) = histogram {
        histogram.record(value, labels);
    }
}

/// The most labels that an instrument has.
const MOST: usize = 6;
const STATUS: &str = "grpc.status";
const DETECTION_METHOD: &str = "grpc.lb.outlier_detection.detection_method";
const UNENFORCED_REASON: &str = "grpc.lb.outlier_detection.unenforced_reason";
