//! What requests are picked by.

use std::{fmt, sync::Arc};

use imbl::OrdMap;

use super::{
    Attempt, Pick, PickError, PickRequest,
    connect_requests::{ConnectRequests, Requested},
    pick_request::Destination,
};
use crate::{
    balance::{
        connectivity::Connectivity,
        hash::RequestHash,
        pick_args::{CallAttributes, PickArgs},
        picker::{self, ClusterPicker},
    },
    error::{Code, WatchError},
    resolve::Snapshot,
    resource::route_action::HashPolicy,
};

/// The routes of a snapshot with the endpoints of its clusters at one time. `C` is what requests are sent with on a connection.
///
/// A picker is immutable and cheap to clone. Threads pick by the latest picker that they have, without a lock;
/// [`Balancer::poll_picker`](super::Balancer::poll_picker) yields later ones.
pub struct Picker<C> {
    state: Arc<State<C>>,
}

/// The parts of a picker.
pub(super) struct State<C> {
    pub(super) resolved: Resolved,
    pub(super) clusters: OrdMap<Arc<str>, Arc<ClusterPicker<C>>>,
    pub(super) requests: Arc<ConnectRequests>,
    /// The input of hash policies by the identity of the channel (CH2.17).
    pub(super) channel_id: u64,
}

/// What is known of the target.
#[derive(Debug, Clone)]
pub(super) enum Resolved {
    Waiting,
    Failed(WatchError),
    Snapshot(Arc<Snapshot>),
}

/// The cluster of a request, and the hash policies that apply to it.
struct Routed<'a> {
    cluster: &'a str,
    hash_policies: Option<&'a Arc<[HashPolicy]>>,
}

impl<C> Picker<C> {
    pub(super) fn new(state: State<C>) -> Self {
        Self { state: Arc::new(state) }
    }

    /// Picks an endpoint for a request: drops a share of the requests if the cluster is configured so, applies its circuit breaker,
    /// and chooses a locality and an endpoint by its policy.
    ///
    /// A pick may request a connection, as the first one of a cluster does, and those of endpoints that `ring_hash` connects on
    /// demand; [`Balancer::poll_command`](super::Balancer::poll_command) yields the command.
    pub fn pick(&self, request: &PickRequest<'_>) -> Pick<C> {
        let snapshot = match &self.state.resolved {
            Resolved::Waiting => return Pick::Wait,
            Resolved::Failed(error) => return Pick::Fail(PickError::Unresolved(error.clone())),
            Resolved::Snapshot(snapshot) => snapshot,
        };
        let Some(Routed { cluster, hash_policies }) = route(snapshot, request) else {
            return Pick::Fail(PickError::NoRoute { target: snapshot.target().into() });
        };
        let Some((target, picker)) = self.state.clusters.get_key_value(cluster) else {
            if snapshot.cluster(cluster).is_none() {
                return Pick::Fail(unknown(snapshot, cluster));
            }
            // No route leads there: the cluster is in use from its first request on.
            self.state.requests.add(Requested::Cluster(cluster.into()));
            return Pick::Wait;
        };
        let hash = match request.hash() {
            Some(hash) => RequestHash::of(hash),
            None => RequestHash::new(hash_policies.cloned(), self.state.channel_id),
        };
        self.pick_in(target, picker, request, hash)
    }

    /// Picks in the cluster of a request.
    fn pick_in(
        &self,
        target: &Arc<str>,
        picker: &ClusterPicker<C>,
        request: &PickRequest<'_>,
        hash: RequestHash,
    ) -> Pick<C> {
        let (mut attributes, mut random) = (CallAttributes::new(hash), request.random());
        let (attributes, random) = (&mut attributes, &mut random);
        let pick = request.with_query(|query| {
            picker.pick(&mut PickArgs { attributes: &mut *attributes, random: &mut *random, request: query })
        });
        if let Some(requested) = attributes.take_connect_request() {
            self.state.requests.add(Requested::Endpoint(requested));
        }
        let request_cluster = || self.state.requests.add(Requested::Cluster(target.clone()));
        match pick {
            picker::Pick::Complete(attempt) => {
                Attempt::new(target, attempt).map_or(Pick::Wait, Pick::Endpoint)
            }
            picker::Pick::Queue => Pick::Wait,
            picker::Pick::QueueAndConnect => {
                request_cluster();
                Pick::Wait
            }
            picker::Pick::Fail(reason) => Pick::Fail(PickError::Unavailable(reason)),
            picker::Pick::FailAs(code, message) => Pick::Fail(PickError::Policy { code, message }),
            picker::Pick::Broken(message) => {
                // The balancer learns that the policy has failed.
                request_cluster();
                Pick::Fail(PickError::Policy { code: Code::Internal, message })
            }
            picker::Pick::Drop(cause, reason) => Pick::Fail(PickError::of_drop(cause, reason)),
            picker::Pick::Unknown(reason) => Pick::Fail(PickError::NoCluster(reason)),
        }
    }

    /// Whether a pick of this request may have another result than by an earlier picker. A request that
    /// [waits](Pick::Wait) since the earlier one need not be picked again while this is false.
    pub fn has_changed(&self, since: &Self, request: &PickRequest<'_>) -> bool {
        match (&self.state.resolved, &since.state.resolved) {
            (Resolved::Snapshot(snapshot), Resolved::Snapshot(before)) => {
                let cluster = |snapshot| route(snapshot, request).map(|routed| routed.cluster);
                let picker = |picker: &Self, cluster| picker.state.clusters.get(cluster).map(Arc::as_ptr);
                match (cluster(snapshot), cluster(before)) {
                    (Some(cluster), Some(before)) if cluster == before => {
                        picker(self, cluster) != picker(since, cluster)
                    }
                    (None, None) => false,
                    (Some(_) | None, Some(_) | None) => true,
                }
            }
            (Resolved::Waiting, Resolved::Waiting) => false,
            (_, _) => true,
        }
    }

    /// The snapshot of the routes and clusters, if there is one.
    pub fn snapshot(&self) -> Option<&Arc<Snapshot>> {
        match &self.state.resolved {
            Resolved::Snapshot(snapshot) => Some(snapshot),
            Resolved::Waiting | Resolved::Failed(_) => None,
        }
    }

    /// The connectivity of a cluster of the snapshot: [`Idle`](Connectivity::Idle) if no route leads to it and no request was made.
    pub fn connectivity(&self, cluster: &str) -> Option<Connectivity> {
        let unused = || self.snapshot()?.cluster(cluster).map(|_| Connectivity::Idle);
        self.state.clusters.get(cluster).map(|picker| picker.connectivity).or_else(unused)
    }
}

/// The cluster that a request goes to, by its name or by its route.
fn route<'a>(snapshot: &'a Snapshot, request: &PickRequest<'a>) -> Option<Routed<'a>> {
    match request.destination {
        Destination::Cluster(cluster) => Some(Routed { cluster, hash_policies: None }),
        Destination::Route(query) => {
            let route = snapshot.route(query)?;
            let hash_policies = route.forward().map(|forward| &forward.hash_policies);
            Some(Routed { cluster: route.pick_cluster()?.name(), hash_policies })
        }
    }
}

/// The error of a request to a cluster that the snapshot has not.
fn unknown(snapshot: &Snapshot, cluster: &str) -> PickError {
    PickError::NoCluster(format!("cluster {cluster} is not in the snapshot of {}", snapshot.target()).into())
}

impl<C> Clone for Picker<C> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone() }
    }
}

impl<C> fmt::Debug for Picker<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { resolved, clusters, .. } = &*self.state;
        let clusters = clusters.iter().map(|(name, picker)| (name, picker.connectivity));
        f.debug_struct("Picker")
            .field("resolved", resolved)
            .field("clusters", &clusters.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
