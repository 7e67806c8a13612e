//! What a server has to do, computed from what is known alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    observed::Observed,
    resource::{
        Listener, RouteConfiguration,
        filter_chain::{FilterChain, SocketListener},
        listener::{ListenerKind, RouteSource},
    },
    serve::{ServingState, fixture},
};

/// The configurations and the states of routes, by the rules of A36.
#[derive(Default)]
pub(super) struct Model {
    pub(super) active: Option<Arc<Listener>>,
    pending: Option<Arc<Listener>>,
    /// The states of the watched routes.
    routes: BTreeMap<Arc<str>, Observed<RouteConfiguration>>,
    /// Whether the last state of the Listener was an absence, or one that cannot be served.
    is_absent: bool,
    pub(super) is_shut_down: bool,
}

impl Model {
    /// Handles a Listener; returns whether another one is active after it.
    pub(super) fn listener(&mut self, listener: Option<&Arc<Listener>>) -> bool {
        if self.is_shut_down {
            return false;
        }
        match listener.filter(|listener| is_for_server(listener)) {
            None => {
                (self.active, self.pending, self.is_absent) = (None, None, true);
                self.forget();
                false
            }
            Some(listener) => {
                let is_active = self.active.as_ref().is_some_and(|active| active == listener);
                self.pending = (!is_active).then(|| listener.clone());
                self.forget();
                self.settle()
            }
        }
    }

    /// Handles a state of routes; returns whether another Listener is active after it.
    pub(super) fn routes(&mut self, name: &str, observed: Observed<RouteConfiguration>) -> bool {
        match self.routes.get_mut(name) {
            Some(state) => *state = observed,
            None => return false,
        }
        self.settle()
    }

    pub(super) fn shut_down(&mut self) {
        (self.active, self.pending, self.is_shut_down) = (None, None, true);
        self.forget();
    }

    /// The names of the watched routes.
    pub(super) fn watched(&self) -> BTreeSet<Arc<str>> {
        self.routes.keys().cloned().collect()
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// The chain of a connection, by a search of all.
    pub(super) fn chain(&self, source: std::net::SocketAddr) -> Option<&FilterChain> {
        let socket = socket(self.active.as_ref()?);
        let fit = |chain: &&FilterChain| {
            let ranges = &chain.conditions.source_prefix_ranges;
            let fitting = ranges.iter().filter(|range| range.contains(source.ip()));
            match ranges.is_empty() {
                true => Some(-1),
                false => fitting.map(|range| i32::from(range.prefix_len())).max(),
            }
        };
        let best = socket.filter_chains.iter().filter(|chain| fit(chain).is_some()).max_by_key(fit);
        best.or(socket.default_filter_chain.as_deref())
    }

    /// The routes of a chain of the active configuration.
    pub(super) fn routes_of(&self, chain: &FilterChain) -> Option<Arc<RouteConfiguration>> {
        match &chain.connection_manager.routes {
            RouteSource::Inline(routes) => Some(routes.clone()),
            RouteSource::Rds(routes) => self.routes.get(&routes.name)?.resource().cloned(),
            RouteSource::Scoped(_) => None,
        }
    }

    /// Whether a state is the right one.
    pub(super) fn permits(&self, state: &ServingState, port: Port, connections: usize) -> bool {
        match state {
            ServingState::Starting => !self.is_absent && self.active.is_none() && !self.is_shut_down,
            ServingState::Serving => self.active.is_some() && port == Port::Listening,
            ServingState::NotServing(_) => match &self.active {
                None => self.is_absent && !self.is_shut_down,
                Some(_) => port == Port::Failed,
            },
            ServingState::Stopping => self.is_shut_down && connections > 0,
            ServingState::Stopped => self.is_shut_down && connections == 0,
        }
    }

    /// Activates the pending Listener if all of its routes are known.
    fn settle(&mut self) -> bool {
        let is_known = |name: &Arc<str>| self.routes.get(name).is_some_and(|state| !state.is_pending());
        let is_settled = self.pending.as_ref().is_some_and(|next| names(next).iter().all(is_known));
        if is_settled {
            self.active = self.pending.take();
            self.is_absent = false;
            self.forget();
        }
        is_settled
    }

    /// Begins and ends watches.
    fn forget(&mut self) {
        let named: BTreeSet<_> = self.active.iter().chain(&self.pending).flat_map(names).collect();
        self.routes.retain(|name, _| named.contains(name));
        for name in named {
            self.routes.entry(name).or_insert(Observed::Pending);
        }
    }
}

/// The state of the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Port {
    Closed,
    Listening,
    Failed,
}

pub(super) fn socket(listener: &Listener) -> &SocketListener {
    match &listener.kind {
        ListenerKind::Socket(socket) => socket,
        ListenerKind::Api(_) => panic!("a client's listener"),
    }
}

fn is_for_server(listener: &Listener) -> bool {
    socket(listener).address == fixture::address()
}

fn names(listener: &Arc<Listener>) -> BTreeSet<Arc<str>> {
    let socket = socket(listener);
    let chains = socket.filter_chains.iter().chain(socket.default_filter_chain.as_deref());
    let name = |chain: &FilterChain| match &chain.connection_manager.routes {
        RouteSource::Rds(routes) => Some(routes.name.clone()),
        RouteSource::Inline(_) | RouteSource::Scoped(_) => None,
    };
    chains.filter_map(name).collect()
}
