//! What a cluster is doing, for operators.

use std::time::Instant;

use super::{
    Leaf, cluster::Cluster, endpoints::EndpointTable, listed::ListedEndpoints, priorities::Priorities,
};
use crate::balance::{
    cluster_endpoint::ClusterEndpoint,
    connectivity::Connectivity,
    endpoint_spec::EndpointKey,
    lists::PriorityLists,
    locality_config::{EndpointConfig, LocalityConfig},
    outlier::Outliers,
    status::{
        ConnectionFacts, ConnectionSecurity, ConnectionStatus, EndpointStatus, LeafStatus, LocalityStatus,
        PriorityStatus, TransportFacts,
    },
};

impl<H: Clone + ConnectionFacts> Leaf<H> {
    /// The cluster with its endpoints, at a time.
    pub(in crate::balance) fn status(&self, now: Instant) -> LeafStatus {
        let ListedEndpoints { cluster, endpoints, priorities, .. } = &self.listed;
        let reader = StatusReader { cluster, endpoints, priorities, outliers: &self.outliers, now };
        LeafStatus {
            name: cluster.name.clone(),
            state: self.connectivity(),
            policy: cluster.policy().name(),
            requests: cluster.breaker.running(),
            max_requests: cluster.config.max_requests,
            priorities: reader.priorities(),
            unused: Vec::new(),
        }
    }
}

/// The parts of a cluster that its status is made of.
struct StatusReader<'a, H> {
    cluster: &'a Cluster,
    endpoints: &'a EndpointTable<H>,
    priorities: &'a Priorities<H>,
    outliers: &'a Outliers,
    now: Instant,
}

impl<H: Clone + ConnectionFacts> StatusReader<'_, H> {
    /// The priorities of the configuration, also those that were not created.
    fn priorities(&self) -> Vec<PriorityStatus> {
        let priorities = self.cluster.config.priorities.iter().enumerate();
        priorities.map(|(priority, localities)| self.priority(priority, localities)).collect()
    }

    fn priority(&self, priority: usize, localities: &[LocalityConfig]) -> PriorityStatus {
        let lists = self.priorities.get(priority);
        let localities = localities.iter().map(|locality| LocalityStatus {
            locality: locality.locality.clone(),
            weight: locality.weight,
            endpoints: locality
                .endpoints
                .iter()
                .map(|endpoint| self.endpoint(endpoint, locality, priority))
                .collect(),
        });
        PriorityStatus {
            state: lists.map(PriorityLists::connectivity),
            is_active: self.priorities.chosen_index() == Some(priority),
            error: lists.and_then(|lists| lists.error.clone()),
            localities: localities.collect(),
        }
    }

    /// An endpoint with its own state, or with its part of the state if the policy has one connection for all.
    fn endpoint(
        &self,
        endpoint: &EndpointConfig,
        locality: &LocalityConfig,
        priority: usize,
    ) -> EndpointStatus {
        let policy = self.cluster.policy();
        let by_locality = self.cluster.config.policy.by_locality.then(|| locality.locality.to_string());
        let is_own = !policy.shares_connection();
        let key = match is_own {
            true => EndpointKey::of(endpoint.addresses.clone(), endpoint.identity.clone()),
            false => EndpointKey::All { priority, locality: by_locality },
        };
        let known = self.endpoints.by_key(&key);
        let connections = known.map(|known| connections(known, endpoint)).unwrap_or_default();
        let state = match known {
            Some(known) if is_own => known.connectivity,
            Some(known) => state_of_one(known, endpoint),
            None => Connectivity::Idle,
        };
        let weights = policy.weights();
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
            load_weight: weights.and_then(|settings| known?.load_weight(settings, self.now)),
            calls: connections.iter().map(|connection| connection.calls).sum(),
            error: known.filter(|_| connections.is_empty()).and_then(|known| known.error().cloned()),
            connections,
            ejected_for: ejected_until.map(|until| until.saturating_duration_since(self.now)),
        }
    }
}

/// The connections to the addresses of an endpoint.
fn connections<H: Clone + ConnectionFacts>(
    known: &ClusterEndpoint<H>,
    endpoint: &EndpointConfig,
) -> Vec<ConnectionStatus> {
    let ready = known.subchannels().filter(|subchannel| endpoint.addresses.contains(&subchannel.address()));
    let connections = ready.filter_map(|ready| ready.ready()).flat_map(|ready| {
        ready.connections.iter().map(move |(connection, streams)| {
            let identity = &ready.destination.identity;
            let TransportFacts { local, streams_begun, streams_completed, tls } = streams.handle().facts();
            ConnectionStatus {
                address: ready.destination.address,
                id: connection.number(),
                local_address: local,
                calls: streams.running(),
                streams_begun,
                streams_completed,
                max_calls: streams.limit(),
                security: ConnectionSecurity::of(identity.security(), streams.peer().cloned()),
                tls,
            }
        })
    });
    connections.collect()
}

/// The state of an endpoint that has its connection together with others.
fn state_of_one<H: Clone>(known: &ClusterEndpoint<H>, endpoint: &EndpointConfig) -> Connectivity {
    let states = || {
        let own = known.subchannels().filter(|subchannel| endpoint.addresses.contains(&subchannel.address()));
        own.map(|subchannel| subchannel.connectivity())
    };
    let preferred = [Connectivity::Ready, Connectivity::Connecting, Connectivity::TransientFailure];
    preferred.into_iter().find(|state| states().any(|known| known == *state)).unwrap_or(Connectivity::Idle)
}
