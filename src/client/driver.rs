//! The task that owns the engine, and all I/O that it orders.
//!
//! It waits in one place, `Driver::next_work`. Whatever could take long is another task, which reports by a channel: a server
//! that never answers, a resolver that hangs and an application that never reads delay nothing.

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
    recording::{Recorders, Recording},
    unapplied::UnappliedReports,
};
use crate::{
    base::ByWatch,
    capacity::Shrink,
    engine::{Engine, Input, Output, ResolutionChange},
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
    /// The client without I/O. It is drained after each call (`carry_out`), as its contract requires.
    engine: Engine,
    /// Connections are begun here, and made in tasks of their own.
    transports: Transports,
    /// Commands of handles and watches. It ends with the last of them, since the driver has a weak sender alone.
    commands: UnboundedReceiver<Command>,
    /// Commands that were received and not handled yet, the last one first. A field, so that the watches in them are closed if
    /// the driver is dropped in between.
    batch: Vec<Command>,
    /// Events of streams and lookups.
    events: UnboundedReceiver<Input>,
    /// Cloned for the transport and for lookups. It contains few events: a stream reads one message per order to
    /// read, and a lookup ends once.
    reports: UnboundedSender<Input>,
    /// The slots to publish to. References are weak: a watch lives as long as its watchers, and ends by a command when the last
    /// of them is dropped.
    watches: ByWatch<Weak<dyn Publish>>,
    /// The connections of the streams that the engine considers open. Dropping one closes it.
    connections: HashMap<StreamId, Box<dyn Connection>>,
    /// The waits for the latest resources of resolutions. Few, and none in most programs.
    unapplied: UnappliedReports,
    /// The DNS lookups in progress.
    lookups: Lookups,
    /// The load reports, which share the connections.
    loads: LoadDriver,
    /// Where metrics are recorded.
    recording: Recording,
}

/// The work after a wait.
///
/// Deadlines of the engine and of load reports are told apart, since each handles its own alone.
#[derive(Debug)]
enum Work {
    /// A batch of commands is in `batch`.
    Commands,
    /// An event of a stream of resources, or of a lookup.
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
    /// A driver of which nothing has run yet. Its future is [`run`](Self::run).
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
            unapplied: UnappliedReports::default(),
            lookups,
            loads,
            recording: Recorders::default().begin(""),
        }
    }

    /// Records the metrics.
    pub(super) fn with_recording(mut self, recording: Recording) -> Self {
        self.recording = recording;
        self
    }

    /// Runs until the last handle and watch is gone, or the client is shut down. Dropping the future closes all watches at
    /// once, without last load reports.
    pub(super) async fn run(mut self) {
        let mut sleep = pin!(time::sleep_until(time::Instant::now()));
        self.carry_out();
        loop {
            match self.next_work(sleep.as_mut()).await {
                Work::Commands => {
                    // The commands that follow a shutdown stay in the batch, where `drop` finds the watches that it has to
                    // close.
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
    ///
    /// Cancel-safe in all branches: `select!` drops the futures of those that are not taken, and none of them has taken
    /// anything.
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
            // Most events leave the next deadline as it is, and a reset is an operation on the runtime's timer wheel.
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
            Command::Batches { watch_id, selected, publish } => {
                self.watches.insert(watch_id, publish);
                self.engine.subscribe_batches(watch_id, *selected, now());
            }
            Command::ChangeBatches { watch_id, names, is_subscribed } => match is_subscribed {
                true => self.engine.subscribe_consumer(watch_id, names, now()),
                false => self.engine.unsubscribe_consumer(watch_id, &names, now()),
            },
            Command::AnswerBatch { watch_id, answer, reply } => {
                let outcome = self.engine.answer_batch(watch_id, answer, now());
                if let Some(reply) = reply {
                    // Mostly nobody waits for it.
                    let _ = reply.send(outcome);
                }
            }
            Command::SubscribeCluster { watch_id, name } => {
                self.engine.change_resolution(watch_id, ResolutionChange::Subscribe(&name), now())
            }
            Command::UnsubscribeCluster { watch_id, name } => {
                self.engine.change_resolution(watch_id, ResolutionChange::Unsubscribe(&name), now())
            }
            Command::RequestReresolution { watch_id } => {
                self.engine.change_resolution(watch_id, ResolutionChange::LookUpAgain, now())
            }
            // The report follows in `carry_out`.
            Command::ReportUnapplied { watch_id, reports } => self.unapplied.add(watch_id, reports),
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
            // Its events were in the queue when the engine cancelled the stream. The engine does not know the stream any more.
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
    ///
    /// Called after each call of the engine. Load reports come last, since their connections depend on those that were made or
    /// lost here.
    fn carry_out(&mut self) {
        // Metrics are updated before watches see the effects.
        self.recording.record(&mut self.engine);
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
                    // The last watcher may be gone, with the command of its end still in the queue.
                    if let Some(watch) = self.watches.get(&watch_id).and_then(Weak::upgrade) {
                        watch.publish(observed).wake();
                    }
                }
            }
        }
        self.recording.record_applied(now());
        // After the watches, which are up to date for those who wait.
        self.unapplied.report(|watch_id| self.engine.unapplied(watch_id));
        let (loads, network) = self.loads();
        loads.carry_out(network);
        self.record_load_reports();
    }

    /// Records the streams of load reports.
    fn record_load_reports(&mut self) {
        self.loads.record(&mut self.recording);
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
        self.unapplied = UnappliedReports::default();
        let watches: Vec<_> = self.watches.drain().map(|(_, watch)| watch).collect();
        for watch in watches.iter().filter_map(Weak::upgrade) {
            watch.close().wake();
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
        // From now on, new watches see that the driver has ended, and close themselves. Those that were faster are in the
        // queue.
        self.commands.close();
        self.close_watches();
        let mut watches = Vec::new();
        let received = std::mem::take(&mut self.batch).into_iter();
        for command in received.chain(std::iter::from_fn(|| self.commands.try_recv().ok())) {
            match command {
                Command::Watch { publish, .. }
                | Command::Resolve { publish, .. }
                | Command::Batches { publish, .. } => watches.push(publish),
                Command::Unwatch { .. }
                | Command::ChangeBatches { .. }
                | Command::AnswerBatch { .. }
                | Command::SubscribeCluster { .. }
                | Command::UnsubscribeCluster { .. }
                | Command::RequestReresolution { .. }
                | Command::ReportUnapplied { .. }
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

/// The maximum number of commands to process before events and deadlines are checked again. A batch is handled without an
/// `await`, so that this bounds how long a response waits behind an application that begins thousands of watches.
const MAX_BATCH: usize = 256;
