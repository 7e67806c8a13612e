use std::{
    collections::{BTreeSet, VecDeque},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Resolved,
    graph::{Graph, Next},
    node::{Endpoints, Source},
    snapshot::{Snapshot, Stem},
};
use crate::{
    error::{Blame, Code, Subject, WatchError},
    observed::Observed,
    resource::{Cluster, Listener, Resource, RouteConfiguration, cluster::HostPort, listener::RouteSource},
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
    about: About,
    listener: Option<Arc<Observed<Listener>>>,
    /// The routes that the listener asks for.
    routes: Option<Routes>,
    /// The listener or the routes have changed.
    stale: bool,
    next: Option<Arc<Stem>>,
    current: Option<Arc<Stem>>,
    /// What stands in the place of the tree.
    failed: Option<WatchError>,
    graph: Graph,
    /// For how long routes in use outlive their deletion.
    grace: Duration,
    orders: VecDeque<Order>,
}

/// Whose resolution it is.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) target: Arc<str>,
    /// The host that chooses the virtual host.
    pub(crate) authority: Arc<str>,
    pub(crate) listener: Arc<str>,
    pub(crate) node_id: Arc<str>,
}

/// Something that a resolution watches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Listener(Arc<str>),
    Routes(Arc<str>),
    Cluster(Arc<str>),
    Endpoints(Arc<str>),
    Host(HostPort),
}

/// What is seen of it.
#[derive(Debug, Clone)]
pub(crate) enum Seen {
    Listener(Arc<Observed<Listener>>),
    Routes(Arc<Observed<RouteConfiguration>>),
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

#[derive(Debug)]
struct Routes {
    name: Arc<str>,
    seen: Option<Arc<Observed<RouteConfiguration>>>,
    /// Until when they outlive their deletion.
    grace: Option<Instant>,
}

impl Resolver {
    pub(crate) fn new(about: About, grace: Duration) -> Self {
        let graph = Graph::new(about.node_id.clone(), grace);
        let watch = Order::Watch(Key::Listener(about.listener.clone()));
        Self {
            about,
            listener: None,
            routes: None,
            stale: false,
            next: None,
            current: None,
            failed: None,
            graph,
            grace,
            orders: [watch].into(),
        }
    }

    /// Tells what is seen of something that is watched.
    pub(crate) fn handle(&mut self, seen: Seen) {
        match seen {
            Seen::Listener(seen) => {
                self.listener = Some(seen);
                self.stale = true;
            }
            Seen::Routes(seen) => {
                if let Some(routes) = &mut self.routes {
                    (routes.seen, routes.grace) = (Some(seen), None);
                    self.stale = true;
                }
            }
            Seen::Cluster(name, seen) => self.graph.on_cluster(&name, seen),
            Seen::Endpoints(source, seen) => self.graph.on_endpoints(&source, seen),
        }
    }

    /// A call holds a cluster, whether or not routes lead to it, or none does any more (A74-6).
    pub(crate) fn set_held(&mut self, name: &Arc<str>, held: bool) {
        self.graph.set_held(name, held);
    }

    /// When to [`settle`](Self::settle) though nothing was told.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.graph.next_timeout().into_iter().chain(self.routes_grace()).min()
    }

    /// Works on all that was told.
    pub(crate) fn settle(&mut self, now: Instant) {
        self.stale |= self.routes_grace().is_some_and(|until| until <= now);
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

    /// Follows the listener to its routes and those to the clusters. Says whether what is shown of the tree in use above
    /// its clusters has changed.
    fn follow(&mut self, now: Instant) -> bool {
        let Some(listener) = self.listener.clone() else { return false };
        let (listener, listener_warning) = match &*listener {
            Observed::Pending => return false,
            Observed::Absent { reason } => {
                self.watch_routes(None);
                self.fail(reason.clone());
                return false;
            }
            Observed::Present { resource, warning, .. } => (resource, warning),
        };
        let Some(api) = listener.api() else {
            self.watch_routes(None);
            self.fail(self.no_api_listener());
            return false;
        };
        let (routes, routes_warning) = match &api.routes {
            RouteSource::Inline(routes) => {
                self.watch_routes(None);
                (routes.clone(), None)
            }
            RouteSource::Rds(name) => match self.watch_routes(Some(name)).as_deref() {
                // The tree in use serves until these are there (F2).
                None | Some(Observed::Pending) => {
                    self.next = None;
                    self.graph.set_next(Next::Unknown);
                    return false;
                }
                Some(Observed::Absent { reason }) if reason.is_transient() || reason.is_rejected() => {
                    return self.stay(reason);
                }
                Some(Observed::Absent { reason }) if reason.is_not_found() && self.has_grace(name, now) => {
                    return self.stay(reason);
                }
                Some(Observed::Absent { reason }) => {
                    self.fail(reason.clone());
                    return false;
                }
                Some(Observed::Present { resource, warning, .. }) => (resource.clone(), warning.clone()),
            },
        };
        let Some(virtual_host) = routes.virtual_host_index(&self.about.authority) else {
            self.fail(self.no_virtual_host(listener, &routes));
            return false;
        };
        let stem = Stem {
            target: self.about.target.clone(),
            authority: self.about.authority.clone(),
            listener: listener.clone(),
            routes,
            virtual_host,
            warnings: listener_warning.iter().cloned().chain(routes_warning).collect(),
        };
        self.use_stem(stem)
    }

    /// Uses a stem at once if it only differs in its warnings, else when its clusters are ready.
    fn use_stem(&mut self, stem: Stem) -> bool {
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
        let stem = Stem { warnings: vec![reason.clone()], ..(**current).clone() };
        let changed = current.warnings != stem.warnings;
        self.prepare(None);
        self.current = Some(Arc::new(stem));
        changed
    }

    /// Whether deleted routes that are in use serve on for a while: the listener may be about to lead to others, or to end.
    fn has_grace(&mut self, name: &Arc<str>, now: Instant) -> bool {
        let is_in_use = self.current.as_ref().is_some_and(|current| current.routes.name == *name);
        let Some(routes) = self.routes.as_mut().filter(|_| is_in_use) else { return false };
        now < *routes.grace.get_or_insert(now + self.grace)
    }

    /// Until when deleted routes serve on.
    fn routes_grace(&self) -> Option<Instant> {
        self.routes.as_ref().filter(|_| self.current.is_some()).and_then(|routes| routes.grace)
    }

    fn prepare(&mut self, stem: Option<Arc<Stem>>) {
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

    /// Watches these routes alone; gives what is seen of them.
    fn watch_routes(&mut self, name: Option<&Arc<str>>) -> Option<Arc<Observed<RouteConfiguration>>> {
        if self.routes.as_ref().map(|routes| &routes.name) != name {
            let old = mem::replace(
                &mut self.routes,
                name.map(|name| Routes { name: name.clone(), seen: None, grace: None }),
            );
            self.orders.extend(name.map(|name| Order::Watch(Key::Routes(name.clone()))));
            self.orders.extend(old.map(|old| Order::Unwatch(Key::Routes(old.name))));
        }
        self.routes.as_ref().and_then(|routes| routes.seen.clone())
    }

    fn no_api_listener(&self) -> WatchError {
        let name = &self.about.listener;
        let text =
            format!("client-side listener resource {name:?} does not contain API listener configuration");
        self.error(Code::FailedPrecondition, (Listener::TYPE_URL, name.clone()), text)
    }

    fn no_virtual_host(&self, listener: &Listener, routes: &RouteConfiguration) -> WatchError {
        let domains = routes.virtual_hosts.iter().flat_map(|host| &host.domains);
        let mut domains = domains.map(|domain| domain.as_str()).take(SHOWN_DOMAINS + 1).collect::<Vec<_>>();
        if domains.len() > SHOWN_DOMAINS {
            domains[SHOWN_DOMAINS] = "…";
        }
        let domains = if domains.is_empty() { "none".to_owned() } else { domains.join(", ") };
        let text =
            format!("could not find VirtualHost for {:?}; the domains are: {domains}", self.about.authority);
        // Routes within a listener need no name.
        let about = match &*routes.name {
            "" => (Listener::TYPE_URL, listener.name.clone()),
            _ => (RouteConfiguration::TYPE_URL, routes.name.clone()),
        };
        self.error(Code::NotFound, about, text)
    }

    fn error(&self, code: Code, (type_url, name): (&'static str, Arc<str>), text: String) -> WatchError {
        WatchError::new(code, Blame::Peer, Subject { type_url, name, node: self.about.node_id.clone() }, text)
    }
}

impl Stem {
    /// Whether it is of the same listener and routes as another.
    fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.listener, &other.listener)
            && Arc::ptr_eq(&self.routes, &other.routes)
            && self.virtual_host == other.virtual_host
    }

    /// The clusters that the routes of the virtual host lead to, each once (F4).
    fn clusters(&self) -> Vec<Arc<str>> {
        let routes = &self.routes.virtual_hosts[self.virtual_host].routes;
        let names: BTreeSet<_> = routes.iter().flat_map(|route| route.action.clusters()).collect();
        names.into_iter().cloned().collect()
    }
}

impl From<&Source> for Key {
    fn from(source: &Source) -> Self {
        match source {
            Source::Eds(name) => Self::Endpoints(name.clone()),
            Source::Host(address) => Self::Host(address.clone()),
        }
    }
}

/// How many domains an error lists.
const SHOWN_DOMAINS: usize = 8;
