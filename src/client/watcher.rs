//! What `Watch`, `WatchAll` and `Resolution` have in common: a position in a shared watch. They differ in the value, and in the
//! form in which they return it.

use std::{
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use super::{
    pool::Share,
    registry::{SharedWatch, WatchValue},
    slot::Cursor,
};

/// One watcher of a watch.
pub(super) struct Watcher<V: WatchValue> {
    /// The watch that the watchers of a subject share. It ends with the last of them.
    watch: Arc<SharedWatch<V>>,
    /// What this watcher has seen, and its place among those who wait.
    cursor: Cursor,
    /// The share in a shared client that it belongs to. It counts the watcher among the users of the client.
    share: Option<Arc<Share>>,
}

impl<V: WatchValue> Watcher<V> {
    pub(super) fn new(watch: Arc<SharedWatch<V>>, share: Option<Arc<Share>>) -> Self {
        Self { watch, cursor: Cursor::default(), share }
    }

    /// The watch that this is a watcher of.
    pub(super) fn watch(&self) -> &SharedWatch<V> {
        &self.watch
    }

    /// The watch, for those who keep it alive beyond this watcher.
    pub(super) fn shared_watch(&self) -> &Arc<SharedWatch<V>> {
        &self.watch
    }

    /// The latest value, which still counts as not seen.
    pub(super) fn latest(&self) -> Option<Arc<V>> {
        self.watch.slot().latest()
    }

    /// The value that was not seen; `None` once the watch is closed and its last value was seen.
    pub(super) fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<Arc<V>>> {
        self.watch.slot().poll(&mut self.cursor, cx)
    }

    /// Dropping the future loses nothing: a value counts as seen when it is returned.
    pub(super) async fn next(&mut self) -> Option<Arc<V>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The latest value, or the first one; `None` if the watch is closed without one.
    pub(super) async fn current(&mut self) -> Option<Arc<V>> {
        match self.watch.slot().take(&mut self.cursor) {
            None => self.next().await,
            value => value,
        }
    }

    /// The first value that fulfils a condition, beginning with the latest; `None` if the watch is closed first.
    pub(super) async fn wait_for(&mut self, mut condition: impl FnMut(&V) -> bool) -> Option<Arc<V>> {
        let mut value = self.current().await?;
        while !condition(&value) {
            value = self.next().await?;
        }
        Some(value)
    }
}

/// A clone is a separate watcher that has seen nothing yet.
impl<V: WatchValue> Clone for Watcher<V> {
    fn clone(&self) -> Self {
        Self::new(self.watch.clone(), self.share.clone())
    }
}

impl<V: WatchValue> Drop for Watcher<V> {
    fn drop(&mut self) {
        // A waker that nobody removes would stay in the slot until the next publication, which may never come.
        self.watch.slot().leave(&mut self.cursor);
    }
}

impl<V: WatchValue> fmt::Debug for Watcher<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.watch.fmt(f)
    }
}
