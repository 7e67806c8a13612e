//! The endpoints of a policy that was replaced by one of another type (CH3.13).

use std::{mem, time::Instant};

use super::{Leaf, Scope};
use crate::balance::{
    handover::Handover,
    picker::{Endpoints, Localities},
    policy::LeafConfig,
};

impl<H: Clone> Leaf<H> {
    /// The ready endpoints, if the next configuration has another type of policy.
    pub(super) fn before_switch(&mut self, config: &LeafConfig, now: Instant) -> Option<Localities<H>> {
        let policies = (&self.config.policy.policy, &config.policy.policy);
        let is_switch = mem::discriminant(policies.0) != mem::discriminant(policies.1);
        match self.endpoints(now) {
            Endpoints::Ready(endpoints) if is_switch => Some(endpoints),
            Endpoints::Ready(_) | Endpoints::Queue | Endpoints::Idle(_) | Endpoints::Fail(_) => None,
        }
    }

    pub(super) fn end_retiring(&mut self, scope: &mut Scope<'_>) {
        if let Some(retiring) = self.retiring.take() {
            let mut handover = Handover::new();
            retiring.surrender(&mut handover);
            self.keep_hosts(&mut handover, scope);
            handover.release(scope.commands);
            self.published = None;
        }
    }
}
