use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_core::Stream;

use super::{
    cluster_subscription::{ClusterSubscription, ClusterSubscriptions},
    pool::Share,
    registry::{Command, View, Viewed},
    watcher::Watcher,
};
#[cfg(feature = "tower")]
use crate::error::Subject;
use crate::{
    error::WatchError,
    resolve::{Resolved, Snapshot},
    resource::Erased,
};

/// What a target resolves to: always the latest [`Snapshot`] of the tree of listener, routes, clusters and endpoints, or
/// the reason why there is none (A74).
///
/// Made by [`Client::resolve`](super::Client::resolve). Dropping it ends the interest in all that the tree needs.
/// Resolutions of equal targets share what they see, and one that joins sees the current state first, so cloning is cheap:
/// a clone is another watcher that has seen nothing yet.
///
/// As a [`Stream`] it gives a state whenever there is one that this watcher has not seen. States are not queued: a slow
/// watcher skips what came between, never what came last, and holds up nobody. It ends when the client is shut down.
///
/// A snapshot is published only when every cluster that its routes lead to is there, ready or with its own error; until
/// then the one before it serves. An error is about the target as a whole (A74-3): there is no listener or no routes, or
/// none of them is for its host. What is bad about one cluster is [told by the cluster](crate::resolve::ClusterView), and
/// news that changes nothing of what serves is one of [`Snapshot::warnings`].
///
/// ```no_run
/// use xdskit::{Client, RouteQuery};
///
/// async fn print_clusters(client: &Client) {
///     let mut shop = client.resolve("xds:///shop");
///     while let Some(seen) = shop.next().await {
///         match seen {
///             Ok(snapshot) => {
///                 let Some(route) = snapshot.route(&RouteQuery::new("/cart/add", 0)) else { continue };
///                 for (weight, cluster) in route.weighted_clusters() {
///                     println!("{weight} of them to {}: {:?}", cluster.name(), cluster.first_usable_priority());
///                 }
///             }
///             Err(why) => println!("nothing to send to: {why}"),
///         }
///     }
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping a resolution ends it"]
pub struct Resolution {
    watcher: Watcher<Resolved>,
}

impl Resolution {
    pub(super) fn new(view: Arc<View<Resolved>>, share: Option<Arc<Share>>) -> Self {
        Self { watcher: Watcher::new(view, share) }
    }

    /// Waits for a state that this watcher has not seen; `None` when the client is shut down.
    ///
    /// # Cancel safety
    /// No state is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Result<Arc<Snapshot>, WatchError>> {
        self.watcher.next().await.map(owned)
    }

    /// The latest state, without waiting: `None` if nothing is known yet. Does not count as seen.
    pub fn latest(&self) -> Option<Result<Arc<Snapshot>, WatchError>> {
        self.watcher.latest().map(owned)
    }

    /// The snapshot if there is one now, or the reason why there is none; waits only while nothing is known. The state
    /// counts as seen: [`next`](Self::next) waits for the one after it.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use xdskit::{Client, Snapshot, WatchError};
    ///
    /// async fn shop(client: &Client) -> Result<Arc<Snapshot>, WatchError> {
    ///     client.resolve("xds:///shop").ready().await
    /// }
    /// ```
    ///
    /// # Errors
    /// The target leads nowhere, which may pass: [`WatchError::is_transient`] and [`wait_for`](Self::wait_for); or the
    /// client was shut down (`CANCELLED`).
    ///
    /// # Cancel safety
    /// No state is lost if the future is dropped.
    pub async fn ready(&mut self) -> Result<Arc<Snapshot>, WatchError> {
        match self.watcher.current().await {
            Some(seen) => owned(seen),
            None => Err(self.watcher.view().shut_down()),
        }
    }

    /// Waits for a state that fulfils a condition, beginning with the latest one even if it was seen; `None` when the
    /// client is shut down. The states it looked at count as seen.
    ///
    /// ```no_run
    /// use xdskit::Client;
    ///
    /// async fn wait_for_shop(client: &Client) {
    ///     // Through outages and missing listeners, until there is something.
    ///     let snapshot = client.resolve("xds:///shop").wait_for(Result::is_ok).await;
    /// }
    /// ```
    ///
    /// # Cancel safety
    /// The latest state is not lost if the future is dropped: the next call begins with it.
    pub async fn wait_for(
        &mut self,
        condition: impl FnMut(&Result<Arc<Snapshot>, WatchError>) -> bool,
    ) -> Option<Result<Arc<Snapshot>, WatchError>> {
        self.watcher.wait_for(condition).await.map(owned)
    }

    /// Subscribes to a cluster: while the subscription lives, the snapshots contain the cluster, as soon as it is known, with or
    /// without a route to it (A74-6). A call keeps the subscription to its cluster until it ends, so that new routes do not
    /// remove the endpoints of the cluster; a filter or a plugin subscribes to the clusters that it chooses by itself.
    ///
    /// It is cheap enough for each call: only the first subscription to a cluster and the end of the last one reach the driver.
    /// Snapshots do not wait for a cluster that no route leads to.
    pub fn subscribe_cluster(&self, name: impl AsRef<str>) -> ClusterSubscription {
        ClusterSubscription::new(self.watcher.shared_view(), name.as_ref())
    }

    /// What an error of the target is about.
    #[cfg(feature = "tower")]
    pub(crate) fn subject(&self) -> Subject {
        self.watcher.view().subject()
    }

    /// Why nothing more comes.
    #[cfg(feature = "tower")]
    pub(crate) fn shut_down(&self) -> WatchError {
        self.watcher.view().shut_down()
    }

    /// Requests another DNS lookup of the hosts of all `LOGICAL_DNS` clusters (A74-7), as after failed connections. The rate of
    /// lookups is limited by [`dns_refresh`](super::ClientBuilder::dns_refresh), so that it may be called at any time.
    pub fn request_reresolution(&self) {
        self.watcher.view().order(|view| Command::RequestReresolution { view });
    }
}

impl Stream for Resolution {
    type Item = Result<Arc<Snapshot>, WatchError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.watcher.poll_next(cx).map(|seen| seen.map(owned))
    }
}

impl Clone for Resolution {
    fn clone(&self) -> Self {
        Self { watcher: self.watcher.clone() }
    }
}

impl Viewed for Resolved {
    type Shared = ClusterSubscriptions;

    fn from_erased(erased: Erased) -> Arc<Self> {
        erased.downcast().expect("what is published for a target is what it resolves to")
    }
}

/// Both sides of it are cheap to clone.
fn owned(seen: Arc<Resolved>) -> Resolved {
    (*seen).clone()
}
