use std::time::{Duration, Instant};

/// Ten at once, and one a second after that: the rate of what a server causes.
#[derive(Debug, Default)]
pub(super) struct Burst {
    /// The time at which all of it is available again.
    full_at: Option<Instant>,
}

/// The rate of a warning that a server causes, with the number of those that are left out (B0.24).
#[derive(Debug, Default)]
pub(super) struct WarningRate {
    /// The rate of all warnings of a machine, whatever they are about.
    burst: Burst,
    /// The number of warnings since the last one that was due.
    left_out: u64,
}

impl Burst {
    /// The delay of the next of them: at most a second. Of several that have to wait, the owner lets one through a second, and keeps
    /// `most_waiting` of them at most.
    pub(super) fn take(&mut self, most_waiting: u32, now: Instant) -> Duration {
        let delay = self.delay(now);
        let full_at = self.full_at.map_or(now, |at| at.max(now));
        // What waits takes what is there then, so that nothing is left of it for the next.
        self.full_at = Some((full_at + REFILL).min(now + REFILL * (BURST + most_waiting)));
        delay
    }

    /// What waits is not let through any more.
    pub(super) fn forget_waiting(&mut self, now: Instant) {
        self.full_at = self.full_at.map(|at| at.min(now + REFILL * BURST));
    }

    /// The delay of the next of them, which is not taken.
    pub(super) fn delay(&self, now: Instant) -> Duration {
        let used = self.full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        used.saturating_sub(REFILL * (BURST - 1)).min(REFILL)
    }

    /// Whether one that was taken has to wait still.
    pub(super) fn is_overdrawn(&self, now: Instant) -> bool {
        self.full_at.is_some_and(|at| at > now + REFILL * BURST)
    }

    /// The next of them, if it need not wait.
    pub(super) fn try_take(&mut self, now: Instant) -> bool {
        let before = self.full_at;
        // What is left out takes nothing of the rate, so that one a second is let through however many are left out.
        let is_due = self.take(1, now).is_zero();
        if !is_due {
            self.full_at = before;
        }
        is_due
    }
}

impl WarningRate {
    /// Whether a warning is due now: then the number of those before it that were left out.
    pub(super) fn take(&mut self, now: Instant) -> Option<u64> {
        if self.burst.try_take(now) {
            return Some(std::mem::take(&mut self.left_out));
        }
        self.left_out += 1;
        None
    }
}

/// The number that is let through at once.
const BURST: u32 = 10;

/// The time after which one more is let through.
pub(super) const REFILL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b0_24_after_the_burst_one_a_second_is_let_through_although_each_waits_for_its_turn() {
        let (start, mut burst) = (Instant::now(), Burst::default());
        let mut now = start;
        for _ in 0..100 {
            now += burst.take(1, now);
        }
        assert_eq!(now - start, REFILL * (100 - BURST));
    }

    #[test]
    fn b0_24_what_waits_is_counted_until_it_is_forgotten() {
        let (now, mut burst) = (Instant::now(), Burst::default());
        for _ in 0..BURST + 30 {
            burst.take(30, now);
        }
        assert!(burst.is_overdrawn(now + REFILL * 29) && !burst.is_overdrawn(now + REFILL * 30));
        assert_eq!(burst.delay(now + REFILL * 30), REFILL, "the last of them was let through then");
        burst.forget_waiting(now);
        assert!(!burst.is_overdrawn(now) && burst.delay(now + REFILL).is_zero());
    }

    #[test]
    fn b0_24_warnings_are_let_through_up_to_the_limit_and_counted_past_it() {
        let mut rate = WarningRate::default();
        let mut now = Instant::now();
        let taken: Vec<_> = (0..12).map(|_| rate.take(now)).collect();
        assert_eq!(taken[..10], [Some(0); 10]);
        assert_eq!(taken[10..], [None, None]);
        now += REFILL;
        assert_eq!((rate.take(now), rate.take(now)), (Some(2), None), "one a second, with the count");
        now += REFILL * 60;
        let taken = (0..12).filter_map(|_| rate.take(now)).count();
        assert_eq!(taken, 10);
    }
}
