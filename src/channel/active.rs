//! The calls of a channel, and the time since the last one (CH1.28 to CH1.31).

use std::{
    future::{Future, pending},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::malformed::MalformedCounters;

/// Counts the calls in progress, from the begin of the call to the end of its response.
#[derive(Debug)]
pub(super) struct ActiveCalls {
    /// The number of calls, with the flag [`IDLE`] in the highest bit: one atomic, so that a call cannot begin unseen while the
    /// channel becomes idle.
    calls: AtomicUsize,
    /// The origin of `last_end`.
    start: Instant,
    /// When the last call ended, in milliseconds since the start.
    last_end: AtomicU64,
    /// The calls that have begun so far.
    begun: AtomicU64,
    /// The calls that have ended with OK so far.
    succeeded: AtomicU64,
    /// Whether the stage is past [`Running`](Stage::Running), for calls that end: the stage itself has a lock.
    is_shut_down: AtomicBool,
    /// The stage, for calls that wait for a later one.
    stage: watch::Sender<Stage>,
    /// Notified when the last call ends after the begin of the shutdown.
    ended: Notify,
    /// Counters of malformed values, which each call has to reach.
    malformed: Arc<MalformedCounters>,
}

/// The stages of the end of a channel; it never returns to an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Calls begin and run.
    Running,
    /// No call begins any more.
    ShutDown,
    /// The grace is over.
    Cancelled,
}

/// A call in progress. It is counted until it is dropped.
#[derive(Debug)]
pub(super) struct ActiveCall {
    all: Arc<ActiveCalls>,
    /// Whether its status is OK.
    is_ok: bool,
}

/// The calls of a channel since it was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallCounts {
    /// Calls in progress.
    pub(super) running: usize,
    /// Calls that have begun.
    pub(super) begun: u64,
    /// Calls that have ended with OK.
    pub(super) succeeded: u64,
    /// Calls that have ended without.
    pub(super) failed: u64,
}

impl ActiveCalls {
    /// Creates the counters of an idle channel without calls.
    pub(super) fn new() -> Arc<Self> {
        let (calls, last_end) = (AtomicUsize::new(IDLE), AtomicU64::new(0));
        Arc::new(Self {
            calls,
            start: Instant::now(),
            last_end,
            begun: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            is_shut_down: AtomicBool::new(false),
            stage: watch::Sender::new(Stage::Running),
            ended: Notify::new(),
            malformed: Arc::default(),
        })
    }

    /// Returns the counters of malformed values that calls and endpoints have sent.
    pub(super) fn malformed(&self) -> &Arc<MalformedCounters> {
        &self.malformed
    }

    /// Counts a call. Also returns whether the channel was idle, so that the caller has to wake it.
    pub(super) fn begin(self: &Arc<Self>) -> (ActiveCall, bool) {
        let before = self.calls.fetch_add(1, Ordering::AcqRel);
        self.begun.fetch_add(1, Ordering::Relaxed);
        (ActiveCall { all: self.clone(), is_ok: false }, before & IDLE != 0)
    }

    /// Returns the counts of calls. They are read one after the other, while calls begin and end.
    pub(super) fn counts(&self) -> CallCounts {
        let succeeded = self.succeeded.load(Ordering::Relaxed);
        let running = self.calls.load(Ordering::Relaxed) & !IDLE;
        let begun = self.begun.load(Ordering::Relaxed);
        let failed = begun.saturating_sub(succeeded).saturating_sub(running as u64);
        CallCounts { running, begun, succeeded, failed }
    }

    /// Streams that end from now on were cancelled by the shutdown.
    pub(super) fn shut_down(&self) {
        self.is_shut_down.store(true, Ordering::SeqCst);
        self.stage.send_replace(Stage::ShutDown);
    }

    /// Ends the calls that wait for [`cancelled`](Self::cancelled).
    pub(super) fn cancel(&self) {
        self.stage.send_replace(Stage::Cancelled);
    }

    /// Waits for the begin of the shutdown.
    pub(super) fn shut_down_begins(&self) -> impl Future<Output = ()> + Send + use<> {
        self.stage(Stage::ShutDown)
    }

    /// Waits for the end of the grace of the shutdown.
    pub(super) fn cancelled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.stage(Stage::Cancelled)
    }

    /// Waits until no call is left, after [`shut_down`](Self::shut_down).
    pub(super) async fn ended(&self) {
        loop {
            let ended = self.ended.notified();
            // Subscribed before the count is read, so that an end in between is not missed.
            if self.calls.load(Ordering::SeqCst) & !IDLE == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Waits until the channel has reached a stage.
    fn stage(&self, stage: Stage) -> impl Future<Output = ()> + Send + use<> {
        let mut stages = self.stage.subscribe();
        async move {
            // An error means that the channel is gone, whose calls go on.
            if stages.wait_for(|now| *now >= stage).await.is_err() {
                pending::<()>().await;
            }
        }
    }

    /// Ends the idle state.
    pub(super) fn wake(&self) {
        // Before the flag: once that is gone, the idle timeout counts from here.
        self.last_end.store(self.elapsed(), Ordering::Relaxed);
        self.calls.fetch_and(!IDLE, Ordering::AcqRel);
    }

    /// Makes the channel idle if there has been no call for the timeout.
    ///
    /// # Errors
    /// The time to try again, while there is a call or was one recently.
    pub(super) fn try_idle(&self, timeout: Duration) -> Result<(), Instant> {
        let last_end = self.start + Duration::from_millis(self.last_end.load(Ordering::Relaxed));
        let due = last_end + timeout;
        let now = Instant::now();
        if due > now {
            return Err(due);
        }
        // A call that begins between the read of the time and this exchange makes it fail: the flag is set only while the count
        // is 0.
        let became = self.calls.compare_exchange(0, IDLE, Ordering::AcqRel, Ordering::Acquire);
        became.map(|_| ()).map_err(|_| now + timeout)
    }

    /// Returns the milliseconds since the start.
    fn elapsed(&self) -> u64 {
        self.start.elapsed().as_millis().try_into().unwrap_or(u64::MAX)
    }
}

impl ActiveCall {
    /// The counters of malformed values of the channel.
    pub(super) fn malformed(&self) -> &MalformedCounters {
        &self.all.malformed
    }

    /// The status of the call is OK.
    pub(super) fn on_ok(&mut self) {
        self.is_ok = true;
    }

    /// Whether the shutdown has begun, without a lock.
    pub(super) fn is_shut_down(&self) -> bool {
        self.all.is_shut_down.load(Ordering::Acquire)
    }
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        if self.is_ok {
            self.all.succeeded.fetch_add(1, Ordering::Relaxed);
        }
        // The time matters when no call is left. Before it is noted, the channel may take the call before for the last one, and
        // become idle early, from which the next call wakes it.
        if self.all.calls.fetch_sub(1, Ordering::SeqCst) & !IDLE == 1 {
            self.all.last_end.store(self.all.elapsed(), Ordering::Relaxed);
            if self.all.is_shut_down.load(Ordering::SeqCst) {
                self.all.ended.notify_waiters();
            }
        }
    }
}

/// Set in the count of calls while the channel is idle.
const IDLE: usize = 1 << (usize::BITS - 1);
