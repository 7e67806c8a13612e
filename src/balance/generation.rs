//! What calls see: routes and pickers of one time, published together (CH1.19).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::warn;

use super::{
    balancer::Balancer,
    cluster_use::{ClusterReference, ClusterUse, OnUnused},
    clusters::ClusterConfig,
    configs::Translation,
    connectivity::Connectivity,
    picker::{ClusterPicker, Draws, Pick, PickArgs},
};
use crate::{
    error::WatchError,
    resolve::{RouteQuery, Snapshot},
    resource::{
        VirtualHost,
        http_filter::HttpFilterConfig,
        retry::RetryPolicy,
        route_action::{ClusterChoice, HashPolicy, RouteAction},
    },
};

/// Routes and pickers. It is immutable.
#[derive(Debug)]
pub(crate) struct Generation<H> {
    routing: Routing,
    /// By the places of the clusters.
    pickers: Pickers<H>,
    pub(crate) connectivity: Connectivity,
    versions: Versions,
    /// Why the listener or the routes may be stale, for the messages of calls that fail anyway (CH1.9).
    pub(crate) note: Option<Arc<str>>,
}

/// How old the parts of a generation are, by the numbers of the generations in which they changed.
#[derive(Debug, Clone, Default)]
struct Versions {
    /// That of the generation itself.
    number: u64,
    routes: u64,
    /// By the places of the clusters.
    pickers: imbl::Vector<u64>,
}

/// Generations share what did not change (CH1.25).
type Pickers<H> = imbl::Vector<Option<Arc<ClusterPicker<H>>>>;

#[derive(Debug, Clone)]
enum Routing {
    /// Nothing is known yet (CH1.10).
    Waiting,
    /// There is no listener, no route configuration or no virtual host (CH1.8).
    Failed(WatchError),
    Routes(Arc<Routes>),
}

/// The routes with their clusters.
#[derive(Debug)]
struct Routes {
    /// The snapshot that they are of, without its clusters.
    snapshot: Snapshot,
    /// The clusters of each route.
    clusters: Vec<RouteClusters>,
    /// The retry policy of each route, if any has one.
    retry_policies: Vec<Option<Arc<RetryPolicy>>>,
}

#[derive(Debug)]
enum RouteClusters {
    /// The action is not for clients.
    Unsupported,
    One(Arc<ClusterUse>),
    Weighted(Vec<Arc<ClusterUse>>),
    Plugin(String),
}

/// The result of the selection of a cluster.
#[derive(Debug)]
pub(crate) enum Selection {
    Selected(Selected),
    /// The call waits for the next generation.
    Wait,
    /// As before, but a fail-fast call fails with UNAVAILABLE.
    Fail(String),
    /// The call fails with UNAVAILABLE.
    NoRoute(String),
}

/// The cluster of a call, with what else its route says.
#[derive(Debug)]
pub(crate) struct Selected {
    pub(crate) cluster: ClusterReference,
    /// The time limit of the route, or else of the listener (CH2.13).
    pub(crate) max_stream_duration: Option<Duration>,
    /// The authority is the name of the endpoint (CH2.24).
    pub(crate) auto_host_rewrite: bool,
    /// The retry policy of the route, or else of the virtual host (CH6.1).
    pub(crate) retry_policy: Option<Arc<RetryPolicy>>,
    /// The hash policies of the route, if it has any (CH2.17).
    pub(crate) hash_policies: Option<Arc<[HashPolicy]>>,
}

/// The state of a channel, from which generations are made.
pub(crate) struct Generations<H> {
    pub(crate) balancer: Balancer<H>,
    translation: Translation,
    routing: Routing,
    uses: BTreeMap<Arc<str>, Arc<ClusterUse>>,
    /// The clusters of the newest routes.
    routed: BTreeSet<Arc<str>>,
    /// The clusters that the application refers to, with the numbers of references (CH1.20).
    subscribed: BTreeMap<Arc<str>, usize>,
    pickers: Pickers<H>,
    /// Those of the last generation, and what has changed since.
    versions: Versions,
    free_places: BTreeSet<usize>,
    /// Clusters that are used since the last update of the balancer, and those that are not any more.
    added: Vec<Arc<str>>,
    removed: Vec<Arc<str>>,
    /// Clusters may be unused.
    may_release: bool,
    /// There are other clusters than the last time that they were polled.
    is_use_changed: bool,
    /// The last generation is older than the state.
    is_changed: bool,
    on_unused: OnUnused,
    /// The latest snapshot.
    snapshot: Option<Arc<Snapshot>>,
    /// See [`Generation::note`].
    note: Option<Arc<str>>,
    warned: BTreeSet<String>,
}

impl<H> Generation<H> {
    /// Before anything is known.
    pub(crate) fn waiting() -> Self {
        let (pickers, connectivity) = (Pickers::new(), Connectivity::Idle);
        Self { routing: Routing::Waiting, pickers, connectivity, versions: Versions::default(), note: None }
    }

    /// The number of this generation; later ones have greater numbers, but for those of idle channels, which have 0.
    pub(crate) fn number(&self) -> u64 {
        self.versions.number
    }

    /// The number of the first generation with these routes.
    pub(crate) fn routes_since(&self) -> u64 {
        self.versions.routes
    }

    /// The number of the first generation with this picker of the cluster at a place.
    pub(crate) fn picker_since(&self, place: usize) -> u64 {
        self.versions.pickers.get(place).copied().unwrap_or_default()
    }

    /// The cluster of a request (CH2.3 to CH2.6).
    pub(crate) fn select(&self, query: &RouteQuery<'_>) -> Selection {
        let routes = match &self.routing {
            Routing::Waiting => return Selection::Wait,
            Routing::Failed(error) => return Selection::Fail(error.to_string()),
            Routing::Routes(routes) => routes,
        };
        let Some((place, route)) = routes.snapshot.route_with_place(query) else {
            return Selection::NoRoute(routes.describe("no route matches the request"));
        };
        let cluster = match (&routes.clusters[place], &route.route().action) {
            (RouteClusters::One(cluster), _) => cluster,
            (RouteClusters::Weighted(clusters), RouteAction::Forward(forward)) => {
                let ClusterChoice::WeightedClusters(weighted) = &forward.clusters else {
                    return Selection::Wait;
                };
                match route.pick_split(weighted).and_then(|place| clusters.get(place)) {
                    Some(cluster) => cluster,
                    None => return Selection::Wait,
                }
            }
            (RouteClusters::Plugin(name), _) => {
                return Selection::NoRoute(routes.describe(&format!(
                    "the cluster specifier plugin {name} is not executed by the channel"
                )));
            }
            (RouteClusters::Unsupported | RouteClusters::Weighted(_), _) => {
                let reason = format!("the action of route {:?} is not for clients", route.route().name);
                return Selection::NoRoute(routes.describe(&reason));
            }
        };
        match cluster.hold() {
            Some(cluster) => Selection::Selected(Selected {
                cluster,
                max_stream_duration: route.max_stream_duration(),
                auto_host_rewrite: route.auto_host_rewrite(),
                retry_policy: routes.retry_policies.get(place).cloned().flatten(),
                hash_policies: route.shared_hash_policies(),
            }),
            // It was removed after this generation was published; a newer one is there.
            None => Selection::Wait,
        }
    }

    /// The endpoints of a cluster that have a connection, in the priority in use.
    #[cfg(test)]
    pub(crate) fn ready_endpoints(&self, place: usize) -> usize {
        self.pickers.get(place).and_then(Option::as_ref).map_or(0, |picker| picker.ready_endpoints())
    }

    /// Whether the policy of a cluster looks at the request.
    pub(crate) fn needs_request(&self, place: usize, draws: &Draws) -> bool {
        self.pickers.get(place).and_then(Option::as_ref).is_some_and(|picker| picker.needs_request(draws))
    }

    /// Chooses an endpoint of the cluster that a call has selected, by its place.
    pub(crate) fn pick(&self, place: usize, args: &mut PickArgs<'_, '_>) -> Pick<H> {
        match self.pickers.get(place) {
            Some(Some(picker)) => picker.pick(args),
            // The generation is older than the cluster.
            Some(None) | None => Pick::Queue,
        }
    }
}

impl Routes {
    fn describe(&self, what: &str) -> String {
        let (target, routes) = (self.snapshot.target(), &self.snapshot.route_config().name);
        format!("target {target}, route configuration {routes:?}: {what}")
    }
}

impl<H: Clone + Debug> Generations<H> {
    /// A channel for which nothing is known.
    pub(crate) fn new(balancer: Balancer<H>, on_unused: OnUnused) -> Self {
        Self {
            translation: Translation::new(balancer.ring_size_cap()),
            balancer,
            routing: Routing::Waiting,
            uses: BTreeMap::new(),
            routed: BTreeSet::new(),
            subscribed: BTreeMap::new(),
            pickers: Pickers::new(),
            versions: Versions::default(),
            free_places: BTreeSet::new(),
            added: Vec::new(),
            removed: Vec::new(),
            may_release: false,
            is_use_changed: false,
            is_changed: true,
            on_unused,
            snapshot: None,
            note: None,
            warned: BTreeSet::new(),
        }
    }

    /// The clusters that are in the tree, if there are others than the last time: those of the newest routes, and those that calls
    /// refer to (CH1.20). Their watches are to be kept.
    pub(crate) fn poll_clusters(&mut self) -> Option<BTreeSet<Arc<str>>> {
        mem::take(&mut self.is_use_changed).then(|| self.uses.keys().cloned().collect())
    }

    /// The latest state of the resolution.
    pub(crate) fn handle_resolution(&mut self, resolved: Result<Arc<Snapshot>, WatchError>, now: Instant) {
        match resolved {
            Ok(snapshot) => {
                self.add_clusters(&snapshot.routed_clusters());
                let is_same =
                    matches!(&self.routing, Routing::Routes(it) if it.snapshot.has_routes_of(&snapshot));
                if !is_same {
                    self.set_routing(Routing::Routes(Arc::new(self.compile(&snapshot))));
                    self.warn_of_filters(&snapshot);
                }
                self.set_note(snapshot.without_clusters().warnings());
                self.snapshot = Some(snapshot);
            }
            Err(error) => {
                self.set_routing(Routing::Failed(error));
                self.note = None;
            }
        }
        self.update(now);
    }

    /// The application refers to a cluster, which stays as long, whether or not routes name it. Calls to it wait until the
    /// snapshot has it (A74-6).
    pub(crate) fn subscribe(&mut self, cluster: Arc<str>, now: Instant) {
        *self.subscribed.entry(cluster.clone()).or_default() += 1;
        self.add_clusters(&[cluster]);
        self.may_release = true;
        self.update(now);
    }

    /// The application refers to a cluster once less.
    pub(crate) fn unsubscribe(&mut self, cluster: &Arc<str>, now: Instant) {
        if let Some(references) = self.subscribed.get_mut(cluster) {
            *references -= 1;
            if *references == 0 {
                self.subscribed.remove(cluster);
                self.may_release = true;
                self.update(now);
            }
        }
    }

    /// Calls may have let go of clusters that no route names any more (CH1.23).
    pub(crate) fn release_unused(&mut self, now: Instant) {
        self.may_release = true;
        self.update(now);
    }

    /// Forgets everything, as the channel becomes idle (CH1.29).
    pub(crate) fn clear(&mut self, now: Instant) {
        self.set_routing(Routing::Waiting);
        (self.snapshot, self.note) = (None, None);
        self.translation = Translation::new(self.balancer.ring_size_cap());
        self.update(now);
        (self.added, self.removed) = (Vec::new(), Vec::new());
        self.balancer.close(now);
        // Connections end when nothing refers to them any more, a cluster that a call still refers to included.
        (self.pickers, self.versions.pickers) = Default::default();
        // The watches of those that stay begin anew.
        self.is_use_changed = true;
    }

    /// The current routes and pickers, if they are others than the last time.
    pub(crate) fn poll_generation(&mut self, now: Instant) -> Option<Generation<H>> {
        while let Some((name, picker)) = self.balancer.poll_picker(now) {
            let Some(cluster) = self.uses.get(&name) else { continue };
            while self.pickers.len() <= cluster.place() {
                self.pickers.push_back(None);
                self.versions.pickers.push_back(0);
            }
            self.pickers[cluster.place()] = Some(picker);
            self.versions.pickers[cluster.place()] = self.versions.number + 1;
            self.is_changed = true;
        }
        if !mem::take(&mut self.is_changed) {
            return None;
        }
        self.versions.number += 1;
        let (routing, pickers, versions) =
            (self.routing.clone(), self.pickers.clone(), self.versions.clone());
        let (connectivity, note) = (self.connectivity(), self.note.clone());
        Some(Generation { routing, pickers, connectivity, versions, note })
    }

    /// The state of the channel (CH3.12).
    fn connectivity(&self) -> Connectivity {
        match &self.routing {
            Routing::Waiting => Connectivity::Connecting,
            Routing::Failed(_) => Connectivity::TransientFailure,
            Routing::Routes(_) => {
                let places = self.routed.iter().filter_map(|name| self.uses.get(name)).map(|it| it.place());
                let pickers = places.filter_map(|place| self.pickers.get(place)?.as_ref());
                by_rank(pickers.map(|picker| rank(picker.connectivity)).min())
            }
        }
    }

    fn set_routing(&mut self, routing: Routing) {
        self.routed = match &routing {
            Routing::Routes(routes) => routes.snapshot.routed_clusters().into_iter().collect(),
            Routing::Waiting | Routing::Failed(_) => BTreeSet::new(),
        };
        self.versions.routes = self.versions.number + 1;
        (self.routing, self.is_changed, self.may_release) = (routing, true, true);
    }

    fn set_note<'a>(&mut self, warnings: impl Iterator<Item = &'a WatchError>) {
        let note = warnings.map(ToString::to_string).reduce(|one, other| format!("{one}; {other}"));
        if self.note.as_deref() != note.as_deref() {
            (self.note, self.is_changed) = (note.map(Arc::from), true);
        }
    }

    fn update(&mut self, now: Instant) {
        if mem::take(&mut self.may_release) {
            self.remove_unused();
        }
        let Some(snapshot) = &self.snapshot else { return };
        let (added, removed) = (mem::take(&mut self.added), mem::take(&mut self.removed));
        // Calls to a cluster that the application refers to wait for it.
        let is_unknown =
            |name: &&Arc<str>| snapshot.cluster(name).is_none() && !self.subscribed.contains_key(*name);
        let unknown: Vec<_> = added.iter().filter(is_unknown).cloned().collect();
        let is_used = |name: &str| self.uses.contains_key(name);
        let mut changes = self.translation.translate(snapshot, is_used, (added, removed));
        for name in unknown {
            let reason = format!("cluster {name} is not in the configuration").into();
            changes.targets.push((name, Some(ClusterConfig::Unknown(reason))));
        }
        self.balancer.update(changes, now);
    }

    /// Removes the clusters that neither routes nor calls need (CH1.23).
    fn remove_unused(&mut self) {
        let (routed, free, pickers) = (&self.routed, &mut self.free_places, &mut self.pickers);
        let (before, removed, subscribed) = (self.uses.len(), &mut self.removed, &self.subscribed);
        self.uses.retain(|name, cluster| {
            let stays = if routed.contains(name) || subscribed.contains_key(name) {
                cluster.restore();
                true
            } else {
                !cluster.retire()
            };
            if !stays {
                removed.push(name.clone());
                free.insert(cluster.place());
                if let Some(picker) = pickers.get_mut(cluster.place()) {
                    *picker = None;
                }
            }
            stays
        });
        if self.uses.len() != before {
            (self.is_use_changed, self.is_changed) = (true, true);
        }
    }

    fn add_clusters(&mut self, names: &[Arc<str>]) {
        for name in names {
            if !self.uses.contains_key(name) {
                let place = self.free_places.pop_first().unwrap_or(self.uses.len());
                self.uses.insert(name.clone(), ClusterUse::new(name.clone(), place, self.on_unused.clone()));
                self.added.push(name.clone());
                self.is_use_changed = true;
            }
        }
    }

    fn compile(&self, snapshot: &Snapshot) -> Routes {
        let cluster = |name: &Arc<str>| self.uses[name].clone();
        let routes = snapshot.virtual_host().routes.iter().map(|route| match &route.action {
            RouteAction::Forward(forward) => match &forward.clusters {
                ClusterChoice::Cluster(name) => RouteClusters::One(cluster(name)),
                ClusterChoice::WeightedClusters(weighted) => {
                    RouteClusters::Weighted(weighted.clusters.iter().map(|it| cluster(&it.name)).collect())
                }
                ClusterChoice::Plugin(plugin) => RouteClusters::Plugin(plugin.name.to_string()),
            },
            RouteAction::NonForwarding | RouteAction::Unsupported => RouteClusters::Unsupported,
        });
        let retry_policies = retry_policies(snapshot.virtual_host());
        Routes { clusters: routes.collect(), retry_policies, snapshot: snapshot.without_clusters() }
    }

    /// Logs once what is configured and not executed.
    fn warn_of_filters(&mut self, snapshot: &Snapshot) {
        let target = snapshot.target();
        let filters = snapshot.listener().api().into_iter().flat_map(|it| &it.http_filters);
        for filter in filters.filter(|it| !matches!(it.config, HttpFilterConfig::Router)) {
            if self.warned.insert(filter.name.to_string()) {
                let filter = &filter.name;
                warn!(target, %filter, "the channel does not execute a part of the configuration: HTTP filter");
            }
        }
    }
}

/// The retry policy of each route, or of none. A policy of a route hides that of the virtual host, even one that retries nothing
/// (CH6.1).
fn retry_policies(host: &VirtualHost) -> Vec<Option<Arc<RetryPolicy>>> {
    let common = host.retry_policy.clone().map(Arc::new);
    let policies = host.routes.iter().map(|route| match &route.action {
        RouteAction::Forward(forward) => forward.retry_policy.clone().map(Arc::new).or(common.clone()),
        RouteAction::NonForwarding | RouteAction::Unsupported => None,
    });
    let policies: Vec<_> =
        policies.map(|policy| policy.filter(|policy| !policy.retry_on.is_empty())).collect();
    if policies.iter().any(Option::is_some) { policies } else { Vec::new() }
}

/// The order in which states of clusters make that of the channel (CH3.12).
fn rank(connectivity: Connectivity) -> u8 {
    match connectivity {
        Connectivity::Ready => 0,
        Connectivity::Connecting => 1,
        Connectivity::Idle => 2,
        Connectivity::TransientFailure => 3,
    }
}

fn by_rank(rank: Option<u8>) -> Connectivity {
    match rank {
        Some(0) => Connectivity::Ready,
        Some(1) => Connectivity::Connecting,
        Some(2) => Connectivity::Idle,
        _ => Connectivity::TransientFailure,
    }
}

#[cfg(test)]
mod tests;
