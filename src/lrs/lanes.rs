//! Where a handle counts: it is found without a lock, and changes while calls begin.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use super::counters::Count;

/// The counters of a handle: one for each destination that its load was reported to.
///
/// A lane stays as long as the handle. One for a destination that was left is used again when the load goes there again, so there
/// are few: as many as a client has management servers, and a cluster had service names and sets of metrics.
#[derive(Debug)]
pub(super) struct Lanes<C> {
    /// The number of the current lane, from 1; 0 if nothing is counted (LR9.1).
    current: AtomicUsize,
    /// In place, since most handles have a single destination for their whole life.
    first: Lane<C>,
}

/// A list to which lanes are only added, so that reading it needs no lock.
#[derive(Debug)]
struct Lane<C> {
    /// The counters of the lane; unset in the last, empty one.
    counters: OnceLock<Arc<C>>,
    next: OnceLock<Box<Self>>,
}

impl<C: Count> Lanes<C> {
    pub(super) fn new() -> Self {
        Self { current: AtomicUsize::new(0), first: Lane::new() }
    }

    /// The counters of the current destination.
    #[inline]
    pub(super) fn current(&self) -> Option<&Arc<C>> {
        // Relaxed is enough: a call that begins while the load moves may count for either destination, and `OnceLock` orders the
        // counters.
        match self.current.load(Ordering::Relaxed) {
            0 => None,
            // The usual case.
            1 => self.first.counters.get(),
            number => self.iter().nth(number - 1),
        }
    }

    /// Makes the first lane that fits the current one, or a new one. Returns it if it was not the current one. Called with the lock
    /// of all counters held.
    pub(super) fn switch_to(&self, fits: impl Fn(&C) -> bool, new: impl FnOnce() -> C) -> Option<Arc<C>> {
        let known = self.iter().position(|lane| fits(lane));
        let number = known.map_or_else(|| self.iter().count() + 1, |index| index + 1);
        if known.is_none() {
            self.push(Arc::new(new()));
        }
        if self.current.load(Ordering::Relaxed) == number {
            return None;
        }
        // The old lane first: two current lanes of one handle would both count as live.
        self.leave();
        let lane = self.iter().nth(number - 1)?;
        lane.set_current(true);
        self.current.store(number, Ordering::Relaxed);
        Some(lane.clone())
    }

    /// Ends the counting for the current destination. Called with the lock of all counters held.
    pub(super) fn leave(&self) {
        if let Some(left) = self.current() {
            left.set_current(false);
        }
        self.current.store(0, Ordering::Relaxed);
    }

    /// Appends a lane.
    fn push(&self, counters: Arc<C>) {
        let mut lane = &self.first;
        while lane.counters.get().is_some() {
            lane = lane.next.get_or_init(|| Box::new(Lane::new()));
        }
        // It was empty, and nobody else adds.
        let _ = lane.counters.set(counters);
    }

    /// Iterates over the lanes in the order of their numbers.
    fn iter(&self) -> impl Iterator<Item = &Arc<C>> {
        let mut next = Some(&self.first);
        std::iter::from_fn(move || {
            let lane = next?;
            next = lane.next.get().map(|lane| &**lane);
            lane.counters.get()
        })
    }
}

/// The handle is gone: no new call is counted.
impl<C> Drop for Lanes<C> {
    fn drop(&mut self) {
        // `is_current` stays as it is: `is_live` sees that the reference of the handle is gone.
        // A long list must not be dropped recursively.
        let mut next = self.first.next.take();
        while let Some(mut lane) = next {
            next = lane.next.take();
        }
    }
}

impl<C> Lane<C> {
    fn new() -> Self {
        Self { counters: OnceLock::new(), next: OnceLock::new() }
    }
}
