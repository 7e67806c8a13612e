//! A filter chain of a Listener.

use std::sync::Arc;

use super::address::socket;
use crate::resource::{
    Listener,
    filter_chain::{ChainIndex, FilterChain},
    http_filter::HttpFilter,
    listener::RouteSource,
};

/// A filter chain of a Listener, which it keeps.
#[derive(Debug, Clone)]
pub(crate) struct ChainRef {
    listener: Arc<Listener>,
    index: ChainIndex,
}

impl ChainRef {
    /// The chain in a place of a Listener, which has one there.
    pub(super) fn new(listener: Arc<Listener>, index: ChainIndex) -> Self {
        Self { listener, index }
    }

    /// The chain.
    pub(crate) fn chain(&self) -> &FilterChain {
        let socket = socket(&self.listener).expect("the Listener has chains");
        socket.chain(self.index).expect("the chain is one of the Listener")
    }

    /// The name of the Listener.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "the server passes it to the application"))]
    pub(crate) fn listener_name(&self) -> &Arc<str> {
        &self.listener.name
    }

    /// The name of the route configuration that is a resource of its own.
    pub(super) fn route_name(&self) -> Option<&Arc<str>> {
        match &self.chain().connection_manager.routes {
            RouteSource::Rds(routes) => Some(&routes.name),
            RouteSource::Inline(_) | RouteSource::Scoped(_) => None,
        }
    }

    /// The HTTP filters.
    pub(super) fn filters(&self) -> &[HttpFilter] {
        &self.chain().connection_manager.http_filters
    }
}
