use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

use super::{connection::Handle, state::States};
use crate::balance::generation::Generation;

/// What the task of a channel publishes for its calls.
pub(super) struct Published {
    generation: ArcSwap<Generation<Handle>>,
    /// Changes with each generation, for calls that wait.
    version: watch::Sender<u64>,
    pub(super) states: States,
    /// The calls that wait.
    queued: AtomicUsize,
}

/// A call that waits.
pub(super) struct Queued<'a> {
    published: &'a Published,
}

impl Published {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            generation: ArcSwap::from_pointee(Generation::waiting()),
            version: watch::Sender::new(0),
            states: States::new(),
            queued: AtomicUsize::new(0),
        })
    }

    pub(super) fn load(&self) -> Guard<Arc<Generation<Handle>>> {
        self.generation.load()
    }

    /// Publishes a generation, and wakes the calls that wait, in the order in which they came.
    pub(super) fn publish(&self, generation: Generation<Handle>) {
        self.generation.store(Arc::new(generation));
        self.version.send_modify(|version| *version += 1);
    }

    pub(super) fn versions(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Counts a call that waits, unless there are as many as permitted.
    pub(super) fn queue(&self, limit: usize) -> Option<Queued<'_>> {
        let more = |queued| (queued < limit).then(|| queued + 1);
        let queued = self.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        queued.ok().map(|_| Queued { published: self })
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.published.queued.fetch_sub(1, Ordering::Relaxed);
    }
}
