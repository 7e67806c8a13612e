use std::time::Duration;

use super::{
    cluster_view::ClusterView,
    query::{RouteQuery, draw},
    snapshot::Snapshot,
};
use crate::resource::{
    cluster_plugin::ClusterPlugin,
    http_filter::{EffectiveFilter, HttpFilter, OverrideSetting},
    listener::HttpConnectionManager,
    retry::RetryPolicy,
    route::Route,
    route_action::{ClusterChoice, ForwardAction, HashPolicy, RouteAction},
};

/// A route that a request takes, with all that the snapshot says of requests on it. Made by [`Snapshot::route`].
///
/// Clusters are chosen once for a request; its retries stay with the choice (A31-3).
///
/// ```
/// use std::time::Duration;
/// use xdskit::resolve::{RouteQuery, Snapshot};
///
/// fn plan(snapshot: &Snapshot, path: &str, random: u64) -> Option<String> {
///     let route = snapshot.route(&RouteQuery::new(path, random))?;
///     let cluster = route.pick_cluster()?;
///     let timeout = route.timeout(Some(Duration::from_secs(10)));
///     let tries = 1 + route.retry_policy().map_or(0, |policy| policy.num_retries);
///     for filter in route.filters(cluster).filter(|filter| !filter.is_disabled()) {
///         println!("passes {}", filter.filter.name);
///     }
///     Some(format!("to {} within {timeout:?} in {tries} tries", cluster.name()))
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RouteView<'a> {
    snapshot: &'a Snapshot,
    route: &'a Route,
    /// The number of the request.
    random: u64,
}

/// An HTTP filter of the listener, as it is for one route and cluster. Made by [`RouteView::filters`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FilterView<'a> {
    /// The filter, with its configuration in the listener.
    pub filter: &'a HttpFilter,
    /// What the most specific override says, which replaces all others; `None` leaves the filter as in the listener.
    pub setting: Option<&'a OverrideSetting>,
}

impl Snapshot {
    /// The route that a request takes: the first one of the virtual host that matches (A28-9); `None` if none does, and
    /// then the request fails (A28-11).
    ///
    /// A request to another host has no route here if another virtual host is the best for it: clusters of other virtual
    /// hosts are not subscribed to, so resolve a target of that authority.
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
        if query.target_host().is_some_and(|host| !self.routing.is_for(host)) {
            return None;
        }
        Some(RouteView::new(self, query.route_in(self.virtual_host())?, query.random_number()))
    }
}

impl<'a> RouteView<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, route: &'a Route, random: u64) -> Self {
        Self { snapshot, route, random }
    }

    /// The route as the server sent it.
    pub fn route(self) -> &'a Route {
        self.route
    }

    /// Whether the route has no clusters, so that requests on it fail (R27): it does what only proxies and servers do.
    pub fn is_unsupported(self) -> bool {
        self.forward().is_none()
    }

    /// How requests are sent on; `None` for a route that [`is_unsupported`](Self::is_unsupported).
    pub fn forward(self) -> Option<&'a ForwardAction> {
        match &self.route.action {
            RouteAction::Forward(forward) => Some(forward),
            RouteAction::NonForwarding | RouteAction::Unsupported => None,
        }
    }

    /// The clusters of the route, each with its weight: the cluster's part of the requests in proportion to the sum of all.
    /// A route with one cluster gives it a weight of 1; one that is unsupported, or leaves the choice to a
    /// [`plugin`](Self::plugin), has none.
    pub fn weighted_clusters(self) -> impl Iterator<Item = (u32, ClusterView<'a>)> {
        let (one, several) = match self.forward().map(|forward| &forward.clusters) {
            Some(ClusterChoice::Cluster(name)) => (Some(name), None),
            Some(ClusterChoice::WeightedClusters(weighted)) => (None, Some(weighted)),
            Some(ClusterChoice::Plugin(_)) | None => (None, None),
        };
        let one = one.into_iter().filter_map(move |name| Some((1, self.snapshot.cluster(name)?)));
        let several = several.into_iter().flat_map(|weighted| &weighted.clusters).filter_map(move |split| {
            let cluster = self.snapshot.cluster(&split.name)?;
            Some((split.weight, cluster.with_overrides(Some(&split.filter_overrides))))
        });
        one.chain(several)
    }

    /// The cluster for the request: one of the [`weighted_clusters`](Self::weighted_clusters), chosen in proportion to the
    /// weights by the random number of the [`RouteQuery`](super::RouteQuery::new). Repeated calls return the same cluster.
    ///
    /// `None` for a route that [`is_unsupported`](Self::is_unsupported) or has a [`plugin`](Self::plugin).
    pub fn pick_cluster(self) -> Option<ClusterView<'a>> {
        match &self.forward()?.clusters {
            ClusterChoice::Cluster(name) => self.snapshot.cluster(name),
            ClusterChoice::WeightedClusters(weighted) => {
                let split = weighted.pick(draw(self.random, SPLIT, weighted.total_weight))?;
                Some(self.snapshot.cluster(&split.name)?.with_overrides(Some(&split.filter_overrides)))
            }
            ClusterChoice::Plugin(_) => None,
        }
    }

    /// The plugin of the application that chooses the cluster of each request; most routes have none.
    ///
    /// What it chooses is not in the snapshot unless other routes lead there: the application watches those clusters itself.
    pub fn plugin(self) -> Option<&'a ClusterPlugin> {
        match &self.forward()?.clusters {
            ClusterChoice::Cluster(_) | ClusterChoice::WeightedClusters(_) => None,
            ClusterChoice::Plugin(plugin) => Some(plugin),
        }
    }

    /// The longest time that a request may take: the route's, or else the listener's (A31-1); `None` is without a limit.
    pub fn max_stream_duration(self) -> Option<Duration> {
        let route = self.forward().and_then(|forward| forward.max_stream_duration);
        // A route's 0 lifts the listener's limit.
        route.or_else(|| self.connection_manager()?.max_stream_duration).filter(|limit| !limit.is_zero())
    }

    /// The timeout of a request for which the application wants this one: the shorter of it and
    /// [`max_stream_duration`](Self::max_stream_duration) (A31-2); `None` is without a limit.
    pub fn timeout(self, application: Option<Duration>) -> Option<Duration> {
        [application, self.max_stream_duration()].into_iter().flatten().min()
    }

    /// When requests are tried again: as the route says, or else the virtual host (A44-4); `None` is never.
    pub fn retry_policy(self) -> Option<&'a RetryPolicy> {
        let route = self.forward()?.retry_policy.as_ref();
        route.or(self.snapshot.virtual_host().retry_policy.as_ref())
    }

    /// How the hash of a request is computed, for clusters that choose endpoints by it; without any, it is random (A42-1).
    pub fn hash_policies(self) -> &'a [HashPolicy] {
        self.forward().map_or(&[], |forward| &forward.hash_policies)
    }

    /// Whether the authority of a request becomes the endpoint's hostname (A81).
    pub fn auto_host_rewrite(self) -> bool {
        self.forward().is_some_and(|forward| forward.auto_host_rewrite)
    }

    /// The HTTP filters that requests to a cluster go through, in order, those that are disabled among them.
    ///
    /// `cluster` is one that [`pick_cluster`](Self::pick_cluster) or [`weighted_clusters`](Self::weighted_clusters) gave. Where the split to it overrides a filter,
    /// that wins over the route, and the route wins over the virtual host (A39-6).
    pub fn filters(self, cluster: ClusterView<'a>) -> impl Iterator<Item = FilterView<'a>> {
        let levels = [
            cluster.overrides(),
            &self.route.filter_overrides,
            &self.snapshot.virtual_host().filter_overrides,
        ];
        let filters = self.connection_manager().into_iter().flat_map(|manager| &manager.http_filters);
        filters.map(move |filter| FilterView { filter, setting: filter.winning_override(&levels) })
    }

    fn connection_manager(self) -> Option<&'a HttpConnectionManager> {
        self.snapshot.listener().api()
    }
}

impl<'a> FilterView<'a> {
    /// Whether the filter is disabled here.
    pub fn is_disabled(self) -> bool {
        match self.setting {
            None => self.filter.disabled,
            Some(OverrideSetting::Disabled) => true,
            Some(OverrideSetting::Config(_)) => false,
        }
    }

    /// What the filter does here.
    pub fn effective(self) -> EffectiveFilter<'a> {
        self.filter.effective(self.setting)
    }
}

/// Keeps the draw of the cluster apart from those of the routes, whose salts are their places in the virtual host.
const SPLIT: u64 = u64::MAX;

#[cfg(test)]
mod tests;
