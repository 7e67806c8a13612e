use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Instant,
};

use tracing::debug;

use super::{Engine, Refusal, Selection, View};
use crate::{
    capacity::Shrink,
    config::{ApiType, Target},
    error::{Blame, Code, Subject, WatchError},
    name::ResourceName,
    observed::Observed,
    protocol::{Output, SourceKey, TypeId, ViewId},
    resolve::{About, Endpoints, HostOrder, Order, Resolved, Resolver, Seen, Source, Times, WatchKey as Key},
    resource::{
        Cluster, ClusterLoadAssignment, Erased, Listener, Resource, ResourceType, RouteConfiguration,
        ScopedRouteConfiguration, VirtualHost, config_source::ResourceConfigSource,
    },
};

/// The resolutions, and what they watch: each has views of its own, as an application would.
#[derive(Debug, Default)]
pub(super) struct Resolutions {
    walks: BTreeMap<ViewId, Walk>,
    /// Whose the views of resolutions are, and what they show.
    owners: BTreeMap<ViewId, (ViewId, Key)>,
    /// What was published to resolutions and is not told yet.
    inbox: VecDeque<(ViewId, Erased)>,
    /// Those that were told something.
    touched: BTreeSet<ViewId>,
    /// When those want to be called that do.
    timers: BTreeMap<ViewId, Instant>,
    /// Where what a view shows is to be had, if not where its name comes from.
    sources: BTreeMap<ViewId, Arc<ResourceConfigSource>>,
    last_view: u64,
}

#[derive(Debug)]
struct Walk {
    resolver: Resolver,
    views: BTreeMap<Key, ViewId>,
}

impl Engine {
    /// Begins a resolution. It ends as a view does, by [`unsubscribe`](Self::unsubscribe).
    pub(crate) fn resolve(&mut self, view: ViewId, target: &Target, now: Instant) {
        debug!(%view, target = target.as_str(), "resolution started");
        match self.bootstrap.read_target(target.as_str()) {
            Ok((listener, service)) => {
                let about = About {
                    target: target.as_str().into(),
                    authority: target.authority().unwrap_or(&service).into(),
                    headers: target.headers().clone(),
                    listener: listener.as_str().into(),
                    node_id: self.node_id.clone(),
                };
                let times =
                    Times { grace: self.settings.deletion_grace, timeout: self.settings.resource_timeout };
                let resolver = Resolver::new(about, times);
                self.walks.walks.insert(view, Walk { resolver, views: BTreeMap::new() });
                self.walks.touched.insert(view);
                self.views.insert(view, View::Walk);
            }
            Err(error) => {
                let about = Subject {
                    type_url: Listener::TYPE_URL,
                    name: target.as_str().into(),
                    node: self.node_id.clone(),
                };
                let error = WatchError::new(Code::InvalidArgument, Blame::Local, about, error.to_string());
                self.outputs.push_back(notify(view, Err(error.clone())));
                self.views.insert(view, View::Refused(error));
            }
        }
        self.walk_on(now);
    }

    /// The first subscription to a cluster within a resolution: the cluster stays in the snapshots with or without routes (A74-6).
    pub(crate) fn subscribe_cluster(&mut self, view: ViewId, name: &str, now: Instant) {
        self.set_cluster_held(view, (name, true), now);
    }

    /// The end of the last subscription to it.
    pub(crate) fn unsubscribe_cluster(&mut self, view: ViewId, name: &str, now: Instant) {
        self.set_cluster_held(view, (name, false), now);
    }

    /// Asks again for the addresses of a resolution's logical DNS clusters (A74-7).
    pub(crate) fn request_reresolution(&mut self, view: ViewId, now: Instant) {
        let views = self.walks.walks.get(&view).map(|walk| walk.views.clone());
        for (key, view) in views.into_iter().flatten() {
            if matches!(key, Key::Host(_)) {
                self.hosts.look_up_again(view, now);
            }
        }
        self.walk_on(now);
    }

    /// How many clusters the resolutions have looked at.
    #[cfg(test)]
    pub(crate) fn clusters_walked(&self) -> u64 {
        self.walks.walks.values().map(|walk| walk.resolver.work()).sum()
    }

    /// When a resolution wants to be called.
    pub(super) fn next_walk(&self) -> Option<Instant> {
        self.walks.timers.values().min().copied()
    }

    pub(super) fn walk_timeout(&mut self, now: Instant) {
        let Resolutions { touched, timers, .. } = &mut self.walks;
        touched.extend(timers.iter().filter(|(_, at)| **at <= now).map(|(view, _)| *view));
    }

    pub(super) fn end_walk(&mut self, view: ViewId, now: Instant) {
        let Some(walk) = self.walks.walks.remove(&view) else { return };
        self.walks.timers.remove(&view);
        for (key, view) in walk.views {
            self.unwatch_for_walk(&key, view, now);
        }
    }

    /// Lets the resolutions work on what was published to them, until nothing moves any more. While a response is being
    /// worked off they wait for its end, so that they see all of it together.
    pub(super) fn walk_on(&mut self, now: Instant) {
        self.drive_walks(now);
        self.sweep();
        self.servers.settle_deadlines();
    }

    fn drive_walks(&mut self, now: Instant) {
        if self.jobs.front().is_some_and(|job| job.has_begun()) {
            return;
        }
        loop {
            self.follow_hosts();
            while let Some((view, observed)) = self.walks.inbox.pop_front() {
                self.walks.inbox.shrink_if_sparse();
                if !self.on_followed(view, now) {
                    self.walks.tell(view, &observed);
                }
            }
            if self.follow_turn(now) {
                continue;
            }
            let Some(view) = self.walks.touched.pop_first() else {
                self.flush();
                // The members of collections come last.
                if self.walks.inbox.is_empty() {
                    return;
                }
                continue;
            };
            for order in self.walks.settle(view, now) {
                self.follow_order(view, order, now);
            }
        }
    }

    fn follow_order(&mut self, walk: ViewId, order: Order, now: Instant) {
        match order {
            Order::Publish(resolved) => {
                match &resolved {
                    Ok(tree) => debug!(view = %walk, target = tree.target(), "resolution succeeded"),
                    Err(error) => debug!(view = %walk, %error, "resolution failed"),
                }
                self.outputs.push_back(notify(walk, resolved));
            }
            Order::Watch(key) => self.watch_for_walk(walk, key, now),
            Order::Unwatch(key) => {
                let view = self.walks.walks.get_mut(&walk).and_then(|walk| walk.views.remove(&key));
                if let Some(view) = view {
                    self.unwatch_for_walk(&key, view, now);
                }
            }
        }
    }

    fn watch_for_walk(&mut self, walk: ViewId, key: Key, now: Instant) {
        let view = self.walks.next_view();
        let Some(found) = self.walks.walks.get_mut(&walk) else { return };
        found.views.insert(key.clone(), view);
        debug!(view = %walk, dependency = %view, "resolution continued");
        self.walks.owners.insert(view, (walk, key.clone()));
        match key {
            Key::Listener(name) => {
                self.begin(view, ResourceType::of::<Listener>(), Selection::One(name.into()), now)
            }
            Key::Scopes(name) => {
                let names =
                    if &*name == Key::ALL { Selection::All } else { Selection::Collection(name.into()) };
                self.begin(view, ResourceType::of::<ScopedRouteConfiguration>(), names, now);
            }
            Key::Routes(routes) => {
                self.note_source(view, routes.source);
                let names = Selection::One(routes.name.into());
                self.begin(view, ResourceType::of::<RouteConfiguration>(), names, now);
            }
            Key::VirtualHost(name) => self.begin_on_demand(view, name, now),
            Key::Cluster(name) => {
                self.begin(view, ResourceType::of::<Cluster>(), Selection::One(name.into()), now)
            }
            Key::Endpoints(endpoints) => {
                self.note_source(view, endpoints.source);
                let names = Selection::One(endpoints.name.into());
                self.begin(view, ResourceType::of::<ClusterLoadAssignment>(), names, now);
            }
            Key::Host(address) => self.hosts.watch(view, &address, now),
        }
    }

    fn note_source(&mut self, view: ViewId, source: Option<Arc<ResourceConfigSource>>) {
        if let Some(source) = source {
            self.walks.sources.insert(view, source);
        }
    }

    /// Virtual hosts on demand are of the incremental variant alone (B3.5): a server that speaks the other is not asked.
    fn begin_on_demand(&mut self, view: ViewId, name: Arc<str>, now: Instant) {
        let ty = ResourceType::of::<VirtualHost>();
        let names = Selection::One(name.into());
        let id = self.type_id(ty);
        match self.check_on_demand((id, &names), now) {
            Ok(()) => self.begin(view, ty, names, now),
            Err(refusal) => {
                let ty = id;
                let refused = View::Refused(self.refuse(view, ty, &names, refusal));
                self.views.insert(view, refused);
            }
        }
    }

    fn check_on_demand(&mut self, (ty, names): (TypeId, &Selection), now: Instant) -> Result<(), Refusal> {
        let name = ResourceName::parse(&names.text()).map_err(|error| Refusal::invalid(error.to_string()))?;
        let group = self.group_for((ty, &name), now)?;
        let contacts = &self.groups.get(group).contacts;
        match contacts.first() {
            Some(first) if !contacts.iter().any(SourceKey::is_delta) => {
                let message = format!(
                    "virtual hosts on demand (VHDS) need an api_type of {} or {}, which that of xDS server {} is not",
                    ApiType::AggregatedDeltaGrpc,
                    ApiType::DeltaGrpc,
                    first.source(),
                );
                Err(Refusal { code: Code::Unimplemented, message })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn unwatch_for_walk(&mut self, key: &Key, view: ViewId, now: Instant) {
        self.walks.owners.remove(&view);
        self.walks.sources.remove(&view);
        match key {
            Key::Listener(_)
            | Key::Scopes(_)
            | Key::Routes(_)
            | Key::VirtualHost(_)
            | Key::Cluster(_)
            | Key::Endpoints(_) => self.end(view, now),
            Key::Host(address) => self.hosts.unwatch(view, address),
        }
    }

    fn set_cluster_held(&mut self, view: ViewId, (name, held): (&str, bool), now: Instant) {
        if let Some(walk) = self.walks.walks.get_mut(&view) {
            walk.resolver.set_held(&name.into(), held);
            self.walks.touched.insert(view);
            self.walk_on(now);
        }
    }

    fn follow_hosts(&mut self) {
        while let Some(order) = self.hosts.poll() {
            match order {
                HostOrder::LookUp { lookup, host } => self.outputs.push_back(Output::Lookup { lookup, host }),
                HostOrder::Notify { view, address, seen } => {
                    self.walks.tell_resolver(view, |_| {
                        Seen::Endpoints(Source::Host(address), Endpoints::Host(seen))
                    });
                }
            }
        }
    }
}

impl Resolutions {
    /// Where what a view shows is to be had, if not where its name comes from.
    pub(super) fn source_of(&self, view: ViewId) -> Option<&Arc<ResourceConfigSource>> {
        self.sources.get(&view)
    }

    /// The number of a new view of the engine's own.
    pub(super) fn next_view(&mut self) -> ViewId {
        self.last_view += 1;
        ViewId::internal(self.last_view)
    }

    /// Publishes to whom a view belongs: to the application, or to a resolution.
    pub(super) fn deliver(&mut self, outputs: &mut VecDeque<Output>, view: ViewId, observed: Erased) {
        if view.is_internal() {
            self.inbox.push_back((view, observed));
        } else {
            outputs.push_back(Output::Notify { view, observed });
        }
    }

    /// Lets a resolution work on what it was told; gives what it wants then.
    fn settle(&mut self, view: ViewId, now: Instant) -> Vec<Order> {
        let Some(walk) = self.walks.get_mut(&view) else { return Vec::new() };
        walk.resolver.process(now);
        match walk.resolver.next_timeout() {
            Some(at) => drop(self.timers.insert(view, at)),
            None => drop(self.timers.remove(&view)),
        }
        std::iter::from_fn(|| walk.resolver.poll_order()).collect()
    }

    fn tell(&mut self, view: ViewId, observed: &Erased) {
        self.tell_resolver(view, |key| match key {
            Key::Listener(_) => Seen::Listener(typed(observed)),
            Key::Scopes(_) => {
                let members = observed.clone().downcast();
                Seen::Scopes(members.expect("what is published for a collection are its members"))
            }
            Key::Routes(_) => Seen::Routes(typed(observed)),
            Key::VirtualHost(_) => Seen::VirtualHost(typed(observed)),
            Key::Cluster(name) => Seen::Cluster(name.clone(), typed(observed)),
            Key::Endpoints(name) => {
                Seen::Endpoints(Source::Eds(name.clone()), Endpoints::Eds(typed(observed)))
            }
            Key::Host(_) => unreachable!("hosts are no resources"),
        });
    }

    fn tell_resolver(&mut self, view: ViewId, seen: impl FnOnce(&Key) -> Seen) {
        // It may have ended meanwhile.
        let Some((owner, key)) = self.owners.get(&view) else { return };
        let Some(walk) = self.walks.get_mut(owner) else { return };
        walk.resolver.handle(seen(key));
        self.touched.insert(*owner);
    }
}

fn notify(view: ViewId, resolved: Resolved) -> Output {
    Output::Notify { view, observed: Arc::new(resolved) }
}

fn typed<T: Resource>(observed: &Arc<dyn Any + Send + Sync>) -> Arc<Observed<T>> {
    observed.clone().downcast().expect("what is published for a key is of the key's type")
}
