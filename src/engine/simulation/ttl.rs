//! Times to live under a virtual clock: the client beside a server that confirms what it has sent, falls silent and goes
//! away. Nothing expires early, late, or while the server is there.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{
    network::{Network, NetworkEvent},
    parts::{Full, message},
    seeds::{family, with_many_seeds},
    server::text_of,
    session::Response,
    setup::{NetworkConditions, Setup},
};
use crate::{
    base::WatchId,
    config::ApiType,
    control_plane::{AnyResource, session::Held},
    engine::Selection,
    pb::envoy::service::discovery::v3::Resource as Wrapper,
    protocol::StreamId,
    resource::{Resource, ResourceType},
};

#[test]
fn resources_expire_when_they_are_not_confirmed_and_never_else() {
    let mut expired = 0;
    let seeds = with_many_seeds("resources_expire_when_they_are_not_confirmed", 500, |seed| {
        expired += run(seed);
    });
    assert!(expired > 0 || seeds == 1, "nothing has ever expired");
}

/// Worlds that failed once; docs/FUZZING.md has what they found.
#[test]
fn worlds_of_times_to_live_that_failed_once() {
    for seed in [940, 1_152, 4_709, 5_432] {
        println!("world {seed}");
        run(seed);
    }
}

/// Returns the number of resources that have expired.
fn run(seed: u64) -> usize {
    let mut world = World::new(seed);
    for _ in 0..30 {
        world.step();
    }
    world.network.servers[0].is_closed = false;
    world.network.hold(0, Held::none());
    world.repair();
    world.pass(Duration::from_secs(300));
    assert!(world.network.servers[0].open.is_some(), "it is connected again");
    world.check_all_there();
    world.expired
}

/// A network without delays, so that what the server has sent is what the client holds at each moment.
struct World {
    network: Network,
    /// Everything is watched, and not only `a` and `b`.
    watches_all: bool,
    is_held: bool,
    /// The last stream that came about.
    stream: Option<StreamId>,
    /// What the client was sent and must hold, as long as it lives.
    model: BTreeMap<String, Life>,
    /// The version of the last response in the state of the world that was accepted, heartbeats aside.
    accepted: Option<String>,
    expired: usize,
}

#[derive(Debug)]
struct Life {
    version: String,
    /// The server was not notified that it is held, since it has no version, and has not sent it again.
    is_unconfirmed: bool,
    text: String,
    until: Option<Instant>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x771);
        let (is_delta, watches_all) = (random.bool(), random.bool());
        let api_type = if is_delta { ApiType::AggregatedDeltaGrpc } else { ApiType::AggregatedGrpc };
        let setup = Setup::of_one(seed, family().plain(), api_type);
        let mut network =
            Network::new(Setup { conditions: NetworkConditions::calm(Duration::ZERO), ..setup });
        let selections = match watches_all {
            true => vec![Selection::All],
            false => vec![Selection::One("a".into()), Selection::One("b".into())],
        };
        for (id, selection) in selections.into_iter().enumerate() {
            let (watch, ty) = (WatchId::new(id as u64), ResourceType::of::<Full>());
            network.engine.subscribe(watch, ty, selection, network.now);
        }
        let mut world = Self {
            network,
            watches_all,
            is_held: false,
            stream: None,
            model: BTreeMap::new(),
            accepted: None,
            expired: 0,
        };
        world.pass(Duration::from_secs(1));
        world
    }

    fn step(&mut self) {
        let random = &mut self.network.random;
        let name = ["a", "b", "c", "d"][random.usize(0..4)];
        match random.u8(0..12) {
            0..4 => {
                let text = ["0", "1", "2", BAD][random.usize(0..4)];
                self.set(name, text);
            }
            4 => drop(self.network.servers[0].store.update(|tx| {
                tx.remove(Full::TYPE_URL, name);
            })),
            5 => {
                self.is_held = !self.is_held;
                self.network.hold(0, if self.is_held { Held::all() } else { Held::none() });
            }
            6 => {
                let server = &mut self.network.servers[0];
                server.is_closed = !server.is_closed;
                if server.is_closed {
                    self.network.cut(0);
                }
            }
            _ => {
                let time = Duration::from_millis(random.u64(1..40_000));
                self.pass(time);
            }
        }
        self.network.serve(0);
        self.pass(Duration::ZERO);
    }

    fn set(&mut self, name: &str, text: &str) {
        let resource = AnyResource::new(Full::TYPE_URL, name, message(name, text));
        let resource = match [0, 15, 30, 60][self.network.random.usize(0..4)] {
            0 => resource,
            ttl => resource.with_ttl(Duration::from_secs(ttl)),
        };
        self.network.servers[0].store.update(|tx| {
            tx.set(resource);
        });
    }

    /// Nothing is bad any more.
    fn repair(&mut self) {
        let now = self.network.servers[0].store.get(Full::TYPE_URL);
        let bad = now.iter().filter(|(_, stored)| text_of(stored.bytes()) == BAD);
        for name in bad.map(|(name, _)| name.to_owned()).collect::<Vec<_>>() {
            self.set(&name, "repaired");
        }
        self.network.serve(0);
    }

    /// Lets time pass, with everything that happens in it.
    fn pass(&mut self, time: Duration) {
        let until = self.network.now + time;
        while let Some(event) = self.network.poll(until) {
            match event {
                NetworkEvent::Delivered(_, response, _) => self.on_delivered(&response),
                NetworkEvent::Settled => self.check(),
                NetworkEvent::Published(..) | NetworkEvent::Answered(_) => {}
                NetworkEvent::Lookup(..) => unreachable!("no target is resolved"),
                NetworkEvent::Due(never) => match never {},
            }
        }
        self.check();
    }

    /// A server that cannot confirm a resource without a version has to send it again on a new stream.
    fn note_stream(&mut self) {
        let server = &self.network.servers[0];
        let stream = server.open.as_ref().map(|open| open.stream);
        if stream.is_some() && stream != self.stream {
            self.stream = stream;
            let is_delta = server.is_delta();
            for life in self.model.values_mut().filter(|life| is_delta && life.version.is_empty()) {
                life.is_unconfirmed = true;
            }
        }
    }

    fn on_delivered(&mut self, response: &Response) {
        let (now, is_delta) = (self.network.now, self.network.servers[0].is_delta());
        let resources = response.resources();
        let names: Vec<_> = resources.iter().map(|it| it.name.clone()).collect();
        let is_heartbeat = !resources.is_empty() && resources.iter().all(|it| it.resource.is_none());
        let is_complete = !is_delta && !is_heartbeat;
        if is_complete && !response.has_bad() {
            self.accepted = Some(response.version());
        }
        // In the state of the world the version of the type is that of all its resources.
        let of_type = (!is_delta).then(|| response.version());
        let confirms_all = of_type.is_some() && of_type == self.accepted;
        for Wrapper { name, version, ttl, resource, .. } in resources {
            let version = of_type.clone().filter(|_| version.is_empty()).unwrap_or(version);
            let until = ttl.map(|ttl| now + Duration::from_secs(ttl.seconds as u64));
            let life = self.model.remove(&name).filter(|life| life.is_alive(now));
            let life = match resource {
                // The last good one stays.
                Some(any) if text_of(&any.value) == BAD => life,
                Some(any) => Some(Life { version, is_unconfirmed: false, text: text_of(&any.value), until }),
                // A heartbeat of what is held.
                None => {
                    let same = |life: &Life| confirms_all || life.version == version;
                    life.map(|life| if same(&life) { Life { until, ..life } } else { life })
                }
            };
            self.model.extend(life.map(|life| (name, life)));
        }
        let removed = response.removed();
        self.model.retain(|name, _| !removed.contains(name) && (!is_complete || names.contains(name)));
    }

    fn check(&mut self) {
        self.note_stream();
        if !self.network.is_idle() {
            return;
        }
        self.network.check_answers();
        let before = self.model.len();
        let now = self.network.now;
        self.model.retain(|_, life| life.is_alive(now));
        self.expired += before - self.model.len();
        let held = self.network.engine.status().resources.into_iter().filter(|report| report.held.is_some());
        let held: BTreeMap<_, _> = held
            .map(|report| (report.name.to_string(), text_of(&report.bytes.expect("it is held"))))
            .collect();
        // What the server does not send again is given up, if it sends anything at all.
        let may_go = self.network.servers[0].open.as_ref().is_some_and(|open| open.answered);
        self.model.retain(|name, life| held.contains_key(name) || !life.is_unconfirmed || !may_go);
        assert_eq!(held, self.texts(|_| true), "the resources of the server, until they expire");
        // A NACK that is paced keeps the server from sending more.
        let open = self.network.servers[0].open.as_ref();
        let is_served = open.is_some_and(|open| !open.session.is_awaiting(Full::TYPE_URL));
        if is_served && !self.is_held && !self.may_lack() {
            self.check_all_there();
        }
    }

    /// Whether resources may be missing for a while although the server is there.
    fn may_lack(&self) -> bool {
        let server = &self.network.servers[0];
        let behavior = &server.settings.behavior;
        behavior.heartbeats_after_expiry
            || behavior.heartbeats_after_nack
            || behavior.skip_known_versions
            || (server.is_delta() && behavior.empty_resource_versions)
    }

    /// What the server has is held, unless it is bad: nothing expires while it is there, or comes again.
    fn check_all_there(&self) {
        let now = self.network.servers[0].store.get(Full::TYPE_URL);
        let is_bad = |name: &str| now.resource(name).is_some_and(|stored| text_of(stored.bytes()) == BAD);
        let watched = now.iter().filter(|(name, _)| self.watches_all || ["a", "b"].contains(name));
        let there = watched.filter(|(name, _)| !is_bad(name));
        let there: BTreeMap<_, _> =
            there.map(|(name, stored)| (name.to_owned(), text_of(stored.bytes()))).collect();
        assert_eq!(self.texts(|name| !is_bad(name)), there, "nothing expires while the server is there");
    }

    /// The texts of what must be held under some names.
    fn texts(&self, is_meant: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
        let held = self.model.iter().filter(|(name, _)| is_meant(name));
        held.map(|(name, life)| (name.clone(), life.text.clone())).collect()
    }
}

impl Life {
    fn is_alive(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

/// The text of a resource that is not accepted.
const BAD: &str = "bad";
