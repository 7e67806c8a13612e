//! The localities of a priority with their endpoints.

pub(super) mod config;

use std::{sync::Arc, time::Instant};

use self::config::EndpointList;
use super::{
    cluster_endpoint::{ClusterEndpoint, EndpointSpec, ListPosition},
    connectivity::Connectivity,
    picker::{EndpointPicker, ListId, Localities},
    policies::{AnyState, PickerEndpoints, StateCounts},
    policy::LeafConfig,
    ready_set::{ReadySet, ReadySlots},
    weights::WeightState,
};
use crate::resource::Locality;

/// The endpoints of a priority, in groups among which requests are divided by weight.
#[derive(Debug)]
pub(super) struct PriorityLists<H> {
    all: Vec<LocalityList<H>>,
    /// Connections were requested; before that, there are only those that came from other priorities.
    pub(super) is_started: bool,
    /// The newest error of a connection.
    pub(super) error: Option<Arc<str>>,
}

/// A locality, or all localities of a priority if the policy sees them as one.
#[derive(Debug)]
struct LocalityList<H> {
    locality: Option<Locality>,
    weight: u32,
    members: Vec<usize>,
    slots: ReadySlots<H>,
    counts: StateCounts,
    /// Transient failure is reported until an endpoint is ready (CH3.49).
    is_failing: bool,
    policy: AnyState<H>,
    connects_on_demand: bool,
    /// Identity by which the requests of picks find their endpoints.
    id: ListId,
}

/// What the pickers of a priority are made from, apart from its endpoints.
pub(super) struct PickerContext<'a> {
    /// Why the configuration may be stale (CH1.9).
    pub(super) stale_config: Option<&'a Arc<str>>,
    pub(super) now: Instant,
    pub(super) on_scheduler: &'a OnScheduler<'a>,
}

/// Is called with the weights that a scheduler is made of, and the locality of the policy if it is that of one (CH3.47).
pub(super) type OnScheduler<'a> = dyn Fn(Option<&Locality>, &[WeightState]) + 'a;

/// The groups of a priority by its next configuration, without their endpoints yet.
pub(super) struct Plan<H> {
    pub(super) priority: usize,
    pub(super) groups: PriorityLists<H>,
    /// The endpoints of each group.
    pub(super) members: Vec<Vec<EndpointSpec>>,
}

impl<H: Clone> PriorityLists<H> {
    /// Before the first configuration.
    pub(super) fn none() -> Self {
        Self { all: Vec::new(), is_started: false, error: None }
    }

    /// The next configuration of a priority. PriorityLists keep the state of those of the same locality.
    pub(super) fn plan(
        &mut self,
        priority: usize,
        config: &LeafConfig,
        random: &mut fastrand::Rng,
    ) -> Plan<H> {
        let localities = config.priorities.get(priority).map_or(&[][..], Vec::as_slice);
        let lists = EndpointList::all(priority, localities, config.policy.by_locality);
        let groups = Self::of(&lists, self, config, random);
        let members = lists.iter().map(|list| config.policy.policy.members(list, random)).collect();
        Plan { priority, groups, members }
    }

    /// Empty groups, which keep the state of those of the same locality.
    fn of(
        lists: &[EndpointList<'_>],
        before: &mut Self,
        config: &LeafConfig,
        random: &mut fastrand::Rng,
    ) -> Self {
        let policy = &config.policy.policy;
        let (mut states, mut are_failing) = (Vec::new(), Vec::new());
        for list in lists {
            let place = before.all.iter().position(|group| group.locality.as_ref() == list.locality);
            let known = place.map(|place| before.all.swap_remove(place));
            are_failing.push(known.as_ref().is_some_and(|group| group.is_failing));
            states.push(known.map(|group| group.policy));
        }
        let states = policy.states(lists, states, config, random);
        let all = lists.iter().zip(are_failing).zip(states).map(|((list, is_failing), policy_state)| {
            LocalityList {
                locality: list.locality.cloned(),
                weight: list.weight,
                members: Vec::new(),
                slots: ReadySlots::new(),
                counts: StateCounts::default(),
                is_failing,
                policy: policy_state,
                connects_on_demand: policy.connects_on_demand(),
                id: ListId::default(),
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
        self.all.iter().any(|group| group.policy.is_broken())
    }

    /// Adds an endpoint to a group, and says where it is.
    pub(super) fn add(
        &mut self,
        group: usize,
        place: usize,
        member: &ClusterEndpoint<H>,
        priority: usize,
    ) -> ListPosition {
        let to = &mut self.all[group];
        let index = to.members.len();
        to.members.push(place);
        to.slots.push(member.listed());
        to.policy.set_endpoint(index, || member.state());
        *to.counts.of(member.connectivity) += 1;
        ListPosition { priority, group, index }
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
        removed.iter().for_each(|member| *from.counts.of(state(*member)) -= 1);
        from.slots.splice(at, removed.len(), inserted);
        removed
    }

    /// Sets the endpoint of a place that was made by [`splice`](Self::splice).
    pub(super) fn fill(
        &mut self,
        (priority, group, index): (usize, usize, usize),
        (member, it): (usize, &ClusterEndpoint<H>),
    ) -> ListPosition {
        let to = &mut self.all[group];
        to.members[index] = member;
        to.slots.set(index, it.listed());
        *to.counts.of(it.connectivity) += 1;
        ListPosition { priority, group, index }
    }

    /// An endpoint has another state.
    pub(super) fn count(&mut self, place: ListPosition, from: Connectivity, to: Connectivity) {
        let Some(group) = self.all.get_mut(place.group) else { return };
        *group.counts.of(from) -= 1;
        *group.counts.of(to) += 1;
        group.settle();
    }

    /// An endpoint has another connection, or none.
    pub(super) fn set_ready(&mut self, place: ListPosition, member: &ClusterEndpoint<H>) {
        if let Some(group) = self.all.get_mut(place.group) {
            group.slots.set(place.index, member.listed());
        }
    }

    /// An endpoint may have another state. Returns whether the picker is outdated by that.
    pub(super) fn set_state(&mut self, place: ListPosition, member: &ClusterEndpoint<H>) -> bool {
        let group = self.all.get_mut(place.group);
        group.is_some_and(|group| group.policy.set_endpoint(place.index, || member.state()))
    }

    /// The endpoint at an index of a list, if the list is still in use.
    pub(super) fn endpoint(&self, list: &ListId, index: usize) -> Option<usize> {
        self.all.iter().find(|group| group.id == *list)?.members.get(index).copied()
    }

    /// An endpoint that is to be connected although no call needs it: while a list that connects on demand waits or fails without any
    /// attempt, the next calls would find it so (CH3.37). `is_requested` asks for one of each idle list, too (CH3.38). The search for an
    /// idle endpoint begins anywhere.
    pub(super) fn next_on_demand(
        &self,
        is_requested: bool,
        random: &mut fastrand::Rng,
        state: impl Fn(usize) -> Connectivity,
    ) -> Option<usize> {
        self.all.iter().filter(|group| self.is_started && group.connects_on_demand).find_map(|group| {
            let is_due = match group.state() {
                Connectivity::Ready => false,
                Connectivity::Connecting | Connectivity::TransientFailure => group.counts.connecting == 0,
                // Localities are connected by what draws among them (CH3.49).
                Connectivity::Idle => is_requested || group.locality.is_some(),
            };
            if !is_due || group.counts.idle == 0 {
                return None;
            }
            let (before, after) = group.members.split_at(random.usize(..group.members.len()));
            after.iter().chain(before).copied().find(|member| state(*member) == Connectivity::Idle)
        })
    }

    /// Any that is ready, or else connecting, or else idle; otherwise all fail (CH3.11).
    pub(super) fn connectivity(&self) -> Connectivity {
        let states = || self.all.iter().map(LocalityList::connectivity);
        let preferred = [Connectivity::Ready, Connectivity::Connecting, Connectivity::Idle];
        let found = preferred.into_iter().find(|state| states().any(|known| known == *state));
        found.unwrap_or(Connectivity::TransientFailure)
    }

    /// The ready groups with the sums of their weights. Where endpoints connect on demand, those that are not ready have pickers,
    /// too, if none is.
    pub(super) fn pickers(&mut self, context: &PickerContext<'_>) -> Localities<H> {
        let mut sum = 0;
        let is_ready = self.all.iter().any(|group| group.counts.ready > 0);
        let pickers = self.all.iter_mut().filter_map(|group| {
            let is_on_demand = group.connects_on_demand && !is_ready && !group.members.is_empty();
            let ready = group.slots.ready().or_else(|| is_on_demand.then(ReadySet::empty))?;
            sum += u64::from(group.weight.max(1));
            Some((sum, group.picker(ready, context)))
        });
        pickers.collect()
    }

    /// Whether weights by load matter: there are several endpoints to choose from.
    pub(super) fn has_choice(&self) -> bool {
        self.all.iter().any(|group| group.counts.ready > 1)
    }

    /// Whether a picker would have other weights than the last one.
    pub(super) fn has_new_weights(&mut self, now: Instant) -> bool {
        self.all.iter_mut().any(|group| group.policy.has_new_weights(group.slots.ready().as_ref(), now))
    }
}

impl<H> LocalityList<H> {
    fn picker(&mut self, ready: ReadySet<H>, context: &PickerContext<'_>) -> EndpointPicker<H> {
        let locality = self.locality.as_ref();
        let policy = self.policy.picker(&PickerEndpoints {
            slots: &self.slots,
            ready: &ready,
            counts: self.counts,
            stale_config: context.stale_config,
            now: context.now,
            on_weights: &|weights| (context.on_scheduler)(locality, weights),
        });
        EndpointPicker { policy, ready, list: self.id.clone() }
    }

    /// A locality in failure stays so until it is ready; a list without localities is its policy's matter.
    fn settle(&mut self) {
        if self.counts.ready > 0 {
            self.is_failing = false;
        } else if self.locality.is_some()
            && self.counts.failing > 0
            && self.state() == Connectivity::TransientFailure
        {
            self.is_failing = true;
        }
    }

    fn connectivity(&self) -> Connectivity {
        match self {
            Self { policy, .. } if policy.is_broken() => Connectivity::TransientFailure,
            Self { counts: StateCounts { ready: 1.., .. }, .. } => Connectivity::Ready,
            Self { is_failing: true, .. } => Connectivity::TransientFailure,
            Self { .. } => self.state(),
        }
    }

    /// The state of the endpoints together.
    fn state(&self) -> Connectivity {
        if self.connects_on_demand { self.counts.on_demand() } else { self.counts.best() }
    }
}
