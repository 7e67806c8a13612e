//! A cluster with endpoints of its own: priorities, localities and endpoints (CH2.20).

mod connects;
mod edits;
mod events;
mod failure;
mod hosts;
mod labels;
mod on_demand;
mod outliers;
mod priorities;
mod rotation;
#[cfg(any(test, feature = "channel"))]
mod status;
mod switch;
mod weights;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use slab::Slab;

#[cfg(any(test, feature = "fuzzing"))]
pub(super) use self::outliers::Ejections;

pub(super) use self::rotation::Rotated;
use self::{labels::Labels, priorities::Priorities};
use super::{
    breaker::Breaker,
    cluster_endpoint::{ClusterEndpoint, EndpointKey, EndpointSpec, OfCluster},
    command::{Holder, Owner},
    connectivity::Connectivity,
    draining_policy::DrainingPolicy,
    failover::Failover,
    lists::{PickerContext, Plan, PriorityLists},
    load::Loads,
    observer::Observation,
    outlier::Outliers,
    pick_first::PickFirstSettings,
    picker::{Endpoints, LeafPicker, Localities},
    policy::{EndpointConfig, LeafConfig},
    released_connections::ReleasedConnections,
    scope::Scope,
    session_endpoints::SessionEndpoints,
    weights::WeightState,
};
use crate::resource::Locality;

/// The state of a cluster's endpoints.
#[derive(Debug)]
pub(super) struct Leaf<H> {
    name: Arc<str>,
    /// Its place in the balancer, for the commands of its endpoints.
    place: usize,
    config: Arc<LeafConfig>,
    breaker: Arc<Breaker>,
    loads: Loads,
    labels: Labels,
    settings: PickFirstSettings,
    members: Slab<ClusterEndpoint<H>>,
    by_key: BTreeMap<EndpointKey, usize>,
    /// The groups of each priority that was created.
    priorities: Vec<Option<PriorityLists<H>>>,
    failover: Failover,
    outliers: Outliers,
    /// A sweep that is not over has ejected endpoints, or ended ejections.
    has_unpublished_ejections: bool,
    /// The endpoints that cookies lead to, if calls have any.
    hosts: Option<SessionEndpoints<H>>,
    /// When members are due.
    timeouts: BTreeSet<(Instant, usize)>,
    /// When the weights of endpoints may have changed.
    weights_at: Option<Instant>,
    /// The endpoints of the policy before, until those of the current one can be used.
    retiring: Option<DrainingPolicy<H>>,
    /// What the last picker was made of; `None` if something else has changed since.
    published: Option<Published>,
}

/// What pickers are made of, apart from configuration and ready endpoints.
#[derive(Debug, Clone, PartialEq)]
struct Published {
    chosen: Option<usize>,
    connectivity: Connectivity,
    error: Option<Arc<str>>,
}

impl<H: Clone> Leaf<H> {
    /// A cluster whose first priority begins to connect.
    pub(super) fn new(
        (name, place): (Arc<str>, usize),
        (config, breaker): (Arc<LeafConfig>, Arc<Breaker>),
        (settings, sweep_slice): (PickFirstSettings, usize),
        scope: &mut Scope<'_>,
    ) -> Self {
        let mut leaf = Self {
            name,
            place,
            outliers: Outliers::new(&config, sweep_slice, scope.now),
            has_unpublished_ejections: false,
            config,
            breaker,
            loads: Loads::default(),
            labels: Labels::default(),
            settings,
            members: Slab::new(),
            by_key: BTreeMap::new(),
            priorities: Vec::new(),
            failover: Failover::default(),
            hosts: None,
            timeouts: BTreeSet::new(),
            weights_at: None,
            retiring: None,
            published: None,
        };
        leaf.choose(scope);
        leaf
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether it is a logical DNS cluster.
    pub(super) fn is_dns(&self) -> bool {
        self.config.is_dns
    }

    /// A new configuration. Endpoints that it still lists keep connections and counters, and so do addresses, wherever they are now
    /// (CH1.25, CH3.7).
    pub(super) fn update(&mut self, config: Arc<LeafConfig>, breaker: Arc<Breaker>, scope: &mut Scope<'_>) {
        self.outliers.update(self.config.listed(), &config, scope.now);
        // Those of localities that are listed no more go.
        self.labels = Labels::default();
        if let Some(edits) = self.edits(&config, &breaker) {
            self.config = config;
            return self.apply(edits, scope);
        }
        self.end_conflicting(&config, scope);
        let before = self.before_switch(&config, scope.now);
        (self.config, self.breaker) = (config, breaker);
        self.published = None;
        let created: Vec<_> =
            (0..self.priorities.len()).filter(|priority| self.priorities[*priority].is_some()).collect();
        let plans: Vec<_> = created.into_iter().filter_map(|priority| self.plan(priority, scope)).collect();
        let mut released = self.release_connections(&plans);
        let members = plans.iter().flat_map(|plan| plan.members.iter().flatten());
        self.surrender_hosts(members.flat_map(|config| &config.destinations), &mut released);
        let started: Vec<_> =
            plans.iter().filter(|plan| plan.groups.is_started).map(|plan| plan.priority).collect();
        for plan in plans {
            self.fill(plan, &mut released, scope);
        }
        self.keep_moved(&mut released, scope);
        // Only now, when the connections have found their endpoints.
        started.into_iter().for_each(|priority| self.start(priority, scope));
        self.choose(scope);
        if let Some(before) = before.filter(|_| self.current_connectivity() == Connectivity::Connecting) {
            self.end_retiring(scope);
            scope.commands.set_owner(Owner { leaf: self.place, holder: Holder::ReplacedPolicy });
            self.retiring = DrainingPolicy::new(before, &mut released, scope.commands);
        }
        self.keep_hosts(&mut released, scope);
        released.release(scope.commands);
    }

    /// Delays after failures are over (CH3.3).
    pub(super) fn reset_backoff(&mut self, scope: &mut Scope<'_>) {
        for member in self.member_places() {
            self.with_member(member, scope, ClusterEndpoint::reset_backoff);
        }
        self.reset_hosts_backoff(scope);
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let member = self.timeouts.first().map(|(at, _)| *at);
        let hosts = self.hosts.as_ref().and_then(SessionEndpoints::poll_timeout);
        let own = [self.failover.poll_timeout(), self.outliers.poll_timeout(), self.weights_at];
        own.into_iter().chain([member, hosts]).flatten().min()
    }

    /// To be called when [`poll_timeout`](Self::poll_timeout) says so.
    pub(super) fn handle_timeout(&mut self, scope: &mut Scope<'_>) {
        let due: Vec<_> =
            self.timeouts.iter().take_while(|(at, _)| *at <= scope.now).map(|due| due.1).collect();
        for member in due {
            self.with_member(member, scope, ClusterEndpoint::handle_timeout);
        }
        self.sweep(scope);
        self.sweep_hosts(scope);
        self.check_weights(scope.now);
        self.choose(scope);
    }

    /// Ends all attempts, and the connections when their streams have ended.
    pub(super) fn close(&mut self, scope: &mut Scope<'_>) {
        self.priorities.clear();
        self.close_hosts(scope);
        self.release_connections(&[]).release(scope.commands);
        self.end_retiring(scope);
    }

    /// The connectivity of the priority in use, or of the endpoints that are used until it can be.
    pub(super) fn connectivity(&self) -> Connectivity {
        if self.retiring.is_some() { Connectivity::Ready } else { self.current_connectivity() }
    }

    /// The new picker, if anything changed.
    pub(super) fn take_picker(&mut self, now: Instant) -> Option<Arc<LeafPicker<H>>> {
        let connectivity = self.connectivity();
        let is_failing = connectivity == Connectivity::TransientFailure;
        let error = self.failing().and_then(|groups| groups.error.clone()).filter(|_| is_failing);
        let current = Published { chosen: self.failover.chosen(), connectivity, error };
        if self.published.as_ref() == Some(&current) {
            return None;
        }
        self.published = Some(current);
        self.has_unpublished_ejections = false;
        self.schedule_weights(now);
        Some(Arc::new(LeafPicker {
            name: self.name.clone(),
            drops: self.config.drops.clone(),
            breaker: self.breaker.clone(),
            limit: self.config.max_requests,
            connectivity,
            endpoints: self.endpoints(now),
            hosts: self.hosts.as_ref().map(SessionEndpoints::picker),
            load: self.config.load.clone(),
        }))
    }

    fn endpoints(&mut self, now: Instant) -> Endpoints<H> {
        if let Some(retiring) = &self.retiring {
            return Endpoints::Ready(retiring.endpoints().clone());
        }
        match self.current_connectivity() {
            _ if self.picks_without_ready() => Endpoints::Ready(self.pickers(now)),
            Connectivity::Ready => Endpoints::Ready(self.pickers(now)),
            Connectivity::Connecting => Endpoints::Queue,
            Connectivity::Idle => Endpoints::Idle(AtomicBool::new(false)),
            Connectivity::TransientFailure => Endpoints::Fail(self.failure()),
        }
    }

    fn pickers(&mut self, now: Instant) -> Localities<H> {
        let (config, name) = (self.config.clone(), self.name.clone());
        let observer = self.settings.observer.clone();
        let on_scheduler = |locality: Option<&Locality>, weights: &[WeightState]| {
            observer.observe(Observation::Scheduler { cluster: &name, locality, weights });
        };
        let context = PickerContext { stale_config: config.note.as_ref(), now, on_scheduler: &on_scheduler };
        self.chosen_mut().map(|groups| groups.pickers(&context)).unwrap_or_default()
    }

    /// The connectivity of the priority in use.
    pub(super) fn current_connectivity(&self) -> Connectivity {
        self.chosen().map_or(Connectivity::TransientFailure, PriorityLists::connectivity)
    }

    fn chosen(&self) -> Option<&PriorityLists<H>> {
        self.priorities.get(self.failover.chosen()?)?.as_ref()
    }

    fn chosen_mut(&mut self) -> Option<&mut PriorityLists<H>> {
        self.priorities.get_mut(self.failover.chosen()?)?.as_mut()
    }

    fn choose(&mut self, scope: &mut Scope<'_>) {
        self.connect_on_demand(scope);
        let mut failover = mem::take(&mut self.failover);
        let count = self.config.priorities.len();
        self.priorities.resize_with(self.priorities.len().max(count), || None);
        failover.choose(count, scope.now, &mut Priorities { leaf: self, scope });
        self.priorities.truncate(count);
        self.failover = failover;
        if self.retiring.as_ref().is_some_and(DrainingPolicy::is_over)
            || self.current_connectivity() != Connectivity::Connecting
        {
            self.end_retiring(scope);
        }
    }

    /// Lets an endpoint handle an event, and the levels above what came of it.
    fn with_member(
        &mut self,
        member: usize,
        scope: &mut Scope<'_>,
        event: impl FnOnce(&mut ClusterEndpoint<H>, &mut Scope<'_>),
    ) {
        let Some(it) = self.members.get_mut(member) else { return };
        scope.commands.set_owner(Owner { leaf: self.place, holder: Holder::Endpoint(member) });
        event(it, scope);
        self.settle(member, scope);
        self.choose(scope);
    }

    /// Takes note of what an endpoint has become.
    fn settle(&mut self, member: usize, scope: &mut Scope<'_>) {
        let it = &mut self.members[member];
        scope.commands.set_owner(Owner { leaf: self.place, holder: Holder::Endpoint(member) });
        let weights = self.config.policy.policy.weights();
        let (loads, max_connections) = (&mut self.loads, self.config.max_connections);
        let of = OfCluster { breaker: &self.breaker, loads, weights, max_connections };
        let change = it.settle(of, scope);
        if change.timeout.0 != change.timeout.1 {
            change.timeout.0.map(|at| self.timeouts.remove(&(at, member)));
            change.timeout.1.map(|at| self.timeouts.insert((at, member)));
        }
        for place in &it.places {
            if let Some(Some(groups)) = self.priorities.get_mut(place.priority) {
                let (from, to) = change.connectivity;
                groups.count(*place, from, to);
                if change.is_ready_changed {
                    groups.set_ready(*place, it);
                    self.published = None;
                }
                if groups.set_state(*place, it) {
                    self.published = None;
                }
            }
        }
        self.settle_host(member, scope);
    }

    /// The next groups of a priority that was created, unless it is configured no more.
    fn plan(&mut self, priority: usize, scope: &mut Scope<'_>) -> Option<Plan<H>> {
        let mut before = self.priorities[priority].take().unwrap_or_else(PriorityLists::none);
        let config = self.config.clone();
        config.priorities.get(priority)?;
        Some(before.plan(priority, &config, scope.random))
    }

    /// Takes endpoints from their places, and from those that are listed no more what they have (CH3.9).
    fn release_connections(&mut self, plans: &[Plan<H>]) -> ReleasedConnections<H> {
        let mut released = ReleasedConnections::new();
        let listed: BTreeMap<&EndpointKey, &EndpointSpec> = plans
            .iter()
            .flat_map(|plan| plan.members.iter().flatten())
            .map(|config| (&config.key, config))
            .collect();
        let (members, timeouts) = (&mut self.members, &mut self.timeouts);
        self.by_key.retain(|key, member| {
            if let Some(config) = listed.get(key) {
                let it = &mut members[*member];
                it.places.clear();
                it.release_unlisted(&config.destinations, &mut released);
                return true;
            }
            let it = members.remove(*member);
            it.timeout.map(|at| timeouts.remove(&(at, *member)));
            it.release_connections(&mut released);
            false
        });
        released
    }

    /// Sets the groups of a priority.
    fn fill(&mut self, plan: Plan<H>, released: &mut ReleasedConnections<H>, scope: &mut Scope<'_>) {
        let Plan { priority, mut groups, members } = plan;
        for (group, configs) in members.into_iter().enumerate() {
            for (index, config) in configs.into_iter().enumerate() {
                let member = self.member(config, released, scope);
                self.label(member, (priority, group, index));
                // Its groups elsewhere learn what it took over.
                self.settle(member, scope);
                let place = groups.add(group, member, &self.members[member], priority);
                self.members[member].add_place(place);
            }
        }
        self.priorities[priority] = Some(groups);
    }

    /// The endpoint of a configuration, which keeps what it has if it was there.
    fn member(
        &mut self,
        config: EndpointSpec,
        released: &mut ReleasedConnections<H>,
        scope: &mut Scope<'_>,
    ) -> usize {
        let known = self.by_key.get(&config.key).copied();
        let member = known.unwrap_or_else(|| {
            let member = self.members.insert(ClusterEndpoint::new(self.settings.clone()));
            self.by_key.insert(config.key.clone(), member);
            member
        });
        scope.commands.set_owner(Owner { leaf: self.place, holder: Holder::Endpoint(member) });
        let tracked = self.tracked(&config.key);
        let it = &mut self.members[member];
        it.set_tracked(tracked);
        it.update(config, released, scope);
        member
    }

    /// A connection whose endpoint moved to a priority that is not in use yet stays with it, as long as a priority is kept that is
    /// not needed any more (CH3.7, CH3.56).
    fn keep_moved(&mut self, released: &mut ReleasedConnections<H>, scope: &mut Scope<'_>) {
        let config = self.config.clone();
        self.priorities.resize_with(self.priorities.len().max(config.priorities.len()), || None);
        for (priority, localities) in config.priorities.iter().enumerate() {
            let endpoints = || localities.iter().flat_map(|locality| &locality.endpoints);
            let mut destinations = endpoints().flat_map(EndpointConfig::destinations);
            if self.priorities[priority].is_none()
                && destinations.any(|destination| released.has_ready(&destination))
            {
                let plan = PriorityLists::none().plan(priority, &config, scope.random);
                self.fill(plan, released, scope);
                self.failover.retain(priority, scope.now);
            }
        }
    }

    /// Ends a priority, and the endpoints that no other one lists (CH3.9).
    fn destroy(&mut self, priority: usize, scope: &mut Scope<'_>) {
        if let Some(groups) = self.priorities.get_mut(priority) {
            *groups = None;
        }
        let mut released = ReleasedConnections::new();
        let (members, timeouts) = (&mut self.members, &mut self.timeouts);
        self.by_key.retain(|_, member| {
            let it = &mut members[*member];
            it.places.retain(|place| place.priority != priority);
            let is_listed = !it.places.is_empty();
            if !is_listed {
                let it = members.remove(*member);
                it.timeout.map(|at| timeouts.remove(&(at, *member)));
                it.release_connections(&mut released);
            }
            is_listed
        });
        self.keep_hosts(&mut released, scope);
        released.release(scope.commands);
    }

    fn member_places(&self) -> Vec<usize> {
        self.members.iter().map(|(place, _)| place).collect()
    }
}
