use std::time::Duration;

use super::{duration, message_builder, number};
use crate::pb::envoy::config::route::v3::{RetryPolicy, retry_policy::RetryBackOff};

/// Retries of calls that fail with one of these codes, once by default (A44): `cancelled`, `deadline-exceeded`, `internal`,
/// `resource-exhausted`, `unavailable`. Clients ignore other conditions.
///
/// ```
/// use std::time::Duration;
///
/// use xdskit::control_plane::resources::{retry_on, route};
///
/// let retries = retry_on(["unavailable"]).num_retries(2).back_off(Duration::from_millis(10), Duration::from_millis(50));
/// let route = route::prefix("/").cluster("shop").retry(retries);
/// ```
pub fn retry_on<C: AsRef<str>>(codes: impl IntoIterator<Item = C>) -> RetryPolicyBuilder {
    let codes: Vec<_> = codes.into_iter().map(|code| code.as_ref().to_owned()).collect();
    RetryPolicyBuilder { message: RetryPolicy { retry_on: codes.join(","), ..RetryPolicy::default() } }
}

/// A builder of a RetryPolicy; see [`retry_on`].
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicyBuilder {
    /// The message so far.
    message: RetryPolicy,
}

impl RetryPolicyBuilder {
    /// Sets the largest number of retries of a call, beside its first attempt; at least 1. Clients make 4 at most.
    #[must_use]
    pub fn num_retries(mut self, retries: u32) -> Self {
        self.message.num_retries = number(retries);
        self
    }

    /// Sets the delay before the first retry, and the largest one; 25 ms and 250 ms by default. Both are randomized.
    #[must_use]
    pub fn back_off(mut self, base: Duration, max: Duration) -> Self {
        let back_off =
            RetryBackOff { base_interval: Some(duration(base)), max_interval: Some(duration(max)) };
        self.message.retry_back_off = Some(back_off);
        self
    }
}

message_builder!(RetryPolicyBuilder: RetryPolicy);
