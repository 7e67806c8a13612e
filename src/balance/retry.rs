//! The retries of a call (A6, A44): whether another attempt follows the end of one, and after which delay.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    error::Code,
    resource::retry::{RetryOn, RetryPolicy},
};

/// Limits of a channel for the retries of its calls.
#[derive(Debug, Clone)]
pub(crate) struct RetrySettings {
    /// The attempts of a call by a retry policy, the first one included (CH6.1). 5; with 1 there are no retries.
    pub(crate) max_attempts: u32,
    /// `None` if failures of calls never forbid the retries of others.
    pub(crate) throttle: Option<Arc<Throttle>>,
}

/// The retries of one call.
#[derive(Debug)]
pub(crate) struct Retries {
    /// `None` if the status of an attempt is that of the call.
    policy: Option<Arc<RetryPolicy>>,
    throttle: Option<Arc<Throttle>>,
    /// The limit of the channel for attempts, the first one included.
    max_attempts: u32,
    /// The retries by the policy.
    retries: u32,
    /// Retries since the server has last chosen the delay.
    backoffs: u32,
    /// The request was sent again because the server had not processed it.
    was_unprocessed: bool,
    /// Attempts that did not get a stream.
    never_sent: u32,
    /// A connection was lost after the request was sent on it, and before any response.
    has_lost_connection: bool,
}

/// How an attempt ended without a response that the call begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// The attempt was not sent, since the connection was gone (CH6.12).
    NeverSent,
    /// The server said that it did not process the request (CH6.13). The code is that of the call if this is the end.
    NeverProcessed(Code),
    /// The connection was lost before the response (CH6.14).
    ConnectionLost(Code),
    /// Any other failure: by the server, by the loss of a connection, or without a usable endpoint (CH6.10).
    Failed(Code, Pushback),
}

/// What the server says of retries, in `grpc-retry-pushback-ms` (CH6.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushback {
    /// The delay is left to the policy.
    Absent,
    /// The delay before the next attempt.
    After(Duration),
    /// No retry: the value is negative.
    Never,
    /// No retry either: the value is no number, or one of several.
    Malformed,
}

/// What follows the end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Its status is that of the call.
    Deliver,
    /// The call gets another attempt at once, which does not count as one (CH6.15).
    Free,
    /// The call gets another attempt after a delay.
    After(Duration),
    /// The call fails: too many connections were lost before the request was sent.
    NeverSent,
}

/// Whether an attempt can be repeated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Repeatable {
    /// All that was sent of the request is kept (CH6.11).
    pub(crate) is_kept: bool,
    /// The time until the deadline, if there is one.
    pub(crate) remaining: Option<Duration>,
}

/// Permits no retries while too many attempts of a channel fail (CH6.18).
#[derive(Debug)]
pub(crate) struct Throttle {
    /// In thousandths, as the ratio has three decimals.
    tokens: AtomicU64,
    /// All tokens, in thousandths.
    max: u64,
    /// The part of a token that a success gives back, in thousandths.
    ratio: u64,
}

/// What the end of a call tells the throttle.
#[derive(Debug)]
pub(crate) struct Throttled {
    throttle: Arc<Throttle>,
    policy: Option<Arc<RetryPolicy>>,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self { max_attempts: 5, throttle: None }
    }
}

impl Retries {
    /// Retries of a call whose route has this policy.
    pub(crate) fn new(policy: Option<Arc<RetryPolicy>>, settings: &RetrySettings) -> Self {
        let RetrySettings { max_attempts, throttle } = settings;
        Self {
            policy,
            throttle: throttle.clone(),
            max_attempts: *max_attempts,
            retries: 0,
            backoffs: 0,
            was_unprocessed: false,
            never_sent: 0,
            has_lost_connection: false,
        }
    }

    /// The retries by the policy up to now, which the next attempt says in `grpc-previous-rpc-attempts` (CH6.19).
    pub(crate) fn previous(&self) -> u32 {
        self.retries
    }

    /// What the call's own end is to be recorded with, if its response has begun.
    pub(crate) fn throttled(&self) -> Option<Throttled> {
        let throttle = self.throttle.clone()?;
        Some(Throttled { throttle, policy: self.policy.clone() })
    }

    /// What follows the end of an attempt. To be asked once for each end.
    pub(crate) fn next(&mut self, end: AttemptEnd, can: Repeatable, random: &mut fastrand::Rng) -> Next {
        match end {
            AttemptEnd::NeverSent if self.never_sent == MAX_NEVER_SENT => Next::NeverSent,
            AttemptEnd::NeverSent => {
                self.never_sent += 1;
                Next::Free
            }
            // Once for a call, and before any retry by the policy (CH6.13). Later ones are failures like others.
            AttemptEnd::NeverProcessed(_) if can.is_kept && !self.was_unprocessed && self.retries == 0 => {
                self.was_unprocessed = true;
                Next::Free
            }
            // The request may be why the connection was ended, as by servers that limit headers: it is not to end all others, too.
            AttemptEnd::ConnectionLost(code) => {
                let is_first = !mem::replace(&mut self.has_lost_connection, true);
                let can = Repeatable { is_kept: can.is_kept && is_first, ..can };
                self.by_policy(code, Pushback::Absent, can, random)
            }
            AttemptEnd::NeverProcessed(code) => self.by_policy(code, Pushback::Absent, can, random),
            AttemptEnd::Failed(code, pushback) => self.by_policy(code, pushback, can, random),
        }
    }

    /// The decision in the order of CH6.7 to CH6.9.
    fn by_policy(
        &mut self,
        code: Code,
        pushback: Pushback,
        can: Repeatable,
        random: &mut fastrand::Rng,
    ) -> Next {
        let is_retryable = self.policy.as_ref().is_some_and(|policy| retries(policy, code));
        // A pushback that forbids retries takes a token whatever the code is (CH6.18).
        let is_counted = is_retryable || pushback.forbids();
        // The failure counts also where no retry is possible for another reason.
        let is_permitted = match &self.throttle {
            Some(throttle) if is_counted => throttle.on_failure(),
            Some(_) | None => true,
        };
        let Some(policy) = self.policy.as_ref().filter(|_| is_retryable && is_permitted && can.is_kept)
        else {
            return Next::Deliver;
        };
        if self.retries + 1 >= self.max_attempts.min(policy.num_retries.saturating_add(1)) {
            return Next::Deliver;
        }
        let (delay, backoffs) = match pushback {
            Pushback::Never | Pushback::Malformed => return Next::Deliver,
            Pushback::After(delay) => (delay, 0),
            Pushback::Absent => (backoff(policy, self.backoffs, random), self.backoffs + 1),
        };
        // It would end by its deadline, with less to tell (CH6.6).
        if can.remaining.is_some_and(|remaining| delay >= remaining) {
            return Next::Deliver;
        }
        (self.retries, self.backoffs) = (self.retries + 1, backoffs);
        Next::After(delay)
    }
}

/// The delay after so many retries since the last pushback (CH6.4).
fn backoff(policy: &RetryPolicy, before: u32, random: &mut fastrand::Rng) -> Duration {
    let factor = 2u32.checked_pow(before).unwrap_or(u32::MAX);
    let delay = policy.base_interval.saturating_mul(factor).min(policy.max_interval);
    delay.mul_f64(0.8 + 0.4 * random.f64())
}

/// Whether a policy retries calls that end with this code. Conditions of `retry_on` stand for five codes alone.
fn retries(policy: &RetryPolicy, code: Code) -> bool {
    let failure = match code {
        Code::Cancelled => RetryOn::Cancelled,
        Code::DeadlineExceeded => RetryOn::DeadlineExceeded,
        Code::Internal => RetryOn::Internal,
        Code::ResourceExhausted => RetryOn::ResourceExhausted,
        Code::Unavailable => RetryOn::Unavailable,
        Code::Ok
        | Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::DataLoss
        | Code::Unauthenticated => return false,
    };
    policy.retries(failure)
}

impl Pushback {
    /// Whether there is no retry.
    fn forbids(self) -> bool {
        matches!(self, Self::Never | Self::Malformed)
    }

    /// Parses the values of `grpc-retry-pushback-ms`: a decimal `i32` without leading zeros.
    pub(crate) fn parse<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Self {
        let Some(value) = values.next() else { return Self::Absent };
        let digits = value.strip_prefix(b"-").unwrap_or(value);
        let is_canonical =
            digits == b"0" || digits.first().is_some_and(|first| (b'1'..=b'9').contains(first));
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<i32>().ok());
        match number.filter(|_| is_canonical && values.next().is_none()).map(u64::try_from) {
            Some(Ok(millis)) => Self::After(Duration::from_millis(millis)),
            Some(Err(_)) => Self::Never,
            None => Self::Malformed,
        }
    }
}

impl Throttle {
    /// Creates a throttle with all its tokens. The ratio is rounded down to three decimals.
    ///
    /// # Errors
    /// A number is out of its range, with the reason.
    pub(crate) fn new(max_tokens: u32, token_ratio: f64) -> Result<Arc<Self>, String> {
        if !(1..=1_000).contains(&max_tokens) {
            return Err(format!("the tokens must be between 1 and 1000, are {max_tokens}"));
        }
        let ratio = (token_ratio * THOUSAND as f64).floor();
        if !(1.0..=1e6).contains(&ratio) {
            return Err(format!("the ratio must be between 0.001 and 1000, is {token_ratio}"));
        }
        let max = u64::from(max_tokens) * THOUSAND;
        Ok(Arc::new(Self { tokens: AtomicU64::new(max), max, ratio: ratio as u64 }))
    }

    /// Takes a token, and says whether retries are permitted.
    fn on_failure(&self) -> bool {
        let less = |tokens: u64| Some(tokens.saturating_sub(THOUSAND));
        let before = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        before.unwrap_or_else(|tokens| tokens).saturating_sub(THOUSAND) > self.max / 2
    }

    fn on_success(&self) {
        let more = |tokens: u64| (tokens < self.max).then(|| (tokens + self.ratio).min(self.max));
        // An error means that there are all tokens.
        let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

impl Throttled {
    /// The call ended with this code after its response had begun.
    pub(crate) fn record(&self, code: Code) {
        if code == Code::Ok {
            self.throttle.on_success();
        } else if self.policy.as_ref().is_some_and(|policy| retries(policy, code)) {
            self.throttle.on_failure();
        }
    }
}

/// Attempts on connections that were gone (CH6.12).
pub(crate) const MAX_NEVER_SENT: u32 = 1_000;
/// The units of a token.
const THOUSAND: u64 = 1_000;

#[cfg(test)]
mod tests;
