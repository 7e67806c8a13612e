//! One address that cookies may lead to, and its connections.

use std::{net::SocketAddr, sync::Arc};

use super::picker::{HostState, LastUsed};
use crate::balance::{
    breaker::Breaker,
    command::EndpointIndex,
    connectivity::Connectivity,
    identity::Identity,
    load::{Load, Loads},
    locality_config::EndpointConfig,
    outlier::Tracked,
    policy::LeafConfig,
    ready_endpoint::ReadyEndpoint,
    stream_queue::Connections,
    subchannel::{Established, Subchannel},
};

/// An address of an endpoint.
#[derive(Debug)]
pub(super) struct Host<H> {
    pub(super) endpoint: Arc<Endpoint>,
    /// The time of the last call with a session, which calls write and pickers share.
    pub(super) last_used: Arc<LastUsed>,
    /// What outlier detection knows of the endpoint; `None` without detection.
    pub(super) tracked: Option<Tracked>,
    /// The subchannels of the policy's endpoints, by these.
    pub(super) subchannels: Vec<(EndpointIndex, HostState<H>)>,
    pub(super) own: Option<Own<H>>,
}

/// What the addresses of an endpoint have in common.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// All addresses as cookies have them, in the order of the configuration.
    pub(super) list: Arc<str>,
    /// Sorted.
    pub(super) addresses: Vec<SocketAddr>,
    /// Identity of the connections that cookies may lead to.
    pub(super) identity: Identity,
    pub(super) hostname: Option<Arc<str>>,
    /// Whether the endpoint drains, so that no policy has it.
    pub(super) is_draining: bool,
    /// Whether cookies may lead to the endpoint, by its health.
    pub(super) is_allowed: bool,
}

/// A subchannel that no endpoint of the policy has.
#[derive(Debug)]
pub(super) struct Own<H> {
    pub(super) subchannel: Subchannel<H>,
    /// What pickers have of the subchannel; `None` without a connection.
    pub(super) ready: Option<Arc<ReadyEndpoint<H>>>,
    /// The count of attempts, made with the first connection.
    pub(super) load: Option<Load>,
    /// Its connection is that of an endpoint that drains: it is kept whether or not calls use it (CH8.14).
    pub(super) is_drained: bool,
}

/// What an endpoint needs of its cluster.
pub(in crate::balance) struct ClusterContext<'a> {
    pub(in crate::balance) breaker: &'a Arc<Breaker>,
    pub(in crate::balance) loads: &'a mut Loads,
}

impl<H: Clone> Host<H> {
    pub(super) fn new(endpoint: Arc<Endpoint>, tracked: Option<Tracked>, before: Option<Self>) -> Self {
        let (last_used, mut own) = before.map_or_else(Default::default, |host| (host.last_used, host.own));
        if let Some(own) = &mut own {
            // The connection of an endpoint that is usable again is kept only as long as calls use it.
            own.is_drained &= endpoint.is_draining;
        }
        Self { endpoint, last_used, tracked, subchannels: Vec::new(), own }
    }

    /// The best of its subchannels. An ejected endpoint counts as failing (CH8.11).
    pub(super) fn state(&self) -> HostState<H> {
        if self.tracked.as_ref().is_some_and(|tracked| tracked.is_ejected) {
            return HostState::Failing(None);
        }
        let own = self.own.as_ref().map(Own::state);
        let all = self.subchannels.iter().map(|(_, state)| state.clone()).chain(own);
        all.max_by_key(HostState::rank).unwrap_or(HostState::Absent)
    }

    /// Updates what pickers have of the own subchannel.
    pub(super) fn refresh_own(
        &mut self,
        address: SocketAddr,
        ClusterContext { breaker, loads }: ClusterContext<'_>,
    ) {
        let Some(own) = &mut self.own else { return };
        let Some(Established { connections, queue, .. }) = own.subchannel.ready() else {
            own.ready = None;
            return;
        };
        let outcomes = self.tracked.as_ref().map(|tracked| &tracked.outcomes);
        let hostname = &self.endpoint.hostname;
        let is_same = |known: &Arc<ReadyEndpoint<H>>| {
            known.connection == connections[0].0
                && known.connections.are(connections)
                && known.hostname == *hostname
                && Arc::ptr_eq(&known.breaker, breaker)
                && known.outcomes.as_ref().map(Arc::as_ptr) == outcomes.map(Arc::as_ptr)
        };
        if own.ready.as_ref().is_some_and(is_same) {
            return;
        }
        // There is one, since the endpoint is ready.
        let Some(of) = Connections::new(connections, queue) else { return };
        own.ready = Some(Arc::new(ReadyEndpoint {
            connection: connections[0].0,
            connections: of,
            address,
            identity: self.endpoint.identity.clone(),
            hostname: hostname.clone(),
            locality: None,
            load: own.load.get_or_insert_with(|| loads.add()).clone(),
            breaker: breaker.clone(),
            outcomes: outcomes.cloned(),
            // Policies do not weigh endpoints that cookies choose.
            weight: None,
        }));
    }
}

impl Endpoint {
    pub(super) fn of(endpoint: &EndpointConfig, is_draining: bool, config: &LeafConfig) -> Self {
        // Before the addresses are sorted: cookies have the order of the configuration (CH8.6).
        let texts: Vec<_> = endpoint.addresses.iter().map(ToString::to_string).collect();
        let mut addresses = endpoint.addresses.clone();
        addresses.sort_unstable();
        let is_allowed = match is_draining {
            true => config.hosts.allows_draining,
            false => endpoint.addresses.first().is_none_or(|first| !config.hosts.forbidden.contains(first)),
        };
        Self {
            list: texts.join(",").into(),
            addresses,
            identity: endpoint.identity.clone(),
            hostname: endpoint.hostname.clone(),
            is_draining,
            is_allowed,
        }
    }
}

impl<H> Own<H> {
    pub(super) fn new(subchannel: Subchannel<H>) -> Self {
        Self { subchannel, ready: None, load: None, is_drained: false }
    }

    pub(super) fn state(&self) -> HostState<H> {
        match (self.subchannel.connectivity(), &self.ready) {
            (Connectivity::Ready, Some(ready)) => HostState::Ready(ready.clone()),
            (Connectivity::Idle, _) => HostState::Idle,
            (Connectivity::Connecting | Connectivity::Ready, _) => HostState::Connecting,
            (Connectivity::TransientFailure, _) => HostState::Failing(self.subchannel.poll_timeout()),
        }
    }
}
