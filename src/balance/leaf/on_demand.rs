//! The first connections, and those that calls request: where the policy connects on demand, one by one (A42, A61).

use super::{Leaf, Scope};
use crate::balance::{
    cluster_endpoint::ClusterEndpoint,
    command::{Holder, Owner},
    connectivity::Connectivity,
    lists::PriorityLists,
    picker::ListId,
};

impl<H: Clone> Leaf<H> {
    /// Requests the first connections of a priority's endpoints, from a random one on, so that not all clients begin with the same
    /// (CH3.25).
    pub(super) fn start(&mut self, priority: usize, scope: &mut Scope<'_>) {
        let Some(Some(groups)) = self.priorities.get_mut(priority) else { return };
        groups.is_started = true;
        if self.config.policy.policy.connects_on_demand() {
            return self.connect_on_demand(scope);
        }
        let members = groups.list();
        let first = if members.is_empty() { 0 } else { scope.random.usize(..members.len()) };
        for member in members[first..].iter().chain(&members[..first]) {
            scope.commands.set_owner(Owner { leaf: self.place, holder: Holder::Endpoint(*member) });
            self.members[*member].start(scope);
            self.settle(*member, scope);
        }
    }

    /// A pick requested a connection (CH3.22), or found that the policy of the application has failed (CH3.63).
    pub(in crate::balance) fn connect(&mut self, scope: &mut Scope<'_>) {
        if self.config.policy.policy.connects_on_demand() {
            return self.exit_idle(scope);
        }
        for member in self.member_places() {
            if self.members[member].connectivity == Connectivity::Idle {
                self.with_member(member, scope, ClusterEndpoint::connect);
            }
        }
        self.choose(scope);
    }

    /// A pick requested the connection of an endpoint (CH3.33). One that is not listed any more, or not idle, has a newer picker.
    pub(in crate::balance) fn connect_endpoint(
        &mut self,
        list: &ListId,
        index: usize,
        scope: &mut Scope<'_>,
    ) {
        let mut groups = self.priorities.iter().flatten();
        let Some(member) = groups.find_map(|groups| groups.endpoint(list, index)) else { return };
        if self.members.get(member).is_some_and(|endpoint| endpoint.connectivity == Connectivity::Idle) {
            self.with_member(member, scope, ClusterEndpoint::connect);
        }
    }

    /// Connects one endpoint of the priority in use, if it is idle (CH3.38).
    fn exit_idle(&mut self, scope: &mut Scope<'_>) {
        if self.current_connectivity() == Connectivity::Idle
            && let Some(priority) = self.failover.chosen()
        {
            self.connect_next(priority, true, scope);
            self.choose(scope);
        }
    }

    /// Connects one endpoint after the other of lists that have no attempt under way, until they have (CH3.37).
    pub(super) fn connect_on_demand(&mut self, scope: &mut Scope<'_>) {
        if !self.config.policy.policy.connects_on_demand() {
            return;
        }
        for priority in 0..self.priorities.len() {
            while self.connect_next(priority, false, scope) {}
        }
    }

    /// Whether the policy of the priority in use decides by itself what to do without a ready endpoint.
    pub(super) fn picks_without_ready(&self) -> bool {
        let policy = &self.config.policy;
        let is_decided = match self.current_connectivity() {
            Connectivity::Ready | Connectivity::TransientFailure => true,
            // Otherwise a locality is drawn before, when one of them is ready or all fail (CH3.49).
            Connectivity::Connecting | Connectivity::Idle => !policy.by_locality,
        };
        policy.policy.connects_on_demand()
            && is_decided
            && self.chosen().is_some_and(|groups| !groups.is_empty())
    }

    /// Connects one endpoint of a priority, if that is due; says whether there may be another one to connect.
    fn connect_next(&mut self, priority: usize, is_requested: bool, scope: &mut Scope<'_>) -> bool {
        let groups = self.priorities.get(priority).and_then(Option::as_ref);
        let state = |member: usize| self.members[member].connectivity;
        let next = |groups: &PriorityLists<H>| groups.next_on_demand(is_requested, scope.random, state);
        let Some(member) = groups.and_then(next) else { return false };
        scope.commands.set_owner(Owner { leaf: self.place, holder: Holder::Endpoint(member) });
        self.members[member].connect(scope);
        self.settle(member, scope);
        self.members[member].connectivity != Connectivity::Idle
    }
}
