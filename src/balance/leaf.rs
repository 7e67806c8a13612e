//! A cluster with endpoints of its own: priorities, localities and endpoints (CH2.20).

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use slab::Slab;

use super::{
    breaker::Breaker,
    command::{Commands, ConnectionId, Owner},
    connectivity::Connectivity,
    failover::{Alternatives, Failover},
    group::Groups,
    member::{Key, Member, MemberConfig, Place},
    pick_first::PickFirstSettings,
    picker::{Endpoints, LeafPicker},
    policy::LeafConfig,
};

/// What each event needs: the time, the random numbers, and where commands go.
pub(super) struct Scope<'a> {
    pub(super) now: Instant,
    pub(super) random: &'a mut fastrand::Rng,
    pub(super) commands: &'a mut Commands,
}

/// The state of a cluster's endpoints.
#[derive(Debug)]
pub(super) struct Leaf<H> {
    name: Arc<str>,
    /// Its place in the balancer, for the commands of its endpoints.
    place: usize,
    config: Arc<LeafConfig>,
    breaker: Arc<Breaker>,
    settings: PickFirstSettings,
    members: Slab<Member<H>>,
    by_key: BTreeMap<Key, usize>,
    /// The groups of each priority that was created.
    priorities: Vec<Option<Groups>>,
    failover: Failover,
    /// When members are due.
    timeouts: BTreeSet<(Instant, usize)>,
    /// The picker is older than the state.
    is_changed: bool,
}

impl<H: Clone> Leaf<H> {
    /// A cluster whose first priority begins to connect.
    pub(super) fn new(
        (name, place): (Arc<str>, usize),
        (config, breaker): (Arc<LeafConfig>, Arc<Breaker>),
        settings: PickFirstSettings,
        scope: &mut Scope<'_>,
    ) -> Self {
        let mut leaf = Self {
            name,
            place,
            config,
            breaker,
            settings,
            members: Slab::new(),
            by_key: BTreeMap::new(),
            priorities: Vec::new(),
            failover: Failover::default(),
            timeouts: BTreeSet::new(),
            is_changed: true,
        };
        leaf.choose(scope);
        leaf
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn config(&self) -> &Arc<LeafConfig> {
        &self.config
    }

    /// A new configuration. Endpoints that it still lists keep connections and counters, wherever they are now (CH1.25).
    pub(super) fn update(&mut self, config: Arc<LeafConfig>, breaker: Arc<Breaker>, scope: &mut Scope<'_>) {
        (self.config, self.breaker) = (config, breaker);
        self.is_changed = true;
        for priority in 0..self.priorities.len() {
            if let Some(before) = self.priorities[priority].take() {
                self.fill(priority, before, scope);
            }
        }
        self.release_unlisted(scope);
        self.choose(scope);
    }

    /// A connection is ready.
    pub(super) fn on_connected(
        &mut self,
        member: usize,
        (connection, handle): (ConnectionId, H),
        scope: &mut Scope<'_>,
    ) {
        self.with_member(member, scope, |it, scope| it.on_connected(connection, handle, scope));
    }

    /// An attempt failed.
    pub(super) fn on_failed(
        &mut self,
        member: usize,
        (connection, error): (ConnectionId, Arc<str>),
        scope: &mut Scope<'_>,
    ) {
        if let Some(it) = self.members.get(member) {
            for place in &it.places {
                if let Some(Some(groups)) = self.priorities.get_mut(place.priority) {
                    groups.error = Some(error.clone());
                }
            }
        }
        self.with_member(member, scope, |it, scope| it.on_failed(connection, error, scope));
    }

    /// A connection takes no more requests.
    pub(super) fn on_lost(&mut self, member: usize, connection: ConnectionId, scope: &mut Scope<'_>) {
        self.with_member(member, scope, |it, scope| it.on_lost(connection, scope));
    }

    /// A pick requested a connection (CH3.22).
    pub(super) fn connect(&mut self, scope: &mut Scope<'_>) {
        for member in self.member_places() {
            if self.members[member].connectivity == Connectivity::Idle {
                self.with_member(member, scope, Member::connect);
            }
        }
    }

    /// Delays after failures are over (CH3.3).
    pub(super) fn reset_backoff(&mut self, scope: &mut Scope<'_>) {
        for member in self.member_places() {
            self.with_member(member, scope, Member::reset_backoff);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let member = self.timeouts.first().map(|(at, _)| *at);
        member.into_iter().chain(self.failover.poll_timeout()).min()
    }

    /// To be called when [`poll_timeout`](Self::poll_timeout) says so.
    pub(super) fn handle_timeout(&mut self, scope: &mut Scope<'_>) {
        let due: Vec<_> =
            self.timeouts.iter().take_while(|(at, _)| *at <= scope.now).map(|it| it.1).collect();
        for member in due {
            self.with_member(member, scope, Member::handle_timeout);
        }
        self.choose(scope);
    }

    /// Ends all attempts, and the connections when their streams have ended.
    pub(super) fn close(&mut self, scope: &mut Scope<'_>) {
        self.priorities.clear();
        self.release_unlisted(scope);
    }

    /// The connectivity of the priority in use.
    pub(super) fn connectivity(&self) -> Connectivity {
        self.chosen().map_or(Connectivity::TransientFailure, Groups::connectivity)
    }

    /// The new picker, if anything changed.
    pub(super) fn take_picker(&mut self) -> Option<Arc<LeafPicker<H>>> {
        mem::take(&mut self.is_changed).then(|| {
            Arc::new(LeafPicker {
                name: self.name.clone(),
                drops: self.config.drops.clone(),
                breaker: self.breaker.clone(),
                limit: self.config.max_requests,
                connectivity: self.connectivity(),
                endpoints: self.endpoints(),
            })
        })
    }

    fn endpoints(&self) -> Endpoints<H> {
        let Some(groups) = self.chosen() else { return Endpoints::Fail(self.no_endpoints()) };
        match groups.connectivity() {
            Connectivity::Ready => {
                let ready = |member: usize| self.members.get(member).and_then(|it| it.ready.clone());
                Endpoints::Ready(groups.pickers(self.config.policy.policy, ready))
            }
            Connectivity::Connecting => Endpoints::Queue,
            Connectivity::Idle => Endpoints::Idle(AtomicBool::new(false)),
            Connectivity::TransientFailure => Endpoints::Fail(self.failure(groups)),
        }
    }

    fn chosen(&self) -> Option<&Groups> {
        self.priorities.get(self.failover.chosen()?)?.as_ref()
    }

    fn failure(&self, groups: &Groups) -> Arc<str> {
        let name = &self.name;
        match &groups.error {
            Some(error) if !groups.is_empty() => {
                format!("cluster {name}: no endpoint can be reached, the latest error is: {error}").into()
            }
            Some(_) | None => self.no_endpoints(),
        }
    }

    fn no_endpoints(&self) -> Arc<str> {
        let name = &self.name;
        match &self.config.note {
            Some(note) => format!("cluster {name} has no usable endpoints: {note}").into(),
            None => format!("cluster {name} has no usable endpoints").into(),
        }
    }

    fn choose(&mut self, scope: &mut Scope<'_>) {
        let mut failover = mem::take(&mut self.failover);
        let before = failover.chosen();
        let count = self.config.priorities.len();
        self.priorities.resize_with(self.priorities.len().max(count), || None);
        failover.choose(count, scope.now, &mut Priorities { leaf: self, scope });
        self.priorities.truncate(count);
        self.is_changed |= failover.chosen() != before;
        self.failover = failover;
    }

    /// Lets an endpoint handle an event, and the levels above what came of it.
    fn with_member(
        &mut self,
        member: usize,
        scope: &mut Scope<'_>,
        event: impl FnOnce(&mut Member<H>, &mut Scope<'_>),
    ) {
        let Some(it) = self.members.get_mut(member) else { return };
        scope.commands.set_owner(Owner { leaf: self.place, member });
        event(it, scope);
        self.settle(member, scope);
        self.choose(scope);
    }

    /// Takes note of what an endpoint has become.
    fn settle(&mut self, member: usize, scope: &mut Scope<'_>) {
        let it = &mut self.members[member];
        scope.commands.set_owner(Owner { leaf: self.place, member });
        let change = it.settle(scope);
        if change.timeout.0 != change.timeout.1 {
            change.timeout.0.map(|at| self.timeouts.remove(&(at, member)));
            change.timeout.1.map(|at| self.timeouts.insert((at, member)));
        }
        let (from, to) = change.connectivity;
        self.is_changed = true;
        for place in &it.places {
            if let Some(Some(groups)) = self.priorities.get_mut(place.priority) {
                groups.count(place.group, from, to);
            }
        }
    }

    /// Makes the groups of a priority as they are configured now; `before` are those that it had.
    fn fill(&mut self, priority: usize, mut before: Groups, scope: &mut Scope<'_>) {
        before
            .list()
            .iter()
            .for_each(|member| self.members[*member].places.retain(|it| it.priority != priority));
        let config = self.config.clone();
        let Some(localities) = config.priorities.get(priority) else { return };
        let localities = Groups::configs(localities, config.policy);
        let mut groups = Groups::of(&localities, &mut before, scope.random);
        for (index, (group, locality)) in groups.all.iter_mut().zip(&localities).enumerate() {
            let place = Place { priority, group: index };
            for config in locality.members(place, config.policy, scope.random) {
                let member = self.member(config, scope);
                self.members[member].places.push(place);
                group.add(member, self.members[member].connectivity);
            }
        }
        let members = groups.list();
        self.priorities[priority] = Some(groups);
        // From a random place on, so that not all clients begin with the same endpoint (CH3.25).
        let first = if members.is_empty() { 0 } else { scope.random.usize(..members.len()) };
        for member in members[first..].iter().chain(&members[..first]) {
            if !self.members[*member].is_started {
                scope.commands.set_owner(Owner { leaf: self.place, member: *member });
                self.members[*member].connect(scope);
            }
            self.settle(*member, scope);
        }
    }

    /// The endpoint of a configuration, which keeps what it has if it was there.
    fn member(&mut self, config: MemberConfig, scope: &mut Scope<'_>) -> usize {
        let known = self.by_key.get(&config.key).copied();
        let member = known.unwrap_or_else(|| {
            let member = self.members.insert(Member::new(self.settings));
            self.by_key.insert(config.key.clone(), member);
            member
        });
        scope.commands.set_owner(Owner { leaf: self.place, member });
        self.members[member].update(config, scope);
        member
    }

    /// Releases the endpoints that no priority lists any more (CH3.9).
    fn release_unlisted(&mut self, scope: &mut Scope<'_>) {
        let listed: BTreeSet<usize> = self.priorities.iter().flatten().flat_map(Groups::list).collect();
        let (members, timeouts) = (&mut self.members, &mut self.timeouts);
        self.by_key.retain(|_, member| {
            let is_listed = listed.contains(member);
            if !is_listed {
                let mut it = members.remove(*member);
                scope.commands.set_owner(Owner { leaf: self.place, member: *member });
                it.close(scope);
                it.timeout.map(|at| timeouts.remove(&(at, *member)));
            }
            is_listed
        });
    }

    fn member_places(&self) -> Vec<usize> {
        self.members.iter().map(|(place, _)| place).collect()
    }
}

/// The priorities of a cluster for the choice among them.
struct Priorities<'a, 'b, H> {
    leaf: &'a mut Leaf<H>,
    scope: &'a mut Scope<'b>,
}

impl<H: Clone> Alternatives for Priorities<'_, '_, H> {
    fn create(&mut self, index: usize) {
        self.leaf.fill(index, Groups::default(), self.scope);
    }

    fn destroy(&mut self, index: usize) {
        self.leaf.priorities[index] = None;
        for (_, member) in &mut self.leaf.members {
            member.places.retain(|place| place.priority != index);
        }
        self.leaf.release_unlisted(self.scope);
    }

    fn connectivity(&self, index: usize) -> Connectivity {
        let groups = self.leaf.priorities.get(index).and_then(Option::as_ref);
        groups.map_or(Connectivity::TransientFailure, Groups::connectivity)
    }
}
