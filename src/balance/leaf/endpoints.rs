//! The endpoints of a cluster: each of them once, in however many lists it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    ops::Range,
    time::Instant,
};

use slab::Slab;

use super::cluster::Cluster;
use crate::balance::{
    cluster_endpoint::{ClusterContext, ClusterEndpoint, EndpointChange},
    command::{EndpointIndex, Holder},
    connectivity::Connectivity,
    endpoint_spec::{EndpointKey, EndpointSpec, ListPosition},
    identity::Identity,
    load::Loads,
    pick_first::PickFirstSettings,
    released_connections::ReleasedConnections,
    scope::{LeafScope, Scope},
};

/// The endpoints of a cluster, by index and by key.
#[derive(Debug)]
pub(super) struct EndpointTable<H> {
    /// The endpoints by index. The indices of removed ones are reused.
    all: Slab<ClusterEndpoint<H>>,
    by_key: BTreeMap<EndpointKey, EndpointIndex>,
    /// When endpoints are due.
    timeouts: BTreeSet<(Instant, EndpointIndex)>,
    loads: Loads,
}

impl<H: Clone> EndpointTable<H> {
    /// Without endpoints.
    pub(super) fn new() -> Self {
        Self { all: Slab::new(), by_key: BTreeMap::new(), timeouts: BTreeSet::new(), loads: Loads::default() }
    }

    /// The endpoint of an index, which may be that of a removed one.
    pub(super) fn get(&self, index: EndpointIndex) -> Option<&ClusterEndpoint<H>> {
        self.all.get(index.0)
    }

    /// An endpoint of a list, which is there as long as it is listed.
    pub(super) fn listed(&self, index: EndpointIndex) -> &ClusterEndpoint<H> {
        &self.all[index.0]
    }

    /// The connectivity of an endpoint of a list.
    pub(super) fn connectivity(&self, index: EndpointIndex) -> Connectivity {
        self.listed(index).connectivity
    }

    /// The endpoint of a key.
    #[cfg(any(test, feature = "channel"))]
    pub(super) fn by_key(&self, key: &EndpointKey) -> Option<&ClusterEndpoint<H>> {
        self.get(*self.by_key.get(key)?)
    }

    /// The endpoints with their indices.
    pub(super) fn iter(&self) -> impl Iterator<Item = (EndpointIndex, &ClusterEndpoint<H>)> {
        self.all.iter().map(|(index, endpoint)| (EndpointIndex(index), endpoint))
    }

    /// The endpoints with their keys.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn with_keys(&self) -> impl Iterator<Item = (&EndpointKey, &ClusterEndpoint<H>)> {
        self.by_key.iter().map(|(key, index)| (key, self.listed(*index)))
    }

    /// The indices of all endpoints, for events of each of them.
    pub(super) fn indices(&self) -> Vec<EndpointIndex> {
        self.iter().map(|(index, _)| index).collect()
    }

    /// The endpoints with these sorted addresses: one, unless they are listed with several identities.
    pub(super) fn with_addresses(&self, addresses: &[SocketAddr]) -> Vec<EndpointIndex> {
        // The default identity is the least one, so the range begins with these addresses whatever their identity is.
        let first = EndpointKey::Endpoint { addresses: addresses.to_vec(), identity: Identity::default() };
        let has_addresses = |key: &EndpointKey| match key {
            EndpointKey::Endpoint { addresses: own, .. } => *own == addresses,
            EndpointKey::All { .. } => false,
        };
        let from_first = self.by_key.range(first..);
        from_first.take_while(|(key, _)| has_addresses(key)).map(|(_, index)| *index).collect()
    }

    /// When the first endpoint is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.timeouts.first().map(|(at, _)| *at)
    }

    /// The endpoints that are due.
    pub(super) fn due(&self, now: Instant) -> Vec<EndpointIndex> {
        self.timeouts.iter().take_while(|(at, _)| *at <= now).map(|(_, index)| *index).collect()
    }

    /// Lets an endpoint handle an event, and returns what changed in it; `None` if it was removed.
    pub(super) fn handle(
        &mut self,
        index: EndpointIndex,
        cluster: &Cluster,
        scope: &mut LeafScope<'_>,
        event: impl FnOnce(&mut ClusterEndpoint<H>, &mut Scope<'_>),
    ) -> Option<EndpointChange> {
        let endpoint = self.all.get_mut(index.0)?;
        let scope = &mut scope.of(Holder::Endpoint(index));
        event(endpoint, scope);
        let context = ClusterContext {
            breaker: &cluster.breaker,
            loads: &mut self.loads,
            weights: cluster.policy().weights(),
            max_connections: cluster.config.max_connections,
        };
        let change = endpoint.update_state(context, scope);
        let (before, after) = change.timeout;
        if before != after {
            before.map(|at| self.timeouts.remove(&(at, index)));
            after.map(|at| self.timeouts.insert((at, index)));
        }
        Some(change)
    }

    /// Lets an endpoint handle an event that changes nothing which lists and pickers have of it.
    pub(super) fn handle_apart(
        &mut self,
        index: EndpointIndex,
        scope: &mut LeafScope<'_>,
        event: impl FnOnce(&mut ClusterEndpoint<H>, &mut Scope<'_>),
    ) {
        if let Some(endpoint) = self.all.get_mut(index.0) {
            event(endpoint, &mut scope.of(Holder::Endpoint(index)));
        }
    }

    /// The endpoint of a key, which is made if there is none. It is [listed](Self::list) next.
    pub(super) fn find_or_insert(
        &mut self,
        key: &EndpointKey,
        settings: &PickFirstSettings,
    ) -> EndpointIndex {
        if let Some(known) = self.by_key.get(key) {
            return *known;
        }
        let index = EndpointIndex(self.all.insert(ClusterEndpoint::new(settings.clone())));
        self.by_key.insert(key.clone(), index);
        index
    }

    /// Endpoints are listed from an index of a list on, in place of others that were taken out of it. Those behind them, which `members` of
    /// the list has as well, move.
    pub(super) fn list(
        &mut self,
        members: &[EndpointIndex],
        first: ListPosition,
        replaced: usize,
        listed: usize,
    ) {
        let ListPosition { index: at, .. } = first;
        for (index, member) in members.iter().enumerate().skip(at).take(listed) {
            self.all[member.0].add_position(ListPosition { index, ..first });
        }
        if replaced == listed {
            return;
        }
        for (index, member) in members.iter().enumerate().skip(at + listed) {
            let before = ListPosition { index: index + replaced - listed, ..first };
            self.all[member.0].set_index(before, index);
        }
    }

    /// Takes endpoints out of a priority.
    pub(super) fn take_out_of_priority(&mut self, members: &[EndpointIndex], priority: usize) {
        for member in members {
            self.all[member.0].retain_positions(|position| position.priority != priority);
        }
    }

    /// Takes endpoints out of a part of a list.
    pub(super) fn take_out_of_list(
        &mut self,
        members: &[EndpointIndex],
        first: ListPosition,
        range: &Range<usize>,
    ) {
        let is_there = |position: &ListPosition| {
            let is_of_list = position.priority == first.priority && position.list == first.list;
            is_of_list && range.contains(&position.index)
        };
        for member in members {
            self.all[member.0].retain_positions(|position| !is_there(position));
        }
    }

    /// Removes the endpoints of these that are in no list and not in the `next` ones either, and gives away their connections (CH3.9). So
    /// do those of the next ones with connections to destinations that they have no more.
    pub(super) fn release(
        &mut self,
        taken_out: &[EndpointIndex],
        next: &BTreeMap<&EndpointKey, &EndpointSpec>,
        released: &mut ReleasedConnections<H>,
    ) {
        for index in taken_out {
            // One that was listed twice may have been removed already.
            let Some(key) = self.key(*index) else { continue };
            if let Some(spec) = next.get(&key) {
                self.all[index.0].release_unlisted(&spec.destinations, released);
            } else if self.listed(*index).positions().is_empty() {
                self.by_key.remove(&key);
                self.remove(*index, released);
            }
        }
    }

    /// Removes all endpoints, and gives away their connections.
    pub(super) fn clear(&mut self, released: &mut ReleasedConnections<H>) {
        self.by_key.clear();
        for index in self.indices() {
            self.remove(index, released);
        }
    }

    /// Removes an endpoint with its timer, and gives away its connections. The caller removes the key.
    fn remove(&mut self, index: EndpointIndex, released: &mut ReleasedConnections<H>) {
        let endpoint = self.all.remove(index.0);
        endpoint.timeout.map(|at| self.timeouts.remove(&(at, index)));
        endpoint.release_connections(released);
    }

    /// The key of an endpoint, which is not kept with it: of a million endpoints, that would be 60 MB.
    fn key(&self, index: EndpointIndex) -> Option<EndpointKey> {
        let key = self.get(index)?.key();
        match self.by_key.get(&key) {
            Some(known) if *known == index => Some(key),
            // A connection for all endpoints of a list has another key. There is one for each list.
            Some(_) | None => {
                let mut keys = self.by_key.iter();
                keys.find(|(_, known)| **known == index).map(|(key, _)| key.clone())
            }
        }
    }
}
