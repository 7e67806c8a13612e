//! Fault injection (A33): which requests are delayed, and which fail without being sent.

use std::{
    cell::Cell,
    str::FromStr,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use crate::{
    error::Code,
    resolve::RequestHeaders,
    resource::{
        http_filter::{AbortKind, DelayKind, Fault, FaultAbort, FaultDelay},
        matcher::Fraction,
    },
};

/// A fault in progress, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct ActiveFaults(AtomicU32);

/// A fault that runs, until it is dropped.
#[derive(Debug)]
pub(crate) struct ActiveFault<'a>(&'a ActiveFaults);

/// What a filter injects into a call: first the delay, then the failure (CH5.6).
#[derive(Debug)]
pub(crate) struct Injected<'a> {
    /// The time to wait before the request is sent or fails; never zero.
    pub(crate) delay: Option<Duration>,
    /// The status of the call. OK is a response without messages.
    pub(crate) abort: Option<Code>,
    /// The count of this fault: one for delay and failure, so that the failure follows the delay whatever the limit is by then
    /// (CH5.11). To be dropped when the fault is over, not with the end of the call.
    pub(crate) active: ActiveFault<'a>,
}

/// The random numbers of a filter for a call: independent of each other, and uniformly distributed below 1,000,000.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultDraws {
    pub(crate) delay: u32,
    pub(crate) abort: u32,
}

/// The headers of a request that control faults, where the configuration lets them (CH5.7).
pub(crate) struct Controls<'a> {
    /// The headers of the request.
    headers: &'a dyn RequestHeaders,
    /// The number of malformed headers so far.
    malformed: Cell<u64>,
}

/// What a filter injects into a call with these headers; `None` if nothing, also at the limit of running faults.
pub(crate) fn inject<'a>(
    fault: &Fault,
    headers: &Controls<'_>,
    draws: FaultDraws,
    active: &'a ActiveFaults,
) -> Option<Injected<'a>> {
    let delay = fault.delay.as_ref().and_then(|delay| drawn_delay(delay, headers, draws.delay));
    let abort = fault.abort.as_ref().and_then(|abort| drawn_abort(abort, headers, draws.abort));
    if delay.is_none() && abort.is_none() {
        return None;
    }
    Some(Injected { delay, abort, active: active.begin(fault.max_active_faults)? })
}

/// Whether there are requests that a filter injects something into.
pub(super) fn is_ever_injected(fault: &Fault) -> bool {
    let delay = fault.delay.as_ref().map(|delay| delay.percentage);
    let abort = fault.abort.as_ref().map(|abort| abort.percentage);
    let has_share = [delay, abort].into_iter().flatten().any(|fraction| fraction.numerator > 0);
    has_share && fault.max_active_faults != Some(0)
}

impl<'a> Controls<'a> {
    pub(crate) fn new(headers: &'a dyn RequestHeaders) -> Self {
        Self { headers, malformed: Cell::new(0) }
    }

    /// How many headers were looked at and ignored, as they are malformed.
    pub(crate) fn malformed(&self) -> u64 {
        self.malformed.get()
    }

    /// The last value of a header; `None` if it is no such number.
    fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.number_in(name, |_| true)
    }

    /// Returns the last value of a header; `None` if it is no number that satisfies `is_valid`.
    fn number_in<T: FromStr>(&self, name: &str, is_valid: impl Fn(&T) -> bool) -> Option<T> {
        let mut last = None;
        self.headers.for_each_value(name, &mut |value| last = Some(value));
        let number = std::str::from_utf8(last?).ok().and_then(|text| text.parse().ok()).filter(is_valid);
        // A missing header has returned above: what is counted here is present and malformed.
        if number.is_none() {
            self.malformed.set(self.malformed.get() + 1);
        }
        number
    }
}

impl ActiveFaults {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    #[cfg(test)]
    pub(crate) fn running(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts a fault, unless as many run as may. No two callers can take the last place.
    fn begin(&self, max: Option<u32>) -> Option<ActiveFault<'_>> {
        let more = |running| if running < max.unwrap_or(u32::MAX) { Some(running + 1) } else { None };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(ActiveFault(self))
    }
}

impl Drop for ActiveFault<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the delay of a request, if the draw is within its share.
fn drawn_delay(delay: &FaultDelay, headers: &Controls<'_>, draw: u32) -> Option<Duration> {
    let (time, share) = match delay.kind {
        DelayKind::FixedDelay(time) => (time, delay.percentage),
        DelayKind::HeaderDelay => {
            let time = Duration::from_millis(headers.number(DELAY)?);
            (time, lowered(delay.percentage, headers, DELAY_PERCENTAGE))
        }
    };
    // A delay of 0 is no fault, and is not counted as one (CH5.9).
    (share.matches(draw) && !time.is_zero()).then_some(time)
}

/// Returns the status that a request fails with, if the draw is within its share.
fn drawn_abort(abort: &FaultAbort, headers: &Controls<'_>, draw: u32) -> Option<Code> {
    let (code, share) = match abort.kind {
        AbortKind::HttpStatus(status) => (Code::from_http_status(status), abort.percentage),
        AbortKind::GrpcStatus(code) => (code, abort.percentage),
        AbortKind::HeaderAbort => {
            (requested_abort(headers)?, lowered(abort.percentage, headers, ABORT_PERCENTAGE))
        }
    };
    share.matches(draw).then_some(code)
}

/// The failure that a request asks for: an HTTP status before one of gRPC (CH5.7).
fn requested_abort(headers: &Controls<'_>) -> Option<Code> {
    let http = headers.number_in(ABORT, |status: &u32| (200..600).contains(status));
    if let Some(status) = http {
        return Some(Code::from_http_status(status));
    }
    // A number outside of the codes of gRPC is UNKNOWN, as for a status from a server.
    let grpc: u64 = headers.number(ABORT_GRPC)?;
    Some(i32::try_from(grpc).map_or(Code::Unknown, Code::from_i32))
}

/// The share of the requests that a header may lower, but not raise (A33-3).
fn lowered(share: Fraction, headers: &Controls<'_>, name: &str) -> Fraction {
    let Some(requested) = headers.number::<i64>(name) else { return share };
    // A negative number lowers the share to 0.
    let numerator = i64::from(share.numerator).min(requested);
    Fraction::new(u32::try_from(numerator).unwrap_or_default(), share.denominator)
}

/// The delay in milliseconds.
const DELAY: &str = "x-envoy-fault-delay-request";
const DELAY_PERCENTAGE: &str = "x-envoy-fault-delay-request-percentage";
const ABORT: &str = "x-envoy-fault-abort-request";
const ABORT_GRPC: &str = "x-envoy-fault-abort-grpc-request";
const ABORT_PERCENTAGE: &str = "x-envoy-fault-abort-request-percentage";

#[cfg(test)]
mod tests;
