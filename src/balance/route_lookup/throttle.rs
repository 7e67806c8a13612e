//! Adaptive throttling of lookups: the fewer of them succeed, the fewer are sent.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The lookups of the last [`WINDOW`], and their results (as in gRPC's RLS policy: a lookup is throttled with the probability
/// `(requests - 2 × accepts) / (requests + 8)`).
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// The bins of the window that have counts, the oldest first: at most [`BINS`] and the one that leaves the window.
    bins: VecDeque<Bin>,
    /// The sums of all bins.
    requests: u64,
    accepts: u64,
}

/// Counts of a part of the window.
#[derive(Debug)]
struct Bin {
    begin: Instant,
    requests: u64,
    accepts: u64,
}

impl Throttle {
    /// Whether the next lookup is throttled, by a random number of 0 to 1. A lookup that is throttled counts as a failed one.
    pub(super) fn throttles(&mut self, now: Instant, random: f64) -> bool {
        self.expire(now);
        let (requests, accepts) = (self.requests as f64, self.accepts as f64);
        let throttles = (requests - RATIO_FOR_ACCEPTS * accepts) / (requests + REQUESTS_PADDING) > random;
        if throttles {
            self.handle_result(false, now);
        }
        throttles
    }

    /// Counts the result of a lookup that was sent.
    pub(super) fn handle_result(&mut self, is_accepted: bool, now: Instant) {
        self.expire(now);
        let is_current = |bin: &Bin| now < bin.begin + WINDOW / BINS;
        if !self.bins.back().is_some_and(is_current) {
            self.bins.push_back(Bin { begin: now, requests: 0, accepts: 0 });
        }
        if let Some(bin) = self.bins.back_mut() {
            bin.requests += 1;
            bin.accepts += u64::from(is_accepted);
            self.requests += 1;
            self.accepts += u64::from(is_accepted);
        }
    }

    /// Removes the bins that have left the window.
    fn expire(&mut self, now: Instant) {
        while let Some(bin) = self.bins.front().filter(|bin| bin.begin + WINDOW <= now) {
            self.requests -= bin.requests;
            self.accepts -= bin.accepts;
            self.bins.pop_front();
        }
    }
}

/// The time that counts.
const WINDOW: Duration = Duration::from_secs(30);
/// The number of bins of the window.
const BINS: u32 = 100;
/// How many lookups are sent for each one that is accepted.
const RATIO_FOR_ACCEPTS: f64 = 2.0;
/// The number of failed lookups below which few are throttled.
const REQUESTS_PADDING: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rl5_lookups_are_throttled_by_the_share_of_failures() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        assert!(!throttle.throttles(now, 0.0), "nothing is known");
        (0..8).for_each(|_| throttle.handle_result(false, now));
        // 8 / 16
        assert!(!throttle.throttles(now, 0.5));
        assert!(throttle.throttles(now, 0.49));
        // 9 failures, the throttled one included: 9 / 17
        assert!(throttle.throttles(now, 0.52));
        (0..10).for_each(|_| throttle.handle_result(true, now));
        // (20 - 2 × 10) / 28
        assert!(!throttle.throttles(now, 0.0));
    }

    #[test]
    fn rl5_results_count_for_thirty_seconds() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        for i in 0..10_000 {
            throttle.handle_result(false, now + Duration::from_millis(10 * i));
        }
        let end = now + Duration::from_millis(10 * 9_999);
        assert!(throttle.bins.len() <= 102, "{} bins", throttle.bins.len());
        assert!(throttle.throttles(end, 0.99));
        assert!(!throttle.throttles(end + WINDOW, 0.0));
        assert_eq!((throttle.requests, throttle.bins.len()), (0, 0));
    }
}
