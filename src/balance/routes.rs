//! The routes of a configuration, each with its clusters (CH2.3 to CH2.6).

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Duration,
};

use super::cluster_use::{ClusterReference, ClusterUse};
use crate::{
    escape::{PEER_TEXT, cut},
    filters::{ChainCompiler, FilterChain, Instances},
    resolve::{RouteQuery, RouteView, Snapshot},
    resource::{
        http_filter::FilterOverride,
        retry::RetryPolicy,
        route::Route,
        route_action::{ClusterChoice, HashPolicy, RouteAction},
        route_lookup::RouteLookup,
    },
};

/// The routes of the virtual host of a channel, compiled when they change.
#[derive(Debug)]
pub(super) struct Routes {
    /// The snapshot that they are of, without its clusters.
    snapshot: Snapshot,
    /// Indexed by the places in the virtual host.
    routes: Vec<CompiledRoute>,
}

/// What calls on a route need of it.
#[derive(Debug)]
struct CompiledRoute {
    clusters: RouteClusters,
    /// See [`Selected::retry_policy`].
    retry_policy: Option<Arc<RetryPolicy>>,
}

/// The clusters of a route, or the reason why there are none.
#[derive(Debug)]
enum RouteClusters {
    /// The action is not for clients. This is its name.
    Unsupported(&'static str),
    One(RoutedCluster),
    Weighted(Vec<RoutedCluster>),
    /// The lookup service of a plugin chooses the cluster.
    Lookup(RoutedLookup),
    /// A cluster specifier plugin of this name, which channels do not execute.
    Plugin(String),
}

/// A plugin of a route that is executed.
#[derive(Debug)]
struct RoutedLookup {
    plugin: LookupPlugin,
    /// See [`Selected::filters`].
    filters: Option<Arc<FilterChain>>,
}

/// A plugin by which routes look up the clusters of calls.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LookupPlugin {
    /// The name in the route configuration.
    pub(crate) name: Arc<str>,
    pub(crate) config: Arc<RouteLookup>,
    /// The host of the calls, for the keys.
    pub(crate) host: Arc<str>,
}

/// A cluster of a route.
#[derive(Debug)]
struct RoutedCluster {
    cluster: Arc<ClusterUse>,
    /// See [`Selected::filters`].
    filters: Option<Arc<FilterChain>>,
    /// Its weight is not 0: a session may be there.
    is_drawn: bool,
}

/// The result of the selection of a cluster.
#[derive(Debug)]
pub(crate) enum Selection {
    Selected(Selected),
    /// The plugin of this name has the targets of the call, among which [`Generation::select_target`] selects.
    ///
    /// [`Generation::select_target`]: super::generation::Generation::select_target
    Lookup(Arc<str>),
    /// The call waits for the next generation.
    Wait,
    /// A fail-fast call fails with UNAVAILABLE, and others wait for the next generation.
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
    /// The HTTP filters for requests on the route to the cluster (CH5.1); `None` without any.
    pub(crate) filters: Option<Arc<FilterChain>>,
    /// The other clusters of the route, if the filters keep sessions: the cookie may lead to one of them (CH8.4).
    pub(crate) others: Vec<ClusterReference>,
}

impl Routes {
    /// Compiles the routes of a snapshot, and returns with them the names of the HTTP filters that have an effect on them and are not
    /// executed. All clusters that the routes name are in use.
    pub(super) fn compile<'a>(
        snapshot: &'a Snapshot,
        uses: &BTreeMap<Arc<str>, Arc<ClusterUse>>,
        instances: &mut Instances,
    ) -> (Self, BTreeSet<&'a str>) {
        let host = snapshot.virtual_host();
        let common = host.retry_policy.clone().map(Arc::new);
        let filters = snapshot.listener().api().map_or(&[][..], |manager| &manager.http_filters);
        let mut chains =
            ChainCompiler::new(filters, &host.filter_overrides).with_instances(mem::take(instances));
        let authority = snapshot.authority();
        let routes = host.routes.iter().map(|route| CompiledRoute {
            clusters: RouteClusters::compile(route, uses, authority, &mut chains),
            retry_policy: retry_policy(route, common.as_ref()),
        });
        // The clusters of an older snapshot must not be kept in memory by the routes.
        let routes = Self { routes: routes.collect(), snapshot: snapshot.without_clusters() };
        *instances = chains.take_instances();
        (routes, chains.into_unexecuted())
    }

    /// The snapshot that they are of, without its clusters.
    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Whether calls on some of them have sessions.
    pub(super) fn have_sessions(&self) -> bool {
        self.routes.iter().any(|route| {
            route.clusters.all().iter().any(RoutedCluster::has_session)
                || route.clusters.lookup().is_some_and(RoutedLookup::has_session)
        })
    }

    /// Whether plugins look up the clusters of some of them.
    pub(super) fn looks_up(&self) -> bool {
        self.routes.iter().any(|route| route.clusters.lookup().is_some())
    }

    /// The plugins by which they look up clusters, each once.
    pub(super) fn lookup_plugins(&self) -> Vec<LookupPlugin> {
        let plugins = self.routes.iter().filter_map(|route| route.clusters.lookup());
        // The names are unique in a route configuration.
        let by_name: BTreeMap<_, _> = plugins.map(|lookup| (&lookup.plugin.name, &lookup.plugin)).collect();
        by_name.into_values().cloned().collect()
    }

    /// The cluster of a request.
    pub(super) fn select(&self, query: &RouteQuery<'_>) -> Selection {
        let Some((place, route)) = self.snapshot.route_with_place(query) else {
            return Selection::NoRoute(self.describe(&self.no_match(query.path())));
        };
        let compiled = &self.routes[place];
        let routed = match &compiled.clusters {
            RouteClusters::One(routed) => Some(routed),
            RouteClusters::Weighted(clusters) => drawn(route).and_then(|place| clusters.get(place)),
            RouteClusters::Lookup(lookup) => return Selection::Lookup(lookup.plugin.name.clone()),
            RouteClusters::Plugin(name) => {
                return Selection::NoRoute(self.describe(&format!(
                    "the cluster specifier plugin {name} is not executed by the channel"
                )));
            }
            RouteClusters::Unsupported(action) => {
                let (name, path) = (&route.route().name, cut(query.path(), PEER_TEXT));
                return Selection::NoRoute(self.describe(&format!(
                    "the action of route {name:?} for the path {path:?} is {action}, which is not for clients"
                )));
            }
        };
        let held = |routed: &RoutedCluster| {
            Some((routed.cluster.hold()?, routed.filters.clone(), compiled.clusters.others(routed)?))
        };
        match routed.and_then(held) {
            Some((cluster, filters, others)) => {
                Selection::Selected(Selected { others, ..compiled.selected(route, cluster, filters) })
            }
            // It was removed after this generation was published; a newer one is there.
            None => Selection::Wait,
        }
    }

    /// The selection of a request for which a plugin has chosen a cluster; as by [`select`](Self::select) if its route has another
    /// plugin or none.
    pub(super) fn select_target(
        &self,
        query: &RouteQuery<'_>,
        plugin: &str,
        cluster: &Arc<ClusterUse>,
    ) -> Selection {
        let routed = self.snapshot.route_with_place(query).and_then(|(place, route)| {
            let compiled = &self.routes[place];
            let lookup = compiled.clusters.lookup().filter(|lookup| &*lookup.plugin.name == plugin)?;
            Some((compiled, route, lookup))
        });
        let Some((compiled, route, lookup)) = routed else { return self.select(query) };
        match cluster.hold() {
            Some(cluster) => Selection::Selected(compiled.selected(route, cluster, lookup.filters.clone())),
            None => Selection::Wait,
        }
    }

    /// Why a request has no route, with the routes that could have matched if clients executed them.
    fn no_match(&self, path: &str) -> String {
        let host = self.snapshot.virtual_host();
        let (routes, path) = (host.routes.len(), cut(path, PEER_TEXT));
        let mut counts = BTreeMap::new();
        for omitted in &host.omitted_routes {
            *counts.entry(omitted.field).or_insert(0) += 1;
        }
        let text =
            format!("no route matches the path {path:?} and the headers of the request ({routes} routes");
        match counts.len() {
            0 => format!("{text})"),
            _ => {
                let counts: Vec<_> =
                    counts.iter().map(|(field, count)| format!("{count} for {field}")).collect();
                let omitted = host.omitted_routes.len();
                format!("{text}, and {omitted} that clients leave out: {})", counts.join(", "))
            }
        }
    }

    /// Adds the target and the route configuration to a reason.
    fn describe(&self, what: &str) -> String {
        let (target, routes) = (self.snapshot.target(), &self.snapshot.route_config().name);
        format!("target {target}, route configuration {routes:?}: {what}")
    }
}

impl CompiledRoute {
    /// The selection of a cluster, without others.
    fn selected(
        &self,
        route: RouteView<'_>,
        cluster: ClusterReference,
        filters: Option<Arc<FilterChain>>,
    ) -> Selected {
        Selected {
            cluster,
            max_stream_duration: route.max_stream_duration(),
            auto_host_rewrite: route.auto_host_rewrite(),
            retry_policy: self.retry_policy.clone(),
            hash_policies: route.shared_hash_policies(),
            filters,
            others: Vec::new(),
        }
    }
}

impl RouteClusters {
    /// Compiles the clusters of a route, each with its chain of filters.
    fn compile(
        route: &Route,
        uses: &BTreeMap<Arc<str>, Arc<ClusterUse>>,
        host: &str,
        chains: &mut ChainCompiler<'_>,
    ) -> Self {
        let mut routed = |name: &Arc<str>, overrides: &[FilterOverride], weight| RoutedCluster {
            // Each cluster that routes name is in use: `handle_resolution` adds them before.
            cluster: uses[name].clone(),
            filters: chains.chain(&route.filter_overrides, overrides),
            is_drawn: weight > 0,
        };
        match &route.action {
            RouteAction::Forward(forward) => match &forward.clusters {
                ClusterChoice::Cluster(name) => Self::One(routed(name, &[], 1)),
                ClusterChoice::WeightedClusters(weighted) => {
                    let clusters = weighted.clusters.iter();
                    Self::Weighted(
                        clusters
                            .map(|cluster| routed(&cluster.name, &cluster.filter_overrides, cluster.weight))
                            .collect(),
                    )
                }
                ClusterChoice::Plugin(plugin) => match plugin.config.get::<RouteLookup>() {
                    Some(config) => Self::Lookup(RoutedLookup {
                        plugin: LookupPlugin {
                            name: plugin.name.clone(),
                            config: Arc::new(config.clone()),
                            host: host.into(),
                        },
                        filters: chains.chain(&route.filter_overrides, &[]),
                    }),
                    None => Self::Plugin(plugin.name.to_string()),
                },
            },
            RouteAction::NonForwarding => Self::Unsupported("non_forwarding_action"),
            RouteAction::Unsupported(action) => Self::Unsupported(action.name()),
        }
    }

    /// The clusters in the order of the configuration; none if the route cannot be used.
    fn all(&self) -> &[RoutedCluster] {
        match self {
            Self::One(routed) => std::slice::from_ref(routed),
            Self::Weighted(clusters) => clusters,
            Self::Lookup(_) | Self::Plugin(_) | Self::Unsupported(_) => &[],
        }
    }

    /// The plugin that chooses the cluster, if there is one.
    fn lookup(&self) -> Option<&RoutedLookup> {
        match self {
            Self::Lookup(lookup) => Some(lookup),
            Self::One(_) | Self::Weighted(_) | Self::Plugin(_) | Self::Unsupported(_) => None,
        }
    }

    /// The clusters that a cookie may lead to instead of the selected one, if a filter keeps sessions. They are held from the
    /// selection on, so that they are there when the filter reads the cookie (CH8.9). `None` if one of them was removed already.
    fn others(&self, selected: &RoutedCluster) -> Option<Vec<ClusterReference>> {
        if !selected.has_session() {
            return Some(Vec::new());
        }
        let others = self
            .all()
            .iter()
            .filter(|cluster| cluster.is_drawn && !Arc::ptr_eq(&cluster.cluster, &selected.cluster));
        others.map(|cluster| cluster.cluster.hold()).collect()
    }
}

impl RoutedLookup {
    fn has_session(&self) -> bool {
        self.filters.as_ref().is_some_and(|filters| filters.has_session())
    }
}

impl RoutedCluster {
    fn has_session(&self) -> bool {
        self.filters.as_ref().is_some_and(|filters| filters.has_session())
    }
}

/// The place of the cluster that is drawn for a request, among those of its route.
fn drawn(route: RouteView<'_>) -> Option<usize> {
    let RouteAction::Forward(forward) = &route.route().action else { return None };
    let ClusterChoice::WeightedClusters(weighted) = &forward.clusters else { return None };
    route.pick_split(weighted)
}

/// The retry policy of a route, if it retries anything. It hides that of the virtual host, even if it does not (CH6.1).
fn retry_policy(route: &Route, common: Option<&Arc<RetryPolicy>>) -> Option<Arc<RetryPolicy>> {
    let RouteAction::Forward(forward) = &route.action else { return None };
    let policy = match &forward.retry_policy {
        Some(own) => Arc::new(own.clone()),
        None => common?.clone(),
    };
    Some(policy).filter(|policy| !policy.retry_on.is_empty())
}
