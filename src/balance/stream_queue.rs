//! The connections of a subchannel, and the attempts that wait for a stream of one of them (A105).

pub(crate) mod streams;

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use self::streams::Streams;
use super::command::ConnectionId;

/// The attempts that wait for a stream, in their order (CH4.10).
///
/// It is worked off, the oldest attempt and the oldest connection first, and up to the first attempt that must wait, when a stream
/// ends, the peer changes its limit, a connection is added, or one of several is lost (CH4.11). When a connection may be added, the
/// first attempt that has to wait requests it.
///
/// A limit of one connection may be exceeded by one stream whose turn in the transport comes later, so that responses that the
/// application has not read do not block its next call; with several connections there are none above the limits.
pub(crate) struct StreamQueue<H> {
    state: Mutex<State<H>>,
    on_full: OnFull,
}

/// An attempt that waits for a stream. Dropping it takes it out of the queue at once.
pub(crate) struct StreamWaiter<H> {
    queue: Arc<StreamQueue<H>>,
    /// The place in the queue: lower ones have their turn before.
    place: u64,
    /// Whether the result was taken, so that a drop has nothing to undo.
    is_over: bool,
}

/// The connections of an endpoint at one time, the oldest one first.
#[derive(Debug)]
pub(crate) struct Connections<H> {
    oldest: Arc<Streams<H>>,
    /// Further connections; none with a limit of one connection.
    others: Box<[Arc<Streams<H>>]>,
    queue: Arc<StreamQueue<H>>,
}

/// All connections are lost, or being drained: nothing was sent on them (CH4.12).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// Is called when an attempt has to wait for a further connection to the endpoint of this one.
#[derive(Clone)]
pub(crate) struct OnFull(Arc<dyn Fn(ConnectionId) + Send + Sync>);

struct State<H> {
    /// Connections that take new streams, the oldest one first.
    connections: Vec<(ConnectionId, Arc<Streams<H>>)>,
    /// The attempts that wait, by place, each with its waker once it was polled.
    waiting: BTreeMap<u64, Option<Waker>>,
    /// The streams of attempts that have not taken note of them yet.
    granted: BTreeMap<u64, Arc<Streams<H>>>,
    next: u64,
    /// Whether a further connection may be attempted. Never while attempts wait: the first one requests it.
    can_grow: bool,
    /// Whether the limits of the connections are never exceeded.
    is_strict: bool,
    /// Set when the last connection is lost.
    is_closed: bool,
}

impl<H> StreamQueue<H> {
    /// The queue before a first connection. That of a connection that is shared with other channels is theirs, too.
    pub(super) fn of(connection: ConnectionId, streams: &Arc<Streams<H>>, on_full: &OnFull) -> Arc<Self> {
        streams.queue_or(|| {
            let state = State {
                connections: vec![(connection, streams.clone())],
                waiting: BTreeMap::new(),
                granted: BTreeMap::new(),
                next: 0,
                can_grow: false,
                is_strict: false,
                is_closed: false,
            };
            Arc::new(Self { state: Mutex::new(state), on_full: on_full.clone() })
        })
    }

    /// Adds a connection, the youngest one. Returns false if all others were lost: nobody waits here any more.
    pub(super) fn add(self: &Arc<Self>, connection: ConnectionId, streams: &Arc<Streams<H>>) -> bool {
        let mut state = self.lock();
        if state.is_closed {
            return false;
        }
        // A connection that is shared with other channels may have a queue already, and keeps it.
        streams.queue_or(|| self.clone());
        streams.set_strict(state.is_strict);
        streams.set_waiting(!state.waiting.is_empty());
        state.connections.push((connection, streams.clone()));
        wake(state, State::grant);
        true
    }

    /// Whether a further connection may be attempted, and whether there may be several of them. Returns true if attempts wait for
    /// one, which is to be attempted now.
    pub(super) fn set_growth(&self, can_grow: bool, is_strict: bool) -> bool {
        let mut state = self.lock();
        state.can_grow = can_grow && state.waiting.is_empty();
        let is_due = can_grow && !state.can_grow;
        if state.is_strict != is_strict {
            state.is_strict = is_strict;
            state.connections.iter().for_each(|(_, it)| it.set_strict(is_strict));
            wake(state, State::grant);
        }
        is_due
    }

    /// Gives free streams to the attempts that have waited longest.
    pub(super) fn work_off(&self) {
        wake(self.lock(), State::grant);
    }

    /// A connection takes no new streams any more.
    pub(super) fn on_closed(&self) {
        wake(self.lock(), |state| {
            state.connections.retain(|(_, it)| !it.is_closed());
            if !state.connections.is_empty() {
                return state.grant();
            }
            // Those that wait take another picker (CH4.12).
            state.is_closed = true;
            std::mem::take(&mut state.waiting).into_values().flatten().collect()
        });
    }

    /// Waits for a stream of any of the connections.
    ///
    /// # Errors
    /// All connections are lost.
    pub(crate) fn wait(self: &Arc<Self>) -> Result<StreamWaiter<H>, Gone> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Gone);
        }
        let place = state.next;
        state.next += 1;
        state.waiting.insert(place, None);
        // From here on, each end of a stream looks at the queue. One that came before is seen by `grant`.
        state.connections.iter().for_each(|(_, it)| it.set_waiting(true));
        let wakers = state.grant();
        let must_wait = !state.waiting.is_empty();
        let requested = state.connections.first().filter(|_| state.can_grow && must_wait);
        let requested = requested.map(|(connection, _)| *connection);
        state.can_grow &= requested.is_none();
        // Unlocked first: the woken tasks and the callback may look at the queue at once.
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        if let Some(connection) = requested {
            (self.on_full.0)(connection);
        }
        Ok(StreamWaiter { queue: self.clone(), place, is_over: false })
    }

    /// The number of attempts that wait.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    fn lock(&self) -> MutexGuard<'_, State<H>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H> State<H> {
    /// Gives free streams to attempts, as long as there are both. Returns whom to wake.
    fn grant(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while !self.waiting.is_empty()
            && let Some((_, streams)) = self.connections.iter().find(|(_, it)| it.take())
            && let Some((place, waker)) = self.waiting.pop_first()
        {
            self.granted.insert(place, streams.clone());
            wakers.extend(waker);
        }
        if self.waiting.is_empty() {
            self.connections.iter().for_each(|(_, it)| it.set_waiting(false));
        }
        wakers
    }
}

impl<H> Connections<H> {
    /// At least one connection, the oldest one first.
    pub(super) fn new(
        connections: &[(ConnectionId, Arc<Streams<H>>)],
        queue: &Arc<StreamQueue<H>>,
    ) -> Option<Self> {
        let ((_, oldest), others) = connections.split_first()?;
        let others = others.iter().map(|(_, it)| it.clone()).collect();
        Some(Self { oldest: oldest.clone(), others, queue: queue.clone() })
    }

    /// A connection without a limit of streams.
    #[cfg(test)]
    pub(super) fn of_one(handle: H) -> Self {
        let (streams, connection) = (Streams::new(handle, usize::MAX), ConnectionId::default());
        let queue = StreamQueue::of(connection, &streams, &OnFull::default());
        Self { oldest: streams, others: [].into(), queue }
    }

    /// Whether they are these.
    pub(super) fn are(&self, connections: &[(ConnectionId, Arc<Streams<H>>)]) -> bool {
        connections.iter().map(|(_, it)| Arc::as_ptr(it)).eq(self.all().map(Arc::as_ptr))
    }

    /// The oldest one.
    pub(crate) fn oldest(&self) -> &Arc<Streams<H>> {
        &self.oldest
    }

    /// Takes a stream of the oldest connection that has a free one (CH4.10), if nobody waits. `None` within is the oldest of all,
    /// which needs no other reference.
    pub(crate) fn try_reserve(&self) -> Option<Option<Arc<Streams<H>>>> {
        if self.oldest.try_reserve() {
            return Some(None);
        }
        self.others
            .iter()
            .find(|connection| connection.try_reserve())
            .map(|connection| Some(connection.clone()))
    }

    /// The queue before them.
    pub(crate) fn queue(&self) -> &Arc<StreamQueue<H>> {
        &self.queue
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Streams<H>>> {
        std::iter::once(&self.oldest).chain(&self.others)
    }
}

impl<H> Future for StreamWaiter<H> {
    type Output = Result<Arc<Streams<H>>, Gone>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let place = self.place;
        let polled = {
            let mut state = self.queue.lock();
            match (state.granted.remove(&place), state.waiting.get_mut(&place)) {
                (Some(streams), _) => Poll::Ready(Ok(streams)),
                (None, Some(waker)) => {
                    *waker = Some(cx.waker().clone());
                    Poll::Pending
                }
                // Only the loss of all connections takes an attempt out of the queue without a stream.
                (None, None) => Poll::Ready(Err(Gone)),
            }
        };
        self.is_over = polled.is_ready();
        polled
    }
}

impl<H> Drop for StreamWaiter<H> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.queue.lock();
        let granted = state.granted.remove(&self.place);
        state.waiting.remove(&self.place);
        // Once no attempt waits, others take streams without the queue again.
        wake(state, State::grant);
        if let Some(streams) = granted {
            // Not under the lock, which the release takes to give the stream to the next attempt.
            streams.release(false);
        }
    }
}

impl OnFull {
    /// A callback, which is called outside of the lock of the queue and must not block.
    pub(crate) fn new(on_full: impl Fn(ConnectionId) + Send + Sync + 'static) -> Self {
        Self(Arc::new(on_full))
    }
}

/// Nobody learns of it.
impl Default for OnFull {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl PartialEq for OnFull {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for OnFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnFull")
    }
}

impl<H> fmt::Debug for StreamQueue<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("StreamQueue")
            .field("connections", &state.connections)
            .field("waiting", &state.waiting.len())
            .field("can_grow", &state.can_grow)
            .field("is_closed", &state.is_closed)
            .finish_non_exhaustive()
    }
}

/// Changes the state, and wakes attempts in their order when it is unlocked.
fn wake<H>(mut state: MutexGuard<'_, State<H>>, change: impl FnOnce(&mut State<H>) -> Vec<Waker>) {
    let wakers = change(&mut state);
    drop(state);
    wakers.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests;
