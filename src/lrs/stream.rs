//! The stream of load reports to one server.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use bytes::Bytes;
use tracing::{debug, info, warn};

use super::{
    response::Order,
    server_loads::ServerLoads,
    settings::LoadSettings,
    silence::Silence,
    turn::{LastReport, Turn},
};
use crate::{
    backoff::Backoff,
    error::Code,
    escape::Escaped,
    protocol::{Disconnect, DisconnectKind, ServerId, StreamEvent, StreamId},
};

/// A command for the transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoadCommand {
    /// Open a stream.
    Connect { stream: StreamId },
    /// Write a request. No other follows until it is reported as sent.
    Send { stream: StreamId, message: Bytes },
    /// Read one more message.
    Read { stream: StreamId },
    /// No request follows: end the stream when all are written.
    Finish { stream: StreamId },
    /// Abort the stream.
    Disconnect { stream: StreamId },
}

/// The stream of load reports to one server.
///
/// ```text
///            a handle begins                  Connected
///   Closed ───────────────────▶ Connecting ──────────────▶ Open
///     ▲                          │    ▲                     │ Disconnected
///     │             Disconnected ▼    │ timeout             ▼
///     └───── no handle ───────── BackingOff ◀───────────────┘
/// ```
///
/// [`handle_event`](Self::handle_event), [`handle_timeout`](Self::handle_timeout), [`handle_change`](Self::handle_change) and
/// [`shut_down`](Self::shut_down) come from outside; after each, [`poll_command`](Self::poll_command) is called until `None`, and
/// [`poll_timeout`](Self::poll_timeout).
#[derive(Debug)]
pub(super) struct LoadStream {
    /// The stream in progress, or the last one. Events of other streams are outdated.
    id: StreamId,
    /// The first request, which has the node.
    first_request: Bytes,
    /// The settings of the client.
    settings: Arc<LoadSettings>,
    /// Draws the delays of the backoff; seeded, so that simulations repeat themselves.
    random: fastrand::Rng,
    /// Grows with each failed stream, and starts again after a response.
    backoff: Backoff,
    /// The state of the stream in progress.
    state: State,
    /// When the state was entered.
    since: Instant,
    /// Whether the server was reported to not serve load reports, and has not responded since (LR2.7). It is logged once.
    is_known_to_refuse: bool,
    /// The wait for the first response.
    silence: Silence,
    /// Whether the client shuts down: no other stream is opened.
    is_shut_down: bool,
    /// Commands for [`poll_command`](Self::poll_command), in order.
    commands: VecDeque<LoadCommand>,
    /// Counts over all streams to the server.
    history: History,
}

/// The state of the stream, as drawn above.
#[derive(Debug)]
enum State {
    /// There is no stream, and no wait for one.
    Closed,
    /// The stream is being opened.
    Connecting,
    /// Requests can be written.
    Open(Box<Open>),
    /// The next stream is opened at this time.
    BackingOff { until: Instant },
}

/// A stream on which requests can be written.
#[derive(Debug)]
struct Open {
    /// Whether the first request was written. No report is passed on before.
    is_greeted: bool,
    /// The response in force; `None` before the first one (LR2.5).
    order: Option<Arc<Order>>,
    /// What the stream is waiting for, or doing.
    phase: Phase,
    /// When a stream that is being finished is aborted, if it has not ended by itself; `None` while it is in use.
    farewell: Option<Instant>,
}

/// The phases of an open stream. `Waiting` and `Reporting` alternate.
#[derive(Debug)]
enum Phase {
    /// No response was received yet.
    Unasked,
    /// The next report is due at this time.
    Waiting { until: Instant },
    /// Reports are built and written.
    Reporting(Turn),
    /// The last report was written, and the stream is half closed.
    Finished,
}

/// Counts over all streams to the server.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct History {
    /// Requests with reports that the transport has accepted.
    pub(super) reports_sent: u64,
    /// The size of these requests in bytes.
    pub(super) report_bytes: u64,
    /// Ends of streams that were neither requested nor part of a shutdown.
    pub(super) failures: u64,
    /// The last of these requests.
    pub(super) last_report: Option<LastReport>,
}

/// The state of a stream, for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadStreamState {
    /// There is no stream: nothing is counted for the server.
    Closed,
    /// The stream is being opened.
    Connecting,
    /// The stream is open, and the server has not asked for reports.
    Unanswered,
    /// The stream is open, and reports are sent.
    Reporting,
    /// The stream ended; the next attempt waits.
    BackingOff,
}

impl LoadStream {
    pub(super) fn new(
        server: ServerId,
        first_request: Bytes,
        settings: Arc<LoadSettings>,
        seed: u64,
        now: Instant,
    ) -> Self {
        Self {
            id: StreamId { server, attempt: 0 },
            first_request,
            settings,
            random: fastrand::Rng::with_seed(seed),
            backoff: Backoff::default(),
            state: State::Closed,
            since: now,
            is_known_to_refuse: false,
            silence: Silence::default(),
            is_shut_down: false,
            commands: VecDeque::new(),
            history: History::default(),
        }
    }

    /// Handles that handles came or went, or that the configuration of a cluster changed.
    pub(super) fn handle_change(&mut self, loads: &mut ServerLoads, now: Instant) {
        match &mut self.state {
            State::Closed => {
                if loads.is_live() && !self.is_shut_down {
                    self.connect(now);
                }
            }
            // Handles may come back before the delay is over.
            State::BackingOff { .. } => {}
            State::Connecting => {
                if !loads.is_used() {
                    self.abort(now);
                }
            }
            State::Open(_) => self.finish_if_unused(loads, now),
        }
    }

    /// Handles an event of a stream. Those of earlier streams have no effect.
    pub(super) fn handle_event(&mut self, event: StreamEvent, loads: &mut ServerLoads, now: Instant) {
        if event.stream() != self.id {
            return;
        }
        match event {
            StreamEvent::Connected { .. } => self.on_connected(loads, now),
            StreamEvent::RequestSent { .. } => self.on_sent(loads, now),
            StreamEvent::Received { message, .. } => self.on_received(&message, loads, now),
            StreamEvent::Disconnected { reason, .. } => self.on_disconnected(&reason, loads, now),
            StreamEvent::Alive { .. }
            | StreamEvent::GoingAway { .. }
            | StreamEvent::Unchanged { .. }
            | StreamEvent::NotFound { .. }
            | StreamEvent::Failed { .. } => {}
        }
    }

    /// Handles the due timer.
    pub(super) fn handle_timeout(&mut self, loads: &mut ServerLoads, now: Instant) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        if self.silence.is_over(now) {
            let (server, state) = (&loads.server.uri, self.state());
            warn!(%server, ?state, "{UNANSWERED}");
        }
        match &mut self.state {
            State::Closed | State::Connecting => {}
            State::BackingOff { .. } => match loads.is_used() && !self.is_shut_down {
                true => self.connect(now),
                false => self.enter(State::Closed, now),
            },
            State::Open(open) => {
                if open.farewell.is_some_and(|at| at <= now) {
                    self.abort(now);
                    // A handle may have come back meanwhile.
                    return self.handle_change(loads, now);
                }
                if let Phase::Waiting { until } = open.phase
                    && until <= now
                {
                    open.begin_turn();
                }
                self.work(loads, now);
            }
        }
    }

    /// Sends a last report, if the server wants one, and ends the stream (LR6.8).
    pub(super) fn shut_down(&mut self, loads: &mut ServerLoads, now: Instant) {
        self.is_shut_down = true;
        match &self.state {
            State::Closed => {}
            State::Connecting | State::BackingOff { .. } => self.abort(now),
            State::Open(_) => self.finish(loads, now),
        }
    }

    /// Whether there is no stream.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Returns the next command; `None` until the next event.
    pub(super) fn poll_command(&mut self) -> Option<LoadCommand> {
        self.commands.pop_front()
    }

    /// The next time for [`handle_timeout`](Self::handle_timeout); in the past if there is work left.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Closed => None,
            State::Connecting => self.silence.until(),
            State::BackingOff { until } => Some(*until),
            State::Open(open) => {
                let phase = match &open.phase {
                    Phase::Waiting { until } => Some(*until),
                    // In the past: there is work left.
                    Phase::Reporting(turn) if turn.has_work() => Some(self.since),
                    Phase::Unasked | Phase::Reporting(_) | Phase::Finished => None,
                };
                [phase, open.farewell, self.silence.until()].into_iter().flatten().min()
            }
        }
    }

    /// Returns the state for operators.
    pub(super) fn state(&self) -> LoadStreamState {
        match &self.state {
            State::Closed => LoadStreamState::Closed,
            State::Connecting => LoadStreamState::Connecting,
            State::BackingOff { .. } => LoadStreamState::BackingOff,
            State::Open(open) if open.order.is_none() => LoadStreamState::Unanswered,
            State::Open(_) => LoadStreamState::Reporting,
        }
    }

    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// Returns the response in force.
    pub(super) fn order(&self) -> Option<&Order> {
        match &self.state {
            State::Open(open) => open.order.as_deref(),
            State::Closed | State::Connecting | State::BackingOff { .. } => None,
        }
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// Begins an attempt to open a stream.
    fn connect(&mut self, now: Instant) {
        self.id.attempt += 1;
        self.enter(State::Connecting, now);
        self.silence.begin(now);
        self.commands.push_back(LoadCommand::Connect { stream: self.id });
    }

    /// Ends the stream or the delay at once.
    fn abort(&mut self, now: Instant) {
        self.silence.end();
        if !matches!(self.state, State::BackingOff { .. }) {
            self.commands.push_back(LoadCommand::Disconnect { stream: self.id });
        }
        self.enter(State::Closed, now);
    }

    /// Sets the state and its begin.
    fn enter(&mut self, state: State, now: Instant) {
        (self.state, self.since) = (state, now);
    }

    /// Sends the first request on an open stream.
    fn on_connected(&mut self, loads: &mut ServerLoads, now: Instant) {
        let open = Open { is_greeted: false, order: None, phase: Phase::Unasked, farewell: None };
        self.enter(State::Open(Box::new(open)), now);
        let (stream, message) = (self.id, self.first_request.clone());
        self.commands.push_back(LoadCommand::Send { stream, message });
        self.commands.push_back(LoadCommand::Read { stream });
        self.finish_if_unused(loads, now);
    }

    /// Handles that the transport has accepted the request in flight.
    fn on_sent(&mut self, loads: &mut ServerLoads, now: Instant) {
        let State::Open(open) = &mut self.state else { return };
        if !open.is_greeted {
            open.is_greeted = true;
        } else if let Phase::Reporting(turn) = &mut open.phase
            && let Some(part) = turn.on_written()
        {
            loads.on_written(&part);
            self.history.reports_sent += 1;
            self.history.report_bytes += part.message.len() as u64;
            self.history.last_report = Some(turn.written(now));
        }
        self.work(loads, now);
    }

    /// Handles a response. One that cannot be decoded leaves the last one in force.
    fn on_received(&mut self, message: &[u8], loads: &ServerLoads, now: Instant) {
        let State::Open(open) = &mut self.state else { return };
        self.commands.push_back(LoadCommand::Read { stream: self.id });
        let server = &loads.server.uri;
        let order = match Order::decode(message, self.settings.min_interval) {
            Ok(order) => Arc::new(order),
            Err(error) => {
                return warn!(%server, error = %Escaped(&error), "response of load reporting ignored");
            }
        };
        // LR2.6: a server may accept streams and still not serve load reports, so only a response resets the backoff.
        self.backoff.reset();
        self.is_known_to_refuse = false;
        self.silence = Silence::default();
        let before = open.order.replace(order.clone());
        // Servers may repeat a response for each report; that must not postpone the next one.
        if before.as_ref() == Some(&order) {
            return;
        }
        info!(%server, interval = ?order.interval, clusters = ?order.wanted(), "load reports requested");
        match &mut open.phase {
            Phase::Unasked => open.phase = Phase::Waiting { until: now + order.interval },
            Phase::Waiting { until } => {
                if before.is_none_or(|before| before.interval != order.interval) {
                    *until = now + order.interval;
                }
            }
            // Its end begins an interval by the new response.
            Phase::Reporting(_) | Phase::Finished => {}
        }
    }

    /// The stream has ended. What was not written is covered by the first report of the next stream (LR6.3, LR6.7).
    fn on_disconnected(&mut self, reason: &Disconnect, loads: &mut ServerLoads, now: Instant) {
        self.silence.end();
        let was_finished = matches!(&self.state, State::Open(open) if open.farewell.is_some());
        let server = &loads.server.uri;
        if was_finished || self.is_shut_down {
            debug!(%server, "load reports ended");
            self.enter(State::Closed, now);
            return self.handle_change(loads, now);
        }
        self.history.failures += 1;
        let error = Escaped(&reason.message);
        match reason.kind == DisconnectKind::Failed(Code::Unimplemented) && !self.is_known_to_refuse {
            true => {
                self.is_known_to_refuse = true;
                warn!(%server, %error, "the server does not serve load reports, which its clusters ask for");
            }
            false => debug!(%server, kind = ?reason.kind, %error, "stream of load reports ended"),
        }
        let until = now + self.backoff.next(&mut self.random);
        self.enter(State::BackingOff { until }, now);
    }

    /// Begins the last report once no handle counts and no call runs.
    fn finish_if_unused(&mut self, loads: &mut ServerLoads, now: Instant) {
        let State::Open(open) = &self.state else { return };
        if open.farewell.is_none() && !loads.is_used() {
            self.finish(loads, now);
        }
    }

    /// Begins the last report of an open stream.
    fn finish(&mut self, loads: &mut ServerLoads, now: Instant) {
        let farewell = now + self.settings.farewell;
        let State::Open(open) = &mut self.state else { return };
        if open.farewell.is_some() {
            return;
        }
        if open.order.is_none() {
            // Nothing is waited for.
            return self.abort(now);
        }
        open.farewell = Some(farewell);
        if let Phase::Waiting { .. } = open.phase {
            open.begin_turn();
        }
        self.work(loads, now);
    }

    /// Builds one slice of the reports that are due, and passes on the next request.
    fn work(&mut self, loads: &mut ServerLoads, now: Instant) {
        let State::Open(open) = &mut self.state else { return };
        let Phase::Reporting(turn) = &mut open.phase else { return };
        if turn.has_work() {
            turn.build(loads, &self.settings, now);
        }
        if !open.is_greeted || turn.is_in_flight() {
            return;
        }
        if let Some(message) = turn.poll_request() {
            self.commands.push_back(LoadCommand::Send { stream: self.id, message });
        } else if turn.is_complete() {
            self.on_turn_ended(loads, now);
        }
    }

    /// Handles that all reports of a turn were written.
    fn on_turn_ended(&mut self, loads: &mut ServerLoads, now: Instant) {
        let State::Open(open) = &mut self.state else { return };
        let Some(order) = &open.order else { return };
        if open.farewell.is_none() {
            open.phase = Phase::Waiting { until: now + order.interval };
            return self.finish_if_unused(loads, now);
        }
        // What was counted since the turn began, if it began before the farewell.
        if !self.is_shut_down && loads.is_live() {
            // A handle has come back.
            open.farewell = None;
            open.phase = Phase::Waiting { until: now + order.interval };
            return;
        }
        open.phase = Phase::Finished;
        self.commands.push_back(LoadCommand::Finish { stream: self.id });
    }
}

impl Open {
    /// Begins to build the reports of an interval.
    fn begin_turn(&mut self) {
        if let Some(order) = self.order.clone() {
            self.phase = Phase::Reporting(Turn::new(order));
        }
    }
}

/// The warning about a server that does not respond to the stream of load reports.
const UNANSWERED: &str = "no response on the stream of load reports, which the server's clusters ask for: does it permit two streams for a \
    connection (SETTINGS_MAX_CONCURRENT_STREAMS), and serve load reports?";
