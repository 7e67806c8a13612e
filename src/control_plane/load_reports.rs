//! The load reports of all clients as a sequence.

use std::sync::Arc;

use super::{
    hub::Hub,
    store::loads::{LoadReport, Loads},
};

/// The load reports of all clients; see [`ControlPlane::loads`](super::ControlPlane::loads).
#[derive(Debug)]
pub struct LoadReports {
    hub: Arc<Hub>,
    /// The position of the next report among all.
    position: u64,
}

impl LoadReports {
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        Self { hub, position: 0 }
    }

    /// Waits for the next report with loads. A reader that is too slow misses the oldest ones.
    ///
    /// # Cancel safety
    /// No report is lost if the future is dropped.
    pub async fn next(&mut self) -> Arc<LoadReport> {
        let position = &mut self.position;
        self.hub.load_reporting.find(|loads| next_with_loads(loads, position)).await
    }

    /// The next report with loads, if it has been received.
    pub fn try_next(&mut self) -> Option<Arc<LoadReport>> {
        let position = &mut self.position;
        self.hub.load_reporting.look(|loads| next_with_loads(loads, position))
    }
}

/// Returns the next report that has loads; the first one of each stream has none.
fn next_with_loads(loads: &Loads, position: &mut u64) -> Option<Arc<LoadReport>> {
    loop {
        let (report, next) = loads.at(*position)?;
        *position = next;
        if !report.is_empty() {
            return Some(report.clone());
        }
    }
}
