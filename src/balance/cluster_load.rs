//! What a leaf cluster reports of its calls (CH9.1).

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use crate::{
    lrs::{DropReporter, EndpointReporter},
    resolve::ClusterView,
};

/// The handles of a cluster whose load is reported, for its pickers. An endpoint that is in several localities counts for the first of
/// them.
#[derive(Debug)]
pub(crate) struct ClusterLoad {
    /// Endpoints by each of their addresses; they are reported under the main one.
    endpoints: BTreeMap<SocketAddr, EndpointReporter>,
    /// In the order of the drops of the cluster.
    drops: Box<[DropReporter]>,
    uncategorised: DropReporter,
}

impl ClusterLoad {
    /// `None` if the load of the cluster is not reported: it costs nothing then.
    pub(super) fn of(view: ClusterView<'_>) -> Option<Arc<Self>> {
        view.config().filter(|config| config.report_load)?;
        let (reporter, assignment) = (view.load_reporter(), view.assignment());
        let mut endpoints = BTreeMap::new();
        let all = assignment
            .iter()
            .flat_map(|assignment| &assignment.priorities)
            .flat_map(|priority| &priority.localities);
        for locality in all {
            let handle = reporter.locality(&locality.locality);
            for endpoint in &locality.endpoints {
                for address in endpoint.addresses() {
                    endpoints.entry(address).or_insert_with(|| handle.endpoint(endpoint.address()));
                }
            }
        }
        let drops = assignment.iter().flat_map(|assignment| &assignment.drops);
        Some(Arc::new(Self {
            endpoints,
            drops: drops.map(|drop| reporter.drop_reporter(&drop.category)).collect(),
            // Drops of the circuit breaker have no category (A32, CH9.4).
            uncategorised: reporter.drop_reporter(""),
        }))
    }

    /// Who counts the attempts to an endpoint.
    pub(super) fn endpoint(&self, address: SocketAddr) -> Option<&EndpointReporter> {
        self.endpoints.get(&address)
    }

    /// An attempt was dropped by an overload category, given its place (CH9.4).
    pub(super) fn on_drop(&self, place: usize) {
        if let Some(drop) = self.drops.get(place) {
            drop.dropped();
        }
    }

    /// An attempt was dropped by the circuit breaker (A32).
    pub(super) fn on_overflow(&self) {
        self.uncategorised.dropped();
    }
}
