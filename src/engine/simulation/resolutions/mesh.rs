//! The operator of a simulated mesh: random changes, of which each makes a generation.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    naive::flatten,
    spec::{Host, Made, ResourceKey, Spec, Type},
};
use crate::control_plane::Store;

/// What there is, and what there ever was.
#[derive(Default)]
pub(super) struct Mesh {
    generation: u32,
    now: BTreeMap<ResourceKey, Made>,
    /// What each resource was from which generation on; `None` for not being there, as all are at first.
    history: BTreeMap<ResourceKey, Vec<(u32, Option<Spec>)>>,
}

/// A change in the making.
pub(super) struct Draft<'a> {
    random: &'a mut fastrand::Rng,
    specs: BTreeMap<ResourceKey, Spec>,
    /// Resources of a new generation even if unchanged.
    renewed: BTreeSet<ResourceKey>,
}

impl Mesh {
    /// Makes a random change, all of it at once; a `sound` one leaves all targets with clusters that can be used. Returns the
    /// changes.
    pub(super) fn change(
        &mut self,
        store: &mut Store,
        random: &mut fastrand::Rng,
        sound: bool,
    ) -> BTreeMap<ResourceKey, Option<Spec>> {
        let specs = self.now.iter().map(|(key, made)| (key.clone(), made.spec.clone())).collect();
        let mut draft = Draft { random, specs, renewed: BTreeSet::new() };
        if self.generation == 0 {
            draft.begin();
        }
        for _ in 0..draft.random.usize(1..5) {
            draft.change(sound);
        }
        if sound || draft.random.bool() {
            draft.repair();
        }
        if !sound && draft.random.bool() {
            draft.change(sound);
        }
        if draft.random.u32(0..4) == 0 {
            draft.tidy();
        }
        let Draft { specs, renewed, .. } = draft;
        self.commit(store, specs, &renewed)
    }

    /// What is there now.
    pub(super) fn now(&self, key: &ResourceKey) -> Option<&Made> {
        self.now.get(key)
    }

    /// A resource as of a generation.
    pub(super) fn made(&self, key: &ResourceKey, generation: u32) -> Made {
        let found = self.history(key).iter().find(|(at, _)| *at == generation);
        let spec = found.and_then(|(_, spec)| spec.clone());
        let spec = spec.unwrap_or_else(|| panic!("{key:?} of generation {generation} never was"));
        assert_ne!(spec, Spec::Bad, "{key:?} of generation {generation} was bad");
        Made { generation, spec }
    }

    /// What a resource was since a generation, that one included.
    pub(super) fn since(&self, key: &ResourceKey, generation: u32) -> impl Iterator<Item = Option<&Spec>> {
        let history = self.history(key);
        let before = history.partition_point(|(at, _)| *at <= generation);
        // The state as of the generation is that of the last change up to it.
        history[before.saturating_sub(1)..].iter().map(|(_, spec)| spec.as_ref())
    }

    fn history(&self, key: &ResourceKey) -> &[(u32, Option<Spec>)] {
        self.history.get(key).map_or(&[(0, None)], Vec::as_slice)
    }

    fn commit(
        &mut self,
        store: &mut Store,
        specs: BTreeMap<ResourceKey, Spec>,
        renewed: &BTreeSet<ResourceKey>,
    ) -> BTreeMap<ResourceKey, Option<Spec>> {
        let mut changes = BTreeMap::new();
        self.generation += 1;
        let generation = self.generation;
        let keys: BTreeSet<_> = self.now.keys().chain(specs.keys()).cloned().collect();
        store.update(|tx| {
            for key in keys {
                let (before, after) = (self.now.get(&key).map(|made| &made.spec), specs.get(&key));
                if before == after && !renewed.contains(&key) {
                    continue;
                }
                // Each resource is not there in generation 0, before the first change.
                let history = self.history.entry(key.clone()).or_insert_with(|| vec![(0, None)]);
                history.push((generation, after.cloned()));
                changes.insert(key.clone(), after.cloned());
                if let Some(spec) = after {
                    // The generation is in the resource, so that what is published can be traced to it.
                    tx.set(spec.encode(&key, generation));
                    self.now.insert(key, Made { generation, spec: spec.clone() });
                } else {
                    tx.remove(key.0.url(), &key.1);
                    self.now.remove(&key);
                }
            }
        });
        changes
    }
}

impl Draft<'_> {
    /// The first mesh.
    fn begin(&mut self) {
        for i in 0..3 {
            let routes = Spec::Routes(self.hosts());
            self.set((Type::Listener, format!("t{i}")), Spec::Rds(format!("r{i}")));
            self.set((Type::Routes, format!("r{i}")), routes);
        }
        for i in 0..6 {
            let (name, spec) = (format!("k{i}"), self.cluster(&format!("k{i}")));
            self.set((Type::Cluster, name), spec);
            self.set((Type::Endpoints, format!("s{i}")), Spec::Endpoints);
        }
    }

    fn change(&mut self, sound: bool) {
        match self.random.u32(0..if sound { 70 } else { 100 }) {
            0..16 => {
                let key = (Type::Routes, self.name("r", 3));
                let hosts = self.hosts();
                self.set(key, Spec::Routes(hosts));
            }
            16..28 => {
                let key = (Type::Cluster, self.name("k", 8));
                let spec = self.cluster(&key.1);
                self.set(key, spec);
            }
            28..36 => {
                let key = (Type::Listener, self.name("t", 3));
                let spec = match self.random.u32(0..4) {
                    0 => Spec::Inline(self.hosts()),
                    _ => Spec::Rds(self.name("r", 3)),
                };
                self.set(key, spec);
            }
            36..44 => {
                let kind = if self.random.bool() { "s" } else { "k" };
                let key = (Type::Endpoints, self.name(kind, 6));
                self.set(key, Spec::Endpoints);
            }
            44..52 => self.rename_cluster(),
            52..57 => self.rename_routes(),
            57..62 => self.rename_service(),
            62..65 => self.build_tower(sound),
            65..70 => self.renew(),
            70..82 => {
                if let Some(key) = self.any() {
                    self.set(key, Spec::Bad);
                }
            }
            82..98 => {
                if let Some(key) = self.any() {
                    self.specs.remove(&key);
                }
            }
            _ => {
                let key = (Type::Listener, self.name("t", 3));
                self.set(key, Spec::Socket);
            }
        }
    }

    fn set(&mut self, key: ResourceKey, spec: Spec) {
        self.renewed.insert(key.clone());
        self.specs.insert(key, spec);
    }

    fn renew(&mut self) {
        if let Some(key) = self.any() {
            self.renewed.insert(key);
        }
    }

    fn any(&mut self) -> Option<ResourceKey> {
        let keys: Vec<_> = self.specs.keys().cloned().collect();
        (!keys.is_empty()).then(|| keys[self.random.usize(0..keys.len())].clone())
    }

    fn any_of(&mut self, ty: Type) -> Option<String> {
        let names: Vec<_> = self.names(ty).into_iter().collect();
        (!names.is_empty()).then(|| names[self.random.usize(0..names.len())].clone())
    }

    fn names(&self, ty: Type) -> BTreeSet<String> {
        self.specs.keys().filter(|key| key.0 == ty).map(|key| key.1.clone()).collect()
    }

    fn name(&mut self, kind: &str, count: u32) -> String {
        format!("{kind}{}", self.random.u32(0..count))
    }

    fn cluster(&mut self, name: &str) -> Spec {
        match self.random.u32(0..10) {
            0..3 => Spec::Eds(name.to_owned()),
            3..5 => Spec::Eds(self.name("s", 6)),
            5 => Spec::Dns(self.name("h", 3), 80 + self.random.u16(0..2)),
            _ => {
                let count = self.random.usize(1..4);
                Spec::Aggregate((0..count).map(|_| self.cluster_name()).collect())
            }
        }
    }

    fn cluster_name(&mut self) -> String {
        match (self.random.u32(0..5), self.any_of(Type::Cluster)) {
            (0..4, Some(name)) => name,
            _ => self.name("k", 8),
        }
    }

    fn hosts(&mut self) -> Vec<Host> {
        let mut domains = vec!["t0", "t1", "t2", "other"];
        self.random.shuffle(&mut domains);
        domains.truncate(self.random.usize(0..6).saturating_sub(3));
        // Some authorities have none.
        if self.random.u32(0..12) > 0 {
            domains.push("*");
        }
        let host = |domain: &str| {
            let count = self.random.usize(0..10).div_ceil(3);
            let clusters = (0..count).map(|_| self.cluster_name()).collect();
            Host { domain: domain.into(), clusters }
        };
        domains.into_iter().map(host).collect()
    }

    /// Everything that names a cluster names another from now on, with the same content.
    fn rename_cluster(&mut self) {
        let Some(old) = self.any_of(Type::Cluster) else { return };
        let new = self.cluster_name();
        let rename = |name: &mut String| {
            if *name == old {
                name.clone_from(&new);
            }
        };
        for spec in self.specs.values_mut() {
            match spec {
                Spec::Inline(hosts) | Spec::Routes(hosts) => {
                    hosts.iter_mut().flat_map(|host| &mut host.clusters).for_each(rename);
                }
                Spec::Aggregate(children) => children.iter_mut().for_each(rename),
                Spec::Rds(_) | Spec::Socket | Spec::Eds(_) | Spec::Dns(..) | Spec::Endpoints | Spec::Bad => {}
            }
        }
        if let Some(spec) = self.specs.remove(&(Type::Cluster, old)) {
            self.set((Type::Cluster, new), spec);
        }
    }

    fn rename_routes(&mut self) {
        let Some(old) = self.any_of(Type::Routes) else { return };
        let new = self.name("r", 3);
        for spec in self.specs.values_mut() {
            if *spec == Spec::Rds(old.clone()) {
                *spec = Spec::Rds(new.clone());
            }
        }
        if let Some(spec) = self.specs.remove(&(Type::Routes, old)) {
            self.set((Type::Routes, new), spec);
        }
    }

    fn rename_service(&mut self) {
        let Some(old) = self.any_of(Type::Endpoints) else { return };
        let new = self.name("s", 6);
        for spec in self.specs.values_mut() {
            if *spec == Spec::Eds(old.clone()) {
                *spec = Spec::Eds(new.clone());
            }
        }
        if let Some(spec) = self.specs.remove(&(Type::Endpoints, old)) {
            self.set((Type::Endpoints, new), spec);
        }
    }

    /// Aggregates upon each other, up to what is allowed or a little more.
    fn build_tower(&mut self, sound: bool) {
        let height = self.random.u32(12..if sound { 16 } else { 20 });
        for floor in 0..height {
            let below = if floor + 1 == height { self.name("k", 8) } else { format!("w{}", floor + 1) };
            self.set((Type::Cluster, format!("w{floor}")), Spec::Aggregate(vec![below]));
        }
        let top = Host { domain: "*".into(), clusters: vec![format!("w{}", self.random.u32(0..4))] };
        let key = (Type::Routes, self.name("r", 3));
        self.set(key, Spec::Routes(vec![top]));
    }

    /// Lets all targets lead to clusters that can be used.
    fn repair(&mut self) {
        for target in ["t0", "t1", "t2"] {
            let key = (Type::Listener, target.to_owned());
            if !self.specs.contains_key(&key) {
                let routes = self.name("r", 3);
                self.set(key, Spec::Rds(routes));
            }
        }
        let needed = self.specs.values().filter_map(|spec| match spec {
            Spec::Rds(routes) => Some((Type::Routes, routes.clone())),
            _ => None,
        });
        for key in needed.collect::<BTreeSet<_>>() {
            self.specs.entry(key).or_insert(Spec::Routes(Vec::new()));
        }
        let mut roots = BTreeSet::new();
        let some = self.cluster_name();
        for spec in self.specs.values_mut() {
            let (Spec::Inline(hosts) | Spec::Routes(hosts)) = spec else { continue };
            if !hosts.iter().any(|host| host.domain == "*") {
                hosts.push(Host { domain: "*".into(), clusters: vec![some.clone()] });
            }
            roots.extend(hosts.iter().flat_map(|host| host.clusters.clone()));
        }
        self.repair_clusters(&roots);
    }

    fn repair_clusters(&mut self, roots: &BTreeSet<String>) {
        for name in roots.union(&self.names(Type::Cluster)) {
            let flat = flatten(name, |name| self.specs.get(&(Type::Cluster, name.to_owned())));
            if flat.leaves.is_empty() || flat.too_deep.is_some() {
                self.specs.insert((Type::Cluster, name.clone()), Spec::Eds(name.clone()));
            }
        }
        let services = self.specs.values().filter_map(|spec| match spec {
            Spec::Eds(service) => Some((Type::Endpoints, service.clone())),
            _ => None,
        });
        for key in services.collect::<BTreeSet<_>>() {
            self.specs.entry(key).or_insert(Spec::Endpoints);
        }
    }

    /// Removes what no target leads to.
    fn tidy(&mut self) {
        let mut needed = BTreeSet::new();
        let mut open: Vec<ResourceKey> =
            self.names(Type::Listener).into_iter().map(|name| (Type::Listener, name)).collect();
        while let Some(key) = open.pop() {
            let below: Vec<ResourceKey> = match self.specs.get(&key) {
                Some(Spec::Rds(routes)) => vec![(Type::Routes, routes.clone())],
                Some(Spec::Inline(hosts) | Spec::Routes(hosts)) => {
                    let clusters = hosts.iter().flat_map(|host| &host.clusters);
                    clusters.map(|name| (Type::Cluster, name.clone())).collect()
                }
                Some(Spec::Aggregate(children)) => {
                    children.iter().map(|name| (Type::Cluster, name.clone())).collect()
                }
                Some(Spec::Eds(service)) => vec![(Type::Endpoints, service.clone())],
                Some(Spec::Socket | Spec::Dns(..) | Spec::Endpoints | Spec::Bad) | None => Vec::new(),
            };
            if needed.insert(key) {
                open.extend(below);
            }
        }
        self.specs.retain(|key, _| needed.contains(key));
    }
}
