use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use super::report::{ClusterLoad, LoadMetric, LocalityLoad, RequestCounts};
use crate::config::Locality;

/// The sums of all reports of a cluster.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct LoadTotals {
    /// The number of reports.
    pub reports: u64,
    /// The sum of their intervals.
    pub interval: Duration,
    /// Requests that were sent.
    pub issued: u64,
    /// Requests that ended well.
    pub successful: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were running at the time of the newest report of each open stream.
    pub in_progress: u64,
    /// Dropped requests, including those of no category.
    pub dropped: u64,
    /// Dropped requests by category.
    pub dropped_by_category: BTreeMap<Arc<str>, u64>,
    /// The localities.
    pub localities: BTreeMap<Locality, LocalityTotals>,
}

/// The sums of all reports of a locality, over its priorities.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct LocalityTotals {
    /// Requests that were sent.
    pub issued: u64,
    /// Requests that ended well.
    pub successful: u64,
    /// Requests that failed.
    pub failed: u64,
    /// The utilization of the processor.
    pub cpu_utilization: LoadMetric,
    /// The utilization of the memory.
    pub memory_utilization: LoadMetric,
    /// The utilization as the application defines it.
    pub application_utilization: LoadMetric,
    /// All other metrics by name.
    pub metrics: BTreeMap<Arc<str>, LoadMetric>,
    /// The requests of endpoints; those in progress are not counted.
    pub endpoints: BTreeMap<SocketAddr, RequestCounts>,
}

impl LoadTotals {
    pub(super) fn add(&mut self, load: &ClusterLoad, room: &mut usize) {
        self.reports += 1;
        self.interval = self.interval.saturating_add(load.interval.unwrap_or_default());
        self.dropped = self.dropped.saturating_add(load.dropped);
        for (category, dropped) in &load.dropped_by_category {
            if let Some(sum) = entry(&mut self.dropped_by_category, category.as_str(), room) {
                *sum = sum.saturating_add(*dropped);
            }
        }
        for of in &load.localities {
            self.issued = self.issued.saturating_add(of.requests.issued);
            self.successful = self.successful.saturating_add(of.requests.successful);
            self.failed = self.failed.saturating_add(of.requests.failed);
            if let Some(locality) = entry(&mut self.localities, of.locality.clone(), room) {
                locality.add(of, room);
            }
        }
    }
}

impl LocalityTotals {
    fn add(&mut self, load: &LocalityLoad, room: &mut usize) {
        self.issued = self.issued.saturating_add(load.requests.issued);
        self.successful = self.successful.saturating_add(load.requests.successful);
        self.failed = self.failed.saturating_add(load.requests.failed);
        for (sum, metric) in [
            (&mut self.cpu_utilization, load.cpu_utilization),
            (&mut self.memory_utilization, load.memory_utilization),
            (&mut self.application_utilization, load.application_utilization),
        ] {
            sum.add(&metric.unwrap_or_default());
        }
        for (name, metric) in &load.metrics {
            if let Some(sum) = entry(&mut self.metrics, name.as_str(), room) {
                sum.add(metric);
            }
        }
        for of in &load.endpoints {
            let endpoint = of.address.and_then(|address| entry(&mut self.endpoints, address, room));
            if let Some(endpoint) = endpoint {
                endpoint.add(&of.requests);
            }
        }
    }
}

/// An entry of a map; `None` if it is new and there is no room for it.
pub(super) fn entry<'a, K: Ord, V: Default>(
    map: &'a mut BTreeMap<K, V>,
    key: impl Into<K>,
    room: &mut usize,
) -> Option<&'a mut V> {
    let key = key.into();
    if !map.contains_key(&key) {
        // LR10.3: sums are kept until they are cleared, and clients may send any names.
        *room = room.checked_sub(1)?;
    }
    Some(map.entry(key).or_default())
}
