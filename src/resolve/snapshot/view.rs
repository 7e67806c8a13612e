//! A route, as applications see it.

use std::time::Duration;

use super::{ClusterView, Snapshot};
use crate::{
    resolve::query::draw,
    resource::{
        cluster_plugin::ClusterPlugin,
        http_filter::{EffectiveFilter, HttpFilter, OverrideSetting},
        listener::HttpConnectionManager,
        retry::RetryPolicy,
        route::Route,
        route_action::{ClusterChoice, ForwardAction, HashPolicy, RouteAction},
    },
};

/// The route of a request, with the settings that apply to the request. Made by [`Snapshot::route`].
///
/// The cluster of a request is picked once; retries use the same cluster.
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
///         println!("filter {}", filter.filter.name);
///     }
///     Some(format!("cluster {}, timeout {timeout:?}, at most {tries} attempts", cluster.name()))
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RouteView<'a> {
    /// The snapshot. Everything that a view returns is borrowed from it.
    snapshot: &'a Snapshot,
    /// The route in it.
    route: &'a Route,
    /// The number of the request. All choices of the request are computed from it, so that a view has no state.
    random: u64,
}

/// An HTTP filter of the listener, with the override of a route and cluster. Made by [`RouteView::filters`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FilterView<'a> {
    /// The filter, with its configuration in the listener.
    pub filter: &'a HttpFilter,
    /// The most specific override, which replaces all others; without one, the configuration of the listener applies.
    pub setting: Option<&'a OverrideSetting>,
}

#[cfg(any(test, feature = "balance", feature = "fuzzing"))]
impl RouteView<'_> {
    /// The place of the chosen cluster among those of a route with [weighted clusters](ClusterChoice::WeightedClusters).
    pub(crate) fn pick_split(
        self,
        weighted: &crate::resource::route_action::WeightedClusters,
    ) -> Option<usize> {
        weighted.pick_place(draw(self.random, SPLIT, weighted.total_weight))
    }
}

impl<'a> RouteView<'a> {
    /// A route of a snapshot that was chosen for a request.
    pub(super) fn new(snapshot: &'a Snapshot, route: &'a Route, random: u64) -> Self {
        Self { snapshot, route, random }
    }

    /// The route itself.
    pub fn route(self) -> &'a Route {
        self.route
    }

    /// Whether the action of the route is for proxies or servers only, such as a redirect, so that requests on it
    /// fail.
    pub fn is_unsupported(self) -> bool {
        // R27: the route is kept, since dropping it would send its requests along a later route.
        self.forward().is_none()
    }

    /// The forwarding action of the route; `None` for a route that [`is_unsupported`](Self::is_unsupported).
    pub fn forward(self) -> Option<&'a ForwardAction> {
        match &self.route.action {
            RouteAction::Forward(forward) => Some(forward),
            RouteAction::NonForwarding | RouteAction::Unsupported(_) => None,
        }
    }

    /// The clusters of the route with their weights, in proportion to the sum of all. A single cluster has the weight 1. An
    /// unsupported route, and one with a [`plugin`](Self::plugin), has no clusters.
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
    /// weights by the random number of the [`RouteQuery`](crate::resolve::RouteQuery::new). Repeated calls return the same cluster.
    ///
    /// `None` for a route that [`is_unsupported`](Self::is_unsupported) or has a [`plugin`](Self::plugin).
    pub fn pick_cluster(self) -> Option<ClusterView<'a>> {
        // A31-3: the choice depends on nothing but the random number of the request, so that retries repeat it.
        match &self.forward()?.clusters {
            ClusterChoice::Cluster(name) => self.snapshot.cluster(name),
            ClusterChoice::WeightedClusters(weighted) => {
                let split = weighted.pick(draw(self.random, SPLIT, weighted.total_weight))?;
                Some(self.snapshot.cluster(&split.name)?.with_overrides(Some(&split.filter_overrides)))
            }
            ClusterChoice::Plugin(_) => None,
        }
    }

    /// The cluster specifier plugin of the application, which picks the cluster of each request; most routes have none.
    ///
    /// The snapshot contains the clusters of a plugin only if other routes name them, or the application
    /// subscribes to them.
    pub fn plugin(self) -> Option<&'a ClusterPlugin> {
        match &self.forward()?.clusters {
            ClusterChoice::Cluster(_) | ClusterChoice::WeightedClusters(_) => None,
            ClusterChoice::Plugin(plugin) => Some(plugin),
        }
    }

    /// The time limit of requests: that of the route, or else of the listener; `None` for no limit.
    pub fn max_stream_duration(self) -> Option<Duration> {
        let route = self.forward().and_then(|forward| forward.max_stream_duration);
        // A31-1: a route's 0 lifts the listener's limit.
        route.or_else(|| self.connection_manager()?.max_stream_duration).filter(|limit| !limit.is_zero())
    }

    /// The timeout of a request: the shorter of the timeout of the application and
    /// [`max_stream_duration`](Self::max_stream_duration); `None` for no limit.
    pub fn timeout(self, application: Option<Duration>) -> Option<Duration> {
        // A31-2.
        [application, self.max_stream_duration()].into_iter().flatten().min()
    }

    /// The retry policy of the route, or else of the virtual host; `None` for no retries.
    pub fn retry_policy(self) -> Option<&'a RetryPolicy> {
        // A44-4: the policies are not merged.
        let route = self.forward()?.retry_policy.as_ref();
        route.or(self.snapshot.virtual_host().retry_policy.as_ref())
    }

    /// The hash policies of requests, for clusters with a consistent-hashing load balancer; without any, the hash is
    /// random.
    pub fn hash_policies(self) -> &'a [HashPolicy] {
        // A42-1: a caller without a result hashes the random number of the request.
        self.forward().map_or(&[], |forward| &forward.hash_policies)
    }

    /// As [`hash_policies`](Self::hash_policies), for as long as the caller needs them; `None` without any.
    #[cfg(any(test, feature = "balance", feature = "fuzzing"))]
    pub(crate) fn shared_hash_policies(self) -> Option<std::sync::Arc<[HashPolicy]>> {
        self.forward().map(|forward| &forward.hash_policies).filter(|policies| !policies.is_empty()).cloned()
    }

    /// Whether the authority of a request is replaced by the hostname of the endpoint (A81).
    pub fn auto_host_rewrite(self) -> bool {
        self.forward().is_some_and(|forward| forward.auto_host_rewrite)
    }

    /// The HTTP filters for requests to a cluster, in order, including disabled ones.
    ///
    /// `cluster` was returned by [`pick_cluster`](Self::pick_cluster) or [`weighted_clusters`](Self::weighted_clusters). An
    /// override of the weighted cluster takes precedence over one of the route, and that over one of the virtual host.
    pub fn filters(self, cluster: ClusterView<'a>) -> impl Iterator<Item = FilterView<'a>> {
        // A39-6.
        let levels = [
            cluster.overrides(),
            &self.route.filter_overrides,
            &self.snapshot.virtual_host().filter_overrides,
        ];
        let filters = self.connection_manager().into_iter().flat_map(|manager| &manager.http_filters);
        filters.map(move |filter| FilterView { filter, setting: filter.winning_override(&levels) })
    }

    /// The settings of the listener for HTTP.
    fn connection_manager(self) -> Option<&'a HttpConnectionManager> {
        self.snapshot.listener().api()
    }
}

impl<'a> FilterView<'a> {
    /// Whether the filter is disabled for this route and cluster.
    pub fn is_disabled(self) -> bool {
        match self.setting {
            None => self.filter.disabled,
            Some(OverrideSetting::Disabled) => true,
            Some(OverrideSetting::Config(_)) => false,
        }
    }

    /// The effective configuration of the filter for this route and cluster.
    pub fn effective(self) -> EffectiveFilter<'a> {
        self.filter.effective(self.setting)
    }
}

/// Keeps the draw of the cluster apart from those of the routes, whose salts are their places in the virtual host. A virtual
/// host has no such place.
const SPLIT: u64 = u64::MAX;

#[cfg(test)]
mod tests;
