//! The network between an engine and its servers: one virtual clock, delays, and faults.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tracing::{debug, trace};

use super::{
    claims::Claims,
    family::{Family, Rule},
    keys::{AUTHORITIES, ResourceId},
    script::{Fault, ServerMode},
    server::{SentResponse, SimServer, text_of},
    session::Response,
    setup::{CLEAN_END, DELAY, FLAPPING, HANGING, KEEPALIVE, LATE, NetworkConditions, SLOW, Setup},
    stream_rules::{Answered, Due},
};
use crate::{
    base::WatchId,
    config::Server,
    engine::{Engine, Output, Timer},
    error::Code,
    protocol::{ConnectTarget, Disconnect, DisconnectKind, ServerId, StreamCommand, StreamEvent, StreamId},
    resolve::LookupId,
    resource::Erased,
};

#[cfg(test)]
mod plans;

/// Both sides, and all that is between them.
///
/// After each change, [`poll`](Self::poll) returns the events that concern the world, and lets time pass.
pub(super) struct Network<E = Infallible> {
    pub(super) random: fastrand::Rng,
    pub(super) engine: Engine,
    pub(super) now: Instant,
    pub(super) servers: Vec<SimServer>,
    /// The servers of each authority, by their places among the servers.
    pub(super) lists: Vec<Vec<usize>>,
    /// Whether streams and requests are lost or late.
    pub(super) faulty: bool,
    conditions: NetworkConditions,
    family: Family,
    claims: Claims,
    ids: BTreeMap<ServerId, usize>,
    /// What is yet to happen, by time and order.
    future: BTreeMap<(Instant, u64), Scheduled<E>>,
    scheduled: u64,
    events: VecDeque<NetworkEvent<E>>,
    settled: bool,
    /// How much has happened since time last began to pass.
    steps: u32,
    began: Instant,
}

/// An event that concerns the world.
pub(super) enum NetworkEvent<E = Infallible> {
    Published(WatchId, Erased),
    /// A host is to be looked up.
    #[cfg_attr(not(test), expect(dead_code, reason = "scripts resolve no targets"))]
    Lookup(LookupId, String),
    /// A response came from a server.
    Delivered(usize, Response, Due),
    /// A server has received the ACK or NACK of a response.
    Answered(Answered),
    /// What the world had planned.
    Due(E),
    /// Everything that was due is done.
    Settled,
}

enum Scheduled<E> {
    Connected(StreamId),
    Ended(StreamId, Disconnect),
    /// The transport takes the request; it arrives at once, or is lost with the stream.
    Sent(StreamId, Bytes),
    Delivered(StreamId, SentResponse),
    /// A timeout of a server.
    Time(usize),
    /// What the world had planned.
    #[cfg_attr(not(test), expect(dead_code, reason = "scripts have their own order"))]
    Due(E),
}

impl<E> Network<E> {
    pub(super) fn new(setup: Setup) -> Self {
        let Setup { seed, family, conditions, bootstrap, settings, servers, lists } = setup;
        let now = Instant::now();
        let servers = servers.into_iter().map(|(behavior, it)| SimServer::new(Arc::new(it), behavior));
        Self {
            random: fastrand::Rng::with_seed(seed),
            engine: Engine::new(Arc::new(bootstrap), settings, seed),
            now,
            servers: servers.collect(),
            lists,
            faulty: true,
            conditions,
            family,
            claims: Claims::default(),
            ids: BTreeMap::new(),
            future: BTreeMap::new(),
            scheduled: 0,
            events: VecDeque::new(),
            settled: false,
            steps: 0,
            began: now,
        }
    }

    /// How much time has passed, for logs.
    pub(super) fn at(&self) -> Duration {
        self.now - self.began
    }

    /// The servers of an authority down to the active one; none if it never had subscriptions.
    pub(super) fn open(&self, authority: usize) -> &[usize] {
        let list = &self.lists[authority];
        let group = self.engine.authorities.groups().of(AUTHORITIES[authority]);
        &list[..group.map_or(0, |group| group.open.len())]
    }

    /// The active server of an authority.
    pub(super) fn active(&self, authority: usize) -> Option<usize> {
        self.open(authority).last().copied()
    }

    /// Whether the engine has an error of the active server of an authority.
    pub(super) fn has_server_error(&self, authority: usize) -> bool {
        let group = self.engine.authorities.groups().of(AUTHORITIES[authority]);
        group.is_some_and(|group| self.engine.authorities.server(group.active()).failure.is_some())
    }

    /// Since when a resource is requested from a server on its stream.
    pub(super) fn requested(&self, server: usize, key: &ResourceId) -> Option<Instant> {
        self.servers[server].open.as_ref()?.rules.requested(key.ty, &key.name)
    }

    /// Whether the server has read a request for a resource, and none without it since.
    pub(super) fn requests(&self, server: usize, key: &ResourceId) -> bool {
        self.servers[server].open.as_ref().is_some_and(|open| open.rules.requests(key.ty, &key.name))
    }

    /// Whether a server that sends everything, though that is not requested, may have sent a resource before it received a request for it: then its next response may be without it again.
    pub(super) fn was_unsolicited(&self, server: usize, key: &ResourceId) -> bool {
        let behavior = &self.servers[server].settings.behavior;
        let may =
            behavior.empty_list_is_wildcard || behavior.keeps_wildcard || behavior.unsolicited_resources;
        may && !self.requests(server, key)
    }

    /// Changes the mode of a server.
    pub(super) fn set_mode(&mut self, server: usize, mode: ServerMode) {
        debug!(at = ?self.at(), server, ?mode, "mode");
        self.servers[server].mode = mode;
        match mode {
            ServerMode::Refusing => self.cut(server),
            ServerMode::HalfOpen => {
                if let Some(open) = &mut self.servers[server].open {
                    open.is_unresponsive = true;
                    let stream = open.stream;
                    self.end_later(KEEPALIVE, stream, DisconnectKind::Failed(Code::Unavailable));
                }
            }
            ServerMode::Flapping => self.flap(server),
            ServerMode::Normal
            | ServerMode::Hanging
            | ServerMode::Silent
            | ServerMode::SilentFor(_)
            | ServerMode::Slow => {}
        }
        self.serve(server);
    }

    /// Ends a stream.
    pub(super) fn cut(&mut self, server: usize) {
        let Some(open) = &self.servers[server].open else { return };
        let kinds = [DisconnectKind::Closed, DisconnectKind::Failed(Code::Unavailable)];
        let reason = Disconnect::new(kinds[self.random.usize(0..2)], "cut");
        self.run_scheduled(Scheduled::Ended(open.stream, reason));
    }

    pub(super) fn inject_fault(&mut self, server: usize, fault: Fault) {
        debug!(at = ?self.at(), server, ?fault, "fault");
        self.servers[server].inject_fault(fault, &mut self.random);
        self.deliver(server);
    }

    /// Sends the responses of a server that are due; to be called when its store has changed.
    pub(super) fn serve(&mut self, server: usize) {
        let next = self.servers[server].serve(self.now);
        // One event for each time, however often the server is served.
        let planned = &mut self.servers[server].next_timeout;
        // The number of events would otherwise grow with each response of a session with heartbeats.
        let is_planned = planned.is_some_and(|at| at > self.now && next.is_none_or(|next| at <= next));
        if let Some(next) = next.filter(|next| *next > self.now && !is_planned) {
            *planned = Some(next);
            self.schedule(next - self.now, Scheduled::Time(server));
        }
        self.deliver(server);
    }

    /// The next event; `None` when nothing more happens until some time, which it then is.
    pub(super) fn poll(&mut self, until: Instant) -> Option<NetworkEvent<E>> {
        loop {
            self.drain_outputs();
            if let Some(event) = self.events.pop_front() {
                self.settled = false;
                return Some(event);
            }
            let next = self.future.first_key_value().map(|((at, _), _)| *at).filter(|at| *at <= until);
            let timeout = self.engine.poll_timeout();
            if let Some((_, Timer::Work)) = timeout {
                // Other things may happen between the slices of a response.
                if next != Some(self.now) || self.random.bool() {
                    self.engine.handle_timeout(self.now);
                    continue;
                }
            } else if !std::mem::replace(&mut self.settled, true) {
                return Some(NetworkEvent::Settled);
            }
            let timeout = timeout.map(|(at, _)| at.max(self.now));
            let Some(at) = next.into_iter().chain(timeout).min().filter(|at| *at <= until) else {
                (self.now, self.steps, self.settled) = (until, 0, false);
                return None;
            };
            self.steps += 1;
            // A loop of events at one time would never let the virtual clock go on.
            assert!(self.steps < 20_000, "the events do not end");
            (self.now, self.settled) = (at, false);
            if next == Some(at) {
                let scheduled = self.future.pop_first().map(|(_, scheduled)| scheduled);
                scheduled.into_iter().for_each(|scheduled| self.run_scheduled(scheduled));
            } else {
                self.engine.handle_timeout(at);
            }
        }
    }

    fn run_scheduled(&mut self, scheduled: Scheduled<E>) {
        match scheduled {
            Scheduled::Connected(stream) => self.on_connected(stream),
            Scheduled::Ended(stream, reason) => self.on_ended(stream, reason),
            Scheduled::Sent(stream, request) => self.on_sent(stream, &request),
            Scheduled::Delivered(stream, sent) => self.on_delivered(stream, sent),
            Scheduled::Time(server) => self.serve(server),
            Scheduled::Due(event) => self.events.push_back(NetworkEvent::Due(event)),
        }
        self.drain_outputs();
    }

    fn on_connected(&mut self, stream: StreamId) {
        let id = self.ids[&stream.server];
        let server = &mut self.servers[id];
        if server.attempt != Some(stream) {
            return self.engine.handle_input(StreamEvent::Connected { stream }, self.now);
        }
        match server.mode {
            ServerMode::Refusing => {
                let reason = Disconnect::new(DisconnectKind::Unreachable, "refused");
                return self.on_ended(stream, reason);
            }
            ServerMode::Flapping
            | ServerMode::Normal
            | ServerMode::Hanging
            | ServerMode::Silent
            | ServerMode::SilentFor(_)
            | ServerMode::Slow => {}
            ServerMode::HalfOpen => {
                self.end_later(KEEPALIVE, stream, DisconnectKind::Failed(Code::Unavailable))
            }
        }
        self.servers[id].on_connected(stream, self.now);
        if self.faulty && self.servers[id].ends_cleanly {
            let delay = self.up_to(CLEAN_END);
            self.end_later(delay, stream, DisconnectKind::Closed);
        }
        if self.servers[id].mode == ServerMode::Flapping {
            self.flap(id);
        }
        if self.servers[id].mode != ServerMode::HalfOpen {
            self.engine.handle_input(StreamEvent::Alive { stream }, self.now);
        }
        self.engine.handle_input(StreamEvent::Connected { stream }, self.now);
    }

    fn on_ended(&mut self, stream: StreamId, reason: Disconnect) {
        let server = &mut self.servers[self.ids[&stream.server]];
        if server.is_current(stream) {
            let is_over_limit = matches!(reason.kind, DisconnectKind::TooLarge { .. });
            server.failing |= is_over_limit || !server.open.as_ref().is_some_and(|open| open.answered);
            server.on_ended(is_over_limit, self.now);
            server.close();
        }
        trace!(at = ?self.now - self.began, %stream, reason.message, "ended");
        // The end of an earlier stream may be reported late; the engine ignores it.
        self.engine.handle_input(StreamEvent::Disconnected { stream, reason }, self.now);
    }

    fn on_sent(&mut self, stream: StreamId, request: &Bytes) {
        let id = self.ids[&stream.server];
        let at = self.at();
        let Some(open) = self.servers[id].open.as_mut().filter(|open| open.stream == stream) else { return };
        let request = open.session.read_request(request.clone());
        let (type_url, names, nonce) = (request.type_url(), request.names(), request.nonce());
        trace!(?at, %stream, type_url, ?names, nonce, "requested");
        let answered = open.rules.on_request(&request, &self.family, self.now);
        self.events.extend(answered.map(NetworkEvent::Answered));
        let is_refused = !open.is_unresponsive && open.session.handle_request(request).is_err();
        if is_refused {
            // Nothing comes from now on but what is under way.
            open.is_unresponsive = true;
            self.end_later(DELAY, stream, DisconnectKind::Failed(Code::Unimplemented));
        }
        // A57-7: the transport has accepted the request, whatever the server makes of it.
        self.engine.handle_input(StreamEvent::RequestSent { stream }, self.now);
        self.serve(id);
    }

    fn on_delivered(&mut self, stream: StreamId, SentResponse { bytes, due, is_repeated, .. }: SentResponse) {
        let id = self.ids[&stream.server];
        let at = self.at();
        let server = &mut self.servers[id];
        if let Some(open) = server.open.as_mut().filter(|open| open.stream == stream)
            && let Some(response) = open.session.read_response(&bytes)
        {
            trace!(?at, %stream, ?response, "delivered");
            if let Some(subscribed) = open.rules.on_response(&response, due, is_repeated) {
                self.claims.on_response(id, (&response, due), subscribed);
                open.requests.on_response(&response, due, subscribed);
            }
            let is_first = !std::mem::replace(&mut open.answered, true);
            server.failing = false;
            if is_first && server.ends_over_limit && self.faulty {
                self.end_later(DELAY, stream, DisconnectKind::TooLarge { limit: 1 });
            }
            self.events.push_back(NetworkEvent::Delivered(id, response, due));
        }
        // What was on its way when a stream was given up may still come.
        self.engine.handle_input(StreamEvent::Received { stream, message: bytes.into(), at: None }, self.now);
    }

    /// Brings what a server sent to the client, as far as it reads.
    fn deliver(&mut self, server: usize) {
        let slow = self.servers[server].mode == ServerMode::Slow;
        let Some(open) = &mut self.servers[server].open else { return };
        let stream = open.stream;
        open.unread.iter_mut().for_each(|sent| sent.at = sent.at.or(Some(self.now)));
        let mut under_way = Vec::new();
        while open.credit > 0 && !open.is_unresponsive {
            let Some(sent) = open.unread.pop_front() else { break };
            open.credit -= 1;
            under_way.push(sent);
        }
        for sent in under_way {
            // It was under way already while the client did not read.
            let age = sent.at.map_or(Duration::ZERO, |at| self.now - at);
            let delay = self.up_to(if slow { SLOW } else { self.conditions.delay }).saturating_sub(age);
            self.schedule(delay, Scheduled::Delivered(stream, sent));
        }
    }

    /// Executes the engine's outputs.
    fn drain_outputs(&mut self) {
        while let Some(output) = self.engine.poll_output() {
            match output {
                Output::Notify { watch_id, observed } => {
                    self.events.push_back(NetworkEvent::Published(watch_id, observed))
                }
                Output::Lookup { lookup, host } => {
                    self.events.push_back(NetworkEvent::Lookup(lookup, host.to_string()));
                }
                Output::Transport(StreamCommand::Connect {
                    stream,
                    to: ConnectTarget::Server { server, .. },
                    ..
                }) => self.connect(stream, &server),
                Output::Transport(StreamCommand::Connect { to: ConnectTarget::File { .. }, .. }) => {
                    unreachable!("there are servers alone")
                }
                Output::Transport(StreamCommand::Send { stream, message }) => {
                    self.on_send(stream, &message);
                    let unnotified = self.faulty && self.random.u32(0..100) < self.conditions.late_requests;
                    let delay = self.up_to(if unnotified { LATE } else { self.conditions.delay });
                    self.schedule(delay, Scheduled::Sent(stream, message));
                }
                Output::Transport(StreamCommand::Read { stream }) => {
                    let id = self.ids[&stream.server];
                    if let Some(open) = self.servers[id].open.as_mut().filter(|open| open.stream == stream) {
                        open.credit += 1;
                    }
                    self.deliver(id);
                }
                Output::Transport(StreamCommand::Disconnect { stream }) => {
                    let server = &mut self.servers[self.ids[&stream.server]];
                    assert!(server.is_current(stream), "{stream} is over");
                    trace!(at = ?self.now - self.began, %stream, "given up");
                    server.failing |= server.open.as_ref().is_some_and(|open| open.is_unread_since(self.now));
                    server.close();
                    self.end_later(DELAY, stream, DisconnectKind::Closed);
                }
            }
        }
    }

    fn on_send(&mut self, stream: StreamId, message: &Bytes) {
        let id = self.ids[&stream.server];
        let open = self.servers[id].open.as_mut().filter(|open| open.stream == stream);
        let open = open.expect("requests are written on streams that are open");
        open.rules.on_send();
        let request = open.session.read_request(message.clone());
        let is_first = !open.rules.is_requested(request.type_url());
        let held = self.held_of(id, request.type_url());
        if self.family.has_rule(Rule::Claims) && is_first {
            self.claims.check(id, &request, &held);
        }
        let open = self.servers[id].open.as_mut().filter(|_| self.family.has_rule(Rule::Requests));
        open.into_iter().for_each(|open| open.requests.on_request(&request, &held));
    }

    /// The names of the resources that are held and came from a server, also those that were let go and the server is yet to be
    /// notified of. Where there are several servers, texts begin with their server.
    fn held_of(&mut self, server: usize, type_url: &str) -> BTreeSet<String> {
        let prefix = format!("s{server} ");
        let (store, is_only) = (&self.engine.store, self.servers.len() == 1);
        let entries = store.iter().map(|(_, entry)| entry);
        let of_type = entries.filter(|entry| store.type_url(entry.ty) == type_url && entry.is_held());
        let of_peer = of_type
            .filter(|entry| is_only || entry.raw().is_some_and(|raw| text_of(raw).starts_with(&prefix)));
        of_peer.map(|entry| entry.name.to_string()).collect()
    }

    /// The rules of each stream on which nothing waits for the transport.
    pub(super) fn check_answers(&self) {
        let is_due = self.engine.poll_timeout().is_some_and(|(at, _)| at <= self.now);
        if is_due || !self.family.has_rule(Rule::AnswerAtOnce) {
            return;
        }
        for open in self.servers.iter().filter_map(|server| server.open.as_ref()) {
            open.rules.check_answered_at_once();
        }
    }

    fn connect(&mut self, stream: StreamId, server: &Arc<Server>) {
        let id =
            self.servers.iter().position(|other| other.config == *server).expect("it is in the bootstrap");
        let known = self.ids.insert(stream.server, id);
        assert!(known.is_none_or(|known| known == id), "a server's number is its own");
        assert_eq!(self.ids.values().filter(|other| **other == id).count(), 1, "one stream to a server");
        let server = &mut self.servers[id];
        assert!(server.attempt.is_none() && server.open.is_none(), "one stream to a server");
        server.attempt = Some(stream);
        let (mode, accepts) = (server.mode, server.mode != ServerMode::Refusing && !server.is_closed);
        trace!(at = ?self.now - self.began, %stream, server = id, "connect");
        if mode == ServerMode::Hanging {
            self.end_later(HANGING, stream, DisconnectKind::Unreachable);
        } else if !accepts || (self.faulty && self.random.u32(0..100) < self.conditions.refusals) {
            let delay = self.connection_delay();
            self.end_later(delay, stream, DisconnectKind::Unreachable);
        } else {
            let delay = self.connection_delay();
            self.schedule(delay, Scheduled::Connected(stream));
        }
    }

    fn connection_delay(&mut self) -> Duration {
        let late = self.conditions.late_connections;
        let is_late = self.faulty && late > 0 && self.random.u32(0..100) < late;
        self.up_to(if is_late { LATE } else { self.conditions.delay })
    }

    fn flap(&mut self, server: usize) {
        if let Some(open) = &self.servers[server].open {
            let stream = open.stream;
            let delay = self.up_to(FLAPPING);
            self.end_later(delay, stream, DisconnectKind::Closed);
        }
    }

    fn end_later(&mut self, delay: Duration, stream: StreamId, kind: DisconnectKind) {
        self.schedule(delay, Scheduled::Ended(stream, Disconnect::new(kind, "it broke")));
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_micros(self.random.u64(0..=longest.as_micros() as u64))
    }

    fn schedule(&mut self, delay: Duration, scheduled: Scheduled<E>) {
        self.scheduled += 1;
        self.future.insert((self.now + delay, self.scheduled), scheduled);
    }
}
