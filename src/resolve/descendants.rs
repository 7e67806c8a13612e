//! The clusters below the aggregates in use.
//!
//! Aggregates have two configurations while they wait, and routes are two as well, so that "below an aggregate" has several
//! answers. Each of the sets here answers one question of `Usage`, and all are computed at once when aggregates are linked.

use std::{collections::BTreeSet, sync::Arc};

/// The clusters that the aggregates lead to, as they were last linked.
#[derive(Debug, Default)]
pub(super) struct Descendants {
    /// Descendants by the latest configurations of all aggregates. Decides what is watched.
    pub(super) latest: BTreeSet<Arc<str>>,
    /// The part of `latest` below the aggregates of the next routes. Decides what the next routes wait for.
    pub(super) next: BTreeSet<Arc<str>>,
    /// Descendants by the shown configurations, below the aggregates of the current routes and those that calls hold. Decides,
    /// with the roots, what snapshots contain.
    pub(super) shown: BTreeSet<Arc<str>>,
    /// The part of `shown` below the aggregates of the current routes. A cluster here serves whether or not a call holds it as
    /// well.
    pub(super) current: BTreeSet<Arc<str>>,
    /// Descendants by the previous configurations, below the shown aggregates that wait for unknown clusters of their latest
    /// ones. A deleted cluster here serves after its grace as well, until the aggregate turns to its latest configuration: its
    /// loss would help no request.
    pub(super) previous: BTreeSet<Arc<str>>,
}

impl Descendants {
    /// Whether some aggregate leads to a cluster.
    pub(super) fn contains(&self, name: &Arc<str>) -> bool {
        self.latest.contains(name) || self.shown.contains(name)
    }

    /// The clusters that some aggregate leads to here, and none in `others`. Unless they are needed otherwise, they are to be
    /// unsubscribed.
    pub(super) fn not_in(&self, others: &Self) -> Vec<Arc<str>> {
        let ours = self.latest.union(&self.shown);
        ours.filter(|name| !others.contains(name)).cloned().collect()
    }
}
