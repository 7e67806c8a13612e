use std::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use super::*;
use crate::resource::matcher::Denominator;

const ALWAYS: Fraction = Fraction::new(100, Denominator::Hundred);
const FIRST: FaultDraws = FaultDraws { delay: 0, abort: 0 };
const NO_HEADERS: [(&str, &str); 0] = [];

fn delay(kind: DelayKind, percentage: Fraction) -> Fault {
    Fault { delay: Some(FaultDelay { kind, percentage }), abort: None, max_active_faults: None }
}

fn abort(kind: AbortKind, percentage: Fraction) -> Fault {
    Fault { delay: None, abort: Some(FaultAbort { kind, percentage }), max_active_faults: None }
}

fn second() -> DelayKind {
    DelayKind::FixedDelay(Duration::from_secs(1))
}

/// The delay in milliseconds and the failure of a call, with no other fault running.
fn injected(fault: &Fault, headers: &[(&str, &str)], draws: FaultDraws) -> (Option<u128>, Option<Code>) {
    let active = ActiveFaults::new();
    let outcome = match inject(fault, &Controls::new(&headers), draws, &active) {
        Some(injected) => (injected.delay.map(|it| it.as_millis()), injected.abort),
        None => (None, None),
    };
    assert_eq!(active.running(), 0, "the fault is over");
    outcome
}

fn aborted(fault: &Fault, headers: &[(&str, &str)]) -> Option<Code> {
    injected(fault, headers, FIRST).1
}

#[test]
fn ch5_6_a_share_is_injected_by_independent_draws_of_delay_and_abort() {
    let fault = |numerator, denominator| Fault {
        abort: Some(FaultAbort {
            kind: AbortKind::GrpcStatus(Code::NotFound),
            percentage: Fraction::new(2 * numerator, denominator),
        }),
        ..delay(second(), Fraction::new(numerator, denominator))
    };
    for (denominator, unit) in
        [(Denominator::Hundred, 10_000), (Denominator::TenThousand, 100), (Denominator::Million, 1)]
    {
        let fault = fault(3, denominator);
        let of = |delay, abort| {
            let (delay, abort) = injected(&fault, &[], FaultDraws { delay, abort });
            (delay.is_some(), abort.is_some())
        };
        let (below_3, below_6) = (3 * unit - 1, 6 * unit - 1);
        assert_eq!(of(below_3, below_6), (true, true));
        assert_eq!(of(below_3 + 1, below_6), (false, true));
        assert_eq!(of(below_3, below_6 + 1), (true, false));
        assert_eq!(of(below_3 + 1, below_6 + 1), (false, false));
        assert_eq!(of(999_999, 0), (false, true), "the draw of the one is not that of the other");
    }
    let none = abort(AbortKind::HttpStatus(503), Fraction::new(0, Denominator::Hundred));
    assert_eq!(aborted(&none, &[]), None);
    let more_than_all = abort(AbortKind::HttpStatus(503), Fraction::new(101, Denominator::Hundred));
    let last = FaultDraws { delay: 999_999, abort: 999_999 };
    assert_eq!(injected(&more_than_all, &[], last), (None, Some(Code::Unavailable)));
}

#[test]
fn ch5_6_half_of_the_calls_are_injected_by_uniform_draws() {
    let half = abort(AbortKind::HttpStatus(401), Fraction::new(50, Denominator::Hundred));
    let mut random = fastrand::Rng::with_seed(5);
    let mut draws = || FaultDraws { delay: random.u32(..1_000_000), abort: random.u32(..1_000_000) };
    let aborts = (0..10_000).filter(|_| injected(&half, &[], draws()).1.is_some()).count();
    // Within 3 standard deviations.
    assert!(aborts.abs_diff(5_000) < 150, "{aborts}");
}

#[test]
fn ch5_7_a_header_sets_the_delay() {
    let fault = delay(DelayKind::HeaderDelay, ALWAYS);
    let of = |values: &[&'static str]| {
        let headers: Vec<_> = values.iter().map(|value| ("X-Envoy-Fault-Delay-Request", *value)).collect();
        injected(&fault, &headers, FIRST).0
    };
    assert_eq!(of(&["15"]), Some(15));
    assert_eq!(of(&["15", "20"]), Some(20), "the last value");
    for invalid in [&[][..], &[""], &["-1"], &["1.5"], &["1s"], &["0x1"], &[" 1"], &["15", "soon"]] {
        assert_eq!(of(invalid), None, "{invalid:?}");
    }
    let fixed = delay(second(), ALWAYS);
    assert_eq!(injected(&fixed, &[(DELAY, "15")], FIRST).0, Some(1_000), "it is not for headers");
}

#[test]
fn ch5_7_a_header_lowers_the_share_and_never_raises_it() {
    let header_delay =
        |numerator| delay(DelayKind::HeaderDelay, Fraction::new(numerator, Denominator::TenThousand));
    let header_abort =
        |numerator| abort(AbortKind::HeaderAbort, Fraction::new(numerator, Denominator::TenThousand));
    // The lowest draw that injects nothing, in units of the denominator.
    for (configured, header, share) in [
        (500, None, 500),
        (500, Some("20"), 20),
        (500, Some("500"), 500),
        (500, Some("10000"), 500),
        (500, Some("0"), 0),
        (500, Some("-1"), 0),
        (500, Some("half"), 500),
        (500, Some("99999999999999999999"), 500),
    ] {
        let with = |name: &'static str| header.map(|value| (name, value));
        let delays: Vec<_> = [Some((DELAY, "15")), with(DELAY_PERCENTAGE)].into_iter().flatten().collect();
        let aborts: Vec<_> = [Some((ABORT, "503")), with(ABORT_PERCENTAGE)].into_iter().flatten().collect();
        for (draw, is_within) in [(i64::from(share) * 100 - 1, true), (i64::from(share) * 100, false)] {
            let Ok(draw) = u32::try_from(draw) else { continue };
            let draws = FaultDraws { delay: draw, abort: draw };
            let delayed = injected(&header_delay(configured), &delays, draws).0.is_some();
            let aborted = injected(&header_abort(configured), &aborts, draws).1.is_some();
            assert_eq!((delayed, aborted), (is_within, is_within), "{configured} {header:?} {draw}");
        }
    }
    let fixed = [delay(second(), ALWAYS), abort(AbortKind::HttpStatus(503), ALWAYS)];
    for fault in fixed {
        let headers = [(DELAY_PERCENTAGE, "0"), (ABORT_PERCENTAGE, "0")];
        assert_ne!(injected(&fault, &headers, FIRST), (None, None), "headers lower what they control");
    }
}

#[test]
fn ch5_7_a_header_sets_the_failure_and_the_http_status_wins() {
    let fault = abort(AbortKind::HeaderAbort, ALWAYS);
    for (http, code) in [
        ("200", Some(Code::Unknown)),
        ("401", Some(Code::Unauthenticated)),
        ("599", Some(Code::Unknown)),
        ("199", None),
        ("600", None),
        ("-1", None),
        ("many", None),
    ] {
        assert_eq!(aborted(&fault, &[(ABORT, http)]), code, "{http}");
        let both = [(ABORT_GRPC, "5"), (ABORT, http)];
        assert_eq!(aborted(&fault, &both), code.or(Some(Code::NotFound)), "{http}");
    }
    for (grpc, code) in [
        ("0", Some(Code::Ok)),
        ("16", Some(Code::Unauthenticated)),
        ("17", Some(Code::Unknown)),
        ("4294967296", Some(Code::Unknown)),
        ("-1", None),
        ("NOT_FOUND", None),
    ] {
        assert_eq!(aborted(&fault, &[(ABORT_GRPC, grpc)]), code, "{grpc}");
    }
    assert_eq!(aborted(&fault, &[(ABORT, "503"), (ABORT, "401")]), Some(Code::Unauthenticated));
    assert_eq!(aborted(&fault, &[(ABORT, "503"), (ABORT, "one")]), None, "the last value is invalid");
    assert_eq!(aborted(&fault, &NO_HEADERS), None);
    let fixed = abort(AbortKind::GrpcStatus(Code::Aborted), ALWAYS);
    assert_eq!(aborted(&fixed, &[(ABORT, "503")]), Some(Code::Aborted), "it is not for headers");
}

#[test]
fn ch5_8_the_code_is_that_of_the_http_status() {
    for (status, code) in [
        (200, Code::Unknown),
        (400, Code::Internal),
        (401, Code::Unauthenticated),
        (403, Code::PermissionDenied),
        (404, Code::Unimplemented),
        (429, Code::Unavailable),
        (500, Code::Unknown),
        (502, Code::Unavailable),
        (503, Code::Unavailable),
        (504, Code::Unavailable),
        (u32::MAX, Code::Unknown),
    ] {
        assert_eq!(aborted(&abort(AbortKind::HttpStatus(status), ALWAYS), &[]), Some(code), "{status}");
    }
    assert_eq!(aborted(&abort(AbortKind::GrpcStatus(Code::Ok), ALWAYS), &[]), Some(Code::Ok));
}

#[test]
fn ch5_9_a_delay_of_0_is_no_fault() {
    let active = ActiveFaults::new();
    let none = delay(DelayKind::FixedDelay(Duration::ZERO), ALWAYS);
    assert!(inject(&none, &Controls::new(&NO_HEADERS), FIRST, &active).is_none());
    let by_header = delay(DelayKind::HeaderDelay, ALWAYS);
    assert!(inject(&by_header, &Controls::new(&[(DELAY, "0")]), FIRST, &active).is_none());
}

#[test]
fn ch5_10_a_fault_counts_once_until_it_is_over_and_others_do_not_count() {
    let active = ActiveFaults::new();
    let limited = |max, fault| Fault { max_active_faults: max, ..fault };
    let both = Fault { abort: abort(AbortKind::HttpStatus(503), ALWAYS).abort, ..delay(second(), ALWAYS) };
    let inject = |fault: &Fault, draws| inject(fault, &Controls::new(&NO_HEADERS), draws, &active);
    let missed = FaultDraws { delay: 999_999, abort: 999_999 };
    let half = Fraction::new(50, Denominator::Hundred);
    assert!(inject(&limited(Some(9), delay(second(), half)), missed).is_none());
    assert_eq!(active.running(), 0, "a call without a fault");
    let first = inject(&limited(Some(2), both.clone()), FIRST).unwrap();
    assert!(first.delay.is_some() && first.abort.is_some());
    assert_eq!(active.running(), 1, "a delay and a failure are one fault");
    let second = inject(&limited(Some(2), both.clone()), FIRST).unwrap();
    assert!(inject(&limited(Some(2), both.clone()), FIRST).is_none(), "the limit is reached");
    assert!(inject(&limited(Some(0), both.clone()), FIRST).is_none());
    let unlimited = inject(&both, FIRST).unwrap();
    assert_eq!(active.running(), 3, "one without a limit counts for those with one");
    drop(second);
    assert!(inject(&limited(Some(2), both.clone()), FIRST).is_none());
    drop(unlimited);
    assert!(inject(&limited(Some(2), both), FIRST).is_some());
    drop(first);
    assert_eq!(active.running(), 0);
}

#[test]
fn ch5_10_at_no_instant_more_faults_run_than_the_limit() {
    let (active, most) = (ActiveFaults::new(), AtomicU32::new(0));
    let fault = Fault { max_active_faults: Some(2), ..abort(AbortKind::HttpStatus(503), ALWAYS) };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    let injected = inject(&fault, &Controls::new(&NO_HEADERS), FIRST, &active);
                    most.fetch_max(active.running(), Ordering::Relaxed);
                    drop(injected);
                }
            });
        }
    });
    assert!(most.into_inner() <= 2);
    assert_eq!(active.running(), 0);
}

#[test]
fn ch5_11_a_delayed_call_fails_whatever_runs_by_then() {
    let active = ActiveFaults::new();
    let limited = Fault {
        abort: abort(AbortKind::HttpStatus(503), ALWAYS).abort,
        max_active_faults: Some(1),
        ..delay(second(), ALWAYS)
    };
    let injected = inject(&limited, &Controls::new(&NO_HEADERS), FIRST, &active).unwrap();
    let unlimited = Fault { max_active_faults: None, ..limited };
    let _others = [(); 3].map(|()| inject(&unlimited, &Controls::new(&NO_HEADERS), FIRST, &active).unwrap());
    assert_eq!((injected.delay, injected.abort), (Some(Duration::from_secs(1)), Some(Code::Unavailable)));
}

#[test]
fn ch5_10_a_filter_that_injects_nothing_is_known() {
    let none = Fraction::new(0, Denominator::Hundred);
    assert!(!is_ever_injected(&Fault { delay: None, abort: None, max_active_faults: None }));
    assert!(!is_ever_injected(&delay(second(), none)));
    assert!(is_ever_injected(&delay(second(), Fraction::new(1, Denominator::Million))));
    let both = Fault { abort: abort(AbortKind::HeaderAbort, ALWAYS).abort, ..delay(second(), none) };
    assert!(is_ever_injected(&both));
    assert!(!is_ever_injected(&Fault { max_active_faults: Some(0), ..both }));
}
