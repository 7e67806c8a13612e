//! What calls see: routes and pickers of one time, published together (CH1.19).

#[cfg(any(test, feature = "channel"))]
mod status;
mod subscriptions;
mod unexecuted;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    mem,
    sync::Arc,
    time::Instant,
};

use self::{
    subscriptions::{SubscribedClusters, Subscriptions},
    unexecuted::Unexecuted,
};
use super::{
    balancer::Balancer,
    cluster_use::{ClusterUse, OnUnused},
    clusters::ClusterConfig,
    configs::Translation,
    connectivity::Connectivity,
    pick_args::{CallAttributes, PickArgs},
    picker::{ActivePriority, ClusterPicker, Pick},
    routes::{LookupPlugin, Routes, Selection},
    stale_config::StaleConfig,
};
use crate::{
    error::WatchError,
    filters::Instances,
    resolve::{RouteQuery, Snapshot},
};

/// Routes and pickers. It is immutable.
#[derive(Debug)]
pub(crate) struct Generation<H> {
    routing: Routing,
    /// Indexed by the places of the clusters.
    pickers: Pickers<H>,
    pub(crate) connectivity: Connectivity,
    versions: Versions,
    subscribed: Arc<SubscribedClusters>,
    /// Why the listener or the routes may be stale, for the messages of calls that fail anyway (CH1.9).
    pub(crate) stale_config: Option<Arc<StaleConfig>>,
}

/// How old the parts of a generation are, by the numbers of the generations in which they changed.
#[derive(Debug, Clone, Default)]
struct Versions {
    /// Number of the generation itself.
    number: u64,
    routes: u64,
    /// Indexed by the places of the clusters.
    pickers: imbl::Vector<u64>,
}

/// Generations share what did not change (CH1.25).
type Pickers<H> = imbl::Vector<Option<Arc<ClusterPicker<H>>>>;

#[derive(Debug, Clone)]
enum Routing {
    /// No snapshot has been received yet (CH1.10).
    Waiting,
    /// There is no listener, no route configuration or no virtual host (CH1.8).
    Failed(WatchError),
    Routes(Arc<Routes>),
}

/// The state of a channel, from which generations are made.
pub(crate) struct Generations<H> {
    pub(crate) balancer: Balancer<H>,
    translation: Translation,
    routing: Routing,
    uses: BTreeMap<Arc<str>, Arc<ClusterUse>>,
    /// The clusters of the newest routes.
    routed: BTreeSet<Arc<str>>,
    subscribed: Subscriptions,
    /// The plugins of the routes are others than at the last poll.
    are_plugins_changed: bool,
    pickers: Pickers<H>,
    /// Versions of the last generation, and what has changed since.
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
    /// See [`Generation::stale_config`].
    stale_config: Option<Arc<StaleConfig>>,
    /// What is not executed of the newest listener and its routes.
    unexecuted: Unexecuted,
    /// Instances of the HTTP filters of the newest listener.
    instances: Instances,
}

impl<H> Generation<H> {
    /// Before anything is known.
    pub(crate) fn waiting() -> Self {
        let (pickers, connectivity) = (Pickers::new(), Connectivity::Idle);
        Self {
            routing: Routing::Waiting,
            pickers,
            connectivity,
            versions: Versions::default(),
            subscribed: Arc::default(),
            stale_config: None,
        }
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
        match &self.routing {
            Routing::Waiting => Selection::Wait,
            Routing::Failed(error) => Selection::Fail(error.to_string()),
            Routing::Routes(routes) => routes.select(query),
        }
    }

    /// The cluster of a request among the targets that its plugin has, the preferred one first (RL8).
    pub(crate) fn select_target(
        &self,
        query: &RouteQuery<'_>,
        plugin: &str,
        targets: &[Arc<str>],
    ) -> Selection {
        let Routing::Routes(routes) = &self.routing else { return self.select(query) };
        let connectivity = |place| match self.pickers.get(place) {
            Some(Some(picker)) => picker.connectivity,
            Some(None) | None => Connectivity::Connecting,
        };
        match self.subscribed.choose(targets, connectivity) {
            Some(cluster) => routes.select_target(query, plugin, cluster),
            None => Selection::Wait,
        }
    }

    /// The endpoints of a cluster that have a connection, in the priority in use.
    #[cfg(test)]
    pub(crate) fn ready_endpoints(&self, place: usize) -> usize {
        self.pickers.get(place).and_then(Option::as_ref).map_or(0, |picker| picker.ready_endpoints())
    }

    /// Whether the policy of a cluster looks at the request.
    pub(crate) fn needs_request(&self, place: usize, attributes: &CallAttributes) -> bool {
        self.pickers
            .get(place)
            .and_then(Option::as_ref)
            .is_some_and(|picker| picker.needs_request(attributes))
    }

    /// The priorities of a cluster that are in use.
    #[cfg(feature = "channel")]
    pub(crate) fn priority(&self, place: usize) -> ActivePriority {
        self.pickers.get(place).and_then(Option::as_ref).map(|picker| picker.priority()).unwrap_or_default()
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

impl<H: Clone + Debug> Generations<H> {
    /// A channel for which nothing is known.
    pub(crate) fn new(balancer: Balancer<H>, on_unused: OnUnused) -> Self {
        Self {
            translation: balancer.translation(),
            balancer,
            routing: Routing::Waiting,
            uses: BTreeMap::new(),
            routed: BTreeSet::new(),
            subscribed: Subscriptions::default(),
            are_plugins_changed: false,
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
            stale_config: None,
            unexecuted: Unexecuted::default(),
            instances: Instances::default(),
        }
    }

    /// Whether nothing is known yet: neither routes nor the reason why there are none.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.routing, Routing::Waiting)
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
                // First: compiled routes refer to the clusters in use.
                self.add_clusters(&snapshot.routed_clusters());
                let is_same =
                    matches!(&self.routing, Routing::Routes(it) if it.snapshot().has_routes_of(&snapshot));
                // Most snapshots change endpoints alone, and their routes need not be compiled again (CH1.25).
                if !is_same {
                    let (routes, unexecuted) = Routes::compile(&snapshot, &self.uses, &mut self.instances);
                    self.unexecuted.warn_of_filters(snapshot.target(), unexecuted);
                    self.balancer.set_sessions(routes.have_sessions(), now);
                    self.set_routing(Routing::Routes(Arc::new(routes)));
                }
                self.unexecuted.warn_of_fields(&snapshot);
                self.set_stale_config(StaleConfig::of(snapshot.without_clusters().warnings()));
                self.snapshot = Some(snapshot);
            }
            Err(error) => {
                self.set_routing(Routing::Failed(error));
                // The message of each failing call has the error itself.
                self.stale_config = None;
            }
        }
        self.update(now);
    }

    /// The plugins by which routes look up clusters, if they may be others than the last time.
    pub(crate) fn poll_lookup_plugins(&mut self) -> Option<Vec<LookupPlugin>> {
        mem::take(&mut self.are_plugins_changed).then(|| match &self.routing {
            Routing::Routes(routes) => routes.lookup_plugins(),
            Routing::Waiting | Routing::Failed(_) => Vec::new(),
        })
    }

    /// The application, or the channel for a plugin, refers to a cluster, which stays as long, whether or not routes name it. Calls to it wait until the
    /// snapshot has it (A74-6).
    pub(crate) fn subscribe(&mut self, cluster: Arc<str>, now: Instant) {
        self.subscribed.add(cluster.clone());
        self.add_clusters(&[cluster]);
        self.update_subscribed(now);
    }

    /// The application refers to a cluster once less.
    pub(crate) fn unsubscribe(&mut self, cluster: &Arc<str>, now: Instant) {
        if self.subscribed.remove(cluster) {
            self.update_subscribed(now);
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
        (self.snapshot, self.stale_config, self.instances) = (None, None, Instances::default());
        self.translation = self.balancer.translation();
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
            // The cluster may have been removed since its picker was made.
            let Some(cluster) = self.uses.get(&name) else { continue };
            while self.pickers.len() <= cluster.place() {
                self.pickers.push_back(None);
                self.versions.pickers.push_back(0);
            }
            let connectivity = picker.connectivity;
            let before = self.pickers[cluster.place()].replace(picker);
            let is_same = before.is_some_and(|before| before.connectivity == connectivity);
            // Calls with several targets wait for the state of one of them.
            let is_target = !is_same && self.subscribed.contains(&name);
            // The number of the generation that is made below.
            self.versions.pickers[cluster.place()] = self.versions.number + 1;
            self.is_changed = true;
            if is_target {
                self.wake_for_subscribed();
            }
        }
        if !mem::take(&mut self.is_changed) {
            return None;
        }
        self.versions.number += 1;
        let (routing, pickers, versions) =
            (self.routing.clone(), self.pickers.clone(), self.versions.clone());
        let (connectivity, stale_config) = (self.connectivity(), self.stale_config.clone());
        let subscribed = self.subscribed.clusters().clone();
        Some(Generation { routing, pickers, connectivity, versions, subscribed, stale_config })
    }

    /// The state of the channel (CH3.12).
    fn connectivity(&self) -> Connectivity {
        match &self.routing {
            // A channel without routes yet is resolving them (CH1.3).
            Routing::Waiting => Connectivity::Connecting,
            Routing::Failed(_) => Connectivity::TransientFailure,
            Routing::Routes(routes) => {
                let routed = self.routed.iter().filter_map(|name| self.uses.get(name));
                let looks_up = routes.looks_up();
                let targets = self.subscribed.clusters().places().filter(|_| looks_up);
                let places = routed.map(|cluster| cluster.place()).chain(targets);
                let ranks =
                    places.filter_map(|place| Some(rank(self.pickers.get(place)?.as_ref()?.connectivity)));
                // The targets of a plugin are known with the first call, until which the channel is idle.
                by_rank(ranks.min().or_else(|| looks_up.then(|| rank(Connectivity::Idle))))
            }
        }
    }

    /// Replaces the routes. Clusters that only the routes before named may be unused.
    fn set_routing(&mut self, routing: Routing) {
        self.routed = match &routing {
            Routing::Routes(routes) => routes.snapshot().routed_clusters().into_iter().collect(),
            Routing::Waiting | Routing::Failed(_) => BTreeSet::new(),
        };
        self.versions.routes = self.versions.number + 1;
        (self.routing, self.is_changed, self.may_release) = (routing, true, true);
        self.are_plugins_changed = true;
    }

    /// Sets why the listener or the routes may be stale; a change is published with the next generation.
    fn set_stale_config(&mut self, stale_config: Option<Arc<StaleConfig>>) {
        if self.stale_config != stale_config {
            (self.stale_config, self.is_changed) = (stale_config, true);
        }
    }

    /// Lets generations have the clusters of subscriptions. Calls that wait for one of them select anew.
    fn update_subscribed(&mut self, now: Instant) {
        self.may_release = true;
        self.update(now);
        self.subscribed.update(&self.uses);
        self.wake_for_subscribed();
    }

    /// Has calls that wait for routes select anew with the next generation.
    fn wake_for_subscribed(&mut self) {
        self.versions.routes = self.versions.number + 1;
        self.is_changed = true;
    }

    /// Passes the changes of the snapshot and of the clusters in use to the balancer.
    fn update(&mut self, now: Instant) {
        if mem::take(&mut self.may_release) {
            self.remove_unused();
        }
        // The changes are kept until there is a snapshot to translate.
        let Some(snapshot) = &self.snapshot else { return };
        let (added, removed) = (mem::take(&mut self.added), mem::take(&mut self.removed));
        // Calls to a cluster that the application refers to wait for it.
        let is_unknown =
            |name: &&Arc<str>| snapshot.cluster(name).is_none() && !self.subscribed.contains(name);
        let unknown: Vec<_> = added.iter().filter(is_unknown).cloned().collect();
        let is_used = |name: &str| self.uses.contains_key(name);
        let mut changes = self.translation.translate(snapshot, is_used, (added, removed));
        for (name, _) in changes.targets.iter().filter(|(_, config)| config.is_some()) {
            if let Some(cluster) = self.uses.get(name) {
                cluster.set_resource(snapshot.cluster(name).and_then(|view| view.config()).cloned());
            }
        }
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
            let stays = if routed.contains(name) || subscribed.contains(name) {
                cluster.restore();
                true
            } else {
                // A cluster that calls still refer to stays, and the last of them calls `on_unused` (CH1.22).
                !cluster.retire()
            };
            if !stays {
                removed.push(name.clone());
                free.insert(cluster.place());
                // Calls to the next cluster at this place must not use the picker of this one.
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

    /// Gives each new cluster a place, and leaves its translation to the next update.
    fn add_clusters(&mut self, names: &[Arc<str>]) {
        for name in names {
            if !self.uses.contains_key(name) {
                // Without a free place, the clusters in use have all places below their number.
                let place = self.free_places.pop_first().unwrap_or(self.uses.len());
                self.uses.insert(name.clone(), ClusterUse::new(name.clone(), place, self.on_unused.clone()));
                self.added.push(name.clone());
                self.is_use_changed = true;
            }
        }
    }
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
        // Also without any cluster: no call can be sent.
        _ => Connectivity::TransientFailure,
    }
}

#[cfg(test)]
mod tests;
