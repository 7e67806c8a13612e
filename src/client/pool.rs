//! Clients that callers of one configuration share.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::runtime;

use super::{recording::Recorders, registry::Registry};
use crate::{config::Bootstrap, engine::Settings, resource::Validation, transport::GrpcTransport};

/// Shared clients by their configurations.
pub(super) struct Pool {
    /// The clients that have not ended. Their keys can be compared but not hashed, and processes have few of them.
    clients: Mutex<Vec<Pooled>>,
}

/// The configuration that all sharers of a client have in common.
#[derive(Debug, PartialEq)]
pub(super) struct PoolKey {
    /// A driver ends with its runtime, and stalls with it, which must not affect other runtimes.
    pub(super) runtime: runtime::Id,
    /// The bootstrap, compared by value: each caller reads it for itself.
    pub(super) bootstrap: Arc<Bootstrap>,
    pub(super) settings: Settings,
    pub(super) grpc: GrpcTransport,
    /// The scope, since the status and metrics of a client have one.
    pub(super) scope: String,
    pub(super) validation: Validation,
    pub(super) recorders: Recorders,
}

/// A share in a client: that of one caller, with the clones of that handle and their watches.
pub(super) struct Share {
    /// The pool of the client.
    pool: &'static Pool,
    /// The number of shares that have not been given up.
    sharers: Arc<AtomicUsize>,
    /// Whether this one was given up. Clones of a handle have one share, and each of them may shut down.
    is_left: AtomicBool,
}

/// A shared client, and the number of those who share it.
struct Pooled {
    /// The configuration.
    key: PoolKey,
    /// Held by handles and watches, so that the client ends with the last of them.
    registry: Weak<Registry>,
    /// The number of shares that have not been given up.
    sharers: Arc<AtomicUsize>,
}

impl Pool {
    /// No clients.
    pub(super) const fn new() -> Self {
        Self { clients: Mutex::new(Vec::new()) }
    }

    /// The client of a key: an existing one, or one that is built now.
    ///
    /// The lock is held while a client is built, so that two callers with one configuration do not build two. Building does no
    /// I/O.
    pub(super) fn share<E>(
        &'static self,
        key: PoolKey,
        build: impl FnOnce() -> Result<Arc<Registry>, E>,
    ) -> Result<(Arc<Registry>, Arc<Share>), E> {
        let mut clients = self.lock();
        // Ended clients are removed here alone: a client that ends does not know its pool.
        clients.retain(|pooled| pooled.registry().is_some());
        let found = clients.iter().find(|pooled| pooled.key == key);
        if let Some((pooled, registry)) = found.and_then(|pooled| Some((pooled, pooled.registry()?))) {
            return Ok((registry, self.take_part(&pooled.sharers)));
        }
        let registry = build()?;
        let sharers = Arc::new(AtomicUsize::new(0));
        let share = self.take_part(&sharers);
        clients.push(Pooled { key, registry: Arc::downgrade(&registry), sharers });
        Ok((registry, share))
    }

    /// A share in a client.
    fn take_part(&'static self, sharers: &Arc<AtomicUsize>) -> Arc<Share> {
        sharers.fetch_add(1, Ordering::Relaxed);
        Arc::new(Share { pool: self, sharers: sharers.clone(), is_left: AtomicBool::new(false) })
    }

    /// Locks the clients, which are whole even after a panic.
    fn lock(&self) -> MutexGuard<'_, Vec<Pooled>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Gives up the share; returns whether it was the last one, after which the client accepts no new sharers.
    pub(super) fn leave(&self) -> bool {
        // No sharer can be added while the lock is held.
        let mut clients = self.pool.lock();
        if !self.is_left.swap(true, Ordering::Relaxed) {
            self.sharers.fetch_sub(1, Ordering::Relaxed);
        }
        let is_last = self.sharers.load(Ordering::Relaxed) == 0;
        if is_last {
            clients.retain(|pooled| !Arc::ptr_eq(&pooled.sharers, &self.sharers));
        }
        is_last
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !*self.is_left.get_mut() {
            self.sharers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("sharers", &self.sharers).finish_non_exhaustive()
    }
}

impl Pooled {
    /// The client, if it has not ended with its last handle, by a shutdown, or with its runtime.
    fn registry(&self) -> Option<Arc<Registry>> {
        self.registry.upgrade().filter(|registry| !registry.has_ended())
    }
}

/// The shared clients of this process, in all of its runtimes.
pub(super) static PROCESS: Pool = Pool::new();
