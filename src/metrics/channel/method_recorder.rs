//! The recorder of the calls of one method in one channel. Its labels are made once, unless calls have labels of their own.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
    time::Duration,
};

use opentelemetry::{KeyValue, metrics::Histogram};

use super::{CUSTOM, ChannelMetrics, LOOKUP_SERVICE, labels::Labels};
use crate::{
    channel::telemetry::{
        AttemptSummary, CallSummary, DelayScope, DelayType, LookupTarget, MethodObserver, PickResult, Retried,
    },
    error::Code,
};

/// Records the calls of a method to a target.
#[derive(Debug)]
pub(super) struct MethodRecorder {
    /// The instruments.
    metrics: ChannelMetrics,
    /// The target and the method.
    labels: [KeyValue; 2],
    /// The labels with a status, by the number of the status; made when a call or an attempt first ends with it.
    by_status: [OnceLock<Box<[KeyValue; 3]>>; STATUSES],
}

impl MethodRecorder {
    /// A recorder without recordings.
    pub(super) fn new(metrics: ChannelMetrics, target: &KeyValue, method: Arc<str>) -> Self {
        let labels = [target.clone(), KeyValue::new("grpc.method", method)];
        Self { metrics, labels, by_status: [const { OnceLock::new() }; STATUSES] }
    }

    /// Passes the labels of a call to a function.
    /// Without the custom label these are the ones that were made once, and nothing is copied.
    fn with_labels(&self, custom: Option<&Arc<str>>, record: impl FnOnce(&[KeyValue])) {
        if !self.metrics.inner.labels.custom {
            return record(&self.labels);
        }
        let mut labels = Labels::of(&self.labels);
        labels.add_text(CUSTOM, custom);
        record(labels.all());
    }

    /// The labels of a lookup, which are without the method.
    fn of_lookup(&self, service: &Arc<str>) -> Labels {
        let [target, _] = &self.labels;
        let mut labels = Labels::of(std::slice::from_ref(target));
        labels.add(LOOKUP_SERVICE, service.clone());
        labels
    }

    /// The labels with a status.
    fn with_status(&self, code: Code) -> &[KeyValue; 3] {
        self.by_status[code as usize].get_or_init(|| {
            // Clones of shared texts, for each status and not for each call.
            let [target, method] = self.labels.clone();
            Box::new([target, method, KeyValue::new(STATUS, code.as_str())])
        })
    }
}

impl MethodObserver for MethodRecorder {
    fn has_pick_labels(&self) -> bool {
        self.metrics.inner.labels.are_of_picks()
    }

    fn on_attempt_started(&self, custom: Option<&Arc<str>>) {
        if let Some(counter) = &self.metrics.inner.instruments.attempt_started {
            self.with_labels(custom, |labels| counter.add(1, labels));
        }
    }

    fn on_attempt_ended(&self, custom: Option<&Arc<str>>, attempt: &AttemptSummary<'_>) {
        let instruments = &self.metrics.inner.instruments;
        let record = |labels: &[KeyValue]| {
            if let Some(histogram) = &instruments.attempt_duration {
                histogram.record(attempt.duration.as_secs_f64(), labels);
            }
            record(instruments.attempt_sent.as_ref(), attempt.sent, labels);
            record(instruments.attempt_received.as_ref(), attempt.received, labels);
        };
        let labels = self.with_status(attempt.code);
        let optional = self.metrics.inner.labels;
        if !optional.custom && !optional.are_of_picks() {
            return record(labels);
        }
        let mut labels = Labels::of(labels);
        if optional.custom {
            labels.add_text(CUSTOM, custom);
        }
        labels.add_pick(attempt.labels, optional);
        labels.add_service(attempt.labels, optional);
        record(labels.all());
    }

    fn on_delay(&self, custom: Option<&Arc<str>>, scope: DelayScope, kind: DelayType, duration: Duration) {
        let instruments = &self.metrics.inner.instruments;
        let histogram = match scope {
            DelayScope::Call => &instruments.call_delay,
            DelayScope::Attempt => &instruments.attempt_delay,
        };
        let Some(histogram) = histogram else { return };
        let kind = match kind.as_text() {
            Cow::Borrowed(text) => KeyValue::new(DELAY_TYPE, text),
            Cow::Owned(text) => KeyValue::new(DELAY_TYPE, text),
        };
        let [target, method] = &self.labels;
        let mut labels = Labels::of(&[target.clone(), method.clone(), kind]);
        if self.metrics.inner.labels.custom {
            labels.add_text(CUSTOM, custom);
        }
        histogram.record(duration.as_secs_f64(), labels.all());
    }

    fn on_lookup_pick(&self, target: &LookupTarget, result: PickResult) {
        let instruments = &self.metrics.inner.instruments;
        let counter = match target.is_default {
            true => &instruments.default_target_picks,
            false => &instruments.target_picks,
        };
        let Some(counter) = counter else { return };
        let mut labels = self.of_lookup(&target.service);
        labels.add(LOOKUP_TARGET, target.cluster.clone());
        labels.add(PICK_RESULT, result.as_str());
        counter.add(1, labels.all());
    }

    fn on_lookup_failed(&self, service: &Arc<str>) {
        if let Some(counter) = &self.metrics.inner.instruments.failed_picks {
            counter.add(1, self.of_lookup(service).all());
        }
    }

    fn on_call_ended(&self, custom: Option<&Arc<str>>, summary: &CallSummary) {
        let instruments = &self.metrics.inner.instruments;
        let Retried { retries, transparent, delay } = summary.retries;
        // Zeros are not recorded (CH9.19).
        if retries > 0 || transparent > 0 || !delay.is_zero() {
            self.with_labels(custom, |labels| {
                if retries > 0 {
                    record(instruments.retries.as_ref(), retries.into(), labels);
                }
                if transparent > 0 {
                    record(instruments.transparent_retries.as_ref(), transparent.into(), labels);
                }
                if let Some(histogram) = instruments.retry_delay.as_ref().filter(|_| !delay.is_zero()) {
                    histogram.record(delay.as_secs_f64(), labels);
                }
            });
        }
        let Some(histogram) = &instruments.call_duration else { return };
        let labels = self.with_status(summary.code);
        if !self.metrics.inner.labels.custom {
            return histogram.record(summary.duration.as_secs_f64(), labels);
        }
        let mut labels = Labels::of(labels);
        labels.add_text(CUSTOM, custom);
        histogram.record(summary.duration.as_secs_f64(), labels.all());
    }
}

/// Records a value, if the instrument is enabled.
fn record(histogram: Option<&Histogram<u64>>, value: u64, labels: &[KeyValue]) {
    if let Some(histogram) = histogram {
        histogram.record(value, labels);
    }
}

const DELAY_TYPE: &str = "grpc.delay_type";
const STATUS: &str = "grpc.status";
const LOOKUP_TARGET: &str = "grpc.lb.rls.data_plane_target";
const PICK_RESULT: &str = "grpc.lb.pick_result";
/// The number of status codes.
/// They are 0 (`OK`) to 16 (`UNAUTHENTICATED`), without a gap.
const STATUSES: usize = 17;
