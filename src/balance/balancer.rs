//! The clusters of a channel: from configurations and events of connections to pickers.
//!
//! A [`Balancer`] passes each event to the cluster that it is of, and lets attempts to connect begin in turn. The clusters themselves are
//! in `in_use`.

mod in_use;
mod leaves;
mod target;

use std::{sync::Arc, time::Instant};

use self::in_use::ClustersInUse;
#[cfg(any(test, feature = "fuzzing"))]
use super::policy::LeafConfig;
use super::{
    breaker::Breakers,
    clusters::{ClusterChanges, ClusterConfigs},
    command::{Command, Commands, ConnectionId, LeafIndex, Owner, QueuedCommand},
    configs::Translation,
    connect_error::ConnectError,
    connect_request::ConnectRequest,
    connection_event::ConnectionEvent,
    connectivity::Connectivity,
    connects::Connects,
    identity::Rotation,
    leaf::Leaf,
    observer::PickLabels,
    picker::ClusterPicker,
    ready_endpoint::ReadyEndpoint,
    rotation::Rotated,
    scope::{EventScope, LeafScope},
    settings::BalancerSettings,
    stream_queue::streams::Streams,
    weights::LoadReport,
};

/// The state of all clusters of a channel.
#[derive(Debug)]
pub(crate) struct Balancer<H> {
    clusters: ClustersInUse<H>,
    /// The generator of all draws but those of calls. Its seed is a setting, so that simulations can be repeated.
    random: fastrand::Rng,
    /// The commands that are not polled yet, and the owners of connections.
    commands: Commands,
    connects: Connects,
    /// When an attempt that waits for its turn may begin.
    connects_at: Option<Instant>,
}

impl<H: Clone> Balancer<H> {
    /// Without clusters.
    pub(crate) fn new(settings: BalancerSettings, breakers: Arc<Breakers>) -> Self {
        Self {
            random: fastrand::Rng::with_seed(settings.seed),
            clusters: ClustersInUse::new(settings, breakers),
            commands: Commands::default(),
            connects: Connects::default(),
            connects_at: None,
        }
    }

    /// How the clusters of snapshots are translated for it.
    pub(in crate::balance) fn translation(&self) -> Translation {
        Translation::new(self.clusters.settings())
    }

    // Configurations.

    /// Replaces the configurations of some clusters. What is equal stays as it is.
    pub(crate) fn update(&mut self, changes: ClusterChanges, now: Instant) {
        self.with_clusters(now, |clusters, scope| clusters.update(changes, scope));
    }

    /// Replaces the configurations of all clusters.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn replace(&mut self, configs: ClusterConfigs, now: Instant) {
        let before = self.clusters.configs().clone();
        let is_new = |(name, leaf): &(Arc<str>, Arc<LeafConfig>)| {
            before.leaves.get(name).is_none_or(|known| !Arc::ptr_eq(known, leaf))
        };
        let leaves = configs.leaves.clone().into_iter().filter(is_new).map(|(name, leaf)| (name, Some(leaf)));
        let gone = before.leaves.keys().filter(|name| !configs.leaves.contains_key(*name));
        let leaves = leaves.chain(gone.map(|name| (name.clone(), None))).collect();
        let gone = before.targets.keys().filter(|name| !configs.targets.contains_key(*name));
        let targets = configs.targets.clone().into_iter().map(|(name, config)| (name, Some(config)));
        let targets = targets.chain(gone.map(|name| (name.clone(), None))).collect();
        self.update(ClusterChanges { targets, leaves }, now);
    }

    /// Whether calls may have sessions from now on (CH8.16).
    pub(crate) fn set_sessions(&mut self, has_sessions: bool, now: Instant) {
        self.with_clusters(now, |clusters, scope| clusters.set_sessions(has_sessions, scope));
    }

    /// Ends all attempts, and the connections when their streams have ended.
    pub(crate) fn close(&mut self, now: Instant) {
        let ClusterConfigs { targets, leaves } = self.clusters.configs();
        let targets = targets.keys().map(|name| (name.clone(), None)).collect();
        let leaves = leaves.keys().map(|name| (name.clone(), None)).collect();
        self.update(ClusterChanges { targets, leaves }, now);
    }

    // Events of connections.

    /// An attempt succeeded: requests can be sent.
    pub(crate) fn on_connected(&mut self, connection: ConnectionId, streams: Arc<Streams<H>>, now: Instant) {
        self.connects.on_connected(connection);
        self.on_connection(connection, ConnectionEvent::Connected(streams), now);
    }

    /// An attempt failed. The error names the address.
    pub(crate) fn on_failed(&mut self, connection: ConnectionId, error: ConnectError, now: Instant) {
        // First: only the slots know whether the endpoint was silent for too long (CH11.8).
        let cause = self.connects.on_failed(connection, error.cause, now);
        self.on_connection(connection, ConnectionEvent::Failed(ConnectError { cause, ..error }), now);
        // Last: the event finds its cluster by the owner of the connection.
        self.commands.forget(connection);
    }

    /// A connection takes no more requests, or is closed.
    pub(crate) fn on_lost(&mut self, connection: ConnectionId, now: Instant) {
        self.connects.on_lost(connection);
        self.on_connection(connection, ConnectionEvent::Lost, now);
        self.commands.forget(connection);
    }

    /// Attempts wait for a further connection to the endpoint of this one (CH4.10). If the connection is lost by now, that was reason
    /// enough to look at what waits.
    pub(crate) fn on_full(&mut self, connection: ConnectionId, now: Instant) {
        self.on_connection(connection, ConnectionEvent::Full, now);
    }

    /// An endpoint has reported its load on a connection, beside the calls (CH9.8).
    pub(crate) fn on_load(&mut self, connection: ConnectionId, report: &LoadReport, now: Instant) {
        let Some(Owner { leaf, holder }) = self.commands.owner_of(connection) else { return };
        // Connections of sessions alone, and those of a replaced policy, have no weights.
        if let Some(endpoint) = holder.endpoint() {
            self.with_leaf(leaf, now, |leaf, scope| leaf.on_load(endpoint, connection, report, scope));
        }
    }

    /// Certificates were replaced: the connections that were made with those before are replaced, and those of other providers stay.
    pub(crate) fn on_rotation(&mut self, of: &Rotation, now: Instant) {
        // Attempts that have not begun use the certificates that are there when they do.
        let running = self.connects.running();
        let rotation = Rotated { of, running: &running };
        let on_rotation = |leaf: &mut Leaf<H>, scope: &mut LeafScope<'_>| leaf.on_rotation(&rotation, scope);
        self.with_clusters(now, |clusters, scope| clusters.with_each_leaf(scope, on_rotation));
    }

    /// Passes an event to the owner of a connection. Late events, such as those of cancelled attempts, find none and are ignored.
    fn on_connection(&mut self, connection: ConnectionId, event: ConnectionEvent<H>, now: Instant) {
        if let Some(Owner { leaf, holder }) = self.commands.owner_of(connection) {
            self.with_leaf(leaf, now, |leaf, scope| leaf.on_connection(holder, connection, event, scope));
        }
    }

    // Connections that calls and applications request.

    /// A pick requested a connection of a cluster (CH3.22).
    pub(crate) fn connect(&mut self, target: &str, now: Instant) {
        let chosen = self.clusters.targets().get(target).and_then(|target| target.chosen());
        if let Some(leaf) = chosen.and_then(|leaf| self.clusters.leaves().index(leaf)) {
            self.with_requested(leaf, now, Leaf::connect);
        }
    }

    /// A pick requested the connection of an endpoint (CH3.33, CH8.11).
    pub(crate) fn connect_endpoint(&mut self, request: &ConnectRequest, now: Instant) {
        if let Some(leaf) = self.clusters.leaves().index(&request.leaf) {
            self.with_requested(leaf, now, |leaf, scope| leaf.connect_endpoint(&request.endpoint, scope));
        }
    }

    /// The application requested connections: those of the clusters that are idle (CH3.38).
    pub(crate) fn exit_idle(&mut self, now: Instant) {
        let targets = self.clusters.targets().iter();
        let idle = targets.filter(|(_, target)| target.picker.connectivity == Connectivity::Idle);
        for target in idle.map(|(name, _)| name.clone()).collect::<Vec<Arc<str>>>() {
            self.connect(&target, now);
        }
    }

    // Time.

    /// All delays after failed attempts are over (CH3.3).
    pub(crate) fn reset_backoff(&mut self, now: Instant) {
        self.with_clusters(now, |clusters, scope| clusters.with_each_leaf(scope, Leaf::reset_backoff));
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        [self.clusters.poll_timeout(), self.connects_at].into_iter().flatten().min()
    }

    /// To be called when [`poll_timeout`](Self::poll_timeout) says so.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        // The next command is polled after each event.
        self.connects_at = self.connects_at.filter(|at| *at > now);
        self.with_clusters(now, ClustersInUse::handle_timeout);
    }

    // What the connector and calls have to do.

    /// The next picker that changed, with its cluster.
    pub(crate) fn poll_picker(&mut self, now: Instant) -> Option<(Arc<str>, Arc<ClusterPicker<H>>)> {
        self.with_clusters(now, ClustersInUse::poll_picker)
    }

    /// What the connector is to do next. To be called until `None` after each event; it may change
    /// [`poll_timeout`](Self::poll_timeout).
    pub(crate) fn poll_command(&mut self, now: Instant) -> Option<Command> {
        // All of them before the first attempt begins, so that one that was cancelled meanwhile is not begun.
        while let Some(queued) = self.commands.poll_queued() {
            self.queue_command(queued);
        }
        let command = self.connects.poll(self.clusters.settings().max_concurrent_connects, now);
        self.connects_at = self.connects.poll_timeout();
        command
    }

    /// Attempts to connect wait for their turn. Only logical DNS clusters resolve their names again.
    fn queue_command(&mut self, queued: QueuedCommand) {
        match queued {
            QueuedCommand::Connect(attempt) => {
                // Without the cluster, what follows cancels it.
                if let Some(used) = self.clusters.leaves().get(attempt.owner.leaf) {
                    let turn = used.leaf.turn(&attempt);
                    self.connects.add(attempt.connection, attempt.into_command(), turn);
                }
            }
            QueuedCommand::RequestReresolution(leaf) => {
                if self.clusters.leaves().get(leaf).is_some_and(|used| used.leaf.is_dns()) {
                    self.connects.pass(Command::RequestReresolution);
                }
            }
            QueuedCommand::Other(Command::Cancel { connection }) => self.connects.cancel(connection),
            QueuedCommand::Other(command) => self.connects.pass(command),
        }
    }

    /// The cluster with endpoints that a connection, or an attempt, is of; `None` if it is no longer in use.
    pub(super) fn leaf_of(&self, connection: ConnectionId) -> Option<Arc<str>> {
        let owner = self.commands.owner_of(connection)?;
        self.clusters.leaves().get(owner.leaf).map(|used| used.leaf.name().clone())
    }

    /// The endpoint of a connection, while it is ready.
    pub(crate) fn ready(&self, connection: ConnectionId) -> Option<Arc<ReadyEndpoint<H>>> {
        let Owner { leaf, holder } = self.commands.owner_of(connection)?;
        self.clusters.leaves().get(leaf)?.leaf.ready(holder.endpoint()?)
    }

    /// The labels of the endpoint that a connection is of, or an attempt at one, if metrics have an observer (CH9.18).
    pub(crate) fn labels(&self, connection: ConnectionId) -> PickLabels {
        let owner = self.commands.owner_of(connection);
        let owner = owner.and_then(|owner| Some((self.clusters.leaves().get(owner.leaf)?, owner.holder)));
        owner.map_or_else(PickLabels::default, |(used, holder)| used.leaf.pick_labels(holder))
    }

    /// Lets the clusters handle an event that no call has requested.
    fn with_clusters<T>(
        &mut self,
        now: Instant,
        event: impl FnOnce(&mut ClustersInUse<H>, &mut EventScope<'_>) -> T,
    ) -> T {
        let Self { random, commands, .. } = self;
        event(&mut self.clusters, &mut EventScope { now, random, commands, is_requested: false })
    }

    fn with_leaf(
        &mut self,
        index: LeafIndex,
        now: Instant,
        event: impl FnOnce(&mut Leaf<H>, &mut LeafScope<'_>),
    ) {
        self.with_clusters(now, |clusters, scope| clusters.with_leaf(index, scope, event));
    }

    /// Lets a cluster with endpoints handle a request of a call or the application, whose attempts are the most urgent ones.
    fn with_requested(
        &mut self,
        index: LeafIndex,
        now: Instant,
        event: impl FnOnce(&mut Leaf<H>, &mut LeafScope<'_>),
    ) {
        let Self { random, commands, .. } = self;
        let scope = &mut EventScope { now, random, commands, is_requested: true };
        self.clusters.with_leaf(index, scope, event);
    }

    /// Whether the endpoints of a replaced policy serve in some cluster until the new policy has connected or failed (CH3.13).
    #[cfg(any(test, feature = "channel"))]
    pub(crate) fn uses_replaced_policy(&self) -> bool {
        // Only then a leaf has another state than the priority in use.
        self.clusters.leaves().iter().any(|leaf| leaf.connectivity() != leaf.current_connectivity())
    }

    // What operators see.

    /// The clusters that requests are sent to, in the order of their names.
    #[cfg(any(test, feature = "channel"))]
    pub(crate) fn cluster_status(&self) -> Vec<super::status::ClusterStatus> {
        self.clusters.targets().iter().map(|(name, target)| target.status(name)).collect()
    }

    /// The clusters with endpoints that are in use, in the order of their names.
    #[cfg(any(test, feature = "channel"))]
    pub(crate) fn leaf_status(&self, now: Instant) -> Vec<super::status::LeafStatus>
    where
        H: super::status::ConnectionFacts,
    {
        self.clusters.leaves().iter().map(|leaf| leaf.status(now)).collect()
    }
}

/// What models and tests look at.
#[cfg(any(test, feature = "fuzzing"))]
impl<H: Clone> Balancer<H> {
    /// The state of a cluster with endpoints, without the endpoints of a policy before.
    pub(super) fn leaf_connectivity(&self, name: &str) -> Option<Connectivity> {
        self.clusters.leaves().by_name(name).map(|used| used.leaf.current_connectivity())
    }

    /// The ejected endpoints of a cluster with endpoints.
    pub(super) fn ejections(&self, name: &str) -> Option<super::leaf::Ejections> {
        self.clusters.leaves().by_name(name).map(|used| used.leaf.ejections())
    }

    /// Whether no connection is attempted or established.
    pub(super) fn is_unconnected(&self) -> bool {
        self.commands.owns_nothing()
    }

    /// Whether a connection is that of an endpoint which cookies alone lead to.
    pub(in crate::balance) fn is_of_host(&self, connection: ConnectionId) -> bool {
        let owner = self.commands.owner_of(connection);
        owner.is_some_and(|owner| owner.holder == super::command::Holder::SessionEndpoints)
    }
}

#[cfg(test)]
mod tests;
