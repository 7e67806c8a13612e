//! Counts of malformed values, which channels ignore.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// How many values of endpoints and requests a channel has ignored since it was built, as they were malformed. None of them fails a
/// call. See [`Channel::malformed`](super::Channel::malformed).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MalformedValues {
    /// Load reports of endpoints under a policy that reads them: the trailer `endpoint-load-metrics-bin`, or messages of the stream
    /// beside the calls (A51). A report without a rate or a utilization is well-formed.
    pub load_reports: u64,
    /// `grpc-retry-pushback-ms` that is no number, or one of several (A6). It forbids a retry. A negative number is well-formed.
    pub retry_pushback: u64,
    /// Headers of requests, `x-envoy-fault-…`, where the configuration lets them control faults (A33).
    pub fault_headers: u64,
    /// Cookies of sessions (A55).
    pub session_cookies: u64,
}

/// The counters of a channel, written by its calls.
#[derive(Debug, Default)]
pub(super) struct MalformedCounters {
    load_reports: AtomicU64,
    retry_pushback: AtomicU64,
    fault_headers: AtomicU64,
    session_cookies: AtomicU64,
}

impl MalformedCounters {
    /// Counts a malformed load report.
    pub(super) fn on_load_report(&self) {
        self.load_reports.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a malformed pushback.
    pub(super) fn on_retry_pushback(&self) {
        self.retry_pushback.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts malformed headers for faults.
    pub(super) fn on_fault_headers(&self, count: u64) {
        if count > 0 {
            self.fault_headers.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Counts malformed cookies.
    pub(super) fn on_session_cookies(&self, count: u64) {
        self.session_cookies.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the counts.
    pub(super) fn values(&self) -> MalformedValues {
        MalformedValues {
            load_reports: self.load_reports.load(Ordering::Relaxed),
            retry_pushback: self.retry_pushback.load(Ordering::Relaxed),
            fault_headers: self.fault_headers.load(Ordering::Relaxed),
            session_cookies: self.session_cookies.load(Ordering::Relaxed),
        }
    }
}
