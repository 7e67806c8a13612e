//! The watch of a target.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_core::Stream;

use super::{
    cluster_subscription::{ClusterSubscription, ClusterSubscriptions},
    command::Command,
    pool::Share,
    registry::{SharedWatch, WatchValue},
    unapplied::{self, NotAppliedError},
    watcher::Watcher,
};
#[cfg(feature = "tower")]
use crate::error::Subject;
use crate::{
    error::WatchError,
    resolve::{Resolved, Snapshot},
    resource::Erased,
};

/// The resolution of a target, which provides the latest [`Snapshot`] of listener, routes, clusters and endpoints, or the
/// reason why there is none (A74).
///
/// Created by [`Client::resolve`](super::Client::resolve). Dropping the last resolution of a target unsubscribes from
/// its resources. Resolutions of equal targets share their subscriptions and state, so cloning is cheap. A new
/// resolution or clone has yielded no state yet, and begins with the current one.
///
/// As a [`Stream`] it yields each state that this resolution has not yielded yet. States are not queued: a slow
/// watcher skips intermediate states, never the latest one, and does not delay others. The stream ends when the
/// client is shut down.
///
/// A snapshot is published when all clusters of its routes are known, each ready or with an error of its own; until then the
/// previous snapshot remains. An error concerns the target as a whole: there is no listener, no route configuration, or no
/// virtual host for its authority. The error of a single cluster is in its [`ClusterView`](crate::resolve::ClusterView). A
/// failed update that leaves the snapshot in use is one of [`Snapshot::warnings`].
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
///                     println!("weight {weight}: {}, {:?}", cluster.name(), cluster.first_usable_priority());
///                 }
///             }
///             Err(error) => println!("cannot be resolved: {error}"),
///         }
///     }
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping a resolution ends it"]
pub struct Resolution {
    /// The position of this watch.
    watcher: Watcher<Resolved>,
}

impl Resolution {
    pub(super) fn new(watch: Arc<SharedWatch<Resolved>>, share: Option<Arc<Share>>) -> Self {
        Self { watcher: Watcher::new(watch, share) }
    }

    /// Waits for a state that this resolution has not yielded yet; `None` when the client is shut down.
    ///
    /// # Cancel safety
    /// No state is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Result<Arc<Snapshot>, WatchError>> {
        self.watcher.next().await.map(owned)
    }

    /// The latest state, without waiting: `None` if nothing is known yet. [`next`](Self::next) still yields it.
    pub fn latest(&self) -> Option<Result<Arc<Snapshot>, WatchError>> {
        self.watcher.latest().map(owned)
    }

    /// The latest snapshot, or the reason why there is none; waits only while nothing is known. The state counts as seen:
    /// [`next`](Self::next) waits for a later one.
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
    /// The target cannot be resolved, or the client was shut down before anything was known (`CANCELLED`). After a later
    /// [`shutdown`](super::Client::shutdown), this returns the last snapshot at once. The error of a target may be temporary: see
    /// [`WatchError::is_transient`], and [`wait_for`](Self::wait_for) to wait for its end.
    ///
    /// # Cancel safety
    /// No state is lost if the future is dropped.
    pub async fn ready(&mut self) -> Result<Arc<Snapshot>, WatchError> {
        match self.watcher.current().await {
            Some(seen) => owned(seen),
            None => Err(self.watcher.watch().shut_down()),
        }
    }

    /// Waits for a state that fulfils a condition, beginning with the latest one even if it was seen; `None` when the
    /// client is shut down. All states that were checked count as seen.
    ///
    /// ```no_run
    /// use xdskit::Client;
    ///
    /// async fn wait_for_shop(client: &Client) {
    ///     // Waits through outages and missing listeners until there is a snapshot.
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

    /// Waits until the [latest](Self::latest) state follows all resources that the client has accepted when this is called, at most
    /// for the limit.
    ///
    /// An ACK of the client is no sign of that: new routes wait for the clusters that they name, and deleted clusters stay in use for
    /// [`deletion_grace`](super::ClientBuilder::deletion_grace). Resources that are accepted during the wait are waited for as well.
    /// After a shutdown of the client, it returns at once. It yields no state.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use xdskit::{Resolution, testing::{ExpectTimeout, TestControlPlane}};
    /// # use xdskit::control_plane::type_url::ROUTE_CONFIGURATION;
    /// # async fn check(server: TestControlPlane, shop: Resolution) -> Result<(), Box<dyn std::error::Error>> {
    /// server.expect_ack(ROUTE_CONFIGURATION).await?;
    /// shop.wait_until_applied(Duration::from_secs(10)).await?; // now `shop.latest()` has the new routes
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Something accepted was not in use within the limit. The error has the reason, such as a cluster whose endpoints are unknown.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time.
    pub async fn wait_until_applied(&self, limit: Duration) -> Result<(), NotAppliedError> {
        unapplied::wait_until_applied(self.watcher.watch(), limit).await
    }

    /// Subscribes to a cluster. Until the subscription is dropped, snapshots contain the cluster as soon as it is known, with or
    /// without a route to it. A call holds a subscription to its cluster until it ends, so that new routes do not remove the
    /// endpoints of the cluster. Filters and plugins subscribe to clusters that no route names.
    ///
    /// It is cheap enough for each call: only the first subscription to a cluster and the end of the last one reach the driver.
    /// Snapshots are not delayed by a cluster without a route.
    pub fn subscribe_cluster(&self, name: impl AsRef<str>) -> ClusterSubscription {
        ClusterSubscription::new(self.watcher.shared_watch(), name.as_ref())
    }

    /// The subject of the target's errors.
    #[cfg(feature = "tower")]
    pub(crate) fn subject(&self) -> Subject {
        self.watcher.watch().subject()
    }

    /// The error after the client was shut down.
    #[cfg(any(feature = "tower", feature = "channel"))]
    pub(crate) fn shut_down(&self) -> WatchError {
        self.watcher.watch().shut_down()
    }

    /// Requests another DNS lookup of the hosts of all `LOGICAL_DNS` clusters, as after failed connections. The rate of lookups
    /// is limited by [`dns_refresh`](super::ClientBuilder::dns_refresh), so that it may be called at any time.
    pub fn request_reresolution(&self) {
        self.watcher.watch().order(|watch_id| Command::RequestReresolution { watch_id });
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

impl WatchValue for Resolved {
    // Resolutions of a target share their subscriptions to clusters, as they share its snapshots.
    type Shared = ClusterSubscriptions;

    fn from_erased(erased: Erased) -> Arc<Self> {
        erased.downcast().expect("what is published for a target is what it resolves to")
    }
}

/// Clones the result; both variants are cheap to clone.
///
/// A slot holds its value in an `Arc`, and applications get the one of the snapshot.
fn owned(seen: Arc<Resolved>) -> Resolved {
    (*seen).clone()
}
