//! A resource that the resource above it names, such as the routes of a listener.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    orders::{Order, WatchKey},
    reference::Reference,
};
use crate::{error::WatchError, observed::Observed};

/// A resource between a listener and its virtual host, which the resource above it names.
#[derive(Debug)]
pub(super) struct Dependency<T> {
    /// The watch of a reference.
    key: fn(Reference) -> WatchKey,
    /// The resource that is watched, if one was named.
    watched: Option<Watched<T>>,
    /// The resource above names it.
    required: bool,
}

#[derive(Debug)]
struct Watched<T> {
    /// The resource.
    what: Reference,
    /// Its state; `None` before the first one.
    seen: Option<Arc<Observed<T>>>,
    /// The time until which it outlives its deletion.
    grace: Option<Instant>,
}

/// The reason why a listener does not lead to a virtual host, at least not yet.
#[derive(Debug)]
pub(super) enum End {
    /// A resource is not known yet: the tree in use serves until it is (F2).
    Unknown,
    /// A resource is unavailable for now: the tree in use serves.
    Blocked(WatchError),
    /// There is none.
    Nowhere(WatchError),
}

impl<T> Dependency<T> {
    /// `key` returns what is to be watched for a reference.
    pub(super) fn new(key: fn(Reference) -> WatchKey) -> Self {
        Self { key, watched: None, required: false }
    }

    /// Stores an update of the watched resource.
    pub(super) fn on_seen(&mut self, seen: Arc<Observed<T>>) {
        if let Some(watched) = &mut self.watched {
            (watched.seen, watched.grace) = (Some(seen), None);
        }
    }

    /// The route configuration is about to be resolved again.
    pub(super) fn start_pass(&mut self) {
        self.required = false;
    }

    /// The resource above names this one: it is watched, and no other.
    pub(super) fn require(&mut self, what: &Reference, orders: &mut Vec<Order>) {
        self.required = true;
        if self.watched.as_ref().map(|watched| &watched.what) != Some(what) {
            let watched = Watched { what: what.clone(), seen: None, grace: None };
            orders.push(Order::Watch((self.key)(what.clone())));
            let old = self.watched.replace(watched);
            orders.extend(old.map(|old| Order::Unwatch((self.key)(old.what))));
        }
    }

    /// Whether the resource above has named it in this pass.
    pub(super) fn is_required(&self) -> bool {
        self.required
    }

    /// The route configuration was resolved: a resource that no other names is not watched any more.
    pub(super) fn release_unrequired(&mut self, orders: &mut Vec<Order>) {
        let old = self.watched.take_if(|_| !self.required);
        orders.extend(old.map(|old| Order::Unwatch((self.key)(old.what))));
    }

    /// The resource, and the reason why it may be stale. One that is in use serves on for `grace` after its deletion:
    /// the resource above may be about to name another, or to be deleted.
    pub(super) fn resolve(
        &mut self,
        in_use: bool,
        grace: Duration,
        now: Instant,
    ) -> Result<(Arc<T>, Option<WatchError>), End> {
        let Some(watched) = &mut self.watched else {
            debug_assert!(false, "a dependency is required before it is resolved");
            return Err(End::Unknown);
        };
        match watched.seen.as_deref() {
            None | Some(Observed::Pending) => Err(End::Unknown),
            Some(Observed::Present { resource, warning, .. }) => Ok((resource.clone(), warning.clone())),
            Some(Observed::Absent { reason }) if reason.is_transient() || reason.is_rejected() => {
                Err(End::Blocked(reason.clone()))
            }
            Some(Observed::Absent { reason })
                if in_use && reason.is_not_found() && now < *watched.grace.get_or_insert(now + grace) =>
            {
                Err(End::Blocked(reason.clone()))
            }
            Some(Observed::Absent { reason }) => Err(End::Nowhere(reason.clone())),
        }
    }

    /// The time until which it serves on though it is deleted.
    pub(super) fn grace(&self) -> Option<Instant> {
        self.watched.as_ref().and_then(|watched| watched.grace)
    }
}
