//! What handles that are gone have left, once their counters are too many to be kept (LR6.6).

use std::mem;

use super::{
    counters::{Calls, Counters, DropCounter},
    metrics::MetricSums,
};

/// The counts of the departed endpoints of a locality, and of its own departed handles, as numbers. They are reported for the locality,
/// and not for each endpoint.
#[derive(Debug, Default)]
pub(super) struct DepartedCalls {
    /// What no written report has covered, with `taken` until `on_written` subtracts that.
    calls: Calls,
    /// What the report in progress covers of it.
    taken: Calls,
    /// Sums of metrics that no written report has covered.
    metrics: MetricSums,
    /// The limit of names of metrics.
    /// The greatest of the counters that were added; 0 while none of them had metrics.
    max_metric_names: usize,
}

/// The counts of departed counters of a drop category.
/// A number in place of a counter: nothing adds to it but counters that are folded.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct DepartedDrops {
    /// What no written report has covered.
    count: u64,
    /// What the report in progress covers of it.
    taken: u64,
}

impl DepartedCalls {
    /// Adds the counts of counters that count no call any more. The counters are not to be taken again.
    pub(super) fn add(&mut self, counters: &Counters) {
        // The part of a report in progress moves as well: otherwise `on_written` would leave it to be reported twice.
        self.calls.add(counters.unreported());
        self.taken.add(counters.in_report());
        counters.copy_metrics(&mut self.metrics);
        self.max_metric_names = self.max_metric_names.max(counters.max_metric_names().unwrap_or_default());
    }

    /// What no written report has covered, for a report. The sums of metrics are moved.
    pub(super) fn take(&mut self, metrics: &mut Option<Box<MetricSums>>) -> Calls {
        if self.metrics != MetricSums::default() {
            metrics.get_or_insert_default().append(mem::take(&mut self.metrics), self.max_metric_names);
        }
        self.taken = self.calls;
        self.calls
    }

    /// The report of the last [`take`](Self::take) was written.
    pub(super) fn on_written(&mut self) {
        self.calls.subtract(mem::take(&mut self.taken));
    }

    /// Whether there is nothing left to report.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_zero() && self.metrics.is_zero()
    }

    /// What no written report has covered.
    pub(super) fn unreported(&self) -> (Calls, &MetricSums) {
        (self.calls, &self.metrics)
    }
}

impl DepartedDrops {
    /// Adds the counts of a counter that no handle has. The counter is not to be taken again.
    pub(super) fn add(&mut self, counter: &DropCounter) {
        self.count += counter.unreported();
        self.taken += counter.in_report();
    }

    /// Adds those of another category.
    pub(super) fn append(&mut self, other: Self) {
        self.count += other.count;
        self.taken += other.taken;
    }

    /// Returns the drops that no written report has covered, for a report.
    pub(super) fn take(&mut self) -> u64 {
        self.taken = self.count;
        self.count
    }

    /// Handles that the report of the last [`take`](Self::take) was written.
    pub(super) fn on_written(&mut self) {
        self.count -= mem::take(&mut self.taken);
    }

    pub(super) fn unreported(self) -> u64 {
        self.count
    }
}
