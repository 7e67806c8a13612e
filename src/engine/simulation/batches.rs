//! Consumers of batches under a virtual clock, beside a server with faults and a watch of another type: consumers that are slow, that
//! reject, stay away, vanish with their batch, and come late; that have everything, what is pushed, or names that come and go; or one
//! after the other, of resources that are not kept.
//!
//! - What is rejected is answered by a NACK, and nothing else is (`StreamRules`, by [`due`]).
//! - The other type waits for nothing.
//! - What is kept for consumers is bounded by their names, and what waits by the limit of bytes.
//! - At the end, each consumer has what the client has, and that is what the server has.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    network::{Network, NetworkEvent},
    parts::{Full, Part, message},
    script::Ty,
    seeds::{family, with_many_seeds},
    server::text_of,
    session::Response,
    setup::{NetworkConditions, Setup},
    stream_rules::{Answered, Due},
};
use crate::{
    base::WatchId,
    config::ApiType,
    control_plane::AnyResource,
    engine::{BatchAnswer, BatchOutcome, SelectedBatches, Selection, Settings, batches::ErasedBatch},
    observed::{Erase, ErasedMembers, ErasedObserved, erase},
    protocol::ServerId,
    resource::{Erased, ResourceType, Unkept},
};

#[test]
fn simulation_of_batches() {
    let mut counts = BTreeMap::new();
    let seeds = with_many_seeds("simulation_of_batches", 500, |seed| {
        for (what, count) in run(seed) {
            *counts.entry(what).or_insert(0) += count;
        }
    });
    println!("in {seeds} worlds: {counts:?}");
    let is_reached = KINDS.iter().all(|what| counts.get(what).is_some_and(|count| *count > 40));
    assert!(seeds < 500 || is_reached, "a simulation must get at what it is for: {counts:?}");
}

/// Worlds that failed once; docs/FUZZING.md has what they found.
#[test]
fn worlds_of_batches_that_failed_once() {
    for seed in [1_929, 3_881] {
        println!("world {seed}");
        run(seed);
    }
}

/// Returns the number of events of each kind.
fn run(seed: u64) -> BTreeMap<&'static str, u64> {
    let mut world = World::new(seed);
    for _ in 0..60 {
        world.step();
    }
    world.heal();
    world.check_agreement();
    world.counts
}

struct World {
    network: Network<Planned>,
    consumers: BTreeMap<WatchId, Consumer>,
    /// The members of the other type, as its watch has seen them.
    others: BTreeMap<String, String>,
    /// Changes of the other type that the watch is yet to see, with the latest time for that.
    awaited: BTreeMap<String, (String, Instant)>,
    /// The type with consumers is the one whose responses are complete, and not the other one.
    is_full: bool,
    /// The resources of the type with consumers are not kept, so that there is one consumer at a time.
    is_unkept: bool,
    /// All consumers answer in time.
    is_strict: bool,
    /// The network has no faults and the server no habits, so that there are bounds of time.
    is_calm: bool,
    /// The limit of bytes that wait.
    limit: usize,
    watches: u64,
    texts: u64,
    counts: BTreeMap<&'static str, u64>,
}

/// What the world has planned.
type Planned = (WatchId, u64);

/// An application with a store.
struct Consumer {
    habit: Habit,
    /// The names that it has subscribed to; `None` if it has everything.
    names: Option<BTreeSet<&'static str>>,
    store: BTreeMap<String, String>,
    /// The batch that it has not answered.
    batch: Option<Arc<ErasedBatch>>,
    is_complete: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// Answers within this time, and rejects what begins with `no`.
    Answers(Duration),
    /// Keeps its batch.
    StaysAway,
    /// Ends with its batch in hands, as a task that panics.
    Vanishes,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0xba7c);
        let (is_delta, is_strict, is_calm, is_full) =
            (random.bool(), random.bool(), random.bool(), random.bool());
        let is_unkept = random.u8(0..4) == 0;
        let api_type = if is_delta { ApiType::AggregatedDeltaGrpc } else { ApiType::AggregatedGrpc };
        let setup = Setup::of_one(seed, family().plain(), api_type);
        let calm = NetworkConditions::calm(Duration::from_millis(30));
        let conditions = if is_calm { calm } else { setup.conditions };
        let mut settings = Settings::default();
        if !is_strict && random.bool() {
            settings.protocol.max_waiting_bytes = WAITING_BYTES;
        }
        let limit = settings.protocol.max_waiting_bytes;
        let mut network = Network::new(Setup { conditions, settings, ..setup });
        network.servers[0].due = if is_strict { due } else { |_| Due::Either };
        let is_plain = network.servers[0].settings.behavior == Default::default();
        let mut world = Self {
            network,
            consumers: BTreeMap::new(),
            others: BTreeMap::new(),
            awaited: BTreeMap::new(),
            is_full,
            is_unkept,
            is_strict,
            is_calm: is_calm && is_plain,
            limit,
            watches: OTHER,
            texts: 0,
            counts: BTreeMap::new(),
        };
        world.begin_consumer(Habit::Answers(Duration::from_secs(4)), Selection::All);
        let (ty, now) = (if is_full { Ty::Part } else { Ty::Full }, world.network.now);
        world.network.engine.subscribe(WatchId::new(OTHER), ty.resource(), Selection::All, now);
        world.pass(Duration::from_secs(1));
        world
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_insert(0) += 1;
    }

    fn begin_consumer(&mut self, habit: Habit, names: Selection) {
        self.watches += 1;
        let watch_id = WatchId::new(self.watches);
        let subscribed = (names == Selection::Nothing).then(BTreeSet::new);
        let consumer =
            Consumer { habit, names: subscribed, store: BTreeMap::new(), batch: None, is_complete: false };
        self.consumers.insert(watch_id, consumer);
        let (ty, erase): (_, Erase) = match (self.ty(), self.is_unkept) {
            (Ty::Full, false) => (Ty::Full.resource(), erase::<Full>),
            (Ty::Part, false) => (Ty::Part.resource(), erase::<Part>),
            (Ty::Full, true) => (ResourceType::of_unkept::<Full>(), erase::<Unkept<Full>>),
            (Ty::Part, true) => (ResourceType::of_unkept::<Part>(), erase::<Unkept<Part>>),
        };
        let selected = SelectedBatches { ty, names, erase, versions: BTreeMap::new() };
        self.network.engine.subscribe_batches(watch_id, selected, self.network.now);
    }

    fn end_consumer(&mut self, watch_id: WatchId) {
        self.consumers.remove(&watch_id);
        self.network.engine.unsubscribe(watch_id, self.network.now);
    }

    fn step(&mut self) {
        match self.network.random.u8(0..23) {
            0..8 => self.change(),
            8..11 => self.change_other(),
            11 if self.consumers.len() < 4 && !self.is_unkept => {
                let habit = self.habit();
                let names = match self.network.random.u8(0..3) {
                    0 => Selection::All,
                    1 => Selection::Pushed,
                    _ => Selection::Nothing,
                };
                self.begin_consumer(habit, names);
            }
            // The first one stays, so that everything is subscribed to.
            12 if self.consumers.len() > 1 && !self.is_strict => {
                let of = self.network.random.usize(1..self.consumers.len());
                let watch_id = *self.consumers.keys().nth(of).expect("it is one of them");
                self.end_consumer(watch_id);
            }
            14..17 => self.change_names(),
            12 if self.is_unkept && !self.is_strict => {
                let before: Vec<_> = self.consumers.keys().copied().collect();
                before.into_iter().for_each(|watch_id| self.end_consumer(watch_id));
                let habit = self.habit();
                self.begin_consumer(habit, Selection::All);
                self.count("replaced");
            }
            13 if !self.is_calm => self.network.cut(0),
            _ => {
                let time = self.network.random.u64(1..20_000);
                self.pass(Duration::from_millis(time));
            }
        }
        self.pass(Duration::ZERO);
    }

    /// A consumer of names subscribes to one more, or unsubscribes from one.
    fn change_names(&mut self) {
        let random = &mut self.network.random;
        let name = ["a", "b", "c", "d", "e", "nowhere"][random.usize(0..6)];
        let mut of_names =
            self.consumers.iter_mut().filter_map(|(id, consumer)| Some((*id, consumer.names.as_mut()?)));
        let Some((watch_id, names)) = of_names.nth(random.usize(0..2)) else { return };
        let selection = Selection::One(name.into());
        let now = self.network.now;
        if names.insert(name) {
            self.network.engine.subscribe_consumer(watch_id, selection, now);
            self.count("subscribed");
        } else {
            names.remove(name);
            self.network.engine.unsubscribe_consumer(watch_id, &selection, now);
            self.count("unsubscribed");
        }
    }

    fn habit(&mut self) -> Habit {
        let random = &mut self.network.random;
        let in_time = Habit::Answers(Duration::from_millis(random.u64(0..4_000)));
        match random.u8(0..6) {
            _ if self.is_strict => in_time,
            0 => Habit::StaysAway,
            1 if !self.is_unkept => Habit::Vanishes,
            2 => Habit::Answers(Duration::from_secs(40)),
            _ => in_time,
        }
    }

    /// Some resources that consumers decide on change.
    fn change(&mut self) {
        for _ in 0..self.network.random.usize(1..4) {
            let name = ["a", "b", "c", "d", "e"][self.network.random.usize(0..5)];
            self.texts += 1;
            let text = match self.network.random.u8(0..6) {
                0 => None,
                1 => Some(format!("no {}", self.texts)),
                2 => Some("bad".to_owned()),
                _ => Some(format!("{} {}", self.texts, "x".repeat(self.network.random.usize(0..400)))),
            };
            self.set(self.ty(), name, text);
        }
        self.network.serve(0);
    }

    fn change_other(&mut self) {
        self.texts += 1;
        let text = format!("{}", self.texts);
        let ty = if self.is_full { Ty::Part } else { Ty::Full };
        self.set(ty, "other", Some(text.clone()));
        self.awaited.insert("other".to_owned(), (text, self.network.now + Duration::from_secs(1)));
        self.network.serve(0);
    }

    /// The type with consumers.
    fn ty(&self) -> Ty {
        if self.is_full { Ty::Full } else { Ty::Part }
    }

    fn set(&mut self, ty: Ty, name: &str, text: Option<String>) {
        self.network.servers[0].store.update(|tx| match &text {
            Some(text) => drop(tx.set(AnyResource::new(ty.url(), name, message(name, text)))),
            None => drop(tx.remove(ty.url(), name)),
        });
    }

    /// Lets time pass, with everything that happens in it.
    fn pass(&mut self, time: Duration) {
        let until = self.network.now + time;
        while let Some(event) = self.network.poll(until) {
            match event {
                NetworkEvent::Published(watch_id, observed) if watch_id == WatchId::new(OTHER) => {
                    let members = observed.downcast_ref::<ErasedMembers>().expect("all of it is watched");
                    let texts = members.map.iter().filter_map(|(name, member)| {
                        let erased = erase::<Full>(&member.0).or_else(|| erase::<Part>(&member.0))?;
                        let ErasedObserved::Present { resource, .. } = erased else { return None };
                        Some((name.to_string(), text_of_resource(&resource)))
                    });
                    self.others = texts.collect();
                }
                NetworkEvent::Published(watch_id, observed) => {
                    let batch = observed.downcast().expect("consumers get batches");
                    self.on_batch(watch_id, batch);
                }
                NetworkEvent::Due((watch_id, number)) => self.answer(watch_id, number),
                NetworkEvent::Answered(Answered::Rejected) => self.count("rejected"),
                NetworkEvent::Answered(_) => self.count("answered"),
                NetworkEvent::Settled => self.check(),
                NetworkEvent::Delivered(..) => {}
                NetworkEvent::Lookup(..) => unreachable!("no target is resolved"),
            }
        }
        self.check();
    }

    fn on_batch(&mut self, watch_id: WatchId, batch: Arc<ErasedBatch>) {
        self.count(if batch.is_held { "held" } else { "caught up" });
        // It may have ended while the batch was under way.
        let Some(consumer) = self.consumers.get_mut(&watch_id) else { return };
        assert!(consumer.batch.is_none(), "the next batch comes when the last one is answered");
        let names: BTreeSet<_> = batch.added.iter().map(|added| &added.name).chain(&batch.removed).collect();
        assert_eq!(names.len(), batch.added.len() + batch.removed.len(), "a name is in a batch once");
        let number = batch.number;
        consumer.is_complete |= batch.is_complete;
        consumer.batch = Some(batch);
        match consumer.habit {
            Habit::Answers(within) => {
                let delay = self.network.random.u64(0..=within.as_millis() as u64);
                self.network.plan(Duration::from_millis(delay), (watch_id, number));
            }
            Habit::StaysAway => {}
            Habit::Vanishes => self.end_consumer(watch_id),
        }
    }

    /// A consumer takes its batch into its store, but for what it rejects.
    fn answer(&mut self, watch_id: WatchId, number: u64) {
        let now = self.network.now;
        let Some(consumer) = self.consumers.get_mut(&watch_id) else { return };
        let Some(batch) = consumer.batch.take_if(|batch| batch.number == number) else { return };
        let text = text_of_resource;
        let is_bad = |text: &str| text.starts_with("no ");
        let rejected = batch.added.iter().filter(|added| batch.is_held && is_bad(&text(&added.resource)));
        let rejected: BTreeMap<_, _> = rejected.map(|added| (added.name.clone(), "no".to_owned())).collect();
        let answer = BatchAnswer { number, rejected: rejected.clone(), warnings: BTreeMap::new() };
        let outcome = self.network.engine.answer_batch(watch_id, answer, now);
        assert!(outcome != BatchOutcome::Counted || batch.is_held, "there was something to answer");
        assert!(!self.is_strict || outcome != BatchOutcome::TooLate, "it has answered in time");
        for added in &batch.added {
            if outcome != BatchOutcome::Counted || !rejected.contains_key(&added.name) {
                consumer.store.insert(added.name.to_string(), text(&added.resource));
            }
        }
        for name in &batch.removed {
            let before = consumer.store.remove(&**name);
            assert!(before.is_some(), "what is removed was there");
        }
        self.count(match outcome {
            BatchOutcome::Counted => "counted",
            BatchOutcome::TooLate => "too late",
            BatchOutcome::NothingToAnswer => "nothing to answer",
        });
    }

    /// What must hold at each moment.
    fn check(&mut self) {
        let now = self.network.now;
        let others = &self.others;
        self.awaited.retain(|name, (text, _)| others.get(name) != Some(text));
        if self.is_calm {
            let late = self.awaited.iter().find(|(_, (_, until))| *until < now);
            assert_eq!(late, None, "another type has waited for consumers");
        }
        let [consumers, owners, held, given] = self.network.engine.batches.census();
        let subscriptions = |consumer: &Consumer| consumer.names.as_ref().map_or(1, BTreeSet::len);
        let expected = self.consumers.values().map(subscriptions).sum();
        assert_eq!((consumers, owners), (self.consumers.len(), expected));
        assert!(held <= 1 && given <= 2 * NAMES * consumers, "{held} responses, {given} names");
        if self.network.servers[0].open.is_some() {
            let machine = &self.network.engine.authorities.server(ServerId(0)).machine;
            let limit = self.limit;
            assert!(machine.waiting_bytes() <= limit + LONGEST, "{} bytes wait", machine.waiting_bytes());
        }
        if self.is_strict && self.network.is_idle() {
            let bad = self.held_texts().into_iter().find(|(_, text)| text.starts_with("no "));
            assert_eq!(bad, None, "what consumers reject is not held");
        }
    }

    /// The texts that the client holds of the type with consumers, or that its only consumer has if they are not kept.
    fn held_texts(&self) -> BTreeMap<String, String> {
        if self.is_unkept {
            return self.consumers.values().next().map(|consumer| consumer.store.clone()).unwrap_or_default();
        }
        let resources = self.network.engine.status().resources.into_iter();
        let held = resources.filter(|report| report.type_url == self.ty().url() && report.held.is_some());
        held.map(|report| (report.name.to_string(), text_of(&report.bytes.expect("it is held")))).collect()
    }

    /// Faults end, nothing is bad any more, and all consumers answer.
    fn heal(&mut self) {
        self.network.faulty = false;
        for name in ["a", "b", "c", "d", "e"] {
            self.texts += 1;
            let text = self.texts.to_string();
            self.set(self.ty(), name, (!self.texts.is_multiple_of(3)).then_some(text));
        }
        self.network.serve(0);
        let mut batches = Vec::new();
        for (watch_id, consumer) in &mut self.consumers {
            consumer.habit = Habit::Answers(Duration::from_millis(100));
            batches.extend(consumer.batch.as_ref().map(|batch| (*watch_id, batch.number)));
        }
        for (watch_id, number) in batches {
            self.network.plan(Duration::ZERO, (watch_id, number));
        }
        self.pass(Duration::from_secs(400));
        // A server that holds answers back until something changes.
        self.set(self.ty(), "f", Some("last".to_owned()));
        self.network.serve(0);
        self.pass(Duration::from_secs(100));
    }

    fn check_agreement(&mut self) {
        let held = self.held_texts();
        let stored = self.network.servers[0].store.get(self.ty().url());
        let stored: BTreeMap<_, _> =
            stored.iter().map(|(name, stored)| (name.to_owned(), text_of(stored.bytes()))).collect();
        // In the state of the world, no response of the other type shows that a resource is gone (B1.11).
        let is_delta = self.network.servers[0].is_delta() || self.is_full;
        let there: BTreeMap<_, _> =
            held.clone().into_iter().filter(|(name, _)| is_delta || stored.contains_key(name)).collect();
        assert_eq!(there, stored, "the client has what the server has");
        for (watch_id, consumer) in &self.consumers {
            let is_any = consumer.names.as_ref().is_none_or(|names| !names.is_empty());
            // What an earlier consumer has had and the server has not any more is not shown to be gone there.
            let may_lack = self.is_unkept && !is_delta;
            assert!(consumer.batch.is_none(), "{watch_id} is done");
            assert!(consumer.is_complete || !is_any || may_lack, "{watch_id} has everything");
            let is_subscribed = |name: &str| consumer.names.as_ref().is_none_or(|names| names.contains(name));
            let held: BTreeMap<_, _> =
                held.clone().into_iter().filter(|(name, _)| is_subscribed(name)).collect();
            assert_eq!(consumer.store, held, "{watch_id} has what the client has");
        }
        assert_eq!(self.awaited, BTreeMap::new(), "the other type is up to date");
    }
}

/// The text of a resource of either type.
fn text_of_resource(resource: &Erased) -> String {
    let full = resource.downcast_ref::<Full>().map(|full| full.0.clone());
    full.unwrap_or_else(|| resource.downcast_ref::<Part>().expect("there are two types").0.clone())
}

/// How a response must be answered whose consumers are in time.
fn due(response: &Response) -> Due {
    let resources = response.resources();
    let texts = resources.iter().filter_map(|wrapper| wrapper.resource.as_ref());
    match texts.map(|any| text_of(&any.value)).any(|text| text.starts_with("no ") || text == "bad") {
        true => Due::Nack,
        false => Due::Ack,
    }
}

/// The watch of the other type.
const OTHER: u64 = 1;
/// The names of resources with consumers.
const NAMES: usize = 7;
/// A limit of waiting bytes that is met.
const WAITING_BYTES: usize = 2_000;
/// What one response takes at most, with the allowance for it.
const LONGEST: usize = 4_000;
/// What happens in the worlds.
const KINDS: [&str; 10] = [
    "answered",
    "rejected",
    "held",
    "caught up",
    "counted",
    "too late",
    "nothing to answer",
    "subscribed",
    "unsubscribed",
    "replaced",
];
