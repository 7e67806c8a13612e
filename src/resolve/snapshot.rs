use std::{fmt, sync::Arc};

use imbl::OrdMap;

use crate::{
    error::WatchError,
    resource::{
        Cluster, ClusterLoadAssignment, Listener, RouteConfiguration, ScopedRouteConfiguration, VirtualHost,
    },
};

/// The resolved configuration of a target: a listener, its routes, and all clusters of the routes of the virtual host, with
/// their endpoints (A74).
///
/// It is coherent: it contains each cluster of a route, ready or with the reason why it cannot be used, and routes and
/// clusters are of the same time. It is immutable; clones and later snapshots share their common parts.
#[derive(Clone)]
pub struct Snapshot {
    pub(super) stem: Arc<RoutingConfig>,
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
    /// Why the listener or the routes may be stale.
    pub(crate) warnings: Vec<WatchError>,
}

/// Which virtual host it is.
#[derive(Debug, Clone)]
pub(crate) enum HostChoice {
    /// One of the route configuration, by its index.
    Inline(usize),
    /// A resource by itself, with the name that it was asked for by.
    OnDemand(Arc<str>, Arc<VirtualHost>),
}

/// What is known of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct ClusterEntry {
    pub(crate) name: Arc<str>,
    /// `None` if there is no such cluster; `error` says why.
    pub(crate) config: Option<Arc<Cluster>>,
    /// Why nothing can be sent to it, as far as the cluster itself is the reason.
    pub(crate) error: Option<WatchError>,
    /// Why `config` may be stale.
    pub(crate) warning: Option<WatchError>,
    /// Of an aggregate, and of a cluster whose endpoints are not known, there are none.
    pub(crate) endpoints: Option<Arc<ClusterLoadAssignment>>,
    /// Why `endpoints` are missing, or may be stale.
    pub(crate) note: Option<WatchError>,
    /// The clusters that an aggregate's requests are sent to, the preferred ones first.
    pub(crate) leaves: Arc<[Arc<str>]>,
}

impl Snapshot {
    /// The target as it was given to `Client::resolve`.
    pub fn target(&self) -> &str {
        &self.stem.target
    }

    /// The host that selected the virtual host: the service of the target, unless it was overridden.
    pub fn authority(&self) -> &str {
        &self.stem.authority
    }

    /// The listener.
    pub fn listener(&self) -> &Arc<Listener> {
        &self.stem.listener
    }

    /// The scope of the routes, if the listener has scoped routes (SRDS).
    pub fn scope(&self) -> Option<&Arc<ScopedRouteConfiguration>> {
        self.stem.scope.as_ref()
    }

    /// The route configuration of the listener, with all virtual hosts.
    pub fn route_config(&self) -> &Arc<RouteConfiguration> {
        &self.stem.routes
    }

    /// The virtual host of the target. Its clusters are in the snapshot.
    pub fn virtual_host(&self) -> &VirtualHost {
        self.stem.virtual_host()
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
}

impl HostChoice {
    pub(super) fn is_same(&self, other: &Self) -> bool {
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
            .field("target", &self.stem.target)
            .field("listener", &self.stem.listener.name)
            .field("route_config", &self.stem.routes.name)
            .field("virtual_host", &self.virtual_host().name)
            .field("clusters", &self.clusters.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
