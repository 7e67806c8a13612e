//! Outlier detection (A50).

use std::time::Duration;

use serde::Serialize;

use super::{Invalid, parts};
use crate::pb::{envoy::config::cluster::v3 as cluster, google::protobuf as google};

/// The conditions for ejecting endpoints whose responses are worse than those of others.
///
/// Unset fields have the defaults of gRFC A50.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OutlierDetection {
    /// The interval between evaluations, 10 s by default.
    #[serde(serialize_with = "parts::serialize_seconds")]
    pub interval: Duration,
    /// The base duration of an ejection, multiplied by the number of the endpoint's ejections; 30 s by default.
    #[serde(serialize_with = "parts::serialize_seconds")]
    pub base_ejection_time: Duration,
    /// The maximum duration of an ejection; by default, 300 s or `base_ejection_time`, whichever is longer.
    #[serde(serialize_with = "parts::serialize_seconds")]
    pub max_ejection_time: Duration,
    /// The maximum share of ejected endpoints, in percent (0 to 100), 10 by default; one endpoint can always be
    /// ejected.
    pub max_ejection_percent: u8,
    /// Ejection of endpoints by their success rate; `None` disables it.
    pub success_rate: Option<SuccessRate>,
    /// Ejection of endpoints by their failure percentage; `None` disables it.
    pub failure_percentage: Option<FailurePercentage>,
}

/// Ejection of endpoints with a success rate far below the mean.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SuccessRate {
    /// The distance from the mean below which an endpoint is an outlier, in thousandths of the standard deviation;
    /// 1900 by default.
    pub stdev_factor: u32,
    /// The probability that an outlier is ejected, in percent (1 to 100); 100 by default.
    pub enforcement_percent: u8,
    /// The minimum number of endpoints with `request_volume` requests for an evaluation; 5 by default.
    pub minimum_hosts: u32,
    /// The minimum number of requests of an endpoint in an interval for its evaluation; 100 by default.
    pub request_volume: u32,
}

/// Ejection of endpoints with more than a fixed percentage of failed requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FailurePercentage {
    /// The percentage of failed requests (0 to 100) above which an endpoint is an outlier; 85 by default.
    pub threshold: u8,
    /// The probability that an outlier is ejected, in percent (1 to 100).
    pub enforcement_percent: u8,
    /// The minimum number of endpoints with `request_volume` requests for an evaluation; 5 by default.
    pub minimum_hosts: u32,
    /// The minimum number of requests of an endpoint in an interval for its evaluation; 50 by default.
    pub request_volume: u32,
}

impl OutlierDetection {
    /// Rules C26 to C29, with the defaults of A50-1.
    pub(super) fn parse(from: &cluster::OutlierDetection) -> Result<Self, Invalid> {
        let interval = duration(from.interval, "interval", Duration::from_secs(10))?;
        let base_ejection_time =
            duration(from.base_ejection_time, "base_ejection_time", Duration::from_secs(30))?;
        let longest = base_ejection_time.max(Duration::from_secs(300));
        // An explicit maximum below the base is kept as it is: the balancer uses the longer one of both (A50-1).
        let max_ejection_time = duration(from.max_ejection_time, "max_ejection_time", longest)?;
        let max_ejection_percent = percent(from.max_ejection_percent, "max_ejection_percent", 10)?;
        // Unset enables the first and disables the second: Envoy's defaults, kept by A50-2.
        let enforce_rate = percent(from.enforcing_success_rate, "enforcing_success_rate", 100)?;
        let enforce_percentage =
            percent(from.enforcing_failure_percentage, "enforcing_failure_percentage", 0)?;
        let threshold = percent(from.failure_percentage_threshold, "failure_percentage_threshold", 85)?;
        Ok(Self {
            interval,
            base_ejection_time,
            max_ejection_time,
            max_ejection_percent,
            // C28: an algorithm without enforcement ejects nothing, so that it needs no counting.
            success_rate: (enforce_rate > 0).then(|| SuccessRate {
                stdev_factor: or(from.success_rate_stdev_factor, 1900),
                enforcement_percent: enforce_rate,
                minimum_hosts: or(from.success_rate_minimum_hosts, 5),
                request_volume: or(from.success_rate_request_volume, 100),
            }),
            failure_percentage: (enforce_percentage > 0).then(|| FailurePercentage {
                threshold,
                enforcement_percent: enforce_percentage,
                minimum_hosts: or(from.failure_percentage_minimum_hosts, 5),
                request_volume: or(from.failure_percentage_request_volume, 50),
            }),
        })
    }
}

/// A duration, or its default.
fn duration(from: Option<google::Duration>, field: &str, default: Duration) -> Result<Duration, Invalid> {
    from.map_or(Ok(default), |from| parts::duration(&from).map_err(|e| e.at(field)))
}

/// A percentage, or its default.
fn percent(from: Option<google::UInt32Value>, field: &str, default: u8) -> Result<u8, Invalid> {
    let Some(google::UInt32Value { value }) = from else { return Ok(default) };
    u8::try_from(value)
        .ok()
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| Invalid::field(field, format!("must be at most 100 percent, is {value}")))
}

/// A number, or its default.
fn or(from: Option<google::UInt32Value>, default: u32) -> u32 {
    from.map_or(default, |from| from.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(value: u32) -> Option<google::UInt32Value> {
        Some(google::UInt32Value { value })
    }

    fn span(seconds: i64, nanos: i32) -> Option<google::Duration> {
        Some(google::Duration { seconds, nanos })
    }

    #[test]
    fn c29_a50_accepts_an_empty_message_with_the_defaults() {
        let parsed = OutlierDetection::parse(&cluster::OutlierDetection::default()).unwrap();
        assert_eq!(
            serde_json::to_string(&parsed).unwrap(),
            r#"{"interval":"10s","base_ejection_time":"30s","max_ejection_time":"300s","max_ejection_percent":10,"#
                .to_owned()
                + r#""success_rate":{"stdev_factor":1900,"enforcement_percent":100,"minimum_hosts":5,"#
                + r#""request_volume":100},"failure_percentage":null}"#
        );
    }

    type SetDuration = fn(&mut cluster::OutlierDetection, Option<google::Duration>);
    const DURATIONS: [(&str, SetDuration); 3] = [
        ("interval", |o, d| o.interval = d),
        ("base_ejection_time", |o, d| o.base_ejection_time = d),
        ("max_ejection_time", |o, d| o.max_ejection_time = d),
    ];

    fn with_duration(set: SetDuration, span: Option<google::Duration>) -> Result<OutlierDetection, Invalid> {
        let mut from = cluster::OutlierDetection::default();
        set(&mut from, span);
        OutlierDetection::parse(&from)
    }

    #[test]
    fn c26_accepts_durations_that_are_not_negative() {
        for (field, set) in DURATIONS {
            for (span, text) in [(span(0, 0), "0s"), (span(0, 1), "0.000000001s"), (span(600, 0), "600s")] {
                let json = serde_json::to_value(with_duration(set, span).unwrap()).unwrap();
                assert_eq!(json[field], text);
            }
        }
    }

    #[test]
    fn c26_rejects_durations_that_are_negative_or_malformed() {
        for (field, set) in DURATIONS {
            for (span, inner) in
                [(span(-1, 0), "seconds"), (span(1, -1), "nanos"), (span(1 << 40, 0), "seconds")]
            {
                let e = with_duration(set, span).unwrap_err();
                assert_eq!(e.path(), format!("{field}.{inner}"));
                assert!(e.reason().starts_with("must be between 0 and"), "{e}");
            }
        }
    }

    type SetPercent = fn(&mut cluster::OutlierDetection, Option<google::UInt32Value>);
    const PERCENTAGES: [(&str, SetPercent); 4] = [
        ("max_ejection_percent", |o, v| o.max_ejection_percent = v),
        ("enforcing_success_rate", |o, v| o.enforcing_success_rate = v),
        ("enforcing_failure_percentage", |o, v| o.enforcing_failure_percentage = v),
        ("failure_percentage_threshold", |o, v| {
            o.failure_percentage_threshold = v;
            o.enforcing_failure_percentage = value(100);
        }),
    ];

    fn with_percent(set: SetPercent, percent: u32) -> Result<OutlierDetection, Invalid> {
        let mut from = cluster::OutlierDetection::default();
        set(&mut from, value(percent));
        OutlierDetection::parse(&from)
    }

    #[test]
    fn c27_accepts_up_to_100_percent() {
        for percent in [1, 100] {
            let parsed = PERCENTAGES.map(|(_, set)| with_percent(set, percent).unwrap());
            let [ejected, rate, failures, threshold] = &parsed;
            assert_eq!(u32::from(ejected.max_ejection_percent), percent);
            assert_eq!(rate.success_rate.as_ref().map(|it| it.enforcement_percent.into()), Some(percent));
            let failures = failures.failure_percentage.as_ref();
            assert_eq!(failures.map(|it| it.enforcement_percent.into()), Some(percent));
            let threshold = threshold.failure_percentage.as_ref();
            assert_eq!(threshold.map(|it| it.threshold.into()), Some(percent));
        }
    }

    #[test]
    fn c27_rejects_percentages_over_100() {
        for (field, set) in PERCENTAGES {
            for percent in [101, 256, u32::MAX] {
                let e = with_percent(set, percent).unwrap_err();
                assert_eq!(e.to_string(), format!("{field}: must be at most 100 percent, is {percent}"));
            }
        }
    }

    #[test]
    fn c28_accepts_either_algorithm_by_its_enforcement() {
        let on = cluster::OutlierDetection {
            enforcing_failure_percentage: value(7),
            failure_percentage_threshold: value(60),
            ..Default::default()
        };
        let parsed = OutlierDetection::parse(&on).unwrap();
        let expected =
            FailurePercentage { threshold: 60, enforcement_percent: 7, minimum_hosts: 5, request_volume: 50 };
        assert_eq!(parsed.failure_percentage, Some(expected));
        // Unset enables the one and disables the other, unlike in C-core (A50-2).
        assert_eq!(parsed.success_rate.map(|rate| rate.enforcement_percent), Some(100));
    }

    #[test]
    fn c28_ignores_the_settings_of_an_algorithm_that_is_not_enforced() {
        let off = cluster::OutlierDetection {
            enforcing_success_rate: value(0),
            success_rate_minimum_hosts: value(3),
            enforcing_failure_percentage: value(0),
            failure_percentage_threshold: value(60),
            ..Default::default()
        };
        let parsed = OutlierDetection::parse(&off).unwrap();
        assert_eq!((parsed.success_rate, parsed.failure_percentage), (None, None));
    }

    #[test]
    fn a50_1_the_longest_ejection_is_never_shorter_than_the_first() {
        let from = cluster::OutlierDetection { base_ejection_time: span(400, 0), ..Default::default() };
        assert_eq!(OutlierDetection::parse(&from).unwrap().max_ejection_time, Duration::from_secs(400));
    }
}
