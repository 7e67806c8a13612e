//! What must be when nothing has happened for long: every resolution shows what its target leads to, and the server is
//! requested just that.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use super::{
    mesh::Mesh,
    model::Resolution,
    naive::{choose, flatten_all},
    picture::{Picture, Shown},
    spec::{Generation, Host, Made, ResourceKey, Spec, Type},
    world::World,
};
use crate::{
    base::WatchId,
    control_plane::session::AfterNack,
    engine::{Selection, simulation::network::NetworkEvent},
    error::{Blame, Code, Subject, WatchError},
    observed::Observed,
    resource::{
        Cluster, ClusterLoadAssignment, Erased, Listener, Resource, ResourceType, RouteConfiguration,
    },
};

pub(super) struct Quiet<'a> {
    world: &'a mut World,
    /// The requested resources.
    requested: BTreeSet<ResourceKey>,
    /// The resources that should be requested, and their states.
    seen: BTreeMap<ResourceKey, Seen>,
}

/// What a watch of a resource sees.
#[derive(Debug, Clone)]
struct Seen {
    made: Option<Made>,
    error: Option<WatchError>,
}

/// What a resolution should show.
enum Expected {
    Tree(Picture),
    Failure(WatchError),
    /// A failure of the resolution's own, by words in it.
    FailureWith(&'static str),
}

impl<'a> Quiet<'a> {
    pub(super) fn of(world: &'a mut World) -> Self {
        let mut requested = BTreeSet::new();
        if let Some(open) = &world.network.servers[0].open {
            for ty in Type::ALL {
                requested
                    .extend(open.session.subscribed(ty.url()).into_iter().map(|name| (ty, name.to_owned())));
            }
            // A server that sends what was rejected again is answered at a pace.
            if world.network.servers[0].settings.behavior.after_nack == AfterNack::Nothing {
                open.rules.check_all_answered();
            }
        }
        Self { world, requested, seen: BTreeMap::new() }
    }

    pub(super) fn check(mut self) {
        let resolutions = mem::take(&mut self.world.model.resolutions);
        for (watch_id, resolution) in &resolutions {
            let last = resolution.last.as_ref();
            match (self.resolve(resolution), last) {
                (Expected::Tree(picture), Some(Ok(last))) => assert_eq!(picture, *last, "of {watch_id:?}"),
                (Expected::Failure(reason), Some(Err(last))) => assert_eq!(reason, *last, "of {watch_id:?}"),
                (Expected::FailureWith(words), Some(Err(last))) => {
                    assert!(last.reason().contains(words), "{last:?}");
                }
                (Expected::Tree(picture), last) => {
                    panic!("{watch_id:?} should show {picture:#?}, not {last:#?}")
                }
                (Expected::Failure(reason), last) => {
                    panic!("{watch_id:?} should show {reason}, not {last:#?}")
                }
                (Expected::FailureWith(words), last) => {
                    panic!("{watch_id:?} should show {words:?}, not {last:#?}")
                }
            }
        }
        let needed: BTreeSet<_> = self.seen.into_keys().collect();
        let idle: Vec<_> = self.requested.difference(&needed).collect();
        assert!(idle.is_empty(), "{idle:?} are requested in vain");
    }

    /// Walks down from the listener.
    fn resolve(&mut self, resolution: &Resolution) -> Expected {
        let listener = self.see((Type::Listener, resolution.target.clone()));
        let tree = |quiet: &mut Self| quiet.clusters(resolution, &resolution.roots);
        let Some(made) = listener.made else {
            tree(self);
            return Expected::Failure(listener.error.expect("a missing listener has a reason"));
        };
        let mut warnings = Vec::from_iter(listener.error);
        let routing = (resolution.target.clone(), made);
        let routes = match &routing.1.spec {
            Spec::Inline(_) => routing.clone(),
            Spec::Rds(name) => {
                let routes = self.see((Type::Routes, name.clone()));
                match (routes.made, routes.error, &resolution.last) {
                    (Some(made), warning, _) => {
                        warnings.extend(warning);
                        (name.clone(), made)
                    }
                    // What cannot be had takes nothing from who is served.
                    (None, Some(reason), Some(Ok(last))) if !reason.is_not_found() => {
                        let clusters = tree(self);
                        return Expected::Tree(Picture { warnings: vec![reason], clusters, ..last.clone() });
                    }
                    (None, reason, _) => {
                        tree(self);
                        return Expected::Failure(reason.expect("missing routes have a reason"));
                    }
                }
            }
            Spec::Socket => {
                tree(self);
                return Expected::FailureWith("does not contain API listener configuration");
            }
            other => panic!("{other:?} is no listener"),
        };
        let (Spec::Routes(hosts) | Spec::Inline(hosts)) = &routes.1.spec else { panic!("{routes:?}") };
        let Some(Host { domain, clusters }) = choose(hosts, &resolution.authority) else {
            tree(self);
            return Expected::FailureWith("could not find VirtualHost");
        };
        let (host, clusters) = (domain.clone(), self.clusters(resolution, clusters));
        Expected::Tree(Picture { listener: routing, routes, host, warnings, clusters })
    }

    /// What the clusters of routes, and those that calls hold, lead to.
    fn clusters(&mut self, resolution: &Resolution, roots: &[String]) -> BTreeMap<String, Shown> {
        let mut known: BTreeMap<String, Seen> = BTreeMap::new();
        let (flats, too_deep) = loop {
            let look = |name: &str| known.get(name)?.made.as_ref().map(|made| &made.spec);
            let (flats, too_deep) = flatten_all(roots.iter().chain(&resolution.held), look);
            let unknown: Vec<_> = flats.keys().filter(|name| !known.contains_key(*name)).cloned().collect();
            if unknown.is_empty() {
                break (flats, too_deep);
            }
            // What one way leads to may be too deep by the first way down, which is known later.
            let is_asked = |name: &String| self.requested.contains(&(Type::Cluster, name.clone()));
            let (requested, others): (Vec<_>, Vec<_>) = unknown.into_iter().partition(is_asked);
            for name in if requested.is_empty() { others } else { requested } {
                let seen = self.see((Type::Cluster, name.clone()));
                known.insert(name, seen);
            }
        };
        let mut clusters = BTreeMap::new();
        for (name, flat) in flats {
            let Seen { made, error } = known[&name].clone();
            let deep = flat.too_deep.is_some() || too_deep.contains(&name);
            let shown = match made.as_ref().map(|made| &made.spec) {
                None => Shown { error, ..Shown::default() },
                Some(Spec::Aggregate(_)) if deep => failed(&name, made, "exceeds max depth (16)"),
                Some(Spec::Aggregate(_)) if flat.leaves.is_empty() => {
                    failed(&name, made, "has no leaf clusters")
                }
                Some(Spec::Aggregate(_)) => {
                    Shown { config: made, warning: error, leaves: flat.leaves, ..Shown::default() }
                }
                Some(Spec::Eds(service)) => {
                    let found = self.see((Type::Endpoints, service.clone()));
                    let endpoints = found.made.map(|found| (service.clone(), found.generation));
                    Shown {
                        config: made,
                        warning: error,
                        endpoints,
                        endpoints_error: found.error,
                        ..Shown::default()
                    }
                }
                Some(Spec::Dns(host, port)) => {
                    let (endpoints, endpoints_error) = self.look_up(&name, (host, *port), resolution);
                    Shown { config: made, warning: error, endpoints, endpoints_error, ..Shown::default() }
                }
                Some(other) => panic!("{other:?} is no cluster"),
            };
            clusters.insert(name, shown);
        }
        clusters
    }

    /// The addresses of a host; of a broken one they are as they were last, if they ever were.
    fn look_up(
        &self,
        cluster: &str,
        (host, port): (&str, u16),
        resolution: &Resolution,
    ) -> (Option<(String, u32)>, Option<WatchError>) {
        let dns = &self.world.dns[host];
        if !dns.broken {
            return (Some((format!("{host}:{port}"), dns.generation)), None);
        }
        let Some(Ok(last)) = &resolution.last else { return (None, None) };
        let shown = last.clusters.get(cluster).cloned().unwrap_or_default();
        assert!(shown.endpoints_error.is_some(), "{host} cannot be looked up");
        (shown.endpoints, shown.endpoints_error)
    }

    /// What a watch of a resource sees now: as much as there can be.
    fn see(&mut self, key: ResourceKey) -> Seen {
        if let Some(seen) = self.seen.get(&key) {
            return seen.clone();
        }
        assert!(self.requested.contains(&key), "{key:?} is needed, and requested is {:?}", self.requested);
        let seen = self.watch(&key).unwrap_or_else(|| panic!("nothing is known of {key:?}"));
        let fits = match self.world.mesh.now(&key) {
            Some(Made { spec: Spec::Bad, .. }) => seen.error.as_ref().is_some_and(WatchError::is_rejected),
            Some(_) if seen.error.is_some() => false,
            now @ Some(_) => seen.made.as_ref() == now,
            // No response implies that these were removed (B1.11).
            None if matches!(key.0, Type::Routes | Type::Endpoints) => true,
            None => seen.made.is_none() && seen.error.as_ref().is_some_and(WatchError::is_not_found),
        };
        assert!(fits, "{key:?} is {:?}, seen is {seen:?}", self.world.mesh.now(&key));
        self.seen.insert(key, seen.clone());
        seen
    }

    fn watch(&mut self, (ty, name): &ResourceKey) -> Option<Seen> {
        let (mesh, network) = (&self.world.mesh, &mut self.world.network);
        let probe = WatchId::new(PROBES + self.seen.len() as u64);
        let (resource, read): (_, fn(&Erased, &Mesh, &ResourceKey) -> Seen) = match ty {
            Type::Listener => (ResourceType::of::<Listener>(), Seen::of::<Listener>),
            Type::Routes => (ResourceType::of::<RouteConfiguration>(), Seen::of::<RouteConfiguration>),
            Type::Cluster => (ResourceType::of::<Cluster>(), Seen::of::<Cluster>),
            Type::Endpoints => {
                (ResourceType::of::<ClusterLoadAssignment>(), Seen::of::<ClusterLoadAssignment>)
            }
        };
        let now = network.now;
        network.engine.subscribe(probe, resource, Selection::One(name.as_str().into()), now);
        let mut seen = None;
        while let Some(event) = network.poll(now) {
            match event {
                NetworkEvent::Published(watch_id, observed) if watch_id == probe => {
                    seen = Some(read(&observed, mesh, &(*ty, name.clone())));
                }
                NetworkEvent::Published(..)
                | NetworkEvent::Lookup(..)
                | NetworkEvent::Due(_)
                | NetworkEvent::Delivered(..)
                | NetworkEvent::Answered(_)
                | NetworkEvent::Settled => {}
            }
        }
        seen
    }
}

impl Seen {
    fn of<T: Resource + Generation>(observed: &Erased, mesh: &Mesh, key: &ResourceKey) -> Self {
        let observed = observed.downcast_ref::<Observed<T>>().expect("it is of the type that is watched");
        let made = observed.resource().map(|resource| mesh.made(key, resource.generation()));
        Self { made, error: observed.error().cloned() }
    }
}

fn failed(name: &str, config: Option<Made>, problem: &str) -> Shown {
    let about = Subject { type_url: Cluster::TYPE_URL, name: name.into(), node: "n".into() };
    let text = format!("aggregate cluster graph {problem}");
    let error = WatchError::new(Code::FailedPrecondition, Blame::Peer, about, text);
    Shown { config, error: Some(error), ..Shown::default() }
}

/// The first number of a watch that only looks.
const PROBES: u64 = 1 << 32;
