//! A cluster of a snapshot, with the snapshot.

use std::{fmt, sync::Arc};

use super::ClusterView;
use crate::{
    lrs::LoadReporter,
    resolve::{cluster_entry::ClusterEntry, snapshot::Snapshot},
    resource::http_filter::FilterOverride,
};

/// A cluster of a [`Snapshot`] as an owned value, for futures and tasks: it can be held across `.await` and sent between threads.
///
/// Made by [`Snapshot::cluster_ref`] and [`ClusterView::to_ref`]. [`view`](Self::view) gives access to the cluster; the view
/// borrows from this value. It keeps the snapshot that it was taken from and never changes. Cloning it copies a few pointers.
///
/// It does not keep later snapshots from losing the cluster:
/// `Resolution::subscribe_cluster` does.
///
/// ```
/// use std::net::SocketAddr;
/// use xdskit::{RouteQuery, Snapshot, resolve::ClusterRef};
///
/// fn route(snapshot: &Snapshot, path: &str, random: u64) -> Option<ClusterRef> {
///     let route = snapshot.route(&RouteQuery::new(path, random))?;
///     Some(route.pick_cluster()?.to_ref())
/// }
///
/// /// Makes up to three attempts, each with a random number of its own.
/// async fn call(cluster: ClusterRef, randoms: [u64; 3]) -> bool {
///     for random in randoms {
///         let Some(endpoint) = cluster.view().pick_endpoint(random) else { return false };
///         if send(endpoint.address()).await {
///             return true;
///         }
///     }
///     false
/// }
/// # async fn send(_: SocketAddr) -> bool { true }
/// ```
#[derive(Clone)]
pub struct ClusterRef {
    /// Keeps the resources.
    snapshot: Snapshot,
    /// The cluster.
    entry: Arc<ClusterEntry>,
    /// The filter overrides of the weighted cluster that a route has picked.
    overrides: Option<Arc<[FilterOverride]>>,
}

impl ClusterRef {
    /// A cluster of a snapshot.
    pub(super) fn new(
        snapshot: &Snapshot,
        entry: &Arc<ClusterEntry>,
        overrides: Option<&Arc<[FilterOverride]>>,
    ) -> Self {
        Self { snapshot: snapshot.clone(), entry: entry.clone(), overrides: overrides.cloned() }
    }

    /// The cluster, with the filter overrides of the route that led to it, if a route did.
    pub fn view(&self) -> ClusterView<'_> {
        ClusterView::new(&self.snapshot, &self.entry).with_overrides(self.overrides.as_ref())
    }

    /// The name of the cluster.
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// The reporter of the load of the cluster; see [`ClusterView::load_reporter`].
    pub fn load_reporter(&self) -> LoadReporter {
        self.view().load_reporter()
    }

    /// The snapshot that the cluster belongs to.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl fmt::Debug for ClusterRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClusterRef").field(&self.view()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crate::resolve::fixture::snapshot;

    #[test]
    fn an_owned_cluster_outlives_the_snapshot_on_another_thread() {
        let first = snapshot("shop").aggregate("all", &["a"]).eds("a", &[&["10.0.0.1:80"]]).build();
        let all = first.cluster_ref("all").unwrap();
        assert!(first.cluster_ref("none").is_none());
        drop(first);
        let clone = all.clone();
        let picked = thread::spawn(move || clone.view().pick_endpoint(0).map(|endpoint| endpoint.address()));
        assert_eq!(picked.join().unwrap(), Some("10.0.0.1:80".parse().unwrap()));
        assert_eq!((all.name(), all.snapshot().clusters().count()), ("all", 2));
        assert_eq!(all.view().leaves().next().unwrap().to_ref().name(), "a");
    }
}
