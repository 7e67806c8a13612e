//! The priorities of a cluster, one of which is in use.

use super::{Leaf, Scope};
use crate::balance::{
    connectivity::Connectivity, failover::Alternatives, lists::PriorityLists,
    released_connections::ReleasedConnections,
};

/// The priorities of a cluster for the choice among them.
pub(super) struct Priorities<'a, 'b, H> {
    pub(super) leaf: &'a mut Leaf<H>,
    pub(super) scope: &'a mut Scope<'b>,
}

impl<H: Clone> Alternatives for Priorities<'_, '_, H> {
    fn create(&mut self, index: usize) {
        let Some(plan) = self.leaf.plan(index, self.scope) else { return };
        let mut released = ReleasedConnections::new();
        let members = plan.members.iter().flatten();
        self.leaf.surrender_hosts(members.flat_map(|config| &config.destinations), &mut released);
        self.leaf.fill(plan, &mut released, self.scope);
        self.leaf.start(index, self.scope);
        self.leaf.keep_hosts(&mut released, self.scope);
        released.release(self.scope.commands);
    }

    fn reactivate(&mut self, index: usize) {
        self.leaf.start(index, self.scope);
    }

    fn destroy(&mut self, index: usize) {
        self.leaf.destroy(index, self.scope);
    }

    fn connectivity(&self, index: usize) -> Connectivity {
        let groups = self.leaf.priorities.get(index).and_then(Option::as_ref);
        groups.map_or(Connectivity::TransientFailure, PriorityLists::connectivity)
    }
}
