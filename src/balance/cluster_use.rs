//! References of calls to clusters (CH1.22).

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A cluster with a place in generations, and the number of calls that may still pick in it.
pub(crate) struct ClusterUse {
    name: Arc<str>,
    place: usize,
    /// The number of calls, or [`REMOVED`].
    calls: AtomicUsize,
    /// Called when the last call lets go of the cluster.
    on_unused: OnUnused,
}

/// What is called when the last call lets go of a cluster.
pub(crate) type OnUnused = Arc<dyn Fn() + Send + Sync>;

/// A reference of a call: the cluster stays until the call is committed.
#[derive(Debug)]
pub(crate) struct ClusterHold {
    cluster: Arc<ClusterUse>,
}

impl ClusterUse {
    pub(super) fn new(name: Arc<str>, place: usize, on_unused: OnUnused) -> Arc<Self> {
        Arc::new(Self { name, place, calls: AtomicUsize::new(0), on_unused })
    }

    pub(super) fn place(&self) -> usize {
        self.place
    }

    /// A reference, unless the cluster was removed in the meantime.
    pub(super) fn hold(self: &Arc<Self>) -> Option<ClusterHold> {
        let more = |calls| (calls != REMOVED).then(|| calls + 1);
        let held = self.calls.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        held.is_ok().then(|| ClusterHold { cluster: self.clone() })
    }

    /// Removes the cluster if no call refers to it.
    pub(super) fn remove(&self) -> bool {
        self.calls.compare_exchange(0, REMOVED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl ClusterHold {
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.cluster.name
    }

    pub(super) fn place(&self) -> usize {
        self.cluster.place
    }
}

impl Drop for ClusterHold {
    fn drop(&mut self) {
        if self.cluster.calls.fetch_sub(1, Ordering::AcqRel) == 1 {
            (self.cluster.on_unused)();
        }
    }
}

impl fmt::Debug for ClusterUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = self.calls.load(Ordering::Relaxed);
        f.debug_struct("ClusterUse").field("name", &self.name).field("calls", &calls).finish_non_exhaustive()
    }
}

/// The cluster has left the tree.
const REMOVED: usize = usize::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ch1_23_a_cluster_is_removed_when_no_call_refers_to_it() {
        let unused = Arc::new(AtomicUsize::new(0));
        let counter = unused.clone();
        let on_unused = Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let cluster = ClusterUse::new("shop".into(), 0, on_unused);
        let (one, other) = (cluster.hold().unwrap(), cluster.hold().unwrap());
        assert!(!cluster.remove());
        drop(one);
        assert!(!cluster.remove());
        assert_eq!(unused.load(Ordering::Relaxed), 0);
        drop(other);
        assert_eq!(unused.load(Ordering::Relaxed), 1);
        assert!(cluster.remove());
        assert!(cluster.hold().is_none(), "a call that comes too late selects anew");
    }
}
