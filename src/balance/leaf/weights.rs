//! Weights of endpoints by load: when pickers get new ones (CH3.44).

use std::{sync::Arc, time::Instant};

use super::{Leaf, Scope};
use crate::balance::{
    command::{ConnectionId, Holder, Owner},
    connectivity::Connectivity,
    picker::ReadyEndpoint,
    weights::LoadReport,
};

impl<H: Clone> Leaf<H> {
    /// An endpoint has reported its load beside the calls.
    pub(in crate::balance) fn on_load(
        &mut self,
        member: usize,
        connection: ConnectionId,
        report: LoadReport,
        scope: &mut Scope<'_>,
    ) {
        let Some(endpoint) = self.members.get_mut(member) else { return };
        scope.commands.set_owner(Owner { leaf: self.place, holder: Holder::Endpoint(member) });
        endpoint.on_load(connection, report, self.config.policy.policy.weights(), scope);
    }

    /// An endpoint, while it is ready.
    pub(in crate::balance) fn ready(&self, member: usize) -> Option<Arc<ReadyEndpoint<H>>> {
        self.members.get(member)?.ready().cloned()
    }

    /// Makes a picker if weights have changed, once in each period.
    pub(super) fn check_weights(&mut self, now: Instant) {
        if self.weights_at.is_none_or(|at| at > now) {
            return;
        }
        if self.chosen_mut().is_some_and(|groups| groups.has_new_weights(now)) {
            self.published = None;
        }
        self.schedule_weights(now);
    }

    /// When weights are to be read next: while there are endpoints to choose from (CH3.46).
    pub(super) fn schedule_weights(&mut self, now: Instant) {
        let has_choice = self.current_connectivity() == Connectivity::Ready
            && self.chosen().is_some_and(|groups| groups.has_choice());
        let weights = self.config.policy.policy.weights().filter(|_| has_choice);
        self.weights_at = weights.map(|settings| now + settings.update);
    }
}
