use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The delays between attempts to connect (connection-backoff.md, CH3.2).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BackoffSettings {
    /// The first delay; 1 s.
    pub(crate) initial: Duration,
    /// The factor from one delay to the next; 1.6.
    pub(crate) multiplier: f64,
    /// The part of a delay by which it is longer or shorter at random; 0.2.
    pub(crate) jitter: f64,
    /// The longest delay before jitter; 120 s.
    pub(crate) max: Duration,
    /// The time that an attempt has at least; 20 s.
    pub(crate) min_connect_timeout: Duration,
}

/// The state of the delays of one address.
#[derive(Debug)]
pub(crate) struct Backoff {
    settings: Arc<BackoffSettings>,
    /// The next delay before jitter.
    next: Duration,
    /// The last one.
    last: Duration,
}

/// An attempt that begins: its timeout, and when the next one may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(super) timeout: Duration,
    /// The delay to the next attempt, from the begin of this one.
    pub(super) delay: Duration,
    pub(crate) next_at: Instant,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            multiplier: 1.6,
            jitter: 0.2,
            max: Duration::from_secs(120),
            min_connect_timeout: Duration::from_secs(20),
        }
    }
}

impl Backoff {
    pub(crate) fn new(settings: Arc<BackoffSettings>) -> Self {
        let first = settings.initial.min(settings.max);
        Self { next: first, last: first, settings }
    }

    /// Begins an attempt. The delay to the next attempt is counted from here.
    pub(crate) fn begin(&mut self, now: Instant, random: &mut fastrand::Rng) -> Attempt {
        let BackoffSettings { multiplier, jitter, max, min_connect_timeout, .. } = *self.settings;
        let delay = self.next.mul_f64(1.0 - jitter + 2.0 * jitter * random.f64());
        self.last = self.next;
        self.next = self.next.mul_f64(multiplier).min(max);
        Attempt { timeout: delay.max(min_connect_timeout), delay, next_at: now + delay }
    }

    /// The next delay is the last one again: it does not grow.
    pub(super) fn repeat(&mut self) {
        self.next = self.last;
    }

    /// The next delay is the first one again.
    pub(crate) fn reset(&mut self) {
        self.next = self.settings.initial.min(self.settings.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ch3_2_delays_grow_by_1_6_to_120_s_from_the_start_of_the_attempt() {
        let (now, mut random) = (Instant::now(), fastrand::Rng::with_seed(1));
        let mut backoff = Backoff::new(Arc::default());
        let mut expected = 1.0_f64;
        for _ in 0..20 {
            let Attempt { timeout, next_at, .. } = backoff.begin(now, &mut random);
            let delay = next_at - now;
            let relative = delay.as_secs_f64() / expected;
            assert!((0.799..1.201).contains(&relative), "{delay:?} is not {expected} s ± 20 %");
            assert_eq!(timeout, delay.max(Duration::from_secs(20)));
            expected = (expected * 1.6).min(120.0);
        }
        backoff.reset();
        assert!(backoff.begin(now, &mut random).next_at <= now + Duration::from_millis(1_200));
    }

    #[test]
    fn ch3_2_all_delays_are_settings() {
        let (now, mut random) = (Instant::now(), fastrand::Rng::with_seed(1));
        let mut backoff = Backoff::new(Arc::new(BackoffSettings {
            initial: Duration::from_millis(100),
            multiplier: 2.0,
            jitter: 0.0,
            max: Duration::from_millis(300),
            min_connect_timeout: Duration::from_millis(250),
        }));
        let mut attempt = || {
            let Attempt { timeout, next_at, .. } = backoff.begin(now, &mut random);
            (timeout.as_millis(), (next_at - now).as_millis())
        };
        assert_eq!(
            [attempt(), attempt(), attempt(), attempt()],
            [(250, 100), (250, 200), (300, 300), (300, 300)]
        );
    }
}
