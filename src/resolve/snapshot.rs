//! All resources of a target at one time, which fit together.

use std::{collections::BTreeSet, fmt, sync::Arc};

use imbl::OrdMap;
#[cfg(any(test, feature = "balance", feature = "fuzzing"))]
use imbl::ordmap::DiffItem;

mod cluster_view;
mod view;

pub use self::{
    cluster_view::{ClusterRef, ClusterView, EndpointView, PriorityView},
    view::{FilterView, RouteView},
};

use super::{cluster_entry::ClusterEntry, query::RouteQuery};
use crate::{
    error::WatchError,
    lrs::Loads,
    resource::{Listener, RouteConfiguration, ScopedRouteConfiguration, VirtualHost},
};

/// The resolved configuration of a target: a listener, its routes, and all clusters of the routes of the virtual host, with
/// their endpoints (A74).
///
/// It is coherent: it contains each cluster of a route, ready or with the reason why it cannot be used, and routes and
/// clusters are of the same time. It is immutable; clones and later snapshots share their common parts.
#[derive(Clone)]
pub struct Snapshot {
    /// The resources from the listener to the routes. Successive snapshots share it while only clusters change.
    pub(super) routing: Arc<RoutingConfig>,
    /// The clusters, which successive snapshots share as far as they are the same. A persistent map: a snapshot costs what has
    /// changed, and a request may keep one for any time.
    pub(super) clusters: OrdMap<Arc<str>, Arc<ClusterEntry>>,
}

/// The tree above the clusters.
///
/// It is made by each pass from the listener down, and compared with the one in use by the addresses of its resources.
#[derive(Debug, Clone)]
pub(crate) struct RoutingConfig {
    /// The target as it was given to `Client::resolve`.
    pub(crate) target: Arc<str>,
    /// The host that chose the virtual host.
    pub(crate) authority: Arc<str>,
    /// The listener, with the filter configurations that it only names. The same allocation as long as neither the listener nor
    /// one of these configurations changes.
    pub(crate) listener: Arc<Listener>,
    /// The scope that leads to the routes, if the listener has such.
    pub(crate) scope: Option<Arc<ScopedRouteConfiguration>>,
    /// The routes.
    pub(crate) routes: Arc<RouteConfiguration>,
    /// The virtual host for the target.
    pub(crate) virtual_host: HostChoice,
    /// The reasons why the listener or the routes may be stale.
    pub(crate) warnings: Vec<WatchError>,
    /// The load counters of the client, for the reporters of clusters.
    pub(crate) loads: Arc<Loads>,
}

/// The selected virtual host.
#[derive(Debug, Clone)]
pub(crate) enum HostChoice {
    /// One of the route configuration, by its index.
    Inline(usize),
    /// A resource by itself, with its requested name. The name tells whether a later pass leads to the same resource.
    OnDemand(Arc<str>, Arc<VirtualHost>),
}

impl Snapshot {
    /// The target as it was given to `Client::resolve`.
    pub fn target(&self) -> &str {
        &self.routing.target
    }

    /// The host that selected the virtual host: the service of the target, unless it was overridden.
    pub fn authority(&self) -> &str {
        &self.routing.authority
    }

    /// The listener.
    pub fn listener(&self) -> &Arc<Listener> {
        &self.routing.listener
    }

    /// The scope of the routes, if the listener has scoped routes (SRDS).
    pub fn scope(&self) -> Option<&Arc<ScopedRouteConfiguration>> {
        self.routing.scope.as_ref()
    }

    /// The route configuration of the listener, with all virtual hosts.
    pub fn route_config(&self) -> &Arc<RouteConfiguration> {
        &self.routing.routes
    }

    /// The virtual host of the target. Its clusters are in the snapshot.
    pub fn virtual_host(&self) -> &VirtualHost {
        self.routing.virtual_host()
    }

    /// The route of a request: the first matching one of the virtual host. Without a matching route, the request fails.
    ///
    /// A request to another [host](super::RouteQuery::with_host) has no route if it belongs to another virtual host, since only
    /// the clusters of one virtual host are subscribed to. Such a host needs a resolution with its own
    /// [authority](crate::config::Target::with_authority).
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use xdskit::resolve::{RouteQuery, Snapshot};
    ///
    /// fn choose(snapshot: &Snapshot, path: &str, random: u64) -> Option<SocketAddr> {
    ///     let route = snapshot.route(&RouteQuery::new(path, random))?;
    ///     let endpoint = route.pick_cluster()?.pick_endpoint(random)?;
    ///     Some(endpoint.address())
    /// }
    /// ```
    pub fn route(&self, query: &RouteQuery<'_>) -> Option<RouteView<'_>> {
        // A28-9; A28-11: `None` fails the request, there is no default route.
        if query.target_host().is_some_and(|host| !self.routing.is_for(host)) {
            return None;
        }
        Some(RouteView::new(self, query.route_in(self.virtual_host())?, query.random_number()))
    }

    /// The cluster of this name, if it is in the snapshot. The snapshot contains the clusters of the routes of the virtual
    /// host, the leaves of aggregates among them, and the clusters that are
    /// subscribed to (`Resolution::subscribe_cluster`).
    pub fn cluster(&self, name: &str) -> Option<ClusterView<'_>> {
        Some(ClusterView::new(self, self.clusters.get(name)?))
    }

    /// The [`cluster`](Self::cluster) of this name as an owned value.
    pub fn cluster_ref(&self, name: &str) -> Option<ClusterRef> {
        self.cluster(name).map(ClusterView::to_ref)
    }

    /// All clusters in the order of their names.
    pub fn clusters(&self) -> impl Iterator<Item = ClusterView<'_>> {
        self.clusters.values().map(|entry| ClusterView::new(self, entry))
    }

    /// The reasons why parts of the snapshot may be stale: of the listener and the routes, then of each cluster and its
    /// endpoints.
    pub fn warnings(&self) -> impl Iterator<Item = &WatchError> {
        self.routing.warnings.iter().chain(self.clusters().flat_map(ClusterView::warnings))
    }
}

/// For channels.
#[cfg(any(test, feature = "balance", feature = "fuzzing"))]
impl Snapshot {
    /// The [`route`](Self::route) of a request to the host of the target, with its place in the virtual host.
    pub(crate) fn route_with_place(&self, query: &RouteQuery<'_>) -> Option<(usize, RouteView<'_>)> {
        let place = query.place_in(self.virtual_host())?;
        let route = self.virtual_host().routes.get(place)?;
        Some((place, RouteView::new(self, route, query.random_number())))
    }

    /// The clusters that the routes of the virtual host lead to, each once.
    pub(crate) fn routed_clusters(&self) -> Vec<Arc<str>> {
        self.routing.clusters()
    }

    /// Whether it has the listener and the routes of another one.
    pub(crate) fn has_routes_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.routing, &other.routing) || self.routing.is_of(&other.routing)
    }

    /// The clusters that another snapshot has not, or not in the same state, or has in addition; in time linear in these, if one
    /// was made from the other.
    ///
    /// Channels translate these alone.
    pub(crate) fn changed_clusters(&self, before: &Self) -> Vec<Arc<str>> {
        let changed = before.clusters.diff(&self.clusters).map(|item| match item {
            DiffItem::Add(name, _) | DiffItem::Remove(name, _) => name,
            DiffItem::Update { new: (name, _), .. } => name,
        });
        changed.cloned().collect()
    }

    /// The listener and the routes, without the clusters.
    pub(crate) fn without_clusters(&self) -> Self {
        Self { routing: self.routing.clone(), clusters: OrdMap::new() }
    }
}

impl RoutingConfig {
    /// The virtual host for the target.
    pub(super) fn virtual_host(&self) -> &VirtualHost {
        match &self.virtual_host {
            HostChoice::Inline(index) => &self.routes.virtual_hosts[*index],
            HostChoice::OnDemand(_, host) => host,
        }
    }

    /// Whether requests for a host take the routes of the virtual host.
    ///
    /// The host of the target is not the only one: a virtual host may have several domains.
    pub(super) fn is_for(&self, host: &str) -> bool {
        let inline = self.routes.virtual_host_index(host);
        match &self.virtual_host {
            HostChoice::Inline(index) => inline == Some(*index),
            HostChoice::OnDemand(_, on_demand) => inline.is_none() && on_demand.fit(host).is_some(),
        }
    }

    /// Whether it is of the same listener and routes as another.
    ///
    /// Warnings do not count: they change nothing for requests, and are published without preparing anything.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        let same_scope = match (&self.scope, &other.scope) {
            (Some(scope), Some(other)) => Arc::ptr_eq(scope, other),
            (scope, other) => scope.is_none() && other.is_none(),
        };
        same_scope
            && Arc::ptr_eq(&self.listener, &other.listener)
            && Arc::ptr_eq(&self.routes, &other.routes)
            && self.virtual_host.is_same(&other.virtual_host)
    }

    /// The clusters that the routes of the virtual host lead to, each once (F4).
    pub(super) fn clusters(&self) -> Vec<Arc<str>> {
        let routes = &self.virtual_host().routes;
        let names: BTreeSet<_> = routes.iter().flat_map(|route| route.action.clusters()).collect();
        names.into_iter().cloned().collect()
    }
}

impl HostChoice {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Inline(index), Self::Inline(other)) => index == other,
            (Self::OnDemand(name, host), Self::OnDemand(others, other)) => {
                name == others && Arc::ptr_eq(host, other)
            }
            (Self::Inline(_), Self::OnDemand(..)) | (Self::OnDemand(..), Self::Inline(_)) => false,
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("target", &self.routing.target)
            .field("listener", &self.routing.listener.name)
            .field("route_config", &self.routing.routes.name)
            .field("virtual_host", &self.virtual_host().name)
            .field("clusters", &self.clusters.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
