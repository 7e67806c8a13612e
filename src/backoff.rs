//! Delays between attempts: exponential, with jitter, up to a limit.

use std::{sync::Arc, time::Duration};

/// The growth of the delays between attempts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BackoffSettings {
    /// The first delay.
    pub(crate) initial: Duration,
    /// The factor from one delay to the next.
    pub(crate) multiplier: f64,
    /// The part of a delay by which it is longer or shorter at random.
    pub(crate) jitter: f64,
    /// The longest delay before jitter.
    pub(crate) max: Duration,
}

/// The delays between the attempts at one thing.
#[derive(Debug)]
pub(crate) struct Backoff {
    settings: Arc<BackoffSettings>,
    /// The next delay before jitter.
    next: Duration,
    /// The last delay before jitter.
    last: Duration,
}

impl BackoffSettings {
    /// gRPC's backoff of connections (connection-backoff.md), which streams, lookups and fetches have, too.
    pub(crate) const CONNECTIONS: Self =
        Self { initial: Duration::from_secs(1), multiplier: 1.6, jitter: 0.2, max: Duration::from_secs(120) };

    /// The delays of answers to a server that repeats rejected resources.
    pub(crate) const REJECTIONS: Self = Self {
        initial: Duration::from_millis(250),
        multiplier: 2.0,
        jitter: 0.2,
        max: Duration::from_secs(10),
    };

    /// The first delay, which is no longer than the longest one.
    fn first(&self) -> Duration {
        self.initial.min(self.max)
    }
}

impl Default for BackoffSettings {
    fn default() -> Self {
        Self::CONNECTIONS
    }
}

impl Backoff {
    /// Creates a backoff that begins with the first delay.
    pub(crate) fn new(settings: Arc<BackoffSettings>) -> Self {
        let first = settings.first();
        Self { next: first, last: first, settings }
    }

    /// Creates a backoff with the settings of rejections.
    pub(crate) fn for_rejections() -> Self {
        Self::new(Arc::new(BackoffSettings::REJECTIONS))
    }

    /// Returns the next delay, with jitter. The one after it is longer.
    pub(crate) fn next(&mut self, random: &mut fastrand::Rng) -> Duration {
        let BackoffSettings { multiplier, jitter, max, .. } = *self.settings;
        self.last = self.next;
        self.next = self.next.mul_f64(multiplier).min(max);
        self.last.mul_f64(1.0 - jitter + 2.0 * jitter * random.f64())
    }

    /// Makes the next delay as long as the last one.
    #[cfg_attr(
        not(any(test, feature = "balance", feature = "fuzzing")),
        allow(dead_code, reason = "the balancer alone repeats a delay")
    )]
    pub(crate) fn repeat(&mut self) {
        self.next = self.last;
    }

    /// Makes the next delay the first one again.
    pub(crate) fn reset(&mut self) {
        self.next = self.settings.first();
    }
}

/// gRPC's backoff of connections.
impl Default for Backoff {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_by_1_6_up_to_120_s_within_20_percent() {
        let mut backoff = Backoff::default();
        let mut random = fastrand::Rng::with_seed(7);
        let mut expected: f64 = 1.0;
        for _ in 0..20 {
            let delay = backoff.next(&mut random).as_secs_f64();
            assert!(
                (expected * 0.799..expected * 1.201).contains(&delay),
                "{delay} is not {expected} ± 20 %"
            );
            expected = (expected * 1.6).min(120.0);
        }
        backoff.reset();
        assert!(backoff.next(&mut random) <= Duration::from_millis(1_201));
    }

    #[test]
    fn is_repeated_by_the_same_seed() {
        let delays = |seed| {
            let mut backoff = Backoff::for_rejections();
            let mut random = fastrand::Rng::with_seed(seed);
            (0..8).map(|_| backoff.next(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(delays(1), delays(1));
        assert_ne!(delays(1), delays(2));
        assert!(delays(3)[7] <= Duration::from_secs(12));
    }

    #[test]
    fn a_repeated_delay_does_not_grow() {
        let settings = BackoffSettings { jitter: 0.0, ..BackoffSettings::REJECTIONS };
        let mut backoff = Backoff::new(Arc::new(settings));
        let mut random = fastrand::Rng::with_seed(1);
        let mut next = |repeats: bool| {
            let delay = backoff.next(&mut random).as_millis();
            if repeats {
                backoff.repeat();
            }
            delay
        };
        assert_eq!(
            [next(false), next(true), next(true), next(false), next(false)],
            [250, 500, 500, 500, 1_000]
        );
    }
}
