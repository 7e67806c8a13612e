use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::control_plane::{
    Loads,
    store::loads::{ClusterLoad, LoadReport},
};

/// The load reports that expectations have returned.
#[derive(Debug, Default)]
pub(super) struct TakenLoads {
    /// A lock, since expectations may run at the same time.
    positions: Mutex<Positions>,
}

/// The positions of the next values, which count all reports of the server.
#[derive(Debug, Default)]
struct Positions {
    /// That of the next report.
    report: u64,
    /// By cluster: that of the report with the next load, and the number of loads in it that were taken.
    clusters: BTreeMap<String, (u64, usize)>,
}

impl TakenLoads {
    /// Takes the next report with loads.
    pub(super) fn take_report(&self, loads: &Loads) -> Option<Arc<LoadReport>> {
        self.with(|positions| {
            loop {
                let (report, next) = loads.at(positions.report)?;
                positions.report = next;
                if !report.is_empty() {
                    return Some(report.clone());
                }
            }
        })
    }

    /// Takes the next load of a cluster.
    pub(super) fn take_load(&self, loads: &Loads, cluster: &str) -> Option<ClusterLoad> {
        self.with(|positions| {
            let (position, taken) = positions.clusters.entry(cluster.to_owned()).or_default();
            loop {
                let (report, next) = loads.at(*position)?;
                if *position + 1 < next {
                    // The reports before it are not kept any more.
                    (*position, *taken) = (next - 1, 0);
                }
                if let Some(load) = report.clusters().filter(|load| load.cluster == cluster).nth(*taken) {
                    *taken += 1;
                    return Some(load);
                }
                (*position, *taken) = (next, 0);
            }
        })
    }

    /// Runs with the positions locked.
    fn with<T>(&self, run: impl FnOnce(&mut Positions) -> T) -> T {
        // Positions are consistent after each statement, so a test's panic does not corrupt them.
        run(&mut self.positions.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Describes the reports for the error of an expectation.
pub(super) fn describe(loads: &Loads, streams: usize) -> String {
    let reports = loads.reports().filter(|report| !report.is_empty()).count();
    let clusters: Vec<&str> = loads.clusters().collect();
    format!(
        "{reports} load reports, of the clusters {clusters:?}; {streams} streams of load reports are open"
    )
}
