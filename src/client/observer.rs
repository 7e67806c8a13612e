//! The client beside a client, for watches that observe.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::{runtime::Handle, sync::watch};

use super::registry::{Registry, Role};
use crate::background::supervise;

/// The observing part of a client with gRPC's rules. It has streams of its own, so that servers receive the ACK or
/// NACK of each profile separately. It starts with the first observing watch, and ends with the last one.
pub(super) struct Observer {
    /// Builds the part, without metrics and with the other profile of validation.
    start: Box<Start>,
    /// Closed when the driver of the client has ended.
    ended: watch::Receiver<()>,
    /// The observing part; empty before the first observing watch and after the last one.
    registry: Mutex<Weak<Registry>>,
}

/// Builds the part of a client with a role, and its driver. To be called within the runtime of the client.
pub(super) type Start =
    dyn Fn(Role) -> (Arc<Registry>, Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync;

impl Observer {
    /// An observer for the client whose end is reported by `ended`.
    pub(super) fn new(start: Box<Start>, ended: watch::Receiver<()>) -> Self {
        Self { start, ended, registry: Mutex::default() }
    }

    /// Locks the reference, which is whole even after a panic.
    fn known(&self) -> MutexGuard<'_, Weak<Registry>> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The observing part of a client, started if necessary.
pub(super) fn of(client: &Arc<Registry>, runtime: &Handle) -> Arc<Registry> {
    // An ended client refuses watches of all profiles; a client that only observes has no such part.
    let observer = if client.has_ended() { None } else { client.extensions().get::<Observer>() };
    let Some(observer) = observer else { return client.clone() };
    // Held while the part is built, so that two first watches build one.
    let mut known = observer.known();
    if let Some(registry) = known.upgrade() {
        return registry;
    }
    // Building needs a current runtime, and watches begin anywhere.
    let _entered = runtime.enter();
    let role = Role::Observer { client: Some(client.clone()) };
    let (observing, driver) = (observer.start)(role);
    let mut ended = observer.ended.clone();
    let task = async move {
        tokio::select! {
            () = driver => {}
            // An error means that the client has ended, including all its parts.
            _ = ended.changed() => {}
        }
    };
    runtime.spawn(supervise("observing part of a client", task, |_| {}));
    *known = Arc::downgrade(&observing);
    observing
}

/// Waits until the observing part of a client has ended, which it does with the driver of the client.
pub(super) async fn ended(client: &Registry) {
    let observer = client.extensions().get::<Observer>();
    if let Some(observing) = observer.and_then(|observer| observer.known().upgrade()) {
        observing.ended().await;
    }
}
