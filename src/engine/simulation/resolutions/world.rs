//! Everybody who takes part: applications that resolve targets, an operator, resolvers, and the network.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use tracing::debug;

use super::{
    mesh::Mesh,
    model::{Model, Resolution, Rules},
    quiet::Quiet,
    spec::{Type, address},
};
use crate::{
    base::WatchId,
    config::{ApiType, Target},
    control_plane::session::Held,
    engine::{
        Input, ResolutionChange, Settings,
        simulation::{
            network::{Network, NetworkEvent},
            script::Fault,
            seeds::family,
            setup::{NetworkConditions, Setup},
            stream_rules::Due,
        },
    },
    resolve::{Addresses, LookupId},
};

/// How the world behaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorldConfig {
    pub(super) rules: Rules,
    pub(super) conditions: NetworkConditions,
    /// How long the server may be silent on a type.
    pub(super) longest_hold: Duration,
    /// How long a deleted cluster survives.
    pub(super) grace: Duration,
}

pub(super) struct World {
    pub(super) network: Network<Event>,
    pub(super) mesh: Mesh,
    pub(super) model: Model,
    pub(super) dns: BTreeMap<String, Dns>,
    config: WorldConfig,
    held: Held,
    /// The end of the rest of each type, before which it is not held again.
    rests: BTreeMap<Type, Instant>,
    watches: u64,
    healed: bool,
}

/// What a host's name leads to.
#[derive(Debug, Default)]
pub(super) struct Dns {
    /// The generation of its addresses.
    pub(super) generation: u32,
    /// Whether lookups of the host fail.
    pub(super) broken: bool,
}

pub(super) enum Event {
    /// The server sends a type again.
    Release(Type),
    /// The server can be reached again.
    Up,
    Answer(LookupId, String),
}

impl World {
    pub(super) fn new(seed: u64, config: WorldConfig) -> Self {
        let settings = Settings { deletion_grace: config.grace, ..Settings::default() };
        // The incremental variant may report the removal of routes before the listener that no longer names them.
        let is_delta = !config.rules.sound && fastrand::Rng::with_seed(seed ^ 0xde17a).bool();
        let api_type = match is_delta {
            true => ApiType::AggregatedDeltaGrpc,
            false => ApiType::AggregatedGrpc,
        };
        let setup = Setup::of_one(seed, family().plain(), api_type);
        let mut network = Network::new(Setup { settings, conditions: config.conditions, ..setup });
        // What is accepted is checked by what is published.
        network.servers[0].due = |_| Due::Either;
        let mut mesh = Mesh::default();
        mesh.change(&mut network.servers[0].store, &mut network.random, config.rules.sound);
        Self {
            network,
            mesh,
            model: Model { rules: config.rules, ..Model::default() },
            dns: ["h0", "h1", "h2"].map(|host| (host.to_owned(), Dns::default())).into(),
            config,
            held: Held::none(),
            rests: BTreeMap::new(),
            watches: 0,
            healed: false,
        }
    }

    /// Returns the number of publications of each kind.
    pub(super) fn run(mut self) -> BTreeMap<&'static str, u64> {
        self.resolve();
        for _ in 0..self.network.random.usize(20..100) {
            self.act();
            let pause = [0, 5, 50, 1_000, 20_000][self.network.random.usize(0..5)];
            let pause = self.network.random.u64(0..=pause);
            self.pass(Duration::from_millis(pause));
        }
        self.heal();
        // The longest backoff, the does-not-exist time, the longest delay of an answer, and that of what is looked up; and the
        // grace of what is needed by one thing after the other.
        self.pass(Duration::from_secs(150 + 15 + 15 + 60) + 3 * self.config.grace);
        Quiet::of(&mut self).check();
        self.model.counts
    }

    /// One thing that somebody does.
    fn act(&mut self) {
        let rules = self.config.rules;
        match self.network.random.u32(0..100) {
            0..12 => self.resolve(),
            12..18 => self.end(),
            18..26 => self.subscribe_cluster(),
            26..32 => self.unsubscribe_cluster(),
            32..35 => self.look_up_again(),
            35..38 => self.renumber(),
            38..68 => self.change(),
            68..84 => self.hold(),
            84..91 if rules.faults => self.network.cut(0),
            91..94 if rules.faults => self.go_down(),
            94..97 if rules.faults && !rules.sound => self.inject_fault(),
            _ => {}
        }
    }

    fn resolve(&mut self) {
        self.watches += 1;
        let watch_id = WatchId::new(self.watches);
        let name = format!("t{}", self.network.random.u32(0..3));
        let target = Target::new(format!("xds:///{name}"));
        let (target, authority) = match self.network.random.u32(0..3) {
            0 => (target.with_authority("other"), "other".to_owned()),
            _ => (target, name.clone()),
        };
        debug!(at = ?self.network.at(), ?watch_id, %target, authority, "resolve");
        self.model.resolutions.insert(watch_id, Resolution::new(name, authority));
        let now = self.network.now;
        self.network.engine.resolve(watch_id, &target, now);
    }

    fn end(&mut self) {
        if let Some(watch_id) = self.model.any_watch(&mut self.network.random) {
            debug!(at = ?self.network.at(), ?watch_id, "end");
            self.model.resolutions.remove(&watch_id);
            let now = self.network.now;
            self.network.engine.unsubscribe(watch_id, now);
        }
    }

    fn subscribe_cluster(&mut self) {
        let name = format!("k{}", self.network.random.u32(0..8));
        let Some(watch_id) = self.model.any_watch(&mut self.network.random) else { return };
        let Some(resolution) = self.model.resolutions.get_mut(&watch_id) else { return };
        if resolution.held.insert(name.clone()) {
            debug!(at = ?self.network.at(), ?watch_id, name, "hold a cluster");
            let now = self.network.now;
            self.network.engine.change_resolution(watch_id, ResolutionChange::Subscribe(&name), now);
        }
    }

    fn unsubscribe_cluster(&mut self) {
        let Some(watch_id) = self.model.any_watch(&mut self.network.random) else { return };
        let Some(resolution) = self.model.resolutions.get_mut(&watch_id) else { return };
        if let Some(name) = resolution.held.pop_first() {
            debug!(at = ?self.network.at(), ?watch_id, name, "release a cluster");
            let now = self.network.now;
            self.network.engine.change_resolution(watch_id, ResolutionChange::Unsubscribe(&name), now);
        }
    }

    fn look_up_again(&mut self) {
        if let Some(watch_id) = self.model.any_watch(&mut self.network.random) {
            let now = self.network.now;
            self.network.engine.change_resolution(watch_id, ResolutionChange::LookUpAgain, now);
        }
    }

    /// A host gets other addresses, or becomes unknown for a while, or for good.
    fn renumber(&mut self) {
        let random = &mut self.network.random;
        let host = random.usize(0..self.dns.len());
        let breaks = random.u32(0..3) == 0 && self.config.rules.faults && !self.config.rules.sound;
        if let Some(dns) = self.dns.values_mut().nth(host) {
            dns.generation += 1;
            dns.broken = breaks;
        }
    }

    /// The operator changes the mesh; wild ones leave some of it sound.
    fn change(&mut self) {
        let at = self.network.at();
        let Network { servers, random, .. } = &mut self.network;
        let changes = self.mesh.change(&mut servers[0].store, random, self.config.rules.sound);
        debug!(?at, ?changes, "change");
        self.network.serve(0);
    }

    /// The server is silent on a type for a while, so that what belongs together comes apart.
    fn hold(&mut self) {
        let ty = Type::ALL[self.network.random.usize(0..Type::ALL.len())];
        let now = self.network.now;
        if self.held.holds(ty.url()) || self.rests.get(&ty).is_some_and(|until| now < *until) {
            return;
        }
        let longest = self.config.longest_hold.as_millis() as u64;
        let time = Duration::from_millis(self.network.random.u64(0..longest));
        debug!(at = ?self.network.at(), ?ty, ?time, "be silent");
        self.held.hold(ty.url());
        self.network.hold(0, self.held.clone());
        self.network.plan(time, Event::Release(ty));
        // Without a rest, a type could be held for longer than any grace by one hold after the other.
        self.rests.insert(ty, now + time + REST);
    }

    /// The server sends garbage, a response of an unknown type, or the last response once more.
    fn inject_fault(&mut self) {
        let fault = [Fault::RandomBytes, Fault::RandomBytes, Fault::Repeat][self.network.random.usize(0..3)];
        self.network.inject_fault(0, fault);
    }

    fn go_down(&mut self) {
        self.network.servers[0].is_closed = true;
        let time = Duration::from_millis(self.network.random.u64(0..100_000));
        self.network.plan(time, Event::Up);
    }

    fn heal(&mut self) {
        debug!(at = ?self.network.at(), "heal");
        self.healed = true;
        self.held = Held::none();
        self.network.faulty = false;
        self.network.servers[0].is_closed = false;
        self.network.hold(0, Held::none());
    }

    /// Lets time pass, with everything that happens in it.
    fn pass(&mut self, time: Duration) {
        let until = self.network.now + time;
        while let Some(event) = self.network.poll(until) {
            let at = self.network.at();
            match event {
                NetworkEvent::Published(watch_id, observed) => {
                    let shown = Model::read(&observed, &self.mesh);
                    debug!(?at, ?watch_id, ?shown, "published");
                    self.model.on_published(watch_id, shown, &self.mesh);
                }
                NetworkEvent::Lookup(lookup, host) => self.look_up(lookup, host),
                NetworkEvent::Delivered(..) | NetworkEvent::Answered(_) | NetworkEvent::Settled => {}
                NetworkEvent::Due(Event::Release(ty)) => {
                    self.held.release(ty.url());
                    self.network.hold(0, self.held.clone());
                }
                NetworkEvent::Due(Event::Up) => self.network.servers[0].is_closed = false,
                NetworkEvent::Due(Event::Answer(lookup, host)) => self.answer(lookup, &host),
            }
        }
    }

    /// The answer comes at once, late, or never.
    fn look_up(&mut self, lookup: LookupId, host: String) {
        let wild = self.config.rules.faults && !self.config.rules.sound && !self.healed;
        let longest = match self.network.random.u32(0..10) {
            0 if wild => return,
            1 if wild => 30_000,
            2 if !self.healed => 3_000,
            _ => 50,
        };
        let time = Duration::from_millis(self.network.random.u64(0..longest));
        self.network.plan(time, Event::Answer(lookup, host));
    }

    fn answer(&mut self, lookup: LookupId, host: &str) {
        let Dns { generation, broken } = self.dns[host];
        // Not after the end of faults: what is checked then depends on lookups that succeed.
        let fails = self.config.rules.faults && !self.config.rules.sound && !self.healed;
        let result = if broken || (fails && self.network.random.u32(0..5) == 0) {
            Err("no such host".to_owned())
        } else {
            let ip: IpAddr = address(host, generation);
            let ttl = Duration::from_secs(self.network.random.u64(0..60));
            Ok(Addresses::new([ip]).with_ttl(ttl))
        };
        let now = self.network.now;
        self.network.engine.handle_input(Input::Resolved { lookup, result }, now);
    }
}

/// How long the server sends a type before it withholds it again: long enough for what was held.
const REST: Duration = Duration::from_millis(200);
