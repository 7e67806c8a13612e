//! The handles by which calls are counted.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{CellKey, Loads};
use crate::{
    config::Locality,
    lrs::{
        counters::{Counters, DropCounter, ReportedCall},
        lanes::Lanes,
        stats::LoadStats,
        weak_map::WeakMap,
    },
};

/// Reports the load of one cluster to the management server that asks for it. Clones are handles of the same reporter.
///
/// It is always valid. While the cluster is unknown, does not ask for reports, or its client has ended, calls are not counted;
/// counting begins by itself when the configuration of the cluster asks for it.
///
/// ```
/// use xdskit::{config::Locality, lrs::{LoadReporter, Outcome}};
///
/// fn call(shop: &LoadReporter) {
///     let zone = shop.locality(&Locality::new("europe-west1", "europe-west1-b", "")); // once for each locality, not for each call
///     let call = zone.call_started();
///     // ...
///     call.finish(Outcome::Success, None);
///     shop.dropped("throttle");
/// }
/// ```
#[derive(Clone)]
pub struct LoadReporter {
    cell: Arc<ClusterCell>,
}

/// Counts the calls to the endpoints in one locality of a cluster. Clones count together.
#[derive(Clone)]
pub struct LocalityReporter {
    cell: Arc<LocalityCell>,
}

/// Counts the calls to one endpoint, which are part of those of its locality. Clones count together.
#[derive(Clone)]
pub struct EndpointReporter {
    cell: Arc<EndpointCell>,
}

/// Counts the calls of a cluster that are dropped in one category. Clones count together.
#[derive(Clone)]
pub struct DropReporter {
    /// Keeps the cluster reported.
    _cluster: Arc<ClusterCell>,
    lanes: Arc<Lanes<DropCounter>>,
}

/// The state that the handles of a cluster share.
pub(super) struct ClusterCell {
    /// The loads of the client, which live as long as any handle.
    loads: Arc<Loads>,
    /// What the client reports the cluster by.
    key: CellKey,
    /// The watch of the cluster, if the application reports it by its name.
    interest: OnceLock<Box<dyn Any + Send + Sync>>,
    /// The counters of drops without a category.
    pub(super) uncategorised: Arc<Lanes<DropCounter>>,
    /// The localities and categories, for handles of the same part.
    parts: Mutex<Parts>,
}

/// The parts of a cluster that have handles.
#[derive(Default)]
pub(super) struct Parts {
    /// Weak: the cell of a locality ends with its last handle.
    pub(super) localities: BTreeMap<Locality, Weak<LocalityCell>>,
    /// Lanes without a handle stay until the next sweep: a category that is counted by its name has a handle for a moment only.
    pub(super) categories: WeakMap<Arc<str>, Arc<Lanes<DropCounter>>>,
}

/// The state that the handles of a locality share.
pub(super) struct LocalityCell {
    /// Keeps the cluster reported as long as the locality has handles.
    pub(super) cluster: Arc<ClusterCell>,
    pub(super) locality: Locality,
    /// Calls that are counted without an endpoint. The calls of endpoints have counters of their own.
    pub(super) lanes: Lanes<Counters>,
    /// Endpoints with handles. Locked after the state of [`Loads`].
    endpoints: Mutex<WeakMap<SocketAddr, Weak<EndpointCell>>>,
}

/// The state that the handles of an endpoint share.
pub(super) struct EndpointCell {
    /// Keeps the locality and its cluster reported.
    pub(super) locality: Arc<LocalityCell>,
    /// The address by which the endpoint is reported.
    pub(super) address: SocketAddr,
    /// The counters, of which there are none before the first call.
    pub(super) lanes: Lanes<Counters>,
    /// Whether a call was counted. There are no counters before: most endpoints of a large cluster are never called.
    pub(super) is_called: AtomicBool,
}

impl LoadReporter {
    pub(super) fn new(cell: Arc<ClusterCell>) -> Self {
        Self { cell }
    }

    /// Keeps a value as long as there is a handle of the cluster.
    pub(crate) fn keep(&self, interest: impl Any + Send + Sync) {
        // One is enough.
        let _ = self.cell.interest.set(Box::new(interest));
    }

    /// The reporter of a locality of the cluster. The same locality has the same counters.
    ///
    /// This is for set-up: it takes a lock, and the result is to be kept beside the endpoints of the locality.
    pub fn locality(&self, locality: &Locality) -> LocalityReporter {
        // LR9.3: two handles of one locality must not become two entries of a report.
        LocalityReporter { cell: self.cell.loads.locality(&self.cell, locality) }
    }

    /// Counts a call that was dropped in a category, such as one of the overload categories of EDS. An empty category is none.
    ///
    /// It takes a short lock; a [`drop_reporter`](Self::drop_reporter) does not.
    pub fn dropped(&self, category: &str) {
        count(&self.drops(category));
    }

    /// Counts a call that was dropped without a category, such as one by circuit breaking (A32).
    pub fn dropped_uncategorised(&self) {
        count(&self.cell.uncategorised);
    }

    /// The counter of a category of dropped calls; an empty category is none. It is to be kept.
    pub fn drop_reporter(&self, category: &str) -> DropReporter {
        DropReporter { _cluster: self.cell.clone(), lanes: self.drops(category) }
    }

    /// What would be reported now: it is read and not reset. `None` while nothing is counted.
    pub fn stats(&self) -> Option<LoadStats> {
        // LR9.7: only the driver may reset, since a report that is not written must not lose anything.
        self.cell.loads.stats(&self.cell.key)
    }

    /// Returns the counters of a drop category.
    fn drops(&self, category: &str) -> Arc<Lanes<DropCounter>> {
        if category.is_empty() {
            return self.cell.uncategorised.clone();
        }
        let known = self.cell.parts().categories.get(category).cloned();
        known.unwrap_or_else(|| self.cell.loads.category(&self.cell, category))
    }
}

impl LocalityReporter {
    /// Counts a call as issued to an endpoint of the locality, and as in progress until it is finished.
    ///
    /// To be called once for each attempt that was given to an endpoint, and not for one that never got an endpoint or was
    /// dropped.
    #[inline]
    pub fn call_started(&self) -> ReportedCall {
        // LR5.1, LR5.2.
        call_started(&self.cell.lanes)
    }

    /// The reporter of an endpoint of the locality. Its calls count for the locality; if the server asks for it, they are reported for
    /// the endpoint, too.
    pub fn endpoint(&self, address: SocketAddr) -> EndpointReporter {
        EndpointReporter { cell: self.cell.cluster.loads.endpoint(&self.cell, address) }
    }

    /// The locality.
    pub fn locality(&self) -> &Locality {
        &self.cell.locality
    }
}

impl EndpointReporter {
    /// Counts a call as issued to the endpoint, and as in progress until it is finished; see [`LocalityReporter::call_started`].
    /// The first call makes the counters of the endpoint, for which it takes a lock.
    #[inline]
    pub fn call_started(&self) -> ReportedCall {
        if !self.cell.is_called.load(Ordering::Acquire) {
            self.cell.locality.cluster.loads.begin_endpoint(&self.cell);
        }
        call_started(&self.cell.lanes)
    }

    /// The address of the endpoint.
    pub fn address(&self) -> SocketAddr {
        self.cell.address
    }
}

impl DropReporter {
    /// Counts a dropped call.
    #[inline]
    pub fn dropped(&self) {
        count(&self.lanes);
    }
}

/// Counts the begin of a call, if it is reported.
#[inline]
fn call_started(lanes: &Lanes<Counters>) -> ReportedCall {
    lanes.current().map_or_else(ReportedCall::uncounted, |counters| counters.call_started())
}

/// Counts a drop, if it is reported.
#[inline]
fn count(lanes: &Lanes<DropCounter>) {
    if let Some(counter) = lanes.current() {
        counter.count();
    }
}

impl ClusterCell {
    pub(super) fn new(loads: Arc<Loads>, key: CellKey) -> Self {
        let uncategorised = Arc::new(Lanes::new());
        Self { loads, key, interest: OnceLock::new(), uncategorised, parts: Mutex::default() }
    }

    pub(super) fn key(&self) -> &CellKey {
        &self.key
    }

    /// Locks the parts of the cluster. Locked after the state of [`Loads`], never before it.
    pub(super) fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last handle of a cluster wakes the driver, which reports what is left.
/// The destructor takes no lock: a handle may end where the state is locked, by a reference that was upgraded for a moment.
impl Drop for ClusterCell {
    fn drop(&mut self) {
        self.loads.notify();
    }
}

impl EndpointCell {
    pub(super) fn new(locality: Arc<LocalityCell>, address: SocketAddr) -> Self {
        Self { locality, address, lanes: Lanes::new(), is_called: AtomicBool::new(false) }
    }
}

impl LocalityCell {
    pub(super) fn new(cluster: Arc<ClusterCell>, locality: Locality) -> Self {
        Self { cluster, locality, lanes: Lanes::new(), endpoints: Mutex::default() }
    }

    pub(super) fn endpoints(&self) -> MutexGuard<'_, WeakMap<SocketAddr, Weak<EndpointCell>>> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LoadReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoadReporter").field(&self.cell.key.cluster()).finish()
    }
}

impl fmt::Debug for LocalityReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = self.cell.cluster.key.cluster();
        f.debug_tuple("LocalityReporter").field(&cluster).field(&self.cell.locality).finish()
    }
}

impl fmt::Debug for EndpointReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = self.cell.locality.cluster.key.cluster();
        f.debug_tuple("EndpointReporter").field(&cluster).field(&self.cell.address).finish()
    }
}

impl fmt::Debug for DropReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DropReporter").field(&self._cluster.key.cluster()).finish()
    }
}

/// Two are equal if they count together.
impl PartialEq for LocalityReporter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cell, &other.cell)
    }
}
