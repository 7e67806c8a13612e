//! The counts of calls, which all threads add to at once (LR9.2).

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use super::{
    destination::{Destination, Propagation},
    metrics::{MetricSums, OrcaLoadReport},
    outcome::Outcome,
};

/// The counts of the calls to one locality, or to one endpoint, as long as they are reported under one key.
///
/// They only grow, but for calls that are [withdrawn](ReportedCall::withdraw). A report is the difference from what the last written report has covered, so a report that was lost needs not be
/// added back (LR6.7): the next one covers its calls. The number of calls in progress is the difference of the counts, so that
/// LR5.1 holds for each report by itself.
///
/// Each thread counts in a shard, in cache lines that only few others write to. Shards are made at their first use.
pub(super) struct Counters {
    /// The server and the key that the calls are reported for. It never changes: a handle whose cluster moves gets other
    /// counters.
    destination: Arc<Destination>,
    /// Shards by the number of a thread, modulo their count.
    /// A shard is unset until a thread of it begins a call, and stays as long as the counters.
    shards: Box<[OnceLock<Arc<Shard>>]>,
    /// The metrics of backends that are summed; `None` if the cluster reports none.
    metrics: Option<Arc<Propagation>>,
    /// Calls that written reports have covered: issued, succeeded, failed. Written with the lock of
    /// [`Loads`](super::loads::Loads) held.
    reported: [AtomicU64; 3],
    /// Calls that the report in progress covers, with those before it; equal to `reported` if there is none.
    taken: [AtomicU64; 3],
    /// Whether a handle counts its new calls here.
    is_current: AtomicBool,
}

/// The calls of some threads.
// A cache line of its own: with a shared one, threads on different cores would slow each other down at each call.
#[repr(align(64))]
struct Shard {
    /// Calls that began here. The other counts of a call are in the same shard, also if it ends on another thread.
    issued: AtomicU64,
    /// Calls that have ended, as have those of `failed`. Added with release, after the begin of the same call.
    succeeded: AtomicU64,
    failed: AtomicU64,
    /// Calls that were issued and then turned out not to have been sent.
    withdrawn: AtomicU64,
    /// Whether there may be sums of metrics, so that reports do not lock empty ones.
    has_metrics: AtomicBool,
    /// Sums of the metrics of the calls; `None` if the cluster reports none.
    sums: Option<Box<ShardSums>>,
}

/// The sums of metrics of a shard, with the rules for adding to them.
struct ShardSums {
    /// Which metrics are summed, and the limit of names.
    propagation: Arc<Propagation>,
    sums: Mutex<MetricSums>,
}

/// Counts of calls, of a report or since the last written one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Calls {
    /// Calls that began.
    pub(super) issued: u64,
    /// Calls that ended without an error.
    pub(super) succeeded: u64,
    /// Calls that ended with an error, or were dropped.
    pub(super) failed: u64,
    /// Calls without an end so far. Not a difference of two reports, but the present number.
    pub(super) in_progress: u64,
}

/// A call in progress, of [`LocalityReporter::call_started`](super::LocalityReporter::call_started). It ends with
/// [`finish`](Self::finish); if it is dropped before, as a cancelled call is, it has failed.
///
/// It may outlive the reporter and the client. It is counted for the cluster, locality and server with which it began.
#[must_use = "a call that is dropped counts as failed"]
pub struct ReportedCall {
    /// The shard that the call began in; `None` if it is not counted, or has ended.
    shard: Option<Arc<Shard>>,
}

/// A counter of the dropped calls of a category. It needs no shards, since drops are rare.
#[derive(Debug)]
pub(super) struct DropCounter {
    destination: Arc<Destination>,
    /// All drops so far.
    count: AtomicU64,
    /// Drops that written reports have covered.
    reported: AtomicU64,
    /// Drops that the report in progress covers, with those before it.
    taken: AtomicU64,
    /// Whether a handle counts its new drops here.
    is_current: AtomicBool,
}

impl Counters {
    pub(super) fn new(
        destination: Arc<Destination>,
        shards: usize,
        metrics: Option<Arc<Propagation>>,
    ) -> Self {
        Self {
            destination,
            shards: (0..shards.max(1)).map(|_| OnceLock::new()).collect(),
            metrics,
            reported: Default::default(),
            taken: Default::default(),
            is_current: AtomicBool::new(false),
        }
    }

    /// Counts the begin of a call, without a lock.
    #[inline]
    pub(super) fn call_started(&self) -> ReportedCall {
        let shard = self.shards[shard_of_thread() % self.shards.len()].get_or_init(|| self.new_shard());
        // Relaxed: a report that misses the call covers it the next time, and whoever sees its end sees its begin, too (`count_end`).
        shard.issued.fetch_add(1, Ordering::Relaxed);
        // The call owns the shard and not the counters: it may outlive the client (LR9.4), and `is_live` counts the owners of counters.
        ReportedCall { shard: Some(shard.clone()) }
    }

    /// Creates the shard of a thread at its first call, since most endpoints are called by few threads.
    #[cold]
    fn new_shard(&self) -> Arc<Shard> {
        let sums = self.metrics.as_ref().map(|propagation| {
            Box::new(ShardSums { propagation: propagation.clone(), sums: Mutex::default() })
        });
        Arc::new(Shard {
            issued: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            withdrawn: AtomicU64::new(0),
            has_metrics: AtomicBool::new(false),
            sums,
        })
    }

    /// Whether calls are counted for this destination and with these metrics.
    pub(super) fn is_for(&self, destination: &Destination, metrics: Option<&Arc<Propagation>>) -> bool {
        *self.destination == *destination && self.metrics.as_ref() == metrics
    }

    /// All calls so far.
    /// Without a lock: shards are read one by one while calls begin and end, so the sum need not be that of any single moment.
    fn totals(&self) -> [u64; 3] {
        let mut totals = [0; 3];
        self.shards().for_each(|shard| shard.add_to(&mut totals));
        totals
    }

    fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().filter_map(OnceLock::get).map(|shard| &**shard)
    }

    /// What no written report has covered.
    pub(super) fn unreported(&self) -> Calls {
        self.since_reported(self.totals())
    }

    /// Whether there is something that no written report has covered, or a call in progress.
    pub(super) fn has_unreported(&self) -> bool {
        let mut has_metrics = false;
        self.visit_metrics(|_, sums| has_metrics |= !sums.is_zero());
        has_metrics || !self.unreported().is_zero()
    }

    /// The limit of the names of metrics, if metrics are reported.
    pub(super) fn max_metric_names(&self) -> Option<usize> {
        self.metrics.as_ref().map(|propagation| propagation.max_names)
    }

    /// What no written report has covered, for a report. [`on_written`](Self::on_written) confirms it. The sums of metrics are moved.
    /// The sums of a report that was lost are in `metrics` still, and the new ones are added to them.
    pub(super) fn take(&self, metrics: &mut Option<Box<MetricSums>>) -> Calls {
        let mut totals = [0; 3];
        for shard in self.shards() {
            shard.add_to(&mut totals);
            // After the calls, whose metrics are added before they end.
            shard.visit_metrics(|max_names, sums| {
                if *sums != MetricSums::default() {
                    metrics.get_or_insert_default().append(std::mem::take(sums), max_names);
                }
            });
        }
        store(&self.taken, totals);
        self.since_reported(totals)
    }

    /// The report of the last [`take`](Self::take) was written.
    pub(super) fn on_written(&self) {
        store(&self.reported, load(&self.taken));
    }

    /// The server does not want what was counted so far (LR6.2).
    pub(super) fn discard(&self) {
        self.take(&mut None);
        self.on_written();
    }

    /// Puts the counters into reports from now on, or again. The report in progress, if there is one, does not cover them.
    pub(super) fn on_listed(&self) {
        // What an earlier report took without being written must not be confirmed by a report in progress that does not cover it.
        store(&self.taken, load(&self.reported));
    }

    /// What the report in progress covers.
    /// No call is in progress in it: only counters without such calls are folded into numbers.
    pub(super) fn in_report(&self) -> Calls {
        let (taken, reported) = (load(&self.taken), load(&self.reported));
        let since = |index: usize| taken[index] - reported[index];
        Calls { issued: since(ISSUED), succeeded: since(SUCCEEDED), failed: since(FAILED), in_progress: 0 }
    }

    /// Returns the part of `totals` that no written report has covered.
    fn since_reported(&self, totals: [u64; 3]) -> Calls {
        let reported = load(&self.reported);
        // A report may have covered a call that was withdrawn after it: later ones are less by that.
        let since = |index: usize| totals[index].saturating_sub(reported[index]);
        Calls {
            issued: since(ISSUED),
            succeeded: since(SUCCEEDED),
            failed: since(FAILED),
            in_progress: totals[ISSUED] - totals[SUCCEEDED] - totals[FAILED],
        }
    }

    /// Copies the sums of metrics.
    pub(super) fn copy_metrics(&self, into: &mut MetricSums) {
        self.visit_metrics(|max_names, sums| into.append(sums.clone(), max_names));
    }

    /// Calls a function with the limit of names and the sums of each shard that may have any.
    fn visit_metrics(&self, mut visit: impl FnMut(usize, &mut MetricSums)) {
        self.shards().for_each(|shard| shard.visit_metrics(&mut visit));
    }
}

impl Calls {
    pub(super) fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the counts of calls that are reported together.
    pub(super) fn add(&mut self, other: Self) {
        self.issued += other.issued;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.in_progress += other.in_progress;
    }

    /// Takes away what a report has covered. It may have covered calls that were withdrawn since, so that fewer are left.
    pub(super) fn subtract(&mut self, other: Self) {
        self.issued = self.issued.saturating_sub(other.issued);
        self.succeeded = self.succeeded.saturating_sub(other.succeeded);
        self.failed = self.failed.saturating_sub(other.failed);
        self.in_progress = self.in_progress.saturating_sub(other.in_progress);
    }
}

impl ReportedCall {
    /// A call that is not counted.
    pub(super) fn uncounted() -> Self {
        Self { shard: None }
    }

    /// The call has ended. `metrics` is the load that the backend has reported with its response, if it has.
    #[inline]
    pub fn finish(mut self, outcome: Outcome, metrics: Option<&OrcaLoadReport>) {
        // LR8.6: a failed call reports its metrics as well, since the load of a backend does not depend on the outcome.
        if let Some(shard) = self.shard.take() {
            if let Some(metrics) = metrics {
                shard.add_metrics(metrics);
            }
            shard.count_end(outcome);
        }
    }

    /// The call was not sent after all: it is as if it had not been issued.
    #[cfg(any(test, feature = "balance", feature = "fuzzing"))]
    pub(crate) fn withdraw(mut self) {
        if let Some(shard) = self.shard.take() {
            // Not subtracted from `issued`: a report could then have covered more calls than there are.
            shard.withdrawn.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether the metrics of the call's backend are reported; otherwise none need be decoded.
    #[inline]
    pub fn wants_metrics(&self) -> bool {
        self.shard.as_ref().is_some_and(|shard| shard.sums.is_some())
    }
}

impl Drop for ReportedCall {
    #[inline]
    fn drop(&mut self) {
        // LR5.5: gRPC counts a cancelled call as failed.
        if let Some(shard) = self.shard.take() {
            shard.count_end(Outcome::Error);
        }
    }
}

impl fmt::Debug for ReportedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReportedCall").field("is_counted", &self.shard.is_some()).finish()
    }
}

impl Shard {
    /// Counts the end of a call.
    #[inline]
    fn count_end(&self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Success => &self.succeeded,
            Outcome::Error => &self.failed,
        };
        // Release, with Acquire in `add_to`: a thread that sees the end of a call also sees its begin.
        count.fetch_add(1, Ordering::Release);
    }

    /// Adds the counts of the shard.
    #[inline]
    fn add_to(&self, totals: &mut [u64; 3]) {
        // The ends first: a call that has ended was issued before, so that the difference is never negative. A call ends in the
        // shard in which it began.
        totals[SUCCEEDED] += self.succeeded.load(Ordering::Acquire);
        totals[FAILED] += self.failed.load(Ordering::Acquire);
        let withdrawn = self.withdrawn.load(Ordering::Acquire);
        totals[ISSUED] += self.issued.load(Ordering::Relaxed) - withdrawn;
    }

    #[inline]
    fn visit_metrics(&self, visit: impl FnOnce(usize, &mut MetricSums)) {
        if self.has_metrics.load(Ordering::Acquire)
            && let Some(own) = &self.sums
        {
            visit(own.propagation.max_names, &mut own.sums.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Adds the metrics of a call that is about to end.
    fn add_metrics(&self, report: &OrcaLoadReport) {
        if let Some(own) = &self.sums {
            own.sums.lock().unwrap_or_else(PoisonError::into_inner).add(report, &own.propagation);
            self.has_metrics.store(true, Ordering::Release);
        }
    }
}

impl DropCounter {
    pub(super) fn new(destination: Arc<Destination>) -> Self {
        Self {
            destination,
            count: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            is_current: AtomicBool::new(false),
        }
    }

    pub(super) fn is_for(&self, destination: &Destination) -> bool {
        *self.destination == *destination
    }

    #[inline]
    pub(super) fn count(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the drops that no written report has covered.
    pub(super) fn unreported(&self) -> u64 {
        self.count.load(Ordering::Relaxed) - self.reported.load(Ordering::Relaxed)
    }

    /// What the report in progress covers.
    pub(super) fn in_report(&self) -> u64 {
        self.taken.load(Ordering::Relaxed) - self.reported.load(Ordering::Relaxed)
    }

    /// Returns the drops that no written report has covered, for a report.
    pub(super) fn take(&self) -> u64 {
        let count = self.count.load(Ordering::Relaxed);
        self.taken.store(count, Ordering::Relaxed);
        count - self.reported.load(Ordering::Relaxed)
    }

    /// Handles that the report of the last [`take`](Self::take) was written.
    pub(super) fn on_written(&self) {
        self.reported.store(self.taken.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Forgets the drops so far.
    pub(super) fn discard(&self) {
        self.take();
        self.on_written();
    }

    /// Puts the counter into reports from now on, or again; see [`Counters::on_listed`].
    pub(super) fn on_listed(&self) {
        self.taken.store(self.reported.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Counters that a handle counts with, in a lane of [`Lanes`](super::lanes::Lanes).
pub(super) trait Count: Send + Sync {
    /// Sets whether a handle counts with it.
    fn set_current(&self, is_current: bool);

    /// Whether a handle counts with it. Counters of another destination only wait for the end of their calls.
    fn is_current(&self) -> bool;
}

/// Whether a handle counts with it: its handle is there, and has not gone over to another destination.
// Besides the handle, only the list of a report owns the counter; running calls own a shard, and not the counter.
pub(super) fn is_live<C: Count>(counter: &Arc<C>) -> bool {
    counter.is_current() && Arc::strong_count(counter) > 1
}

impl Count for Counters {
    fn set_current(&self, is_current: bool) {
        self.is_current.store(is_current, Ordering::Relaxed);
    }

    fn is_current(&self) -> bool {
        self.is_current.load(Ordering::Relaxed)
    }
}

impl Count for DropCounter {
    fn set_current(&self, is_current: bool) {
        self.is_current.store(is_current, Ordering::Relaxed);
    }

    fn is_current(&self) -> bool {
        self.is_current.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").field("unreported", &self.unreported()).finish_non_exhaustive()
    }
}

/// The number of the current thread, by which threads spread over shards.
/// Threads are numbered by their first calls, so that the first ones, as many as there are shards, do not share any.
fn shard_of_thread() -> usize {
    // A thread that is ending has no number any more.
    THREAD.try_with(|number| *number).unwrap_or_default()
}

/// Reads counts that only the holder of the lock of all counters writes.
fn load(from: &[AtomicU64; 3]) -> [u64; 3] {
    from.each_ref().map(|one| one.load(Ordering::Relaxed))
}

/// Called with the lock of all counters held: nobody else writes.
fn store(into: &[AtomicU64; 3], values: [u64; 3]) {
    for (one, value) in into.iter().zip(values) {
        one.store(value, Ordering::Relaxed);
    }
}

/// The number of threads that have counted calls.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// Positions in the arrays of counts.
const ISSUED: usize = 0;
const SUCCEEDED: usize = 1;
const FAILED: usize = 2;
