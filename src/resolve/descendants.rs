//! The clusters below the aggregates in use.

use std::{collections::BTreeSet, sync::Arc};

/// The clusters that the aggregates lead to, as they were last linked.
#[derive(Debug, Default)]
pub(super) struct Descendants {
    /// Descendants by the latest configurations of all aggregates.
    pub(super) latest: BTreeSet<Arc<str>>,
    /// The part of `latest` below the aggregates of the next routes.
    pub(super) next: BTreeSet<Arc<str>>,
    /// Descendants by the shown configurations, below the aggregates of the current routes and those that calls hold.
    pub(super) shown: BTreeSet<Arc<str>>,
    /// The part of `shown` below the aggregates of the current routes.
    pub(super) current: BTreeSet<Arc<str>>,
    /// Descendants by the previous configurations, below the shown aggregates that wait for unknown clusters of their latest
    /// ones.
    pub(super) previous: BTreeSet<Arc<str>>,
}

impl Descendants {
    /// Whether some aggregate leads to a cluster.
    pub(super) fn contains(&self, name: &Arc<str>) -> bool {
        self.latest.contains(name) || self.shown.contains(name)
    }

    /// The clusters that some aggregate leads to here, and none in `others`.
    pub(super) fn not_in(&self, others: &Self) -> Vec<Arc<str>> {
        let ours = self.latest.union(&self.shown);
        ours.filter(|name| !others.contains(name)).cloned().collect()
    }
}
