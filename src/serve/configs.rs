//! The configuration in use, and the next one.

use std::{collections::BTreeSet, sync::Arc};

use super::{ChainId, address::socket};
use crate::{
    base::Version,
    resource::{
        Listener,
        filter_chain::{ChainIndex, Connection, SocketListener},
        listener::RouteSource,
    },
};

/// The active configuration, and a pending one that waits for its routes.
#[derive(Debug, Default)]
pub(super) struct Configs {
    active: Option<ActiveConfig>,
    pending: Option<PendingConfig>,
    /// The number of the last active configuration.
    generation: u64,
}

/// A Listener whose route configurations are not all known.
#[derive(Debug)]
pub(super) struct PendingConfig {
    pub(super) listener: Arc<Listener>,
    pub(super) version: Version,
    /// The route configurations that its chains name.
    pub(super) routes: BTreeSet<Arc<str>>,
}

/// A Listener by which connections are accepted.
#[derive(Debug)]
pub(super) struct ActiveConfig {
    pub(super) listener: Arc<Listener>,
    pub(super) version: Version,
    pub(super) routes: BTreeSet<Arc<str>>,
    /// The chains by their place in the Listener, and the default chain.
    pub(super) chains: Box<[ChainId]>,
    pub(super) default_chain: Option<ChainId>,
    /// Its number: connections with a lower one are those of configurations before it.
    pub(super) generation: u64,
}

impl Configs {
    /// The configuration in use.
    pub(super) fn active(&self) -> Option<&ActiveConfig> {
        self.active.as_ref()
    }

    /// The next configuration.
    pub(super) fn pending(&self) -> Option<&PendingConfig> {
        self.pending.as_ref()
    }

    /// Sets a Listener as the next configuration, unless it is what is active or pending already. The next configuration before is
    /// discarded.
    pub(super) fn propose(&mut self, listener: &Arc<Listener>, version: &Version) {
        // SV6.2: another version with the same meaning replaces nothing.
        if let Some(active) = self.active.as_mut().filter(|active| same(&active.listener, listener)) {
            active.version = version.clone();
            self.pending = None;
        } else if let Some(pending) = self.pending.as_mut().filter(|next| same(&next.listener, listener)) {
            pending.version = version.clone();
        } else {
            let routes = socket(listener).map(route_names).unwrap_or_default();
            self.pending =
                Some(PendingConfig { listener: listener.clone(), version: version.clone(), routes });
        }
    }

    /// Takes the next configuration, to be activated.
    pub(super) fn take_pending(&mut self) -> Option<PendingConfig> {
        self.pending.take()
    }

    /// Replaces the configuration in use; returns the number of the new one.
    pub(super) fn activate(
        &mut self,
        PendingConfig { listener, version, routes }: PendingConfig,
        chains: Box<[ChainId]>,
        default_chain: Option<ChainId>,
    ) -> u64 {
        self.generation += 1;
        let generation = self.generation;
        self.active = Some(ActiveConfig { listener, version, routes, chains, default_chain, generation });
        generation
    }

    /// Discards both configurations.
    pub(super) fn clear(&mut self) {
        self.active = None;
        self.pending = None;
    }

    /// The route configurations that both name.
    pub(super) fn route_names(&self) -> BTreeSet<Arc<str>> {
        let active = self.active.iter().flat_map(|active| &active.routes);
        let pending = self.pending.iter().flat_map(|pending| &pending.routes);
        active.chain(pending).cloned().collect()
    }
}

impl ActiveConfig {
    /// The chain of a connection.
    pub(super) fn chain(&self, connection: &Connection) -> Option<ChainId> {
        match socket(&self.listener)?.chain_index(connection)? {
            ChainIndex::Listed(index) => self.chains.get(index).copied(),
            ChainIndex::Default => self.default_chain,
        }
    }

    /// All chains.
    pub(super) fn all_chains(&self) -> impl Iterator<Item = ChainId> {
        self.chains.iter().copied().chain(self.default_chain)
    }
}

/// Whether two Listeners mean the same for a server.
fn same(one: &Arc<Listener>, other: &Arc<Listener>) -> bool {
    Arc::ptr_eq(one, other) || one.kind == other.kind
}

/// The route configurations that the chains of a Listener name.
fn route_names(socket: &SocketListener) -> BTreeSet<Arc<str>> {
    let chains = socket.filter_chains.iter().chain(socket.default_filter_chain.as_deref());
    let names = chains.filter_map(|chain| match &chain.connection_manager.routes {
        RouteSource::Rds(routes) => Some(routes.name.clone()),
        // The parser refuses scoped routes of servers.
        RouteSource::Inline(_) | RouteSource::Scoped(_) => None,
    });
    names.collect()
}
