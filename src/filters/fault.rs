//! Fault injection (A33): which requests are delayed, and which fail without being sent.

use std::{
    cell::Cell,
    str::FromStr,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use super::chain::{Compiled, Compiling, FilterSite};
#[cfg(feature = "channel")]
use super::{Decision, FilterRequest, LocalReply, MalformedValue, StreamFilter, Visible};
use crate::{
    error::Code,
    resolve::RequestHeaders,
    resource::{
        http_filter::{AbortKind, DelayKind, EffectiveFilter, Fault, FaultAbort, FaultDelay},
        matcher::Fraction,
    },
};

/// Delays requests, and fails them, by chance or by their headers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FaultFilter(pub(super) Fault);

/// The number of faults that run.
#[derive(Debug)]
struct ActiveFaults(AtomicU32);

/// A fault that runs, until it is dropped.
#[derive(Debug)]
struct ActiveFault<'a>(&'a ActiveFaults);

/// What a filter injects into a stream: first the delay, then the failure (CH5.6).
#[derive(Debug)]
struct Injected<'a> {
    /// The time to wait before the request is sent or fails; never zero.
    delay: Option<Duration>,
    /// The status of the call. OK is a response without messages.
    abort: Option<Code>,
    /// The count of this fault: one for delay and failure, so that the failure follows the delay whatever the limit is by then
    /// (CH5.11). To be dropped when the fault is over, not with the end of the call.
    active: ActiveFault<'a>,
}

/// The random numbers of a filter for a call: independent of each other, and uniformly distributed below 1,000,000.
#[derive(Debug, Clone, Copy)]
struct FaultDraws {
    delay: u32,
    abort: u32,
}

/// The headers of a request that control faults, where the configuration lets them (CH5.7).
struct Controls<'a> {
    /// The headers of the request.
    headers: &'a dyn RequestHeaders,
    /// The number of malformed headers so far.
    malformed: Cell<u64>,
}

impl FaultFilter {
    /// Compiles a fault, unless there is no request that it could be injected into.
    pub(super) fn compile(
        effective: EffectiveFilter<'_>,
        _: &FilterSite<'_, '_>,
        _: &mut Compiling<'_>,
    ) -> Compiled<Self> {
        let EffectiveFilter::Fault(fault) = effective else { return Compiled::Unknown };
        // A fault that is never injected would still cost each stream its draws.
        match is_ever_injected(fault) {
            true => Compiled::Filter(Self(fault.clone())),
            false => Compiled::WithoutEffect,
        }
    }
}

#[cfg(feature = "channel")]
impl StreamFilter for FaultFilter {
    type State = ();

    /// Delays the stream, or fails it, or both in turn (CH5.6).
    fn on_request<'a>(&'a self, _: &'a mut Option<()>, request: &'a mut FilterRequest<'_>) -> Decision<'a> {
        let mut draw = || request.random.u32(..1_000_000);
        // Both in any case, so that the draw of the failure does not depend on the delay (CH5.6).
        let draws = FaultDraws { delay: draw(), abort: draw() };
        let headers = Visible(&*request.headers);
        let controls = Controls::new(&headers);
        let injected = inject(&self.0, &controls, draws, &FAULTS);
        request.callbacks.on_malformed(MalformedValue::FaultHeader, controls.malformed());
        let Some(Injected { delay, abort, active }) = injected else { return Decision::Continue };
        let end = move || abort.map_or(Ok(()), |code| Err(failure(code)));
        let Some(delay) = delay else {
            // The fault is over with this decision, and so is its count (CH5.10).
            return end().map_or_else(Decision::Reply, |()| Decision::Continue);
        };
        let delayed = request.callbacks.sleep(delay);
        Decision::wait("the delay of an injected fault is not over", async move {
            delayed.await;
            drop(active);
            end()
        })
    }
}

/// Returns the end of a stream by a fault. OK is a response without messages (A33-2).
#[cfg(feature = "channel")]
fn failure(code: Code) -> LocalReply {
    LocalReply::new(code, if code == Code::Ok { "" } else { "fault injected" })
}

/// Returns the number of faults that run in the process.
#[cfg(all(test, feature = "channel"))]
pub(crate) fn running_faults() -> u32 {
    FAULTS.running()
}

/// What a filter injects into a call with these headers; `None` if nothing, also at the limit of running faults.
fn inject<'a>(
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
fn is_ever_injected(fault: &Fault) -> bool {
    let delay = fault.delay.as_ref().map(|delay| delay.percentage);
    let abort = fault.abort.as_ref().map(|abort| abort.percentage);
    // Headers lower a share and never raise it, so a share of 0 stays 0 (CH5.7).
    let has_share = [delay, abort].into_iter().flatten().any(|fraction| fraction.numerator > 0);
    has_share && fault.max_active_faults != Some(0)
}

impl<'a> Controls<'a> {
    fn new(headers: &'a dyn RequestHeaders) -> Self {
        Self { headers, malformed: Cell::new(0) }
    }

    /// How many headers were looked at and ignored, as they are malformed.
    fn malformed(&self) -> u64 {
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
    const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    #[cfg(test)]
    fn running(&self) -> u32 {
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

/// The faults of all channels of the process (CH5.10).
static FAULTS: ActiveFaults = ActiveFaults::new();
/// The delay in milliseconds.
const DELAY: &str = "x-envoy-fault-delay-request";
/// The number that lowers the share of delayed requests, in the denominator of the configuration.
const DELAY_PERCENTAGE: &str = "x-envoy-fault-delay-request-percentage";
/// The HTTP status of the failure, from 200 to 599.
const ABORT: &str = "x-envoy-fault-abort-request";
/// The gRPC code of the failure.
const ABORT_GRPC: &str = "x-envoy-fault-abort-grpc-request";
/// The number that lowers the share of failed requests, in the denominator of the configuration.
const ABORT_PERCENTAGE: &str = "x-envoy-fault-abort-request-percentage";

#[cfg(test)]
mod tests;
