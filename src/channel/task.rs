//! The task of a channel, which is its control path: calls only load what it publishes.

mod connections;
mod control;
mod latest_waits;
mod target_resolution;
mod waits;

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::{Uri, uri::Authority};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::yield_now,
    time::Instant,
};
use tracing::info;

pub(super) use self::control::{Collected, Control, ControlQueue};
pub(super) use self::target_resolution::DnsTarget;
use self::{
    connections::{Connections, LoadWatch},
    latest_waits::LatestWaits,
    target_resolution::{TargetResolution, TargetSource},
    waits::{next, now, until},
};
use super::{
    ChannelState,
    active::ActiveCalls,
    call::{CallContext, SHUT_DOWN},
    connection::{Connection, Handle, LoadWatchSettings, Loss, watch_load},
    lookup::LookupRouters,
    picker_cell::{Connect, PickerCell},
    security::{ChannelSecurity, RotationWatch},
    settings::Settings,
    telemetry::Subchannels,
};
use crate::{
    Client,
    background::{TaskEnd, supervise},
    backoff::{Backoff, BackoffSettings},
    balance::{
        balancer::Balancer,
        breaker::Breakers,
        command::{Command, ConnectionId},
        connect_error::ConnectError,
        disconnect::Disconnect,
        generation::{Generation, Generations},
        identity::Rotation,
        stream_queue::OnFull,
        stream_queue::streams::Streams,
        weights::LoadReport,
    },
    client::ClusterSubscription,
    config::Target,
    error::WatchError,
    resolve::Snapshot,
};

/// Events of connections.
enum Event {
    /// An attempt has succeeded.
    Connected(ConnectionId, Box<Connection>),
    /// A lease of a shared connection is ready.
    Joined(ConnectionId, Arc<Streams<Handle>>),
    /// An attempt has failed.
    Failed(ConnectionId, ConnectError),
    /// A connection takes no new streams any more.
    Lost(ConnectionId, Loss),
    /// Calls wait for a further connection beside this one.
    Full(ConnectionId),
    /// The endpoint has reported its load beside the calls.
    Load(ConnectionId, LoadReport),
}

/// The state of the task.
struct Task {
    /// Resolves the target.
    source: TargetSource,
    /// The authority of requests that are not calls.
    authority: Authority,
    /// Delays of the streams of load reports.
    backoff: Arc<BackoffSettings>,
    /// The time without calls until the channel becomes idle; zero is never.
    idle_timeout: Duration,
    /// The routes and pickers for calls.
    published: Arc<PickerCell>,
    /// The count of calls.
    active: Arc<ActiveCalls>,
    /// The core: routes, clusters and the balancer.
    generations: Generations<Handle>,
    /// The resolution of the target; `None` while the channel is idle.
    resolution: Option<TargetResolution>,
    /// Keeps clusters of the core in the snapshots.
    subscriptions: HashMap<Arc<str>, Option<ClusterSubscription>>,
    /// Whether connections are shared.
    shares_connections: bool,
    /// Executes attempts and connections.
    connections: Connections,
    /// The rotations of certificates.
    rotations: RotationWatch,
    /// The tasks that read load reports beside the calls.
    load_watches: HashMap<ConnectionId, LoadWatch>,
    /// Records connections for metrics.
    subchannels: Subchannels,
    /// For the tasks of connections.
    events: UnboundedSender<Event>,
    /// When to check whether the channel becomes idle; `None` if it is idle or never becomes so.
    idle_at: Option<Instant>,
    /// Whether the client of the resolution has ended, so that no further state follows.
    has_client_ended: bool,
    /// Whether the application has requested connections, which are attempted once the clusters are known.
    exits_idle: bool,
    /// The waits until calls use the latest configuration.
    latest_waits: LatestWaits,
    /// Executes the plugins of routes.
    lookups: Arc<LookupRouters>,
}

/// The circuit breakers of all channels of the process (CH4.7).
static BREAKERS: std::sync::OnceLock<Arc<Breakers>> = std::sync::OnceLock::new();

/// Returns the circuit breakers of the process.
pub(super) fn breakers() -> Arc<Breakers> {
    BREAKERS.get_or_init(Arc::default).clone()
}

/// Returns the task of a channel, which runs until the last handle and the last waiting call are gone, or the channel is shut
/// down.
pub(super) fn run(
    client: Client,
    target: Target,
    mut settings: Settings,
    calls: &CallContext,
    queue: ControlQueue,
) -> impl Future<Output = ()> + Send + use<> {
    let ControlQueue { sender: release, receiver: control } = queue;
    let on_unused = Arc::new(move || {
        // Without handles there is no task.
        if let Some(control) = release.upgrade() {
            let _ = control.send(Control::Release);
        }
    });
    let breakers = breakers();
    let (events, received) = mpsc::unbounded_channel();
    let full = events.clone();
    settings.balancer.pick_first.on_full = OnFull::new(move |connection| {
        // Without a task nobody connects.
        let _ = full.send(Event::Full(connection));
    });
    let security = ChannelSecurity::new(&client, settings.security, &calls.authority);
    let rotations = security.rotations();
    let connections =
        Connections::new(client.clone(), target.clone(), settings.connections, security, events.clone())
            .with_shared(settings.share_connections);
    let task = Task {
        source: TargetSource::new(client, target, settings.dns_target),
        authority: calls.authority.clone(),
        backoff: settings.balancer.pick_first.backoff.backoff.clone(),
        idle_timeout: settings.idle_timeout,
        published: calls.published.clone(),
        active: calls.active.clone(),
        generations: Generations::new(Balancer::new(settings.balancer, breakers), on_unused),
        resolution: None,
        subscriptions: HashMap::new(),
        shares_connections: settings.share_connections,
        connections,
        rotations,
        load_watches: HashMap::new(),
        subchannels: Subchannels::new(settings.observer),
        events,
        idle_at: None,
        has_client_ended: false,
        exits_idle: false,
        latest_waits: LatestWaits::default(),
        lookups: calls.lookups.clone(),
    };
    let published = calls.published.clone();
    supervise("channel", task.run(control, received), move |end| match end {
        TaskEnd::Completed => {}
        TaskEnd::Panicked(message) => published.fail(format!("the task of the channel panicked: {message}")),
        TaskEnd::Dropped => published.fail(RUNTIME_ENDED.to_owned()),
    })
}

impl Task {
    /// Handles commands, events, states and timers, and publishes after each.
    async fn run(mut self, mut control: UnboundedReceiver<Control>, mut events: UnboundedReceiver<Event>) {
        loop {
            // All that the core waits for is one timer (CH11.9).
            let timeout = self.generations.balancer.poll_timeout().map(Instant::from_std);
            let timeout = timeout.into_iter().chain(self.idle_at).min();
            tokio::select! {
                command = control.recv() => match command {
                    Some(Control::Shutdown { grace, done }) => {
                        self.shut_down(grace).await;
                        control.close();
                        // An error means that nobody waits.
                        let _ = done.send(());
                        return;
                    }
                    Some(command) => self.handle_control(command),
                    None => break,
                },
                event = events.recv() => {
                    // All events that are there are handled before the pickers are published: a mesh that connects has hundreds
                    // at once.
                    let mut next = event;
                    while let Some(event) = next {
                        self.handle_event(event);
                        next = events.try_recv().ok();
                    }
                }
                resolved = next(&mut self.resolution), if !self.has_client_ended => match resolved {
                    Some(resolved) => self.handle_resolution(resolved),
                    None => self.handle_client_end(),
                },
                () = until(timeout) => self.handle_timeout(),
                rotation = self.rotations.next() => self.handle_rotation(&rotation),
                // Nothing is to be published; an ended task stays in the set until it is joined.
                Some(()) = self.connections.ended() => continue,
            }
            self.publish();
            self.latest_waits.end_unless(|| self.generations.balancer.uses_replaced_policy());
            // The slices of a sweep follow each other without a wait; other tasks must be able to run in between.
            if self.generations.balancer.poll_timeout().is_some_and(|at| at <= now()) {
                yield_now().await;
            }
        }
        // CH1.5: the last handle is gone.
        self.generations.clear(now());
        self.execute();
        // Running calls go on; each connection ends with its last stream.
        self.connections.detach();
        self.published.states.set(ChannelState::Shutdown);
    }

    /// Handles a command.
    fn handle_control(&mut self, command: Control) {
        match command {
            Control::Wake => self.wake(),
            Control::ExitIdle => {
                self.wake();
                self.exits_idle = true;
            }
            Control::ConnectEndpoint(request) => {
                self.generations.balancer.connect_endpoint(&request, now());
            }
            Control::Connect { cluster } => self.generations.balancer.connect(&cluster, now()),
            Control::Subscribe(cluster) => self.generations.subscribe(cluster, now()),
            Control::Unsubscribe(cluster) => self.generations.unsubscribe(&cluster, now()),
            Control::Release => self.generations.release_unused(now()),
            Control::ResetBackoff => self.generations.balancer.reset_backoff(now()),
            Control::Resolution(answer) => {
                self.wake();
                let _ = self.resolution.as_ref().map(|resolution| resolution.answer(answer));
            }
            Control::UseLatest(done) => {
                if let Some(resolved) = self.resolution.as_ref().and_then(TargetResolution::latest) {
                    self.handle_resolution(resolved);
                }
                self.latest_waits.add(done);
            }
            Control::Status(answer) => drop(answer.send(self.status())),
            Control::Shutdown { .. } => {}
        }
    }

    /// Collects the state of the clusters.
    fn status(&self) -> Collected {
        let (clusters, leaves) = self.generations.status(now());
        let not_executed = self.generations.not_executed();
        Collected { error: self.generations.error(), clusters, leaves, not_executed }
    }

    /// Begins to resolve the target, unless the channel is not idle.
    fn wake(&mut self) {
        if self.resolution.is_none() {
            self.active.wake();
            self.resolution = Some(self.source.resolve());
            self.has_client_ended = false;
            self.idle_at = (!self.idle_timeout.is_zero()).then(|| Instant::now() + self.idle_timeout);
        }
    }

    /// Handles a state of the resolution.
    fn handle_resolution(&mut self, resolved: Result<Arc<Snapshot>, WatchError>) {
        self.generations.handle_resolution(resolved, now());
    }

    /// Handles the end of the client. The last state stays in use; without one, calls fail instead of waiting for a state that
    /// never follows.
    fn handle_client_end(&mut self) {
        self.has_client_ended = true;
        if let Some(resolution) = self.resolution.as_ref().filter(|_| self.generations.is_waiting()) {
            self.generations.handle_resolution(Err(resolution.shut_down()), now());
        }
    }

    /// Handles an event of a connection. Those of connections that were given up meanwhile are ignored.
    fn handle_event(&mut self, event: Event) {
        let balancer = &mut self.generations.balancer;
        match event {
            Event::Connected(id, connection) => {
                if let Some(streams) = self.connections.on_connected(id, *connection) {
                    self.subchannels.on_connected(id, streams.handle().is_private(), || balancer.labels(id));
                    balancer.on_connected(id, streams, now());
                }
            }
            Event::Joined(id, streams) => {
                if self.connections.on_joined(id) {
                    self.subchannels.on_connected(id, streams.handle().is_private(), || balancer.labels(id));
                    balancer.on_connected(id, streams, now());
                }
            }
            Event::Failed(id, error) => {
                if self.connections.on_failed(id, &error.text) {
                    self.subchannels.on_failed(|| balancer.labels(id));
                    balancer.on_failed(id, error, now());
                }
            }
            Event::Full(id) => {
                self.connections.on_full(id);
                balancer.on_full(id, now());
            }
            Event::Load(id, report) => balancer.on_load(id, &report, now()),
            Event::Lost(id, loss) => {
                self.load_watches.remove(&id);
                let reason = loss.reason();
                if self.connections.on_lost(id, loss) {
                    self.subchannels.on_lost(id, reason);
                    balancer.on_lost(id, now());
                }
            }
        }
    }

    /// Replaces the connections that were made with certificates that were replaced (CH7.7).
    fn handle_rotation(&mut self, rotation: &Rotation) {
        let Rotation { roots, identities } = rotation;
        info!(target_name = %self.source.target(), ?roots, ?identities, "certificates were rotated, connections are replaced");
        self.generations.balancer.on_rotation(rotation, now());
    }

    /// Handles the due timers.
    fn handle_timeout(&mut self) {
        let balancer = &mut self.generations.balancer;
        if balancer.poll_timeout().is_some_and(|at| at <= now()) {
            balancer.handle_timeout(now());
        }
        if self.idle_at.is_some_and(|at| at <= Instant::now()) {
            match self.active.try_idle(self.idle_timeout) {
                Ok(()) => self.become_idle(),
                Err(later) => self.idle_at = Some(later),
            }
        }
    }

    /// Closes all connections, and ends the resolution (CH1.29).
    fn become_idle(&mut self) {
        self.generations.clear(now());
        (self.resolution, self.idle_at) = (None, None);
        self.subscriptions.clear();
        // A call that came in the meantime has seen that the channel is idle, and wakes it.
    }

    /// Executes commands, and publishes the state after them.
    fn publish(&mut self) {
        // Picks of calls that wait may request connections, which changes their pickers.
        while let Some(connects) = self.publish_once() {
            let exits_idle = self.exit_idle();
            if connects.is_empty() && !exits_idle {
                return;
            }
            for connect in connects {
                match connect {
                    Connect::Cluster(cluster) => self.generations.balancer.connect(&cluster, now()),
                    Connect::Endpoint(request) => {
                        self.generations.balancer.connect_endpoint(&request, now());
                    }
                }
            }
        }
    }

    /// Connects idle clusters if the application has requested that, as soon as they are known.
    fn exit_idle(&mut self) -> bool {
        let state = self.published.states.current();
        self.exits_idle &= state == ChannelState::Connecting || state == ChannelState::Idle;
        let is_due = self.exits_idle && state == ChannelState::Idle;
        if is_due {
            self.exits_idle = false;
            self.generations.balancer.exit_idle(now());
        }
        is_due
    }

    /// Publishes once. Returns the connections that picks have requested; `None` while the channel is idle.
    fn publish_once(&mut self) -> Option<Vec<Connect>> {
        let Some(resolution) = &self.resolution else {
            self.execute();
            if self.published.states.current() != ChannelState::Idle {
                self.published.publish(Generation::waiting());
                self.published.states.set(ChannelState::Idle);
            }
            return None;
        };
        // CH1.20: subscribed beside the routes, so that clusters which only calls refer to stay in the snapshots.
        if let Some(clusters) = self.generations.poll_clusters() {
            self.subscriptions.retain(|name, _| clusters.contains(name));
            for name in clusters {
                let subscribe = |name: &Arc<str>| resolution.subscribe_cluster(name);
                self.subscriptions.entry(name).or_insert_with_key(subscribe);
            }
        }
        let generation = self.generations.poll_generation(now());
        self.execute();
        let Some(generation) = generation else { return Some(Vec::new()) };
        let state = generation.connectivity.into();
        // The pickers before the state: a call that is made after READY was seen finds an endpoint.
        let connects = self.published.publish(generation);
        self.published.states.set(state);
        Some(connects)
    }

    /// Executes the commands of the core, and the plugins of routes before the routes are published.
    fn execute(&mut self) {
        if let Some(plugins) = self.generations.poll_lookup_plugins() {
            self.lookups.update(plugins);
        }
        while let Some(command) = self.generations.balancer.poll_command(now()) {
            match command {
                Command::Connect { connection, destination, timeout, purpose: _ } => {
                    self.connections.connect(connection, &destination, timeout);
                }
                Command::Cancel { connection } => self.connections.cancel(connection),
                Command::Drain { connection } => {
                    self.load_watches.remove(&connection);
                    self.connections.drain(connection);
                    self.subchannels.on_lost(connection, Disconnect::Shutdown);
                }
                Command::WatchLoad { connection, period } => self.watch_load(connection, period),
                Command::UnwatchLoad { connection } => drop(self.load_watches.remove(&connection)),
                Command::RequestReresolution => {
                    if let Some(resolution) = &self.resolution {
                        resolution.request_reresolution();
                    }
                }
            }
        }
    }

    /// Reads the load that an endpoint reports on a connection, in a task of its own.
    fn watch_load(&mut self, id: ConnectionId, period: Duration) {
        let Some(endpoint) = self.generations.balancer.ready(id) else { return };
        let origin =
            Uri::builder().scheme("http").authority(self.authority.clone()).path_and_query("/").build();
        let Ok(origin) = origin else { return };
        let events = self.events.clone();
        let on_report = move |report| {
            // Without a task nobody needs weights.
            let _ = events.send(Event::Load(id, report));
        };
        let backoff = Backoff::new(self.backoff.clone());
        let malformed = self.active.malformed().clone();
        let watch = watch_load(endpoint, LoadWatchSettings { origin, period }, backoff, malformed, on_report);
        // Without it, the weights that the endpoint has reported expire.
        let watch = tokio::spawn(supervise("load of an endpoint", watch, |_| {}));
        self.load_watches.insert(id, LoadWatch::new(watch.abort_handle()));
    }

    /// Ends the channel: waiting calls at once, running ones after the grace (CH1.6).
    async fn shut_down(&mut self, grace: Duration) {
        self.published.states.set(ChannelState::Shutdown);
        self.active.shut_down();
        self.generations.clear(now());
        self.execute();
        self.resolution = None;
        self.subscriptions.clear();
        // Before the queue is closed: calls that load this find it closed, and no picker of connections that have gone.
        self.published.publish(Generation::waiting());
        self.published.close(SHUT_DOWN);
        let ended = async {
            while self.connections.ended().await.is_some() {}
            if self.shares_connections {
                self.active.ended().await;
            }
        };
        let is_ended = tokio::time::timeout(grace, ended).await.is_ok();
        // Without connections, too, for calls that are still in an HTTP filter of the application.
        self.active.cancel();
        if !is_ended {
            self.connections.shut_down().await;
        }
    }
}

/// The reason of calls that fail since the runtime of the task has ended.
const RUNTIME_ENDED: &str =
    "the runtime that the channel was built on has ended: build the channel on the runtime that uses it";
