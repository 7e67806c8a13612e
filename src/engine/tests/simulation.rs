//! The engine against the server's session under one virtual clock, with faults from a seed.
//!
//! After each step the invariants of [`model`](super::model) hold; when the faults end, client and server agree within
//! the bound of the backoff. A failure prints its seed: `XDSKIT_SIMULATION_SEED=17 cargo test simulation` replays it, and
//! `XDSKIT_SIMULATION_SEEDS=100000` tries more.

use std::{
    collections::{BTreeMap, VecDeque},
    env,
    time::{Duration, Instant},
};

use prost::Message;

use super::{
    model::Model,
    rig::{Full, Part, Rig, message},
};
use crate::{
    control_plane::{
        AnyResource, Session, Store,
        session::{self, Held},
    },
    engine::Names,
    error::Code,
    pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
    protocol::{Disconnect, DisconnectKind, Input, Output, StreamId, ViewId},
    resource::{Resource, ResourceType},
};

#[test]
fn simulation_of_many_seeds() {
    if let Some(seed) = variable("XDSKIT_SIMULATION_SEED") {
        return World::new(seed).run();
    }
    for seed in 0..variable("XDSKIT_SIMULATION_SEEDS").unwrap_or(2_000) {
        let shown = ShownOnPanic(seed);
        World::new(seed).run();
        drop(shown);
    }
}

fn variable(name: &str) -> Option<u64> {
    env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

/// Says how to repeat a failure.
struct ShownOnPanic(u64);

impl Drop for ShownOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to repeat it: XDSKIT_SIMULATION_SEED={} cargo test --lib simulation", self.0);
        }
    }
}

/// Both sides, the network between them, and what should be seen.
struct World {
    random: fastrand::Rng,
    rig: Rig,
    store: Store,
    versions: usize,
    network: Network,
    /// What is yet to happen, by time and order.
    future: BTreeMap<(Instant, u64), Happening>,
    happenings: u64,
    views: u64,
    model: Model,
    faults: bool,
}

/// The connection of the moment.
#[derive(Default)]
struct Network {
    /// Nobody can connect.
    down: bool,
    held: Held,
    open: Option<Open>,
}

struct Open {
    stream: StreamId,
    session: Session,
    /// What the server has sent and the client has not read.
    unread: VecDeque<Vec<u8>>,
    credit: usize,
    last: Option<Vec<u8>>,
}

enum Happening {
    Connected(StreamId),
    Refused(StreamId),
    /// The transport takes the request; it arrives at once, or is lost with the stream.
    Sent(StreamId, Vec<u8>),
    Delivered(StreamId, Vec<u8>),
}

impl World {
    fn new(seed: u64) -> Self {
        let rig = Rig::new();
        Self {
            random: fastrand::Rng::with_seed(seed),
            model: Model::new(rig.now),
            rig,
            store: Store::new(),
            versions: 0,
            network: Network::default(),
            future: BTreeMap::new(),
            happenings: 0,
            views: 0,
            faults: true,
        }
    }

    fn run(mut self) {
        for _ in 0..self.random.usize(20..120) {
            self.act();
            let pause = [0, 1, 5, 50, 1_000, 20_000][self.random.usize(0..6)];
            let pause = self.random.u64(0..=pause);
            self.pass(Duration::from_millis(pause));
        }
        self.heal();
        // The longest backoff, the does-not-exist time, and the longest delay of an answer.
        self.pass(Duration::from_secs(150 + 15 + 15));
        let session = self.network.open.as_ref().map(|open| &open.session);
        self.model.check_convergence(&self.store, session);
    }

    /// One thing that an application, an operator or the network does.
    fn act(&mut self) {
        match self.random.u32(0..100) {
            0..25 => self.watch(),
            25..40 => self.unwatch(),
            40..70 => self.change(),
            70..78 => self.cut(),
            78..82 => self.network.down = !self.network.down,
            82..90 => self.hold(),
            90..94 => self.misbehave(),
            _ => {}
        }
        self.obey();
    }

    fn watch(&mut self) {
        self.views += 1;
        let view = ViewId::new(self.views);
        let name = self.name();
        let (ty, names) = match self.random.u32(0..10) {
            0 => (ResourceType::of::<Full>(), Names::All),
            1..6 => (ResourceType::of::<Full>(), Names::One(name.as_str().into())),
            _ => (ResourceType::of::<Part>(), Names::One(name.as_str().into())),
        };
        let watched = matches!(names, Names::One(_)).then_some(name);
        self.model.on_watch(view, ty.type_url(), watched);
        self.rig.engine.subscribe(view, ty, names, self.rig.now);
    }

    fn unwatch(&mut self) {
        if let Some(view) = self.model.any_view(&mut self.random) {
            self.model.on_unwatch(view);
            self.rig.engine.unsubscribe(view, self.rig.now);
        }
    }

    /// The operator changes some resources.
    fn change(&mut self) {
        for _ in 0..self.random.usize(1..4) {
            self.versions += 1;
            let name = self.name();
            let type_url = if self.random.bool() { Full::TYPE_URL } else { Part::TYPE_URL };
            let text = match self.random.u32(0..10) {
                0..2 => None,
                2..4 => Some("bad".to_owned()),
                _ => Some(format!("text {}", self.versions)),
            };
            self.store.update(|tx| match &text {
                Some(text) => drop(tx.set(AnyResource::new(type_url, name.as_str(), message(&name, text)))),
                None => drop(tx.remove(type_url, &name)),
            });
            self.model.on_change(type_url, &name, text);
        }
        self.serve();
    }

    fn cut(&mut self) {
        let Some(open) = self.network.open.take() else { return };
        let kind =
            [DisconnectKind::Closed, DisconnectKind::Failed(Code::Unavailable)][self.random.usize(0..2)];
        let reason = Disconnect::new(kind, "cut");
        self.rig.engine.handle_input(Input::Disconnected { stream: open.stream, reason }, self.rig.now);
    }

    fn hold(&mut self) {
        self.network.held = match self.random.u32(0..4) {
            0 => Held::all(),
            1 => {
                let mut held = Held::none();
                held.hold(if self.random.bool() { Full::TYPE_URL } else { Part::TYPE_URL });
                held
            }
            _ => Held::none(),
        };
        self.serve();
    }

    /// The server sends something odd: garbage, a type that nobody knows, the last response once more.
    fn misbehave(&mut self) {
        let strange =
            DiscoveryResponse { type_url: "type.googleapis.com/a.Stranger".into(), ..Default::default() };
        let random = &mut self.random;
        let Some(open) = &mut self.network.open else { return };
        let bytes = match random.u32(0..3) {
            0 => (0..random.usize(0..50)).map(|_| random.u8(..)).collect(),
            1 => strange.encode_to_vec(),
            _ => open.last.clone().unwrap_or_default(),
        };
        open.unread.push_back(bytes);
        self.deliver();
    }

    fn heal(&mut self) {
        self.faults = false;
        self.network.down = false;
        self.network.held = Held::none();
        self.serve();
    }

    /// Lets time pass, with everything that happens in it on both sides.
    fn pass(&mut self, time: Duration) {
        let until = self.rig.now + time;
        for step in 0.. {
            assert!(step < 20_000, "something goes round in circles");
            self.obey();
            let next = self.future.first_key_value().map(|((at, _), _)| *at);
            let timeout = self.rig.engine.poll_timeout().map(|(at, _)| at.max(self.rig.now));
            let Some(at) = next.into_iter().chain(timeout).min().filter(|at| *at <= until) else { break };
            self.rig.now = at;
            self.model.now = at;
            if next == Some(at) {
                if let Some((_, happening)) = self.future.pop_first() {
                    self.happen(happening);
                }
            } else {
                self.rig.engine.handle_timeout(at);
            }
        }
        (self.rig.now, self.model.now) = (until, until);
    }

    fn happen(&mut self, happening: Happening) {
        let now = self.rig.now;
        match happening {
            Happening::Refused(stream) => {
                let reason = Disconnect::new(DisconnectKind::Unreachable, "refused");
                self.rig.engine.handle_input(Input::Disconnected { stream, reason }, now);
            }
            Happening::Connected(stream) => {
                let mut settings = session::Settings::default();
                settings.full_state_types.insert(Full::TYPE_URL.to_owned());
                let session = Session::new(settings);
                self.network.open =
                    Some(Open { stream, session, unread: VecDeque::new(), credit: 0, last: None });
                self.model.on_stream();
                self.rig.engine.handle_input(Input::Connected { stream }, now);
            }
            Happening::Sent(stream, request) => {
                let Some(open) = self.network.open.as_mut().filter(|open| open.stream == stream) else {
                    return;
                };
                let request = DiscoveryRequest::decode(&request[..]).expect("the client writes requests");
                self.model.on_request(&request);
                open.session.handle_request(request).expect("the client keeps to the protocol");
                self.rig.engine.handle_input(Input::RequestSent { stream }, now);
                self.serve();
            }
            Happening::Delivered(stream, bytes) => {
                if self.network.open.as_ref().is_some_and(|open| open.stream == stream) {
                    self.model.on_response(&bytes);
                    self.rig.engine.handle_input(Input::Received { stream, message: bytes.into() }, now);
                }
            }
        }
    }

    /// The server says what it has to say.
    fn serve(&mut self) {
        let Some(open) = &mut self.network.open else { return };
        open.session.set_held(self.network.held.clone());
        while let Some(response) = open.session.poll_response(&self.store) {
            let bytes = response.encode_to_vec();
            open.last = Some(bytes.clone());
            open.unread.push_back(bytes);
        }
        self.deliver();
    }

    /// Brings what was sent to the client, as far as it reads.
    fn deliver(&mut self) {
        let Some(open) = &mut self.network.open else { return };
        while open.credit > 0 {
            let Some(bytes) = open.unread.pop_front() else { return };
            open.credit -= 1;
            let delay = Duration::from_micros(self.random.u64(0..30_000));
            self.happenings += 1;
            let at = self.rig.now + delay;
            self.future.insert((at, self.happenings), Happening::Delivered(open.stream, bytes));
        }
    }

    /// Follows the engine's orders.
    fn obey(&mut self) {
        while let Some(output) = self.rig.engine.poll_output() {
            match output {
                Output::Notify { view, observed } => self.model.on_notify(view, &observed),
                Output::Connect { stream, .. } => {
                    let refused = self.network.down || (self.faults && self.random.u32(0..5) == 0);
                    let happening =
                        if refused { Happening::Refused(stream) } else { Happening::Connected(stream) };
                    self.later(happening);
                }
                Output::Send { stream, message } => {
                    self.model.on_send();
                    self.later(Happening::Sent(stream, message.to_vec()));
                }
                Output::Read { stream } => {
                    if let Some(open) = self.network.open.as_mut().filter(|open| open.stream == stream) {
                        open.credit += 1;
                    }
                    self.deliver();
                }
                Output::Lookup { .. } => unreachable!("no target is resolved"),
                Output::Disconnect { stream } => {
                    self.network.open.take_if(|open| open.stream == stream);
                }
            }
        }
    }

    fn later(&mut self, happening: Happening) {
        // Sometimes a server is slow to read.
        let longest = if self.faults && self.random.u32(0..20) == 0 { 5_000_000 } else { 20_000 };
        let at = self.rig.now + Duration::from_micros(self.random.u64(0..longest));
        self.happenings += 1;
        self.future.insert((at, self.happenings), happening);
    }

    fn name(&mut self) -> String {
        format!("r{}", self.random.u32(0..8))
    }
}
