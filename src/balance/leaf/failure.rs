//! Why a cluster fails the calls that do not wait.

use std::sync::Arc;

use super::{cluster::Cluster, endpoints::EndpointTable, priorities::Priorities};
use crate::balance::{lists::PriorityLists, stale_config::with_stale_cluster};

/// What is wrong with a cluster, for the status of its calls.
pub(super) fn failure<H: Clone>(
    cluster: &Cluster,
    priorities: &Priorities<H>,
    endpoints: &EndpointTable<H>,
) -> Arc<str> {
    let name = &cluster.name;
    match priorities.failing() {
        Some(lists) if lists.is_broken() => {
            format!("cluster {name}: the load balancing policy panicked").into()
        }
        Some(lists) if !lists.is_empty() => match (&lists.error, ejected(lists, endpoints)) {
            (None, None) => no_endpoints(cluster),
            (error, ejected) => {
                let error = error.as_ref().map(|error| format!("the latest error is: {error}"));
                let reasons: Vec<_> = ejected.into_iter().chain(error).collect();
                let reason = format!("cluster {name}: no endpoint can be reached, {}", reasons.join(", "));
                with_stale_cluster(reason, cluster.config.note.as_deref()).into()
            }
        },
        Some(_) | None => no_endpoints(cluster),
    }
}

/// How many endpoints of a priority are ejected, if any is.
fn ejected<H: Clone>(lists: &PriorityLists<H>, endpoints: &EndpointTable<H>) -> Option<String> {
    let members = lists.list();
    let ejected = members.iter().filter(|member| endpoints.listed(**member).is_ejected()).count();
    let total = members.len();
    (ejected > 0).then(|| format!("{ejected} of {total} are ejected by outlier detection"))
}

/// The reason why a cluster has no usable endpoints, with their numbers by health and the errors of its resources.
fn no_endpoints(cluster: &Cluster) -> Arc<str> {
    let (name, config) = (&cluster.name, &cluster.config);
    let reasons = [&config.unusable, &config.note].into_iter().flatten().map(|reason| &**reason);
    match &reasons.collect::<Vec<_>>()[..] {
        [] => format!("cluster {name} has no usable endpoints").into(),
        reasons => format!("cluster {name} has no usable endpoints: {}", reasons.join("; ")).into(),
    }
}
