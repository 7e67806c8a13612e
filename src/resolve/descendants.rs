use std::{collections::BTreeSet, sync::Arc};

/// The clusters that the aggregates lead to, as they were last linked.
#[derive(Debug, Default)]
pub(super) struct Descendants {
    /// By the latest configurations.
    pub(super) latest: BTreeSet<Arc<str>>,
    /// The same, of the aggregates alone that the next routes lead to.
    pub(super) next: BTreeSet<Arc<str>>,
    /// By the shown configurations, of the aggregates that the current routes lead to, or that calls hold.
    pub(super) shown: BTreeSet<Arc<str>>,
    /// The same, of the aggregates alone that the current routes lead to.
    pub(super) current: BTreeSet<Arc<str>>,
    /// By the previous configurations, of the shown aggregates that wait for unknown clusters of their latest ones.
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
