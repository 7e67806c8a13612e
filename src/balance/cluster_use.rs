//! References of calls to clusters (CH1.22).

use std::{
    fmt, mem,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::resource::Cluster;

/// A cluster with a place in generations, and the number of calls that may still pick in it.
pub(crate) struct ClusterUse {
    name: Arc<str>,
    place: usize,
    /// The number of calls, and whether the cluster is [`RETIRED`] or [`REMOVED`].
    calls: AtomicUsize,
    /// Called when the last call lets go of a retired cluster.
    on_unused: OnUnused,
    /// Its configuration, for the HTTP filters that look at it; no other call takes the lock.
    resource: RwLock<Option<Arc<Cluster>>>,
}

/// What is called when the last call lets go of a cluster that no route names any more.
pub(crate) type OnUnused = Arc<dyn Fn() + Send + Sync>;

/// A reference of a call: the cluster stays until the call is committed.
#[derive(Debug)]
pub(crate) struct ClusterReference {
    cluster: Arc<ClusterUse>,
    is_released: bool,
}

impl ClusterUse {
    /// A cluster without calls, at an index of pickers that no other cluster in use has.
    pub(super) fn new(name: Arc<str>, place: usize, on_unused: OnUnused) -> Arc<Self> {
        Arc::new(Self { name, place, calls: AtomicUsize::new(0), on_unused, resource: RwLock::default() })
    }

    pub(super) fn place(&self) -> usize {
        self.place
    }

    /// Sets the configuration that HTTP filters see, which may be newer than the generation of a call.
    pub(super) fn set_resource(&self, resource: Option<Arc<Cluster>>) {
        *self.resource.write().unwrap_or_else(PoisonError::into_inner) = resource;
    }

    /// A reference, unless the cluster was removed in the meantime.
    pub(super) fn hold(self: &Arc<Self>) -> Option<ClusterReference> {
        // The count precedes the test, so that the cluster cannot be removed between the two.
        if self.calls.fetch_add(1, Ordering::AcqRel) & REMOVED != 0 {
            // A removed cluster stays removed, whatever is counted in between.
            self.calls.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(ClusterReference { cluster: self.clone(), is_released: false })
    }

    /// No route names the cluster any more: it is removed, or the last call that refers to it calls `on_unused`. Says whether it
    /// is removed.
    pub(super) fn retire(&self) -> bool {
        let retired = |calls| Some(if calls & CALLS == 0 { REMOVED } else { calls | RETIRED });
        let before = self.calls.fetch_update(Ordering::AcqRel, Ordering::Acquire, retired);
        before.is_ok_and(|calls| calls & CALLS == 0)
    }

    /// A route names the cluster again, which was not removed.
    pub(super) fn restore(&self) {
        self.calls.fetch_and(!RETIRED, Ordering::AcqRel);
    }
}

impl ClusterReference {
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.cluster.name
    }

    pub(crate) fn place(&self) -> usize {
        self.cluster.place
    }

    /// The newest configuration of the cluster, if there is one.
    pub(crate) fn resource(&self) -> Option<Arc<Cluster>> {
        self.cluster.resource.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The call is committed: it makes no further pick.
    pub(crate) fn release(&mut self) {
        if !mem::replace(&mut self.is_released, true)
            // Only the last call of a retired cluster finds this value; the subtraction is all that the others cost.
            && self.cluster.calls.fetch_sub(1, Ordering::AcqRel) == RETIRED + 1
        {
            (self.cluster.on_unused)();
        }
    }
}

impl Drop for ClusterReference {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for ClusterUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = self.calls.load(Ordering::Relaxed) & CALLS;
        f.debug_struct("ClusterUse").field("name", &self.name).field("calls", &calls).finish_non_exhaustive()
    }
}

/// The cluster has left the tree.
const REMOVED: usize = 1 << (usize::BITS - 1);
/// No route names the cluster.
const RETIRED: usize = 1 << (usize::BITS - 2);
/// The number of calls.
const CALLS: usize = RETIRED - 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> (Arc<ClusterUse>, Arc<AtomicUsize>) {
        let unused = Arc::new(AtomicUsize::new(0));
        let counter = unused.clone();
        let on_unused = Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        (ClusterUse::new("shop".into(), 0, on_unused), unused)
    }

    #[test]
    fn ch1_23_a_cluster_is_removed_when_no_call_refers_to_it() {
        let (cluster, unused) = cluster();
        let (one, other) = (cluster.hold().unwrap(), cluster.hold().unwrap());
        assert!(!cluster.retire());
        drop(one);
        assert!(!cluster.retire());
        assert_eq!(unused.load(Ordering::Relaxed), 0);
        drop(other);
        assert_eq!(unused.load(Ordering::Relaxed), 1);
        assert!(cluster.retire());
        assert!(cluster.hold().is_none(), "a call that comes too late selects anew");
        assert!(cluster.hold().is_none(), "it stays removed");
    }

    #[test]
    fn ch1_22_a_call_lets_go_of_its_cluster_when_it_is_committed() {
        let (cluster, _) = cluster();
        let mut hold = cluster.hold().unwrap();
        hold.release();
        assert!(cluster.retire());
        drop(hold);
        assert!(cluster.hold().is_none(), "it was released once");
    }

    #[test]
    fn ch11_1_calls_to_a_routed_cluster_leave_the_task_of_the_channel_alone() {
        let (cluster, unused) = cluster();
        drop(cluster.hold());
        assert_eq!(unused.load(Ordering::Relaxed), 0);
        let hold = cluster.hold();
        assert!(!cluster.retire());
        cluster.restore();
        drop(hold);
        assert_eq!(unused.load(Ordering::Relaxed), 0, "a route names it again");
    }
}
