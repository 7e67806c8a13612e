use std::time::Duration;

/// The settings of load reports.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LoadSettings {
    /// The number of shards of each counter: the number of processors (LR9.2).
    pub(crate) shards: usize,
    /// The minimum interval of reports (LR3.3).
    pub(crate) min_interval: Duration,
    /// The maximum size of a request in bytes (LR4.10).
    pub(crate) max_request_size: usize,
    /// The maximum number of keys of a server without a handle that wait for their last report (LR6.6).
    pub(crate) max_residues: usize,
    /// The maximum number of departed endpoints, localities and drop categories of a key that have counters of their own while they
    /// wait for a report (LR6.6). Endpoints beyond it are reported with their localities, categories without one; localities are dropped.
    pub(crate) max_departed: usize,
    /// The maximum number of named metrics of a locality in an interval (LR8.7).
    pub(crate) max_metric_names: usize,
    /// The number of localities and endpoints that a report is built of at a time (LR7.3).
    pub(crate) slice: usize,
    /// The time for the last report and the end of a stream (LR6.8).
    pub(crate) farewell: Duration,
}

impl Default for LoadSettings {
    fn default() -> Self {
        Self {
            shards: 8,
            min_interval: Duration::from_secs(1),
            max_request_size: 3 << 20,
            max_residues: 10_000,
            max_departed: 1_000,
            max_metric_names: 1_000,
            slice: 2_000,
            farewell: Duration::from_secs(1),
        }
    }
}
