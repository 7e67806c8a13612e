//! The localities of a priority with their endpoints.

pub(super) mod config;

use std::{ops::Range, sync::Arc, time::Instant};

use self::config::EndpointList;
use super::{
    cluster_endpoint::{ClusterEndpoint, EndpointChange},
    command::EndpointIndex,
    connect_request::ListId,
    connectivity::Connectivity,
    endpoint_spec::ListPosition,
    picker::{EndpointPicker, Localities},
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
    /// The locality; `None` for all localities together.
    locality: Option<Locality>,
    /// The share of the requests, relative to the other lists.
    weight: u32,
    /// The endpoints in the order of the configuration.
    members: Vec<EndpointIndex>,
    /// The connected members, by the same indices.
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

impl<H: Clone> PriorityLists<H> {
    /// Before the first configuration.
    pub(super) fn none() -> Self {
        Self { all: Vec::new(), is_started: false, error: None }
    }

    /// Replaces the lists by empty ones of another configuration. Each keeps the state of the policy of the same locality.
    ///
    /// The endpoints of the lists before have no position any more.
    pub(super) fn rebuild(
        &mut self,
        lists: &[EndpointList<'_>],
        config: &LeafConfig,
        random: &mut fastrand::Rng,
    ) {
        let policy = &config.policy.policy;
        let (mut states, mut are_failing) = (Vec::new(), Vec::new());
        for list in lists {
            let known = self.all.iter().position(|known| known.locality.as_ref() == list.locality);
            // The order of the lists that are left does not matter, since all of them are replaced.
            let known = known.map(|index| self.all.swap_remove(index));
            // A failed locality stays failed over updates, until it is ready (CH3.49).
            are_failing.push(known.as_ref().is_some_and(|known| known.is_failing));
            states.push(known.map(|known| known.policy));
        }
        let states = policy.states(lists, states, config.lists(), random);
        let all = lists.iter().zip(are_failing).zip(states);
        let all = all.map(|((list, is_failing), policy_state)| LocalityList {
            locality: list.locality.cloned(),
            weight: list.weight,
            members: Vec::new(),
            slots: ReadySlots::new(),
            counts: StateCounts::default(),
            is_failing,
            policy: policy_state,
            connects_on_demand: policy.connects_on_demand(),
            // Requests of older pickers name indices of other endpoints.
            id: ListId::default(),
        });
        self.all = all.collect();
    }

    /// All endpoints.
    pub(super) fn list(&self) -> Vec<EndpointIndex> {
        self.all.iter().flat_map(|list| list.members.iter().copied()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.iter().all(|list| list.members.is_empty())
    }

    /// A policy of the application has panicked.
    pub(super) fn is_broken(&self) -> bool {
        self.all.iter().any(|list| list.policy.is_broken())
    }

    /// The endpoints of a list, in their order.
    pub(super) fn members(&self, list: usize) -> Option<&[EndpointIndex]> {
        self.all.get(list).map(|list| list.members.as_slice())
    }

    /// The endpoints of a list at these indices do not count any more. They stay listed until others [take](Self::splice) their indices.
    pub(super) fn take_out(
        &mut self,
        list: usize,
        range: Range<usize>,
        state: impl Fn(EndpointIndex) -> Connectivity,
    ) {
        let Some(LocalityList { members, counts, .. }) = self.all.get_mut(list) else { return };
        members[range].iter().for_each(|member| *counts.of(state(*member)) -= 1);
    }

    /// Lists endpoints in place of those that were [taken out](Self::take_out).
    pub(super) fn splice<'a>(
        &mut self,
        list: usize,
        taken_out: Range<usize>,
        inserted: &[EndpointIndex],
        endpoint: impl Fn(EndpointIndex) -> &'a ClusterEndpoint<H>,
    ) where
        H: 'a,
    {
        let Some(to) = self.all.get_mut(list) else { return };
        to.members.splice(taken_out.clone(), inserted.iter().copied());
        to.slots.splice(taken_out.start, taken_out.len(), inserted.len());
        for (index, member) in (taken_out.start..).zip(inserted) {
            let endpoint = endpoint(*member);
            to.slots.set(index, endpoint.listed());
            to.policy.set_endpoint(index, || endpoint.state());
            *to.counts.of(endpoint.connectivity) += 1;
        }
    }

    /// An endpoint has changed. Returns whether the picker is outdated by that.
    pub(super) fn on_changed(
        &mut self,
        position: ListPosition,
        change: &EndpointChange,
        endpoint: &ClusterEndpoint<H>,
    ) -> bool {
        let Some(list) = self.all.get_mut(position.list) else { return false };
        let (from, to) = change.connectivity;
        *list.counts.of(from) -= 1;
        *list.counts.of(to) += 1;
        list.update_failing();
        if change.is_ready_changed {
            list.slots.set(position.index, endpoint.listed());
        }
        // In this order: the policy has to see each state, also of an endpoint that outdates the picker anyway.
        list.policy.set_endpoint(position.index, || endpoint.state()) || change.is_ready_changed
    }

    /// The endpoint at an index of a list, if the list is still in use.
    pub(super) fn endpoint(&self, list: &ListId, index: usize) -> Option<EndpointIndex> {
        self.all.iter().find(|known| known.id == *list)?.members.get(index).copied()
    }

    /// An endpoint that is to be connected although no call needs it: while a list that connects on demand waits or fails without any
    /// attempt, the next calls would find it so (CH3.37). `is_requested` asks for one of each idle list, too (CH3.38). The search for an
    /// idle endpoint begins anywhere.
    pub(super) fn next_on_demand(
        &self,
        is_requested: bool,
        random: &mut fastrand::Rng,
        state: impl Fn(EndpointIndex) -> Connectivity,
    ) -> Option<EndpointIndex> {
        self.all.iter().filter(|list| self.is_started && list.connects_on_demand).find_map(|list| {
            let is_due = match list.state() {
                Connectivity::Ready => false,
                Connectivity::Connecting | Connectivity::TransientFailure => list.counts.connecting == 0,
                // Localities are connected by what draws among them (CH3.49).
                Connectivity::Idle => is_requested || list.locality.is_some(),
            };
            if !is_due || list.counts.idle == 0 {
                return None;
            }
            let (before, after) = list.members.split_at(random.usize(..list.members.len()));
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
        let is_ready = self.all.iter().any(|list| list.counts.ready > 0);
        let pickers = self.all.iter_mut().filter_map(|list| {
            let is_on_demand = list.connects_on_demand && !is_ready && !list.members.is_empty();
            let ready = list.slots.ready().or_else(|| is_on_demand.then(ReadySet::empty))?;
            sum += u64::from(list.weight.max(1));
            Some((sum, list.picker(ready, context)))
        });
        pickers.collect()
    }

    /// Whether weights by load matter: there are several endpoints to choose from.
    pub(super) fn has_choice(&self) -> bool {
        self.all.iter().any(|list| list.counts.ready > 1)
    }

    /// Whether a picker would have other weights than the last one.
    pub(super) fn has_new_weights(&mut self, now: Instant) -> bool {
        self.all.iter_mut().any(|list| list.policy.has_new_weights(list.slots.ready().as_ref(), now))
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
    fn update_failing(&mut self) {
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
