//! The calls of a channel, and the time since the last one (CH1.28 to CH1.31).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Counts the calls under way.
#[derive(Debug)]
pub(super) struct ActiveCalls {
    /// The number of calls, and [`IDLE`].
    calls: AtomicUsize,
    start: Instant,
    /// When the last call ended, in milliseconds since the start.
    last_end: AtomicU64,
    is_shut_down: AtomicBool,
}

/// A call under way.
#[derive(Debug)]
pub(super) struct ActiveCall {
    all: Arc<ActiveCalls>,
}

impl ActiveCalls {
    /// Without calls, and idle.
    pub(super) fn new() -> Arc<Self> {
        let (calls, last_end) = (AtomicUsize::new(IDLE), AtomicU64::new(0));
        Arc::new(Self { calls, start: Instant::now(), last_end, is_shut_down: AtomicBool::new(false) })
    }

    /// A call begins. Says whether the channel is idle, so that it has to be woken.
    pub(super) fn begin(self: &Arc<Self>) -> (ActiveCall, bool) {
        let before = self.calls.fetch_add(1, Ordering::AcqRel);
        (ActiveCall { all: self.clone() }, before & IDLE != 0)
    }

    /// Streams that end from now on were cancelled by the shutdown.
    pub(super) fn shut_down(&self) {
        self.is_shut_down.store(true, Ordering::Release);
    }

    /// The channel is idle no more.
    pub(super) fn wake(&self) {
        self.last_end.store(self.elapsed(), Ordering::Relaxed);
        self.calls.fetch_and(!IDLE, Ordering::AcqRel);
    }

    /// The channel becomes idle if there is no call, and none has been for this time. Otherwise, when to ask again.
    pub(super) fn try_idle(&self, timeout: Duration) -> Result<(), Instant> {
        let last_end = self.start + Duration::from_millis(self.last_end.load(Ordering::Relaxed));
        let due = last_end + timeout;
        let now = Instant::now();
        if due > now {
            return Err(due);
        }
        let became = self.calls.compare_exchange(0, IDLE, Ordering::AcqRel, Ordering::Acquire);
        became.map(|_| ()).map_err(|_| now + timeout)
    }

    fn elapsed(&self) -> u64 {
        self.start.elapsed().as_millis().try_into().unwrap_or(u64::MAX)
    }
}

impl ActiveCall {
    pub(super) fn is_shut_down(&self) -> bool {
        self.all.is_shut_down.load(Ordering::Acquire)
    }
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        // The time matters when no call is left. Before it is noted, the channel may take the call before for the last one, and
        // become idle early, from which the next call wakes it.
        if self.all.calls.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all.last_end.store(self.all.elapsed(), Ordering::Relaxed);
        }
    }
}

/// The channel is idle.
const IDLE: usize = 1 << (usize::BITS - 1);
