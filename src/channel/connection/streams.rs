//! The streams of a connection: how many the peer permits, and the attempts that wait for one (CH4.13).

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::oneshot;

/// Counts the streams of a connection against the peer's MAX_CONCURRENT_STREAMS. Attempts above the limit wait here, and not in
/// h2, so that they can take another connection when this one is lost. A subchannel with several connections (A105) will have
/// one queue before several of these.
///
/// The count and the limit are one atomic, which is all that an attempt touches that does not have to wait.
pub(super) struct Streams {
    state: AtomicU64,
    queue: Mutex<Queue>,
    /// Why the connection was ended from this side.
    reason: OnceLock<String>,
}

/// The connection is lost, or being drained: nothing was sent on it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::channel) struct Gone;

/// The attempts that wait, by their order.
#[derive(Default)]
struct Queue {
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
    next: u64,
    is_closed: bool,
}

/// An attempt that waits. Dropping it takes it out of the queue at once.
struct Waiter<'a> {
    streams: &'a Streams,
    place: u64,
    granted: oneshot::Receiver<()>,
    is_over: bool,
}

/// The fields of the atomic: the running streams, those of them whose response has begun, the limit, and whether attempts wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State(u64);

impl Streams {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        let state = AtomicU64::new(State(0).with_limit(limit).0);
        Arc::new(Self { state, queue: Mutex::default(), reason: OnceLock::new() })
    }

    /// The number of streams that run.
    pub(super) fn running(&self) -> u64 {
        self.load().running()
    }

    #[cfg(test)]
    pub(super) fn limit(&self) -> u64 {
        self.load().limit()
    }

    /// Counts a stream; waits while the peer permits no further one.
    pub(super) async fn reserve(&self) -> Result<(), Gone> {
        if self.try_reserve() { Ok(()) } else { self.wait()?.granted().await }
    }

    /// Counts a stream if the peer permits it and nobody waits.
    pub(super) fn try_reserve(&self) -> bool {
        let more =
            |state| (!State(state).has_waiting() && State(state).permits_more()).then(|| state + RUNNING);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// The response of a stream has begun.
    pub(super) fn on_response(&self) {
        let before = State(self.state.fetch_add(RESPONDED, Ordering::AcqRel));
        self.grant_if_waiting(before);
    }

    /// A stream has ended, whose response had begun or not.
    pub(super) fn release(&self, has_response: bool) {
        let ended = if has_response { RUNNING + RESPONDED } else { RUNNING };
        let before = State(self.state.fetch_sub(ended, Ordering::AcqRel));
        self.grant_if_waiting(before);
    }

    /// The peer has changed its limit. Streams above a lower one run on (CH4.14).
    pub(super) fn set_limit(&self, limit: usize) {
        let changed = |state| Some(State(state).with_limit(limit).0);
        if let Ok(before) = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed) {
            self.grant_if_waiting(State(before));
        }
    }

    /// Nothing is sent on the connection any more: attempts that wait take another one (CH4.12).
    pub(super) fn close(&self) {
        let waiting = {
            let mut queue = self.lock();
            queue.is_closed = true;
            self.state.fetch_and(!WAITING, Ordering::AcqRel);
            std::mem::take(&mut queue.waiting)
        };
        // The end of their senders wakes them, in their order.
        drop(waiting);
    }

    /// Whether nothing is sent on the connection any more.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// The connection is ended from this side, for a reason that the errors of its streams do not have.
    pub(super) fn set_reason(&self, reason: String) {
        // The first reason counts.
        let _ = self.reason.set(reason);
    }

    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    fn wait(&self) -> Result<Waiter<'_>, Gone> {
        let mut queue = self.lock();
        if queue.is_closed {
            return Err(Gone);
        }
        let (grant, granted) = oneshot::channel();
        let place = queue.next;
        queue.next += 1;
        queue.waiting.insert(place, grant);
        // From here on, each end of a stream looks at the queue. One that came before is seen by `grant`.
        self.state.fetch_or(WAITING, Ordering::AcqRel);
        self.grant(&mut queue);
        Ok(Waiter { streams: self, place, granted, is_over: false })
    }

    fn grant_if_waiting(&self, before: State) {
        if before.has_waiting() {
            self.grant(&mut self.lock());
        }
    }

    /// Gives free streams to the attempts that have waited longest (CH4.11). As long as attempts wait, nobody else takes one.
    fn grant(&self, queue: &mut Queue) {
        while !queue.waiting.is_empty() && self.load().permits_more() {
            if let Some((_, grant)) = queue.waiting.pop_first() {
                self.state.fetch_add(RUNNING, Ordering::AcqRel);
                // The receiver is there: a waiter leaves the queue before it is dropped.
                let _ = grant.send(());
            }
        }
        if queue.waiting.is_empty() {
            self.state.fetch_and(!WAITING, Ordering::AcqRel);
        }
    }

    fn load(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter<'_> {
    async fn granted(mut self) -> Result<(), Gone> {
        let granted = (&mut self.granted).await;
        self.is_over = true;
        granted.map_err(|_| Gone)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        {
            let mut queue = self.streams.lock();
            if queue.waiting.remove(&self.place).is_some() {
                self.streams.grant(&mut queue);
                return;
            }
        }
        if self.granted.try_recv().is_ok() {
            self.streams.release(false);
        }
    }
}

impl State {
    fn running(self) -> u64 {
        self.0 & FIELD
    }

    fn responded(self) -> u64 {
        (self.0 / RESPONDED) & FIELD
    }

    fn limit(self) -> u64 {
        (self.0 / LIMIT) & FIELD
    }

    fn has_waiting(self) -> bool {
        self.0 & WAITING != 0
    }

    fn with_limit(self, limit: usize) -> Self {
        let limit = u64::try_from(limit).unwrap_or(FIELD).min(FIELD - 1);
        Self((self.0 & !(FIELD * LIMIT)) | (limit * LIMIT))
    }

    /// Whether another stream may begin.
    ///
    /// A response that has arrived completely and was not read yet counts here, but not at the peer. An application that reads
    /// responses only when a further call has begun must not wait for itself. So if the responses of all streams have begun, one
    /// more is passed on to h2, which begins it when the peer permits it.
    fn permits_more(self) -> bool {
        let (running, limit) = (self.running(), self.limit());
        running < limit || (limit > 0 && running == self.responded() && running < FIELD)
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.load();
        f.debug_struct("Streams")
            .field("running", &state.running())
            .field("limit", &state.limit())
            .field("has_waiting", &state.has_waiting())
            .finish_non_exhaustive()
    }
}

/// The greatest value of a field of the state.
const FIELD: u64 = (1 << 21) - 1;
/// One running stream.
const RUNNING: u64 = 1;
/// One stream whose response has begun.
const RESPONDED: u64 = 1 << 21;
/// A limit of one stream.
const LIMIT: u64 = 1 << 42;
/// Attempts wait.
const WAITING: u64 = 1 << 63;

#[cfg(test)]
mod tests;
