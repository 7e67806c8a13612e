//! A cluster with endpoints of its own: priorities, localities and endpoints (CH2.20).
//!
//! A [`Leaf`] chooses among the priorities, and passes events to the part that they are of:
//!
//! | part | has |
//! |---|---|
//! | `cluster` | the configuration |
//! | `endpoints` | each endpoint once: its connections, keys, timers |
//! | `priorities` | the lists of endpoints of each priority that was created, and the one in use |
//! | `sessions` | the endpoints that cookies lead to |
//! | `published` | what the last picker was made of |
//! | `listed` | these together: what follows from a change of an endpoint |
//! | `difference` | what a configuration changes in the lists |

mod cluster;
mod difference;
mod draining;
mod ejections;
mod endpoints;
mod failure;
mod labels;
mod listed;
mod pickers;
mod priorities;
mod published;
mod sessions;
#[cfg(any(test, feature = "channel"))]
mod status;

use std::{collections::BTreeMap, sync::Arc, time::Instant};

pub(super) use self::cluster::Cluster;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) use self::ejections::Ejections;
use self::{cluster::ConfigChange, difference::Difference, listed::ListedEndpoints, published::PickerInputs};
use super::{
    breaker::Breaker,
    cluster_endpoint::ClusterEndpoint,
    command::{ConnectCommand, ConnectionId, EndpointIndex, Holder},
    connect_request::RequestedEndpoint,
    connection_event::ConnectionEvent,
    connectivity::Connectivity,
    connects::{QueueId, Urgency},
    draining_policy::DrainingPolicy,
    failover::Alternatives,
    lists::PriorityLists,
    locality_config::EndpointConfig,
    observer::PickLabels,
    outlier::Outliers,
    picker::{self, LeafPicker, Localities},
    policy::LeafConfig,
    ready_endpoint::ReadyEndpoint,
    released_connections::ReleasedConnections,
    rotation::Rotated,
    scope::{LeafScope, Scope},
    weights::LoadReport,
};

/// The state of a cluster's endpoints.
#[derive(Debug)]
pub(super) struct Leaf<H> {
    listed: ListedEndpoints<H>,
    outliers: Outliers,
    /// The endpoints of the policy before, until those of the current one can be used.
    draining: Option<DrainingPolicy<H>>,
}

impl<H: Clone> Leaf<H> {
    /// A cluster whose first priority begins to connect. Sweeps of outlier detection are in slices of so many steps.
    pub(super) fn new(cluster: Cluster, sweep_slice: usize, scope: &mut LeafScope<'_>) -> Self {
        let outliers = Outliers::new(&cluster.config, sweep_slice, scope.now);
        let mut leaf = Self { listed: ListedEndpoints::new(cluster), outliers, draining: None };
        leaf.choose(scope);
        leaf
    }

    /// The name of the cluster.
    pub(super) fn name(&self) -> &Arc<str> {
        &self.listed.cluster.name
    }

    /// Whether it is a logical DNS cluster.
    pub(super) fn is_dns(&self) -> bool {
        self.listed.cluster.config.is_dns
    }

    // Configurations.

    /// A new configuration. Endpoints that it still lists keep connections and counters, and so do addresses, wherever they are now
    /// (CH1.25, CH3.7).
    pub(super) fn update(
        &mut self,
        config: Arc<LeafConfig>,
        breaker: Arc<Breaker>,
        scope: &mut LeafScope<'_>,
    ) {
        // First, so that the endpoints that are listed below find what detection knows of them.
        self.outliers.update(self.listed.cluster.config.listed(), &config, scope.now);
        // While the configuration before is still there for the comparison.
        self.end_conflicting(&config, scope);
        let change = self.listed.cluster.change(&config, &breaker);
        let replaced = self.replaced_endpoints(change, &config, scope.now);
        let Self { listed, outliers, .. } = self;
        (listed.cluster.config, listed.cluster.breaker) = (config, breaker);
        listed.published.outdate();
        listed.clear_labels();
        let ListedEndpoints { cluster, endpoints, priorities, .. } = listed;
        let Difference { taken_out, splices } = priorities.update(cluster, change, endpoints, scope.random);
        let mut released = ReleasedConnections::new();
        let specs = splices.iter().flat_map(|splice| &splice.inserted);
        let next: BTreeMap<_, _> = specs.map(|spec| (&spec.key, spec)).collect();
        endpoints.release(&taken_out, &next, &mut released);
        let inserted = listed.list(splices, outliers, &mut released, scope);
        self.keep_moved(&mut released, scope);
        // Only now, when the connections have found their endpoints.
        self.listed.start(inserted, scope);
        self.choose(scope);
        if let Some(replaced) = replaced.filter(|_| self.current_connectivity() == Connectivity::Connecting) {
            self.end_draining(scope);
            self.draining =
                DrainingPolicy::new(replaced, &mut released, &mut scope.of(Holder::ReplacedPolicy));
        }
        self.listed.release(released, &self.outliers, scope);
    }

    /// A connection whose endpoint moved to a priority that is not in use yet stays with it, as long as a priority is kept that is
    /// not needed any more (CH3.7, CH3.56).
    fn keep_moved(&mut self, released: &mut ReleasedConnections<H>, scope: &mut LeafScope<'_>) {
        let Self { listed, outliers, .. } = self;
        let config = listed.cluster.config.clone();
        for (priority, localities) in config.priorities.iter().enumerate() {
            if released.is_empty() {
                return;
            }
            let endpoints = || localities.iter().flat_map(|locality| &locality.endpoints);
            let mut destinations = endpoints().flat_map(EndpointConfig::destinations);
            if listed.priorities.get(priority).is_none()
                && destinations.any(|destination| released.has_ready(&destination))
                && let Some(splices) = listed.priorities.create(priority, &listed.cluster, scope.random)
            {
                listed.list(splices, outliers, released, scope);
                listed.priorities.retain(priority, scope.now);
            }
        }
    }

    /// Whether calls have sessions. Without any, nothing is kept for them (CH8.16).
    pub(super) fn set_sessions(&mut self, has_sessions: bool, scope: &mut LeafScope<'_>) {
        let ListedEndpoints { cluster, endpoints, sessions, published, .. } = &mut self.listed;
        if !has_sessions {
            published.outdate_if(sessions.end(scope.commands));
        } else if sessions.begin(cluster, scope.now) {
            sessions.list(cluster, endpoints, &self.outliers, scope);
            sessions.refresh_all(cluster, scope);
            published.outdate();
        }
    }

    /// Ends all attempts, and the connections when their streams have ended.
    pub(super) fn close(&mut self, scope: &mut LeafScope<'_>) {
        let ListedEndpoints { endpoints, priorities, sessions, .. } = &mut self.listed;
        priorities.clear();
        sessions.end(scope.commands);
        let mut released = ReleasedConnections::new();
        endpoints.clear(&mut released);
        released.release(scope.commands);
        self.end_draining(scope);
    }

    // A policy that is replaced.

    /// The ready endpoints, if the next configuration has another type of policy.
    fn replaced_endpoints(
        &mut self,
        change: ConfigChange,
        next: &LeafConfig,
        now: Instant,
    ) -> Option<Localities<H>> {
        if change != ConfigChange::PolicyType {
            return None;
        }
        let picker::Endpoints::Ready(endpoints) = self.picked_endpoints(now) else { return None };
        Some(endpoints).filter(|all| !draining::has_conflict(all, &self.listed.cluster.config, next))
    }

    /// Ends the use of a policy before if the next configuration has other identities.
    fn end_conflicting(&mut self, next: &LeafConfig, scope: &mut LeafScope<'_>) {
        let before = &self.listed.cluster.config;
        let has_conflict =
            |draining: &DrainingPolicy<H>| draining::has_conflict(draining.endpoints(), before, next);
        if self.draining.as_ref().is_some_and(has_conflict) {
            self.end_draining(scope);
        }
    }

    fn end_draining(&mut self, scope: &mut LeafScope<'_>) {
        if let Some(draining) = self.draining.take() {
            let mut released = ReleasedConnections::new();
            draining.release_connections(&mut released);
            self.listed.release(released, &self.outliers, scope);
            self.listed.published.outdate();
        }
    }

    // The choice among the priorities.

    fn choose(&mut self, scope: &mut LeafScope<'_>) {
        self.listed.connect_on_demand(scope);
        let count = self.listed.cluster.config.priorities.len();
        let mut failover = self.listed.priorities.take_choice(count);
        let (now, outliers) = (scope.now, &self.outliers);
        let priorities = &mut PriorityAlternatives { listed: &mut self.listed, outliers, scope };
        failover.choose(count, now, priorities);
        self.listed.priorities.set_choice(failover, count);
        // CH3.13: the replaced policy serves until the new one has connected or failed.
        let is_over = self.draining.as_ref().is_some_and(DrainingPolicy::is_over);
        if is_over || self.current_connectivity() != Connectivity::Connecting {
            self.end_draining(scope);
        }
    }

    /// The connectivity of the priority in use, or of the endpoints that are used until it can be.
    pub(super) fn connectivity(&self) -> Connectivity {
        if self.draining.is_some() { Connectivity::Ready } else { self.current_connectivity() }
    }

    /// The connectivity of the priority in use.
    pub(super) fn current_connectivity(&self) -> Connectivity {
        self.listed.priorities.connectivity()
    }

    // Events.

    /// Something became of a connection.
    pub(super) fn on_connection(
        &mut self,
        holder: Holder,
        connection: ConnectionId,
        event: ConnectionEvent<H>,
        scope: &mut LeafScope<'_>,
    ) {
        match holder {
            Holder::Endpoint(index) => {
                self.listed.on_connection(index, connection, event, scope);
                self.choose(scope);
            }
            Holder::SessionEndpoints => {
                let ListedEndpoints { cluster, sessions, published, .. } = &mut self.listed;
                published.outdate_if(sessions.on_event(connection, event, cluster, scope));
            }
            Holder::ReplacedPolicy => match event {
                ConnectionEvent::Lost => {
                    if let Some(draining) = &mut self.draining {
                        draining.on_lost(connection, scope.now);
                        self.listed.published.outdate();
                    }
                    self.choose(scope);
                }
                // The endpoints of a replaced policy attempt no connection, not even a further one.
                ConnectionEvent::Connected(_) | ConnectionEvent::Failed(_) | ConnectionEvent::Full => {}
            },
        }
    }

    /// Lets an endpoint handle an event, after which another priority may be the one in use.
    fn on_endpoint(
        &mut self,
        index: EndpointIndex,
        scope: &mut LeafScope<'_>,
        event: impl FnOnce(&mut ClusterEndpoint<H>, &mut Scope<'_>),
    ) {
        self.listed.on_endpoint(index, scope, event);
        self.choose(scope);
    }

    /// Certificates were replaced. Connections that were made with those before are outdated, each of which serves calls until one that
    /// replaces it is ready.
    pub(super) fn on_rotation(&mut self, rotation: &Rotated<'_>, scope: &mut LeafScope<'_>) {
        for index in self.listed.endpoints.indices() {
            if self.listed.endpoints.get(index).is_some_and(|endpoint| endpoint.is_of(rotation.of)) {
                self.on_endpoint(index, scope, |endpoint, scope| endpoint.on_rotation(rotation, scope));
            }
        }
        let ListedEndpoints { cluster, sessions, published, .. } = &mut self.listed;
        published.outdate_if(sessions.on_rotation(rotation, cluster, scope));
    }

    /// An endpoint has reported its load beside the calls.
    pub(super) fn on_load(
        &mut self,
        index: EndpointIndex,
        connection: ConnectionId,
        report: &LoadReport,
        scope: &mut LeafScope<'_>,
    ) {
        let ListedEndpoints { cluster, endpoints, .. } = &mut self.listed;
        // Weights are read once in each period: a report costs nothing but itself.
        endpoints.handle_apart(index, scope, |endpoint, scope| {
            endpoint.on_load(connection, report, cluster.policy().weights(), scope);
        });
    }

    /// A pick requested a connection (CH3.22), or found that the policy of the application has failed (CH3.63).
    pub(super) fn connect(&mut self, scope: &mut LeafScope<'_>) {
        if !self.listed.cluster.policy().connects_on_demand() {
            for index in self.listed.endpoints.indices() {
                if self.listed.is_idle(index) {
                    self.on_endpoint(index, scope, ClusterEndpoint::connect);
                }
            }
        } else if self.current_connectivity() == Connectivity::Idle
            && let Some(priority) = self.listed.priorities.chosen_index()
        {
            // One endpoint of the priority in use (CH3.38).
            self.listed.connect_next(priority, true, scope);
        }
        self.choose(scope);
    }

    /// A pick requested the connection of an endpoint (CH3.33, CH8.11). One that is not listed any more, or not idle, has a newer picker.
    pub(super) fn connect_endpoint(&mut self, requested: &RequestedEndpoint, scope: &mut LeafScope<'_>) {
        let endpoint = match requested {
            RequestedEndpoint::Listed { list, index } => self.listed.idle_at(list, *index),
            RequestedEndpoint::Host(address) => self.listed.connect_address(*address, scope),
        };
        if let Some(index) = endpoint {
            self.on_endpoint(index, scope, ClusterEndpoint::connect);
        }
    }

    // Time.

    /// Delays after failures are over (CH3.3).
    pub(super) fn reset_backoff(&mut self, scope: &mut LeafScope<'_>) {
        for index in self.listed.endpoints.indices() {
            self.on_endpoint(index, scope, ClusterEndpoint::reset_backoff);
        }
        let ListedEndpoints { cluster, sessions, published, .. } = &mut self.listed;
        published.outdate_if(sessions.reset_backoff(cluster, scope));
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let ListedEndpoints { endpoints, priorities, sessions, published, .. } = &self.listed;
        let parts = [
            endpoints.poll_timeout(),
            priorities.poll_timeout(),
            self.outliers.poll_timeout(),
            sessions.poll_timeout(),
            published.weights_at(),
        ];
        parts.into_iter().flatten().min()
    }

    /// To be called when [`poll_timeout`](Self::poll_timeout) says so.
    pub(super) fn handle_timeout(&mut self, scope: &mut LeafScope<'_>) {
        for index in self.listed.endpoints.due(scope.now) {
            self.on_endpoint(index, scope, ClusterEndpoint::handle_timeout);
        }
        self.sweep_outliers(scope);
        let ListedEndpoints { cluster, sessions, published, .. } = &mut self.listed;
        published.outdate_if(sessions.sweep(cluster, scope));
        self.listed.check_weights(scope.now);
        self.choose(scope);
    }

    /// Ejects endpoints and ends ejections, if that is due: those of one slice of a sweep. [`choose`](Self::choose) follows: another
    /// priority may be the one in use (CH3.72).
    fn sweep_outliers(&mut self, scope: &mut LeafScope<'_>) {
        if self.outliers.poll_timeout().is_none_or(|at| at > scope.now) {
            return;
        }
        let before = self.listed.published.inputs();
        let mut has_changed = false;
        for (addresses, decision) in self.outliers.sweep(scope.now, scope.random) {
            ejections::report(&self.listed.cluster, &addresses, decision);
            if let Some(is_ejected) = decision.is_ejected() {
                self.listed.set_ejected(&addresses, &self.outliers, is_ejected, scope);
                has_changed = true;
            }
        }
        self.listed.published.on_swept(before, has_changed, self.outliers.is_sweeping());
    }

    // Pickers, and what operators see.

    /// The new picker, if anything changed.
    pub(super) fn take_picker(&mut self, now: Instant) -> Option<Arc<LeafPicker<H>>> {
        let connectivity = self.connectivity();
        let ListedEndpoints { priorities, published, .. } = &mut self.listed;
        let is_failing = connectivity == Connectivity::TransientFailure;
        // Only failures show the error, so another one is otherwise no reason for another picker.
        let error = priorities.failing().and_then(|lists| lists.error.clone()).filter(|_| is_failing);
        let chosen = priorities.chosen_index();
        if !published.publish(PickerInputs { chosen, connectivity, error }) {
            return None;
        }
        self.listed.schedule_weights(now);
        let endpoints = self.picked_endpoints(now);
        let ListedEndpoints { cluster, sessions, .. } = &self.listed;
        Some(Arc::new(LeafPicker {
            name: cluster.name.clone(),
            drops: cluster.config.drops.clone(),
            breaker: cluster.breaker.clone(),
            limit: cluster.config.max_requests,
            connectivity,
            priority: chosen.and_then(|index| index.try_into().ok()),
            endpoints,
            hosts: sessions.picker(),
            load: cluster.config.load.clone(),
            service: cluster.config.service.clone(),
        }))
    }

    fn picked_endpoints(&mut self, now: Instant) -> picker::Endpoints<H> {
        match &self.draining {
            Some(draining) => picker::Endpoints::Ready(draining.endpoints().clone()),
            None => self.listed.picked(now),
        }
    }

    /// An endpoint, while it is ready.
    pub(super) fn ready(&self, index: EndpointIndex) -> Option<Arc<ReadyEndpoint<H>>> {
        self.listed.endpoints.get(index)?.ready().cloned()
    }

    /// The urgency of an attempt, and the attempts among which it waits for its turn (CH11.8).
    pub(super) fn turn(&self, attempt: &ConnectCommand) -> (Urgency, QueueId) {
        self.listed.turn(attempt, self.connectivity())
    }

    /// The labels of the connections of an endpoint, if metrics have an observer.
    pub(super) fn pick_labels(&self, holder: Holder) -> PickLabels {
        let ListedEndpoints { cluster, endpoints, .. } = &self.listed;
        if !cluster.settings.observer.is_on() {
            return PickLabels::default();
        }
        let endpoint = holder.endpoint().and_then(|index| endpoints.get(index));
        let locality = endpoint.and_then(ClusterEndpoint::locality);
        PickLabels { backend_service: Some(cluster.name.clone()), locality, service: None }
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn ejections(&self) -> Ejections {
        Ejections::of(&self.outliers, &self.listed.endpoints)
    }
}

/// The priorities of a cluster for the choice among them.
struct PriorityAlternatives<'a, 'b, H> {
    listed: &'a mut ListedEndpoints<H>,
    outliers: &'a Outliers,
    scope: &'a mut LeafScope<'b>,
}

impl<H: Clone> Alternatives for PriorityAlternatives<'_, '_, H> {
    fn create(&mut self, index: usize) {
        let Self { listed, outliers, scope } = self;
        let splices = listed.priorities.create(index, &listed.cluster, scope.random);
        let mut released = ReleasedConnections::new();
        listed.list(splices.unwrap_or_default(), outliers, &mut released, scope);
        listed.start_priority(index, scope);
        listed.release(released, outliers, scope);
    }

    fn reactivate(&mut self, index: usize) {
        self.listed.start_priority(index, self.scope);
    }

    /// The endpoints that no other priority lists end (CH3.9).
    fn destroy(&mut self, index: usize) {
        let ListedEndpoints { priorities, endpoints, .. } = &mut *self.listed;
        let taken_out = priorities.destroy(index, endpoints);
        let mut released = ReleasedConnections::new();
        endpoints.release(&taken_out, &BTreeMap::new(), &mut released);
        self.listed.release(released, self.outliers, self.scope);
    }

    fn connectivity(&self, index: usize) -> Connectivity {
        let lists = self.listed.priorities.get(index);
        lists.map_or(Connectivity::TransientFailure, PriorityLists::connectivity)
    }
}
