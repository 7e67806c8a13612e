use std::{
    collections::HashMap,
    future::ready,
    ops::ControlFlow,
    pin::{Pin, pin},
    sync::Weak,
};

use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::{self, Sleep},
};
use tracing::{debug, trace};

use super::{
    clock::now,
    command::{Command, Publish},
    dns::Lookups,
    load_driver::{LoadDriver, Network},
};
#[cfg(feature = "metrics")]
use crate::metrics::Recorder;
use crate::{
    base::ByWatch,
    capacity::Shrink,
    engine::{Engine, Input, Output},
    escape::Escaped,
    protocol::{StreamCommand, StreamEvent, StreamId},
    transport::{Connection, ConnectionEvents, Transports},
};

/// The only task of a client: waits for an event, passes it to the engine, and executes the engine's outputs.
///
/// It never waits for a user, a connection or a server. The transport connects, writes and reads, and reports
/// [`Input`]s.
#[derive(Debug)]
pub(super) struct Driver {
    engine: Engine,
    transports: Transports,
    commands: UnboundedReceiver<Command>,
    /// Commands that were received and not handled yet, the last one first.
    batch: Vec<Command>,
    events: UnboundedReceiver<Input>,
    /// Cloned for the transport and for lookups. It contains few events: a stream reads one message per order to
    /// read, and a lookup ends once.
    reports: UnboundedSender<Input>,
    watches: ByWatch<Weak<dyn Publish>>,
    connections: HashMap<StreamId, Box<dyn Connection>>,
    lookups: Lookups,
    loads: LoadDriver,
    #[cfg(feature = "metrics")]
    recorder: Option<Recorder>,
}

/// The work after a wait.
#[derive(Debug)]
enum Work {
    Commands,
    Event(Input),
    /// An event of a stream of load reports.
    LoadEvent(Input),
    /// The deadline of load reports has passed.
    LoadDeadline,
    /// The engine's next deadline has passed, or the engine has split its work and the rest is pending.
    Deadline,
    /// All handles and watches are gone.
    Nothing,
}

impl Driver {
    pub(super) fn new(
        engine: Engine,
        transports: Transports,
        lookups: Lookups,
        commands: UnboundedReceiver<Command>,
        loads: LoadDriver,
    ) -> Self {
        let (reports, events) = mpsc::unbounded_channel();
        Self {
            engine,
            transports,
            commands,
            batch: Vec::with_capacity(MAX_BATCH),
            events,
            reports,
            watches: ByWatch::default(),
            connections: HashMap::new(),
            lookups,
            loads,
            #[cfg(feature = "metrics")]
            recorder: None,
        }
    }

    /// Records the metrics.
    #[cfg(feature = "metrics")]
    pub(super) fn with_recorder(mut self, recorder: Option<Recorder>) -> Self {
        self.recorder = recorder;
        self
    }

    pub(super) async fn run(mut self) {
        let mut sleep = pin!(time::sleep_until(time::Instant::now()));
        self.carry_out();
        loop {
            match self.next_work(sleep.as_mut()).await {
                Work::Commands => {
                    self.batch.reverse();
                    while let Some(command) = self.batch.pop() {
                        if self.handle_command(command).is_break() {
                            return self.end().await;
                        }
                    }
                }
                Work::Event(event) => self.handle_event(event),
                Work::LoadEvent(event) => {
                    let (loads, network) = self.loads();
                    loads.handle_event(event, network);
                    self.record_load_reports();
                }
                Work::LoadDeadline => {
                    let (loads, network) = self.loads();
                    loads.handle_timeout(network);
                    self.record_load_reports();
                    // A report is built in slices.
                    tokio::task::yield_now().await;
                }
                Work::Deadline => {
                    self.engine.handle_timeout(now());
                    self.carry_out();
                    // The parts of a large response may follow each other without a wait; other tasks must be able to
                    // run in between.
                    tokio::task::yield_now().await;
                }
                Work::Nothing => return self.end().await,
            }
        }
    }

    /// Waits for work. The choice among several kinds is random, so that none starves another.
    async fn next_work(&mut self, mut sleep: Pin<&mut Sleep>) -> Work {
        let of_loads = self.loads.poll_timeout().map(time::Instant::from_std);
        let of_engine = self.engine.poll_timeout().map(|(at, _)| time::Instant::from_std(at));
        let deadline = [of_engine, of_loads].into_iter().flatten().min();
        let over = || {
            if of_engine <= of_loads && of_engine.is_some() || of_loads.is_none() {
                Work::Deadline
            } else {
                Work::LoadDeadline
            }
        };
        let is_over = deadline.is_some_and(|at| at <= time::Instant::now());
        if let Some(at) = deadline
            && !is_over
            && at != sleep.deadline()
        {
            sleep.as_mut().reset(at);
        }
        tokio::select! {
            count = self.commands.recv_many(&mut self.batch, MAX_BATCH) => if count == 0 { Work::Nothing } else { Work::Commands },
            Some(event) = self.events.recv() => Work::Event(event),
            Some(event) = self.loads.next_event() => Work::LoadEvent(event),
            () = ready(()), if is_over => over(),
            () = sleep, if deadline.is_some() && !is_over => over(),
        }
    }

    /// Handles a command of a handle or a watch.
    fn handle_command(&mut self, command: Command) -> ControlFlow<()> {
        match command {
            Command::Watch { watch_id, ty, names, publish } => {
                self.watches.insert(watch_id, publish);
                self.engine.subscribe(watch_id, ty, names, now());
            }
            Command::Resolve { watch_id, target, publish } => {
                self.watches.insert(watch_id, publish);
                self.engine.resolve(watch_id, &target, now());
            }
            Command::SubscribeCluster { watch_id, name } => {
                self.engine.subscribe_cluster(watch_id, &name, now())
            }
            Command::UnsubscribeCluster { watch_id, name } => {
                self.engine.unsubscribe_cluster(watch_id, &name, now())
            }
            Command::RequestReresolution { watch_id } => self.engine.request_reresolution(watch_id, now()),
            Command::Unwatch { watch_id } => {
                // A refused watch was never passed to the engine.
                let was_known = self.watches.remove(&watch_id).is_some();
                self.watches.shrink_if_sparse();
                if was_known {
                    self.engine.unsubscribe(watch_id, now());
                }
            }
            Command::Status { reply } => {
                // The caller may be gone.
                let _ = reply.send((self.engine.status(), self.loads.status()));
            }
            // It is looked at below.
            Command::LoadsChanged => {}
            Command::Shutdown => return ControlFlow::Break(()),
        }
        self.carry_out();
        ControlFlow::Continue(())
    }

    /// Handles an event of a stream or a lookup.
    fn handle_event(&mut self, event: Input) {
        if let Input::Transport(event) = &event {
            let stream = event.stream();
            if !self.connections.contains_key(&stream) {
                return trace!(%stream, "event of a cancelled stream ignored");
            }
            if let StreamEvent::Disconnected { reason, .. } = event {
                debug!(%stream, kind = ?reason.kind, reason = reason.message, "stream ended");
                self.connections.remove(&stream);
                self.loads.on_end(stream);
            }
        }
        self.engine.handle_input(event, now());
        self.carry_out();
    }

    /// Executes all outputs of the engine.
    fn carry_out(&mut self) {
        // Metrics are updated before watches see the effects.
        #[cfg(feature = "metrics")]
        self.record();
        while let Some(order) = self.engine.poll_output() {
            match order {
                Output::Transport(StreamCommand::Connect { stream, to, keepalive }) => {
                    let events = ConnectionEvents::new(stream, self.reports.clone());
                    self.loads.on_connect(stream, &to);
                    self.connections.insert(stream, self.transports.connect(to, keepalive, events));
                }
                Output::Transport(StreamCommand::Send { stream, message }) => {
                    self.with_connection(stream, |connection| connection.send(message));
                }
                Output::Transport(StreamCommand::Read { stream }) => {
                    self.with_connection(stream, |connection| connection.read())
                }
                Output::Transport(StreamCommand::Disconnect { stream }) => {
                    self.connections.remove(&stream);
                    self.loads.on_end(stream);
                }
                Output::Lookup { lookup, host } => {
                    trace!(?lookup, host = %Escaped(&host), "dns lookup started");
                    self.lookups.start(lookup, host, self.reports.clone());
                }
                Output::Notify { watch_id, observed } => {
                    if let Some(watch) = self.watches.get(&watch_id).and_then(Weak::upgrade) {
                        watch.publish(observed).wake();
                    }
                }
            }
        }
        let (loads, network) = self.loads();
        loads.carry_out(network);
        self.record_load_reports();
    }

    /// Records the streams of load reports.
    fn record_load_reports(&mut self) {
        #[cfg(feature = "metrics")]
        if let Some(recorder) = &self.recorder {
            self.loads.record(recorder);
        }
    }

    /// The load reports, and what they are sent with.
    fn loads(&mut self) -> (&mut LoadDriver, Network<'_>) {
        let Self { loads, engine, transports, connections, .. } = self;
        (loads, Network { engine, transports, connections })
    }

    /// Ends all watches, then sends the last load reports (LR6.8).
    async fn end(mut self) {
        self.close_watches();
        self.loads.shut_down();
        loop {
            let (loads, network) = self.loads();
            loads.carry_out(network);
            self.record_load_reports();
            if self.loads.is_closed() {
                return;
            }
            self.loads.wait().await;
        }
    }

    /// Ends all watches, so that their streams end.
    fn close_watches(&mut self) {
        let watches: Vec<_> = self.watches.drain().map(|(_, watch)| watch).collect();
        for watch in watches.iter().filter_map(Weak::upgrade) {
            watch.close().wake();
        }
    }

    /// Records what the engine reports.
    #[cfg(feature = "metrics")]
    fn record(&mut self) {
        if let Some(recorder) = &self.recorder {
            while let Some(metric) = self.engine.poll_metric() {
                recorder.record(metric);
            }
        }
    }

    /// Runs a command on a connection. A connection that has just ended is skipped: the report of its end is in the
    /// queue.
    fn with_connection(&mut self, stream: StreamId, order: impl FnOnce(&mut dyn Connection)) {
        if let Some(connection) = self.connections.get_mut(&stream) {
            order(connection.as_mut());
        }
    }
}

/// Closes all watches, including those that were started too late to reach the driver.
impl Drop for Driver {
    fn drop(&mut self) {
        self.commands.close();
        self.close_watches();
        let mut watches = Vec::new();
        let received = std::mem::take(&mut self.batch).into_iter();
        for command in received.chain(std::iter::from_fn(|| self.commands.try_recv().ok())) {
            match command {
                Command::Watch { publish, .. } | Command::Resolve { publish, .. } => watches.push(publish),
                Command::Unwatch { .. }
                | Command::SubscribeCluster { .. }
                | Command::UnsubscribeCluster { .. }
                | Command::RequestReresolution { .. }
                | Command::Status { .. }
                | Command::LoadsChanged
                | Command::Shutdown => {}
            }
        }
        for watch in watches.iter().filter_map(Weak::upgrade) {
            watch.close().wake();
        }
    }
}

/// The maximum number of commands to process before events and deadlines are checked again.
const MAX_BATCH: usize = 256;
