//! The part of the driver that sends load reports.

use std::{
    collections::{BTreeMap, HashMap},
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time,
};
use tracing::trace;

use super::{clock::now, command::Command, recording::Recording};
use crate::{
    config::{ApiType, Server},
    engine::{Engine, Input},
    lrs::{LoadCommand, LoadStreamReport, LoadTarget, Reporting},
    protocol::{ConnectTarget, StreamEvent, StreamId},
    transport::{ConnectRequest, Connection, ConnectionEvents, Transports},
};

/// The load reports of a client: executes the commands of [`Reporting`], beside the streams of resources.
///
/// A stream of load reports is one more stream on the connection that resources come from (LR2.3). While that connection is being
/// made, or waits for another attempt, the stream waits with it; without one, it has a connection of its own.
#[derive(Debug)]
pub(super) struct LoadDriver {
    /// The protocol, which decides what is reported, and when.
    reporting: Reporting,
    /// The interval of keepalives.
    keepalive: Duration,
    /// The streams that are connected, or being connected.
    connections: HashMap<StreamId, Box<dyn Connection>>,
    /// Streams that wait for a connection. They wait as long as the engine has, or will have, a stream of resources to the same
    /// server.
    waiting: BTreeMap<StreamId, LoadTarget>,
    /// The servers of the connections for resources, as far as these have streams: polls and files have no stream beside which
    /// another one could be opened.
    hosts: BTreeMap<StreamId, Arc<Server>>,
    /// Events of the streams.
    events: UnboundedReceiver<Input>,
    /// Where the streams send them.
    reports: UnboundedSender<Input>,
    /// Set by each event and command, so that recording the metrics costs nothing between them.
    is_changed: bool,
}

/// The connections that resources come from, and what makes others.
///
/// Borrowed for each call, since the driver owns them for the streams of resources.
#[derive(Debug)]
pub(super) struct Network<'a> {
    /// Knows whether a server has, or will have, a stream of resources.
    pub(super) engine: &'a Engine,
    /// Connect to them.
    pub(super) transports: &'a Transports,
    /// The streams for resources, whose connections load reports share.
    pub(super) connections: &'a mut HashMap<StreamId, Box<dyn Connection>>,
}

impl LoadDriver {
    /// `wake` is the channel by which handles wake the driver.
    // A weak sender: the counters are held by handles of the application, which must not keep the client alive by them.
    pub(super) fn new(reporting: Reporting, keepalive: Duration, wake: &UnboundedSender<Command>) -> Self {
        let wake = wake.downgrade();
        reporting.loads().set_wake(move || {
            // Without handles and watches the client ends, and nothing has to be woken.
            if let Some(wake) = wake.upgrade() {
                let _ = wake.send(Command::LoadsChanged);
            }
        });
        let (reports, events) = mpsc::unbounded_channel();
        Self {
            reporting,
            keepalive,
            connections: HashMap::new(),
            waiting: BTreeMap::new(),
            hosts: BTreeMap::new(),
            events,
            reports,
            is_changed: false,
        }
    }

    /// Records the metrics.
    pub(super) fn record(&mut self, recording: &mut Recording) {
        if recording.is_reading() && std::mem::take(&mut self.is_changed) {
            recording.record_load_reports(&self.reporting.status());
        }
    }

    /// Notes that metrics are to be recorded.
    fn note_change(&mut self) {
        self.is_changed = true;
    }

    /// The next event of a stream.
    ///
    /// # Cancel safety
    /// No event is lost.
    pub(super) async fn next_event(&mut self) -> Option<Input> {
        self.events.recv().await
    }

    /// The time of the next call of `handle_timeout`.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.reporting.poll_timeout()
    }

    /// The state of each stream.
    pub(super) fn status(&self) -> Vec<LoadStreamReport> {
        self.reporting.status()
    }

    /// A connection for resources is being made. Reports of the server use it from now on, even while it is being made.
    pub(super) fn on_connect(&mut self, stream: StreamId, to: &ConnectTarget) {
        match to {
            ConnectTarget::Server { server, polling: None, .. } => {
                self.hosts.insert(stream, server.clone());
            }
            ConnectTarget::Server { polling: Some(_), .. } | ConnectTarget::File { .. } => {}
        }
    }

    /// A connection for resources has ended.
    pub(super) fn on_end(&mut self, stream: StreamId) {
        self.hosts.remove(&stream);
    }

    /// Handles an event of a stream.
    pub(super) fn handle_event(&mut self, event: Input, network: Network<'_>) {
        self.pass_on(event);
        self.carry_out(network);
    }

    /// Sends the reports that are due.
    pub(super) fn handle_timeout(&mut self, network: Network<'_>) {
        self.note_change();
        self.reporting.handle_timeout(now());
        self.carry_out(network);
    }

    /// Looks at what handles and resources have changed, and executes all commands.
    pub(super) fn carry_out(&mut self, mut network: Network<'_>) {
        if self.reporting.loads().take_changed() {
            self.note_change();
            self.reporting.handle_change(now());
        }
        while let Some(command) = self.reporting.poll_command() {
            self.note_change();
            match command {
                LoadCommand::Connect { stream } => {
                    if let Some(target) = self.reporting.target(stream) {
                        self.waiting.insert(stream, target);
                    }
                }
                LoadCommand::Send { stream, message } => {
                    self.with_connection(stream, |connection| connection.send(message));
                }
                LoadCommand::Read { stream } => self.with_connection(stream, |connection| connection.read()),
                LoadCommand::Finish { stream } => {
                    self.with_connection(stream, |connection| connection.finish());
                }
                LoadCommand::Disconnect { stream } => {
                    self.waiting.remove(&stream);
                    self.connections.remove(&stream);
                }
            }
        }
        if !self.waiting.is_empty() {
            self.connect_waiting(&mut network);
        }
    }

    /// Sends the last reports (LR6.8). To be followed by [`carry_out`](Self::carry_out) and [`wait`](Self::wait) until
    /// [`is_closed`](Self::is_closed), for a second at most.
    pub(super) fn shut_down(&mut self) {
        self.reporting.shut_down(now());
    }

    /// Whether all streams have ended.
    pub(super) fn is_closed(&self) -> bool {
        self.reporting.is_closed()
    }

    /// Waits for an event or a deadline, and handles it.
    pub(super) async fn wait(&mut self) {
        let deadline = self.poll_timeout().map(time::Instant::from_std);
        let timeout = async {
            match deadline {
                Some(at) => time::sleep_until(at).await,
                None => pending().await,
            }
        };
        let event = tokio::select! {
            event = self.events.recv() => event,
            () = timeout => None,
        };
        match event {
            Some(event) => self.pass_on(event),
            None => self.reporting.handle_timeout(now()),
        }
    }

    /// Passes an event on to the protocol, unless its stream was cancelled.
    fn pass_on(&mut self, event: Input) {
        let Input::Transport(event) = event else { return };
        self.note_change();
        let stream = event.stream();
        if !self.connections.contains_key(&stream) {
            return trace!(%stream, "event of a cancelled stream of load reports ignored");
        }
        if let StreamEvent::Disconnected { .. } = event {
            self.connections.remove(&stream);
        }
        self.reporting.handle_event(event, now());
    }

    /// Opens the streams that need not wait for a connection for resources.
    fn connect_waiting(&mut self, network: &mut Network<'_>) {
        let Self { waiting, hosts, connections, reports, keepalive, .. } = self;
        waiting.retain(|stream, LoadTarget { server, method }| {
            // Servers that differ in nothing but the variant of the protocol have one connection, and load reports have no
            // variant.
            let host = hosts.iter().find(|(_, host)| host.has_connection_of(server));
            if host.is_none() && network.engine.uses(server) {
                // The connection is lost, and will be made again.
                return true;
            }
            let request = ConnectRequest {
                server: host.map_or(&*server, |(_, host)| host).clone(),
                api_type: ApiType::Grpc,
                path: (*method).into(),
                polling: None,
                keepalive: *keepalive,
            };
            let events = ConnectionEvents::new(*stream, reports.clone());
            let shared = host.and_then(|(id, _)| network.connections.get_mut(id));
            let shared = shared.and_then(|shared| shared.open_stream(&request, &events));
            let connection = shared.unwrap_or_else(|| network.transports.open_stream(request, events));
            connections.insert(*stream, connection);
            false
        });
    }

    /// Runs a command on a connection, unless it has just ended.
    fn with_connection(&mut self, stream: StreamId, order: impl FnOnce(&mut dyn Connection)) {
        if let Some(connection) = self.connections.get_mut(&stream) {
            order(connection.as_mut());
        }
    }
}
