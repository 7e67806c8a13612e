//! What a cluster is doing, for operators.

use std::time::Instant;

use super::{Leaf, PriorityLists};
use crate::balance::{
    cluster_endpoint::{ClusterEndpoint, EndpointKey},
    connectivity::Connectivity,
    policy::{EndpointConfig, LocalityConfig},
    status::{
        ConnectionSecurity, ConnectionStatus, EndpointStatus, LeafStatus, LocalityStatus, PriorityStatus,
    },
};

impl<H: Clone> Leaf<H> {
    pub(in crate::balance) fn status(&self, now: Instant) -> LeafStatus {
        let priorities = self.config.priorities.iter().enumerate();
        LeafStatus {
            name: self.name.clone(),
            state: self.connectivity(),
            policy: self.config.policy.policy.name(),
            requests: self.breaker.running(),
            max_requests: self.config.max_requests,
            priorities: priorities.map(|(index, it)| self.priority_status(index, it, now)).collect(),
            unused: Vec::new(),
        }
    }

    fn priority_status(
        &self,
        priority: usize,
        localities: &[LocalityConfig],
        now: Instant,
    ) -> PriorityStatus {
        let groups = self.priorities.get(priority).and_then(Option::as_ref);
        let localities = localities.iter().map(|locality| LocalityStatus {
            locality: locality.locality.clone(),
            weight: locality.weight,
            endpoints: locality
                .endpoints
                .iter()
                .map(|of| self.endpoint_status(of, (priority, locality), now))
                .collect(),
        });
        PriorityStatus {
            state: groups.map(PriorityLists::connectivity),
            is_active: self.failover.chosen() == Some(priority),
            error: groups.and_then(|groups| groups.error.clone()),
            localities: localities.collect(),
        }
    }

    fn endpoint_status(
        &self,
        endpoint: &EndpointConfig,
        (priority, locality): (usize, &LocalityConfig),
        now: Instant,
    ) -> EndpointStatus {
        let by_locality = self.config.policy.by_locality.then(|| locality.locality.to_string());
        let is_own = !self.config.policy.policy.shares_connection();
        let key = match is_own {
            true => EndpointKey::of(endpoint.addresses.clone(), endpoint.identity.clone()),
            false => EndpointKey::All { priority, locality: by_locality },
        };
        let member = self.by_key.get(&key).and_then(|member| self.members.get(*member));
        let connections = member.map(|member| connections(member, endpoint)).unwrap_or_default();
        let state = match member {
            Some(it) if is_own => it.connectivity,
            Some(it) => state_of_one(it, endpoint),
            None => Connectivity::Idle,
        };
        let weights = self.config.policy.policy.weights();
        let ejected_until = match &key {
            EndpointKey::Endpoint { addresses, .. } => self.outliers.ejected_until(addresses),
            EndpointKey::All { .. } => None,
        };
        EndpointStatus {
            addresses: endpoint.addresses.clone(),
            hostname: endpoint.hostname.clone(),
            health: None,
            state,
            weight: endpoint.weight,
            load_weight: weights.and_then(|settings| member?.load_weight(settings, now)),
            calls: connections.iter().map(|connection| connection.calls).sum(),
            error: member.filter(|_| connections.is_empty()).and_then(|member| member.error().cloned()),
            connections,
            ejected_for: ejected_until.map(|until| until.saturating_duration_since(now)),
        }
    }
}

/// The connections to the addresses of an endpoint.
fn connections<H: Clone>(member: &ClusterEndpoint<H>, endpoint: &EndpointConfig) -> Vec<ConnectionStatus> {
    let ready = member.subchannels().filter(|subchannel| endpoint.addresses.contains(&subchannel.address()));
    let connections = ready.filter_map(|ready| ready.ready()).flat_map(|ready| {
        ready.connections.iter().map(move |(_, streams)| ConnectionStatus {
            address: ready.destination.address,
            calls: streams.running(),
            max_calls: streams.limit(),
            security: ConnectionSecurity::of(ready.destination.identity.security(), streams.peer().cloned()),
        })
    });
    connections.collect()
}

/// The state of an endpoint that has its connection together with others.
fn state_of_one<H: Clone>(member: &ClusterEndpoint<H>, endpoint: &EndpointConfig) -> Connectivity {
    let states = || {
        let own =
            member.subchannels().filter(|subchannel| endpoint.addresses.contains(&subchannel.address()));
        own.map(|subchannel| subchannel.connectivity())
    };
    let preferred = [Connectivity::Ready, Connectivity::Connecting, Connectivity::TransientFailure];
    preferred.into_iter().find(|state| states().any(|known| known == *state)).unwrap_or(Connectivity::Idle)
}
