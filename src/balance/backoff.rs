//! The attempts to connect to an address: their delays and their timeouts (connection-backoff.md, CH3.2).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::backoff::{Backoff, BackoffSettings};

/// Settings of the attempts to connect.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConnectSettings {
    /// The delays between attempts.
    pub(crate) backoff: Arc<BackoffSettings>,
    /// The time that an attempt has at least; 20 s.
    pub(crate) min_connect_timeout: Duration,
}

/// The attempts to connect to one address.
#[derive(Debug)]
pub(crate) struct ConnectBackoff {
    /// The delays, each from the begin of an attempt to the begin of the next one.
    delays: Backoff,
    min_connect_timeout: Duration,
}

/// An attempt that begins: its timeout, and when the next one may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// The time limit of the attempt: the delay, or `min_connect_timeout` if that is longer.
    pub(super) timeout: Duration,
    /// The delay to the next attempt, from the begin of this one.
    pub(super) delay: Duration,
    /// The earliest begin of the next attempt: a delay after the begin of this one.
    pub(crate) next_at: Instant,
}

impl Default for ConnectSettings {
    fn default() -> Self {
        Self { backoff: Arc::default(), min_connect_timeout: Duration::from_secs(20) }
    }
}

impl ConnectBackoff {
    pub(super) fn new(settings: ConnectSettings) -> Self {
        let ConnectSettings { backoff, min_connect_timeout } = settings;
        Self { delays: Backoff::new(backoff), min_connect_timeout }
    }

    /// Begins an attempt. The delay to the next attempt is counted from here.
    pub(super) fn begin(&mut self, now: Instant, random: &mut fastrand::Rng) -> Attempt {
        let delay = self.delays.next(random);
        // The first delays are shorter than a slow handshake, which must not fail because of that (connection-backoff.md).
        Attempt { timeout: delay.max(self.min_connect_timeout), delay, next_at: now + delay }
    }

    /// Makes the next delay as long as the last one. A failure on this side, such as the lack of a file descriptor, is no reason
    /// for a longer one.
    pub(super) fn repeat(&mut self) {
        self.delays.repeat();
    }

    /// Makes the next delay the first one again.
    pub(super) fn reset(&mut self) {
        self.delays.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ch3_2_delays_grow_by_1_6_to_120_s_from_the_start_of_the_attempt() {
        let (now, mut random) = (Instant::now(), fastrand::Rng::with_seed(1));
        let mut backoff = ConnectBackoff::new(ConnectSettings::default());
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
        let delays = BackoffSettings {
            initial: Duration::from_millis(100),
            multiplier: 2.0,
            jitter: 0.0,
            max: Duration::from_millis(300),
        };
        let mut backoff = ConnectBackoff::new(ConnectSettings {
            backoff: Arc::new(delays),
            min_connect_timeout: Duration::from_millis(250),
        });
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
