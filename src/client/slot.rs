//! The latest value of a watch, and those who wait for the next one.
//!
//! The driver publishes, watchers poll. Neither waits for the other: the lock is held for a few pointers, and the driver wakes
//! watchers after it has released the lock.

use std::{
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use slab::Slab;

/// The latest value of a view, and the wakers of its waiting watchers.
///
/// It stores one value, never a queue: a slow watcher skips intermediate values, never the latest one, and does not
/// delay others.
///
/// It takes 40 bytes at most, since a client may have tens of thousands of watches with one watcher each.
pub(super) struct Slot<V> {
    /// The value and the watchers.
    state: Mutex<State<V>>,
}

/// The value, its number, and those who wait for the next.
struct State<V> {
    /// The latest value; `None` before the first publication.
    value: Option<Arc<V>>,
    /// Counts publications. It skips 0, the initial value of a watcher that has yielded nothing. It may wrap around:
    /// a watcher would have to miss exactly 2³² − 1 publications to skip one.
    revision: u32,
    /// Whether nothing is published any more. The value stays readable, since a watcher may not have seen it.
    closed: bool,
    /// The watchers waiting for the next revision.
    waiting: Waiting,
}

/// The wakers of waiting watchers by their index: usually one.
///
/// One waker is stored in place: most watches have one watcher, and its waker needs no allocation but its own.
#[derive(Debug)]
enum Waiting {
    /// At index 0.
    One(Waker),
    /// No waker, or several. The slab stays until it is empty, since its indices have been handed out.
    Other(Option<Box<Slab<Waker>>>),
}

/// The position of a watcher: the last revision that it has seen, and its index among the waiting ones.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    /// The revision that was yielded last; 0, which no publication has, before the first one.
    seen: u32,
    /// Valid as long as `seen` is the slot's revision: a publication removes all wakers.
    place: Option<usize>,
}

/// The wakers that a publication removes, to be woken without a lock held.
///
/// A waker may run code of an executor, which may poll the watch at once and would find the lock taken.
#[must_use = "watchers wait until they are woken"]
#[derive(Debug, Default)]
pub(super) struct Wakers(Waiting);

impl<V> Slot<V> {
    /// A slot without a value.
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State { value: None, revision: 0, closed: false, waiting: Waiting::default() }),
        }
    }

    /// Replaces the value.
    ///
    /// The caller has to wake the watchers, which is a step of its own for the sake of the lock.
    pub(super) fn publish(&self, value: Arc<V>) -> Wakers {
        // The replaced value leaves the block: dropping it may run the destructor of an application's resource, which must not
        // happen under the lock.
        let (wakers, _replaced) = {
            let mut state = self.lock();
            state.revision = state.revision.checked_add(1).unwrap_or(1);
            (mem::take(&mut state.waiting), state.value.replace(value))
        };
        Wakers(wakers)
    }

    /// Closes the slot: nothing is published after this.
    pub(super) fn close(&self) -> Wakers {
        let mut state = self.lock();
        state.closed = true;
        Wakers(mem::take(&mut state.waiting))
    }

    /// The value, without marking it as seen.
    pub(super) fn latest(&self) -> Option<Arc<V>> {
        self.lock().value.clone()
    }

    /// The value, which is marked as seen.
    ///
    /// The watcher does not wait any more, if it did: a future that was dropped before its end may have left its waker.
    pub(super) fn take(&self, cursor: &mut Cursor) -> Option<Arc<V>> {
        let mut state = self.lock();
        state.leave(cursor);
        cursor.seen = state.revision;
        state.value.clone()
    }

    /// The value if the watcher has not seen it, or `None` if the slot is closed.
    ///
    /// A value that was not seen comes before the end, so that a watcher of a client that is shut down sees the last state.
    pub(super) fn poll(&self, cursor: &mut Cursor, cx: &Context<'_>) -> Poll<Option<Arc<V>>> {
        let mut state = self.lock();
        if cursor.seen != state.revision {
            *cursor = Cursor { seen: state.revision, place: None };
            return Poll::Ready(state.value.clone());
        }
        if state.closed {
            cursor.place = None;
            return Poll::Ready(None);
        }
        match cursor.place {
            Some(place) => state.waiting.renew(place, cx.waker()),
            // Registered under the same lock as the comparison of revisions: a publication in between cannot be missed.
            None => cursor.place = Some(state.waiting.add(cx.waker().clone())),
        }
        Poll::Pending
    }

    /// Removes a watcher from the waiting ones.
    pub(super) fn leave(&self, cursor: &mut Cursor) {
        if cursor.place.is_some() {
            self.lock().leave(cursor);
        }
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> State<V> {
    fn leave(&mut self, cursor: &mut Cursor) {
        if let Some(place) = cursor.place.take()
            // Otherwise a publication has taken all wakers, and the index may be that of another watcher by now.
            && cursor.seen == self.revision
            && !self.closed
        {
            self.waiting.remove(place);
        }
    }
}

impl<V> fmt::Debug for Slot<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Slot")
            .field("revision", &state.revision)
            .field("closed", &state.closed)
            .field("waiting", &state.waiting.len())
            .finish_non_exhaustive()
    }
}

impl Wakers {
    /// Wakes the watchers: directly if they are few, otherwise in a separate task so that the caller is not delayed.
    pub(super) fn wake(self) {
        let Self(wakers) = self;
        if wakers.len() <= MAX_WOKEN_IN_PLACE {
            return wakers.wake();
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move { wakers.wake() })),
            Err(_) => wakers.wake(),
        }
    }
}

impl Waiting {
    fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Other(several) => several.as_ref().map_or(0, |several| several.len()),
        }
    }

    /// Adds a waker and returns its index.
    fn add(&mut self, new: Waker) -> usize {
        match mem::take(self) {
            Self::Other(None) => {
                *self = Self::One(new);
                0
            }
            Self::One(first) => {
                let mut several = Box::new(Slab::with_capacity(2));
                several.insert(first);
                let place = several.insert(new);
                *self = Self::Other(Some(several));
                place
            }
            Self::Other(Some(mut several)) => {
                let place = several.insert(new);
                *self = Self::Other(Some(several));
                place
            }
        }
    }

    /// Replaces the waker of a watcher that is polled by another task, or again. `clone_from` does nothing for a waker of the
    /// same task.
    fn renew(&mut self, place: usize, waker: &Waker) {
        match self {
            Self::One(one) => one.clone_from(waker),
            Self::Other(None) => debug_assert!(false, "nobody has a place"),
            Self::Other(Some(several)) => several[place].clone_from(waker),
        }
    }

    /// Removes a waker. Indices of the others stay.
    fn remove(&mut self, place: usize) {
        match self {
            Self::One(_) => *self = Self::default(),
            Self::Other(None) => debug_assert!(false, "nobody has a place"),
            Self::Other(Some(several)) => {
                several.remove(place);
                if several.is_empty() {
                    *self = Self::default();
                }
            }
        }
    }

    fn wake(self) {
        match self {
            Self::One(waker) => waker.wake(),
            Self::Other(several) => {
                several
                    .into_iter()
                    .flat_map(|several| several.into_iter())
                    .for_each(|(_, waker)| waker.wake());
            }
        }
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Self::Other(None)
    }
}

/// The maximum number of watchers to wake directly. Waking one takes about 100 ns, so these take about 25 µs.
const MAX_WOKEN_IN_PLACE: usize = 256;

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(slot: &Slot<u32>, cursor: &mut Cursor, count: &Arc<Count>) -> Poll<Option<u32>> {
        let waker = Waker::from(count.clone());
        slot.poll(cursor, &Context::from_waker(&waker)).map(|value| value.map(|value| *value))
    }

    #[test]
    fn a_slot_is_small() {
        assert!(size_of::<Slot<u32>>() <= 40, "{} bytes", size_of::<Slot<u32>>());
    }

    #[test]
    fn a_slow_watcher_sees_the_last_value_only() {
        let (slot, mut cursor, count) = (Slot::new(), Cursor::default(), Arc::default());
        assert_eq!(poll(&slot, &mut cursor, &count), Poll::Pending);
        for value in 1..=3 {
            slot.publish(Arc::new(value)).wake();
        }
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(&slot, &mut cursor, &count), Poll::Ready(Some(3)));
        assert_eq!(poll(&slot, &mut cursor, &count), Poll::Pending);
        assert_eq!(poll(&slot, &mut Cursor::default(), &count), Poll::Ready(Some(3)), "one that joins");
    }

    #[test]
    fn places_are_given_up_without_publications() {
        let (slot, count) = (Slot::<u32>::new(), Arc::default());
        let mut cursors: Vec<_> = (0..1000).map(|_| Cursor::default()).collect();
        for cursor in &mut cursors {
            assert_eq!(poll(&slot, cursor, &count), Poll::Pending);
            assert_eq!(poll(&slot, cursor, &count), Poll::Pending, "polled twice, one place");
        }
        assert_eq!(slot.waiting(), 1000);
        cursors.iter_mut().for_each(|cursor| slot.leave(cursor));
        assert_eq!(slot.waiting(), 0);
    }

    #[test]
    fn a_place_of_an_older_revision_is_not_given_up_for_another() {
        let (slot, count) = (Slot::new(), Arc::default());
        let (mut old, mut new) = (Cursor::default(), Cursor::default());
        assert_eq!(poll(&slot, &mut old, &count), Poll::Pending);
        slot.publish(Arc::new(1)).wake();
        assert_eq!(poll(&slot, &mut new, &count), Poll::Ready(Some(1)));
        assert_eq!(poll(&slot, &mut new, &count), Poll::Pending);
        slot.leave(&mut old);
        assert_eq!(slot.waiting(), 1);
        slot.publish(Arc::new(2)).wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_closed_slot_gives_what_was_not_seen_and_ends() {
        let (slot, count) = (Slot::new(), Arc::default());
        let (mut waits, mut late) = (Cursor::default(), Cursor::default());
        assert_eq!(poll(&slot, &mut late, &count), Poll::Pending);
        slot.publish(Arc::new(1)).wake();
        assert_eq!(poll(&slot, &mut waits, &count), Poll::Ready(Some(1)));
        assert_eq!(poll(&slot, &mut waits, &count), Poll::Pending);
        slot.close().wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert_eq!(poll(&slot, &mut waits, &count), Poll::Ready(None));
        assert_eq!(poll(&slot, &mut waits, &count), Poll::Ready(None));
        assert_eq!(poll(&slot, &mut late, &count), Poll::Ready(Some(1)));
        assert_eq!(poll(&slot, &mut late, &count), Poll::Ready(None));
        slot.leave(&mut waits);
    }

    #[tokio::test]
    async fn many_are_woken_in_a_task_of_their_own() {
        let (slot, count) = (Slot::new(), Arc::default());
        let mut cursors: Vec<_> = (0..=MAX_WOKEN_IN_PLACE).map(|_| Cursor::default()).collect();
        for cursor in &mut cursors {
            assert_eq!(poll(&slot, cursor, &count), Poll::Pending);
        }
        slot.publish(Arc::new(1)).wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        tokio::task::yield_now().await;
        assert_eq!(count.0.load(Ordering::Relaxed), MAX_WOKEN_IN_PLACE + 1);
    }
}
