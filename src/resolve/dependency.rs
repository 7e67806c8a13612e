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
    /// The watch of a reference, in which dependencies differ beside their types.
    key: fn(Reference) -> WatchKey,
    /// The resource that is watched, if one was named.
    watched: Option<Watched<T>>,
    /// The resource above names it. Set anew in each pass from the listener down. What no pass requires is unsubscribed (F6).
    required: bool,
}

#[derive(Debug)]
struct Watched<T> {
    /// The resource.
    what: Reference,
    /// Its state; `None` before the first one, also when another reference was watched before.
    seen: Option<Arc<Observed<T>>>,
    /// The time until which it outlives its deletion. Set by the first pass that finds it deleted, and cleared by each update,
    /// so that a resource which is deleted twice has its time twice.
    grace: Option<Instant>,
}

/// The reason why a listener does not lead to a virtual host, at least not yet.
#[derive(Debug)]
pub(super) enum End {
    /// A resource is not known yet: the tree in use serves until it is (F2).
    Unknown,
    /// A resource is unavailable for now: the tree in use serves. The watches below stay, so that they are known as soon as it
    /// is available again.
    Blocked(WatchError),
    /// There is none. The target has an error, and everything below the listener is unsubscribed, but for the clusters of the
    /// last tree (F8).
    Nowhere(WatchError),
}

impl<T> Dependency<T> {
    /// `key` returns what is to be watched for a reference.
    pub(super) fn new(key: fn(Reference) -> WatchKey) -> Self {
        Self { key, watched: None, required: false }
    }

    /// Stores an update of the watched resource.
    ///
    /// An update may be under way while its watch is replaced; the owner of watches drops it then.
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
    ///
    /// Requiring the same reference again keeps the watch, with its state and its grace.
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
    ///
    /// Not called while a resource is unavailable: what is below it would be requested anew.
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
            // A rejected resource without a last known good one is a mistake of the server that may be corrected soon; the tree
            // in use does not depend on it.
            Some(Observed::Absent { reason }) if reason.is_transient() || reason.is_rejected() => {
                Err(End::Blocked(reason.clone()))
            }
            Some(Observed::Absent { reason })
                // Servers send types in any order: the removal of the routes may come before the listener that leads elsewhere.
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
