//! Backends that are up or down, the connections to them, and a balancer that is told of these.

mod extremes;
mod rotation;
mod settled;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use prost::Message;

use self::extremes::Extremes;
use super::{
    choices::Choices,
    configs::{self, HEADER, LEAVES, PORTS, TARGETS, address},
    streams::{Call, Peers},
};
use crate::{
    balance::{
        balancer::Balancer,
        breaker::Breakers,
        clusters::ClusterConfigs,
        command::{Command, ConnectionId},
        connectivity::Connectivity,
        identity::Destination,
        load::Load,
        pick_args::{CallAttributes, PickArgs},
        pick_first::PickFirstSettings,
        picker::{ClusterPicker, Pick},
        session_endpoints::HostOverride,
        settings::BalancerSettings,
        stream_queue::streams::Streams,
        weights::LoadReport,
    },
    pb::xds::data::orca::v3::OrcaLoadReport,
    resolve::RouteQuery,
};

/// The handle of a connection is its id.
pub(super) struct World<'a> {
    pub(super) balancer: Balancer<ConnectionId>,
    pub(super) breakers: Arc<Breakers>,
    pub(super) pickers: BTreeMap<Arc<str>, Arc<ClusterPicker<ConnectionId>>>,
    pub(super) choices: Choices<'a>,
    random: fastrand::Rng,
    extremes: Extremes,
    pub(super) now: Instant,
    up: BTreeSet<SocketAddr>,
    pub(super) attempts: BTreeMap<ConnectionId, Destination>,
    /// When attempts began.
    pub(super) begun: BTreeMap<ConnectionId, Instant>,
    /// Attempts that begin at a time.
    pub(super) max_connects: usize,
    pub(super) connections: BTreeMap<ConnectionId, Destination>,
    /// The connections that attempts are to replace.
    pub(super) replaced: BTreeMap<ConnectionId, ConnectionId>,
    /// The connections that were made before the last rotation.
    outdated: BTreeSet<ConnectionId>,
    /// Those whose load is watched.
    watches: BTreeSet<ConnectionId>,
    /// Those that the balancer has ended, whose events may come late.
    ended: Vec<ConnectionId>,
    pub(super) configs: ClusterConfigs,
    /// Calls have sessions.
    pub(super) has_sessions: bool,
    /// The addresses of each leaf's policies before, which are used until the current one has connected or failed (CH3.13).
    pub(super) retiring: BTreeMap<Arc<str>, BTreeSet<SocketAddr>>,
    /// In the order in which they came.
    pub(super) calls: Vec<Call>,
    pub(super) peers: Peers,
    /// The backends that fail all calls.
    sick: BTreeSet<SocketAddr>,
    /// The ejected endpoints of each leaf, when it was checked last.
    pub(super) ejected: BTreeMap<&'static str, BTreeSet<Vec<SocketAddr>>>,
    /// The same, when it was checked last while no sweep was running: pickers follow the last slice of a sweep.
    pub(super) ejected_before: BTreeMap<&'static str, BTreeSet<Vec<SocketAddr>>>,
    /// The counts of all endpoints that a call was sent to.
    pub(super) loads: Vec<Load>,
    /// When anything but time changed last.
    pub(super) quiet_since: Instant,
    pub(super) outcomes: BTreeMap<&'static str, u64>,
}

impl<'a> World<'a> {
    #[allow(clippy::disallowed_methods, reason = "its clock begins some time")]
    pub(super) fn new(seed: u64, mut choices: Choices<'a>) -> Self {
        let peers = Peers::default();
        let mut random = fastrand::Rng::with_seed(seed);
        let max_connects = [1, 2, 4, 8][random.usize(..4)];
        let sweep_slice = 1 << random.u8(..10);
        let extremes = Extremes::draw(&mut random);
        let pick_first = PickFirstSettings {
            on_full: peers.on_full(),
            backoff: extremes.backoff.clone(),
            ..PickFirstSettings::default()
        };
        let settings = BalancerSettings {
            pick_first,
            max_concurrent_connects: max_connects,
            sweep_slice,
            ..BalancerSettings::with_seed(seed)
        };
        let (now, breakers) = (Instant::now(), Arc::<Breakers>::default());
        let mut some = || (1..=PORTS).filter(|_| choices.bool()).map(address).collect();
        let (up, sick) = (some(), some());
        let mut balancer = Balancer::new(settings, breakers.clone());
        let has_sessions = choices.below(4) > 0;
        balancer.set_sessions(has_sessions, now);
        Self {
            balancer,
            breakers,
            pickers: BTreeMap::new(),
            choices,
            random,
            extremes,
            now,
            up,
            attempts: BTreeMap::new(),
            begun: BTreeMap::new(),
            max_connects,
            connections: BTreeMap::new(),
            replaced: BTreeMap::new(),
            outdated: BTreeSet::new(),
            watches: BTreeSet::new(),
            ended: Vec::new(),
            configs: ClusterConfigs::default(),
            has_sessions,
            retiring: BTreeMap::new(),
            calls: Vec::new(),
            peers,
            sick,
            ejected: BTreeMap::new(),
            ejected_before: BTreeMap::new(),
            loads: Vec::new(),
            quiet_since: now,
            outcomes: BTreeMap::new(),
        }
    }

    /// Does something; false at the end of the script.
    pub(super) fn step(&mut self) -> bool {
        if !self.choices.next_operation() {
            return false;
        }
        match self.choices.below(28) {
            0 => self.reconfigure(),
            1..=4 => self.end_attempt(),
            5 => self.lose(),
            6 => {
                let address = address(1 + self.choices.below(usize::from(PORTS)) as u16);
                if !self.up.remove(&address) {
                    self.up.insert(address);
                }
            }
            7..=8 => {
                let longest = if self.choices.below(6) == 0 { 250 } else { 5 };
                let seconds = 1 + self.choices.below(longest) as u64;
                self.wait(Duration::from_secs(seconds));
            }
            9 => {
                let place = self.choices.below(self.calls.len().min(255) + 1);
                self.end_calls(place);
            }
            10 => self.late(),
            11 => self.balancer.reset_backoff(self.now),
            15 => self.report(),
            12 => self.crash(),
            17 => self.set_limit(),
            18 => self.close(),
            19 => self.respond(),
            13 => {
                let address = address(1 + self.choices.below(usize::from(PORTS)) as u16);
                if !self.sick.remove(&address) {
                    self.sick.insert(address);
                }
            }
            14 | 16 | 24 | 25 => {
                let running = self.calls.len();
                (0..8).for_each(|_| self.pick());
                self.end_calls(running);
            }
            20 if self.choices.below(8) == 0 => {
                self.has_sessions = !self.has_sessions;
                self.balancer.set_sessions(self.has_sessions, self.now);
            }
            21..=23 => self.pick_in_session(),
            26 => self.rotate(),
            _ => self.pick(),
        }
        self.drain();
        self.check();
        true
    }

    fn reconfigure(&mut self) {
        let mut next = self.configs.clone();
        configs::change(&mut next, &mut self.choices);
        self.extremes.cap_rings(&mut next);
        let kept = self.must_stay(&next);
        self.note_switches(&next);
        self.configs = next.clone();
        self.quiet_since = self.now;
        self.balancer.replace(next, self.now);
        self.drain();
        for connection in kept {
            assert!(self.connections.contains_key(&connection), "{connection:?} was not kept");
        }
    }

    fn note_switches(&mut self, next: &ClusterConfigs) {
        for (name, leaf) in &self.configs.leaves {
            let policies = (&leaf.policy.policy, &next.leaves[name].policy.policy);
            if mem::discriminant(policies.0) != mem::discriminant(policies.1) {
                self.retiring.entry(name.clone()).or_default().extend(configs::addresses(leaf));
            }
        }
    }

    fn end_attempt(&mut self) {
        if let Some(connection) = self.choices.one_of(self.attempts.keys().copied()) {
            self.decide(connection);
        }
    }

    /// An attempt succeeds if its backend is up.
    fn decide(&mut self, connection: ConnectionId) {
        let Some(destination) = self.attempts.remove(&connection) else { return };
        let address = destination.address;
        self.quiet_since = self.now;
        if self.up.contains(&address) {
            self.connections.insert(connection, destination);
            let streams = self.peers.accept(connection, address);
            self.balancer.on_connected(connection, streams, self.now);
        } else {
            self.balancer.on_failed(connection, format!("{address}: refused").into(), self.now);
        }
    }

    fn lose(&mut self) {
        if let Some(connection) = self.choices.one_of(self.connections.keys().copied()) {
            self.connections.remove(&connection);
            self.quiet_since = self.now;
            self.peers.close(connection);
            self.balancer.on_lost(connection, self.now);
        }
    }

    /// A backend goes down with all its connections.
    fn crash(&mut self) {
        let Some(address) = self.choices.one_of(self.connections.values().map(|it| it.address)) else {
            return;
        };
        self.up.remove(&address);
        let lost: Vec<_> =
            self.connections.iter().filter(|it| it.1.address == address).map(|it| *it.0).collect();
        self.quiet_since = self.now;
        for connection in lost {
            self.connections.remove(&connection);
            self.peers.close(connection);
            self.balancer.on_lost(connection, self.now);
        }
    }

    /// What was ended may have come to something in the meantime, which changes nothing.
    fn late(&mut self) {
        let Some(connection) = self.choices.one_of(self.ended.iter().copied()) else { return };
        match self.choices.below(3) {
            0 => self.balancer.on_connected(connection, Streams::new(connection, 1), self.now),
            1 => self.balancer.on_failed(connection, "late".into(), self.now),
            _ => self.balancer.on_lost(connection, self.now),
        }
    }

    /// A call or an endpoint reports a load.
    fn report(&mut self) {
        let named = self.choices.below(10) as f64;
        let load = OrcaLoadReport {
            named_metrics: [("queue".to_owned(), named)].into(),
            cpu_utilization: 0.1 + self.choices.below(10) as f64,
            rps_fractional: 1.0 + self.choices.below(100) as f64,
            ..OrcaLoadReport::default()
        };
        let Ok(Some(report)) = LoadReport::decode(&load.encode_to_vec()) else { return };
        if let Some(call) = self.calls.last() {
            call.attempt.on_report(&report, self.now);
        }
        // A stream may report after it was ended.
        if let Some(connection) = self.choices.one_of(self.watches.iter().copied()) {
            self.balancer.on_load(connection, &report, self.now);
        }
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..10_000 {
            let Some(at) = self.balancer.poll_timeout().filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(at);
            let connected = LEAVES.map(|name| self.connected(&name.into()));
            self.balancer.handle_timeout(self.now);
            self.drain();
            self.check_ejections(Some(connected));
            // Anything may happen between the slices of a sweep.
            let is_sweeping = |name: &&str| self.balancer.ejections(name).is_some_and(|it| it.is_sweeping);
            if LEAVES.iter().any(is_sweeping) && self.random.u8(..8) == 0 {
                *self.outcomes.entry("between slices").or_default() += 1;
                self.now = end.min(self.now + Duration::from_millis(1));
                return;
            }
        }
        panic!(
            "there is no end of deadlines: {:?} at {:?}, {:?}",
            self.balancer.poll_timeout(),
            self.now,
            self.configs
        );
    }

    /// Calls end, and succeed if their backend is not sick. Some never had a stream.
    fn end_calls(&mut self, running: usize) {
        let ended = self.calls.split_off(running.min(self.calls.len()));
        self.end_each(ended);
    }

    pub(super) fn end_each(&mut self, ended: Vec<Call>) {
        for Call { mut attempt, stream } in ended {
            if stream.is_running() && self.random.u8(..8) > 0 {
                attempt.on_stream();
                if !self.sick.contains(&attempt.endpoint.address) {
                    attempt.on_ok();
                    attempt.endpoint.connections.oldest().on_complete();
                }
            }
            drop(stream);
            self.poll_waiting();
        }
    }

    fn pick(&mut self) {
        for target in TARGETS {
            let Some(pick) = self.picked(target) else { continue };
            let (outcome, is_wrong) = match &pick {
                Pick::Complete(attempt) => ("complete", self.is_wrong_endpoint(target, attempt)),
                Pick::Queue => ("queue", self.is_wrong_queue(target)),
                Pick::QueueAndConnect => ("connect", self.is_wrong_queue(target)),
                Pick::Fail(_) => ("fail", self.is_wrong_failure(target)),
                Pick::Drop(..) => ("drop", self.is_wrong_drop(target)),
                Pick::FailAs(..) | Pick::Broken(_) => ("custom", Some("there is no such policy".to_owned())),
                Pick::Unknown(_) => ("unknown", Some("the cluster is configured".to_owned())),
            };
            assert_eq!(is_wrong, None, "{target}: {pick:?}");
            let is_waiting = matches!(&pick, Pick::Queue);
            assert!(!is_waiting || self.is_busy(), "{target}: a call waits for nothing");
            *self.outcomes.entry(outcome).or_default() += 1;
            self.follow(target, pick);
        }
    }

    /// What a call does after its pick.
    fn follow(&mut self, target: &str, pick: Pick<ConnectionId>) {
        match pick {
            Pick::Complete(attempt) => {
                let load = &attempt.endpoint.load;
                if !self.loads.contains(load) {
                    self.loads.push(load.clone());
                }
                self.begin(attempt);
            }
            Pick::QueueAndConnect => self.balancer.connect(target, self.now),
            Pick::Queue
            | Pick::Fail(_)
            | Pick::Drop(..)
            | Pick::FailAs(..)
            | Pick::Broken(_)
            | Pick::Unknown(_) => {}
        }
    }

    /// Picks for a call with a cookie.
    fn pick_in_session(&mut self) {
        for target in TARGETS {
            let some = 1 + self.choices.below(3);
            let cookie: Box<[SocketAddr]> =
                (0..some).map(|_| address(1 + self.choices.below(usize::from(PORTS)) as u16)).collect();
            let connected = self.connected_host(target, &cookie);
            let Some((pick, list)) = self.picked_for(target, Some(&cookie)) else { continue };
            let (outcome, is_wrong) = self.judge_session((target, &cookie), (&pick, list.as_deref()));
            assert_eq!(is_wrong, None, "{target}: {cookie:?} {pick:?} {list:?} {:?}", self.configs);
            let is_found = matches!(&pick, Pick::Complete(it) if cookie.contains(&it.endpoint.address));
            assert!(
                is_found || !connected || matches!(&pick, Pick::Drop(..)),
                "{target}: {cookie:?} {pick:?}"
            );
            *self.outcomes.entry(outcome).or_default() += 1;
            self.follow(target, pick);
        }
    }

    fn picked(&mut self, target: &str) -> Option<Pick<ConnectionId>> {
        self.picked_for(target, None).map(|(pick, _)| pick)
    }

    /// A pick, and the addresses of the endpoint that it hands back to the session of the call.
    fn picked_for(
        &mut self,
        target: &str,
        cookie: Option<&[SocketAddr]>,
    ) -> Option<(Pick<ConnectionId>, Option<Arc<str>>)> {
        self.drain();
        let picker = self.pickers.get(target).filter(|_| self.configs.targets.contains_key(target))?;
        let user = self.choices.below(256).to_string();
        let request = match user.len() {
            3 => RouteQuery::new("/", 0),
            _ => RouteQuery::new("/", 0).with_header(HEADER, &user),
        };
        let (mut attributes, random) = (CallAttributes::default(), &mut self.random);
        attributes.session = cookie.map(|it| {
            let mut session = Box::new(HostOverride::new(it.into()));
            session.begin_pick(self.now);
            session
        });
        let pick = picker.pick(&mut PickArgs { attributes: &mut attributes, random, request: &request });
        if let Some(request) = attributes.take_connect_request() {
            *self.outcomes.entry("request").or_default() += 1;
            self.balancer.connect_endpoint(&request, self.now);
            self.drain();
        }
        Some((pick, attributes.session.and_then(|it| it.picked().cloned())))
    }

    /// Takes pickers and executes commands.
    pub(super) fn drain(&mut self) {
        for connection in self.peers.take_full() {
            self.balancer.on_full(connection, self.now);
        }
        while let Some((name, picker)) = self.balancer.poll_picker(self.now) {
            self.pickers.insert(name, picker);
        }
        while let Some(command) = self.balancer.poll_command(self.now) {
            match command {
                Command::Connect { connection, destination, purpose, .. } => {
                    self.replaced.extend(purpose.replaces().map(|replaced| (connection, replaced)));
                    assert!(self.attempts.insert(connection, destination).is_none());
                    self.begun.insert(connection, self.now);
                }
                Command::Cancel { connection } => {
                    assert!(self.attempts.remove(&connection).is_some(), "it is attempted");
                    self.ended.push(connection);
                }
                Command::Drain { connection } => {
                    assert!(self.connections.remove(&connection).is_some(), "it is connected");
                    self.peers.close(connection);
                    self.ended.push(connection);
                    if self.outdated.remove(&connection) {
                        *self.outcomes.entry("outdated").or_default() += 1;
                    }
                }
                Command::WatchLoad { connection, .. } => {
                    // One of several connections may be lost after another one, before the command is executed.
                    let is_lost = self.balancer.leaf_of(connection).is_none();
                    assert!(is_lost || self.connections.contains_key(&connection), "it is connected");
                    self.watches.insert(connection);
                }
                Command::UnwatchLoad { connection } => drop(self.watches.remove(&connection)),
                Command::RequestReresolution => {}
            }
        }
        self.poll_waiting();
    }

    /// Those whose policy before has served its time.
    pub(super) fn end_retiring(&mut self) {
        let balancer = &self.balancer;
        self.retiring.retain(|name, _| balancer.leaf_connectivity(name) == Some(Connectivity::Connecting));
    }
}
