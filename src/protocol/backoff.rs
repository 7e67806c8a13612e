//! Delays between attempts, by the arithmetic of the crate `backoff`, which is used in this file alone.

use std::time::{Duration, Instant};

use backoff::{Clock, backoff::Backoff as _, exponential::ExponentialBackoff};

/// Exponentially growing delays with jitter from the machine's seed.
#[derive(Debug)]
pub(crate) struct Backoff {
    delays: ExponentialBackoff<Stopped>,
}

impl Backoff {
    /// gRPC's connection backoff: 1 s × 1.6 up to 120 s.
    pub(crate) fn for_connections(now: Instant) -> Self {
        Self::new(now, Duration::from_secs(1), 1.6, Duration::from_secs(120))
    }

    /// Delays of answers to a server that repeats rejected resources: 250 ms × 2 up to 10 s.
    pub(crate) fn for_rejections(now: Instant) -> Self {
        Self::new(now, Duration::from_millis(250), 2.0, Duration::from_secs(10))
    }

    /// Delays from `first` on, each `multiplier` times the one before, up to `longest`.
    fn new(now: Instant, first: Duration, multiplier: f64, longest: Duration) -> Self {
        let delays = ExponentialBackoff {
            current_interval: first,
            initial_interval: first,
            // Jitter must come from the seed: see `next`.
            randomization_factor: 0.0,
            multiplier,
            max_interval: longest,
            start_time: now,
            max_elapsed_time: None,
            clock: Stopped(now),
        };
        Self { delays }
    }

    /// The next delay, ± 20 %.
    pub(crate) fn next(&mut self, random: &mut fastrand::Rng) -> Duration {
        // `None` is for a limit of the elapsed time, which is not set.
        let delay = self.delays.next_backoff().unwrap_or(self.delays.max_interval);
        delay.mul_f64(0.8 + 0.4 * random.f64())
    }

    /// The next delay is the first one again.
    pub(crate) fn reset(&mut self) {
        self.delays.reset();
    }
}

/// The clock of a backoff without a limit of elapsed time: it is read, but never matters.
#[derive(Debug)]
struct Stopped(Instant);

impl Clock for Stopped {
    fn now(&self) -> Instant {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_by_1_6_up_to_120_s_within_20_percent() {
        let mut backoff = Backoff::for_connections(Instant::now());
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
            let mut backoff = Backoff::for_rejections(Instant::now());
            let mut random = fastrand::Rng::with_seed(seed);
            (0..8).map(|_| backoff.next(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(delays(1), delays(1));
        assert_ne!(delays(1), delays(2));
        assert!(delays(3)[7] <= Duration::from_secs(12));
    }
}
