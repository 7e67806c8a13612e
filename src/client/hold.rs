use std::{
    collections::HashMap,
    fmt, ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use super::registry::{Command, View};
use crate::resolve::Resolved;

/// Keeps a cluster in the snapshots of a resolution; made by
/// [`Resolution::hold_cluster`](super::Resolution::hold_cluster).
///
/// Clones hold it together, and it is let go with the last of all holds of its name. A hold keeps the resolution alive, as
/// a clone of it would. It does no harm when the client is shut down.
#[derive(Debug, Clone)]
#[must_use = "dropping it lets the cluster go"]
pub struct ClusterHold {
    held: Arc<Held>,
}

/// The clusters of a view that are held.
#[derive(Default)]
pub(super) struct Holds {
    /// What is here was told to the driver. One whose last holder is just leaving cannot be upgraded any more.
    clusters: Mutex<HashMap<Arc<str>, Weak<Held>>>,
}

/// A cluster that is held, shared by all who hold it.
struct Held {
    name: Arc<str>,
    view: Arc<View<Resolved>>,
}

impl ClusterHold {
    /// Commands are sent with the lock held, so that they come in the order of what they tell.
    pub(super) fn new(view: &Arc<View<Resolved>>, name: &str) -> Self {
        let mut clusters = view.shared().lock();
        let before = clusters.get(name);
        if let Some(held) = before.and_then(Weak::upgrade) {
            return Self { held };
        }
        let is_told = before.is_some();
        let held = Arc::new(Held { name: name.into(), view: view.clone() });
        clusters.insert(held.name.clone(), Arc::downgrade(&held));
        if !is_told {
            view.order(|view| Command::Hold { view, name: held.name.clone() });
        }
        Self { held }
    }

    /// The name of the cluster.
    pub fn name(&self) -> &str {
        &self.held.name
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut clusters = self.view.shared().lock();
        // Somebody may have taken it over meanwhile.
        if clusters.get(&self.name).is_some_and(|held| ptr::eq(held.as_ptr(), self)) {
            clusters.remove(&self.name);
            self.view.order(|view| Command::Release { view, name: self.name.clone() });
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<Held>>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
