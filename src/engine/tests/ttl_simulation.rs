//! Times to live under a virtual clock: the client beside the server that confirms what it has sent, falls silent and goes
//! away. Nothing expires early, late, or while the server is there.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use bytes::Bytes;
use prost::Message;

use super::{
    rig::{Full, message},
    seeds::{family, with_many_seeds},
};
use crate::{
    base::WatchId,
    config::{ApiType, Bootstrap, Server},
    control_plane::{
        AnyResource, DeltaSession, Session, Store,
        session::{self, Held},
    },
    engine::*,
    pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest, Resource as Wrapper},
    protocol::{Disconnect, DisconnectKind, Settings, StreamCommand, StreamEvent, StreamId},
    resource::Resource,
    wire,
};

#[test]
fn resources_expire_when_they_are_not_confirmed_and_never_else() {
    let mut expired = 0;
    let seeds = with_many_seeds("resources_expire_when_they_are_not_confirmed", 500, |seed| {
        let mut world = World::new(seed);
        for _ in 0..30 {
            world.step();
        }
        (world.is_up, world.is_held) = (true, false);
        world.repair();
        world.pass(Duration::from_secs(300));
        assert!(world.session.is_some(), "it is connected again");
        world.check_all_there();
        expired += world.expired;
    });
    assert!(expired > 0 || seeds == 1, "nothing has ever expired");
}

struct World {
    random: fastrand::Rng,
    engine: Engine,
    now: Instant,
    delta: bool,
    /// Everything is wanted, and not only `a` and `b`.
    wants_all: bool,
    orders: VecDeque<Output>,
    store: Store,
    settings: session::Settings,
    /// The server's side of the last stream.
    before: Option<Session>,
    /// The stream, if there is one.
    session: Option<(StreamId, Dialogue)>,
    is_up: bool,
    is_held: bool,
    /// When the server has to be told the time.
    beat: Option<Instant>,
    /// What the client was sent and must hold, as long as it lives.
    model: BTreeMap<String, Life>,
    /// The version of the last response in the state of the world that was no heartbeat, if it was rejected.
    rejected: Option<String>,
    /// A response came on the stream.
    has_answered: bool,
    expired: usize,
}

enum Dialogue {
    Sotw(Session),
    Delta(DeltaSession),
}

#[derive(Debug)]
struct Life {
    version: String,
    /// The server was not told that it is held, since it has no version, and has not sent it again.
    is_unconfirmed: bool,
    text: String,
    until: Option<Instant>,
}

/// What a response says.
struct Said {
    bytes: Vec<u8>,
    version: String,
    wrappers: Vec<Wrapper>,
    removed: Vec<String>,
    /// What it does not speak of is gone.
    is_complete: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let (delta, wants_all) = (random.bool(), random.bool());
        let api_type = if delta { ApiType::AggregatedDeltaGrpc } else { ApiType::AggregatedGrpc };
        let bootstrap = Bootstrap::builder().server(Server::new("127.0.0.1:1").insecure()).build().unwrap();
        let settings = Settings { api_type, ..Settings::default() };
        let now = Instant::now();
        let mut world = Self {
            random,
            engine: Engine::new(Arc::new(bootstrap), settings, seed),
            now,
            delta,
            wants_all,
            orders: VecDeque::new(),
            store: Store::new(),
            settings: family().settings(seed),
            before: None,
            session: None,
            is_up: true,
            is_held: false,
            beat: None,
            model: BTreeMap::new(),
            rejected: None,
            has_answered: false,
            expired: 0,
        };
        let names = if wants_all {
            vec![Selection::All]
        } else {
            vec![Selection::One("a".into()), Selection::One("b".into())]
        };
        for (view, names) in names.into_iter().enumerate() {
            let ty = ResourceType::of::<Full>();
            world.tell(|engine, now| engine.subscribe(WatchId::new(view as u64), ty, names, now));
        }
        world.pass(Duration::from_secs(1));
        world
    }

    fn step(&mut self) {
        let name = ["a", "b", "c", "d"][self.random.usize(0..4)];
        match self.random.u8(0..12) {
            0..4 => {
                let text = ["0", "1", "2", BAD][self.random.usize(0..4)];
                self.set(name, text);
            }
            4 => drop(self.store.update(|tx| {
                tx.remove(Full::TYPE_URL, name);
            })),
            5 => self.is_held = !self.is_held,
            6 => {
                self.is_up = !self.is_up;
                if let Some(stream) = self.close().filter(|_| !self.is_up) {
                    let reason = Disconnect::new(DisconnectKind::Closed, "it broke");
                    self.tell(|engine, now| {
                        engine.handle_input(StreamEvent::Disconnected { stream, reason }, now)
                    });
                }
            }
            _ => {
                let time = Duration::from_millis(self.random.u64(1..40_000));
                self.pass(time);
            }
        }
        self.settle();
        self.check();
    }

    fn set(&mut self, name: &str, text: &str) {
        let resource = AnyResource::new(Full::TYPE_URL, name, message(name, text));
        let resource = match [0, 15, 30, 60][self.random.usize(0..4)] {
            0 => resource,
            ttl => resource.with_ttl(Duration::from_secs(ttl)),
        };
        self.store.update(|tx| {
            tx.set(resource);
        });
    }

    /// Nothing is bad any more.
    fn repair(&mut self) {
        let now = self.store.get(Full::TYPE_URL);
        let bad = now.iter().filter(|(_, stored)| text_of(stored.bytes()) == BAD);
        for name in bad.map(|(name, _)| name.to_owned()).collect::<Vec<_>>() {
            self.set(&name, "repaired");
        }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.settle();
            self.check();
            let timeout = self.engine.poll_timeout().map(|(at, _)| at);
            let next = timeout.into_iter().chain(self.beat).min().filter(|at| *at <= until);
            let Some(next) = next else { break };
            self.now = next;
        }
        self.now = until;
        self.settle();
        self.check();
    }

    fn tell(&mut self, what: impl FnOnce(&mut Engine, Instant)) {
        what(&mut self.engine, self.now);
        self.orders.extend(std::iter::from_fn(|| self.engine.poll_output()));
    }

    /// All that happens by itself at this moment.
    fn settle(&mut self) {
        loop {
            if let Some(order) = self.orders.pop_front() {
                self.obey(order);
            } else if self.engine.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                self.tell(Engine::handle_timeout);
            } else if let Some(said) = self.serve() {
                self.deliver(said);
            } else {
                return;
            }
        }
    }

    fn obey(&mut self, order: Output) {
        match order {
            Output::Transport(StreamCommand::Connect { stream, .. }) if self.is_up => {
                let settings = self.settings.clone();
                let dialogue = match self.delta {
                    true => Dialogue::Delta(DeltaSession::new(settings)),
                    false => {
                        Dialogue::Sotw(Session::resume(settings, &self.before.take().unwrap_or_default()))
                    }
                };
                self.session = Some((stream, dialogue));
                self.has_answered = false;
                for life in self.model.values_mut().filter(|life| self.delta && life.version.is_empty()) {
                    life.is_unconfirmed = true;
                }
                self.tell(|engine, now| engine.handle_input(StreamEvent::Alive { stream }, now));
                self.tell(|engine, now| engine.handle_input(StreamEvent::Connected { stream }, now));
            }
            Output::Transport(StreamCommand::Connect { stream, .. }) => {
                let reason = Disconnect::new(DisconnectKind::Unreachable, "nobody is there");
                self.tell(|engine, now| {
                    engine.handle_input(StreamEvent::Disconnected { stream, reason }, now)
                });
            }
            Output::Transport(StreamCommand::Send { stream, message }) => {
                if let Some((_, dialogue)) = self.session.as_mut().filter(|(open, _)| *open == stream) {
                    dialogue.handle_request(message);
                }
                self.tell(|engine, now| engine.handle_input(StreamEvent::RequestSent { stream }, now));
            }
            Output::Transport(StreamCommand::Disconnect { .. }) => drop(self.close()),
            Output::Transport(StreamCommand::Read { .. }) | Output::Notify { .. } | Output::Lookup { .. } => {
            }
        }
    }

    /// The stream ends, if there is one.
    fn close(&mut self) -> Option<StreamId> {
        let (stream, dialogue) = self.session.take()?;
        if let Dialogue::Sotw(session) = dialogue {
            self.before = Some(session);
        }
        Some(stream)
    }

    /// The next response of the server.
    fn serve(&mut self) -> Option<Said> {
        self.beat = None;
        let (_, dialogue) = self.session.as_mut()?;
        dialogue.set_held(if self.is_held { Held::all() } else { Held::none() });
        self.beat = dialogue.handle_time(self.now, &self.store);
        dialogue.poll_response(&self.store)
    }

    fn deliver(&mut self, said: Said) {
        let spoken: Vec<_> = said.wrappers.iter().map(|wrapper| wrapper.name.clone()).collect();
        self.has_answered = true;
        let is_bad =
            |wrapper: &Wrapper| wrapper.resource.as_ref().is_some_and(|any| text_of(&any.value) == BAD);
        if said.is_complete {
            let is_rejected = said.wrappers.iter().any(is_bad);
            self.rejected = is_rejected.then(|| said.version.clone());
        }
        // What confirms a version that was rejected says nothing of what is held.
        let is_heard = self.delta || said.is_complete || self.rejected.as_ref() != Some(&said.version);
        for wrapper in said.wrappers {
            let ttl = wrapper.ttl.map(|ttl| Duration::from_secs(ttl.seconds as u64));
            let until = ttl.map(|ttl| self.now + ttl);
            let life = self.model.remove(&wrapper.name).filter(|life| life.is_alive(self.now));
            let life = match wrapper.resource {
                // The last good one stays.
                Some(any) if text_of(&any.value) == BAD => life,
                Some(any) => Some(Life {
                    version: wrapper.version,
                    is_unconfirmed: false,
                    text: text_of(&any.value),
                    until,
                }),
                None if !is_heard => life,
                // A heartbeat of what is held.
                None => {
                    let same = |life: &Life| !self.delta || life.version == wrapper.version;
                    life.map(|life| if same(&life) { Life { until, ..life } } else { life })
                }
            };
            self.model.extend(life.map(|life| (wrapper.name, life)));
        }
        self.model
            .retain(|name, _| !said.removed.contains(name) && (!said.is_complete || spoken.contains(name)));
        let stream = self.session.as_ref().expect("it is open").0;
        let message = said.bytes.into();
        self.tell(|engine, now| engine.handle_input(StreamEvent::Received { stream, message }, now));
    }

    fn check(&mut self) {
        let before = self.model.len();
        self.model.retain(|_, life| life.is_alive(self.now));
        self.expired += before - self.model.len();
        let held = self.engine.status().resources.into_iter().filter(|report| report.held.is_some());
        let held: BTreeMap<_, _> =
            held.map(|report| (report.name.to_string(), text_of(&report.bytes.unwrap()))).collect();
        // What the server does not send again is given up, if it sends anything at all.
        let may_go = self.has_answered;
        self.model.retain(|name, life| held.contains_key(name) || !life.is_unconfirmed || !may_go);
        let expected: BTreeMap<_, _> =
            self.model.iter().map(|(name, life)| (name.clone(), life.text.clone())).collect();
        assert_eq!(held, expected, "what the server said, as long as it lives");
        // A NACK that is paced keeps the server from sending more.
        let is_served = self.session.as_ref().is_some_and(|(_, dialogue)| !dialogue.is_awaiting());
        if is_served && !self.is_held && !self.may_lack() {
            self.check_all_there();
        }
    }

    /// Whether resources may be missing for a while although the server is there.
    fn may_lack(&self) -> bool {
        let behavior = &self.settings.behavior;
        behavior.heartbeats_after_expiry
            || behavior.heartbeats_after_nack
            || behavior.skip_known_versions
            || (self.delta && behavior.empty_resource_versions)
    }

    /// What the server has is held, unless it is bad: nothing expires while it is there, or comes again.
    fn check_all_there(&self) {
        let now = self.store.get(Full::TYPE_URL);
        let is_bad = |name: &str| now.resource(name).is_some_and(|stored| text_of(stored.bytes()) == BAD);
        let held = self.model.iter().filter(|(name, _)| !is_bad(name));
        let held: BTreeMap<_, _> = held.map(|(name, life)| (name.clone(), life.text.clone())).collect();
        let wanted = now.iter().filter(|(name, _)| self.wants_all || ["a", "b"].contains(name));
        let there = wanted.filter(|(name, _)| !is_bad(name));
        let there: BTreeMap<_, _> =
            there.map(|(name, stored)| (name.to_owned(), text_of(stored.bytes()))).collect();
        assert_eq!(held, there, "nothing expires while the server is there");
    }
}

fn text_of(bytes: &[u8]) -> String {
    wire::string_field(bytes, 2).unwrap().to_owned()
}

/// The text of a resource that is not accepted.
const BAD: &str = "bad";

impl Life {
    fn is_alive(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

impl Dialogue {
    fn handle_request(&mut self, message: Bytes) {
        match self {
            Self::Sotw(session) => {
                session.handle_request(DiscoveryRequest::decode(message).unwrap()).unwrap();
            }
            Self::Delta(session) => {
                session.handle_request(DeltaDiscoveryRequest::decode(message).unwrap()).unwrap();
            }
        }
    }

    fn handle_time(&mut self, now: Instant, store: &Store) -> Option<Instant> {
        match self {
            Self::Sotw(session) => session.handle_time(now, store),
            Self::Delta(session) => session.handle_time(now, store),
        }
    }

    fn is_awaiting(&self) -> bool {
        match self {
            Self::Sotw(session) => session.is_awaiting(Full::TYPE_URL),
            Self::Delta(session) => session.is_awaiting(Full::TYPE_URL),
        }
    }

    fn set_held(&mut self, held: Held) {
        match self {
            Self::Sotw(session) => session.set_held(held),
            Self::Delta(session) => session.set_held(held),
        }
    }

    fn poll_response(&mut self, store: &Store) -> Option<Said> {
        match self {
            Self::Sotw(session) => session.poll_response(store).map(|response| {
                let bytes = response.encode_to_vec();
                let unwrap = |any: crate::pb::google::protobuf::Any| match any.type_url == Full::TYPE_URL {
                    false => Wrapper::decode(any.value).unwrap(),
                    true => {
                        let name = wire::string_field(&any.value, 1).unwrap().to_owned();
                        Wrapper { name, resource: Some(any), ..Wrapper::default() }
                    }
                };
                let wrappers: Vec<_> = response.resources.into_iter().map(unwrap).collect();
                let is_heartbeat =
                    !wrappers.is_empty() && wrappers.iter().all(|wrapper| wrapper.resource.is_none());
                let version = response.version_info;
                Said { bytes, version, wrappers, removed: Vec::new(), is_complete: !is_heartbeat }
            }),
            Self::Delta(session) => session.poll_response(store).map(|response| Said {
                bytes: response.encode_to_vec(),
                version: response.system_version_info,
                wrappers: response.resources,
                removed: response.removed_resources,
                is_complete: false,
            }),
        }
    }
}
