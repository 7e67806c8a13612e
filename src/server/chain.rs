//! A filter chain, as its connections have it.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::acceptor::Acceptor;
use crate::serve::{ChainRef, Routing};

/// A filter chain with the latest routing of its requests.
pub(super) struct ServedChain {
    pub(super) config: ChainRef,
    pub(super) acceptor: Arc<dyn Acceptor>,
    routing: ArcSwap<Routing>,
}

impl ServedChain {
    pub(super) fn new(config: ChainRef, acceptor: Arc<dyn Acceptor>, routing: Arc<Routing>) -> Self {
        Self { config, acceptor, routing: ArcSwap::new(routing) }
    }

    /// The latest routing.
    pub(super) fn routing(&self) -> Arc<Routing> {
        self.routing.load_full()
    }

    /// Replaces the routing of later requests.
    pub(super) fn set_routing(&self, routing: Arc<Routing>) {
        self.routing.store(routing);
    }
}
