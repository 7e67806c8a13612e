//! The audit logger to the standard output (A59, SV10.4, SV10.5).

use std::{
    collections::VecDeque,
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use serde::Serialize;

use crate::rbac::{AuditEvent, AuditLogger};

/// Writes decisions to the standard output, as lines of JSON.
///
/// ```json
/// {"grpc_audit_log":{"timestamp":"2026-11-28T20:15:30.25Z","rpc_method":"/shop.Cart/Get","principal":"spiffe://shop.example/web","policy_name":"rbac","matched_rule":"read","authorized":true}}
/// ```
///
/// A thread of its own writes the lines, which starts with the first event. At most 8,192 lines wait for it: further ones are dropped,
/// counted, and reported by `tracing`, so that an output that nobody reads delays no request. Lines that wait at the end of the process
/// are lost, unless [`flush`](Self::flush) is called before. A process should have one logger, whose clones share the thread.
#[derive(Clone)]
pub struct StdoutAuditLogger(Arc<Handle>);

/// Ends the thread with the last clone, when it has written what waits.
struct Handle(Arc<Queue>);

/// The lines between requests and the thread.
struct Queue {
    state: Mutex<State>,
    /// Notified when a line is added, and at the end.
    added: Condvar,
    /// Notified when all lines are written.
    written: Condvar,
}

#[derive(Default)]
struct State {
    lines: VecDeque<String>,
    /// Whether the thread has taken lines that it has not written yet.
    is_writing: bool,
    /// What the thread writes to; taken by the thread.
    output: Option<Output>,
    is_closed: bool,
    /// Events that were not written.
    dropped: u64,
    /// The events among the dropped ones that were reported.
    reported: u64,
}

type Output = Box<dyn io::Write + Send>;

/// The line of an event.
#[derive(Serialize)]
struct Line<'a> {
    grpc_audit_log: Event<'a>,
}

#[derive(Serialize)]
struct Event<'a> {
    timestamp: String,
    rpc_method: &'a str,
    principal: &'a str,
    policy_name: &'a str,
    matched_rule: &'a str,
    authorized: bool,
}

impl StdoutAuditLogger {
    /// A logger to the standard output.
    pub fn new() -> Self {
        Self::to(Box::new(io::stdout()))
    }

    /// A logger to any output.
    fn to(output: Output) -> Self {
        let state = State { output: Some(output), ..State::default() };
        let queue = Queue { state: Mutex::new(state), added: Condvar::new(), written: Condvar::new() };
        Self(Arc::new(Handle(Arc::new(queue))))
    }

    /// Waits until all lines are written, at most for `limit`; returns whether they are.
    pub fn flush(&self, limit: Duration) -> bool {
        let queue = &*self.0.0;
        let waits = |state: &mut State| state.is_writing || !state.lines.is_empty();
        let waited = queue.written.wait_timeout_while(queue.lock(), limit, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !waits(&mut state)
    }

    /// The number of events that were not written: more than 8,192 waited, or the output failed.
    pub fn dropped(&self) -> u64 {
        self.0.0.lock().dropped
    }
}

impl Default for StdoutAuditLogger {
    fn default() -> Self {
        Self::new()
    }
}

impl AuditLogger for StdoutAuditLogger {
    fn log(&self, event: &AuditEvent<'_>) {
        let line = Line {
            grpc_audit_log: Event {
                timestamp: rfc_3339(event.time),
                rpc_method: event.rpc_method,
                principal: event.principal,
                policy_name: event.policy_name,
                matched_rule: event.matched_rule,
                authorized: event.authorized,
            },
        };
        let Ok(mut line) = serde_json::to_string(&line) else {
            self.0.0.drop_events(1, "an event could not be encoded");
            return;
        };
        line.push('\n');
        self.0.0.push(line);
    }
}

impl fmt::Debug for StdoutAuditLogger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdoutAuditLogger").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.added.notify_all();
    }
}

impl Queue {
    /// The state. It is whole even after a panic, since no code of others runs under the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(self: &Arc<Self>, line: String) {
        let mut state = self.lock();
        if state.lines.len() >= MAX_LINES {
            drop(state);
            self.drop_events(1, "more lines wait than may");
            return;
        }
        state.lines.push_back(line);
        let output = state.output.take();
        drop(state);
        self.added.notify_one();
        if let Some(output) = output {
            self.start(output);
        }
    }

    /// Starts the thread. Lines wait until the process ends if there is none, and further ones are dropped.
    fn start(self: &Arc<Self>, output: Output) {
        let queue = self.clone();
        let started =
            thread::Builder::new().name("xdskit-audit".to_owned()).spawn(move || queue.write_to(output));
        if let Err(error) = started {
            tracing::error!(%error, "the thread of the audit log cannot start");
        }
    }

    /// Counts events that are not written. The first of them is reported at once, since the output may never recover.
    fn drop_events(&self, count: u64, reason: &'static str) {
        let mut state = self.lock();
        let is_first = state.dropped == state.reported;
        state.dropped += count;
        if is_first {
            state.reported = state.dropped;
            let total = state.dropped;
            drop(state);
            tracing::warn!(total, reason, "audit events are dropped");
        }
    }

    /// The thread: writes lines until the logger is dropped and none waits.
    fn write_to(&self, mut output: Output) {
        while let Some(lines) = self.take() {
            let count = lines.len() as u64;
            let text: String = lines.into_iter().collect();
            // One call for whole lines, so that those of others are not in between.
            let write = || output.write_all(text.as_bytes()).and_then(|()| output.flush());
            match catch_unwind(AssertUnwindSafe(write)) {
                Ok(Ok(())) => self.report_dropped(),
                Ok(Err(_)) => self.drop_events(count, "the output failed"),
                Err(_) => self.drop_events(count, "the output panicked"),
            }
            self.lock().is_writing = false;
            self.written.notify_all();
        }
    }

    /// Takes lines to write, when there are some; `None` at the end.
    fn take(&self) -> Option<Vec<String>> {
        let waits = |state: &mut State| state.lines.is_empty() && !state.is_closed;
        let mut state = self.added.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
        let count = state.lines.len().min(BATCH);
        state.is_writing = count > 0;
        (count > 0).then(|| state.lines.drain(..count).collect())
    }

    /// Reports the events that were dropped since the last report, when lines are written again.
    fn report_dropped(&self) {
        let mut state = self.lock();
        let (total, is_new) = (state.dropped, state.dropped > state.reported);
        state.reported = total;
        drop(state);
        if is_new {
            tracing::warn!(total, "audit events were dropped");
        }
    }
}

/// A time since 1970 in the form of RFC 3339, in UTC, with as many digits of the second as it has.
fn rfc_3339(since_1970: Duration) -> String {
    let (seconds, nanos) = (since_1970.as_secs(), since_1970.subsec_nanos());
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from a 1st of March, so that the leap day is the last of its year.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    let fraction = format!(".{nanos:09}");
    let fraction = if nanos == 0 { "" } else { fraction.trim_end_matches('0') };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// The most lines that wait.
const MAX_LINES: usize = 8_192;
/// The most lines that are written by one call.
const BATCH: usize = 256;

#[cfg(test)]
mod tests;
