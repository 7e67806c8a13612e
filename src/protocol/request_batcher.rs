use std::time::{Duration, Instant};

/// The schedule of changes of subscription.
///
/// Each request of the state-of-the-world variant repeats all names, so N changes written one by one cost O(N²)
/// bytes. A change after a quiet time is written at once, so that a single watch costs no delay. Of a run of changes
/// a request is written when the names have doubled, when the run pauses, or after a delay that grows while it goes
/// on: O(N) bytes and O(log N) requests.
#[derive(Debug, Default)]
pub(crate) struct RequestBatcher {
    /// The last request of the stream.
    last: Option<LastRequest>,
    /// A change that no request has yet.
    change: Option<Change>,
    /// The longest delay of a change in the current run, which doubles with each of its requests.
    delay: Duration,
}

/// A request that was handed out.
#[derive(Debug, Clone, Copy)]
struct LastRequest {
    at: Instant,
    /// The number of names in it.
    names: usize,
}

/// The pending change, which stands for all since the last request.
#[derive(Debug, Clone, Copy)]
struct Change {
    /// When it is to be written, whatever else changes.
    due: Instant,
}

impl RequestBatcher {
    /// The names have changed.
    pub(crate) fn on_change(&mut self, now: Instant) {
        let due = match (self.last, self.change) {
            // It is due already. While a response is in progress it cannot be written, and must not be put off further.
            (_, Some(change)) if change.due <= now => change.due,
            // A run of changes: a pause ends it, or the delay since its last request.
            (Some(last), _) if now < last.at + QUIET || self.change.is_some() => {
                (now + QUIET).min(last.at + self.delay.max(QUIET))
            }
            (Some(_) | None, _) => {
                self.delay = QUIET;
                now
            }
        };
        self.change = Some(Change { due });
    }

    /// A request with all `names` was handed out.
    pub(crate) fn on_written(&mut self, names: usize, now: Instant) {
        self.last = Some(LastRequest { at: now, names });
        self.change = None;
        self.delay = (self.delay * 2).clamp(QUIET, LONGEST);
    }

    /// The stream is new: nothing was written on it.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// The time at which the pending change is due, if there is one; `names` is the number of names now.
    pub(crate) fn due(&self, names: usize) -> Option<Instant> {
        let change = self.change?;
        match self.last {
            Some(last) if names < 2 * last.names.max(1) => Some(change.due),
            // The names have doubled: requests that double each time cost linear bytes together.
            Some(last) => Some(last.at.min(change.due)),
            None => Some(change.due),
        }
    }
}

/// The length of a pause that ends a run of changes.
const QUIET: Duration = Duration::from_millis(10);

/// The longest delay of a change while others follow.
const LONGEST: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests of `names` changes that are `gap` apart, by the number of names in each.
    fn requests(names: usize, gap: Duration) -> Vec<usize> {
        let start = Instant::now();
        let mut batcher = RequestBatcher::default();
        let mut requests = Vec::new();
        let mut flush = |batcher: &mut RequestBatcher, named: usize, until: Instant| {
            if let Some(due) = batcher.due(named).filter(|due| *due <= until) {
                batcher.on_written(named, due.max(start));
                requests.push(named);
            }
        };
        let mut now = start;
        for named in 1..=names {
            flush(&mut batcher, named - 1, now);
            batcher.on_change(now);
            flush(&mut batcher, named, now);
            now += gap;
        }
        flush(&mut batcher, names, now + LONGEST);
        assert_eq!(batcher.due(names), None);
        requests
    }

    #[test]
    fn a_single_change_is_written_at_once() {
        assert_eq!(requests(1, Duration::ZERO), [1]);
    }

    #[test]
    fn changes_after_a_quiet_time_are_written_at_once() {
        assert_eq!(requests(4, Duration::from_millis(10)), [1, 2, 3, 4]);
    }

    #[test]
    fn a_run_of_changes_costs_few_requests_and_linear_bytes() {
        for gap in [0, 1, 10, 20, 50, 100, 500, 1_000] {
            let requests = requests(10_000, Duration::from_micros(gap));
            assert_eq!(requests.last(), Some(&10_000));
            let seconds = (gap as usize * 10_000) / 1_000_000;
            assert!(requests.len() <= 18 + 6 * seconds, "{} requests with {gap} µs between", requests.len());
            let sum = requests.iter().sum::<usize>();
            assert!(sum <= 10_000 * (5 + 3 * seconds), "{sum} names with {gap} µs between");
        }
    }

    #[test]
    fn the_end_of_a_run_is_written_after_a_pause_of_10_ms() {
        let start = Instant::now();
        let mut batcher = RequestBatcher::default();
        batcher.on_change(start);
        batcher.on_written(64, start);
        for ms in 1..=5 {
            batcher.on_change(start + Duration::from_millis(ms));
        }
        assert_eq!(batcher.due(69), Some(start + Duration::from_millis(15)));
    }
}
