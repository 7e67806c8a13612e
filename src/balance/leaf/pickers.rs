//! What the pickers of a cluster are made of.

use std::{sync::atomic::AtomicBool, time::Instant};

use super::{cluster::Cluster, endpoints::EndpointTable, failure::failure, priorities::Priorities};
use crate::{
    balance::{
        connectivity::Connectivity,
        lists::{PickerContext, PriorityLists},
        observer::Observation,
        picker::{self, Localities},
        weights::WeightState,
    },
    resource::Locality,
};

/// What picks do with the endpoints of the priority in use.
pub(super) fn endpoints<H: Clone>(
    cluster: &Cluster,
    priorities: &mut Priorities<H>,
    endpoints: &EndpointTable<H>,
    now: Instant,
) -> picker::Endpoints<H> {
    match priorities.connectivity() {
        // Before the states: such a policy waits and fails for each request by itself.
        _ if picks_without_ready(cluster, priorities) => {
            picker::Endpoints::Ready(pickers(cluster, priorities, now))
        }
        Connectivity::Ready => picker::Endpoints::Ready(pickers(cluster, priorities, now)),
        Connectivity::Connecting => picker::Endpoints::Queue,
        Connectivity::Idle => picker::Endpoints::Idle(AtomicBool::new(false)),
        Connectivity::TransientFailure => picker::Endpoints::Fail(failure(cluster, priorities, endpoints)),
    }
}

/// Whether the policy of the priority in use decides by itself what to do without a ready endpoint.
fn picks_without_ready<H: Clone>(cluster: &Cluster, priorities: &Priorities<H>) -> bool {
    let is_decided = match priorities.connectivity() {
        Connectivity::Ready | Connectivity::TransientFailure => true,
        // Otherwise a locality is drawn before, when one of them is ready or all fail (CH3.49).
        Connectivity::Connecting | Connectivity::Idle => !cluster.config.policy.by_locality,
    };
    cluster.policy().connects_on_demand()
        && is_decided
        && priorities.chosen().is_some_and(|lists| !lists.is_empty())
}

/// The pickers of the localities of the priority in use; empty without a priority.
fn pickers<H: Clone>(cluster: &Cluster, priorities: &mut Priorities<H>, now: Instant) -> Localities<H> {
    let Cluster { name, config, settings, .. } = cluster;
    let on_scheduler = |locality: Option<&Locality>, weights: &[WeightState]| {
        settings.observer.observe(Observation::Scheduler { cluster: name, locality, weights });
    };
    let context = PickerContext { stale_config: config.note.as_ref(), now, on_scheduler: &on_scheduler };
    priorities.chosen_mut().map(|lists| lists.pickers(&context)).unwrap_or_default()
}

/// When the weights by load of the priority in use are to be read next: as long as there are endpoints to choose from (CH3.46).
pub(super) fn next_weights<H: Clone>(
    cluster: &Cluster,
    priorities: &Priorities<H>,
    now: Instant,
) -> Option<Instant> {
    let has_choice = priorities.connectivity() == Connectivity::Ready
        && priorities.chosen().is_some_and(PriorityLists::has_choice);
    let weights = cluster.policy().weights().filter(|_| has_choice);
    weights.map(|settings| now + settings.update)
}
