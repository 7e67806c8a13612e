//! What a graph still has to do.

use std::{collections::BTreeSet, sync::Arc};

/// The pending work of earlier changes.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The clusters whose resources have changed, or whose grace is over.
    pub(super) dirty: BTreeSet<Arc<str>>,
    /// The clusters that may not be needed any more.
    pub(super) orphaned: BTreeSet<Arc<str>>,
    /// The clusters whose entry in snapshots may have changed.
    pub(super) touched: BTreeSet<Arc<str>>,
    /// The aggregates have to be linked again.
    pub(super) unlinked: bool,
}
