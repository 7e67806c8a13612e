//! Retry policies of routes and virtual hosts.

use std::time::Duration;

use serde::Serialize;

use super::{Invalid, parts, remarks};
use crate::pb::{envoy::config::route::v3 as route, google::protobuf::Duration as Proto};

/// The conditions and the backoff of retries (A44).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// The failures to retry, in a fixed order and without duplicates. If empty, nothing is retried, even if the
    /// virtual host has a policy.
    pub retry_on: Box<[RetryOn]>,
    /// The maximum number of retries, at least 1.
    pub num_retries: u32,
    /// The backoff before the first retry, at least 1 ms. In JSON as seconds: `"0.025s"`.
    #[serde(serialize_with = "parts::serialize_seconds")]
    pub base_interval: Duration,
    /// The maximum backoff, not below `base_interval`. In JSON as seconds.
    #[serde(serialize_with = "parts::serialize_seconds")]
    pub max_interval: Duration,
}

/// A failure that a [`RetryPolicy`] retries: a gRPC status code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RetryOn {
    /// `CANCELLED`.
    Cancelled,
    /// `DEADLINE_EXCEEDED`.
    DeadlineExceeded,
    /// `INTERNAL`.
    Internal,
    /// `RESOURCE_EXHAUSTED`.
    ResourceExhausted,
    /// `UNAVAILABLE`.
    Unavailable,
}

impl RetryPolicy {
    /// Rules RP1 to RP5. Invalid fields are rejected even if nothing is retried.
    pub(super) fn parse(message: &route::RetryPolicy) -> Result<Self, Invalid> {
        let num_retries = match message.num_retries.map(|retries| retries.value) {
            None => 1,
            Some(0) => return Err(Invalid::field("num_retries", "must be at least 1, is 0")),
            Some(retries) => retries,
        };
        let (base_interval, max_interval) = match &message.retry_back_off {
            None => (DEFAULT_BASE_INTERVAL, DEFAULT_MAX_INTERVAL),
            Some(back_off) => intervals(back_off).map_err(|e| e.at("retry_back_off"))?,
        };
        let retry_on = RetryOn::parse_list(&message.retry_on);
        for condition in message.retry_on.split(',').map(str::trim).filter(|name| RetryOn::of(name).is_none())
        {
            if !condition.is_empty() {
                let reason = format!("clients do not retry on {condition:?}");
                remarks::leave_out(Invalid::field("retry_policy.retry_on", reason));
            }
        }
        Ok(Self { retry_on, num_retries, base_interval, max_interval })
    }

    /// Returns whether a failure is retried.
    pub fn retries(&self, failure: RetryOn) -> bool {
        self.retry_on.contains(&failure)
    }
}

impl RetryOn {
    /// Parses the list, without duplicates. Envoy's conditions that apply only to proxies are ignored (RP1).
    fn parse_list(text: &str) -> Box<[Self]> {
        // In the order of `ALL`, so that policies with the same conditions are equal, however these were written.
        let mut is_named = [false; Self::ALL.len()];
        for name in text.split(',').map(str::trim) {
            for (named, (known, _)) in is_named.iter_mut().zip(Self::ALL) {
                *named |= name.eq_ignore_ascii_case(known);
            }
        }
        let mut named = Vec::with_capacity(is_named.iter().filter(|named| **named).count());
        named.extend(is_named.into_iter().zip(Self::ALL).filter_map(|(named, (_, on))| named.then_some(on)));
        named.into()
    }

    /// The condition of a name.
    fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, condition)| *condition)
    }

    /// All conditions with their names, in the order of [`RetryPolicy::retry_on`].
    const ALL: [(&str, Self); 5] = [
        ("cancelled", Self::Cancelled),
        ("deadline-exceeded", Self::DeadlineExceeded),
        ("internal", Self::Internal),
        ("resource-exhausted", Self::ResourceExhausted),
        ("unavailable", Self::Unavailable),
    ];
}

/// The least and the greatest time between attempts.
fn intervals(back_off: &route::retry_policy::RetryBackOff) -> Result<(Duration, Duration), Invalid> {
    let positive = |field: &str, interval: &Proto| match parts::duration(interval).map_err(|e| e.at(field))? {
        Duration::ZERO => Err(Invalid::field(field, "must be longer than 0")),
        interval => Ok(interval),
    };
    let base = match &back_off.base_interval {
        Some(base) => positive("base_interval", base)?,
        None => return Err(Invalid::field("base_interval", "must be set")),
    };
    let max = match &back_off.max_interval {
        Some(max) => positive("max_interval", max)?,
        None => base.saturating_mul(10),
    };
    // Compared as they were written, and only then raised to 1 ms.
    if max < base {
        let reason = format!("{max:?} is shorter than the base interval of {base:?}");
        return Err(Invalid::field("max_interval", reason));
    }
    Ok((base.max(SHORTEST_INTERVAL), max.max(SHORTEST_INTERVAL)))
}

/// The intervals of a policy without a back-off (A44-3): this one and the next.
const DEFAULT_BASE_INTERVAL: Duration = Duration::from_millis(25);
const DEFAULT_MAX_INTERVAL: Duration = Duration::from_millis(250);

/// The minimum interval; shorter ones are raised to it (A44-3).
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
