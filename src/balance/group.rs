//! The localities of a priority with their endpoints.

mod config;

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Instant,
};

use self::config::{GroupConfig, RingBudget};
use super::{
    connectivity::Connectivity,
    custom::CustomBalancer,
    member::{Member, MemberConfig, Place},
    picker::{EndpointPicker, Localities, PickRule},
    policy::{LeafConfig, Policy},
    ready_set::{ReadySet, ReadySlots},
    ring::Ring,
    ring_picker::RingCounts,
    ring_slots::{self, RingSlots},
    weights::{EndpointWeight, Schedule, WeightSettings, WeightState},
};
use crate::resource::Locality;

/// The endpoints of a priority, in groups among which requests are divided by weight.
#[derive(Debug)]
pub(super) struct Groups<H> {
    all: Vec<Group<H>>,
    /// Connections were requested; before that, there are only those that came from other priorities.
    pub(super) is_started: bool,
    /// The newest error of a connection.
    pub(super) error: Option<Arc<str>>,
}

/// A locality, or all localities of a priority if the policy sees them as one.
#[derive(Debug)]
struct Group<H> {
    locality: Option<Locality>,
    weight: u32,
    members: Vec<usize>,
    slots: ReadySlots<H>,
    /// How many of them are in each state.
    ready: usize,
    connecting: usize,
    idle: usize,
    failing: usize,
    /// Transient failure is reported until an endpoint is ready (CH3.49).
    is_failing: bool,
    next: Arc<AtomicUsize>,
    /// The policy of the application, if it is one.
    custom: Option<CustomBalancer>,
    /// The order of the last picker, if the policy has weights by load.
    schedule: Option<Arc<Schedule>>,
    /// The ring of the endpoints, under ring_hash.
    ring: Option<RingSlots<H>>,
}

/// Is called with the weights that a scheduler is made of, and the locality of the policy if it is that of one (CH3.47).
pub(super) type OnScheduler<'a> = dyn Fn(Option<&Locality>, &[WeightState]) + 'a;

/// The groups of a priority by its next configuration, without their endpoints yet.
pub(super) struct Plan<H> {
    pub(super) priority: usize,
    pub(super) groups: Groups<H>,
    /// The endpoints of each group.
    pub(super) members: Vec<Vec<MemberConfig>>,
}

impl<H: Clone> Groups<H> {
    /// Before the first configuration.
    pub(super) fn none() -> Self {
        Self { all: Vec::new(), is_started: false, error: None }
    }

    /// The next configuration of a priority. Groups keep the state of those of the same locality.
    pub(super) fn plan(
        &mut self,
        priority: usize,
        config: &LeafConfig,
        random: &mut fastrand::Rng,
    ) -> Plan<H> {
        let localities = config.priorities.get(priority).map_or(&[][..], Vec::as_slice);
        let policy = &config.policy;
        let configs = GroupConfig::all(localities, policy);
        let groups = Self::of(&configs, self, config, random);
        let members = configs.iter().map(|config| config.members(priority, policy, random)).collect();
        Plan { priority, groups, members }
    }

    /// Empty groups, which keep the state of those of the same locality.
    fn of(
        configs: &[GroupConfig<'_>],
        before: &mut Self,
        config: &LeafConfig,
        random: &mut fastrand::Rng,
    ) -> Self {
        let (policy, budget) = (&config.policy, RingBudget::of(config));
        let all = configs.iter().map(|config| {
            let mut known = before.all.iter_mut().find(|it| it.locality.as_ref() == config.locality);
            Group {
                locality: config.locality.cloned(),
                weight: config.weight,
                members: Vec::new(),
                slots: ReadySlots::new(),
                ready: 0,
                connecting: 0,
                idle: 0,
                failing: 0,
                is_failing: known.as_ref().is_some_and(|it| it.is_failing),
                // Begins at random, since all clients would begin with the same endpoint otherwise (CH3.26).
                next: known.as_ref().map_or_else(
                    || Arc::new(random.u32(..).try_into().unwrap_or(0).into()),
                    |it| it.next.clone(),
                ),
                custom: config.custom(policy, known.as_mut().and_then(|it| it.custom.take()), random),
                schedule: None,
                ring: config.ring(policy, budget.as_ref(), known.and_then(|it| it.ring.take())),
            }
        });
        Self { all: all.collect(), is_started: before.is_started, error: before.error.take() }
    }

    /// All endpoints.
    pub(super) fn list(&self) -> Vec<usize> {
        self.all.iter().flat_map(|group| group.members.iter().copied()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.iter().all(|group| group.members.is_empty())
    }

    /// A policy of the application has panicked.
    pub(super) fn is_broken(&self) -> bool {
        self.all.iter().any(|group| group.custom.as_ref().is_some_and(CustomBalancer::is_broken))
    }

    /// Adds an endpoint to a group, and says where it is.
    pub(super) fn add(&mut self, group: usize, (member, it): (usize, &Member<H>), priority: usize) -> Place {
        let to = &mut self.all[group];
        let index = to.members.len();
        to.members.push(member);
        to.slots.push(it.listed());
        if let Some(ring) = &mut to.ring {
            ring.fill(index, member, it.state());
        }
        *to.counter(it.connectivity) += 1;
        Place { priority, group, index }
    }

    /// The endpoints of a group, in their order.
    pub(super) fn members(&self, group: usize) -> Option<&[usize]> {
        self.all.get(group).map(|group| group.members.as_slice())
    }

    /// Removes endpoints of a group, whose states are given, and makes room for others at their place, which is to be
    /// [filled](Self::fill). Returns the removed ones.
    pub(super) fn splice(
        &mut self,
        group: usize,
        (at, removed, inserted): (usize, usize, usize),
        state: impl Fn(usize) -> Connectivity,
    ) -> Vec<usize> {
        let from = &mut self.all[group];
        let nothing = std::iter::repeat_n(usize::MAX, inserted);
        let removed: Vec<_> = from.members.splice(at..at + removed, nothing).collect();
        removed.iter().for_each(|member| *from.counter(state(*member)) -= 1);
        from.slots.splice(at, removed.len(), inserted);
        removed
    }

    /// Sets the endpoint of a place that was made by [`splice`](Self::splice).
    pub(super) fn fill(
        &mut self,
        (priority, group, index): (usize, usize, usize),
        (member, it): (usize, &Member<H>),
    ) -> Place {
        let to = &mut self.all[group];
        to.members[index] = member;
        to.slots.set(index, it.listed());
        *to.counter(it.connectivity) += 1;
        Place { priority, group, index }
    }

    /// An endpoint has another state.
    pub(super) fn count(&mut self, place: Place, (from, to): (Connectivity, Connectivity)) {
        let Some(group) = self.all.get_mut(place.group) else { return };
        *group.counter(from) -= 1;
        *group.counter(to) += 1;
        group.settle();
    }

    /// An endpoint has another connection, or none.
    pub(super) fn set_ready(&mut self, place: Place, member: &Member<H>) {
        if let Some(group) = self.all.get_mut(place.group) {
            group.slots.set(place.index, member.listed());
        }
    }

    /// Whether an endpoint of a ring has another state from now on.
    pub(super) fn set_state(&mut self, place: Place, member: &Member<H>) -> bool {
        let group = self.all.get_mut(place.group);
        let ring = group.and_then(|group| group.ring.as_mut());
        ring.is_some_and(|ring| ring.set(place.index, member.state()))
    }

    /// The endpoint of a rank, if one of the groups has this ring.
    pub(super) fn on_ring(&self, ring: &Arc<Ring>, rank: usize) -> Option<usize> {
        self.all.iter().filter_map(|group| group.ring.as_ref()).find_map(|it| it.member(ring, rank))
    }

    /// An endpoint that is to be connected although no call needs it: while a ring waits or fails without any attempt, the next
    /// calls would find it so (CH3.37). `is_requested` asks for one of each idle ring, too (CH3.38).
    pub(super) fn next_on_demand(&self, is_requested: bool, random: &mut fastrand::Rng) -> Option<usize> {
        self.all.iter().filter(|_| self.is_started).find_map(|group| {
            let is_due = match group.state() {
                Connectivity::Ready => false,
                Connectivity::Connecting | Connectivity::TransientFailure => group.connecting == 0,
                // Localities are connected by what draws among them (CH3.49).
                Connectivity::Idle => is_requested || group.locality.is_some(),
            };
            group.ring.as_ref().filter(|_| is_due && group.idle > 0)?.any_idle(random)
        })
    }

    /// Any that is ready, or else connecting, or else idle; otherwise all fail (CH3.11).
    pub(super) fn connectivity(&self) -> Connectivity {
        let states = || self.all.iter().map(Group::connectivity);
        let preferred = [Connectivity::Ready, Connectivity::Connecting, Connectivity::Idle];
        let found = preferred.into_iter().find(|state| states().any(|it| it == *state));
        found.unwrap_or(Connectivity::TransientFailure)
    }

    /// The ready groups with the sums of their weights. Rings that are not ready have pickers, too, if none is.
    pub(super) fn pickers(
        &mut self,
        policy: &Policy,
        note: Option<&Arc<str>>,
        now: Instant,
        on_scheduler: &OnScheduler<'_>,
    ) -> Localities<H> {
        let mut sum = 0;
        let is_ready = self.all.iter().any(|group| group.ready > 0);
        let pickers = self.all.iter_mut().filter_map(|group| {
            let empty = group.ring.as_ref().filter(|_| !is_ready && !group.members.is_empty());
            let ready = group.slots.ready().or_else(|| empty.map(|_| ReadySet::empty()))?;
            sum += u64::from(group.weight.max(1));
            let rule = group.rule(policy, note, (&ready, now), on_scheduler);
            Some((sum, EndpointPicker { rule, ready, next: group.next.clone() }))
        });
        pickers.collect()
    }

    /// Whether weights by load matter: there are several endpoints to choose from.
    pub(super) fn has_choice(&self) -> bool {
        self.all.iter().any(|group| group.ready > 1)
    }

    /// Whether a picker would have other weights than the last one.
    pub(super) fn has_new_weights(&mut self, settings: &WeightSettings, now: Instant) -> bool {
        self.all.iter_mut().any(|group| {
            let ready = group.slots.ready();
            let schedule = ready.and_then(|ready| Schedule::of(&weights(&ready, settings, now)));
            schedule.as_ref() != group.schedule.as_deref()
        })
    }
}

impl<H> Group<H> {
    fn rule(
        &mut self,
        policy: &Policy,
        note: Option<&Arc<str>>,
        (set, now): (&ReadySet<H>, Instant),
        on_scheduler: &OnScheduler<'_>,
    ) -> PickRule<H> {
        let Self { ready, connecting, idle, .. } = *self;
        if let Some(ring) = &mut self.ring {
            return PickRule::Ring(Arc::new(
                ring.picker(RingCounts { ready, connecting, idle }, note.cloned()),
            ));
        }
        match (policy, &mut self.custom) {
            (Policy::Custom(_), Some(custom)) => {
                let slots = self.slots.slots().map(Option::<&_>::cloned).collect();
                PickRule::Custom(Arc::new(custom.picker(slots)))
            }
            (Policy::LeastRequest { choice_count }, _) => {
                PickRule::LeastRequest { choice_count: *choice_count }
            }
            (Policy::Weighted(settings), _) => {
                let weights = weights(set, settings, now);
                on_scheduler(self.locality.as_ref(), &weights);
                self.schedule = Schedule::of(&weights).map(Arc::new);
                let penalty = settings.out_of_band.is_none().then_some(settings.penalty);
                PickRule::Weighted { schedule: self.schedule.clone(), penalty }
            }
            (Policy::PickFirst { .. }, _) => PickRule::First,
            (Policy::RoundRobin | Policy::Custom(_) | Policy::RingHash(_), _) => PickRule::RoundRobin,
        }
    }

    fn counter(&mut self, connectivity: Connectivity) -> &mut usize {
        match connectivity {
            Connectivity::Ready => &mut self.ready,
            Connectivity::Connecting => &mut self.connecting,
            Connectivity::Idle => &mut self.idle,
            Connectivity::TransientFailure => &mut self.failing,
        }
    }

    /// A locality in failure stays so until it is ready; a list without localities is its policy's matter.
    fn settle(&mut self) {
        if self.ready > 0 {
            self.is_failing = false;
        } else if self.locality.is_some()
            && self.failing > 0
            && self.state() == Connectivity::TransientFailure
        {
            self.is_failing = true;
        }
    }

    fn connectivity(&self) -> Connectivity {
        match self {
            Self { custom: Some(custom), .. } if custom.is_broken() => Connectivity::TransientFailure,
            Self { ready: 1.., .. } => Connectivity::Ready,
            Self { is_failing: true, .. } => Connectivity::TransientFailure,
            _ => self.state(),
        }
    }

    /// The state of the endpoints together.
    fn state(&self) -> Connectivity {
        let Self { ready, connecting, idle, failing, .. } = *self;
        if self.ring.is_some() {
            return ring_slots::connectivity(RingCounts { ready, connecting, idle }, failing);
        }
        match self {
            Self { ready: 1.., .. } => Connectivity::Ready,
            Self { connecting: 1.., .. } => Connectivity::Connecting,
            Self { idle: 1.., .. } => Connectivity::Idle,
            _ => Connectivity::TransientFailure,
        }
    }
}

/// The weights of ready endpoints at a time, in their order.
fn weights<H>(ready: &ReadySet<H>, settings: &WeightSettings, now: Instant) -> Vec<WeightState> {
    let state = |weight: &Arc<EndpointWeight>| weight.state(settings, now);
    ready.iter().map(|it| it.weight.as_ref().map_or(WeightState::NotYetUsable, state)).collect()
}
