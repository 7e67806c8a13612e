//! Calls that are retried, beside a model of what follows each end of an attempt.
//!
//! The model is computed from the ends alone: it counts what was sent, by the policy and for nothing, and keeps the tokens of the
//! throttle as the sum of what they lose and gain.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc, time::Duration};

use super::choices::Choices;
use crate::{
    balance::retry::{
        AttemptEnd, MAX_NEVER_SENT, Next, Pushback, Repeatable, Retries, RetrySettings, Throttle,
    },
    error::Code,
    resource::retry::{RetryOn, RetryPolicy},
};

/// The calls of a channel.
pub(super) struct Calls<'a> {
    choices: Choices<'a>,
    random: fastrand::Rng,
    settings: RetrySettings,
    /// The throttle, if there is one.
    tokens: Option<Tokens>,
    outcomes: BTreeMap<&'static str, u64>,
}

/// The tokens of a throttle, in thousandths.
struct Tokens {
    max: u64,
    ratio: u64,
    left: u64,
}

/// What is known of a call.
#[derive(Default)]
struct Call {
    policy: Option<Arc<RetryPolicy>>,
    max_attempts: u32,
    /// The attempts after the first, by the policy.
    retries: u32,
    /// The delays since the last one that the server has chosen.
    doublings: u32,
    never_sent: u32,
    /// The attempts that a server has not processed, and that were repeated for that reason.
    unprocessed: u32,
    lost_connections: u32,
}

/// What has to follow.
#[derive(Debug, PartialEq)]
enum Expected {
    Deliver,
    Free,
    NeverSent,
    After(RangeInclusive<Duration>),
    /// Chance decides whether the delay ends before the deadline.
    AfterOrDeliver(RangeInclusive<Duration>),
}

impl<'a> Calls<'a> {
    pub(super) fn new(seed: u64, mut choices: Choices<'a>) -> Self {
        let tokens = choices.bool().then(|| {
            let (max, ratio) = (1 + choices.below(12) as u64, 1 + choices.below(250) as u64 * 8);
            Tokens { max: max * 1_000, ratio, left: max * 1_000 }
        });
        let throttle = tokens.as_ref().map(|it| {
            // Half a thousandth more, as decimal fractions are not exact.
            let throttle = Throttle::new((it.max / 1_000) as u32, (it.ratio as f64 + 0.5) / 1_000.0);
            throttle.expect("the numbers are in range")
        });
        let settings = RetrySettings { max_attempts: 1 + choices.below(6) as u32, throttle };
        let random = fastrand::Rng::with_seed(seed);
        Self { choices, random, settings, tokens, outcomes: BTreeMap::new() }
    }

    /// Makes calls to the end of the script; returns how often each decision was met.
    pub(super) fn play(mut self) -> BTreeMap<&'static str, u64> {
        while self.choices.next_operation() {
            self.call();
        }
        self.outcomes
    }

    /// A call, until one of its attempts is the last.
    fn call(&mut self) {
        let policy = self.policy();
        let mut retries = Retries::new(policy.clone(), &self.settings);
        let mut call = Call { policy, max_attempts: self.settings.max_attempts, ..Call::default() };
        // A connection that is lost again and again.
        let is_unlucky = self.choices.below(256) == 255;
        loop {
            assert_eq!(retries.previous(), call.retries);
            if !is_unlucky && self.choices.below(4) == 0 {
                return self.succeed(&retries);
            }
            let end = if is_unlucky { AttemptEnd::NeverSent } else { self.end() };
            let can = self.can();
            let expected = call.expected(end, can, self.tokens.as_mut());
            let next = retries.next(end, can, &mut self.random);
            let (name, is_right) = match next {
                Next::Deliver => ("deliver", expected.is_delivery()),
                Next::Free => ("free", expected == Expected::Free),
                Next::NeverSent => ("never sent", expected == Expected::NeverSent),
                Next::After(delay) => ("retry", expected.has_delay(delay, can.remaining)),
            };
            assert!(is_right, "{next:?} instead of {expected:?} after {end:?}, {can:?}, {:?}", call.policy);
            *self.outcomes.entry(name).or_default() += 1;
            if matches!(next, Next::Deliver | Next::NeverSent) {
                return;
            }
        }
    }

    /// The response begins; it ends well, or badly.
    fn succeed(&mut self, retries: &Retries) {
        let Some(throttled) = retries.throttled() else { return };
        throttled.record(Code::Ok);
        if let Some(tokens) = &mut self.tokens {
            tokens.left = tokens.max.min(tokens.left + tokens.ratio);
        }
    }

    fn policy(&mut self) -> Option<Arc<RetryPolicy>> {
        if self.choices.below(8) == 0 {
            return None;
        }
        let retry_on = FAILURES.map(|(_, failure)| failure);
        let count = 1 + self.choices.below(3);
        let base = Duration::from_millis(1 + self.choices.below(50) as u64);
        Some(Arc::new(RetryPolicy {
            retry_on: retry_on[..count].into(),
            num_retries: 1 + self.choices.below(6) as u32,
            base_interval: base,
            max_interval: base * (1 + self.choices.below(12) as u32),
        }))
    }

    fn end(&mut self) -> AttemptEnd {
        let codes = [Code::Unavailable, Code::Unavailable, Code::Internal, Code::Cancelled, Code::Aborted];
        let code = codes[self.choices.below(codes.len())];
        let millis = self.choices.below(200) as u64;
        match self.choices.below(8) {
            0 => AttemptEnd::NeverSent,
            1 => AttemptEnd::NeverProcessed(code),
            2 if millis < 100 => AttemptEnd::Failed(code, Pushback::Never),
            2 => AttemptEnd::Failed(code, Pushback::Malformed),
            3 => AttemptEnd::Failed(code, Pushback::After(Duration::from_millis(millis))),
            4 => AttemptEnd::ConnectionLost(code),
            _ => AttemptEnd::Failed(code, Pushback::Absent),
        }
    }

    fn can(&mut self) -> Repeatable {
        let millis = [0, 1, 30, 100, 10_000][self.choices.below(5)];
        Repeatable {
            is_kept: self.choices.below(8) > 0,
            remaining: self.choices.bool().then(|| Duration::from_millis(millis)),
        }
    }
}

impl Call {
    /// What has to follow the end of an attempt. It is noted.
    fn expected(&mut self, end: AttemptEnd, mut can: Repeatable, tokens: Option<&mut Tokens>) -> Expected {
        let (code, pushback) = match end {
            AttemptEnd::NeverSent => {
                self.never_sent += 1;
                return if self.never_sent > MAX_NEVER_SENT { Expected::NeverSent } else { Expected::Free };
            }
            AttemptEnd::NeverProcessed(_) if can.is_kept && self.unprocessed + self.retries == 0 => {
                self.unprocessed += 1;
                return Expected::Free;
            }
            AttemptEnd::NeverProcessed(code) => (code, Pushback::Absent),
            AttemptEnd::ConnectionLost(code) => {
                self.lost_connections += 1;
                can.is_kept &= self.lost_connections == 1;
                (code, Pushback::Absent)
            }
            AttemptEnd::Failed(code, pushback) => (code, pushback),
        };
        let failure = FAILURES.iter().find(|failure| failure.0 == code);
        let policy =
            self.policy.clone().filter(|it| failure.is_some_and(|(_, one)| it.retry_on.contains(one)));
        let mut is_throttled = false;
        if let Some(tokens) =
            tokens.filter(|_| policy.is_some() || matches!(pushback, Pushback::Never | Pushback::Malformed))
        {
            tokens.left = tokens.left.saturating_sub(1_000);
            is_throttled = 2 * tokens.left <= tokens.max;
        }
        let Some(policy) = policy.filter(|_| can.is_kept && !is_throttled) else { return Expected::Deliver };
        if self.retries >= policy.num_retries || self.retries + 1 >= self.max_attempts {
            return Expected::Deliver;
        }
        let range = match pushback {
            Pushback::Never | Pushback::Malformed => return Expected::Deliver,
            Pushback::After(delay) => {
                self.doublings = 0;
                delay..=delay
            }
            Pushback::Absent => {
                let delay = policy.max_interval.min(policy.base_interval * (1 << self.doublings));
                self.doublings += 1;
                delay.mul_f64(0.799_999)..=delay.mul_f64(1.200_001)
            }
        };
        let is_in_time = |delay: &Duration| can.remaining.is_none_or(|remaining| *delay < remaining);
        match (is_in_time(range.start()), is_in_time(range.end())) {
            (false, _) => Expected::Deliver,
            (true, is_certain) => {
                self.retries += 1;
                if is_certain { Expected::After(range) } else { Expected::AfterOrDeliver(range) }
            }
        }
    }
}

impl Expected {
    fn is_delivery(&self) -> bool {
        matches!(self, Self::Deliver | Self::AfterOrDeliver(_))
    }

    fn has_delay(&self, delay: Duration, remaining: Option<Duration>) -> bool {
        match self {
            Self::After(range) | Self::AfterOrDeliver(range) => {
                range.contains(&delay) && remaining.is_none_or(|remaining| delay < remaining)
            }
            Self::Deliver | Self::Free | Self::NeverSent => false,
        }
    }
}

/// The codes that policies name here.
const FAILURES: [(Code, RetryOn); 3] = [
    (Code::Unavailable, RetryOn::Unavailable),
    (Code::Internal, RetryOn::Internal),
    (Code::Cancelled, RetryOn::Cancelled),
];
