//! The resolver of one target: it watches what the target leads to, and publishes snapshots.
//!
//! There are two trees at most: the one that requests are sent by (`current`), and the one that replaces it when all of its
//! clusters are ready (`next`). They share one graph of clusters, in which each cluster knows which of the two leads to it.

use std::{collections::VecDeque, mem, sync::Arc, time::Instant};

use super::{
    dependency::End,
    endpoints::Source,
    graph::Graph,
    leds::Leds,
    orders::{About, Order, Seen, Times, WatchKey},
    route_resolver::RouteResolver,
    routed::Next,
    scopes::some_of,
    snapshot::{RoutingConfig, Snapshot},
};
use crate::error::WatchError;

/// The resolution of one target, from the state of the resources that it leads to (A74).
///
/// [`handle`](Self::handle) takes the updates of the resources that it watches. After each of these, or after several, and at
/// [`next_timeout`](Self::next_timeout), [`process`](Self::process) works on all that is due, and
/// [`poll_order`](Self::poll_order) yields the watches to begin and to end, and the results to publish, until there is
/// nothing.
///
/// ```text
///  listener ──▶ routes ──▶ virtual host ──▶ next ─── every cluster is ready ──▶ current ──▶ Publish
///     │            │            │             (the old one serves meanwhile)       ▲
///     └────────────┴────────────┴──▶ failed ──▶ Publish                            └── updates of its clusters
/// ```
#[derive(Debug)]
pub(crate) struct Resolver {
    /// The resources from the listener to the routes.
    route_resolver: RouteResolver,
    /// A resource above the clusters has changed. The routing configuration is resolved once for all updates between two calls
    /// of `process`.
    stale: bool,
    /// The routes that are used once their clusters are ready. A newer one replaces it, and is waited for in its place.
    next: Option<Arc<RoutingConfig>>,
    /// The routes in use. `None` before the first tree, and after an error of the target.
    current: Option<Arc<RoutingConfig>>,
    /// The error of the target, if there is no tree. It stays until a tree is in use: routes that are prepared do not end it.
    failed: Option<WatchError>,
    /// The error that was published last, if there is no tree. Compared, so that an error is published once.
    published: Option<WatchError>,
    /// The clusters.
    graph: Graph,
    /// The collections of endpoints. Between the watches of endpoints and the graph, which sees complete assignments alone.
    leds: Leds,
    /// What the caller has to do.
    orders: VecDeque<Order>,
}

impl Resolver {
    /// A resolver that waits for its listener.
    pub(crate) fn new(about: About, times: Times) -> Self {
        let graph = Graph::new(about.node_id.clone(), about.loads.clone(), times.grace);
        let mut route_resolver = RouteResolver::new(about, times);
        let orders = route_resolver.take_orders().into();
        Self {
            route_resolver,
            stale: false,
            next: None,
            current: None,
            failed: None,
            published: None,
            graph,
            leds: Leds::default(),
            orders,
        }
    }

    /// Handles an update of a watched resource.
    pub(crate) fn handle(&mut self, seen: Seen) {
        match seen {
            Seen::Listener(seen) => self.route_resolver.on_listener(seen),
            Seen::Scopes(seen) => self.route_resolver.on_scopes(seen),
            Seen::ExtensionConfig(what, seen) => self.route_resolver.on_extension_config(&what, seen),
            Seen::Routes(seen) => self.route_resolver.on_routes(seen),
            Seen::VirtualHost(seen) => self.route_resolver.on_virtual_host(seen),
            // Clusters and endpoints do not concern the routes: the graph marks what they concern.
            Seen::Cluster(name, seen) => return self.graph.on_cluster(&name, seen),
            Seen::Endpoints(source, seen) => {
                if let Some(seen) = self.leds.on_endpoints(&source, seen, &mut self.orders) {
                    self.graph.on_endpoints(&source, seen);
                }
                return;
            }
            Seen::LbEndpoints(collection, seen) => {
                for (source, seen) in self.leds.on_members(&collection, seen) {
                    self.graph.on_endpoints(&source, seen);
                }
                return;
            }
        }
        self.stale = true;
    }

    /// A call holds a cluster, whether or not routes lead to it, or none does any more (A74-6).
    pub(crate) fn set_held(&mut self, name: &Arc<str>, held: bool) {
        self.graph.set_held(name, held);
    }

    /// The time of the next [`process`](Self::process) without an update.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.graph.next_timeout().into_iter().chain(self.routing_timeout()).min()
    }

    /// What keeps the latest state of the resources out of the published one, as the end of a sentence; `None` if nothing does.
    ///
    /// To be called after [`process`](Self::process).
    pub(crate) fn unapplied(&self) -> Option<String> {
        if let Some(next) = &self.next {
            let names = some_of(self.graph.usage().delaying().map(ToString::to_string));
            return Some(format!("newer routes {:?} wait for the clusters {names}", next.routes.name));
        }
        let usage = self.graph.usage();
        let is_unresolved = self.current.is_none() && self.failed.is_none();
        if self.stale || is_unresolved || usage.expects_routes() {
            return Some("the routes are not known yet".to_owned());
        }
        if self.routing_timeout().is_some() {
            return Some("a deleted resource above the clusters is still in use".to_owned());
        }
        // Without a tree, the clusters of the last one are in no snapshot.
        self.current.as_ref()?;
        let mut outdated = usage.outdated().map(ToString::to_string).peekable();
        outdated.peek()?;
        Some(format!("the latest configuration of the clusters {} is not complete", some_of(outdated)))
    }

    /// Processes all updates, and all due work.
    pub(crate) fn process(&mut self, now: Instant) {
        self.stale |= self.routing_timeout().is_some_and(|until| until <= now);
        let mut publish = mem::take(&mut self.stale) && self.resolve_routing(now);
        publish |= self.graph.process(self.current.is_some(), now);
        if let Some(next) = self.next.take_if(|_| self.graph.is_next_ready()) {
            // The clusters of the old routes are released by the second call, so that none is unsubscribed before the new
            // routes are in use.
            self.graph.commit();
            self.graph.process(true, now);
            (self.current, self.failed, publish) = (Some(next), None, true);
        }
        self.publish_failure();
        for order in self.graph.take_orders() {
            let ended = match &order {
                Order::Unwatch(WatchKey::Endpoints(reference)) => Some(Source::Eds(reference.clone())),
                Order::Unwatch(_) | Order::Watch(_) | Order::Publish(_) => None,
            };
            self.orders.push_back(order);
            if let Some(source) = ended {
                self.leds.release(&source, &mut self.orders);
            }
        }
        if publish && let Some(routing) = &self.current {
            let snapshot = Snapshot { routing: routing.clone(), clusters: self.graph.entries().clone() };
            self.orders.push_back(Order::Publish(Ok(Arc::new(snapshot))));
        }
    }

    /// The next order; to be called until there is none.
    pub(crate) fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// The number of examined clusters so far.
    #[cfg(test)]
    pub(crate) fn work(&self) -> u64 {
        self.graph.work()
    }

    /// Resolves the routing configuration. Returns whether the tree in use, as shown above its clusters, has changed.
    fn resolve_routing(&mut self, now: Instant) -> bool {
        let found = self.route_resolver.resolve(self.current.as_deref(), now);
        self.orders.extend(self.route_resolver.take_orders());
        match found {
            Ok(routing) => self.use_routing(routing),
            Err(End::Unknown) => {
                self.next = None;
                self.graph.set_next(Next::Unknown);
                false
            }
            Err(End::Blocked(reason)) => self.keep_current(&reason),
            Err(End::Nowhere(reason)) => {
                self.fail(reason);
                false
            }
        }
    }

    /// Uses a routing configuration at once if it only differs in its warnings, else when its clusters are ready.
    fn use_routing(&mut self, routing: RoutingConfig) -> bool {
        let routing = Arc::new(routing);
        // Only warnings differ: nothing has to be prepared, and routes that were prepared before are obsolete.
        if let Some(current) = self.current.as_ref().filter(|current| current.is_of(&routing)) {
            let changed = current.warnings != routing.warnings;
            self.prepare(None);
            self.current = Some(routing);
            return changed;
        }
        self.prepare(Some(routing));
        false
    }

    /// Keeps the tree in use, if there is one, though the listener leads to unavailable routes.
    ///
    /// Routes that were prepared are withdrawn, as the listener does not lead to them any more.
    fn keep_current(&mut self, reason: &WatchError) -> bool {
        let Some(current) = &self.current else {
            self.fail(reason.clone());
            return false;
        };
        let routing = RoutingConfig { warnings: vec![reason.clone()], ..(**current).clone() };
        let changed = current.warnings != routing.warnings;
        self.prepare(None);
        self.current = Some(Arc::new(routing));
        changed
    }

    /// The time of the next resolution of the routing configuration without an update.
    fn routing_timeout(&self) -> Option<Instant> {
        self.route_resolver.next_timeout(self.current.is_some())
    }

    /// Routes that are prepared already stay as they are, so that their wait does not begin anew with each update of a warning.
    fn prepare(&mut self, routing: Option<Arc<RoutingConfig>>) {
        let same =
            routing.as_ref().zip(self.next.as_ref()).is_some_and(|(routing, next)| routing.is_of(next));
        if !same {
            let next = routing.as_ref().map(|routing| Next::Clusters(routing.clusters()));
            self.graph.set_next(next.unwrap_or_default());
        }
        self.next = routing;
    }

    /// There is no tree any more. Its clusters stay watched until there is another (F8).
    ///
    /// An error of the configuration is thus not followed by an outage of the endpoints when it has been repaired.
    fn fail(&mut self, reason: WatchError) {
        self.prepare(None);
        (self.current, self.failed) = (None, Some(reason));
    }

    /// Publishes the error of the target if it is another one. As long as the routes that end it wait for clusters, it is out of
    /// date, and names these.
    fn publish_failure(&mut self) {
        let failure = self.failed.as_ref().map(|failed| match &self.next {
            None => failed.clone(),
            Some(next) => failed.and(&format!(
                "; newer routes {:?} wait for the clusters {}",
                next.routes.name,
                some_of(self.graph.usage().delaying().map(ToString::to_string))
            )),
        });
        if let Some(failure) = failure.as_ref().filter(|_| self.published != failure) {
            self.orders.push_back(Order::Publish(Err(failure.clone())));
        }
        self.published = failure;
    }
}
