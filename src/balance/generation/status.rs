//! What a channel is doing, for operators.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    net::SocketAddr,
    sync::Arc,
    time::Instant,
};

use super::{Generation, Generations, Routing, unexecuted::remarks_of_routes};
use crate::{
    balance::status::{ClusterStatus, ConnectionFacts, EndpointStatus, LeafStatus, UnusedEndpoint},
    escape::Escaped,
    resolve::ClusterView,
    resource::Remarks,
};

impl<H> Generation<H> {
    /// Why calls fail: there are no routes, or a cluster cannot be used; of several clusters, one.
    #[cfg_attr(not(feature = "channel"), allow(dead_code, reason = "the channel reports it"))]
    pub(crate) fn failure(&self) -> Option<Arc<str>> {
        match &self.routing {
            Routing::Waiting => None,
            Routing::Failed(error) => Some(error.to_string().into()),
            Routing::Routes(_) => self.pickers.iter().flatten().find_map(|picker| picker.failure().cloned()),
        }
    }
}

impl<H: Clone + ConnectionFacts + Debug> Generations<H> {
    /// The clusters that requests are sent to, and those with endpoints, with the health of these.
    pub(crate) fn status(&self, now: Instant) -> (Vec<ClusterStatus>, Vec<LeafStatus>) {
        let mut leaves = self.balancer.leaf_status(now);
        for leaf in &mut leaves {
            if let Some(cluster) = self.snapshot.as_ref().and_then(|snapshot| snapshot.cluster(&leaf.name)) {
                add_health(leaf, cluster);
            }
        }
        (self.balancer.cluster_status(), leaves)
    }

    /// The parts of the configuration that the channel does not use: those that validation has left out, and those that are not
    /// executed.
    pub(crate) fn not_executed(&self) -> Vec<Arc<str>> {
        let Some(snapshot) = &self.snapshot else { return Vec::new() };
        let filters =
            self.unexecuted.filters.iter().map(|filter| format!("HTTP filter {}", Escaped(filter)).into());
        let mut all: Vec<Arc<str>> = filters.collect();
        for remarks in remarks_of_routes(snapshot) {
            all.extend(shown(remarks).map(Arc::from));
        }
        let statuses = self.balancer.cluster_status();
        // A leaf of several aggregates is listed once.
        let leaves: BTreeSet<_> = statuses.iter().flat_map(|cluster| &cluster.leaves).collect();
        for view in leaves.into_iter().filter_map(|leaf| snapshot.cluster(leaf)) {
            let remarks = [
                view.config().map(|config| &config.remarks),
                view.assignment().map(|assignment| &assignment.remarks),
            ];
            for text in remarks.into_iter().flatten().flat_map(shown) {
                all.push(format!("cluster {}: {text}", Escaped(view.name())).into());
            }
        }
        all
    }

    /// Why the target cannot be resolved, or why its configuration may be stale.
    pub(crate) fn error(&self) -> Option<Arc<str>> {
        match &self.routing {
            Routing::Failed(error) => Some(error.to_string().into()),
            Routing::Waiting | Routing::Routes(_) => {
                self.stale_config.as_ref().map(|stale_config| stale_config.text().clone())
            }
        }
    }
}

/// The unused parts of a resource, a line for each.
fn shown(remarks: &Remarks) -> impl Iterator<Item = String> {
    let left_out = remarks.left_out().iter().map(|part| format!("left out: {part}"));
    left_out.chain(remarks.not_executed().iter().map(|field| format!("not executed: {field}")))
}

/// Adds the health of the endpoints, and those that are not used.
fn add_health(leaf: &mut LeafStatus, cluster: ClusterView<'_>) {
    let health: BTreeMap<SocketAddr, _> =
        cluster.endpoints().map(|endpoint| (endpoint.address(), endpoint.health())).collect();
    let mut used = BTreeSet::new();
    let localities = leaf.priorities.iter_mut().flat_map(|priority| &mut priority.localities);
    for endpoint in localities.flat_map(|locality| &mut locality.endpoints) {
        let EndpointStatus { addresses, health: of, .. } = endpoint;
        if let Some(address) = addresses.first() {
            *of = health.get(address).copied();
            used.insert(*address);
        }
    }
    let unused = health.into_iter().filter(|(address, _)| !used.contains(address));
    leaf.unused = unused.map(|(address, health)| UnusedEndpoint { address, health }).collect();
}
