//! What a graph still has to do.
//!
//! All of them are ordered sets: the order in which clusters are worked on decides the order of watches, and has to be the same
//! in each run.

use std::{collections::BTreeSet, sync::Arc};

/// The pending work of earlier changes.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The clusters whose resources have changed, or whose grace is over. Worked on first, since it decides the states that
    /// aggregates are linked by.
    pub(super) dirty: BTreeSet<Arc<str>>,
    /// The clusters that may not be needed any more. Looked at after linking: a cluster that one aggregate leaves and another
    /// one gains keeps its watch.
    pub(super) orphaned: BTreeSet<Arc<str>>,
    /// The clusters whose entry in snapshots may have changed. Looked at once, when everything else is done, so that a snapshot
    /// has no state in between.
    pub(super) touched: BTreeSet<Arc<str>>,
    /// The aggregates have to be linked again. One flag, and not a set: an aggregate depends on all below it, and which ones
    /// these are is the result of linking.
    pub(super) unlinked: bool,
}
