//! The choice among alternatives in order of preference (A56, A115): the priorities of a cluster, and the leaves of an aggregate.

use std::{
    mem,
    time::{Duration, Instant},
};

use super::connectivity::Connectivity;

/// What [`Failover`] chooses among.
pub(super) trait Alternatives {
    /// Begins to connect one that is not there yet.
    fn create(&mut self, index: usize);
    /// Uses one again that was retained.
    fn reactivate(&mut self, index: usize);
    /// Ends one.
    fn destroy(&mut self, index: usize);
    /// The connectivity of one that was created.
    fn connectivity(&self, index: usize) -> Connectivity;
}

/// The state of the alternatives, the preferred one first.
///
/// ```text
///           create                 a preferred one is usable
///   Absent ────────▶ Present ────────────────────────────────▶ Present, retained
///      ▲               ▲                                          │       │
///      │               └──────────── it is reached again ─────────┘       │
///      └───────────────────────────── 15 min later ───────────────────────┘
/// ```
#[derive(Debug, Default)]
pub(super) struct Failover {
    alternatives: Vec<Life>,
    /// The index of the alternative in use. `None` without alternatives, and before the first choice.
    chosen: Option<usize>,
}

#[derive(Debug, Default)]
enum Life {
    #[default]
    Absent,
    Present(Present),
}

#[derive(Debug)]
struct Present {
    /// The connectivity when it was last observed.
    last: Connectivity,
    /// The alternative was ready or idle more recently than it failed (CH3.54).
    was_usable: bool,
    /// While this is ahead, requests wait for it (CH3.54).
    failover_at: Option<Instant>,
    /// Not needed now, and kept until then (CH3.56).
    retained_until: Option<Instant>,
}

impl Failover {
    /// The alternative that requests use, or wait for.
    pub(super) fn chosen(&self) -> Option<usize> {
        self.chosen
    }

    /// When [`choose`](Self::choose) is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let present = self.alternatives.iter().filter_map(|life| match life {
            Life::Absent => None,
            Life::Present(it) => Some(it),
        });
        present.flat_map(|alternative| [alternative.failover_at, alternative.retained_until]).flatten().min()
    }

    /// Gives the alternatives new places: `places[i]` is where the one at `i` was, if it was there. The others are destroyed by the
    /// caller.
    pub(super) fn rearrange(&mut self, places: &[Option<usize>]) {
        let mut before = mem::take(&mut self.alternatives);
        let lives = places.iter().map(|place| place.and_then(|place| before.get_mut(place)).map(mem::take));
        self.alternatives = lives.map(Option::unwrap_or_default).collect();
        self.chosen = None;
    }

    /// Keeps one that the caller has created, although it is not needed, as if it had just been in use.
    pub(super) fn retain(&mut self, index: usize, now: Instant) {
        if self.alternatives.len() <= index {
            self.alternatives.resize_with(index + 1, Life::default);
        }
        // It has a connection: once that is lost, requests wait for it as after its use (CH3.54).
        self.alternatives[index] = Life::Present(Present {
            last: Connectivity::Ready,
            was_usable: true,
            failover_at: None,
            retained_until: Some(now + RETENTION),
        });
    }

    /// Chooses among as many as there are, after any of them changed, or the time did. The same states lead to the same choice.
    pub(super) fn choose(&mut self, count: usize, now: Instant, alternatives: &mut dyn Alternatives) {
        // Alternatives that are not configured any more end at once, without the 15 min of those that are not needed (CH3.56).
        for index in count..self.alternatives.len() {
            self.destroy(index, alternatives);
        }
        self.alternatives.resize_with(count, Life::default);
        self.observe(now, alternatives);
        self.chosen = None;
        let mut first_connecting = None;
        for index in 0..count {
            let it = self.reach(index, now, alternatives);
            match it.last {
                Connectivity::Ready | Connectivity::Idle => {
                    self.chosen = Some(index);
                    self.retain_below(index, now);
                    break;
                }
                // While its timer runs, requests wait for it even if a lower one is ready (CH3.55).
                Connectivity::Connecting | Connectivity::TransientFailure if it.failover_at.is_some() => {
                    self.chosen = Some(index);
                    break;
                }
                Connectivity::Connecting => first_connecting = first_connecting.or(Some(index)),
                Connectivity::TransientFailure => {}
            }
        }
        // The end of a timer is no failure: a connecting alternative still precedes the last one (CH3.55).
        self.chosen = self.chosen.or(first_connecting).or_else(|| count.checked_sub(1));
    }

    /// Destroys all.
    pub(super) fn clear(&mut self, alternatives: &mut dyn Alternatives) {
        for index in 0..self.alternatives.len() {
            self.destroy(index, alternatives);
        }
        self.chosen = None;
    }

    /// Takes note of what changed in those that are there.
    fn observe(&mut self, now: Instant, alternatives: &mut dyn Alternatives) {
        for index in 0..self.alternatives.len() {
            let Life::Present(it) = &mut self.alternatives[index] else { continue };
            it.failover_at = it.failover_at.filter(|at| *at > now);
            it.become_(alternatives.connectivity(index), now);
            if it.retained_until.is_some_and(|until| until <= now) {
                self.destroy(index, alternatives);
            }
        }
    }

    /// The one at an index, created or in use again.
    fn reach(&mut self, index: usize, now: Instant, alternatives: &mut dyn Alternatives) -> &Present {
        let life = &mut self.alternatives[index];
        if let Life::Absent = life {
            alternatives.create(index);
            let mut it = Present {
                last: Connectivity::Connecting,
                was_usable: false,
                failover_at: Some(now + FAILOVER),
                retained_until: None,
            };
            it.become_(alternatives.connectivity(index), now);
            *life = Life::Present(it);
        }
        match life {
            Life::Present(it) => {
                if it.retained_until.take().is_some() {
                    // Endpoints that were idle while it was not needed may begin to connect here.
                    alternatives.reactivate(index);
                    it.become_(alternatives.connectivity(index), now);
                }
                it
            }
            Life::Absent => unreachable!("it was created above"),
        }
    }

    /// Keeps the alternatives below the chosen one for a while.
    fn retain_below(&mut self, index: usize, now: Instant) {
        for life in &mut self.alternatives[index + 1..] {
            if let Life::Present(it) = life {
                // The time of those that have not been needed for longer goes on.
                it.retained_until.get_or_insert(now + RETENTION);
            }
        }
    }

    fn destroy(&mut self, index: usize, alternatives: &mut dyn Alternatives) {
        if let Life::Present(_) = mem::take(&mut self.alternatives[index]) {
            alternatives.destroy(index);
        }
    }
}

impl Present {
    /// Records the connectivity, with the timer that follows from the change.
    fn become_(&mut self, connectivity: Connectivity, now: Instant) {
        match connectivity {
            Connectivity::Ready | Connectivity::Idle => (self.was_usable, self.failover_at) = (true, None),
            Connectivity::TransientFailure => (self.was_usable, self.failover_at) = (false, None),
            // Connecting again after a failure does not make requests wait (CH3.54).
            Connectivity::Connecting => {
                if self.last != Connectivity::Connecting && self.was_usable {
                    self.failover_at = Some(now + FAILOVER);
                }
            }
        }
        self.last = connectivity;
    }
}

/// How long requests wait for a preferred alternative that is connecting (A56).
const FAILOVER: Duration = Duration::from_secs(10);
/// How long an alternative is kept that is not needed (A56).
const RETENTION: Duration = Duration::from_secs(15 * 60);

#[cfg(test)]
mod tests {
    use super::{Connectivity::*, *};

    /// Alternatives with states that the test sets.
    #[derive(Default)]
    struct Scripted {
        states: Vec<Connectivity>,
        created: Vec<usize>,
        destroyed: Vec<usize>,
    }

    impl Alternatives for Scripted {
        fn create(&mut self, index: usize) {
            self.created.push(index);
        }
        fn reactivate(&mut self, _: usize) {}
        fn destroy(&mut self, index: usize) {
            self.destroyed.push(index);
        }
        fn connectivity(&self, index: usize) -> Connectivity {
            self.states[index]
        }
    }

    struct Fixture {
        failover: Failover,
        world: Scripted,
        start: Instant,
    }

    impl Fixture {
        fn new(states: &[Connectivity]) -> Self {
            let world = Scripted { states: states.to_vec(), ..Scripted::default() };
            let mut fixture = Self { failover: Failover::default(), world, start: Instant::now() };
            fixture.at(0);
            fixture
        }

        fn at(&mut self, seconds: u64) -> Option<usize> {
            let now = self.start + Duration::from_secs(seconds);
            self.failover.choose(self.world.states.len(), now, &mut self.world);
            self.failover.chosen()
        }

        fn becomes(&mut self, index: usize, state: Connectivity, seconds: u64) -> Option<usize> {
            self.world.states[index] = state;
            self.at(seconds)
        }
    }

    #[test]
    fn ch3_54_a_connecting_priority_is_waited_for_10_s_and_the_next_is_created_then() {
        let mut it = Fixture::new(&[Connecting, Connecting]);
        assert_eq!((it.at(9), it.world.created.as_slice()), (Some(0), &[0][..]));
        assert_eq!(it.failover.poll_timeout(), Some(it.start + FAILOVER));
        // Connecting again and again does not restart the timer.
        assert_eq!((it.at(10), it.world.created.as_slice()), (Some(1), &[0, 1][..]));
    }

    #[test]
    fn ch3_55_without_a_usable_priority_the_first_connecting_one_is_used_or_else_the_last() {
        let mut it = Fixture::new(&[Connecting, Connecting, TransientFailure]);
        it.at(10);
        assert_eq!(it.at(20), Some(0), "the end of a timer is not a failure");
        assert_eq!(it.becomes(0, TransientFailure, 21), Some(1));
        assert_eq!(it.becomes(1, TransientFailure, 22), Some(2));
    }

    #[test]
    fn ch3_54_a_failed_priority_that_connects_again_is_not_waited_for() {
        let mut it = Fixture::new(&[TransientFailure, Ready]);
        assert_eq!(it.failover.chosen(), Some(1));
        assert_eq!(it.becomes(0, Connecting, 1), Some(1), "it failed more recently than it was ready");
        assert_eq!(it.becomes(0, Ready, 2), Some(0));
        assert_eq!(it.becomes(0, Connecting, 3), Some(0), "it was ready, so requests wait");
        assert_eq!(it.at(13), Some(1));
    }

    #[test]
    fn ch3_55_while_the_timer_runs_requests_wait_although_a_lower_priority_is_ready() {
        let mut it = Fixture::new(&[TransientFailure, Ready]);
        it.becomes(0, Ready, 1);
        assert_eq!(it.becomes(0, Connecting, 2), Some(0));
        assert_eq!(it.at(11), Some(0));
        assert_eq!(it.at(12), Some(1));
    }

    #[test]
    fn ch3_56_a_lower_priority_is_kept_15_min_and_created_again_when_needed() {
        let mut it = Fixture::new(&[TransientFailure, Ready]);
        assert_eq!(it.becomes(0, Ready, 1), Some(0));
        assert_eq!(it.at(900), Some(0));
        assert!(it.world.destroyed.is_empty());
        assert_eq!((it.at(901), it.world.destroyed.as_slice()), (Some(0), &[1][..]));
        assert_eq!(it.becomes(0, TransientFailure, 902), Some(1));
        assert_eq!(it.world.created, [0, 1, 1]);
        // In use again before the time is over: it stays.
        it.becomes(0, Ready, 903);
        it.becomes(0, TransientFailure, 904);
        assert_eq!(it.failover.poll_timeout(), None);
    }

    #[test]
    fn ch3_56_a_priority_that_is_removed_is_destroyed_at_once() {
        let mut it = Fixture::new(&[TransientFailure, Ready]);
        it.world.states.pop();
        assert_eq!((it.at(1), it.world.destroyed.as_slice()), (Some(0), &[1][..]));
    }

    #[test]
    fn ch3_58_without_priorities_none_is_chosen() {
        assert_eq!(Fixture::new(&[]).failover.chosen(), None);
        assert_eq!(
            Fixture::new(&[TransientFailure, Connecting]).failover.chosen(),
            Some(1),
            "no wait for P0"
        );
    }

    #[test]
    fn ch3_54_the_timer_goes_on_when_a_priority_is_not_needed() {
        let mut it = Fixture::new(&[Ready, Ready]);
        assert_eq!(it.becomes(0, TransientFailure, 1), Some(1));
        assert_eq!(it.becomes(1, Connecting, 2), Some(1));
        assert_eq!(it.becomes(0, Ready, 3), Some(0));
        assert_eq!(it.becomes(0, TransientFailure, 4), Some(1));
        assert_eq!(it.failover.poll_timeout(), Some(it.start + Duration::from_secs(12)));
    }

    #[test]
    fn ch3_60_alternatives_keep_their_state_at_new_places() {
        let mut it = Fixture::new(&[TransientFailure, Ready]);
        it.failover.rearrange(&[Some(1), None]);
        it.world.states = vec![Ready, Connecting];
        assert_eq!(it.at(1), Some(0));
        assert_eq!(it.world.created, [0, 1], "the ready one was there, and the new one is not needed");
    }
}
