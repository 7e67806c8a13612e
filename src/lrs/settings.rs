//! The limits and intervals of load reports.

use std::{num::NonZero, sync::OnceLock, thread, time::Duration};

/// The settings of load reports.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LoadSettings {
    pub(crate) shards: Shards,
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

/// The number of shards of each counter (LR9.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shards {
    /// One for each processor that the process may use.
    PerProcessor,
    /// A number of shards, for simulations.
    #[cfg_attr(not(test), allow(dead_code, reason = "simulations do not depend on the machine"))]
    Fixed(usize),
}

impl Shards {
    /// Asks the system once, when something is counted for the first time: that reads several files.
    pub(super) fn count(self) -> usize {
        static PROCESSORS: OnceLock<usize> = OnceLock::new();
        match self {
            Self::PerProcessor => {
                *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
            }
            Self::Fixed(count) => count,
        }
    }
}

impl Default for LoadSettings {
    fn default() -> Self {
        Self {
            shards: Shards::PerProcessor,
            min_interval: Duration::from_secs(1),
            // Servers accept 4 MiB by default.
            max_request_size: 3 << 20,
            max_residues: 10_000,
            max_departed: 1_000,
            max_metric_names: 1_000,
            slice: 2_000,
            farewell: Duration::from_secs(1),
        }
    }
}
