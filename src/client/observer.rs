//! The client beside a client, for watches that observe.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::{runtime::Handle, sync::watch};

use super::{
    ClientBuilder,
    registry::{Registry, Role},
};
use crate::{background::supervise, resource::Validation};

/// The observing part of a client with gRPC's rules. It has streams of its own, so that servers receive the ACK or
/// NACK of each profile separately. It starts with the first observing watch, and ends with the last one.
pub(super) struct Observer {
    /// The builder of the client, without metrics and with the other profile of validation.
    builder: ClientBuilder,
    /// Closed when the driver of the client has ended.
    ended: watch::Receiver<()>,
    /// The observing part; empty before the first observing watch and after the last one.
    registry: Mutex<Weak<Registry>>,
}

impl Observer {
    /// An observer for the client that this builder builds.
    pub(super) fn new(mut builder: ClientBuilder, ended: watch::Receiver<()>) -> Self {
        builder.observe();
        Self { builder, ended, registry: Mutex::default() }
    }

    /// The observing part, if it has been started.
    pub(super) fn registry(&self) -> Option<Arc<Registry>> {
        self.known().upgrade()
    }

    /// Locks the reference, which is whole even after a panic.
    fn known(&self) -> MutexGuard<'_, Weak<Registry>> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The observing part of a client, started if necessary.
pub(super) fn of(client: &Arc<Registry>, runtime: &Handle) -> Arc<Registry> {
    let observer = match client.role() {
        // An ended client refuses watches of all profiles.
        Role::Client(_) if client.has_ended() => return client.clone(),
        Role::Client(observer) => observer,
        Role::Observer { .. } => return client.clone(),
    };
    // Held while the part is built, so that two first watches build one.
    let mut known = observer.known();
    if let Some(registry) = known.upgrade() {
        return registry;
    }
    // Building needs a current runtime, and watches begin anywhere.
    let _entered = runtime.enter();
    let role = Role::Observer { client: Some(client.clone()) };
    let built = observer.builder.clone().build_part(role);
    let (observing, driver) = built.expect("the client was built with the same settings, and has a runtime");
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

impl Role {
    /// The validation profile of all watches of this part.
    pub(super) fn validation(&self) -> Validation {
        match self {
            Self::Client(_) => Validation::Grpc,
            Self::Observer { .. } => Validation::Observe,
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
