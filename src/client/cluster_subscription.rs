//! Subscriptions to clusters that a resolution contains because of them alone.

use std::{
    collections::HashMap,
    fmt, ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use super::{command::Command, registry::SharedWatch};
use crate::resolve::Resolved;

/// A subscription to a cluster within a resolution; created by
/// [`Resolution::subscribe_cluster`](super::Resolution::subscribe_cluster) (A74).
///
/// All subscriptions to the same cluster are shared; the cluster is unsubscribed from when the last of them is dropped. A
/// subscription keeps the resolution alive, as a clone of it would. It may outlive the client.
#[derive(Debug, Clone)]
#[must_use = "the subscription ends when it is dropped"]
pub struct ClusterSubscription {
    /// Shared by all subscriptions to the cluster.
    shared: Arc<Shared>,
}

/// The subscribed clusters of one resolution.
#[derive(Default)]
pub(super) struct ClusterSubscriptions {
    /// Each entry was sent to the driver. Entries are weak, since the handles own the subscription; the upgrade of one fails
    /// while its last handle is being dropped.
    by_name: Mutex<HashMap<Arc<str>, Weak<Shared>>>,
}

/// The state that all subscriptions to one name share.
///
/// Its end, not that of a handle, reaches the driver: a call costs a lock and a reference count.
struct Shared {
    /// The name of the cluster.
    name: Arc<str>,
    /// The resolution.
    watch: Arc<SharedWatch<Resolved>>,
}

impl ClusterSubscription {
    /// Commands are sent with the lock held, which keeps their order.
    pub(super) fn new(watch: &Arc<SharedWatch<Resolved>>, name: &str) -> Self {
        let mut by_name = watch.shared().lock();
        let before = by_name.get(name);
        if let Some(shared) = before.and_then(Weak::upgrade) {
            return Self { shared };
        }
        // The last handle is being dropped in another thread and waits for this lock. It will find that its entry was replaced
        // and send nothing, so that the driver keeps the cluster without a gap.
        let is_known_to_driver = before.is_some();
        let shared = Arc::new(Shared { name: name.into(), watch: watch.clone() });
        by_name.insert(shared.name.clone(), Arc::downgrade(&shared));
        if !is_known_to_driver {
            watch.order(|watch_id| Command::SubscribeCluster { watch_id, name: shared.name.clone() });
        }
        Self { shared }
    }

    /// The name of the cluster.
    pub fn name(&self) -> &str {
        &self.shared.name
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut by_name = self.watch.shared().lock();
        // Another subscription may have replaced this one in the meantime.
        if by_name.get(&self.name).is_some_and(|shared| ptr::eq(shared.as_ptr(), self)) {
            by_name.remove(&self.name);
            self.watch.order(|watch_id| Command::UnsubscribeCluster { watch_id, name: self.name.clone() });
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl ClusterSubscriptions {
    /// Locks the subscriptions, which are whole even after a panic.
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<Shared>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
