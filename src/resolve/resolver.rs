use std::{
    collections::{BTreeSet, VecDeque},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Resolved,
    dependency::End,
    graph::{Graph, Next},
    node::{Endpoints, Source},
    route_resolver::RouteResolver,
    snapshot::{RoutingConfig, Snapshot},
};
use crate::{
    error::WatchError,
    observed::{ErasedMembers, Observed},
    resource::{
        Cluster, Listener, RouteConfiguration, VirtualHost, cluster::HostPort,
        config_source::ResourceConfigSource,
    },
};

/// What one target resolves to, from what is known of the resources that it leads to (A74).
///
/// It is told what is seen of the resources that it asked for ([`handle`](Self::handle)). After each of these, or after
/// several, and at [`next_timeout`](Self::next_timeout), [`settle`](Self::settle) works on what is due, and
/// [`poll_order`](Self::poll_order) says what is to be watched, or not any more, and what is to be published, until there is
/// nothing.
///
/// ```text
///  listener ──▶ routes ──▶ virtual host ──▶ next ─── every cluster is ready ──▶ current ──▶ Publish
///     │            │            │             (the old one serves meanwhile)       ▲
///     └────────────┴────────────┴──▶ failed ──▶ Publish                            └── news of its clusters
/// ```
#[derive(Debug)]
pub(crate) struct Resolver {
    way: RouteResolver,
    /// Something on the way has changed.
    stale: bool,
    next: Option<Arc<RoutingConfig>>,
    current: Option<Arc<RoutingConfig>>,
    /// What stands in the place of the tree.
    failed: Option<WatchError>,
    graph: Graph,
    orders: VecDeque<Order>,
}

/// Whose resolution it is.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) target: Arc<str>,
    /// The host that chooses the virtual host.
    pub(crate) authority: Arc<str>,
    /// The headers that choose the scope.
    pub(crate) headers: Arc<[(Arc<str>, Arc<str>)]>,
    pub(crate) listener: Arc<str>,
    pub(crate) node_id: Arc<str>,
}

/// How long a resolution waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// For something that takes the place of what is in use and deleted.
    pub(crate) grace: Duration,
    /// For scopes.
    pub(crate) timeout: Duration,
}

/// A resource that another one names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reference {
    pub(crate) name: Arc<str>,
    /// Where it is to be had, if not where its name comes from.
    pub(crate) source: Option<Arc<ResourceConfigSource>>,
}

/// Something that a resolution watches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Listener(Arc<str>),
    /// All scopes of a collection, or of the server by `*`.
    Scopes(Arc<str>),
    Routes(Reference),
    VirtualHost(Arc<str>),
    Cluster(Arc<str>),
    Endpoints(Reference),
    Host(HostPort),
}

/// What is seen of it.
#[derive(Debug, Clone)]
pub(crate) enum Seen {
    Listener(Arc<Observed<Listener>>),
    Scopes(Arc<ErasedMembers>),
    Routes(Arc<Observed<RouteConfiguration>>),
    VirtualHost(Arc<Observed<VirtualHost>>),
    Cluster(Arc<str>, Arc<Observed<Cluster>>),
    Endpoints(Source, Endpoints),
}

/// What a resolution wants.
#[derive(Debug)]
pub(crate) enum Order {
    Watch(Key),
    Unwatch(Key),
    Publish(Resolved),
}

impl Resolver {
    pub(crate) fn new(about: About, times: Times) -> Self {
        let graph = Graph::new(about.node_id.clone(), times.grace);
        let mut way = RouteResolver::new(about, times);
        let orders = way.take_orders().into();
        Self { way, stale: false, next: None, current: None, failed: None, graph, orders }
    }

    /// Tells what is seen of something that is watched.
    pub(crate) fn handle(&mut self, seen: Seen) {
        match seen {
            Seen::Listener(seen) => self.way.on_listener(seen),
            Seen::Scopes(seen) => self.way.on_scopes(seen),
            Seen::Routes(seen) => self.way.on_routes(seen),
            Seen::VirtualHost(seen) => self.way.on_virtual_host(seen),
            Seen::Cluster(name, seen) => return self.graph.on_cluster(&name, seen),
            Seen::Endpoints(source, seen) => return self.graph.on_endpoints(&source, seen),
        }
        self.stale = true;
    }

    /// A call holds a cluster, whether or not routes lead to it, or none does any more (A74-6).
    pub(crate) fn set_held(&mut self, name: &Arc<str>, held: bool) {
        self.graph.set_held(name, held);
    }

    /// When to [`settle`](Self::settle) though nothing was told.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.graph.next_timeout().into_iter().chain(self.way_timeout()).min()
    }

    /// Works on all that was told.
    pub(crate) fn settle(&mut self, now: Instant) {
        self.stale |= self.way_timeout().is_some_and(|until| until <= now);
        let mut publish = mem::take(&mut self.stale) && self.follow(now);
        publish |= self.graph.settle(self.current.is_some(), now);
        if let Some(next) = self.next.take_if(|_| self.graph.is_next_ready()) {
            self.graph.commit();
            self.graph.settle(true, now);
            (self.current, self.failed, publish) = (Some(next), None, true);
        }
        self.orders.extend(self.graph.take_orders());
        if publish && let Some(stem) = &self.current {
            let snapshot = Snapshot { stem: stem.clone(), clusters: self.graph.entries().clone() };
            self.orders.push_back(Order::Publish(Ok(Arc::new(snapshot))));
        }
    }

    /// What is to be done; to be called until there is nothing.
    pub(crate) fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// How many clusters were looked at so far.
    #[cfg(test)]
    pub(crate) fn work(&self) -> u64 {
        self.graph.work()
    }

    /// Follows the listener to its virtual host. Says whether what is shown of the tree in use above its clusters has
    /// changed.
    fn follow(&mut self, now: Instant) -> bool {
        let found = self.way.follow(self.current.as_deref(), now);
        self.orders.extend(self.way.take_orders());
        match found {
            Ok(stem) => self.use_stem(stem),
            Err(End::Unknown) => {
                self.next = None;
                self.graph.set_next(Next::Unknown);
                false
            }
            Err(End::Blocked(reason)) => self.stay(&reason),
            Err(End::Nowhere(reason)) => {
                self.fail(reason);
                false
            }
        }
    }

    /// Uses a stem at once if it only differs in its warnings, else when its clusters are ready.
    fn use_stem(&mut self, stem: RoutingConfig) -> bool {
        let stem = Arc::new(stem);
        if let Some(current) = self.current.as_ref().filter(|current| current.is_of(&stem)) {
            let changed = current.warnings != stem.warnings;
            self.prepare(None);
            self.current = Some(stem);
            return changed;
        }
        self.prepare(Some(stem));
        false
    }

    /// Keeps the tree in use, if there is one, though the listener leads to routes that cannot be had.
    fn stay(&mut self, reason: &WatchError) -> bool {
        let Some(current) = &self.current else {
            self.fail(reason.clone());
            return false;
        };
        let stem = RoutingConfig { warnings: vec![reason.clone()], ..(**current).clone() };
        let changed = current.warnings != stem.warnings;
        self.prepare(None);
        self.current = Some(Arc::new(stem));
        changed
    }

    /// When the way is to be followed again though nothing was told.
    fn way_timeout(&self) -> Option<Instant> {
        self.way.next_timeout(self.current.is_some())
    }

    fn prepare(&mut self, stem: Option<Arc<RoutingConfig>>) {
        let same = stem.as_ref().zip(self.next.as_ref()).is_some_and(|(stem, next)| stem.is_of(next));
        if !same {
            let next = stem.as_ref().map(|stem| Next::Clusters(stem.clusters()));
            self.graph.set_next(next.unwrap_or_default());
        }
        self.next = stem;
    }

    /// There is no tree any more. Its clusters stay watched until there is another (F8).
    fn fail(&mut self, reason: WatchError) {
        self.prepare(None);
        self.current = None;
        if self.failed.as_ref() != Some(&reason) {
            self.orders.push_back(Order::Publish(Err(reason.clone())));
            self.failed = Some(reason);
        }
    }
}

impl RoutingConfig {
    /// Whether it is of the same listener and routes as another.
    fn is_of(&self, other: &Self) -> bool {
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
    fn clusters(&self) -> Vec<Arc<str>> {
        let routes = &self.virtual_host().routes;
        let names: BTreeSet<_> = routes.iter().flat_map(|route| route.action.clusters()).collect();
        names.into_iter().cloned().collect()
    }
}

impl Key {
    /// The name of everything that a server has.
    pub(crate) const ALL: &str = "*";
}

impl<N: Into<Arc<str>>> From<N> for Reference {
    fn from(name: N) -> Self {
        Self { name: name.into(), source: None }
    }
}

impl From<&Source> for Key {
    fn from(source: &Source) -> Self {
        match source {
            Source::Eds(reference) => Self::Endpoints(reference.clone()),
            Source::Host(address) => Self::Host(address.clone()),
        }
    }
}
