//! The streams of a connection, beside the number that the peer permits (CH4.10).

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use super::StreamQueue;

/// An established connection: what requests are sent with, and the count of its streams against the peer's
/// MAX_CONCURRENT_STREAMS.
///
/// The count and the limit are one atomic, which is all that an attempt touches that does not have to wait (CH4.13). Attempts
/// above the limit wait in the [`StreamQueue`] before the connections of the subchannel, and not in the transport.
pub(crate) struct Streams<H> {
    handle: H,
    /// What the peer has proved to be, if that is known.
    peer: Option<Arc<str>>,
    state: AtomicU64,
    /// The queue before the connection: weak, since the queue has the connection. Attempts that need not wait do not lock it.
    queue: Mutex<Weak<StreamQueue<H>>>,
    /// Why the connection was ended from this side.
    reason: OnceLock<String>,
}

/// The fields of the atomic: the running streams, those of them whose response has begun, the limit, and flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State(u64);

impl<H> Streams<H> {
    /// A connection to a peer of which nothing is known but that it permits so many streams.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn new(handle: H, limit: usize) -> Arc<Self> {
        Self::of_peer(handle, limit, None)
    }

    /// A connection whose peer permits so many streams, with what it has proved to be.
    pub(crate) fn of_peer(handle: H, limit: usize, peer: Option<Arc<str>>) -> Arc<Self> {
        let state = AtomicU64::new(State(0).with_limit(limit).0);
        Arc::new(Self { handle, peer, state, queue: Mutex::default(), reason: OnceLock::new() })
    }

    /// What requests are sent with.
    pub(crate) fn handle(&self) -> &H {
        &self.handle
    }

    /// What the peer has proved to be, if that is known.
    pub(crate) fn peer(&self) -> Option<&Arc<str>> {
        self.peer.as_ref()
    }

    /// The number of streams that run.
    pub(crate) fn running(&self) -> u64 {
        self.load().running()
    }

    /// The number of streams that the peer permits.
    pub(crate) fn limit(&self) -> u64 {
        self.load().limit()
    }

    /// Counts a stream if the peer permits it and nobody waits.
    pub(crate) fn try_reserve(&self) -> bool {
        self.count_if(|state| !state.has(WAITING) && state.permits_more())
    }

    /// Counts a stream for an attempt that waits.
    pub(in crate::balance) fn take(&self) -> bool {
        self.count_if(State::permits_more)
    }

    /// The response of a stream has begun.
    pub(crate) fn on_response(&self) {
        // One more stream may be permitted by that: see `permits_more`.
        let before = State(self.state.fetch_add(RESPONDED, Ordering::AcqRel));
        self.grant_if_waiting(before);
    }

    /// A call on the connection is complete: the peer has sent its status.
    pub(crate) fn on_complete(&self) {
        // Written once, since all streams share what is written.
        if !self.has_completed_call() {
            self.set(COMPLETED, true);
        }
    }

    /// Whether any call on the connection was complete.
    pub(in crate::balance) fn has_completed_call(&self) -> bool {
        self.load().has(COMPLETED)
    }

    /// A stream has ended, whose response had begun or not.
    pub(crate) fn release(&self, has_response: bool) {
        // One subtraction for both counts, so that no thread sees more responses than streams.
        let ended = if has_response { RUNNING + RESPONDED } else { RUNNING };
        let before = State(self.state.fetch_sub(ended, Ordering::AcqRel));
        self.grant_if_waiting(before);
    }

    /// The peer has changed its limit. Streams above a lower one run on (CH4.14).
    pub(crate) fn set_limit(&self, limit: usize) {
        let changed = |state| Some(State(state).with_limit(limit).0);
        if let Ok(before) = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed) {
            self.grant_if_waiting(State(before));
        }
    }

    /// The connection takes no new streams any more: it is lost, or being drained.
    pub(crate) fn close(&self) {
        self.set(CLOSED, true);
        if let Some(queue) = self.queue() {
            queue.on_closed();
        }
    }

    /// Whether the connection takes no new streams any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.load().has(CLOSED)
    }

    /// The connection is ended from this side, for a reason that the errors of its streams do not have.
    pub(crate) fn set_reason(&self, reason: String) {
        // The first reason counts.
        let _ = self.reason.set(reason);
    }

    /// Why the connection was ended from this side, if it was.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// The queue before the connection, which is made if there is none yet. A connection that several channels share has one for
    /// all of them.
    pub(in crate::balance) fn queue_or(
        &self,
        new: impl FnOnce() -> Arc<StreamQueue<H>>,
    ) -> Arc<StreamQueue<H>> {
        let mut known = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        known.upgrade().unwrap_or_else(|| {
            let queue = new();
            *known = Arc::downgrade(&queue);
            queue
        })
    }

    /// Whether attempts wait: nobody else takes a stream then.
    pub(in crate::balance) fn set_waiting(&self, is_waiting: bool) {
        self.set(WAITING, is_waiting);
    }

    /// Whether the limit holds for all streams that are counted here; see [`StreamQueue`].
    pub(in crate::balance) fn set_strict(&self, is_strict: bool) {
        self.set(STRICT, is_strict);
    }

    /// Counts a stream if the state satisfies a condition, in one step. Returns whether it was counted.
    fn count_if(&self, condition: impl Fn(State) -> bool) -> bool {
        let more = |state| condition(State(state)).then(|| state + RUNNING);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    fn set(&self, flag: u64, is_set: bool) {
        if is_set {
            self.state.fetch_or(flag, Ordering::AcqRel);
        } else {
            self.state.fetch_and(!flag, Ordering::AcqRel);
        }
    }

    /// Lets the queue give free streams to attempts, if any waited before a change.
    fn grant_if_waiting(&self, before: State) {
        if before.has(WAITING)
            && let Some(queue) = self.queue()
        {
            queue.work_off();
        }
    }

    fn queue(&self) -> Option<Arc<StreamQueue<H>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    fn load(&self) -> State {
        State(self.state.load(Ordering::Acquire))
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

    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    fn with_limit(self, limit: usize) -> Self {
        // One less than a field can have, so that the stream above the limit can still be counted.
        let limit = u64::try_from(limit).unwrap_or(FIELD).min(FIELD - 1);
        Self((self.0 & !(FIELD * LIMIT)) | (limit * LIMIT))
    }

    /// Whether another stream may begin.
    ///
    /// A response that has arrived completely and was not read yet counts here, but not at the peer. An application that reads
    /// responses only when a further call has begun must not wait for itself. So if the responses of all streams have begun, one
    /// more is passed on to the transport, which begins it when the peer permits it. Not if there may be another connection: an
    /// attempt that waits for a stream of this one could not take that.
    fn permits_more(self) -> bool {
        let (running, limit) = (self.running(), self.limit());
        let is_one_more = || limit > 0 && running == self.responded() && running < FIELD;
        !self.has(CLOSED) && (running < limit || (!self.has(STRICT) && is_one_more()))
    }
}

impl<H> fmt::Debug for Streams<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.load();
        f.debug_struct("Streams")
            .field("running", &state.running())
            .field("limit", &state.limit())
            .field("has_waiting", &state.has(WAITING))
            .field("is_closed", &state.has(CLOSED))
            .finish_non_exhaustive()
    }
}

/// The greatest value of a field of the state.
const FIELD: u64 = (1 << 20) - 1;
/// One running stream.
const RUNNING: u64 = 1;
/// One stream whose response has begun.
const RESPONDED: u64 = 1 << 20;
/// A limit of one stream.
const LIMIT: u64 = 1 << 40;
/// Attempts wait.
const WAITING: u64 = 1 << 60;
/// No new streams begin.
const CLOSED: u64 = 1 << 61;
/// No stream is passed on to the transport above the limit.
const STRICT: u64 = 1 << 62;
/// A call was complete.
const COMPLETED: u64 = 1 << 63;
