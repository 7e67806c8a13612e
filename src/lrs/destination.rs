//! Where the load of a cluster is reported.

use std::sync::Arc;

use crate::resource::cluster::ReportedMetrics;

/// The key of a cluster in reports. They are sorted by it, so that a report that is divided goes on behind the last key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReportKey {
    /// The name of the cluster.
    pub(super) cluster: Arc<str>,
    /// The name of the cluster's service at EDS, if it has one (LR4.2).
    pub(super) service: Option<Arc<str>>,
}

/// Where calls are reported: the server, and the key there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Destination {
    /// The index of the server.
    /// Servers are never removed, so it stays valid for the life of a client.
    pub(super) server: usize,
    /// The key of the cluster in the reports to this server.
    pub(super) key: ReportKey,
}

/// The metrics of backends that are reported (LR8.5).
#[derive(Debug, PartialEq)]
pub(super) struct Propagation {
    /// The metrics that `lrs_report_endpoint_metrics` selects.
    pub(super) metrics: ReportedMetrics,
    /// The maximum number of names.
    pub(super) max_names: usize,
}

/// The load reports that the resource of a cluster configures.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Route {
    pub(super) destination: Arc<Destination>,
    /// The reported metrics; `None` if there are none.
    pub(super) propagation: Option<Arc<Propagation>>,
}

impl Propagation {
    /// `None` if no metric is reported.
    pub(super) fn new(metrics: &ReportedMetrics, max_names: usize) -> Option<Arc<Self>> {
        let is_any = *metrics != ReportedMetrics::default();
        is_any.then(|| Arc::new(Self { metrics: metrics.clone(), max_names }))
    }
}
