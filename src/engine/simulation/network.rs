//! What lies between an engine and its servers: one virtual clock, delays, and faults.

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
    dialogue::{Answered, Due},
    family::{Family, Rule},
    keys::{AUTHORITIES, Key},
    peer::{Peer, SentResponse, text_of},
    script::{Lie, Mood},
    setup::{DELAY, LATE, SLOW, Setup, Weather},
    talk::Response,
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
/// After each change, [`poll`](Self::poll) says what the world around must know of, and lets time pass.
pub(super) struct Network<E = Infallible> {
    pub(super) random: fastrand::Rng,
    pub(super) engine: Engine,
    pub(super) now: Instant,
    pub(super) peers: Vec<Peer>,
    /// The servers of each authority, by their places among the peers.
    pub(super) lists: Vec<Vec<usize>>,
    /// Streams and requests get lost and late.
    pub(super) foul: bool,
    weather: Weather,
    family: Family,
    claims: Claims,
    ids: BTreeMap<ServerId, usize>,
    /// What is yet to happen, by time and order.
    future: BTreeMap<(Instant, u64), Happening<E>>,
    happenings: u64,
    events: VecDeque<NetworkEvent<E>>,
    settled: bool,
    /// How much has happened since time last began to pass.
    steps: u32,
    began: Instant,
}

/// What the world around must know of.
pub(super) enum NetworkEvent<E = Infallible> {
    Published(WatchId, Erased),
    /// A host is to be looked up.
    #[cfg_attr(not(test), expect(dead_code, reason = "scripts resolve no targets"))]
    Lookup(LookupId, String),
    /// A response came from a server.
    Delivered(usize, Response, Due),
    /// A server was told what becomes of a response.
    Answered(Answered),
    /// What the world had planned.
    Due(E),
    /// Everything that was due is done.
    Settled,
}

enum Happening<E> {
    Connected(StreamId),
    Ended(StreamId, Disconnect),
    /// The transport takes the request; it arrives at once, or is lost with the stream.
    Sent(StreamId, Bytes),
    Delivered(StreamId, SentResponse),
    /// A server looks at the clock.
    Time(usize),
    /// What the world had planned.
    #[cfg_attr(not(test), expect(dead_code, reason = "scripts have their own order"))]
    Due(E),
}

impl<E> Network<E> {
    pub(super) fn new(setup: Setup) -> Self {
        let Setup { seed, family, weather, bootstrap, settings, servers, lists } = setup;
        let now = Instant::now();
        let peers = servers.into_iter().map(|(manner, server)| Peer::new(Arc::new(server), manner));
        Self {
            random: fastrand::Rng::with_seed(seed),
            engine: Engine::new(Arc::new(bootstrap), settings, seed),
            now,
            peers: peers.collect(),
            lists,
            foul: true,
            weather,
            family,
            claims: Claims::default(),
            ids: BTreeMap::new(),
            future: BTreeMap::new(),
            happenings: 0,
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

    /// The servers of an authority down to the one whose answers count; none if it was never asked for anything.
    pub(super) fn open(&self, authority: usize) -> &[usize] {
        let list = &self.lists[authority];
        let group = self.engine.authorities.groups().of(AUTHORITIES[authority]);
        &list[..group.map_or(0, |group| group.open.len())]
    }

    /// The server whose answers count for an authority.
    pub(super) fn active(&self, authority: usize) -> Option<usize> {
        self.open(authority).last().copied()
    }

    /// Whether the engine knows of trouble with the server whose answers count for an authority.
    pub(super) fn has_server_error(&self, authority: usize) -> bool {
        let group = self.engine.authorities.groups().of(AUTHORITIES[authority]);
        group.is_some_and(|group| self.engine.authorities.server(group.active()).failure.is_some())
    }

    /// Since when a server is asked for a resource on its stream.
    pub(super) fn requested(&self, peer: usize, key: &Key) -> Option<Instant> {
        self.peers[peer].open.as_ref()?.dialogue.requested(key.ty, &key.name)
    }

    /// Whether the server has read a request for a resource, and none without it since.
    pub(super) fn requests(&self, peer: usize, key: &Key) -> bool {
        let open = self.peers[peer].open.as_ref();
        open.is_some_and(|open| open.dialogue.requests(key.ty, &key.name))
    }

    /// Whether a server that sends everything, though that is not requested, may have sent a resource before it knew that it
    /// is: then its next response may be without it again.
    pub(super) fn came_unasked(&self, peer: usize, key: &Key) -> bool {
        let behavior = &self.peers[peer].settings.behavior;
        let may =
            behavior.empty_list_is_wildcard || behavior.keeps_wildcard || behavior.unsolicited_resources;
        may && !self.requests(peer, key)
    }

    /// A server behaves otherwise from now on.
    pub(super) fn set_mood(&mut self, peer: usize, mood: Mood) {
        debug!(at = ?self.at(), peer, ?mood, "mood");
        self.peers[peer].mood = mood;
        match mood {
            Mood::Refusing => self.cut(peer),
            Mood::HalfOpen => {
                if let Some(open) = &mut self.peers[peer].open {
                    open.deaf = true;
                    let stream = open.stream;
                    self.end_later(KEEPALIVE, stream, DisconnectKind::Failed(Code::Unavailable));
                }
            }
            Mood::Flapping => self.flap(peer),
            Mood::Fine | Mood::Hanging | Mood::Silent | Mood::Mute(_) | Mood::Slow => {}
        }
        self.serve(peer);
    }

    /// Ends a stream.
    pub(super) fn cut(&mut self, peer: usize) {
        let Some(open) = &self.peers[peer].open else { return };
        let kinds = [DisconnectKind::Closed, DisconnectKind::Failed(Code::Unavailable)];
        let reason = Disconnect::new(kinds[self.random.usize(0..2)], "cut");
        self.happen(Happening::Ended(open.stream, reason));
    }

    pub(super) fn lie(&mut self, peer: usize, lie: Lie) {
        debug!(at = ?self.at(), peer, ?lie, "lie");
        self.peers[peer].lie(lie, &mut self.random);
        self.deliver(peer);
    }

    /// A server says what it has to say; to be called when its store has changed.
    pub(super) fn serve(&mut self, peer: usize) {
        let next = self.peers[peer].serve(self.now);
        // One event for each time, however often the server is asked.
        let planned = &mut self.peers[peer].looks_at;
        let is_planned = planned.is_some_and(|at| at > self.now && next.is_none_or(|next| at <= next));
        if let Some(next) = next.filter(|next| *next > self.now && !is_planned) {
            *planned = Some(next);
            self.later(next - self.now, Happening::Time(peer));
        }
        self.deliver(peer);
    }

    /// What is to be known next; `None` when nothing more happens until some time, which it then is.
    pub(super) fn poll(&mut self, until: Instant) -> Option<NetworkEvent<E>> {
        loop {
            self.obey();
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
            assert!(self.steps < 20_000, "something goes round in circles");
            (self.now, self.settled) = (at, false);
            if next == Some(at) {
                let happening = self.future.pop_first().map(|(_, happening)| happening);
                happening.into_iter().for_each(|happening| self.happen(happening));
            } else {
                self.engine.handle_timeout(at);
            }
        }
    }

    fn happen(&mut self, happening: Happening<E>) {
        match happening {
            Happening::Connected(stream) => self.on_connected(stream),
            Happening::Ended(stream, reason) => self.on_ended(stream, reason),
            Happening::Sent(stream, request) => self.on_sent(stream, &request),
            Happening::Delivered(stream, sent) => self.on_delivered(stream, sent),
            Happening::Time(peer) => self.serve(peer),
            Happening::Due(event) => self.events.push_back(NetworkEvent::Due(event)),
        }
        self.obey();
    }

    fn on_connected(&mut self, stream: StreamId) {
        let id = self.ids[&stream.server];
        let peer = &mut self.peers[id];
        if peer.attempt != Some(stream) {
            return self.engine.handle_input(StreamEvent::Connected { stream }, self.now);
        }
        match peer.mood {
            Mood::Refusing => {
                let reason = Disconnect::new(DisconnectKind::Unreachable, "refused");
                return self.on_ended(stream, reason);
            }
            Mood::Flapping | Mood::Fine | Mood::Hanging | Mood::Silent | Mood::Mute(_) | Mood::Slow => {}
            Mood::HalfOpen => self.end_later(KEEPALIVE, stream, DisconnectKind::Failed(Code::Unavailable)),
        }
        self.peers[id].on_connected(stream, self.now);
        if self.foul && self.peers[id].ends_cleanly {
            let delay = self.up_to(CLEAN_END);
            self.end_later(delay, stream, DisconnectKind::Closed);
        }
        if self.peers[id].mood == Mood::Flapping {
            self.flap(id);
        }
        if self.peers[id].mood != Mood::HalfOpen {
            self.engine.handle_input(StreamEvent::Alive { stream }, self.now);
        }
        self.engine.handle_input(StreamEvent::Connected { stream }, self.now);
    }

    fn on_ended(&mut self, stream: StreamId, reason: Disconnect) {
        let peer = &mut self.peers[self.ids[&stream.server]];
        if peer.is_current(stream) {
            let is_over_limit = matches!(reason.kind, DisconnectKind::TooLarge { .. });
            peer.failing |= is_over_limit || !peer.open.as_ref().is_some_and(|open| open.answered);
            peer.on_ended(is_over_limit, self.now);
            peer.close();
        }
        trace!(at = ?self.now - self.began, %stream, reason.message, "ended");
        // What ended before may be told late; it is nothing to the engine.
        self.engine.handle_input(StreamEvent::Disconnected { stream, reason }, self.now);
    }

    fn on_sent(&mut self, stream: StreamId, request: &Bytes) {
        let id = self.ids[&stream.server];
        let at = self.at();
        let Some(open) = self.peers[id].open.as_mut().filter(|open| open.stream == stream) else { return };
        let request = open.talk.read_request(request.clone());
        let (type_url, names, nonce) = (request.type_url(), request.names(), request.nonce());
        trace!(?at, %stream, type_url, ?names, nonce, "asked");
        let answered = open.dialogue.on_request(&request, &self.family, self.now);
        self.events.extend(answered.map(NetworkEvent::Answered));
        let is_refused = !open.deaf && open.talk.handle_request(request).is_err();
        if is_refused {
            // Nothing comes from now on but what is under way.
            open.deaf = true;
            self.end_later(DELAY, stream, DisconnectKind::Failed(Code::Unimplemented));
        }
        self.engine.handle_input(StreamEvent::RequestSent { stream }, self.now);
        self.serve(id);
    }

    fn on_delivered(&mut self, stream: StreamId, SentResponse { bytes, due, is_repeated, .. }: SentResponse) {
        let id = self.ids[&stream.server];
        let at = self.at();
        let peer = &mut self.peers[id];
        if let Some(open) = peer.open.as_mut().filter(|open| open.stream == stream)
            && let Some(response) = open.talk.read_response(&bytes)
        {
            trace!(?at, %stream, ?response, "delivered");
            if let Some(subscribed) = open.dialogue.on_response(&response, due, is_repeated) {
                self.claims.on_response(id, (&response, due), subscribed);
            }
            let is_first = !std::mem::replace(&mut open.answered, true);
            peer.failing = false;
            if is_first && peer.ends_over_limit && self.foul {
                self.end_later(DELAY, stream, DisconnectKind::TooLarge { limit: 1 });
            }
            self.events.push_back(NetworkEvent::Delivered(id, response, due));
        }
        // What was on its way when a stream was given up may still come.
        self.engine.handle_input(StreamEvent::Received { stream, message: bytes.into() }, self.now);
    }

    /// Brings what a server sent to the client, as far as it reads.
    fn deliver(&mut self, peer: usize) {
        let slow = self.peers[peer].mood == Mood::Slow;
        let Some(open) = &mut self.peers[peer].open else { return };
        let stream = open.stream;
        open.unread.iter_mut().for_each(|sent| sent.at = sent.at.or(Some(self.now)));
        let mut under_way = Vec::new();
        while open.credit > 0 && !open.deaf {
            let Some(sent) = open.unread.pop_front() else { break };
            open.credit -= 1;
            under_way.push(sent);
        }
        for sent in under_way {
            // It was under way already while the client did not read.
            let age = sent.at.map_or(Duration::ZERO, |at| self.now - at);
            let delay = self.up_to(if slow { SLOW } else { self.weather.delay }).saturating_sub(age);
            self.later(delay, Happening::Delivered(stream, sent));
        }
    }

    /// Follows the engine's orders.
    fn obey(&mut self) {
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
                    let unnotified = self.foul && self.random.u32(0..100) < self.weather.late_requests;
                    let delay = self.up_to(if unnotified { LATE } else { self.weather.delay });
                    self.later(delay, Happening::Sent(stream, message));
                }
                Output::Transport(StreamCommand::Read { stream }) => {
                    let id = self.ids[&stream.server];
                    if let Some(open) = self.peers[id].open.as_mut().filter(|open| open.stream == stream) {
                        open.credit += 1;
                    }
                    self.deliver(id);
                }
                Output::Transport(StreamCommand::Disconnect { stream }) => {
                    let peer = &mut self.peers[self.ids[&stream.server]];
                    assert!(peer.is_current(stream), "{stream} is over");
                    trace!(at = ?self.now - self.began, %stream, "given up");
                    peer.failing |= peer.open.as_ref().is_some_and(|open| open.is_unread_since(self.now));
                    peer.close();
                    self.end_later(DELAY, stream, DisconnectKind::Closed);
                }
            }
        }
    }

    fn on_send(&mut self, stream: StreamId, message: &Bytes) {
        let id = self.ids[&stream.server];
        let open = self.peers[id].open.as_mut().filter(|open| open.stream == stream);
        let open = open.expect("requests are written on streams that are open");
        open.dialogue.on_send();
        let request = open.talk.read_request(message.clone());
        if self.family.has_rule(Rule::Claims) && !open.dialogue.is_requested(request.type_url()) {
            let held = self.held_of(id, request.type_url());
            self.claims.check(id, &request, &held);
        }
    }

    /// The names of the resources that are held and came from a server. Where there are several, texts say whose they are.
    fn held_of(&mut self, peer: usize, type_url: &str) -> BTreeSet<String> {
        let prefix = format!("s{peer} ");
        let resources = self.engine.status().resources.into_iter();
        let of_type = resources.filter(|report| report.type_url == type_url && report.held.is_some());
        let is_only = self.peers.len() == 1;
        let of_peer = of_type.filter(|report| {
            is_only || report.bytes.as_ref().is_some_and(|bytes| text_of(bytes).starts_with(&prefix))
        });
        of_peer.map(|report| report.name.to_string()).collect()
    }

    /// The rules of each stream on which nothing waits for the transport.
    pub(super) fn check_answers(&self) {
        let is_due = self.engine.poll_timeout().is_some_and(|(at, _)| at <= self.now);
        if is_due || !self.family.has_rule(Rule::AnswerAtOnce) {
            return;
        }
        for open in self.peers.iter().filter_map(|peer| peer.open.as_ref()) {
            open.dialogue.check_answered_at_once();
        }
    }

    fn connect(&mut self, stream: StreamId, server: &Arc<Server>) {
        let id = self.peers.iter().position(|peer| peer.server == *server).expect("it is in the bootstrap");
        let known = self.ids.insert(stream.server, id);
        assert!(known.is_none_or(|known| known == id), "a server's number is its own");
        assert_eq!(self.ids.values().filter(|other| **other == id).count(), 1, "one stream to a server");
        let peer = &mut self.peers[id];
        assert!(peer.attempt.is_none() && peer.open.is_none(), "one stream to a server");
        peer.attempt = Some(stream);
        let (mood, accepts) = (peer.mood, peer.mood != Mood::Refusing && !peer.is_closed);
        trace!(at = ?self.now - self.began, %stream, peer = id, "connect");
        if mood == Mood::Hanging {
            self.end_later(HANGING, stream, DisconnectKind::Unreachable);
        } else if !accepts || (self.foul && self.random.u32(0..100) < self.weather.refusals) {
            let delay = self.connection_delay();
            self.end_later(delay, stream, DisconnectKind::Unreachable);
        } else {
            let delay = self.connection_delay();
            self.later(delay, Happening::Connected(stream));
        }
    }

    fn connection_delay(&mut self) -> Duration {
        let late = self.weather.late_connections;
        let is_late = self.foul && late > 0 && self.random.u32(0..100) < late;
        self.up_to(if is_late { LATE } else { self.weather.delay })
    }

    fn flap(&mut self, peer: usize) {
        if let Some(open) = &self.peers[peer].open {
            let stream = open.stream;
            let delay = self.up_to(FLAPPING);
            self.end_later(delay, stream, DisconnectKind::Closed);
        }
    }

    fn end_later(&mut self, delay: Duration, stream: StreamId, kind: DisconnectKind) {
        self.later(delay, Happening::Ended(stream, Disconnect::new(kind, "it broke")));
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_micros(self.random.u64(0..=longest.as_micros() as u64))
    }

    fn later(&mut self, delay: Duration, happening: Happening<E>) {
        self.happenings += 1;
        self.future.insert((self.now + delay, self.happenings), happening);
    }
}

/// The longest life of a stream that flaps.
const FLAPPING: Duration = Duration::from_secs(3);
/// The longest life of a stream that ends cleanly.
const CLEAN_END: Duration = Duration::from_secs(60);
/// When it is given up to connect.
const HANGING: Duration = Duration::from_secs(20);
/// When a dead connection is noticed.
const KEEPALIVE: Duration = Duration::from_secs(40);
