//! What a fault does to one request (A33).

use std::{
    str,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use super::{AbortKind, DelayKind, Fault, FaultAbort, FaultDelay};
use crate::{error::Code, resolve::RequestHeaders, resource::matcher::Fraction};

/// What a [`Fault`] does to one request: first the delay, then the failure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InjectedFault {
    /// How long the request waits before it is sent, more than 0.
    pub delay: Option<Duration>,
    /// What it fails with instead of being sent. `OK` is as if the server had answered so at once, without a message (A33-2).
    pub abort: Option<Code>,
}

/// How many requests are under a fault: one for the whole process, in a `static` (A33-4).
#[derive(Debug, Default)]
pub struct ActiveFaults(AtomicU32);

/// A request that is under a fault, until it is dropped.
#[derive(Debug)]
#[must_use = "the request counts as over when this is dropped"]
pub struct ActiveFault<'a>(&'a AtomicU32);

impl Fault {
    /// What the fault does to a request with these headers.
    ///
    /// Each draw is below 1,000,000 and uniform; they are independent of each other (A33-4).
    ///
    /// ```
    /// use xdskit::resource::http_filter::{ActiveFaults, Fault, InjectedFault};
    ///
    /// static ACTIVE: ActiveFaults = ActiveFaults::new();
    ///
    /// fn of_request(fault: &Fault, headers: &[(&str, &str)], draws: [u32; 2]) -> InjectedFault {
    ///     match ACTIVE.begin(fault) {
    ///         Some(_until_the_end_of_the_delay) => fault.inject(&headers, draws[0], draws[1]),
    ///         None => InjectedFault::default(),
    ///     }
    /// }
    /// ```
    pub fn inject(&self, headers: &dyn RequestHeaders, delay_draw: u32, abort_draw: u32) -> InjectedFault {
        InjectedFault {
            delay: self.delay.as_ref().and_then(|delay| delay.inject(headers, delay_draw)),
            abort: self.abort.as_ref().and_then(|abort| abort.inject(headers, abort_draw)),
        }
    }
}

impl FaultDelay {
    fn inject(&self, headers: &dyn RequestHeaders, draw: u32) -> Option<Duration> {
        let (delay, part) = match self.kind {
            DelayKind::FixedDelay(delay) => (delay, self.percentage),
            DelayKind::HeaderDelay => (
                Duration::from_millis(number(headers, DELAY)?),
                lowered(self.percentage, number(headers, DELAY_PERCENTAGE)),
            ),
        };
        (!delay.is_zero() && part.matches(draw)).then_some(delay)
    }
}

impl FaultAbort {
    fn inject(&self, headers: &dyn RequestHeaders, draw: u32) -> Option<Code> {
        let (code, part) = match self.kind {
            AbortKind::HttpStatus(status) => (of_http(status.into())?, self.percentage),
            AbortKind::GrpcStatus(code) => (code, self.percentage),
            AbortKind::HeaderAbort => {
                (of_headers(headers)?, lowered(self.percentage, number(headers, ABORT_PERCENTAGE)))
            }
        };
        part.matches(draw).then_some(code)
    }
}

impl ActiveFaults {
    /// Without any request.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Counts a request; `None` if there are as many already as the fault allows, and it does nothing then.
    pub fn begin(&self, fault: &Fault) -> Option<ActiveFault<'_>> {
        let most = fault.max_active_faults.unwrap_or(u32::MAX);
        let one_more = |active: u32| if active < most { active.checked_add(1) } else { None };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(ActiveFault(&self.0))
    }
}

impl Drop for ActiveFault<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The HTTP status wins over the one of gRPC, even if it is of no use.
fn of_headers(headers: &dyn RequestHeaders) -> Option<Code> {
    if last(headers, ABORT_HTTP).is_some() {
        return of_http(number(headers, ABORT_HTTP)?);
    }
    let status = number(headers, ABORT_GRPC)?;
    Some(i32::try_from(status).map_or(Code::Unknown, Code::from_i32))
}

/// The code that gRPC takes an HTTP status for (A33-2); `None` for what is none.
fn of_http(status: u64) -> Option<Code> {
    match status {
        400 => Some(Code::Internal),
        401 => Some(Code::Unauthenticated),
        403 => Some(Code::PermissionDenied),
        404 => Some(Code::Unimplemented),
        429 | 502..=504 => Some(Code::Unavailable),
        200..600 => Some(Code::Unknown),
        _ => None,
    }
}

/// A header only ever lowers the numerator (A33-3).
fn lowered(mut part: Fraction, numerator: Option<u64>) -> Fraction {
    let lower = numerator.and_then(|numerator| u32::try_from(numerator).ok());
    part.numerator = lower.map_or(part.numerator, |lower| lower.min(part.numerator));
    part
}

/// The number that a header's last value is; what is none counts as absent (A33-3).
fn number(headers: &dyn RequestHeaders, name: &str) -> Option<u64> {
    str::from_utf8(last(headers, name)?).ok()?.parse().ok()
}

fn last<'a>(headers: &'a dyn RequestHeaders, name: &str) -> Option<&'a [u8]> {
    let mut last = None;
    headers.for_each_value(name, &mut |value| last = Some(value));
    last
}

const DELAY: &str = "x-envoy-fault-delay-request";
const DELAY_PERCENTAGE: &str = "x-envoy-fault-delay-request-percentage";
const ABORT_HTTP: &str = "x-envoy-fault-abort-request";
const ABORT_GRPC: &str = "x-envoy-fault-abort-grpc-request";
const ABORT_PERCENTAGE: &str = "x-envoy-fault-abort-request-percentage";
