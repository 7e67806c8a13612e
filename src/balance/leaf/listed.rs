//! The listed endpoints of a cluster, and what follows from a change of one of them.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use super::{
    cluster::Cluster, difference::Splice, endpoints::EndpointTable, labels::Labels, pickers,
    priorities::Priorities, published::PublishedPicker, sessions::Sessions,
};
use crate::balance::{
    cluster_endpoint::ClusterEndpoint,
    command::{ConnectCommand, ConnectionId, EndpointIndex, Holder, Purpose},
    connect_request::ListId,
    connection_event::ConnectionEvent,
    connectivity::Connectivity,
    connects::{QueueId, QueuePart, Urgency},
    endpoint_spec::{EndpointKey, ListPosition},
    outlier::{Outliers, Tracked},
    picker::{self},
    released_connections::ReleasedConnections,
    scope::{LeafScope, Scope},
    session_endpoints::Connector,
};

/// The endpoints of a cluster, the lists that have them, and what is made of both: an [event](Self::on_endpoint) of an endpoint changes
/// the lists, the session endpoints and the picker.
#[derive(Debug)]
pub(super) struct ListedEndpoints<H> {
    pub(super) cluster: Cluster,
    pub(super) endpoints: EndpointTable<H>,
    pub(super) priorities: Priorities<H>,
    pub(super) sessions: Sessions<H>,
    pub(super) published: PublishedPicker,
    labels: Labels,
}

/// Endpoints that were listed in a priority.
#[derive(Debug)]
pub(super) struct Inserted {
    priority: usize,
    members: Vec<EndpointIndex>,
}

impl<H: Clone> ListedEndpoints<H> {
    /// A cluster before its first priority is created.
    pub(super) fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            endpoints: EndpointTable::new(),
            priorities: Priorities::new(),
            sessions: Sessions::none(),
            published: PublishedPicker::default(),
            labels: Labels::default(),
        }
    }

    /// Lists endpoints, which take over the connections to their destinations.
    pub(super) fn list(
        &mut self,
        splices: Vec<Splice>,
        outliers: &Outliers,
        released: &mut ReleasedConnections<H>,
        scope: &mut LeafScope<'_>,
    ) -> Vec<Inserted> {
        // The connections that sessions have to these destinations are the policy's from now on.
        let specs = splices.iter().flat_map(|splice| &splice.inserted);
        self.sessions.release(specs.flat_map(|spec| &spec.destinations), released);
        let mut inserted = Vec::new();
        for Splice { first, replaced, inserted: specs } in splices {
            let mut members = Vec::with_capacity(specs.len());
            for (position, spec) in (first.index..).zip(specs) {
                let tracked = tracked(outliers, &spec.key);
                let label = self.labels.at(ListPosition { index: position, ..first }, &self.cluster);
                let index = self.endpoints.find_or_insert(&spec.key, &self.cluster.settings);
                // The lists that have the endpoint already are notified of what it took over.
                self.on_endpoint(index, scope, |endpoint, scope| {
                    endpoint.set_tracked(tracked);
                    if let Some(label) = label {
                        endpoint.set_locality(label);
                    }
                    endpoint.update(spec, released, scope);
                });
                members.push(index);
            }
            self.priorities.splice(first, replaced, &members, &mut self.endpoints);
            inserted.push(Inserted { priority: first.priority, members });
        }
        inserted
    }

    /// The localities of another configuration have labels of their own.
    pub(super) fn clear_labels(&mut self) {
        self.labels.clear();
    }

    /// Ends the connections that nobody has taken over, but for those that calls with sessions need.
    pub(super) fn release(
        &mut self,
        mut released: ReleasedConnections<H>,
        outliers: &Outliers,
        scope: &mut LeafScope<'_>,
    ) {
        // Before `keep`, which looks up the addresses of the current configuration.
        let is_listed = self.sessions.list(&self.cluster, &self.endpoints, outliers, scope);
        self.sessions.keep(&self.cluster, &mut released, scope);
        let is_outdated = self.sessions.refresh_all(&self.cluster, scope);
        self.published.outdate_if(is_listed || is_outdated);
        released.release(scope.commands);
    }

    // Events.

    /// Lets an endpoint handle an event, and updates what is made of it. Another priority may be the one in use after that.
    pub(super) fn on_endpoint(
        &mut self,
        index: EndpointIndex,
        scope: &mut LeafScope<'_>,
        event: impl FnOnce(&mut ClusterEndpoint<H>, &mut Scope<'_>),
    ) {
        let Some(change) = self.endpoints.handle(index, &self.cluster, scope, event) else { return };
        let endpoint = self.endpoints.listed(index);
        let is_outdated = self.priorities.on_changed(&change, endpoint);
        // Evaluated in any case: session endpoints follow each change, also if the picker is outdated already.
        let is_outdated = self.sessions.on_endpoint(index, endpoint, &self.cluster, scope) || is_outdated;
        self.published.outdate_if(is_outdated);
    }

    /// Something became of a connection of an endpoint.
    pub(super) fn on_connection(
        &mut self,
        index: EndpointIndex,
        connection: ConnectionId,
        event: ConnectionEvent<H>,
        scope: &mut LeafScope<'_>,
    ) {
        let is_lost = matches!(event, ConnectionEvent::Lost);
        if let ConnectionEvent::Failed(error) = &event {
            self.set_error(index, &error.text);
        }
        self.on_endpoint(index, scope, |endpoint, scope| endpoint.on_event(connection, event, scope));
        // The loss of a connection is an error if the next attempt has to wait.
        let error = self.endpoints.get(index).and_then(|endpoint| endpoint.error().cloned());
        if let Some(error) = error.filter(|_| is_lost) {
            self.set_error(index, &error);
        }
    }

    fn set_error(&mut self, index: EndpointIndex, error: &Arc<str>) {
        if let Some(endpoint) = self.endpoints.get(index) {
            self.priorities.set_error(endpoint.positions(), error);
        }
    }

    /// Outlier detection has ejected an endpoint, or has ended that.
    pub(super) fn set_ejected(
        &mut self,
        addresses: &[SocketAddr],
        outliers: &Outliers,
        is_ejected: bool,
        scope: &mut LeafScope<'_>,
    ) {
        let is_outdated = self.sessions.on_ejected(addresses, outliers, &self.cluster, scope);
        self.published.outdate_if(is_outdated);
        // One of a priority that is not in use is ejected when that is.
        for index in self.endpoints.with_addresses(addresses) {
            self.on_endpoint(index, scope, |endpoint, _| endpoint.set_ejected(is_ejected));
        }
    }

    // First connections, and those that calls request: where the policy connects on demand, one by one (A42, A61).

    /// Requests the first connections of endpoints that were listed, if those of their priority were requested before.
    pub(super) fn start(&mut self, inserted: Vec<Inserted>, scope: &mut LeafScope<'_>) {
        for Inserted { priority, members } in inserted {
            if self.priorities.get(priority).is_some_and(|lists| lists.is_started) {
                self.start_endpoints(&members, scope);
            }
        }
    }

    /// Requests the first connections of a priority.
    pub(super) fn start_priority(&mut self, priority: usize, scope: &mut LeafScope<'_>) {
        let Some(lists) = self.priorities.get_mut(priority) else { return };
        lists.is_started = true;
        let members = lists.list();
        match self.cluster.policy().connects_on_demand() {
            true => self.connect_on_demand(scope),
            false => self.start_endpoints(&members, scope),
        }
    }

    /// Requests the first connections of endpoints, from a random one on, so that not all clients begin with the same (CH3.25).
    fn start_endpoints(&mut self, members: &[EndpointIndex], scope: &mut LeafScope<'_>) {
        if members.is_empty() || self.cluster.policy().connects_on_demand() {
            return;
        }
        let (before, after) = members.split_at(scope.random.usize(..members.len()));
        for member in after.iter().chain(before) {
            self.on_endpoint(*member, scope, ClusterEndpoint::start);
        }
    }

    /// The endpoint at an index of a list, if it is idle. Otherwise the pick that requested its connection has a newer picker.
    pub(super) fn idle_at(&self, list: &ListId, index: usize) -> Option<EndpointIndex> {
        self.priorities.endpoint(list, index).filter(|member| self.is_idle(*member))
    }

    /// Whether an endpoint is idle.
    pub(super) fn is_idle(&self, index: EndpointIndex) -> bool {
        let endpoint = self.endpoints.get(index);
        endpoint.is_some_and(|endpoint| endpoint.connectivity == Connectivity::Idle)
    }

    /// A pick requested the connection of an address (CH8.11). Returns the endpoint of the policy that is to connect it, if one is.
    pub(super) fn connect_address(
        &mut self,
        address: SocketAddr,
        scope: &mut LeafScope<'_>,
    ) -> Option<EndpointIndex> {
        match self.sessions.connector(address, scope.now)? {
            Connector::Endpoint(index) => Some(index),
            Connector::Own => {
                let is_outdated = self.sessions.connect(address, &self.cluster, scope);
                self.published.outdate_if(is_outdated);
                None
            }
        }
    }

    /// Connects one endpoint after the other of lists that have no attempt under way, until they have (CH3.37).
    pub(super) fn connect_on_demand(&mut self, scope: &mut LeafScope<'_>) {
        if self.cluster.policy().connects_on_demand() {
            for priority in 0..self.priorities.len() {
                while self.connect_next(priority, false, scope) {}
            }
        }
    }

    /// Connects one endpoint of a priority, if that is due. Returns whether there may be another one to connect.
    pub(super) fn connect_next(
        &mut self,
        priority: usize,
        is_requested: bool,
        scope: &mut LeafScope<'_>,
    ) -> bool {
        let state = |member: EndpointIndex| self.endpoints.connectivity(member);
        let lists = self.priorities.get(priority);
        let next = lists.and_then(|lists| lists.next_on_demand(is_requested, scope.random, state));
        let Some(member) = next else { return false };
        self.on_endpoint(member, scope, ClusterEndpoint::connect);
        // An endpoint that stays idle must not be tried over and over by `connect_on_demand`.
        self.endpoints.connectivity(member) != Connectivity::Idle
    }

    /// The urgency of an attempt of a cluster with this connectivity, and the attempts among which it waits for its turn (CH11.8).
    pub(super) fn turn(&self, attempt: &ConnectCommand, connectivity: Connectivity) -> (Urgency, QueueId) {
        let urgency = match (attempt.purpose, connectivity) {
            (Purpose::Replace(_), _) => Urgency::Replacement,
            (Purpose::Further, _) => Urgency::Requested,
            (Purpose::First { .. }, _) if attempt.is_requested => Urgency::Requested,
            (Purpose::First { was_silent: true }, _) => Urgency::Silent,
            (Purpose::First { was_silent: false }, Connectivity::Ready) => Urgency::Ordinary,
            (Purpose::First { was_silent: false }, _) => Urgency::Unserved,
        };
        let part = match attempt.owner.holder {
            Holder::SessionEndpoints => QueuePart::SessionEndpoints,
            Holder::Endpoint(index) => {
                let endpoint = self.endpoints.get(index);
                let positions = endpoint.map(ClusterEndpoint::positions).unwrap_or_default();
                // One that is listed several times waits with the endpoints of the preferred priority.
                let priority = positions.iter().map(|position| position.priority).min();
                QueuePart::Priority(priority.unwrap_or_default())
            }
            // Replaced policies attempt no connections, so any queue will do.
            Holder::ReplacedPolicy => QueuePart::Priority(0),
        };
        (urgency, QueueId { leaf: attempt.owner.leaf, part })
    }

    // Pickers.

    /// What picks do with the endpoints of the priority in use.
    pub(super) fn picked(&mut self, now: Instant) -> picker::Endpoints<H> {
        pickers::endpoints(&self.cluster, &mut self.priorities, &self.endpoints, now)
    }

    /// Outdates the picker if weights have changed, once in each period (CH3.44).
    pub(super) fn check_weights(&mut self, now: Instant) {
        if self.published.weights_at().is_none_or(|at| at > now) {
            return;
        }
        let has_new_weights = self.priorities.chosen_mut().is_some_and(|lists| lists.has_new_weights(now));
        self.published.outdate_if(has_new_weights);
        self.schedule_weights(now);
    }

    /// Determines when weights are read next.
    pub(super) fn schedule_weights(&mut self, now: Instant) {
        self.published.set_weights_at(pickers::next_weights(&self.cluster, &self.priorities, now));
    }
}

/// What outlier detection knows of an endpoint, if it has detection.
fn tracked(outliers: &Outliers, key: &EndpointKey) -> Option<Tracked> {
    match key {
        EndpointKey::Endpoint { addresses, .. } => outliers.tracked(addresses),
        EndpointKey::All { .. } => None,
    }
}
