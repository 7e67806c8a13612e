//! The participants: applications, operators, servers, and the network.

use std::{collections::BTreeMap, time::Duration};

use tracing::debug;

use super::{
    family::Family,
    keys::{AUTHORITIES, ResourceId},
    model::Model,
    network::{Network, NetworkEvent},
    script::{Operation, Script, ServerMode, Servers, Text, Ty},
    setup::{NetworkConditions, Setup},
};
use crate::{
    base::WatchId,
    config::{ApiType, AuthorityBuilder, Bootstrap, Node, Server, ServerBuilder},
    engine::{Selection, Settings},
};

pub(super) struct World {
    network: Network,
    model: Model,
    servers: Servers,
    /// Everything of a type may be watched.
    whole: bool,
    /// And it has names of authorities.
    shared: bool,
    texts: u64,
    watches: u64,
}

impl World {
    /// The world of a script.
    pub(super) fn new(script: &Script, family: &Family) -> Self {
        match script.servers {
            Servers::Several => Self::of_several(script.seed, family),
            Servers::One => Self::of_one(script.seed, family),
        }
    }

    /// A world with one server of the state of the world that has no resources yet.
    fn of_one(seed: u64, family: &Family) -> Self {
        let has_initial = family.has_initial_resources(seed);
        let family = family.clone().for_one_server();
        let names = Ty::ALL
            .into_iter()
            .flat_map(|ty| (0..NAMES_OF_ONE).map(move |name| ResourceId::of_one(ty, name)));
        let initial_resources = ResourceId::initial(names.filter(|_| has_initial));
        let mut setup = Setup::of_one(seed, family, ApiType::AggregatedGrpc);
        setup.settings = Settings { initial_resources, ..setup.settings };
        let network = Network::new(setup);
        let (servers, model) = (Servers::One, Model::default());
        Self { network, model, servers, whole: true, shared: false, texts: 0, watches: 0 }
    }

    /// A world with servers, authorities and resources by chance.
    fn of_several(seed: u64, family: &Family) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let whole = random.bool();
        let servers: Vec<_> = (1..=SERVERS).map(|port| server(port, &mut random)).collect();
        let shared = whole && family.shares_names(seed);
        // Where names are shared, all authorities have the same server: a member that two servers have is shown as one of them has it.
        let lists = lists(&mut random);
        let lists = if shared { vec![vec![0]; AUTHORITIES.len()] } else { lists };
        let bootstrap = bootstrap(&servers, &lists, &mut random);
        let built = servers.into_iter().map(|server| server.build().expect("it is valid"));
        let behavior = |id, server: &Server| {
            family.server_behavior((seed, id), server.api_type.is_some_and(ApiType::is_delta))
        };
        let built = built.enumerate().map(|(id, server)| {
            let behavior = behavior(id, &server);
            debug!(id, ?server.api_type, ?behavior, "server");
            (behavior, server)
        });
        let initial = ResourceId::all((whole, shared)).filter(|_| family.has_initial_resources(seed));
        let network = Network::new(Setup {
            seed,
            family: family.clone(),
            conditions: NetworkConditions::FAULTY,
            bootstrap,
            settings: Settings { initial_resources: ResourceId::initial(initial), ..Settings::default() },
            servers: built.collect(),
            lists,
        });
        let mut model = Model::default();
        model.shared = shared;
        let servers = Servers::Several;
        let mut world = Self { network, model, servers, whole, shared, texts: 0, watches: 0 };
        for _ in 0..random.usize(0..20) {
            let (servers, authority, name) = (random.u8(..) | random.u8(..), random.u8(..), random.u8(..));
            let ty = if random.bool() { Ty::Full } else { Ty::Part };
            world.change(servers, (ty, authority, name), Text::Good);
        }
        world
    }

    /// Returns the number of events of each kind.
    pub(super) fn play(mut self, operations: &[Operation]) -> BTreeMap<&'static str, u64> {
        for operation in operations {
            self.perform(operation);
            self.pass(Duration::ZERO);
        }
        self.heal(0);
        self.model.counts
    }

    fn perform(&mut self, operation: &Operation) {
        debug!(at = ?self.network.at(), ?operation, "perform");
        let count = self.network.servers.len();
        let server = |number: u8| usize::from(number) % count;
        match *operation {
            Operation::Watch { ty, authority, name } => self.watch(self.key((ty, authority, name))),
            Operation::WatchAll if self.whole => self.watch_all(),
            Operation::WatchAll => {}
            Operation::Unwatch(number) => {
                if let Some(watch_id) = self.model.end_watch(number) {
                    self.network.engine.unsubscribe(watch_id, self.network.now);
                }
            }
            Operation::Change { servers, ty, authority, name, text } => {
                self.change(servers, (ty, authority, name), text);
            }
            Operation::ChangeAtOnce(ref changes) => self.change_at_once(changes),
            Operation::ToggleAccept(number) => {
                let server = &mut self.network.servers[server(number)];
                server.is_closed = !server.is_closed;
            }
            Operation::SetMode(number, mode) => self.network.set_mode(server(number), mode),
            Operation::Cut(number) => self.network.cut(server(number)),
            Operation::Restart(number, past) => self.restart(server(number), past),
            Operation::Fault(number, fault) => self.network.inject_fault(server(number), fault),
            Operation::Pass(length, part) => self.pass(Operation::pause(length, part)),
            Operation::Heal(away) => self.heal(away),
        }
    }

    /// The resource of these numbers.
    fn key(&self, (ty, authority, name): (Ty, u8, u8)) -> ResourceId {
        match self.servers {
            Servers::Several => ResourceId::of((ty, authority, name), (self.whole, self.shared)),
            Servers::One => ResourceId::of_one(ty, name % NAMES_OF_ONE),
        }
    }

    fn next_watch_id(&mut self) -> WatchId {
        self.watches += 1;
        WatchId::new(self.watches)
    }

    fn watch(&mut self, key: ResourceId) {
        let watch_id = self.next_watch_id();
        debug!(?watch_id, ?key, "watch");
        let names = Selection::One(key.name.as_str().into());
        let ty = key.ty.resource();
        self.model.on_watch(watch_id, key);
        self.network.engine.subscribe(watch_id, ty, names, self.network.now);
    }

    fn watch_all(&mut self) {
        let watch_id = self.next_watch_id();
        debug!(?watch_id, "watch everything");
        self.model.on_watch_all(watch_id);
        self.network.engine.subscribe(watch_id, Ty::Full.resource(), Selection::All, self.network.now);
    }

    fn change(&mut self, servers: u8, numbers: (Ty, u8, u8), text: Text) {
        let key = self.key(numbers);
        self.texts += 1;
        for id in (0..self.network.servers.len()).filter(|id| servers & (1 << id) != 0) {
            self.set(id, &key, text.on(id, self.texts));
        }
    }

    /// Several resources change before the servers look.
    fn change_at_once(&mut self, changes: &[(Ty, u8, Text)]) {
        for id in 0..self.network.servers.len() {
            for (ty, name, text) in changes {
                let key = self.key((*ty, 0, *name));
                self.texts += 1;
                let text = text.on(id, self.texts);
                self.network.servers[id].set((key.ty, &key.name), text.clone());
                self.model.on_change(id, &key, text);
            }
            self.network.serve(id);
        }
    }

    /// A server starts again, with what it had at some time.
    fn restart(&mut self, server: usize, past: u8) {
        self.network.cut(server);
        self.network.servers[server].restore(past);
        self.model.on_restart(server, &self.network.servers[server]);
    }

    /// All faults end but for some servers, which stay away; and after a long time everything is checked.
    fn heal(&mut self, away: u8) {
        self.network.faulty = false;
        for id in 0..self.network.servers.len() {
            if self.network.servers[id]
                .open
                .as_ref()
                .is_some_and(|open| open.is_inconsistent || open.is_unresponsive)
            {
                self.network.cut(id);
            }
            let mode = if away & (1 << id) == 0 { ServerMode::Normal } else { ServerMode::Refusing };
            self.network.servers[id].is_closed = false;
            self.network.set_mode(id, mode);
        }
        if self.servers == Servers::One {
            // The longest backoff, the does-not-exist time, and the longest delay of an answer.
            self.pass(Duration::from_secs(150 + 15 + 15));
            self.model.check_convergence(&self.network);
            self.network.faulty = true;
            return;
        }
        // The longest backoff, the does-not-exist time of a server that is suspected (twice, since a server may take over
        // only then), and the longest delay of an answer.
        self.pass(Duration::from_secs(150 + 30 + 30 + 20));
        if self.network.servers.iter().any(|server| server.resends_rejected()) {
            // A resource that could not be requested again and is not sent is removed after four does-not-exist times of other responses.
            self.pass(Duration::from_secs(4 * 30));
        }
        if Ty::ALL.iter().any(|ty| self.network.servers.iter().any(|server| !server.supports(*ty))) {
            // The type for which streams end is found by four of them, and another one has to last for long enough after that.
            self.pass(Duration::from_secs(5 * 150));
        }
        self.wake();
        self.model.check_convergence(&self.network);
        self.network.faulty = true;
    }

    /// Something changes on servers that hold answers back until then: twice, since one may be held back again at once, and
    /// for each part of a change where parts are held back one after the other.
    fn wake(&mut self) {
        let silent: Vec<_> = (0..self.network.servers.len())
            .filter(|id| self.network.servers[*id].withholds_responses())
            .collect();
        if silent.is_empty() {
            return;
        }
        let splits = silent.iter().any(|id| self.network.servers[*id].settings.max_per_response.is_some());
        for _ in 0..if splits { 8 } else { 2 } {
            for (id, ty) in silent.iter().flat_map(|id| Ty::ALL.map(|ty| (*id, ty))) {
                self.texts += 1;
                let key = ResourceId { ty, authority: 0, name: "other".to_owned() };
                self.set(id, &key, Text::Good.on(id, self.texts));
            }
            self.pass(Duration::from_secs(40));
        }
    }

    fn set(&mut self, server: usize, key: &ResourceId, text: Option<String>) {
        self.network.servers[server].set((key.ty, &key.name), text.clone());
        self.model.on_change(server, key, text);
        self.network.serve(server);
    }

    /// Lets time pass, with everything that happens in it.
    fn pass(&mut self, time: Duration) {
        let until = self.network.now + time;
        while let Some(event) = self.network.poll(until) {
            match event {
                NetworkEvent::Published(watch_id, observed) => {
                    self.model.on_notify(watch_id, &observed, &self.network)
                }
                NetworkEvent::Delivered(server, response, due) => {
                    self.model.on_delivered(server, &response, due, &self.network);
                }
                NetworkEvent::Answered(answered) => self.model.on_answered(answered),
                NetworkEvent::Settled => self.model.check_step(&self.network),
                NetworkEvent::Lookup(..) => unreachable!("no target is resolved"),
                NetworkEvent::Due(never) => match never {},
            }
        }
    }
}

fn server(port: u8, random: &mut fastrand::Rng) -> ServerBuilder {
    let features = ["ignore_resource_deletion", "fail_on_data_errors", "resource_timer_is_transient_error"];
    let features: Vec<_> = features.into_iter().filter(|_| random.u32(0..4) == 0).collect();
    let server = Server::new(format!("127.0.0.1:{port}")).insecure().features(features);
    server.api_type(if random.bool() { ApiType::AggregatedDeltaGrpc } else { ApiType::AggregatedGrpc })
}

/// The servers of each authority: shared, and in different orders.
fn lists(random: &mut fastrand::Rng) -> Vec<Vec<usize>> {
    if random.bool() {
        return vec![vec![0, 1], vec![1, 2], vec![1]];
    }
    let mut list = || {
        let mut all: Vec<_> = (0..usize::from(SERVERS)).collect();
        random.shuffle(&mut all);
        all.truncate(random.usize(1..=all.len()));
        all
    };
    AUTHORITIES.iter().map(|_| list()).collect()
}

fn bootstrap(servers: &[ServerBuilder], lists: &[Vec<usize>], random: &mut fastrand::Rng) -> Bootstrap {
    let mut bootstrap = Bootstrap::builder().node(Node::new("n"));
    for (name, list) in AUTHORITIES.iter().zip(lists) {
        let mut authority = AuthorityBuilder::default();
        for id in list {
            match name {
                None => bootstrap = bootstrap.server(servers[*id].clone()),
                Some(_) => authority = authority.server(servers[*id].clone()),
            }
        }
        if random.u32(0..6) == 0 {
            authority = authority.fallback_on_reachability_only();
        }
        if let Some(name) = name {
            bootstrap = bootstrap.authority(*name, authority);
        }
    }
    bootstrap.build().expect("it is valid")
}

const SERVERS: u8 = 3;
/// How many names a world with one server has of each type.
const NAMES_OF_ONE: u8 = 8;
