//! The loads of all clusters of a client: what the handles, the configuration and the streams share.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

mod reporter;

pub use self::reporter::{DropReporter, EndpointReporter, LoadReporter, LocalityReporter};

use self::reporter::{ClusterCell, EndpointCell, LocalityCell};
use super::{
    counters::{Counters, DropCounter},
    destination::{Destination, Propagation, ReportKey, Route},
    endpoint_metadata::Assignment,
    lanes::Lanes,
    server_loads::ServerLoads,
    settings::LoadSettings,
    stats::LoadStats,
    weak_map::WeakMap,
};
use crate::{
    config::{Locality, Server},
    resource::{ClusterLoadAssignment, cluster::ReportedMetrics},
};

/// What a client counts and reports, in one place that its handles, its engine and its driver share.
///
/// Its lock is never taken for a call. The driver holds it while it builds a slice of a report.
pub(crate) struct Loads {
    settings: LoadSettings,
    /// Locked by handles when they are made and when they end, and by the driver; see the type.
    state: Mutex<State>,
    /// Whether something has changed for the streams since [`take_changed`](Self::take_changed).
    has_changed: AtomicBool,
    /// Wakes the driver; unset in tests without one.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The identity of a [`ClusterCell`]: handles with equal keys share one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CellKey {
    /// The cluster of this name, reported as its resource configures it.
    Cluster(Arc<str>),
    /// A key that the application reports without CDS (LR1.5).
    Fixed { server: usize, key: ReportKey },
}

/// The state under the lock.
#[derive(Default)]
pub(super) struct State {
    /// The configured reports of clusters. Clusters without load reports have no entry.
    routes: BTreeMap<Arc<str>, Route>,
    /// The endpoints of such clusters in snapshots.
    assignments: WeakMap<Arc<str>, Assignment>,
    /// The cells of clusters that have handles.
    cells: BTreeMap<CellKey, Weak<ClusterCell>>,
    /// The management servers by index, never removed: a client knows those of its bootstrap.
    pub(super) servers: Vec<ServerLoads>,
}

/// The load reports that the resource of a cluster configures, before they have a route.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClusterLoads<'a> {
    /// The server that the cluster came from.
    pub(crate) server: &'a Arc<Server>,
    /// The name of the service at EDS, if the resource has one.
    pub(crate) service: Option<&'a Arc<str>>,
    /// The metrics of backends to report.
    pub(crate) metrics: &'a ReportedMetrics,
}

impl Loads {
    pub(crate) fn new(settings: LoadSettings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            state: Mutex::default(),
            has_changed: AtomicBool::new(false),
            wake: OnceLock::new(),
        })
    }

    pub(super) fn settings(&self) -> &LoadSettings {
        &self.settings
    }

    /// Sets what wakes the driver, which is called from any thread. Only the first one counts.
    pub(crate) fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        // It is set once.
        let _ = self.wake.set(Box::new(wake));
    }

    /// The reporter of the cluster with this name.
    pub(crate) fn reporter(self: &Arc<Self>, cluster: &str) -> LoadReporter {
        self.reporter_of(CellKey::Cluster(cluster.into()))
    }

    /// The reporter of a key, to a server of the bootstrap (LR1.5).
    pub(crate) fn reporter_to(
        self: &Arc<Self>,
        server: &Arc<Server>,
        cluster: &str,
        service: Option<&str>,
    ) -> LoadReporter {
        let server = self.lock().server(server);
        let key = ReportKey { cluster: cluster.into(), service: service.map(Into::into) };
        self.reporter_of(CellKey::Fixed { server, key })
    }

    /// A reporter that counts nothing.
    pub(crate) fn unreported(self: &Arc<Self>) -> LoadReporter {
        // No cluster has this name.
        LoadReporter::new(Arc::new(ClusterCell::new(self.clone(), CellKey::Cluster("".into()))))
    }

    /// The resource of a cluster has changed, or the server that it came from (LR1.3). `None` if its load is not reported, or no more.
    pub(crate) fn set_cluster(&self, cluster: &Arc<str>, loads: Option<ClusterLoads<'_>>) {
        let mut state = self.lock();
        let route = loads.map(|loads| state.route(cluster, loads, &self.settings));
        if state.routes.get(cluster) == route.as_ref() {
            return;
        }
        match route {
            Some(route) => drop(state.routes.insert(cluster.clone(), route)),
            None => drop(state.routes.remove(cluster)),
        }
        let cell = state.cells.get(&CellKey::Cluster(cluster.clone())).and_then(Weak::upgrade);
        if let Some(cell) = cell {
            state.apply(&cell, &self.settings);
            // Released first: the driver that is woken takes the lock at once.
            drop(state);
            self.notify();
        }
    }

    /// A cluster whose load is reported has other endpoints. The next report has their metadata (LR9.5).
    pub(crate) fn set_assignment(&self, cluster: &Arc<str>, endpoints: &Arc<ClusterLoadAssignment>) {
        let (mut state, assignment) = (self.lock(), Assignment::of(endpoints));
        if let Some(destination) = state.routes.get(cluster).map(|route| route.destination.clone()) {
            state.servers[destination.server].set_assignment(&destination.key, &assignment);
        }
        state.assignments.insert(cluster.clone(), assignment);
    }

    /// Whether something has changed for the streams since the last call.
    pub(crate) fn take_changed(&self) -> bool {
        // The load alone is the usual case. The driver asks at each step, and a swap would take the cache line from other cores.
        self.has_changed.load(Ordering::Relaxed) && self.has_changed.swap(false, Ordering::AcqRel)
    }

    /// Something has changed for the streams.
    pub(super) fn notify(&self) {
        // One wake-up until the driver has looked: handles may come and go in thousands at once.
        if !self.has_changed.swap(true, Ordering::AcqRel)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }

    /// Returns the cell of a locality of a cluster, made if no handle has it.
    fn locality(&self, cluster: &Arc<ClusterCell>, locality: &Locality) -> Arc<LocalityCell> {
        let mut state = self.lock();
        if let Some(known) = cluster.parts().localities.get(locality).and_then(Weak::upgrade) {
            return known;
        }
        let cell = Arc::new(LocalityCell::new(cluster.clone(), locality.clone()));
        let mut parts = cluster.parts();
        parts.localities.retain(|_, other| other.strong_count() > 0);
        parts.localities.insert(locality.clone(), Arc::downgrade(&cell));
        drop(parts);
        if let Some(route) = state.route_of(cluster.key()) {
            state.begin_locality(&cell, &route, &self.settings);
        }
        cell
    }

    /// Returns the cell of an endpoint of a locality, made if no handle has it. Counters are made at its first call.
    fn endpoint(&self, locality: &Arc<LocalityCell>, address: SocketAddr) -> Arc<EndpointCell> {
        // The lock of all keeps two threads from making two cells.
        let state = self.lock();
        if let Some(known) = locality.endpoints().get(&address).and_then(Weak::upgrade) {
            return known;
        }
        let cell = Arc::new(EndpointCell::new(locality.clone(), address));
        locality.endpoints().insert(address, Arc::downgrade(&cell));
        drop(state);
        cell
    }

    /// The first call of an endpoint begins.
    #[cold]
    fn begin_endpoint(&self, cell: &EndpointCell) {
        let mut state = self.lock();
        if cell.is_called.load(Ordering::Relaxed) {
            return;
        }
        if let Some(route) = state.route_of(cell.locality.cluster.key()) {
            state.begin_endpoint(cell, &route, &self.settings);
        }
        // Only now, so that another thread with its first call does not find the endpoint without counters.
        cell.is_called.store(true, Ordering::Release);
    }

    /// Returns the counters of a drop category, made if there are none.
    fn category(&self, cluster: &Arc<ClusterCell>, category: &str) -> Arc<Lanes<DropCounter>> {
        let mut state = self.lock();
        if let Some(known) = cluster.parts().categories.get(category) {
            return known.clone();
        }
        let (category, lanes): (Arc<str>, _) = (category.into(), Arc::new(Lanes::new()));
        cluster.parts().categories.insert(category.clone(), lanes.clone());
        if let Some(route) = state.route_of(cluster.key()) {
            state.begin_drops(Some(&category), &lanes, &route, &self.settings);
        }
        lanes
    }

    /// Returns the next report of a cell as it would be now; `None` if it is not reported.
    pub(super) fn stats(&self, key: &CellKey) -> Option<LoadStats> {
        let state = self.lock();
        let Destination { server, key } = &*state.route_of(key)?.destination;
        state.servers.get(*server)?.stats(key)
    }

    /// The localities and endpoints whose counters reports are made of.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> usize {
        self.lock().servers.iter().map(ServerLoads::listed).sum()
    }

    /// Locks the state. A panic of another thread leaves it usable, since each change is complete by itself.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a reporter of a cell, made if no handle has it.
    fn reporter_of(self: &Arc<Self>, key: CellKey) -> LoadReporter {
        let mut state = self.lock();
        if let Some(known) = state.cells.get(&key).and_then(Weak::upgrade) {
            return LoadReporter::new(known);
        }
        let cell = Arc::new(ClusterCell::new(self.clone(), key.clone()));
        state.cells.insert(key, Arc::downgrade(&cell));
        state.apply(&cell, &self.settings);
        drop(state);
        self.notify();
        LoadReporter::new(cell)
    }
}

impl CellKey {
    /// Returns the name of the cluster.
    pub(super) fn cluster(&self) -> &Arc<str> {
        match self {
            Self::Cluster(cluster) | Self::Fixed { key: ReportKey { cluster, .. }, .. } => cluster,
        }
    }
}

impl State {
    /// The index of a server.
    /// Servers that differ in the variant of the protocol alone have one index: a stream of load reports needs their connection, which
    /// they share (LR2.1).
    fn server(&mut self, server: &Arc<Server>) -> usize {
        let known = self.servers.iter().position(|known| known.server.has_connection_of(server));
        known.unwrap_or_else(|| {
            self.servers.push(ServerLoads::new(server.clone()));
            self.servers.len() - 1
        })
    }

    /// Converts a configuration to a route, with the index of its server.
    fn route(&mut self, cluster: &Arc<str>, loads: ClusterLoads<'_>, settings: &LoadSettings) -> Route {
        let ClusterLoads { server, service, metrics } = loads;
        let key = ReportKey { cluster: cluster.clone(), service: service.cloned() };
        Route {
            destination: Arc::new(Destination { server: self.server(server), key }),
            propagation: Propagation::new(metrics, settings.max_metric_names),
        }
    }

    /// Returns the route of a cell; `None` if its load is not reported.
    fn route_of(&self, key: &CellKey) -> Option<Route> {
        match key {
            CellKey::Cluster(name) => self.routes.get(name).cloned(),
            CellKey::Fixed { server, key } => {
                let destination = Arc::new(Destination { server: *server, key: key.clone() });
                Some(Route { destination, propagation: None })
            }
        }
    }

    /// Makes the handles of a cluster count for its present destination, or for none.
    fn apply(&mut self, cell: &ClusterCell, settings: &LoadSettings) {
        let parts = cell.parts();
        let localities: Vec<_> = parts.localities.values().filter_map(Weak::upgrade).collect();
        let Some(route) = self.route_of(cell.key()) else {
            cell.uncategorised.leave();
            parts.categories.values().for_each(|lanes| lanes.leave());
            for locality in localities {
                locality.lanes.leave();
                let endpoints: Vec<_> = locality.endpoints().values().filter_map(Weak::upgrade).collect();
                endpoints.iter().for_each(|endpoint| endpoint.lanes.leave());
            }
            return;
        };
        self.begin_drops(None, &cell.uncategorised, &route, settings);
        for (category, lanes) in parts.categories.iter() {
            self.begin_drops(Some(category), lanes, &route, settings);
        }
        drop(parts);
        for locality in localities {
            self.begin_locality(&locality, &route, settings);
            let endpoints: Vec<_> = locality.endpoints().values().filter_map(Weak::upgrade).collect();
            // Endpoints without a call get no counters: clusters of thousands of endpoints use few of them from one client.
            for endpoint in endpoints.iter().filter(|endpoint| endpoint.is_called.load(Ordering::Relaxed)) {
                self.begin_endpoint(endpoint, &route, settings);
            }
        }
    }

    /// Makes a drop category count for a route.
    fn begin_drops(
        &mut self,
        category: Option<&Arc<str>>,
        lanes: &Lanes<DropCounter>,
        route: &Route,
        settings: &LoadSettings,
    ) {
        let Destination { server, key } = &*route.destination;
        let lane = lanes.switch_to(
            |known| known.is_for(&route.destination),
            || DropCounter::new(route.destination.clone()),
        );
        if let Some(counter) = lane {
            self.servers[*server].key(key).list_drops(category, counter);
            self.servers[*server].bound_departed(key, settings.max_departed);
        }
    }

    /// Makes a locality count for a route.
    fn begin_locality(&mut self, cell: &LocalityCell, route: &Route, settings: &LoadSettings) {
        let Destination { server, key } = &*route.destination;
        if let Some(counters) = switch(&cell.lanes, route, settings) {
            self.servers[*server].key(key).list_locality(&cell.locality, counters);
            self.servers[*server].bound_departed(key, settings.max_departed);
        }
    }

    /// Makes an endpoint count for a route.
    fn begin_endpoint(&mut self, cell: &EndpointCell, route: &Route, settings: &LoadSettings) {
        let Destination { server, key } = &*route.destination;
        if let Some(counters) = switch(&cell.lanes, route, settings) {
            let loads = self.servers[*server].key(key);
            loads.list_endpoint(&cell.locality.locality, cell.address, counters);
            // The key may be new. One that is reported without CDS has no endpoints by EDS.
            if let CellKey::Cluster(name) = cell.locality.cluster.key()
                && let Some(assignment) = self.assignments.get(name)
            {
                loads.set_assignment(assignment);
            }
            self.servers[*server].bound_departed(key, settings.max_departed);
        }
    }

    /// Ends what has no handle any more, and begins the intervals of new keys.
    pub(super) fn sweep(&mut self, settings: &LoadSettings, now: Instant) {
        self.cells.retain(|_, cell| cell.strong_count() > 0);
        for server in &mut self.servers {
            server.sweep(settings.max_residues, now);
        }
    }
}

/// Makes a handle count for a route. Returns its counters if they changed.
fn switch(lanes: &Lanes<Counters>, route: &Route, settings: &LoadSettings) -> Option<Arc<Counters>> {
    let Route { destination, propagation } = route;
    lanes.switch_to(
        |known| known.is_for(destination, propagation.as_ref()),
        || Counters::new(destination.clone(), settings.shards.count(), propagation.clone()),
    )
}

impl fmt::Debug for Loads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loads").field("settings", &self.settings).finish_non_exhaustive()
    }
}
