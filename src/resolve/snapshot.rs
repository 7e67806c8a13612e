use std::{collections::BTreeSet, fmt, sync::Arc};

use imbl::OrdMap;
#[cfg(any(test, feature = "channel", feature = "fuzzing"))]
use imbl::ordmap::DiffItem;

use super::cluster_entry::ClusterEntry;
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
    pub(super) routing: Arc<RoutingConfig>,
    pub(super) clusters: OrdMap<Arc<str>, Arc<ClusterEntry>>,
}

/// The tree above the clusters.
#[derive(Debug, Clone)]
pub(crate) struct RoutingConfig {
    /// The target as it was given to `Client::resolve`.
    pub(crate) target: Arc<str>,
    /// The host that chose the virtual host.
    pub(crate) authority: Arc<str>,
    pub(crate) listener: Arc<Listener>,
    /// The scope that leads to the routes, if the listener has such.
    pub(crate) scope: Option<Arc<ScopedRouteConfiguration>>,
    pub(crate) routes: Arc<RouteConfiguration>,
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
    /// A resource by itself, with its requested name.
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
}

/// For channels.
#[cfg(any(test, feature = "channel", feature = "fuzzing"))]
impl Snapshot {
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
    pub(super) fn virtual_host(&self) -> &VirtualHost {
        match &self.virtual_host {
            HostChoice::Inline(index) => &self.routes.virtual_hosts[*index],
            HostChoice::OnDemand(_, host) => host,
        }
    }

    /// Whether requests for a host take the routes of the virtual host.
    pub(super) fn is_for(&self, host: &str) -> bool {
        let inline = self.routes.virtual_host_index(host);
        match &self.virtual_host {
            HostChoice::Inline(index) => inline == Some(*index),
            HostChoice::OnDemand(_, on_demand) => inline.is_none() && on_demand.fit(host).is_some(),
        }
    }

    /// Whether it is of the same listener and routes as another.
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
