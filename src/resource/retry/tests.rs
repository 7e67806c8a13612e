use super::*;
use crate::{
    pb::google::protobuf::UInt32Value,
    resource::{
        RouteConfiguration,
        samples::{configuration, parse, rejection, virtual_host},
    },
};

fn policy(retry_on: &str) -> route::RetryPolicy {
    route::RetryPolicy { retry_on: retry_on.into(), ..Default::default() }
}

fn retries(value: u32) -> route::RetryPolicy {
    route::RetryPolicy { num_retries: Some(UInt32Value { value }), ..policy("internal") }
}

/// A policy with intervals in microseconds.
fn back_off(base: Option<i64>, max: Option<i64>) -> route::RetryPolicy {
    let duration = |micros: i64| Proto {
        seconds: micros / 1_000_000,
        nanos: i32::try_from(micros % 1_000_000).unwrap() * 1000,
    };
    let retry_back_off = Some(route::retry_policy::RetryBackOff {
        base_interval: base.map(duration),
        max_interval: max.map(duration),
    });
    route::RetryPolicy { retry_back_off, ..policy("unavailable") }
}

/// A route configuration with a virtual host of this policy.
fn message(policy: route::RetryPolicy) -> route::RouteConfiguration {
    let host = virtual_host(&["*"], Vec::new());
    configuration(vec![route::VirtualHost { retry_policy: Some(policy), ..host }])
}

fn accepted(policy: route::RetryPolicy) -> RetryPolicy {
    let parsed: RouteConfiguration = parse(&message(policy)).unwrap();
    parsed.virtual_hosts[0].retry_policy.clone().unwrap()
}

/// Returns the intervals in microseconds.
fn intervals_of(policy: route::RetryPolicy) -> (u128, u128) {
    let parsed = accepted(policy);
    (parsed.base_interval.as_micros(), parsed.max_interval.as_micros())
}

/// Returns the reason of the error, behind the path of the policy.
fn reason_of(policy: route::RetryPolicy) -> String {
    let error = rejection::<RouteConfiguration>(&message(policy));
    error.strip_prefix("virtual_hosts[0].retry_policy.").expect(&error).to_owned()
}

/// As in grpc-go and Envoy, spaces are ignored; so is case, as in grpc-go.
#[test]
fn rp1_accepts_known_conditions() {
    let parsed = accepted(policy("unavailable, Cancelled ,cancelled"));
    assert_eq!(*parsed.retry_on, [RetryOn::Cancelled, RetryOn::Unavailable]);
    assert!(parsed.retries(RetryOn::Cancelled) && !parsed.retries(RetryOn::Internal));
    let all = accepted(policy("resource-exhausted,internal,deadline-exceeded,cancelled,unavailable"));
    let json = serde_json::json!([
        "cancelled",
        "deadline-exceeded",
        "internal",
        "resource-exhausted",
        "unavailable"
    ]);
    assert_eq!(serde_json::to_value(&all.retry_on).unwrap(), json);
}

#[test]
fn rp1_ignores_other_conditions() {
    assert_eq!(*accepted(policy("5xx,internal,,gateway-error")).retry_on, [RetryOn::Internal]);
}

#[test]
fn rp2_accepts_any_number_of_retries_and_takes_one_if_it_is_unset() {
    assert_eq!(accepted(policy("internal")).num_retries, 1);
    assert_eq!(accepted(retries(7)).num_retries, 7);
    assert_eq!(accepted(retries(u32::MAX)).num_retries, u32::MAX);
}

#[test]
fn rp2_rejects_no_retries() {
    assert_eq!(reason_of(retries(0)), "num_retries: must be at least 1, is 0");
}

#[test]
fn rp3_accepts_a_base_interval_and_has_one_if_it_is_unset() {
    assert_eq!(intervals_of(policy("internal")), (25_000, 250_000));
    assert_eq!(intervals_of(back_off(Some(40_000), None)), (40_000, 400_000));
}

#[test]
fn rp3_rejects_a_back_off_without_a_positive_base_interval() {
    for (base, expected) in [
        (None, ": must be set"),
        (Some(0), ": must be longer than 0"),
        (Some(-1_000_000), ".seconds: must be between 0 and 315576000000, is -1"),
    ] {
        assert_eq!(reason_of(back_off(base, None)), format!("retry_back_off.base_interval{expected}"));
    }
}

#[test]
fn rp4_accepts_a_longest_interval() {
    assert_eq!(intervals_of(back_off(Some(40_000), Some(40_000))), (40_000, 40_000));
    // Intervals below a millisecond are raised to it (A44-3).
    assert_eq!(intervals_of(back_off(Some(1), Some(2))), (1000, 1000));
    assert_eq!(intervals_of(back_off(Some(1), Some(2000))), (1000, 2000));
}

/// A44 requires it not to be below the base; grpc-go does not check.
#[test]
fn rp4_rejects_a_longest_interval_of_0_or_below_the_base() {
    for (max, expected) in [
        (0, ": must be longer than 0"),
        (-1_000_000, ".seconds: must be between 0 and 315576000000, is -1"),
        (39_000, ": 39ms is shorter than the base interval of 40ms"),
    ] {
        assert_eq!(
            reason_of(back_off(Some(40_000), Some(max))),
            format!("retry_back_off.max_interval{expected}")
        );
    }
}

#[test]
fn rp5_accepts_a_policy_that_retries_nothing() {
    for none in ["", "5xx"] {
        let parsed = accepted(policy(none));
        assert!(parsed.retry_on.is_empty(), "{parsed:?}");
    }
}

/// Invalid fields are rejected even if nothing is retried (RP4).
#[test]
fn rp4_rp5_rejects_a_policy_that_retries_nothing_but_is_wrong() {
    let none = |policy| route::RetryPolicy { retry_on: "5xx".into(), ..policy };
    assert_eq!(reason_of(none(retries(0))), "num_retries: must be at least 1, is 0");
    let expected = "retry_back_off.max_interval: must be longer than 0";
    assert_eq!(reason_of(none(back_off(Some(40_000), Some(0)))), expected);
}
