//! The balancer of an application with a transport of its own.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, io, mem,
    net::SocketAddr,
    sync::Arc,
    time::Instant,
};

use imbl::OrdMap;

use super::{
    Command, ConnectTarget, Picker, Settings,
    connect_requests::{ConnectRequests, Requested},
    picker::{Resolved, State},
};
use crate::{
    balance::{
        balancer, breaker::Breakers, command, command::ConnectionId, configs::Translation,
        connect_error::ConnectError, hash::hash, picker::ClusterPicker, stream_queue::streams::Streams,
        weights::LoadReport,
    },
    error::WatchError,
    resolve::Snapshot,
};

/// The connections and load balancing of one target, without I/O: snapshots, events of connections and the time go in, commands and
/// pickers come out. `C` is what requests are sent with on a connection, such as a handle of its task.
///
/// | after each | the application |
/// |---|---|
/// | `handle_…`, [`connect`](Self::connect), and call of [`Settings::with_on_request`] | executes commands of [`poll_command`](Self::poll_command) until there is none, |
/// | | then publishes the picker of [`poll_picker`](Self::poll_picker), if there is a new one, to those that pick, |
/// | | and calls [`handle_timeout`](Self::handle_timeout) at the time of [`poll_timeout`](Self::poll_timeout). |
///
/// A connection takes any number of requests at a time, up to the circuit breaker of its cluster. Where a connection takes one
/// request at a time, `C` is a pool of connections to the address. The balancer, its pickers and attempts have clones of `C` and drop them
/// once the connection is closed: a handle whose connection ends with its last clone needs nothing else for [`Command::Close`].
///
/// See the [module](crate::balance) for an example.
pub struct Balancer<C> {
    core: balancer::Balancer<C>,
    /// How the snapshots are translated for the core.
    translation: Translation,
    resolved: Resolved,
    /// The clusters in use: those that routes lead to, and the requested ones.
    used: BTreeSet<Arc<str>>,
    /// Clusters of the snapshot that requests have been made to, whether or not routes lead there.
    requested: BTreeSet<Arc<str>>,
    clusters: OrdMap<Arc<str>, Arc<ClusterPicker<C>>>,
    /// The addresses of the attempts to connect.
    attempts: BTreeMap<ConnectionId, SocketAddr>,
    connections: BTreeMap<ConnectionId, Arc<Streams<C>>>,
    /// Commands that precede those of the core.
    commands: VecDeque<Command>,
    requests: Arc<ConnectRequests>,
    /// The state is another one than that of the last picker.
    is_changed: bool,
    channel_id: u64,
}

impl<C: Clone> Balancer<C> {
    /// A balancer without a snapshot: picks wait.
    pub fn new(settings: Settings) -> Self {
        let Settings { core, on_request } = settings;
        // Drawn from the seed by a hash, since the core draws from the seed itself.
        let channel_id = hash(&core.seed.to_le_bytes());
        let core = balancer::Balancer::new(core, Arc::<Breakers>::default());
        Self {
            translation: core.translation(),
            core,
            resolved: Resolved::Waiting,
            used: BTreeSet::new(),
            requested: BTreeSet::new(),
            clusters: OrdMap::new(),
            attempts: BTreeMap::new(),
            connections: BTreeMap::new(),
            commands: VecDeque::new(),
            requests: Arc::new(ConnectRequests::new(on_request)),
            is_changed: true,
            channel_id,
        }
    }

    // Configurations.

    /// Handles a state of the resolution of the target
    /// ([`Resolution::next`](../client/struct.Resolution.html#method.next)), or a snapshot of a
    /// [`SnapshotBuilder`](crate::resolve::SnapshotBuilder).
    ///
    /// Clusters that routes lead to are in use at once; any other cluster of the snapshot is with its first request, until the snapshot
    /// lacks it. Connections to endpoints that the snapshot still has are kept. With an error, which means that there is no listener or there
    /// are no routes, all connections are closed and picks fail.
    pub fn handle_resolution(&mut self, resolved: Result<Arc<Snapshot>, WatchError>, now: Instant) {
        self.is_changed = true;
        match resolved {
            Ok(snapshot) => self.handle_snapshot(snapshot, now),
            Err(error) => {
                self.close(now);
                self.resolved = Resolved::Failed(error);
            }
        }
    }

    fn handle_snapshot(&mut self, snapshot: Arc<Snapshot>, now: Instant) {
        self.requested.retain(|cluster| snapshot.cluster(cluster).is_some());
        self.use_clusters(&snapshot, now);
        self.resolved = Resolved::Snapshot(snapshot);
    }

    /// Uses the clusters that routes lead to, and the requested ones. The leaves of aggregates are used as parts of these, and are
    /// connected only if they are preferred.
    fn use_clusters(&mut self, snapshot: &Arc<Snapshot>, now: Instant) {
        let routed = snapshot.routed_clusters();
        let used: BTreeSet<Arc<str>> = routed.into_iter().chain(self.requested.iter().cloned()).collect();
        let before = mem::replace(&mut self.used, used);
        let added: Vec<Arc<str>> = self.used.difference(&before).cloned().collect();
        let removed: Vec<Arc<str>> = before.difference(&self.used).cloned().collect();
        for cluster in &removed {
            self.clusters.remove(cluster);
        }
        let changes = self.translation.translate(snapshot, |name| self.used.contains(name), (added, removed));
        self.core.update(changes, now);
    }

    /// Closes all connections and ends all attempts. Picks wait for the next snapshot.
    pub fn close(&mut self, now: Instant) {
        self.core.close(now);
        self.translation = self.core.translation();
        (self.resolved, self.is_changed) = (Resolved::Waiting, true);
        self.used.clear();
        self.requested.clear();
        self.clusters.clear();
    }

    // Events of connections. Those of attempts that were cancelled are ignored.

    /// An attempt to connect has succeeded: requests can be sent by this.
    pub fn handle_connected(&mut self, connection: ConnectionId, handle: C, now: Instant) {
        self.attempts.remove(&connection);
        if self.connections.contains_key(&connection) {
            return;
        }
        if self.core.leaf_of(connection).is_none() {
            // The event has crossed the command that cancelled the attempt.
            self.commands.push_back(Command::Close { connection });
            return;
        }
        let streams = Streams::of_peer(handle, usize::MAX, None);
        self.connections.insert(connection, streams.clone());
        self.core.on_connected(connection, streams, now);
    }

    /// An attempt to connect has failed. Errors of requests have the text of this one, after the address. The lack of file descriptors
    /// (EMFILE, ENFILE) is not held against the endpoint.
    pub fn handle_connect_failed(&mut self, connection: ConnectionId, error: &io::Error, now: Instant) {
        let Some(address) = self.attempts.remove(&connection) else { return };
        let failure = ConnectError::of_io(error).with_text(format!("{address}: {error}"));
        self.core.on_failed(connection, failure, now);
    }

    /// A connection was lost, or takes no more requests. No picker picks it any more, earlier ones included.
    pub fn handle_closed(&mut self, connection: ConnectionId, now: Instant) {
        if let Some(streams) = self.connections.remove(&connection) {
            streams.close();
            self.core.on_lost(connection, now);
        }
    }

    /// The endpoint of a connection has reported its load beside the requests: see [`Command::WatchLoad`].
    pub fn handle_load_report(&mut self, connection: ConnectionId, report: &LoadReport, now: Instant) {
        self.core.on_load(connection, report, now);
    }

    // Connections that the application requests.

    /// Connects a cluster of the snapshot that is idle, in place of its next request. Clusters that routes lead to are connected
    /// anyway; some policies, such as `pick_first`, are idle again once their connection is lost.
    pub fn connect(&mut self, cluster: &str, now: Instant) {
        if let Resolved::Snapshot(snapshot) = &self.resolved
            && !self.used.contains(cluster)
            && snapshot.cluster(cluster).is_some()
        {
            self.requested.insert(cluster.into());
            let snapshot = snapshot.clone();
            self.use_clusters(&snapshot, now);
        }
        self.core.connect(cluster, now);
    }

    // Time.

    /// The time at which [`handle_timeout`](Self::handle_timeout) is due, if any. It may change with each event, and as commands are
    /// polled.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.core.poll_timeout()
    }

    /// Handles what is due at a time. It is called again at once while [`poll_timeout`](Self::poll_timeout) is not later than `now`:
    /// outlier detection looks at many endpoints in slices, between which other events have a turn.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.core.handle_timeout(now);
    }

    // Results.

    /// The next command, the oldest one first.
    pub fn poll_command(&mut self, now: Instant) -> Option<Command> {
        while let Some(request) = self.requests.poll() {
            match request {
                Requested::Cluster(cluster) => self.connect(&cluster, now),
                Requested::Endpoint(request) => self.core.connect_endpoint(&request, now),
            }
        }
        if let Some(command) = self.commands.pop_front() {
            return Some(command);
        }
        let mut command = self.core.poll_command(now);
        if command.is_none() {
            // Pickers are made once all commands are executed, and not after each of them. A cluster chooses its priority and its leaf
            // as its picker is made, which may have further commands.
            self.take_pickers(now);
            command = self.core.poll_command(now);
        }
        command.map(|command| self.on_command(command))
    }

    /// Notes a command of the core, and translates it.
    fn on_command(&mut self, command: command::Command) -> Command {
        match command {
            command::Command::Connect { connection, destination, timeout, purpose: _ } => {
                self.attempts.insert(connection, destination.address);
                let cluster = self.core.leaf_of(connection).unwrap_or_default();
                Command::Connect { connection, target: ConnectTarget::new(cluster, destination), timeout }
            }
            command::Command::Cancel { connection } => {
                self.attempts.remove(&connection);
                Command::Cancel { connection }
            }
            command::Command::Drain { connection } => {
                if let Some(streams) = self.connections.remove(&connection) {
                    streams.close();
                }
                Command::Close { connection }
            }
            command::Command::WatchLoad { connection, period } => Command::WatchLoad { connection, period },
            command::Command::UnwatchLoad { connection } => Command::UnwatchLoad { connection },
            command::Command::RequestReresolution => Command::RequestReresolution,
        }
    }

    /// A picker for the state after all events, if it is another one than that of the last picker. The first call yields one by which
    /// picks wait.
    ///
    /// An application calls this once [`poll_command`](Self::poll_command) has returned `None`. A picker takes time in the number of endpoints
    /// that have changed and more, so that all events that are there are to be handled before.
    pub fn poll_picker(&mut self, now: Instant) -> Option<Picker<C>> {
        self.take_pickers(now);
        mem::take(&mut self.is_changed).then(|| {
            Picker::new(State {
                resolved: self.resolved.clone(),
                clusters: self.clusters.clone(),
                requests: self.requests.clone(),
                channel_id: self.channel_id,
            })
        })
    }

    /// Takes the pickers of clusters that have changed.
    fn take_pickers(&mut self, now: Instant) {
        while let Some((name, picker)) = self.core.poll_picker(now) {
            // The cluster may have been removed since its picker was made.
            if self.used.contains(&name) {
                self.clusters.insert(name, picker);
                self.is_changed = true;
            }
        }
    }
}

impl<C> fmt::Debug for Balancer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balancer")
            .field("resolved", &self.resolved)
            .field("attempts", &self.attempts.len())
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}
