//! What a leaf cluster reports of its calls (CH9.1).

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use crate::{
    lrs::{DropReporter, LocalityReporter},
    resolve::ClusterView,
};

/// The handles of a cluster whose load is reported, for its pickers. An endpoint that is in several localities counts for the first of
/// them.
#[derive(Debug)]
pub(crate) struct ClusterLoad {
    localities: BTreeMap<SocketAddr, LocalityReporter>,
    /// In the order of the drops of the cluster.
    drops: Box<[DropReporter]>,
    uncategorised: DropReporter,
}

impl ClusterLoad {
    /// `None` if the load of the cluster is not reported: it costs nothing then.
    pub(super) fn of(view: ClusterView<'_>) -> Option<Arc<Self>> {
        view.config().filter(|config| config.report_load)?;
        let (reporter, assignment) = (view.load_reporter(), view.assignment());
        let mut localities = BTreeMap::new();
        let all = assignment.iter().flat_map(|it| &it.priorities).flat_map(|it| &it.localities);
        for locality in all {
            let handle = reporter.locality(&locality.locality);
            for address in locality.endpoints.iter().flat_map(|it| it.addresses()) {
                localities.entry(address).or_insert_with(|| handle.clone());
            }
        }
        let drops = assignment.iter().flat_map(|it| &it.drops);
        Some(Arc::new(Self {
            localities,
            drops: drops.map(|drop| reporter.drop_reporter(&drop.category)).collect(),
            uncategorised: reporter.drop_reporter(""),
        }))
    }

    /// Who counts the attempts to an endpoint.
    pub(super) fn locality(&self, address: SocketAddr) -> Option<&LocalityReporter> {
        self.localities.get(&address)
    }

    /// An attempt was dropped by an overload category, given its place (CH9.4).
    pub(super) fn on_drop(&self, place: usize) {
        if let Some(drop) = self.drops.get(place) {
            drop.dropped();
        }
    }

    /// An attempt was dropped by the circuit breaker (A32-2).
    pub(super) fn on_overflow(&self) {
        self.uncategorised.dropped();
    }
}
