//! Load reports of clients (LRS): the newest ones, and the sums of all.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

mod report;
mod totals;

pub use self::{
    report::{ClusterLoad, EndpointLoad, LoadMetric, LoadReport, LocalityLoad, RequestCounts},
    totals::{LoadTotals, LocalityTotals},
};

/// The load reports that a server has received: the newest ones as they were, and sums of all by cluster.
///
/// It is a value without I/O and clock, so that it also runs in simulations. Its memory is bounded: the oldest reports are dropped
/// when their messages are larger than [`with_max_bytes`](Self::with_max_bytes) together, and the sums have a limit for the number of
/// names that clients can add.
#[derive(Debug, Clone)]
pub struct Loads {
    /// The kept reports, the oldest first.
    reports: VecDeque<Arc<LoadReport>>,
    /// The position of the oldest report that is kept.
    oldest: u64,
    /// The size of the messages of the kept reports.
    bytes: usize,
    /// The limit of `bytes`.
    max_bytes: usize,
    /// Sums by cluster.
    totals: BTreeMap<Arc<str>, LoadTotals>,
    /// The number of entries that can be added to the totals.
    room: usize,
    /// The newest numbers of requests in progress, without zeros.
    in_progress: BTreeMap<ReportKey, u64>,
}

/// A stream, a cluster and the name of its EDS service.
type ReportKey = (u64, Arc<str>, Arc<str>);

impl Loads {
    /// No reports.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the limit for the size of the messages of the kept reports, 64 MiB by default. The newest report is always kept.
    #[must_use]
    pub fn with_max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self.drop_oldest();
        self
    }

    /// Adds a report.
    pub fn add(&mut self, report: LoadReport) {
        for load in report.clusters() {
            self.add_to_totals(report.stream(), &load);
        }
        self.bytes += report.bytes();
        self.reports.push_back(Arc::new(report));
        self.drop_oldest();
    }

    /// Forgets the requests in progress of a stream, which a client reports again on its next one.
    pub fn on_stream_ended(&mut self, stream: u64) {
        self.in_progress.retain(|(of, ..), _| *of != stream);
    }

    /// The sums of all reports of a cluster, of all clients and EDS services.
    pub fn totals(&self, cluster: &str) -> LoadTotals {
        let mut totals = self.totals.get(cluster).cloned().unwrap_or_default();
        let in_progress = self.in_progress.iter().filter(|((_, of, _), _)| &**of == cluster);
        totals.in_progress = in_progress.fold(0, |sum, (_, requests)| sum.saturating_add(*requests));
        totals
    }

    /// The names of all clusters with reports, in order.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        self.totals.keys().map(|cluster| &**cluster)
    }

    /// The kept reports, the oldest first.
    pub fn reports(&self) -> impl Iterator<Item = &Arc<LoadReport>> {
        self.reports.iter()
    }

    /// The report at a position, or the oldest one that is kept after it, with the position of the next one. Positions count all
    /// reports, from 0.
    pub fn at(&self, position: u64) -> Option<(&Arc<LoadReport>, u64)> {
        let from = position.max(self.oldest);
        let index = usize::try_from(from - self.oldest).ok()?;
        Some((self.reports.get(index)?, from + 1))
    }

    /// Forgets all reports and sums. Positions go on.
    pub fn clear(&mut self) {
        let oldest = self.oldest + self.reports.len() as u64;
        *self = Self { oldest, max_bytes: self.max_bytes, ..Self::default() };
    }

    /// Adds a load to the sums.
    fn add_to_totals(&mut self, stream: u64, load: &ClusterLoad) {
        if let Some(totals) = totals::entry(&mut self.totals, load.cluster.as_str(), &mut self.room) {
            totals.add(load, &mut self.room);
        }
        let in_progress = load
            .localities
            .iter()
            .fold(0, |sum: u64, locality| sum.saturating_add(locality.requests.in_progress));
        let service = load.service.as_deref().unwrap_or_default();
        let key = (stream, load.cluster.as_str().into(), service.into());
        // The number is the one at the time of the report: it replaces the former one.
        self.in_progress.remove(&key);
        if in_progress > 0 && self.in_progress.len() < MAX_ENTRIES {
            self.in_progress.insert(key, in_progress);
        }
    }

    /// Drops the oldest reports above the limit.
    fn drop_oldest(&mut self) {
        while self.bytes > self.max_bytes && self.reports.len() > 1 {
            let dropped = self.reports.pop_front().map_or(0, |report| report.bytes());
            self.bytes -= dropped;
            self.oldest += 1;
        }
    }
}

impl Default for Loads {
    fn default() -> Self {
        Self {
            reports: VecDeque::new(),
            oldest: 0,
            bytes: 0,
            max_bytes: MAX_BYTES,
            totals: BTreeMap::new(),
            room: MAX_ENTRIES,
            in_progress: BTreeMap::new(),
        }
    }
}

/// The limit for the memory of names and reports of all clients.
const MAX_BYTES: usize = 64 << 20;
/// The limit for clusters, localities, endpoints, categories and metrics together: clients can send any names.
const MAX_ENTRIES: usize = 1_000_000;

#[cfg(test)]
mod tests;
