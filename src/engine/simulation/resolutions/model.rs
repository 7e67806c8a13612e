//! What must hold of everything that resolutions publish.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    mesh::Mesh,
    naive::{choose, flatten_all},
    picture::{Picture, Shown},
    spec::{Made, ResourceKey, Spec, Type},
};
use crate::{
    base::WatchId,
    error::{Blame, Code, WatchError},
    resolve::Resolved,
    resource::Erased,
};

/// The resolutions, and what they have published.
#[derive(Default)]
pub(super) struct Model {
    pub(super) resolutions: BTreeMap<WatchId, Resolution>,
    pub(super) rules: Rules,
    /// How often what was published.
    pub(super) counts: BTreeMap<&'static str, u64>,
}

/// What can be expected of a run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rules {
    /// Every state of the mesh gives every target clusters that can be used, and each deletion reaches the client with what
    /// replaces the deleted, or less than the grace before it.
    pub(super) sound: bool,
    /// Streams break, and servers and resolvers cannot be reached.
    pub(super) faults: bool,
}

/// What is known of a resolution.
pub(super) struct Resolution {
    pub(super) target: String,
    pub(super) authority: String,
    pub(super) held: BTreeSet<String>,
    pub(super) last: Option<Result<Picture, WatchError>>,
    /// The clusters of the routes that were in use last.
    pub(super) roots: Vec<String>,
    /// Requests could be sent to all clusters of its routes.
    served: bool,
    /// The clusters that were too deep in the graph, and are waited for since they are not.
    unnotified: BTreeSet<String>,
    /// The generations that were seen last.
    seen: BTreeMap<ResourceKey, u32>,
}

impl Resolution {
    pub(super) fn new(target: String, authority: String) -> Self {
        Self {
            target,
            authority,
            held: BTreeSet::new(),
            last: None,
            roots: Vec::new(),
            served: false,
            unnotified: BTreeSet::new(),
            seen: BTreeMap::new(),
        }
    }
}

impl Resolution {
    /// The generation of a resource above the clusters before which nothing can be an update of it: that in a picture, or the one that
    /// was seen last of what the picture does without, such as routes to which the listener leads and which cannot be used.
    fn generation_before(&self, key: &ResourceKey, picture: &Picture) -> u32 {
        let shown = match key.0 {
            Type::Listener => &picture.listener,
            Type::Routes => &picture.routes,
            Type::Cluster | Type::Endpoints => panic!("{key:?} is not above the clusters"),
        };
        if shown.0 == key.1 {
            return shown.1.generation;
        }
        self.seen.get(key).copied().unwrap_or(0)
    }
}

impl Model {
    pub(super) fn any_watch(&self, random: &mut fastrand::Rng) -> Option<WatchId> {
        let watches: Vec<_> = self.resolutions.keys().copied().collect();
        (!watches.is_empty()).then(|| watches[random.usize(0..watches.len())])
    }

    /// What a resolution publishes, in short.
    pub(super) fn read(observed: &Erased, mesh: &Mesh) -> Result<Picture, WatchError> {
        let resolved = observed.downcast_ref::<Resolved>().expect("a resolution publishes what it resolved");
        resolved.as_ref().map(|snapshot| Picture::of(snapshot, mesh)).map_err(WatchError::clone)
    }

    pub(super) fn on_published(
        &mut self,
        watch_id: WatchId,
        shown: Result<Picture, WatchError>,
        mesh: &Mesh,
    ) {
        let Some(resolution) = self.resolutions.get_mut(&watch_id) else {
            panic!("{watch_id:?} is not resolved")
        };
        let check = Check { mesh, rules: self.rules };
        let mut count = |what| *self.counts.entry(what).or_default() += 1;
        match &shown {
            Ok(picture) => {
                count("tree");
                picture.kinds().for_each(&mut count);
                check.picture(resolution, picture);
                resolution.roots = picture.roots();
                resolution.served |= resolution.roots.iter().all(|root| picture.is_usable(root));
            }
            Err(reason) => {
                check.failure(resolution, reason);
                count("failure");
            }
        }
        assert_ne!(resolution.last.as_ref(), Some(&shown), "nothing is published twice");
        resolution.last = Some(shown);
    }
}

struct Check<'a> {
    mesh: &'a Mesh,
    rules: Rules,
}

impl Check<'_> {
    fn picture(&self, resolution: &mut Resolution, picture: &Picture) {
        Self::check_routing(resolution, picture);
        Self::check_clusters(resolution, picture);
        for (name, shown) in &picture.clusters {
            self.check_cluster((name, shown), resolution);
        }
        for warning in &picture.warnings {
            let is_of_listener = warning.type_url() == Type::Listener.url();
            let ty = if is_of_listener { Type::Listener } else { Type::Routes };
            let key = (ty, warning.name().to_owned());
            let since = resolution.generation_before(&key, picture);
            self.check_reason(warning, &key, since);
        }
        if self.rules.sound && resolution.served {
            // While some clusters are new and others still old, chains of aggregates may be longer than before and after.
            let is_lost = |root: &String| !picture.is_usable(root) && !picture.is_too_deep(root);
            let lost: Vec<_> = picture.roots().into_iter().filter(is_lost).collect();
            assert!(lost.is_empty(), "a valid change took {lost:?} from {picture:#?}");
        }
        Self::check_order(resolution, picture);
    }

    fn failure(&self, resolution: &Resolution, reason: &WatchError) {
        assert!(!(self.rules.sound && resolution.served), "a valid change took everything: {reason}");
        let ty = Type::ALL.into_iter().find(|ty| ty.url() == reason.type_url()).expect("a type of ours");
        assert!(matches!(ty, Type::Listener | Type::Routes), "{reason} concerns the whole tree");
        let key = (ty, reason.name().to_owned());
        let since = resolution.seen.get(&key).copied().unwrap_or(0);
        let mut was = self.mesh.since(&key, since);
        if reason.code() == Code::FailedPrecondition {
            assert!(was.any(|spec| spec == Some(&Spec::Socket)), "{reason}");
        } else if reason.reason().contains("VirtualHost") {
            let lacks = |spec: Option<&Spec>| match spec {
                Some(Spec::Routes(hosts) | Spec::Inline(hosts)) => {
                    choose(hosts, &resolution.authority).is_none()
                }
                _ => false,
            };
            assert!(was.any(lacks), "{reason}");
        } else {
            self.check_reason(reason, &key, since);
        }
    }

    /// Listener, routes and virtual host belong together.
    fn check_routing(resolution: &Resolution, picture: &Picture) {
        let Picture { listener, routes, .. } = picture;
        assert_eq!(listener.0, resolution.target);
        match &listener.1.spec {
            Spec::Rds(name) => assert_eq!(*name, routes.0, "the listener has other routes"),
            Spec::Inline(_) => assert_eq!(listener, routes),
            other => panic!("{other:?} leads nowhere"),
        }
        let (Spec::Routes(hosts) | Spec::Inline(hosts)) = &routes.1.spec else { panic!("{routes:?}") };
        let host = choose(hosts, &resolution.authority).map(|host| host.domain.as_str());
        assert_eq!(host, Some(picture.host.as_str()), "another virtual host fits better");
    }

    /// The snapshot has the clusters that its routes and its aggregates lead to, and what calls hold, and no others.
    fn check_clusters(resolution: &mut Resolution, picture: &Picture) {
        let roots = picture.roots();
        for root in &roots {
            assert!(picture.clusters.contains_key(root), "{root} is missing from {picture:#?}");
        }
        // What calls hold is left out until it is ready (A74-6).
        let held = resolution.held.iter().filter(|name| picture.clusters.contains_key(*name));
        let (flats, too_deep) = flatten_all(roots.iter().chain(held), |name| picture.config(name));
        assert!(picture.clusters.keys().all(|name| flats.contains_key(name)), "{picture:#?} has too much");
        // What was too deep is requested when the graph gets lower, and left out until it is there.
        let last = resolution.last.as_ref().and_then(|last| last.as_ref().ok());
        let was_deep = last.filter(|last| last.clusters.keys().any(|name| last.is_too_deep(name)));
        let was_too_deep = |name: &String| {
            picture.above(name).all(|above| above.starts_with('w'))
                || was_deep.is_some_and(|last| !last.clusters.contains_key(name))
                || resolution.unnotified.contains(name)
        };
        let is_missing = |name: &&String| !picture.clusters.contains_key(*name);
        let missing: BTreeSet<_> = flats.keys().filter(is_missing).cloned().collect();
        assert!(missing.iter().all(was_too_deep), "{missing:?} are missing from {picture:#?}");
        resolution.unnotified = missing;
        for (name, flat) in &flats {
            let Some(Shown { config: Some(Made { spec: Spec::Aggregate(_), .. }), error, leaves, .. }) =
                picture.clusters.get(name)
            else {
                continue;
            };
            let problem = if flat.too_deep.is_some() || too_deep.contains(name) {
                "aggregate cluster graph exceeds max depth (16)"
            } else if flat.leaves.is_empty() {
                "aggregate cluster graph has no leaf clusters"
            } else {
                assert_eq!(*leaves, flat.leaves, "of {name} in {picture:#?}");
                ""
            };
            let shown = error.as_ref().map_or("", |error| error.reason());
            assert_eq!(shown, problem, "of {name} in {picture:#?}");
        }
    }

    /// A cluster is ready, or has a reason why not; its endpoints are its own.
    fn check_cluster(&self, (name, shown): (&String, &Shown), resolution: &Resolution) {
        let Shown { config, error, warning, endpoints, endpoints_error, leaves } = shown;
        let key = (Type::Cluster, name.clone());
        let Some(Made { generation, spec }) = config else {
            let reason = error.as_ref().expect("a missing cluster has a reason");
            self.check_reason(reason, &key, resolution.seen.get(&key).copied().unwrap_or(0));
            assert!(endpoints.is_none() && endpoints_error.is_none() && leaves.is_empty(), "{shown:?}");
            return;
        };
        if let Some(warning) = warning {
            self.check_reason(warning, &key, *generation);
        }
        let source = match spec {
            Spec::Aggregate(_) => {
                assert!(endpoints.is_none() && endpoints_error.is_none(), "{name}: {shown:?}");
                assert_eq!(error.is_some(), leaves.is_empty(), "{name}: {shown:?}");
                return;
            }
            Spec::Eds(service) => service.clone(),
            Spec::Dns(host, port) => format!("{host}:{port}"),
            other => panic!("{other:?} is no cluster"),
        };
        assert!(error.is_none() && leaves.is_empty(), "{name}: {shown:?}");
        assert!(endpoints.is_some() || endpoints_error.is_some(), "{name} is not ready: {shown:?}");
        assert!(endpoints.iter().all(|(whose, _)| *whose == source), "{name} has another's: {shown:?}");
        if let (Some(endpoints_error), Spec::Eds(_)) = (endpoints_error, spec) {
            let key = (Type::Endpoints, source);
            let since = endpoints.as_ref().map(|(_, generation)| *generation);
            self.check_reason(
                endpoints_error,
                &key,
                since.or(resolution.seen.get(&key).copied()).unwrap_or(0),
            );
        } else if let Some(endpoints_error) = endpoints_error {
            assert!(self.rules.faults && endpoints_error.blame() == Blame::Network, "{endpoints_error}");
        }
    }

    /// No error without something bad, in the mesh since a generation, or on the way.
    fn check_reason(&self, reason: &WatchError, key: &ResourceKey, since: u32) {
        let mut was = self.mesh.since(key, since);
        let explained = if reason.blame() == Blame::Network {
            self.rules.faults
        } else if reason.is_rejected() {
            was.any(|spec| spec == Some(&Spec::Bad))
        } else if reason.is_not_found() {
            reason.reason().contains("in time") || was.any(|spec| spec.is_none())
        } else {
            // What nobody can read may have been it.
            let is_unreadable = reason.reason().contains("cannot be read");
            (reason.code() == Code::Unavailable || is_unreadable) && self.rules.faults
        };
        assert!(explained, "{key:?} was good since {since}: {reason}");
    }

    /// Nothing goes back to what it was before.
    fn check_order(resolution: &mut Resolution, picture: &Picture) {
        let routing = [(Type::Listener, &picture.listener), (Type::Routes, &picture.routes)];
        let routing = routing.into_iter().map(|(ty, (name, made))| ((ty, name.clone()), made.generation));
        let clusters = picture.clusters.iter().filter_map(|(name, shown)| {
            Some(((Type::Cluster, name.clone()), shown.config.as_ref()?.generation))
        });
        let endpoints = picture.clusters.values().filter_map(|shown| shown.endpoints.clone());
        let endpoints = endpoints.map(|(name, generation)| ((Type::Endpoints, name), generation));
        for (key, generation) in routing.chain(clusters).chain(endpoints) {
            let before = resolution.seen.insert(key.clone(), generation);
            assert!(before <= Some(generation), "{key:?} went back from {before:?} to {generation}");
        }
    }
}

/// A rejection of routes that wait for their turn is not judged by when those in use were made.
#[test]
fn a_warning_about_routes_that_are_not_in_use_is_checked_by_their_own_generations() {
    let made = |generation, spec| Made { generation, spec };
    let inline = ("t0".to_owned(), made(21, Spec::Inline(Vec::new())));
    let (host, warnings, clusters) = ("*".to_owned(), Vec::new(), BTreeMap::new());
    let picture = Picture { listener: inline.clone(), routes: inline, host, warnings, clusters };
    let mut resolution = Resolution::new("t0".into(), "t0".into());
    resolution.seen.insert((Type::Routes, "r0".into()), 7);
    let since = |ty, name: &str| resolution.generation_before(&(ty, name.to_owned()), &picture);
    assert_eq!(since(Type::Routes, "r0"), 7);
    assert_eq!(since(Type::Routes, "r1"), 0);
    assert_eq!(since(Type::Listener, "t0"), 21);
}
