//! What faults do to requests: A33.

use std::time::Duration;

use super::*;
use crate::{
    error::Code,
    resource::matcher::{Denominator, Fraction},
};

const NONE: [(&str, &str); 0] = [];

fn percent(numerator: u32) -> Fraction {
    Fraction::new(numerator, Denominator::Hundred)
}

fn delay(kind: DelayKind, numerator: u32) -> Fault {
    let delay = FaultDelay { kind, percentage: percent(numerator) };
    Fault { delay: Some(delay), abort: None, max_active_faults: None }
}

fn abort(kind: AbortKind, numerator: u32) -> Fault {
    let abort = FaultAbort { kind, percentage: percent(numerator) };
    Fault { delay: None, abort: Some(abort), max_active_faults: None }
}

fn aborted(kind: AbortKind, headers: &[(&str, &str)]) -> Option<Code> {
    abort(kind, 100).inject(&headers, 0, 999_999).abort
}

fn delayed(numerator: u32, headers: &[(&str, &str)], draw: u32) -> Option<u128> {
    let fault = delay(DelayKind::HeaderDelay, numerator);
    fault.inject(&headers, draw, 0).delay.map(|delay| delay.as_millis())
}

#[test]
fn a33_4_delay_and_failure_are_drawn_apart() {
    let delay = delay(DelayKind::FixedDelay(Duration::from_secs(2)), 25);
    let fault = Fault { delay: delay.delay, ..abort(AbortKind::GrpcStatus(Code::Aborted), 50) };
    for (draws, delays, fails) in [
        ([0, 0], true, true),
        ([249_999, 499_999], true, true),
        ([250_000, 499_999], false, true),
        ([249_999, 500_000], true, false),
        ([999_999, 999_999], false, false),
    ] {
        let injected = fault.inject(&NONE, draws[0], draws[1]);
        let expected = InjectedFault {
            delay: delays.then_some(Duration::from_secs(2)),
            abort: fails.then_some(Code::Aborted),
        };
        assert_eq!(injected, expected, "{draws:?}");
    }
}

#[test]
fn a33_2_statuses_of_http_have_codes_of_grpc() {
    for (status, code) in [
        (200, Some(Code::Unknown)),
        (400, Some(Code::Internal)),
        (401, Some(Code::Unauthenticated)),
        (403, Some(Code::PermissionDenied)),
        (404, Some(Code::Unimplemented)),
        (418, Some(Code::Unknown)),
        (429, Some(Code::Unavailable)),
        (500, Some(Code::Unknown)),
        (501, Some(Code::Unknown)),
        (502, Some(Code::Unavailable)),
        (503, Some(Code::Unavailable)),
        (504, Some(Code::Unavailable)),
        (599, Some(Code::Unknown)),
        (199, None),
        (600, None),
        (u32::MAX, None),
    ] {
        assert_eq!(aborted(AbortKind::HttpStatus(status), &[]), code, "{status}");
    }
    assert_eq!(aborted(AbortKind::GrpcStatus(Code::Ok), &[]), Some(Code::Ok));
}

#[test]
fn a33_3_headers_say_what_a_request_fails_with() {
    let http = "x-envoy-fault-abort-request";
    let grpc = "X-Envoy-Fault-Abort-Grpc-Request";
    for (headers, code) in [
        (&[][..], None),
        (&[(http, "503")], Some(Code::Unavailable)),
        (&[(grpc, "7")], Some(Code::PermissionDenied)),
        (&[(grpc, "17")], Some(Code::Unknown)),
        (&[(grpc, "99999999999")], Some(Code::Unknown)),
        (&[(grpc, "7"), (http, "404")], Some(Code::Unimplemented)),
        (&[(grpc, "7"), (grpc, "10")], Some(Code::Aborted)),
        (&[(http, "x")], None),
        (&[(http, "x"), (grpc, "7")], None),
        (&[(http, "99")], None),
        (&[(grpc, "-1")], None),
    ] {
        assert_eq!(aborted(AbortKind::HeaderAbort, headers), code, "{headers:?}");
        // Only where the configuration asks for them.
        assert_eq!(aborted(AbortKind::GrpcStatus(Code::Aborted), headers), Some(Code::Aborted));
    }
}

#[test]
fn a33_3_headers_say_how_long_a_delay_is() {
    let ms = "x-envoy-fault-delay-request";
    for (value, expected) in [("15", Some(15)), ("0", None), ("", None), ("1.5", None), ("-1", None)] {
        assert_eq!(delayed(100, &[(ms, value)], 0), expected, "{value:?}");
    }
    assert_eq!(delayed(100, &[], 0), None);
    let longest = u64::MAX.to_string();
    assert_eq!(delayed(100, &[(ms, &longest)], 0), Some(u128::from(u64::MAX)));
    let fixed = delay(DelayKind::FixedDelay(Duration::from_millis(7)), 100);
    let injected = fixed.inject(&[(ms, "15")], 999_999, 0);
    assert_eq!(injected.delay, Some(Duration::from_millis(7)));
}

#[test]
fn a33_3_headers_lower_the_numerator_and_never_raise_it() {
    let delay =
        |value| [("x-envoy-fault-delay-request", "5"), ("x-envoy-fault-delay-request-percentage", value)];
    let abort_by = |value: &str, draw| {
        let headers =
            [("x-envoy-fault-abort-request", "503"), ("x-envoy-fault-abort-request-percentage", value)];
        abort(AbortKind::HeaderAbort, 50).inject(&headers, 0, draw).abort.is_some()
    };
    for (value, percent) in [("20", 20_u32), ("0", 0), ("50", 50), ("80", 50), ("x", 50), ("-1", 50)] {
        for (draw, expected) in
            [(percent * 10_000, false), ((percent * 10_000).saturating_sub(1), percent > 0)]
        {
            assert_eq!(delayed(50, &delay(value), draw).is_some(), expected, "{value:?} {draw}");
            assert_eq!(abort_by(value, draw), expected, "{value:?} {draw}");
        }
    }
}

#[test]
fn a33_4_faults_are_limited_in_number() {
    let active = ActiveFaults::new();
    let fault = |max_active_faults| Fault { max_active_faults, ..delay(DelayKind::HeaderDelay, 100) };
    let first = active.begin(&fault(Some(2)));
    let second = active.begin(&fault(Some(2)));
    assert!(first.is_some() && second.is_some());
    assert!(active.begin(&fault(Some(2))).is_none());
    drop(first);
    let third = active.begin(&fault(Some(2)));
    assert!(third.is_some());
    // Those of all filters count together; one without a limit always begins.
    assert!(active.begin(&fault(Some(0))).is_none());
    assert!(active.begin(&fault(None)).is_some());
}
