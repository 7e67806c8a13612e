//! The filter chains of the active configuration and of older connections.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    ChainId, ChainRef, Output, Routing, address::socket, compiled_routes::CompiledRoutes,
    configs::ActiveConfig, route_watches::RouteWatches,
};
use crate::{
    filters::Instances,
    observed::Observed,
    resource::{
        Listener, RouteConfiguration,
        filter_chain::{ChainIndex, SocketListener},
        http_filter::HttpFilter,
        listener::RouteSource,
    },
};

/// The chains in use, each with the routing of its requests.
#[derive(Debug)]
pub(super) struct ChainTable {
    node: Arc<str>,
    chains: BTreeMap<ChainId, ChainEntry>,
    /// The chains whose routes have a name.
    by_routes: BTreeMap<Arc<str>, BTreeSet<ChainId>>,
    /// The state of filters, which outlives configurations (SV8.6).
    instances: Instances,
    last: u64,
}

#[derive(Debug)]
struct ChainEntry {
    config: ChainRef,
    routing: Arc<Routing>,
    /// Whether it is one of the active configuration.
    is_active: bool,
    /// The number of its connections.
    connections: usize,
}

/// The last compiled routes, which chains with the same filters and routes share.
struct LastCompiled<'a> {
    filters: &'a [HttpFilter],
    routing: Arc<Routing>,
}

impl ChainTable {
    /// A table without chains, for a client with this node id.
    pub(super) fn new(node: Arc<str>) -> Self {
        let (chains, by_routes) = (BTreeMap::new(), BTreeMap::new());
        Self { node, chains, by_routes, instances: Instances::default(), last: 0 }
    }

    /// Adds the chains of a Listener, and returns them in its order with the default chain. Those that are equal in the active
    /// configuration stay what they are.
    pub(super) fn install(
        &mut self,
        listener: &Arc<Listener>,
        active: Option<&ActiveConfig>,
        watches: &RouteWatches,
        outputs: &mut Vec<Output>,
    ) -> (Box<[ChainId]>, Option<ChainId>) {
        let Some(socket) = socket(listener) else { return (Box::default(), None) };
        self.retain_instances(socket);
        let known = active.map(|active| self.known_by_name(active)).unwrap_or_default();
        for entry in self.chains.values_mut() {
            entry.is_active = false;
        }
        let mut place = |table: &mut Self, index: ChainIndex, before: Option<ChainId>| {
            let config = ChainRef::new(listener.clone(), index);
            let named = known.get(&*config.chain().name).copied();
            let is_equal = |id: &ChainId| {
                let entry = table.chains.get(id);
                entry.is_some_and(|entry| !entry.is_active && entry.config.chain() == config.chain())
            };
            match before.filter(is_equal).or_else(|| named.filter(is_equal)) {
                Some(id) => {
                    table.reuse(id, config);
                    id
                }
                None => table.add(config, watches, outputs),
            }
        };
        let listed = (0..socket.filter_chains.len()).map(|index| {
            let before = active.and_then(|active| active.chains.get(index).copied());
            place(self, ChainIndex::Listed(index), before)
        });
        let listed = listed.collect();
        let default = socket
            .default_filter_chain
            .is_some()
            .then(|| place(self, ChainIndex::Default, active.and_then(|active| active.default_chain)));
        (listed, default)
    }

    /// Handles that no configuration is active.
    pub(super) fn release_all(&mut self, outputs: &mut Vec<Output>) {
        for entry in self.chains.values_mut() {
            entry.is_active = false;
        }
        self.sweep(outputs);
    }

    /// Removes the chains that are neither active nor have connections.
    pub(super) fn sweep(&mut self, outputs: &mut Vec<Output>) {
        let is_unused = |(id, entry): (&ChainId, &ChainEntry)| entry.is_unused().then_some(*id);
        let unused: Vec<_> = self.chains.iter().filter_map(is_unused).collect();
        for id in unused {
            self.remove(id, outputs);
        }
    }

    /// Replaces the routing of the chains that name a route configuration.
    pub(super) fn handle_routes(&mut self, name: &str, watches: &RouteWatches, outputs: &mut Vec<Output>) {
        let Some(ids) = self.by_routes.get(name) else { return };
        let Some(observed) = watches.get(name).filter(|observed| !observed.is_pending()) else { return };
        let mut last: Option<LastCompiled<'_>> = None;
        let mut routings = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(entry) = self.chains.get(id) else { continue };
            if entry.routing.is_of(observed) {
                continue;
            }
            let filters = entry.config.filters();
            // SV8.5: chains mostly differ by their matches alone.
            let routing = match last.as_ref().filter(|last| last.filters == filters) {
                Some(last) => last.routing.clone(),
                None => {
                    let previous = entry.routing.routes();
                    Arc::new(routing(&self.node, filters, observed, previous, &mut self.instances))
                }
            };
            last = Some(LastCompiled { filters, routing: routing.clone() });
            routings.push((*id, routing));
        }
        for (chain, routing) in routings {
            if let Some(entry) = self.chains.get_mut(&chain) {
                entry.routing = routing.clone();
                outputs.push(Output::SetRouting { chain, routing });
            }
        }
    }

    /// Counts a connection of a chain.
    pub(super) fn handle_accepted(&mut self, id: ChainId) {
        if let Some(entry) = self.chains.get_mut(&id) {
            entry.connections += 1;
        }
    }

    /// Handles the end of a connection of a chain.
    pub(super) fn handle_closed(&mut self, id: ChainId, outputs: &mut Vec<Output>) {
        let Some(entry) = self.chains.get_mut(&id) else { return };
        entry.connections = entry.connections.saturating_sub(1);
        if entry.is_unused() {
            self.remove(id, outputs);
        }
    }

    /// The mistakes in the routes of the active configuration.
    pub(super) fn route_errors(&self) -> BTreeSet<String> {
        let active = self.chains.values().filter(|entry| entry.is_active);
        // Chains that share their routing have the same mistakes.
        let mut seen = BTreeSet::new();
        let distinct = active.filter(|entry| seen.insert(Arc::as_ptr(&entry.routing)));
        distinct.flat_map(|entry| entry.routing.errors()).take(MAX_ERRORS).collect()
    }

    /// The number of chains.
    pub(super) fn len(&self) -> usize {
        self.chains.len()
    }

    /// Whether a chain is one of the active configuration.
    pub(super) fn is_active(&self, id: ChainId) -> bool {
        self.chains.get(&id).is_some_and(|entry| entry.is_active)
    }

    /// The chains of a configuration by their names, as far as they have one.
    fn known_by_name(&self, active: &ActiveConfig) -> BTreeMap<Box<str>, ChainId> {
        let chains = active.all_chains().filter_map(|id| Some((id, self.chains.get(&id)?)));
        let named = chains.filter(|(_, entry)| !entry.config.chain().name.is_empty());
        named.map(|(id, entry)| (entry.config.chain().name.clone(), id)).collect()
    }

    /// Takes a chain over into the next configuration.
    fn reuse(&mut self, id: ChainId, config: ChainRef) {
        if let Some(entry) = self.chains.get_mut(&id) {
            // The Listener before is not kept in memory by a chain that is the same in the next one.
            entry.config = config;
            entry.is_active = true;
        }
    }

    fn add(&mut self, config: ChainRef, watches: &RouteWatches, outputs: &mut Vec<Output>) -> ChainId {
        self.last += 1;
        let id = ChainId(self.last);
        let filters = config.filters();
        let routing = match (&config.chain().connection_manager.routes, config.route_name()) {
            (RouteSource::Inline(routes), _) => {
                let routes = CompiledRoutes::compile(filters, routes.clone(), None, &mut self.instances);
                Arc::new(Routing::new(self.node.clone(), Ok(routes)))
            }
            (RouteSource::Rds(_) | RouteSource::Scoped(_), name) => {
                let observed = name.and_then(|name| watches.get(name)).unwrap_or(&Observed::Pending);
                match name.and_then(|name| self.shared_routing(name, filters, observed)) {
                    Some(routing) => routing,
                    None => Arc::new(routing(&self.node, filters, observed, None, &mut self.instances)),
                }
            }
        };
        if let Some(name) = config.route_name() {
            self.by_routes.entry(name.clone()).or_default().insert(id);
        }
        outputs.push(Output::AddChain { chain: id, config: config.clone(), routing: routing.clone() });
        self.chains.insert(id, ChainEntry { config, routing, is_active: true, connections: 0 });
        id
    }

    /// The routing of the newest chain with these routes, if it has the same filters.
    fn shared_routing(
        &self,
        name: &str,
        filters: &[HttpFilter],
        observed: &Observed<RouteConfiguration>,
    ) -> Option<Arc<Routing>> {
        let newest = self.by_routes.get(name)?.last()?;
        let entry = self.chains.get(newest)?;
        let is_same = entry.routing.is_of(observed) && entry.config.filters() == filters;
        is_same.then(|| entry.routing.clone())
    }

    fn remove(&mut self, id: ChainId, outputs: &mut Vec<Output>) {
        let Some(entry) = self.chains.remove(&id) else { return };
        if let Some(name) = entry.config.route_name()
            && let Some(ids) = self.by_routes.get_mut(name)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_routes.remove(name);
            }
        }
        outputs.push(Output::RemoveChain(id));
    }

    /// Forgets the states of filters that neither the next configuration nor an older connection has.
    fn retain_instances(&mut self, next: &SocketListener) {
        let next = next.filter_chains.iter().chain(next.default_filter_chain.as_deref());
        let older = self.chains.values().map(|entry| entry.config.chain());
        let filters: Vec<_> =
            next.chain(older).flat_map(|chain| &*chain.connection_manager.http_filters).collect();
        self.instances.retain_any(&filters);
    }
}

impl ChainEntry {
    fn is_unused(&self) -> bool {
        !self.is_active && self.connections == 0
    }
}

/// The routing by a route configuration.
fn routing(
    node: &Arc<str>,
    filters: &[HttpFilter],
    observed: &Observed<RouteConfiguration>,
    previous: Option<&CompiledRoutes>,
    instances: &mut Instances,
) -> Routing {
    let routes = match observed {
        Observed::Present { resource, .. } => {
            Ok(CompiledRoutes::compile(filters, resource.clone(), previous, instances))
        }
        Observed::Absent { reason } => Err(Some(reason.clone())),
        Observed::Pending => Err(None),
    };
    Routing::new(node.clone(), routes)
}

/// The number of mistakes that are reported of a configuration.
const MAX_ERRORS: usize = 32;
