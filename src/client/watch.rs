//! The watch of a resource.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_core::Stream;

use super::{
    pool::Share,
    registry::{ResourceValue, SharedWatch, WatchValue},
    watcher::Watcher,
};
use crate::{
    error::WatchError,
    observed::Observed,
    resource::{Erased, Resource},
};

/// A watch of one resource, which provides its latest state.
///
/// Created by [`Client::watch`](super::Client::watch). Dropping the last watch of a resource unsubscribes from it.
/// Watches of the same name share one subscription and its state, so cloning is cheap. A new watch or clone has
/// yielded no state yet, and begins with the current one.
///
/// As a [`Stream`] it yields each state that this watch has not yielded yet. States are not queued: a slow watcher
/// skips intermediate states, never the latest one, and does not delay others. The stream ends when the client is
/// shut down.
///
/// ```no_run
/// use xdskit::{Client, Observed, resource::Cluster};
///
/// async fn watch(client: &Client) {
///     let mut shop = client.watch::<Cluster>("shop");
///     while let Some(seen) = shop.next().await {
///         match &*seen {
///             Observed::Present { resource, warning: None, .. } => println!("use {resource:?}"),
///             Observed::Present { resource, warning: Some(error), .. } => println!("keep {resource:?}: {error}"),
///             Observed::Absent { reason, .. } => println!("stop using it: {reason}"),
///             _ => {}
///         }
///     }
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping a watch ends it"]
pub struct Watch<T: Resource> {
    /// The position of this watch.
    watcher: Watcher<Observed<T>>,
}

impl<T: Resource> Watch<T> {
    pub(super) fn new(watch: Arc<SharedWatch<Observed<T>>>, share: Option<Arc<Share>>) -> Self {
        Self { watcher: Watcher::new(watch, share) }
    }

    /// Waits for a state that this watch has not yielded yet; `None` when the client is shut down.
    ///
    /// # Cancel safety
    /// No state is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Arc<Observed<T>>> {
        self.watcher.next().await
    }

    /// The latest state, without waiting: [`Observed::Pending`] if nothing is known yet. [`next`](Self::next) still yields it.
    pub fn latest(&self) -> Arc<Observed<T>> {
        self.watcher.latest().unwrap_or_else(|| Arc::new(Observed::Pending))
    }

    /// The resource, stale or not, or the reason why there is none; waits only while the state is
    /// [`Pending`](Observed::Pending). The state counts as seen: [`next`](Self::next) waits for a later one.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use xdskit::{Client, WatchError, resource::Cluster};
    ///
    /// async fn shop(client: &Client) -> Result<Arc<Cluster>, WatchError> {
    ///     client.watch::<Cluster>("shop").ready().await
    /// }
    /// ```
    ///
    /// # Errors
    /// The resource is [absent](Observed::Absent), or the client was shut down before anything was known (`CANCELLED`). After a later
    /// [`shutdown`](super::Client::shutdown), this returns the last state at once. Absence may be temporary: see
    /// [`WatchError::is_transient`], and [`wait_for`](Self::wait_for) to wait for its end.
    ///
    /// # Cancel safety
    /// No state is lost if the future is dropped.
    pub async fn ready(&mut self) -> Result<Arc<T>, WatchError> {
        match self.wait_for(|seen| !seen.is_pending()).await.as_deref() {
            Some(Observed::Present { resource, .. }) => Ok(resource.clone()),
            Some(Observed::Absent { reason }) => Err(reason.clone()),
            // `Pending` is never published: the condition above excludes it for the compiler's sake.
            Some(Observed::Pending) | None => Err(self.watcher.watch().shut_down()),
        }
    }

    /// Waits for a state that fulfils a condition, beginning with the latest one even if it was seen; `None` when the
    /// client is shut down. All states that were checked count as seen.
    ///
    /// ```no_run
    /// use xdskit::{Client, Observed, resource::Cluster};
    ///
    /// async fn wait_for_shop(client: &Client) {
    ///     // Waits through outages and rejections until there is a resource.
    ///     let shop = client.watch::<Cluster>("shop").wait_for(Observed::is_present).await;
    /// }
    /// ```
    ///
    /// # Cancel safety
    /// The latest state is not lost if the future is dropped: the next call begins with it.
    pub async fn wait_for(
        &mut self,
        condition: impl FnMut(&Observed<T>) -> bool,
    ) -> Option<Arc<Observed<T>>> {
        self.watcher.wait_for(condition).await
    }
}

impl<T: Resource> Stream for Watch<T> {
    type Item = Arc<Observed<T>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.watcher.poll_next(cx)
    }
}

impl<T: Resource> Clone for Watch<T> {
    fn clone(&self) -> Self {
        Self { watcher: self.watcher.clone() }
    }
}

impl<T: Resource> WatchValue for Observed<T> {
    type Shared = ();

    fn from_erased(erased: Erased) -> Arc<Self> {
        erased.downcast().expect("what is published was made by the watch's type")
    }
}

impl<T: Resource> ResourceValue for Observed<T> {
    type Resource = T;

    fn refused(reason: WatchError) -> Self {
        Self::Absent { reason }
    }
}
