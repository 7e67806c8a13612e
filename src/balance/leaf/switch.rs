//! The endpoints of a policy that was replaced by one of another type (CH3.13).

use std::{collections::BTreeMap, mem, time::Instant};

use super::{Leaf, Scope};
use crate::balance::{
    draining_policy::DrainingPolicy,
    picker::{Endpoints, Localities, ReadyEndpoint},
    policy::LeafConfig,
    released_connections::ReleasedConnections,
};

impl<H: Clone> Leaf<H> {
    /// The ready endpoints, if the next configuration has another type of policy.
    pub(super) fn before_switch(&mut self, config: &LeafConfig, now: Instant) -> Option<Localities<H>> {
        let policies = (&self.config.policy.policy, &config.policy.policy);
        let is_switch = mem::discriminant(policies.0) != mem::discriminant(policies.1);
        match self.endpoints(now) {
            Endpoints::Ready(endpoints) if is_switch && !conflict(&endpoints, &self.config, config) => {
                Some(endpoints)
            }
            Endpoints::Ready(_) | Endpoints::Queue | Endpoints::Idle(_) | Endpoints::Fail(_) => None,
        }
    }

    /// Ends the use of a policy before if the next configuration has other identities: no call may be sent by another one
    /// (CH7.20).
    pub(super) fn end_conflicting(&mut self, config: &LeafConfig, scope: &mut Scope<'_>) {
        let is_over = |retiring: &DrainingPolicy<H>| conflict(retiring.endpoints(), &self.config, config);
        if self.retiring.as_ref().is_some_and(is_over) {
            self.end_retiring(scope);
        }
    }

    pub(super) fn end_retiring(&mut self, scope: &mut Scope<'_>) {
        if let Some(retiring) = self.retiring.take() {
            let mut released = ReleasedConnections::new();
            retiring.release_connections(&mut released);
            self.keep_hosts(&mut released, scope);
            released.release(scope.commands);
            self.published = None;
        }
    }
}

/// Whether any of these endpoints has another identity in the next configuration. What became of one that is listed no more, the
/// security of its cluster says.
fn conflict<H>(endpoints: &Localities<H>, before: &LeafConfig, next: &LeafConfig) -> bool {
    let mut identities: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let listed = next.listed().iter().flatten().flat_map(|locality| &locality.endpoints);
    for endpoint in listed.chain(&next.hosts.draining) {
        let addresses = endpoint.addresses.iter();
        addresses.for_each(|address| identities.entry(*address).or_default().push(&endpoint.identity));
    }
    let is_alike = before.security == next.security;
    let is_other = |endpoint: &ReadyEndpoint<H>| match identities.get(&endpoint.address) {
        Some(identities) => !identities.contains(&endpoint.identity()),
        None => !is_alike,
    };
    endpoints.iter().flat_map(|(_, picker)| picker.ready.iter()).any(|endpoint| is_other(endpoint))
}
