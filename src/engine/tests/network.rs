//! What lies between an engine and a server's session in a simulation: one virtual clock, delays, and faults from a seed.
//!
//! Whatever is said on it, the rules of a stream hold: see [`Dialogue`].

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use prost::Message;
use tracing::trace;

use super::rig::Rig;
use crate::{
    base::WatchId,
    control_plane::{
        Session, Store,
        session::{self, AfterNack, Held},
    },
    engine::{Engine, Output},
    error::Code,
    pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
    protocol::{Disconnect, DisconnectKind, StreamCommand, StreamEvent, StreamId},
    resolve::LookupId,
    resource::Erased,
};

/// Both sides, and all that is between them.
///
/// After each change, [`poll`](Self::poll) says what the world around must know of, and lets time pass.
pub(super) struct Network<E> {
    pub(super) random: fastrand::Rng,
    pub(super) rig: Rig,
    pub(super) store: Store,
    pub(super) weather: Weather,
    /// Nobody can connect.
    pub(super) down: bool,
    held: Held,
    settings: session::Settings,
    open: Option<Open>,
    /// The server's side of the last connection.
    before: Option<Session>,
    dialogue: Dialogue,
    /// What is yet to happen, by time and order.
    future: BTreeMap<(Instant, u64), Happening<E>>,
    happenings: u64,
    told: VecDeque<Told<E>>,
    /// How much has happened since time last began to pass.
    steps: (Instant, u32),
    began: Instant,
}

/// How bad the network is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weather {
    /// How many of a hundred connections are refused.
    pub(super) refusals: u32,
    /// How many of a hundred requests come late: when the server is slow to read.
    pub(super) unnotified: u32,
    /// The longest that a response is under way.
    pub(super) delay: Duration,
}

/// What the world around must know of.
pub(super) enum Told<E> {
    Published(WatchId, Erased),
    Lookup(LookupId, String),
    /// What the world had planned.
    Due(E),
}

/// The connection of the moment.
struct Open {
    stream: StreamId,
    session: Session,
    /// What the server has sent and the client has not read.
    unread: VecDeque<Vec<u8>>,
    credit: usize,
    last: Vec<u8>,
}

enum Happening<E> {
    Connected(StreamId),
    Refused(StreamId),
    /// The transport takes the request; it arrives at once, or is lost with the stream.
    Sent(StreamId, Vec<u8>),
    Delivered(StreamId, Vec<u8>),
    Due(E),
}

impl Weather {
    pub(super) const FINE: Self = Self { refusals: 0, unnotified: 0, delay: Duration::from_millis(30) };
    pub(super) const FOUL: Self = Self { refusals: 20, unnotified: 5, ..Self::FINE };
}

impl<E> Network<E> {
    pub(super) fn new(seed: u64, rig: Rig, settings: session::Settings) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            steps: (rig.now, 0),
            began: rig.now,
            rig,
            store: Store::new(),
            weather: Weather::FOUL,
            down: false,
            held: Held::none(),
            settings,
            open: None,
            before: None,
            dialogue: Dialogue::default(),
            future: BTreeMap::new(),
            happenings: 0,
            told: VecDeque::new(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.rig.now
    }

    /// How much time has passed, for logs.
    pub(super) fn at(&self) -> Duration {
        self.rig.now - self.began
    }

    pub(super) fn engine(&mut self) -> &mut Engine {
        &mut self.rig.engine
    }

    /// The server's side of the connection of the moment.
    pub(super) fn session(&self) -> Option<&Session> {
        self.open.as_ref().map(|open| &open.session)
    }

    /// Plans something for later.
    pub(super) fn plan(&mut self, delay: Duration, event: E) {
        self.later(delay, Happening::Due(event));
    }

    /// The faults end.
    pub(super) fn heal(&mut self) {
        self.weather = Weather::FINE;
        self.down = false;
        self.hold(Held::none());
    }

    /// Ends the stream.
    pub(super) fn cut(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.before = Some(open.session);
        let kind =
            [DisconnectKind::Closed, DisconnectKind::Failed(Code::Unavailable)][self.random.usize(0..2)];
        let reason = Disconnect::new(kind, "cut");
        self.rig.engine.handle_input(StreamEvent::Disconnected { stream: open.stream, reason }, self.rig.now);
    }

    /// The server is silent on some types from now on, and only on these.
    pub(super) fn hold(&mut self, held: Held) {
        self.held = held;
        self.serve();
    }

    /// The server sends something odd: garbage, a type that nobody knows, the last response once more.
    pub(super) fn misbehave(&mut self) {
        let strange =
            DiscoveryResponse { type_url: "type.googleapis.com/a.Stranger".into(), ..Default::default() };
        let random = &mut self.random;
        let Some(open) = &mut self.open else { return };
        let bytes = match random.u32(0..3) {
            0 => (0..random.usize(0..50)).map(|_| random.u8(..)).collect(),
            1 => strange.encode_to_vec(),
            _ => open.last.clone(),
        };
        open.unread.push_back(bytes);
        self.deliver();
    }

    /// The server says what it has to say; to be called when the store has changed.
    pub(super) fn serve(&mut self) {
        let Some(open) = &mut self.open else { return };
        open.session.set_held(self.held.clone());
        while let Some(response) = open.session.poll_response(&self.store) {
            let at = self.rig.now - self.began;
            trace!(?at, response.type_url, response.version_info, response.nonce, "sent");
            let bytes = response.encode_to_vec();
            open.last.clone_from(&bytes);
            open.unread.push_back(bytes);
        }
        self.deliver();
    }

    /// What is to be known next; `None` when nothing more happens until some time, which it then is.
    pub(super) fn poll(&mut self, until: Instant) -> Option<Told<E>> {
        loop {
            self.obey();
            if let Some(told) = self.told.pop_front() {
                return Some(told);
            }
            let next = self.future.first_key_value().map(|((at, _), _)| *at);
            let timeout = self.rig.engine.poll_timeout().map(|(at, _)| at.max(self.rig.now));
            let Some(at) = next.into_iter().chain(timeout).min().filter(|at| *at <= until) else {
                self.rig.now = until;
                return None;
            };
            self.count_step(until);
            self.rig.now = at;
            if next == Some(at) {
                if let Some((_, happening)) = self.future.pop_first() {
                    self.happen(happening);
                }
            } else {
                self.rig.engine.handle_timeout(at);
            }
        }
    }

    /// Every response of a type was answered, but for the last one where each NACK brings the same resources again, which are
    /// rejected at a pace.
    pub(super) fn check_answered(&self, type_url: &str) {
        let answered = self.dialogue.answered.get(type_url);
        let mut nonces = self.dialogue.nonces.get(type_url).into_iter().flatten().rev();
        let is_answered = answered == nonces.next();
        let is_repeated = self.settings.behavior.after_nack == AfterNack::SameResources;
        assert!(
            is_answered || (is_repeated && answered == nonces.next()),
            "every response is answered: {answered:?} of {:?}",
            self.dialogue.nonces.get(type_url)
        );
    }

    fn count_step(&mut self, until: Instant) {
        let (before, steps) = self.steps;
        self.steps = (until, if before == until { steps + 1 } else { 0 });
        assert!(self.steps.1 < 20_000, "something goes round in circles");
    }

    fn happen(&mut self, happening: Happening<E>) {
        let now = self.rig.now;
        match happening {
            Happening::Due(event) => self.told.push_back(Told::Due(event)),
            Happening::Refused(stream) => {
                let reason = Disconnect::new(DisconnectKind::Unreachable, "refused");
                self.rig.engine.handle_input(StreamEvent::Disconnected { stream, reason }, now);
            }
            Happening::Connected(stream) => {
                let before = self.before.take().unwrap_or_default();
                let session = Session::resume(self.settings.clone(), &before);
                self.open =
                    Some(Open { stream, session, unread: VecDeque::new(), credit: 0, last: Vec::new() });
                self.dialogue = Dialogue::default();
                self.rig.engine.handle_input(StreamEvent::Alive { stream }, now);
                self.rig.engine.handle_input(StreamEvent::Connected { stream }, now);
            }
            Happening::Sent(stream, request) => {
                let Some(open) = self.open.as_mut().filter(|open| open.stream == stream) else { return };
                let request = DiscoveryRequest::decode(&request[..]).expect("the client writes requests");
                let at = now - self.began;
                trace!(?at, request.type_url, ?request.resource_names, request.response_nonce, "asked");
                self.dialogue.on_request(&request);
                open.session.handle_request(request).expect("the client keeps to the protocol");
                self.rig.engine.handle_input(StreamEvent::RequestSent { stream }, now);
                self.serve();
            }
            Happening::Delivered(stream, bytes) => {
                if self.open.as_ref().is_some_and(|open| open.stream == stream) {
                    trace!(at = ?now - self.began, "delivered");
                    self.dialogue.on_response(&bytes);
                    self.rig
                        .engine
                        .handle_input(StreamEvent::Received { stream, message: bytes.into() }, now);
                }
            }
        }
    }

    /// Brings what was sent to the client, as far as it reads.
    fn deliver(&mut self) {
        let Some(open) = &mut self.open else { return };
        let mut under_way = Vec::new();
        while open.credit > 0 {
            let Some(bytes) = open.unread.pop_front() else { break };
            open.credit -= 1;
            under_way.push(Happening::Delivered(open.stream, bytes));
        }
        for happening in under_way {
            let delay = self.up_to(self.weather.delay);
            self.later(delay, happening);
        }
    }

    /// Follows the engine's orders.
    fn obey(&mut self) {
        while let Some(output) = self.rig.engine.poll_output() {
            match output {
                Output::Notify { view, observed } => self.told.push_back(Told::Published(view, observed)),
                Output::Lookup { lookup, host } => {
                    self.told.push_back(Told::Lookup(lookup, host.to_string()));
                }
                Output::Transport(StreamCommand::Connect { stream, .. }) => {
                    let refused = self.down || self.random.u32(0..100) < self.weather.refusals;
                    self.on_wire(if refused {
                        Happening::Refused(stream)
                    } else {
                        Happening::Connected(stream)
                    });
                }
                Output::Transport(StreamCommand::Send { stream, message }) => {
                    self.dialogue.on_send();
                    self.on_wire(Happening::Sent(stream, message.to_vec()));
                }
                Output::Transport(StreamCommand::Read { stream }) => {
                    if let Some(open) = self.open.as_mut().filter(|open| open.stream == stream) {
                        open.credit += 1;
                    }
                    self.deliver();
                }
                Output::Transport(StreamCommand::Disconnect { stream }) => {
                    let given_up = self.open.take_if(|open| open.stream == stream);
                    self.before = given_up.map(|open| open.session).or(self.before.take());
                }
            }
        }
    }

    fn on_wire(&mut self, happening: Happening<E>) {
        let unnotified = self.random.u32(0..100) < self.weather.unnotified;
        let delay = self.up_to(if unnotified { LATE } else { self.weather.delay });
        self.later(delay, happening);
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_micros(self.random.u64(0..=longest.as_micros() as u64))
    }

    fn later(&mut self, delay: Duration, happening: Happening<E>) {
        self.happenings += 1;
        self.future.insert((self.rig.now + delay, self.happenings), happening);
    }
}

/// What was said on the stream of the moment.
#[derive(Default)]
struct Dialogue {
    requests: usize,
    pending: usize,
    /// The nonces that came, by type, in order.
    nonces: BTreeMap<String, Vec<String>>,
    /// The last nonce that was answered, by type.
    answered: BTreeMap<String, String>,
}

impl Dialogue {
    /// At most one request is on its way to the transport.
    fn on_send(&mut self) {
        self.pending += 1;
        assert!(self.pending <= 1, "a request before the last one was taken");
    }

    fn on_response(&mut self, bytes: &[u8]) {
        if let Ok(response) = DiscoveryResponse::decode(bytes) {
            let nonces = self.nonces.entry(response.type_url).or_default();
            nonces.push(response.nonce);
        }
    }

    /// The node comes first and once; nonces are those that came, and never go back.
    fn on_request(&mut self, request: &DiscoveryRequest) {
        self.pending -= 1;
        assert_eq!(request.node.is_some(), self.requests == 0, "B0.2");
        self.requests += 1;
        let nonce = &request.response_nonce;
        if nonce.is_empty() {
            assert!(!self.answered.contains_key(&request.type_url), "B1.7: a nonce is kept");
            return;
        }
        let nonces = &self.nonces[&request.type_url];
        let place = |nonce: &String| nonces.iter().rposition(|other| other == nonce);
        assert!(place(nonce).is_some(), "a nonce that never came");
        if let Some(before) = self.answered.insert(request.type_url.clone(), nonce.clone()) {
            assert!(place(&before) <= place(nonce), "the nonce went back");
        }
    }
}

/// How late a server may be to read.
const LATE: Duration = Duration::from_secs(5);
