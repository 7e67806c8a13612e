//! The resolutions of targets: drives [`Resolver`]s, each with watches of its own, as an application would.
//!
//! A resolver has no access to the store: it sees the values of its watches and orders others. So a change of a resource
//! reaches it as it would reach an application, and several changes between two calls of [`drive`](Resolutions::drive) make
//! one new tree.
//!
//! | map | from | to |
//! |---|---|---|
//! | `resolutions` | the watch of the application | its resolver, and the watches of that by key |
//! | `owners` | a watch of a resolver | the resolution and the key that it was ordered for |
//! | `sources` | a watch of a resolver | the source that the naming resource has for it |
//!
//! Hosts of logical DNS clusters have watches, too, but of the [`DnsResolver`], not of the engine.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use tracing::debug;

use super::{
    delivery::{Delivery, WatchTarget},
    selection::{SelectedName, Selection},
};
use crate::{
    base::WatchId,
    config::{Bootstrap, Target},
    engine::{Output, Settings},
    error::{Blame, Code, Subject, WatchError},
    invariant,
    lrs::Loads,
    observed::Observed,
    resolve::{
        About, Addresses, DnsResolver, Endpoints, HostOrder, LookupId, Order, Resolved, Resolver, Seen,
        Source, Times, WatchKey,
    },
    resource::{
        Cluster, ClusterLoadAssignment, Endpoint, Erased, ExtensionConfig, Listener, Resource, ResourceType,
        RouteConfiguration, ScopedRouteConfiguration, VirtualHost, config_source::ResourceConfigSource,
    },
};

/// All resolutions. See the [module's](self) documentation.
#[derive(Debug)]
pub(super) struct Resolutions {
    /// The resolver of each target, by the application's watch.
    resolutions: BTreeMap<WatchId, Resolution>,
    /// The owners of the resolutions' watches, and their targets.
    owners: BTreeMap<WatchId, (WatchId, WatchKey)>,
    /// The resolutions with pending inputs.
    touched: BTreeSet<WatchId>,
    /// The deadlines of the resolutions that have one.
    timers: BTreeMap<WatchId, Instant>,
    /// The source of a watch's target, if its name came with one.
    sources: BTreeMap<WatchId, Arc<ResourceConfigSource>>,
    /// The lookups of all resolutions: a host that several clusters have is looked up once.
    dns_hosts: DnsResolver,
    /// The jitter of lookups.
    random: fastrand::Rng,
    /// The periods of all resolvers, from the settings.
    times: Times,
}

#[derive(Debug)]
/// A target with its watches.
struct Resolution {
    /// The tree of the target; it has no I/O, and orders watches.
    resolver: Resolver,
    /// The watches that the resolver has ordered, of resources and of hosts.
    watches: BTreeMap<WatchKey, WatchId>,
}

/// What an application changes about a resolution.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ResolutionChange<'a> {
    /// The first subscription to a cluster within it: it stays in the snapshots with or without routes (A74-6).
    Subscribe(&'a str),
    /// The end of the last subscription to a cluster within it.
    Unsubscribe(&'a str),
    /// The addresses of its logical DNS clusters are looked up again (A74-7).
    LookUpAgain,
}

/// A command of a resolution to the engine.
#[derive(Debug)]
pub(super) enum ResolutionOrder {
    /// Watch a resource, or a collection.
    Subscribe { watch_id: WatchId, ty: ResourceType, names: Selection },
    /// End a watch of a resource or a collection.
    Unsubscribe(WatchId),
    /// Publish the result to the application's watch.
    Publish(WatchId, Resolved),
}

/// What a target is about, as its resolver takes it; the error of a target that cannot be read.
pub(super) fn about(bootstrap: &Bootstrap, loads: &Arc<Loads>, target: &Target) -> Result<About, WatchError> {
    let node_id: Arc<str> = bootstrap.node().id.as_str().into();
    match bootstrap.read_target(target.as_str()) {
        Ok((listener, service)) => Ok(About {
            target: target.as_str().into(),
            authority: target.authority().unwrap_or(&service).into(),
            headers: target.headers().clone(),
            listener: listener.spelling().into(),
            node_id,
            loads: loads.clone(),
        }),
        Err(error) => {
            let about = Subject { type_url: Listener::TYPE_URL, name: target.as_str().into(), node: node_id };
            Err(WatchError::new(Code::InvalidArgument, Blame::Local, about, error.to_string()))
        }
    }
}

impl Resolutions {
    /// No resolution; `seed` determines the jitter of lookups.
    pub(super) fn new(settings: &Settings, seed: u64) -> Self {
        Self {
            resolutions: BTreeMap::new(),
            owners: BTreeMap::new(),
            touched: BTreeSet::new(),
            timers: BTreeMap::new(),
            sources: BTreeMap::new(),
            dns_hosts: DnsResolver::new(settings.dns_refresh, settings.protocol.resource_timeout),
            random: fastrand::Rng::with_seed(seed),
            times: Times { grace: settings.deletion_grace, timeout: settings.protocol.resource_timeout },
        }
    }

    /// Begins a resolution of a target, or refuses it.
    pub(super) fn start(
        &mut self,
        delivery: &mut Delivery,
        watch_id: WatchId,
        about: Result<About, WatchError>,
    ) -> WatchTarget {
        match about {
            Ok(about) => {
                self.begin(watch_id, about);
                WatchTarget::Resolution
            }
            Err(error) => {
                delivery.deliver(watch_id, Arc::new(Resolved::Err(error.clone())));
                WatchTarget::Refused(error)
            }
        }
    }

    /// Begins a resolution.
    fn begin(&mut self, watch_id: WatchId, about: About) {
        let resolver = Resolver::new(about, self.times);
        self.resolutions.insert(watch_id, Resolution { resolver, watches: BTreeMap::new() });
        self.touched.insert(watch_id);
    }

    /// Ends a resolution; returns the watches that end with it.
    pub(super) fn end(&mut self, watch_id: WatchId) -> Vec<WatchId> {
        let Some(ended) = self.resolutions.remove(&watch_id) else {
            invariant::broken("a resolution ends once");
            return Vec::new();
        };
        self.timers.remove(&watch_id);
        let watches = ended.watches.into_iter();
        watches.filter_map(|(key, watch_id)| self.forget_watch(&key, watch_id)).collect()
    }

    /// Changes a resolution for its application.
    pub(super) fn change(&mut self, watch_id: WatchId, change: ResolutionChange<'_>, now: Instant) {
        match change {
            ResolutionChange::Subscribe(cluster) => self.set_subscribed(watch_id, cluster, true),
            ResolutionChange::Unsubscribe(cluster) => self.set_subscribed(watch_id, cluster, false),
            ResolutionChange::LookUpAgain => self.request_reresolution(watch_id, now),
        }
    }

    /// Sets whether a cluster stays in the snapshots with or without routes (A74-6).
    fn set_subscribed(&mut self, watch_id: WatchId, name: &str, is_subscribed: bool) {
        // The resolution may have been refused, or ended before the subscription.
        if let Some(resolution) = self.resolutions.get_mut(&watch_id) {
            resolution.resolver.set_held(&name.into(), is_subscribed);
            self.touched.insert(watch_id);
        }
    }

    /// Looks the addresses of a resolution's logical DNS clusters up again (A74-7).
    fn request_reresolution(&mut self, watch_id: WatchId, now: Instant) {
        let watches = self.resolutions.get(&watch_id).map(|resolution| &resolution.watches);
        for (key, watch_id) in watches.into_iter().flatten() {
            if matches!(key, WatchKey::Host(_)) {
                self.dns_hosts.look_up_again(*watch_id, now);
            }
        }
    }

    /// The answer to a lookup.
    pub(super) fn on_resolved(&mut self, lookup: LookupId, result: Result<Addresses, String>, now: Instant) {
        self.dns_hosts.on_resolved(lookup, result, now, &mut self.random);
    }

    /// When a lookup is due.
    pub(super) fn next_lookup(&self) -> Option<Instant> {
        self.dns_hosts.next_timeout()
    }

    /// The earliest deadline of a resolution.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.timers.values().min().copied()
    }

    /// Handles lookups that are due, and marks resolutions whose deadline has passed. [`drive`](Self::drive) then processes them.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.dns_hosts.handle_timeout(now, &mut self.random);
        self.touched.extend(self.timers.iter().filter(|(_, at)| **at <= now).map(|(watch_id, _)| *watch_id));
    }

    /// The source of a watch's target, if its name came with one.
    pub(super) fn source_of(&self, watch_id: WatchId) -> Option<&Arc<ResourceConfigSource>> {
        self.sources.get(&watch_id)
    }

    /// Passes on a change of a watch.
    pub(super) fn on_observed(&mut self, watch_id: WatchId, observed: &Erased) {
        self.notify(watch_id, |key| match key {
            WatchKey::Listener(_) => Seen::Listener(typed(observed)),
            WatchKey::Scopes(_) => {
                let members = observed.clone().downcast();
                Seen::Scopes(members.expect("what is published for a collection are its members"))
            }
            WatchKey::ExtensionConfig(what) => Seen::ExtensionConfig(what.clone(), typed(observed)),
            WatchKey::Routes(_) => Seen::Routes(typed(observed)),
            WatchKey::VirtualHost(_) => Seen::VirtualHost(typed(observed)),
            WatchKey::Cluster(name) => Seen::Cluster(name.clone(), typed(observed)),
            WatchKey::Endpoints(name) => {
                Seen::Endpoints(Source::Eds(name.clone()), Endpoints::Eds(typed(observed)))
            }
            WatchKey::LbEndpoints(name) => {
                let members = observed.clone().downcast();
                let members = members.expect("what is published for a collection are its members");
                Seen::LbEndpoints(name.clone(), members)
            }
            WatchKey::Host(_) => unreachable!("hosts are no resources"),
        });
    }

    /// Passes what a watch has seen to the resolver that owns the watch, and marks that as pending.
    fn notify(&mut self, watch_id: WatchId, seen: impl FnOnce(&WatchKey) -> Seen) {
        // The watch or its resolution may have ended meanwhile.
        let Some((owner, key)) = self.owners.get(&watch_id) else { return };
        let Some(resolution) = self.resolutions.get_mut(owner) else { return };
        resolution.resolver.handle(seen(key));
        self.touched.insert(*owner);
    }

    /// Passes the results of lookups on, and orders those that are due.
    pub(super) fn drive_lookups(&mut self, delivery: &mut Delivery) {
        while let Some(order) = self.dns_hosts.poll() {
            match order {
                HostOrder::LookUp { lookup, host } => delivery.push_output(Output::Lookup { lookup, host }),
                HostOrder::Notify { watch_id, address, seen } => {
                    self.notify(watch_id, |_| Seen::Endpoints(Source::Host(address), Endpoints::Host(seen)));
                }
            }
        }
    }

    /// The next resolution with pending inputs.
    pub(super) fn pop_touched(&mut self) -> Option<WatchId> {
        self.touched.pop_first()
    }

    /// Drives a resolution with its inputs; returns the resulting orders.
    pub(super) fn drive(&mut self, watch_id: WatchId, now: Instant) -> Vec<Order> {
        // It may have ended meanwhile.
        let Some(resolution) = self.resolutions.get_mut(&watch_id) else { return Vec::new() };
        resolution.resolver.process(now);
        match resolution.resolver.next_timeout() {
            Some(at) => drop(self.timers.insert(watch_id, at)),
            None => drop(self.timers.remove(&watch_id)),
        }
        std::iter::from_fn(|| resolution.resolver.poll_order()).collect()
    }

    /// What keeps the latest state of the resources out of a resolution's published one; `None` if nothing does, or if there is no
    /// such resolution.
    pub(super) fn unapplied(&self, watch_id: WatchId) -> Option<String> {
        self.resolutions.get(&watch_id)?.resolver.unapplied()
    }

    /// Turns an order of a resolution into a command to the engine; `None` if there is none.
    pub(super) fn follow_order(
        &mut self,
        delivery: &mut Delivery,
        resolution: WatchId,
        order: Order,
        now: Instant,
    ) -> Option<ResolutionOrder> {
        match order {
            Order::Publish(resolved) => {
                match &resolved {
                    Ok(tree) => {
                        debug!(watch_id = %resolution, target = tree.target(), "resolution succeeded")
                    }
                    Err(error) => debug!(watch_id = %resolution, %error, "resolution failed"),
                }
                Some(ResolutionOrder::Publish(resolution, resolved))
            }
            Order::Watch(key) => {
                let watch_id = delivery.next_watch_id();
                self.watch(resolution, watch_id, key, now)
            }
            Order::Unwatch(key) => {
                let known = self.resolutions.get_mut(&resolution);
                let watch_id = known.and_then(|known| known.watches.remove(&key));
                self.forget_watch(&key, watch_id?).map(ResolutionOrder::Unsubscribe)
            }
        }
    }

    /// Records a watch that a resolution has ordered. A host is looked up here and now; for a resource, the engine gets the order
    /// to begin the watch.
    fn watch(
        &mut self,
        owner: WatchId,
        watch_id: WatchId,
        key: WatchKey,
        now: Instant,
    ) -> Option<ResolutionOrder> {
        // It may have ended meanwhile.
        let resolution = self.resolutions.get_mut(&owner)?;
        // Known before the engine begins the watch, which may publish to it at once.
        resolution.watches.insert(key.clone(), watch_id);
        debug!(watch_id = %owner, dependency = %watch_id, "resolution continued");
        self.owners.insert(watch_id, (owner, key.clone()));
        let one =
            |ty, name: SelectedName| ResolutionOrder::Subscribe { watch_id, ty, names: Selection::One(name) };
        Some(match key {
            WatchKey::Listener(name) => one(ResourceType::of::<Listener>(), name.into()),
            WatchKey::Scopes(name) => {
                let names =
                    if &*name == WatchKey::ALL { Selection::All } else { Selection::Collection(name.into()) };
                let ty = ResourceType::of::<ScopedRouteConfiguration>();
                ResolutionOrder::Subscribe { watch_id, ty, names }
            }
            WatchKey::ExtensionConfig(config) => {
                self.sources.extend(config.source.map(|source| (watch_id, source)));
                one(ResourceType::of::<ExtensionConfig>(), config.name.into())
            }
            WatchKey::Routes(routes) => {
                self.sources.extend(routes.source.map(|source| (watch_id, source)));
                one(ResourceType::of::<RouteConfiguration>(), routes.name.into())
            }
            // Some servers provide it on demand.
            WatchKey::VirtualHost(name) => one(ResourceType::of::<VirtualHost>(), name.into()),
            WatchKey::Cluster(name) => one(ResourceType::of::<Cluster>(), name.into()),
            WatchKey::Endpoints(endpoints) => {
                self.sources.extend(endpoints.source.map(|source| (watch_id, source)));
                one(ResourceType::of::<ClusterLoadAssignment>(), endpoints.name.into())
            }
            WatchKey::LbEndpoints(collection) => {
                self.sources.extend(collection.source.map(|source| (watch_id, source)));
                let (ty, names) =
                    (ResourceType::of::<Endpoint>(), Selection::Collection(collection.name.into()));
                ResolutionOrder::Subscribe { watch_id, ty, names }
            }
            WatchKey::Host(address) => {
                self.dns_hosts.watch(watch_id, &address, now);
                return None;
            }
        })
    }

    /// Forgets a watch of a resolution; returns it if it is one of the engine.
    fn forget_watch(&mut self, key: &WatchKey, watch_id: WatchId) -> Option<WatchId> {
        self.owners.remove(&watch_id);
        self.sources.remove(&watch_id);
        match key {
            WatchKey::Listener(_)
            | WatchKey::Scopes(_)
            | WatchKey::ExtensionConfig(_)
            | WatchKey::Routes(_)
            | WatchKey::VirtualHost(_)
            | WatchKey::Cluster(_)
            | WatchKey::Endpoints(_)
            | WatchKey::LbEndpoints(_) => Some(watch_id),
            WatchKey::Host(address) => {
                self.dns_hosts.unwatch(watch_id, address);
                None
            }
        }
    }

    /// The number of clusters that the resolutions have processed.
    #[cfg(test)]
    pub(super) fn clusters_examined(&self) -> u64 {
        self.resolutions.values().map(|resolution| resolution.resolver.work()).sum()
    }
}

/// A published value as one of its type. The key of the watch determines the type, so that the cast cannot fail.
fn typed<T: Resource>(observed: &Arc<dyn Any + Send + Sync>) -> Arc<Observed<T>> {
    observed.clone().downcast().expect("what is published for a key is of the key's type")
}
