//! The recorder of one channel.

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use opentelemetry::KeyValue;

use super::{
    ChannelMetrics, DISCONNECT_ERROR, OptionalLabels, SECURITY_LEVEL, labels::Labels,
    method_recorder::MethodRecorder, methods::OTHER,
};
use crate::{
    balance::{
        observer::{Observation, PickLabels},
        weights::WeightState,
    },
    channel::telemetry::{CacheUsage, ChannelObserver, MethodObserver, SubchannelEvent},
};

/// Records the metrics of a channel.
#[derive(Debug)]
pub(super) struct ChannelRecorder {
    /// The instruments.
    metrics: ChannelMetrics,
    /// The label of the target.
    target: KeyValue,
    /// The recorders of named methods, by the path of their requests.
    methods: ArcSwap<HashMap<Box<str>, Arc<MethodRecorder>>>,
    /// The recorder of all other methods, whose names would be too many label values.
    other: Arc<MethodRecorder>,
}

impl ChannelRecorder {
    /// A recorder for a channel to a target.
    pub(super) fn new(metrics: ChannelMetrics, target: &str) -> Self {
        let target = KeyValue::new("grpc.target", Arc::<str>::from(target));
        let other = Arc::new(MethodRecorder::new(metrics.clone(), &target, OTHER.into()));
        Self { metrics, target, methods: ArcSwap::default(), other }
    }

    /// The labels that are enabled.
    fn optional(&self) -> OptionalLabels {
        self.metrics.inner.labels
    }

    /// The labels of a pick.
    fn of_pick(&self, pick: &PickLabels) -> Labels {
        let mut labels = Labels::of(std::slice::from_ref(&self.target));
        labels.add_pick(pick, self.optional());
        labels
    }

    /// Of a method that was not called yet, or that has no name.
    #[cold]
    fn new_method(&self, path: &str, is_generated: bool) -> Arc<MethodRecorder> {
        let label = self.metrics.inner.methods.label(path, is_generated);
        // Not kept by its path, of which there may be any number.
        if *label == *OTHER {
            return self.other.clone();
        }
        let recorder = Arc::new(MethodRecorder::new(self.metrics.clone(), &self.target, label));
        if self.methods.load().len() < self.metrics.inner.methods.limit() {
            // Of two calls at the same time, one may be forgotten, and is seen again.
            let mut methods = HashMap::clone(&self.methods.load());
            methods.insert(path.into(), recorder.clone());
            self.methods.store(Arc::new(methods));
        }
        recorder
    }

    /// Records an update of weighted round robin.
    fn on_scheduler(&self, pick: &PickLabels, weights: &[WeightState]) {
        let instruments = &self.metrics.inner.instruments;
        let labels = self.of_pick(pick);
        let labels = labels.all();
        let count = |state: WeightState| weights.iter().filter(|weight| **weight == state).count() as u64;
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
            // A78: an endpoint without a usable weight counts with the weight 0.
            weights.iter().for_each(|weight| histogram.record(weight.usable().unwrap_or(0.0), labels));
        }
    }
}

impl ChannelObserver for ChannelRecorder {
    fn method(&self, path: &str, is_generated: bool) -> Arc<dyn MethodObserver> {
        let known = self.methods.load().get(path).cloned();
        known.unwrap_or_else(|| self.new_method(path, is_generated))
    }

    fn on_subchannel(&self, pick: &PickLabels, event: SubchannelEvent) {
        let instruments = &self.metrics.inner.instruments;
        let mut labels = self.of_pick(pick);
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
                // Without the reason: the number has to fall under the labels under which it rose.
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

    fn on_lookup_cache(&self, service: &Arc<str>, usage: &Arc<CacheUsage>) {
        if let Some(caches) = &self.metrics.inner.instruments.lookup_caches {
            caches.add(self.target.clone(), service.clone(), usage);
        }
    }

    fn on_balance(&self, observation: Observation<'_>) {
        let instruments = &self.metrics.inner.instruments;
        let mut labels = Labels::of(std::slice::from_ref(&self.target));
        match observation {
            Observation::Scheduler { cluster, locality, weights } => {
                let locality = locality.filter(|_| self.optional().locality);
                // Formatted for the label alone, which is off by default.
                let locality = locality.map(|locality| locality.to_string().into());
                let pick = PickLabels { backend_service: Some(cluster.clone()), locality, service: None };
                self.on_scheduler(&pick, weights);
            }
            Observation::Ejected { cluster, method } => {
                if let Some(counter) = &instruments.ejections_enforced {
                    labels.add_cluster(cluster, self.optional());
                    labels.add(DETECTION_METHOD, method);
                    counter.add(1, labels.all());
                }
            }
            Observation::NotEjected { cluster, method, reason } => {
                if let Some(counter) = &instruments.ejections_unenforced {
                    labels.add_cluster(cluster, self.optional());
                    labels.add(DETECTION_METHOD, method);
                    labels.add(UNENFORCED_REASON, reason);
                    counter.add(1, labels.all());
                }
            }
        }
    }
}

const DETECTION_METHOD: &str = "grpc.lb.outlier_detection.detection_method";
const UNENFORCED_REASON: &str = "grpc.lb.outlier_detection.unenforced_reason";
