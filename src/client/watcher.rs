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
    watch: Arc<SharedWatch<V>>,
    cursor: Cursor,
    /// The share in a shared client that it belongs to.
    share: Option<Arc<Share>>,
}

impl<V: WatchValue> Watcher<V> {
    pub(super) fn new(watch: Arc<SharedWatch<V>>, share: Option<Arc<Share>>) -> Self {
        Self { watch, cursor: Cursor::default(), share }
    }

    pub(super) fn watch(&self) -> &SharedWatch<V> {
        &self.watch
    }

    pub(super) fn shared_watch(&self) -> &Arc<SharedWatch<V>> {
        &self.watch
    }

    pub(super) fn latest(&self) -> Option<Arc<V>> {
        self.watch.slot().latest()
    }

    pub(super) fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<Arc<V>>> {
        self.watch.slot().poll(&mut self.cursor, cx)
    }

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
        self.watch.slot().leave(&mut self.cursor);
    }
}

impl<V: WatchValue> fmt::Debug for Watcher<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.watch.fmt(f)
    }
}
