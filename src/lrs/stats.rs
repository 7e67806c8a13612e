//! The counts of a cluster, for applications.

use std::collections::BTreeMap;

use super::metrics::MetricSum;
use crate::config::Locality;

/// What would be reported of a cluster now, of [`LoadReporter::stats`](super::LoadReporter::stats).
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct LoadStats {
    /// The calls to each locality with any.
    pub localities: BTreeMap<Locality, LocalityStats>,
    /// All dropped calls.
    pub dropped: u64,
    /// The dropped calls with a category.
    pub dropped_by_category: BTreeMap<String, u64>,
}

/// The calls to a locality since they were reported last.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct LocalityStats {
    /// The calls that began.
    pub issued: u64,
    /// The calls that succeeded.
    pub succeeded: u64,
    /// The calls that failed.
    pub failed: u64,
    /// The calls in progress now.
    pub in_progress: u64,
    /// The metrics that the backends reported, by the names of `lrs_report_endpoint_metrics`: `cpu_utilization`,
    /// `named_metrics.queue`.
    pub metrics: BTreeMap<String, MetricSum>,
}
