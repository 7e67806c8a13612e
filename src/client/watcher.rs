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

/// One watcher of a view.
pub(super) struct Watcher<V: WatchValue> {
    view: Arc<SharedWatch<V>>,
    cursor: Cursor,
    /// The share in a shared client that it belongs to.
    share: Option<Arc<Share>>,
}

impl<V: WatchValue> Watcher<V> {
    pub(super) fn new(view: Arc<SharedWatch<V>>, share: Option<Arc<Share>>) -> Self {
        Self { view, cursor: Cursor::default(), share }
    }

    pub(super) fn view(&self) -> &SharedWatch<V> {
        &self.view
    }

    pub(super) fn shared_view(&self) -> &Arc<SharedWatch<V>> {
        &self.view
    }

    pub(super) fn latest(&self) -> Option<Arc<V>> {
        self.view.slot().latest()
    }

    pub(super) fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<Arc<V>>> {
        self.view.slot().poll(&mut self.cursor, cx)
    }

    pub(super) async fn next(&mut self) -> Option<Arc<V>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The latest value, or the first one; `None` if the view is closed without one.
    pub(super) async fn current(&mut self) -> Option<Arc<V>> {
        match self.view.slot().take(&mut self.cursor) {
            None => self.next().await,
            value => value,
        }
    }

    /// The first value that fulfils a condition, beginning with the latest; `None` if the view is closed first.
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
        Self::new(self.view.clone(), self.share.clone())
    }
}

impl<V: WatchValue> Drop for Watcher<V> {
    fn drop(&mut self) {
        self.view.slot().leave(&mut self.cursor);
    }
}

impl<V: WatchValue> fmt::Debug for Watcher<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}
