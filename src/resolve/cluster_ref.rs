use std::{fmt, sync::Arc};

use super::{ClusterView, Snapshot, snapshot::ClusterEntry};
use crate::resource::http_filter::FilterOverride;

/// A cluster of a [`Snapshot`] as an owned value, for futures and tasks: it can be held across `.await` and sent between threads.
///
/// Made by [`Snapshot::cluster_ref`] and [`ClusterView::to_ref`]. [`view`](Self::view) gives access to the cluster; the view
/// borrows from this value. It keeps the snapshot that it was taken from and never changes. Cloning it copies a few pointers.
///
/// It does not keep later snapshots from losing the cluster:
/// [`Resolution::subscribe_cluster`](crate::client::Resolution::subscribe_cluster) does.
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
    snapshot: Snapshot,
    entry: Arc<ClusterEntry>,
    overrides: Option<Arc<[FilterOverride]>>,
}

impl ClusterRef {
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
